"""Each method minus the reference on the same test samples, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.files import read_records
from bench.metrics.definitions import DEFINITIONS
from bench.tables.collection import Collection, Entry, Group, MethodRuns
from bench.tables.columns import decimals, metric
from bench.tables.layout import Cell, Table
from bench.tables.scores import GAP, NOT_APPLICABLE, rounded

if TYPE_CHECKING:
    import pandas as pd

    from bench.metrics.bootstrap import Interval

METRICS = ("accuracy", "nll", "ece")
_COLUMNS = ["index", "label", "prediction", "confidence", "log_likelihood"]


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
    base = [_records(entry) for entry in collection.sound(reference)]
    return [
        _difference(collection, method, reference, base)
        for method in group.methods
        if method is not reference
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


def _difference(
    collection: Collection, method: MethodRuns, reference: MethodRuns, base: list[pd.DataFrame]
) -> Difference:
    from bench.metrics.bootstrap import paired_differences

    own = [_records(entry) for entry in collection.sound(method)]
    seeds = (len(own), len(base))
    if not own or not base:
        return Difference(method, reference, seeds, 0, {})
    if trouble := _misaligned([*own, *base]):
        return Difference(method, reference, seeds, 0, {}, trouble)
    intervals = paired_differences(own, base, METRICS)
    return Difference(method, reference, seeds, len(base[0]), intervals)


def _misaligned(runs: Sequence[pd.DataFrame]) -> str:
    """Why runs can't be compared sample by sample, or nothing."""
    first = runs[0]
    for run in runs[1:]:
        if len(run) != len(first):
            return f"runs were tested on {len(first)} and on {len(run)} samples"
        for name in ("index", "label"):
            if (run[name].to_numpy() != first[name].to_numpy()).any():
                return f"test samples differ between runs (column {name})"
    return ""


def _records(entry: Entry) -> pd.DataFrame:
    return read_records(entry.folder.records_path("test"), _COLUMNS)
