"""Tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tabulate import tabulate

from bench.tables.layout import Cell, Table, one_line

_SIGNS = re.compile(r"([\\`*|\[\]~$])")
# Inside a word an underscore is no emphasis, and `deep_ensemble` is easier to read.
_LONE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def markdown(header: str, sections: Sequence[Table]) -> str:
    """A Markdown file: the header line, then each table under its heading.

    Args:
        header: suite, runs and how to make the file again; it may hold Markdown.
        sections: tables whose titles become headings.
    """
    parts = [header, *(_section(table) for table in sections)]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Words in which Markdown and HTML see nothing but words, on one line."""
    text = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _SIGNS.sub(r"\\\1", text)
    return _LONE_UNDERSCORE.sub(r"\\_", text)


def _section(table: Table) -> str:
    parts = [f"## {escape(table.title)}"]
    if table.rows:
        parts.append(_grid(table))
    else:
        parts.append("Nothing to show yet.")
    numbered = [
        f"<sup>{number}</sup> {escape(note)}" for number, note in enumerate(table.footnotes, 1)
    ]
    parts += [*numbered, *(escape(note) for note in table.notes)]
    return "\n\n".join(parts)


def _grid(table: Table) -> str:
    align = ["left" if index < table.words else "right" for index in range(len(table.headings))]
    return tabulate(
        [[_cell(cell) for cell in row] for row in table.rows],
        headers=[escape(heading) for heading in table.headings],
        tablefmt="pipe",
        colalign=align,
        disable_numparse=True,
    )


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.code:
        # Inside <code> words stay words, whatever they hold; in backticks a bar would end the cell.
        text = f"<code>{text}</code>"
    text = {"best": f"**{text}**", "second": f"<u>{text}</u>", "": text}[cell.mark]
    if cell.spread:
        text += f" ± {escape(cell.spread)}"
    if cell.remark:
        text += f" ({escape(cell.remark)})"
    if cell.footnotes:
        text += f" <sup>{','.join(map(str, cell.footnotes))}</sup>"
    return text
