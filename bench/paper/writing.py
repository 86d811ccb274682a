"""The paper's tables and claims as files, and what a terminal shows of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.files import write_text
from bench.paper.claims import CLAIMS, Measured, measure
from bench.paper.claims_table import CSV_COLUMNS, claims_rows, claims_tables, claims_text
from bench.paper.collect import SUITES, Paper
from bench.paper.judges import Evidence
from bench.paper.missing import GAP_COLUMNS, gap_rows, gaps_table
from bench.paper.overall import count_parameters
from bench.paper.sections import Layout, Section, header, standing_notes
from bench.paper.tables import PaperTable, paper_tables
from bench.tables.latex import latex
from bench.tables.layout import Table
from bench.tables.markdown import markdown
from bench.tables.terminal import MainTable

if TYPE_CHECKING:
    from rich.console import Console

LABELS = {"Backbone": "backbone", "Weights": "weights", "Method": "method", "M": "members"}
"""Label column of a table -> column of its CSV file; others keep their name."""
SCORE_COLUMNS = ("metric", "status", "mean", "std", "n", "seeds")


@dataclass(frozen=True)
class PaperTables:
    """Everything that is written, made once.

    Attributes:
        tables: T1 to T8.
        claims: every claim with its findings.
    """

    tables: tuple[PaperTable, ...]
    claims: tuple[Measured, ...]


def build_paper(paper: Paper) -> PaperTables:
    """The tables and the claims, from one pass over the runs."""
    evidence = Evidence(paper, count_parameters)
    return PaperTables(tuple(paper_tables(paper)), tuple(measure(evidence)))


def write_paper(paper: Paper, built: PaperTables) -> list[Path]:
    """Write T1 to T8, the claims and the gaps as Markdown, LaTeX and CSV.

    The same results give the same bytes.

    Returns:
        the files, in the paper's order.
    """
    folder = paper.folder.tables
    files: list[tuple[Path, str]] = []
    for table in built.tables:
        sections = [section.presented for section in table.sections]
        files += _texts(folder / table.layout.name, header(paper, table.layout), sections)
        content = _csv(_columns(table), _score_rows(paper, table.sections))
        files.append((folder / f"{table.layout.name}.csv", content))
    claims = Layout("claims", "Claims", tuple({n: 0 for c in CLAIMS for n in c.suites}))
    files += _texts(folder / "claims", header(paper, claims), claims_tables(built.claims))
    files.append((folder / "claims.csv", _csv(CSV_COLUMNS, claims_rows(built.claims))))
    every = Layout("gaps", "Gaps", SUITES)
    files += _texts(folder / "gaps", header(paper, every), [gaps_table(paper)])
    files.append((folder / "gaps.csv", _csv(GAP_COLUMNS, gap_rows(paper))))
    for path, text in files:
        write_text(path, text)
    return [path for path, _ in files]


def show_paper(console: Console, paper: Paper, built: PaperTables) -> None:
    """Print T1, backbone by backbone, the claims, and the commands for what is not run."""
    for section in built.tables[0].sections:
        if section.source.done:
            console.print(_Shown(list(_by_backbone(section))))
        else:
            console.print(f"{section.table.title}: {standing_notes(section.source)[0]}")
    for line in claims_text(built.claims):
        console.print(line)
    left = [source for source in paper.sources.values() if source.finished < source.runs]
    if left:
        console.print("To fill what is missing:")
    for source in left:
        console.print(f"  {source.command}  ({source.done} of {source.runs} runs done)")


class _Shown(MainTable):
    """Tables for a terminal of any width."""

    def __init__(self, tables: list[tuple[str, Table]]) -> None:
        self.tables = tables


def _by_backbone(section: Section) -> Iterator[tuple[str, Table]]:
    """A table a backbone, the method's name first; notes and footnotes below the last one."""
    table = section.presented
    for number, block in enumerate(table.blocks, 1):
        rows = tuple(row[1:] for row in block)
        last = number == len(table.blocks)
        yield (
            f"{table.title}, {block[0][0].text}",
            replace(
                table,
                headings=table.headings[1:],
                words=table.words - 1,
                blocks=(rows,),
                footnotes=table.footnotes if last else (),
                notes=table.notes if last else (),
            ),
        )


def _texts(path: Path, line: str, sections: Sequence[Table]) -> list[tuple[Path, str]]:
    return [
        (path.with_name(f"{path.name}.md"), markdown(line, sections)),
        (path.with_name(f"{path.name}.tex"), latex(line, sections)),
    ]


def _columns(table: PaperTable) -> tuple[str, ...]:
    """Those of every table, with the labels that only this one has."""
    labels = [label for section in table.sections for label in section.table.labels]
    own = dict.fromkeys(LABELS.get(label, label) for label in labels if label != "Metric")
    names = dict.fromkeys(["backbone", *own])
    return ("table", "suite", "scale", "task", *names, *SCORE_COLUMNS, "command")


def _score_rows(paper: Paper, sections: Iterable[Section]) -> Iterator[dict[str, Any]]:
    """One row a line and metric, in the units of `metrics.json`, with what makes the table."""
    for section in sections:
        table, source = section.table, section.source
        for block in table.blocks:
            for line in block.lines:
                labels = zip(table.labels, line.labels, strict=True)
                row = {
                    "table": table.name,
                    "suite": source.name,
                    "scale": source.scale,
                    "task": table.task,
                    "backbone": table.backbone,
                    "command": f"sigma-bench tables {paper.asked}",
                    **{LABELS.get(name, name): text for name, text in labels if name != "Metric"},
                }
                for column, score in zip(block.columns, line.scores, strict=True):
                    yield row | {
                        "metric": column.name,
                        "status": score.status,
                        "mean": score.text or score.mean,
                        "std": score.std,
                        "n": score.n,
                        "seeds": score.seeds,
                    }


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
