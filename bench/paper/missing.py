"""What the paper lacks: methods with runs that are not done, and the commands that do them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.paper.collect import Paper
from bench.paper.sections import method_command
from bench.tables.layout import Cell, Table
from bench.tables.scores import GAP

GAP_COLUMNS = (
    *("suite", "scale", "task", "backbone", "method", "seeds", "state", "reason", "command"),
)
_HEADINGS = ("Suite", "Scale", "Task", "Backbone", "Method", "Seeds", "State", "Reason", "To fill")


def gap_rows(paper: Paper) -> Iterator[dict[str, Any]]:
    """One row for the runs of a method that stand alike, over its seeds."""
    for source in paper.sources.values():
        for group in source.groups:
            for method in group.methods:
                states: dict[tuple[str, str], list[int]] = {}
                for entry in method.entries:
                    if entry.metrics is None:
                        seeds = states.setdefault((entry.state, entry.reason), [])
                        seeds.append(entry.spec.seed)
                for (state, reason), seeds in states.items():
                    nothing_to_do = state in ("not applicable", "running")
                    yield {
                        "suite": source.name,
                        "scale": source.scale or "",
                        "task": group.task,
                        "backbone": group.backbone,
                        "method": method.label,
                        "seeds": ", ".join(map(str, seeds)),
                        "state": state,
                        "reason": reason,
                        "command": "" if nothing_to_do else method_command(source, method),
                    }


def gaps_table(paper: Paper) -> Table:
    """What is missing in any table; suites of which nothing is run have one line."""
    rows = []
    for source in paper.sources.values():
        if source.done == 0:
            words = (source.name, source.scale or GAP, *["all"] * 4, "not done", GAP)
            rows.append((*map(Cell, words), Cell(source.command, code=True)))
    shown = [row for row in gap_rows(paper) if paper.sources[row["suite"]].done]
    for row in shown:
        command = Cell(row["command"], code=True) if row["command"] else Cell(GAP)
        rows.append((*(Cell(row[name] or GAP) for name in GAP_COLUMNS[:-1]), command))
    notes = () if rows else ("Every run is done.",)
    blocks = (tuple(rows),) if rows else ()
    return Table("gaps", "Gaps", _HEADINGS, len(_HEADINGS), blocks, (), notes, wrapped=(7, 8))
