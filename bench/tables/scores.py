"""From runs to numbers: seed means and deviations, formats, and which cell is best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bench.tables.collection import MethodRuns

Direction = Literal["higher", "lower", ""]
Status = Literal["value", "n/a", "missing"]
Mark = Literal["best", "second", ""]
Key = tuple[str, ...]

GAP = "–"
NOT_APPLICABLE = "n/a"
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")


@dataclass(frozen=True)
class Score:
    """A metric of a method over its seeds, in its own unit.

    Attributes:
        status: ``value``; ``n/a`` if it does not apply; ``missing`` if no run has it yet.
        mean: over the seeds that are done; None without a value.
        std: sample standard deviation (``ddof = 1``); None for fewer than two seeds.
        n: seeds that are done.
        seeds: seeds that were asked for.
        text: what to show instead of a number (a device, say).
    """

    status: Status
    mean: float | None = None
    std: float | None = None
    n: int = 0
    seeds: int = 0
    text: str = ""


@dataclass(frozen=True)
class Column:
    """How a metric is shown.

    Attributes:
        key: where it stands in `metrics.json`.
        title: its heading, without unit.
        direction: which way is better; empty where neither is.
        unit: shown in the heading.
        scale: the number shown is the metric times this.
        digits: after the decimal point.
        prefix: choose k, M, G … by the column's largest number.
        constant: the same for every seed by design, so a deviation of 0 is not worth showing.
    """

    key: Key
    title: str
    direction: Direction = ""
    unit: str = ""
    scale: float = 1.0
    digits: int = 3
    prefix: bool = False
    constant: bool = False

    @property
    def name(self) -> str:
        """The metric's name in CSV files."""
        return ".".join(self.key)

    def scaled(self, largest: float) -> Column:
        """The column with the prefix that fits its largest number."""
        if not self.prefix:
            return self
        power = 0 if largest < 1 else min(int(math.log10(largest) / 3), len(PREFIXES) - 1)
        unit = f"{PREFIXES[power]}{' ' if self.unit and power else ''}{self.unit}"
        digits = self.digits if power else 0
        return Column(
            self.key, self.title, self.direction, unit, 1000.0**-power, digits, False, self.constant
        )

    @property
    def heading(self) -> str:
        """Title, unit, and an arrow that says which way is better."""
        arrow = {"higher": " ↑", "lower": " ↓", "": ""}[self.direction]
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.title}{unit}{arrow}"

    def number(self, value: float) -> str:
        """A value as it is shown: scaled, rounded, with a true minus sign."""
        return rounded(value * self.scale, self.digits)


def rounded(value: float, digits: int, sign: bool = False) -> str:
    """A number with fixed digits; never «−0.00»."""
    text = f"{value:{'+' if sign else ''}.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def lookup(metrics: dict[str, Any], key: Key) -> Any:
    """What stands at a path in nested metrics, or None."""
    value: Any = metrics
    for part in key:
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


def flatten(value: Any, key: Key = ()) -> list[tuple[Key, Any]]:
    """Every leaf of nested metrics with its path; corrupted cells under corruption and severity."""
    leaves: list[tuple[Key, Any]] = []
    _gather(value, key, leaves)
    return leaves


def _gather(value: Any, key: Key, leaves: list[tuple[Key, Any]]) -> None:
    if not isinstance(value, dict):
        leaves.append((key, value))
        return
    for name, inner in value.items():
        if key == ("shift",) and name == "cells":
            for cell in inner:
                place = ("shift", str(cell["corruption"]), str(cell["severity"]))
                rest = {k: v for k, v in cell.items() if k not in ("corruption", "severity")}
                _gather(rest, place, leaves)
        else:
            _gather(inner, (*key, str(name)), leaves)


def mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (``ddof = 1``, None for one value) of finite numbers."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1))


def score(method: MethodRuns, key: Key) -> Score:
    """A metric of a method over its seeds."""
    found = [lookup(entry.metrics, key) for entry in method.done if entry.metrics is not None]
    return summarise(method, [value for value in found if value is not None])


def summarise(method: MethodRuns, values: Sequence[Any]) -> Score:
    """A score from one value for each run that has one."""
    seeds = len(method.entries)
    if not values:
        refused = all(entry.state == "not applicable" for entry in method.entries)
        nothing_to_come = refused or bool(method.done)
        return Score("n/a" if nothing_to_come else "missing", seeds=seeds)
    if any(isinstance(value, str) for value in values):
        text = ", ".join(sorted({str(value) for value in values}))
        return Score("value", n=len(values), seeds=seeds, text=text)
    mean, std = mean_and_std([float(value) for value in values])
    return Score("value", mean, std, len(values), seeds)


def marks(column: Column, scores: Sequence[Score]) -> list[Mark]:
    """Best and second best among comparable scores, ties (as shown) together.

    Nothing is marked where neither direction is better, or fewer than two scores are there.
    """
    shown = [
        None if score.mean is None else round(score.mean * column.scale, column.digits)
        for score in scores
    ]
    present = [value for value in shown if value is not None]
    if not column.direction or len(present) < 2:
        return [""] * len(scores)
    ranking = sorted(set(present), reverse=column.direction == "higher")
    names: dict[float, Mark] = dict(zip(ranking, ("best", "second"), strict=False))
    return ["" if value is None else names.get(value, "") for value in shown]
