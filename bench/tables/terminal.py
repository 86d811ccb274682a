"""The main table for a terminal of any width."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.tables.collection import Collection
from bench.tables.contents import main_table
from bench.tables.layout import Cell, Table, present

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

_GAP = 3
"""Blanks that a column takes beside its text; the table has one more."""
_LEAST_LABEL = 8
"""Characters of a label side by side, however narrow the terminal."""


class MainTable:
    """The main table of every (task, backbone), in as many pieces as the width asks for."""

    def __init__(self, collection: Collection) -> None:
        self.tables = [(group.title, present(main_table(group))) for group in collection.groups]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield each table in pieces that fit, the method's name first in each."""
        for title, table in self.tables:
            texts = _texts(table)
            widths = _widths(table, texts, options.max_width)
            for number, columns in enumerate(_pieces(widths, options.max_width)):
                yield _grid(table, texts, widths, columns, title if number == 0 else "")
            yield from _notes(table)


def main_table_text(collection: Collection) -> RenderableType:
    """What to print with Rich after a run: the main table of every (task, backbone)."""
    return MainTable(collection)


def _pieces(columns: list[int], width: int) -> list[list[int]]:
    """Columns of each piece; the first column stands in all of them."""
    widths = [column_width + _GAP for column_width in columns]
    pieces: list[list[int]] = [[0]]
    used = widths[0]
    for index in range(1, len(widths)):
        if used + widths[index] + 1 > width and len(pieces[-1]) > 1:
            pieces.append([0])
            used = widths[0]
        pieces[-1].append(index)
        used += widths[index]
    return pieces


def _widths(table: Table, texts: list[list[Text]], width: int) -> list[int]:
    """Characters each column needs; headings may break between words.

    Where a label leaves no room for the widest number beside it, the label is folded.
    """
    from rich.cells import cell_len

    label, *others = (
        max([*map(cell_len, heading.split()), *(row[index].cell_len for row in texts)])
        for index, heading in enumerate(table.headings)
    )
    room = width - max(others, default=0) - 2 * _GAP - 1
    return [min(label, max(_LEAST_LABEL, room)), *others]


def _grid(
    table: Table, texts: list[list[Text]], widths: list[int], columns: list[int], title: str
) -> RenderableType:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(
        title=Text(title, style="bold") if title else None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        padding=(0, 1),
    )
    for index in columns:
        grid.add_column(
            Text(table.headings[index]),
            justify="left" if index < table.words else "right",
            vertical="bottom",
            overflow="fold",
            width=widths[index],
        )
    for row in texts:
        grid.add_row(*(row[index] for index in columns))
    return grid


def _texts(table: Table) -> list[list[Text]]:
    """Styled cells; missing seeds are said once a row, beside the method."""
    return [
        [_text(row[0], _common_remark(row)), *(_text(cell, "") for cell in row[1:])]
        for row in table.rows
    ]


def _common_remark(row: tuple[Cell, ...]) -> str:
    return ", ".join(sorted({cell.remark for cell in row if cell.remark}))


def _text(cell: Cell, remark: str) -> Text:
    from rich.text import Text

    text = Text()
    text.append(cell.text, style={"best": "bold", "second": "underline", "": ""}[cell.mark])
    if cell.spread:
        text.append(f" ±{cell.spread}", style="dim")
    if cell.footnotes:
        text.append(f" [{','.join(map(str, cell.footnotes))}]")
    if remark:
        text.append(f" {remark}", style="dim")
    return text


def _notes(table: Table) -> list[Text]:
    from rich.text import Text

    numbered = [f"[{number}] {note}" for number, note in enumerate(table.footnotes, 1)]
    return [Text(note, style="dim") for note in (*numbered, *table.notes)]
