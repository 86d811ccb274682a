"""A paper table as sections, one a suite and task: its lines, its gaps and how to fill them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.paper.collect import Paper, Source
from bench.tables.collection import Entry, Group, MethodRuns
from bench.tables.contents import budget_footnotes, task_notes
from bench.tables.layout import Block, Line, ScoreTable, Table, present
from bench.tables.scores import Column, Key, lookup, summarise

Value = Callable[[Entry, Key], Any]


@dataclass(frozen=True)
class Row:
    """A line of a paper table before its scores are looked up.

    Attributes:
        labels: one a label column of the table.
        method: whose scores these are.
    """

    labels: tuple[str, ...]
    method: MethodRuns


@dataclass(frozen=True)
class Section:
    """The part of a paper table that one suite fills.

    Attributes:
        source: the suite at its scale.
        table: its scores, with the gaps in footnotes.
    """

    source: Source
    table: ScoreTable

    @property
    def presented(self) -> Table:
        """The section, ready to be written."""
        return present(self.table)


@dataclass(frozen=True)
class Layout:
    """What the sections of a paper table have in common.

    Attributes:
        name: of its files, such as ``t1-cifar``.
        title: such as ``T1 CIFAR``.
        suites: that feed it, in its order.
        labels: headings of the label columns; one of them is ``Method``.
        columns: the metrics.
        notes: what a reader must know.
    """

    name: str
    title: str
    suites: tuple[str, ...]
    labels: tuple[str, ...] = ("Backbone", "Method", "M")
    columns: tuple[Column, ...] = ()
    notes: tuple[str, ...] = ()


def header(paper: Paper, layout: Layout) -> str:
    """The line that a table's files begin with: suites, scales, runs done, budgets, the command."""
    standing = [source.standing for source in paper.of(layout.suites)]
    absent = [name for name in layout.suites if name not in paper.sources]
    standing += [f"{name} has no scale {paper.scale}" for name in absent]
    return f"{layout.title}: {'; '.join(standing)}; made with `sigma-bench tables {paper.asked}`."


def section(
    source: Source,
    layout: Layout,
    task: str,
    blocks: Sequence[Sequence[Row]],
    notes: Iterable[str] = (),
    value: Value | None = None,
) -> Section:
    """Look up the scores of some rows; columns that apply to none of them are left out.

    Args:
        source: the suite.
        layout: labels and columns.
        task: whose rows these are.
        blocks: rows that are compared with each other.
        notes: after those of the layout.
        value: a run's metric by its key; by default what `metrics.json` says.
    """
    rows = [row for block in blocks for row in block]
    scores = {
        id(row): [_score(row.method, column, value) for column in layout.columns] for row in rows
    }
    kept = [
        index
        for index in range(len(layout.columns))
        if any(scores[id(row)][index].status != "n/a" for row in rows)
    ]
    columns = []
    for index in kept:
        means = [scores[id(row)][index].mean for row in rows]
        largest = max((abs(mean) for mean in means if mean is not None), default=0.0)
        columns.append(layout.columns[index].scaled(largest))
    made = tuple(
        Block(
            tuple(columns),
            tuple(
                Line(
                    row.labels,
                    tuple(scores[id(row)][index] for index in kept),
                    footnotes(source, row.method),
                )
                for row in block
            ),
        )
        for block in blocks
    )
    title = f"{layout.title}: {task} ({source.title})"
    every = (*layout.notes, *notes, *standing_notes(source))
    table = ScoreTable(layout.name, title, task, "", layout.labels, made, (), every)
    return Section(source, table)


def group_section(source: Source, layout: Layout, group: Group, table: ScoreTable) -> Section:
    """A suite's own table of a group, under the paper's title and with the paper's footnotes."""
    methods = {method.label: method for method in group.methods}
    place = table.labels.index("Method")
    blocks = tuple(
        replace(
            block,
            lines=tuple(
                replace(line, footnotes=footnotes(source, methods[line.labels[place]]))
                for line in block.lines
            ),
        )
        for block in table.blocks
    )
    title = f"{layout.title}{_origin(group)}: {group.title} ({source.title})"
    notes = (*table.notes, *task_notes(group), *standing_notes(source))
    return Section(
        source, replace(table, name=layout.name, title=title, blocks=blocks, notes=notes)
    )


def _origin(group: Group) -> str:
    return f" ({group.shift_origin})" if group.shift_origin else ""


def by_task(source: Source) -> dict[str, list[Group]]:
    """The groups of a suite, task by task."""
    found: dict[str, list[Group]] = {}
    for group in source.groups:
        found.setdefault(group.task, []).append(group)
    return found


def plain_label(label: str) -> str:
    """A label without the values of its grid: ``sigma_nens (members=4)`` is ``sigma_nens``."""
    return re.sub(r" \([^()=]+=.*\)$", "", label)


def footnotes(source: Source, method: MethodRuns) -> tuple[str, ...]:
    """What a line's numbers lack: runs off their budget, and runs that are not there."""
    found = list(budget_footnotes(method))
    reasons = {e.reason for e in method.entries if e.state == "not applicable"}
    found += [f"{method.label}: not applicable: {reason}." for reason in sorted(reasons)]
    if source.done:
        found += _missing(source, method)
    return tuple(found)


def _missing(source: Source, method: MethodRuns) -> list[str]:
    """One sentence for each state of runs without scores, with the command that does them."""
    states: dict[tuple[str, str], list[int]] = {}
    for entry in method.entries:
        if entry.metrics is None and entry.state != "not applicable":
            states.setdefault((entry.state, entry.reason), []).append(entry.spec.seed)
    command = method_command(source, method)
    sentences = []
    for (state, reason), seeds in states.items():
        why = f" ({reason})" if reason else ""
        which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        remedy = "" if state == "running" else f"; {command} fills it"
        sentences.append(f"{method.label}, {which}: {state}{why}{remedy}")
    return sentences


def method_command(source: Source, method: MethodRuns) -> str:
    """What to type so that every run of a method is done."""
    name = shlex.quote(method.entries[0].spec.method)
    return f"sigma-bench run {source.collection.asked} --method {name} --data DIR"


def standing_notes(source: Source) -> list[str]:
    """How much of the suite is there, the command for the rest, and what is not shown."""
    left = source.runs - source.finished
    notes = [f"{source.title}: {source.done} of {source.runs} runs done."]
    if left:
        what = f"Runs that are missing: {left}" if source.done else "No run of it is done yet"
        notes = [f"{notes[0]} {what}; {source.command} does the rest."]
    if others := source.others:
        notes.append(f"Runs beside them with other settings, which are not counted: {others}.")
    if source.smaller:
        scales = ", ".join(source.smaller)
        notes.append(f"Runs at scale {scales} are there too and not shown: --scale shows them.")
    return notes


def _score(method: MethodRuns, column: Column, value: Value | None) -> Any:
    look = value or (lambda entry, key: lookup(entry.metrics or {}, key))
    found = [look(entry, column.key) for entry in method.done]
    return summarise(method, [number for number in found if number is not None])


def task_sections(
    source: Source,
    layout: Layout,
    blocks: Callable[[Sequence[Group]], Sequence[Sequence[Row]]],
    value: Value | None = None,
    notes: Callable[[Sequence[Group]], Iterable[str]] = lambda _: (),
) -> list[Section]:
    """One section for each task of a suite, all its backbones in one table."""
    return [
        section(
            source,
            layout,
            task,
            blocks(groups),
            dict.fromkeys([*(n for g in groups for n in task_notes(g)), *notes(groups)]),
            value,
        )
        for task, groups in by_task(source).items()
    ]
