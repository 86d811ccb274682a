"""One HTML file with the paper's claims, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.files import write_text
from bench.metrics.definitions import DEFINITIONS
from bench.paper.claims_table import claims_tables
from bench.paper.collect import Paper
from bench.paper.figures import Figures, paper_figures
from bench.paper.missing import gaps_table
from bench.paper.writing import PaperTables, build_paper
from bench.report import rendered, shown_figure
from bench.tables.layout import Table

TEMPLATE = "paper.html.j2"


@dataclass(frozen=True)
class Chapter:
    """Tables under one heading of the page.

    Attributes:
        title: such as ``Claims``.
        tables: in order.
    """

    title: str
    tables: Sequence[Table]


def write_paper_page(
    paper: Paper, built: PaperTables | None = None, figures: Figures | None = None
) -> Path:
    """Write ``<results>/paper/report.html``, one file that needs nothing else and no network.

    Args:
        paper: the suites' runs.
        built: what `build_paper` made of the runs, if it is at hand.
        figures: what `paper_figures` made of them, if it is at hand.
    """
    text = paper_html(paper, built or build_paper(paper), figures or paper_figures(paper))
    write_text(paper.folder.report, text)
    return paper.folder.report


def paper_html(paper: Paper, built: PaperTables, figures: Figures) -> str:
    """The page as text; the same results give the same text."""
    return rendered(
        TEMPLATE,
        asked=paper.asked,
        sources=list(paper.sources.values()),
        chapters=_chapters(paper, built),
        figures=[shown_figure(drawing) for drawing in figures.drawings],
        absent=figures.absent,
        definitions=DEFINITIONS,
    )


def _chapters(paper: Paper, built: PaperTables) -> list[Chapter]:
    """The claims first, then T1 to T8, then what is missing."""
    tables = [
        Chapter(table.layout.title, [section.presented for section in table.sections])
        for table in built.tables
    ]
    gaps = Chapter("Gaps", [gaps_table(paper)])
    return [Chapter("Claims", claims_tables(built.claims)), *tables, gaps]
