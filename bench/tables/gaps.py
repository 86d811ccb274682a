"""What is missing: every run without scores, why, and the command that fills it."""

from __future__ import annotations

import shlex

from bench.tables.collection import Collection, Entry
from bench.tables.layout import Cell, Table
from bench.tables.scores import GAP


def gaps(collection: Collection) -> list[tuple[str, str, str, Entry, str]]:
    """(task, backbone, label, run, error or reason) of every run that a table lacks."""
    found = []
    for group in collection.groups:
        for method in group.methods:
            for entry in method.entries:
                reason = collection.damages.get(entry.spec.id, entry.reason)
                if entry.metrics is None or entry.spec.id in collection.damages:
                    found.append((group.task, group.backbone, method.label, entry, reason))
    return found


def state_words(collection: Collection, entry: Entry) -> str:
    """The state of a run, in the words of the gaps table."""
    return "damaged" if entry.spec.id in collection.damages else entry.state


def fill_command(collection: Collection, entry: Entry) -> str:
    """What to type so that the run is done; empty where nothing can be."""
    if entry.state in ("not applicable", "running"):
        return ""
    name = shlex.quote(entry.spec.method)
    return f"sigma-bench run {collection.asked} --method {name} --seed {entry.spec.seed}"


def gaps_table(collection: Collection) -> Table:
    """One line a run that is not done, or whose records are damaged."""
    rows = []
    for task, backbone, label, entry, reason in gaps(collection):
        command = fill_command(collection, entry)
        rows.append(
            (
                Cell(task),
                Cell(backbone),
                Cell(label),
                Cell(str(entry.spec.seed), value=entry.spec.seed),
                Cell(state_words(collection, entry)),
                Cell(reason or GAP),
                Cell(command, code=True) if command else Cell(GAP),
            )
        )
    headings = ("Task", "Backbone", "Method", "Seed", "State", "Error or reason", "To fill it")
    notes = () if rows else ("Every run is done.",)
    blocks = (tuple(rows),) if rows else ()
    return Table("gaps", "Gaps", headings, len(headings), blocks, (), notes, wrapped=(5, 6))
