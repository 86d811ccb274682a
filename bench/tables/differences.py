"""Each method minus the reference on the same test samples, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from bench.files import read_columns
from bench.metrics.definitions import DEFINITIONS
from bench.tables.collection import Collection, Entry, Group, MethodRuns
from bench.tables.columns import decimals, metric
from bench.tables.layout import Cell, Table
from bench.tables.scores import GAP, NOT_APPLICABLE, rounded

if TYPE_CHECKING:
    from bench.metrics.bootstrap import Draws, Interval, Resampled
    from bench.metrics.columns import Records

METRICS = ("accuracy", "nll", "ece")
_COLUMNS = ("index", "label", "prediction", "confidence", "log_likelihood")


@dataclass(frozen=True)
class Difference:
    """A method minus the reference.

    Attributes:
        method: the method.
        reference: what is subtracted.
        seeds: runs of the method, and of the reference, whose seed means are compared.
        samples: test samples, the same ones for both; 0 if there is nothing to compare.
        intervals: metric -> difference with its 95 % interval; empty without one.
        trouble: why there is nothing to compare although both have runs.
    """

    method: MethodRuns
    reference: MethodRuns
    seeds: tuple[int, int]
    samples: int
    intervals: dict[str, Interval]
    trouble: str = ""


def differences(collection: Collection, group: Group) -> list[Difference]:
    """Every method of a group but the reference, minus the reference."""
    reference = next((m for m in group.methods if m.label == collection.reference), None)
    if reference is None:
        return []
    base = _Reference(reference, [_records(entry) for entry in collection.sound(reference)])
    return [
        _difference(collection, method, base) for method in group.methods if method is not reference
    ]


def difference_table(group: Group, found: Sequence[Difference]) -> Table:
    """Differences and intervals, one line a method."""
    rows = [_row(difference) for difference in found]
    reference = found[0].reference.label if found else ""
    notes = [
        f"Method minus {reference}, seed means on the same test samples; in parentheses the 95 % "
        "interval of a paired bootstrap over test samples (1000 resamples, networks as they are).",
    ]
    notes += [f"{d.method.label}: {d.trouble}." for d in found if d.trouble]
    alone = "There is no other method to compare the reference with."
    if len(group.methods) > 1:
        alone = "There is no reference: set `reference` to the label of a method."
    headings = [f"Δ {metric(('test', name)).heading}" for name in METRICS]
    return Table(
        "difference",
        f"Differences: {group.title}",
        ("Method", "M", *headings, "Test samples", "Seeds (method, reference)"),
        2,
        (tuple(rows),) if rows else (),
        (),
        tuple(notes) if found else (alone,),
    )


def _row(difference: Difference) -> tuple[Cell, ...]:
    method = difference.method
    labels = (Cell(method.label), Cell(str(method.members), value=method.members))
    refused = all(entry.state == "not applicable" for entry in method.entries)
    cells = [_cell(name, difference.intervals.get(name), refused) for name in METRICS]
    samples = Cell(str(difference.samples) if difference.samples else GAP)
    return (*labels, *cells, samples, Cell(", ".join(map(str, difference.seeds))))


def _cell(name: str, interval: Interval | None, refused: bool) -> Cell:
    if interval is None:
        return Cell(NOT_APPLICABLE if refused else GAP)
    found = DEFINITIONS[name]
    value, low, high = (
        rounded(number * found.scale, decimals(found), sign=True)
        for number in (interval.value, interval.low, interval.high)
    )
    return Cell(f"{value} ({low} to {high})", value=interval.value * found.scale)


@dataclass(frozen=True)
class _Reference:
    """What every method is compared with: resampled once, when the first one asks."""

    method: MethodRuns
    runs: list[Records]

    @cached_property
    def draws(self) -> Draws:
        from bench.metrics.bootstrap import Draws

        return Draws(_samples(self.runs[0]))

    @cached_property
    def resampled(self) -> Resampled:
        return self.draws.of(self.runs, METRICS)


def _difference(collection: Collection, method: MethodRuns, base: _Reference) -> Difference:
    own = [_records(entry) for entry in collection.sound(method)]
    seeds = (len(own), len(base.runs))
    if not own or not base.runs:
        return Difference(method, base.method, seeds, 0, {})
    if trouble := _misaligned([*own, *base.runs]):
        return Difference(method, base.method, seeds, 0, {}, trouble)
    intervals = base.draws.of(own, METRICS).minus(base.resampled)
    return Difference(method, base.method, seeds, _samples(base.runs[0]), intervals)


def _misaligned(runs: Sequence[Records]) -> str:
    """Why runs can't be compared sample by sample, or nothing."""
    first = runs[0]
    for run in runs[1:]:
        if _samples(run) != _samples(first):
            return f"runs were tested on {_samples(first)} and on {_samples(run)} samples"
        for name in ("index", "label"):
            if (run[name] != first[name]).any():
                return f"test samples differ between runs (column {name})"
    return ""


def _samples(run: Records) -> int:
    return len(run["label"])


def _records(entry: Entry) -> Records:
    return read_columns(entry.folder.records_path("test"), _COLUMNS)
