"""What stands in each table, group by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.budget import TOLERANCE
from bench.tables import columns as shown
from bench.tables.collection import Entry, Group, MethodRuns
from bench.tables.layout import Block, Line, ScoreTable
from bench.tables.scores import Column, Key, Score, lookup, mean_and_std, rounded, score, summarise

METHOD_LABELS = ("Method", "M")


def main_table(group: Group) -> ScoreTable:
    """The comparison at a glance: accuracy, calibration, shift, OOD detection and cost."""
    columns = shown.main_columns(group.shift_origin)
    notes = (
        "Shifted: mean over all corruptions and severities. AUROC: OOD detection by the largest "
        "softmax probability, mean over the near and over the far sources.",
        *task_notes(group),
    )
    return _simple(group, "main", "Comparison", columns, notes, budget_footnotes)


def calibration_table(group: Group) -> ScoreTable:
    """Every calibration error, before and after the temperature fitted on validation data."""
    return _simple(group, "calibration", "Calibration", shown.CALIBRATION)


def uncertainty_table(group: Group) -> ScoreTable:
    """Uncertainty and diversity of members; n/a for one member."""
    return _simple(group, "uncertainty", "Uncertainty and diversity", shown.UNCERTAINTY)


def cost_table(group: Group) -> ScoreTable:
    """What each method cost, against what it was granted."""
    return _simple(group, "cost", "Cost", shown.COST, (), budget_footnotes)


def ood_table(group: Group) -> ScoreTable:
    """Detection of each out-of-distribution source by each score, and near and far means."""
    sources = _sources(group.done)
    places: list[tuple[str, str, Key]] = [
        (name, distance, ("ood", "sources", name, "scores")) for name, distance in sources
    ]
    for distance in ("near", "far"):
        if any(found == distance for _, found in sources):
            places.append((f"mean of {distance}", distance, ("ood", distance)))
    blocks = []
    for source, distance, place in places:
        for name in shown.OOD_SCORES:
            columns = shown.ood_columns((*place, name))
            blocks.append(_block(group, columns, (source, distance, name.replace("_", " "))))
    labels = ("Source", "Distance", "Score", *METHOD_LABELS)
    notes = ("OOD is the positive class; a higher score means more OOD.",)
    return _table(group, "ood", "Out-of-distribution detection", labels, blocks, (), notes)


def severity_table(group: Group) -> ScoreTable:
    """ECE, accuracy and NLL by severity of corruption, with the slope over severities."""
    blocks = []
    severities = _severities(group.done)
    for name in ("ece", "accuracy", "nll"):
        columns = shown.severity_columns(name, severities)
        blocks.append(_block(group, columns, (shown.metric(("test", name)).heading,)))
    return _table(
        group,
        "severity",
        f"By severity of corruption{_origin(group)}",
        ("Metric", *METHOD_LABELS),
        blocks if group.shift_origin else (),
        ("Clean", *severities, "Mean", "Slope"),
        ("Slope: least squares over the severities, change a severity.",),
    )


def corruption_table(group: Group) -> ScoreTable:
    """Each corruption, mean over its severities."""
    means = {entry.spec.id: corruption_means(entry.metrics or {}) for entry in group.done}
    names = sorted({name for found in means.values() for name in found})

    def value(entry: Entry, key: Key) -> Any:
        return lookup(means[entry.spec.id], key[1:])

    blocks = [
        _block(group, shown.corruption_columns(name), (name.replace("_", " "),), value)
        for name in names
    ]
    labels = ("Corruption", *METHOD_LABELS)
    return _table(group, "corruption", f"By corruption{_origin(group)}", labels, blocks)


def corruption_means(metrics: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Mean over severities of each corruption's accuracy, NLL and ECE."""
    cells = lookup(metrics, ("shift", "cells")) or []
    grouped: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        grouped.setdefault(str(cell["corruption"]), []).append(cell)
    return {
        name: {key: mean_and_std([c[key] for c in found])[0] for key in shown.SHIFT_METRICS}
        for name, found in grouped.items()
    }


def budget_footnotes(method: MethodRuns) -> tuple[str, ...]:
    """Which runs of a method missed their budget by more than the tolerance, and by how much."""
    missed = []
    for entry in method.done:
        off = lookup(entry.metrics or {}, ("cost", "budget_deviation"))
        if off is not None and abs(off) > TOLERANCE:
            missed.append(f"{rounded(100 * off, 1, sign=True)} % (seed {entry.spec.seed})")
    if not missed:
        return ()
    kind = method.entries[0].spec.budget.match.replace("_", " ").replace("flops", "FLOPs")
    share = f"{100 * TOLERANCE:g} %"
    return (f"{method.label}: off the budget of {kind} by more than {share}: {', '.join(missed)}.",)


def task_notes(group: Group) -> list[str]:
    """What runs say of their task, each sentence once, in the order met."""
    found: dict[str, None] = {}
    for entry in group.done:
        for note in lookup(entry.metrics or {}, ("task", "notes")) or []:
            found.setdefault(str(note))
    return list(found)


BUILDERS: tuple[Callable[[Group], ScoreTable], ...] = (
    main_table,
    calibration_table,
    severity_table,
    corruption_table,
    ood_table,
    uncertainty_table,
    cost_table,
)
"""Every table of scores, in the order of a report."""


def _simple(
    group: Group,
    name: str,
    title: str,
    columns: Sequence[Column],
    notes: Iterable[str] = (),
    footnotes: Callable[[MethodRuns], tuple[str, ...]] = lambda _: (),
) -> ScoreTable:
    """A table of one block, one line a method."""
    block = _block(group, tuple(columns), (), None, footnotes)
    return _table(group, name, title, METHOD_LABELS, [block], (), tuple(notes))


def _table(
    group: Group,
    name: str,
    title: str,
    labels: tuple[str, ...],
    blocks: Sequence[Block],
    headings: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> ScoreTable:
    return ScoreTable(
        name, title, group.task, group.backbone, labels, tuple(blocks), headings, notes
    )


def _block(
    group: Group,
    columns: tuple[Column, ...],
    labels: tuple[str, ...],
    value: Callable[[Entry, Key], Any] | None = None,
    footnotes: Callable[[MethodRuns], tuple[str, ...]] = lambda _: (),
) -> Block:
    lines = tuple(
        Line(
            (*labels, method.label, str(method.members)),
            tuple(_score(method, column, value) for column in columns),
            footnotes(method),
        )
        for method in group.methods
    )
    return Block(columns, lines)


def _score(
    method: MethodRuns,
    column: Column,
    value: Callable[[Entry, Key], Any] | None,
) -> Score:
    if value is None:
        return score(method, column.key)
    found = [value(entry, column.key) for entry in method.done]
    return summarise(method, [number for number in found if number is not None])


def _severities(done: Iterable[Entry]) -> list[str]:
    """Every severity that a run met, mild to strong."""
    found = {
        str(level)
        for entry in done
        for level in lookup(entry.metrics or {}, ("shift", "severity")) or {}
    }
    return sorted(found, key=int)


def _sources(done: Iterable[Entry]) -> list[tuple[str, str]]:
    """(source, distance) of every OOD source that a run met; near before far, then by name."""
    found = set()
    for entry in done:
        sources = lookup(entry.metrics or {}, ("ood", "sources")) or {}
        found |= {(str(name), str(source["distance"])) for name, source in sources.items()}
    return sorted(found, key=lambda pair: (pair[1] != "near", pair[0]))


def _origin(group: Group) -> str:
    return f" ({group.shift_origin})" if group.shift_origin else ""
