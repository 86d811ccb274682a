"""Tables without a format: what is in each cell, before Markdown, LaTeX, HTML or a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from bench.tables.collection import Group
from bench.tables.scores import GAP, NOT_APPLICABLE, Column, Mark, Score, marks


@dataclass(frozen=True)
class Cell:
    """What a cell shows.

    Attributes:
        text: the mean or the words.
        spread: the standard deviation, without «±»; empty if there is none.
        remark: such as ``n=2/3`` when seeds are missing.
        mark: best or second best.
        value: what to sort by, if it is a number.
        footnotes: numbers (from 1) of the table's notes that belong to the cell.
        code: a command to be typed.
    """

    text: str
    spread: str = ""
    remark: str = ""
    mark: Mark = ""
    value: float | None = None
    footnotes: tuple[int, ...] = ()
    code: bool = False


@dataclass(frozen=True)
class Table:
    """A table that is ready to be written in any format.

    Attributes:
        name: of its file.
        title: its heading.
        headings: one a column.
        words: how many of the first columns hold words (aligned left).
        blocks: rows that belong together; a line may be drawn between blocks.
        footnotes: numbered notes that cells point to.
        notes: other notes.
        wrapped: columns of long words, which may take several lines.
    """

    name: str
    title: str
    headings: tuple[str, ...]
    words: int
    blocks: tuple[tuple[tuple[Cell, ...], ...], ...]
    footnotes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    wrapped: tuple[int, ...] = ()

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """All rows."""
        return [row for block in self.blocks for row in block]


@dataclass(frozen=True)
class Line:
    """A row of scores: its labels (one a label column) and one score a column."""

    labels: tuple[str, ...]
    scores: tuple[Score, ...]
    footnotes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """Lines that are compared with each other, and the metric behind each of their columns."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class ScoreTable:
    """Scores by method; best and second best are found within a block.

    Attributes:
        name, title: as in `Table`.
        task, backbone: what is compared.
        labels: headings of the label columns; one of them is ``Method``.
        blocks: all with the same number of columns.
        headings: of the score columns; empty: those of the first block's columns.
        notes: what a reader must know.
    """

    name: str
    title: str
    task: str
    backbone: str
    labels: tuple[str, ...]
    blocks: tuple[Block, ...]
    headings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> list[Line]:
        """All lines."""
        return [line for block in self.blocks for line in block.lines]


def present(table: ScoreTable) -> Table:
    """Format the scores, mark the best, number the footnotes."""
    footnotes = list(dict.fromkeys(note for line in table.lines for note in line.footnotes))
    method = table.labels.index("Method")
    headings = table.headings
    rows = []
    for block in table.blocks:
        columns = _fitted(block)
        headings = headings or tuple(column.heading for column in columns)
        cells = _score_cells(columns, block.lines)
        labels = [_label_cells(line, method, footnotes) for line in block.lines]
        rows.append(tuple((*left, *right) for left, right in zip(labels, cells, strict=True)))
    seeds = seeds_note(table.lines)
    return Table(
        table.name,
        table.title,
        (*table.labels, *headings),
        len(table.labels),
        tuple(rows),
        tuple(footnotes),
        (*((seeds,) if seeds else ()), *table.notes),
    )


def _label_cells(line: Line, method: int, footnotes: list[str]) -> list[Cell]:
    numbers = tuple(footnotes.index(note) + 1 for note in line.footnotes)
    return [
        Cell(text, footnotes=numbers if index == method else ())
        for index, text in enumerate(line.labels)
    ]


def _score_cells(columns: Sequence[Column], lines: Sequence[Line]) -> list[list[Cell]]:
    """One row of cells a line."""
    by_column = []
    for index, column in enumerate(columns):
        scores = [line.scores[index] for line in lines]
        marked = zip(scores, marks(column, scores), strict=True)
        by_column.append([score_cell(column, score, mark) for score, mark in marked])
    return [list(row) for row in zip(*by_column, strict=True)]


def score_cell(column: Column, score: Score, mark: Mark = "") -> Cell:
    """How one score is shown."""
    if score.status == "missing":
        return Cell(GAP)
    if score.status == "n/a":
        return Cell(NOT_APPLICABLE)
    remark = f"n={score.n}/{score.seeds}" if score.n < score.seeds else ""
    if score.mean is None:
        return Cell(score.text, remark=remark)
    hidden = score.std is None or (column.constant and score.std == 0)
    spread = "" if hidden or score.std is None else column.number(score.std)
    return Cell(column.number(score.mean), spread, remark, mark, score.mean * column.scale)


def seeds_note(lines: Iterable[Line]) -> str:
    """How many seeds stand behind the numbers."""
    counts = {score.seeds for line in lines for score in line.scores}
    if not counts:
        return ""
    few, many = min(counts), max(counts)
    if many == 1:
        return "One seed."
    seeds = f"{many}" if few == many else f"{few} to {many}"
    return (
        f"Mean ± standard deviation over {seeds} seeds; best in bold, second underlined; "
        "n/a: does not apply; –: not there yet."
    )


def one_line(text: str) -> str:
    """The text with single spaces and nothing that can't be printed."""
    spaced = " ".join(text.split())
    if spaced.isprintable():
        return spaced
    return "".join(char if char.isprintable() else "\ufffd" for char in spaced)


def file_names(groups: Sequence[Group]) -> list[str]:
    """What files call each group: short, safe on every system, and no two the same."""
    names: list[str] = []
    for group in groups:
        words = re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{group.task}-{group.backbone}").strip("_.-")
        name = words[-80:] or "group"
        taken = {other.lower() for other in names}
        numbered = (f"{name}-{number}" for number in count(2))
        names.append(name if name.lower() not in taken else _first_free(numbered, taken))
    return names


def _first_free(names: Iterable[str], taken: set[str]) -> str:
    return next(name for name in names if name.lower() not in taken)


def _fitted(block: Block) -> list[Column]:
    """The block's columns, each with the prefix that fits its largest number."""
    fitted = []
    for index, column in enumerate(block.columns):
        means = [line.scores[index].mean for line in block.lines]
        largest = max((abs(mean) for mean in means if mean is not None), default=0.0)
        fitted.append(column.scaled(largest))
    return fitted
