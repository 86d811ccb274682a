"""Tables in LaTeX, with booktabs, ready to be included in a paper."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from bench.tables.layout import Cell, Table, one_line

_SPECIAL = {
    "\0": "{}",
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    # At the start of a row, after \\ or a rule, these would be read as its argument.
    "[": "{[}",
    "*": "{*}",
    "–": "--",
    "—": "---",
    "−": r"$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "‖": r"$\|$",
    "²": r"$^2$",
    "∞": r"$\infty$",
    "…": r"\dots{}",
}
_GREEK = "αβγδεζηθκλμνξπρστφχψωΓΔΘΛΞΠΣΦΨΩ"


def _greek(letter: str) -> str:
    """The letter in math mode; Unicode spells lambda without a b."""
    word = unicodedata.name(letter).split()[-1].replace("LAMDA", "LAMBDA")
    return rf"$\{word.title() if letter.isupper() else word.lower()}$"


_ESCAPES = str.maketrans(_SPECIAL | {letter: _greek(letter) for letter in _GREEK})


def latex(header: str, sections: Sequence[Table]) -> str:
    """A LaTeX fragment: comments, then one tabular a table with its notes below.

    A table that is wider than the line is shrunk to it.
    """
    comments = [
        f"% {one_line(header)}",
        r"% Needs \usepackage{booktabs} and \usepackage{graphicx}; use it with \input.",
    ]
    titled = len(sections) > 1
    return "\n".join([*comments, *(_section(table, titled) for table in sections)]) + "\n"


def escape(text: str) -> str:
    """Words in which TeX sees nothing but words, on one line."""
    # Two hyphens, in a command say, would be drawn as one dash.
    hyphens_apart = re.sub(r"-(?=-)", "-\0", one_line(text))
    return hyphens_apart.translate(_ESCAPES)


def _section(table: Table, titled: bool) -> str:
    lines = [f"% {one_line(table.title)}"]
    if titled:
        lines.append(rf"\par\medskip\noindent\textbf{{{escape(table.title)}}}\par\smallskip")
    if table.rows:
        lines += [
            r"\noindent\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            *_tabular(table),
            "}",
        ]
    else:
        lines.append("Nothing to show yet.")
    numbered = [
        rf"\textsuperscript{{{number}}} {escape(note)}"
        for number, note in enumerate(table.footnotes, 1)
    ]
    notes = [*numbered, *(escape(note) for note in table.notes)]
    lines += [rf"\par\smallskip\noindent{{\footnotesize {note}\par}}" for note in notes]
    return "\n".join(lines)


def _tabular(table: Table) -> list[str]:
    align = "".join(_alignment(table, index) for index in range(len(table.headings)))
    lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines.append(_row([escape(heading) for heading in table.headings]))
    lines.append(r"\midrule")
    for before, block in pairwise(((), *table.blocks)):
        if before:
            lines.append(r"\midrule")
        lines += [_row([_cell(cell) for cell in row]) for row in block]
    return [*lines, r"\bottomrule", r"\end{tabular}%"]


def _alignment(table: Table, index: int) -> str:
    if index in table.wrapped:
        return r"p{0.3\linewidth}"
    return "l" if index < table.words else "r"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.code:
        text = rf"\texttt{{{text}}}"
    text = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}", "": text}[cell.mark]
    if cell.spread:
        text += rf" {{\scriptsize $\pm$ {escape(cell.spread)}}}"
    if cell.remark:
        text += rf" {{\scriptsize ({escape(cell.remark)})}}"
    if cell.footnotes:
        text += rf"\textsuperscript{{{','.join(map(str, cell.footnotes))}}}"
    return text
