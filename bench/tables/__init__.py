"""Comparison tables from stored results: Markdown, LaTeX, CSV and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.files import write_text
from bench.tables.collection import Collection, Entry, Group, MethodRuns, collect, header
from bench.tables.contents import BUILDERS
from bench.tables.differences import Difference, difference_table, differences
from bench.tables.gaps import gaps_table
from bench.tables.latex import latex
from bench.tables.layout import Cell, ScoreTable, Table, file_names, present
from bench.tables.markdown import markdown
from bench.tables.terminal import main_table_text
from bench.tables.tidy import differences_csv, gaps_csv, runs_csv, scores_csv

__all__ = [
    "Cell",
    "Collection",
    "Entry",
    "Group",
    "MethodRuns",
    "Table",
    "Tables",
    "build_tables",
    "collect",
    "main_table_text",
    "write_tables",
]


@dataclass(frozen=True)
class Tables:
    """All tables of a suite, built once for every format.

    Attributes:
        scores: name -> one table a (task, backbone).
        compared: one for each (task, backbone): its differences to the reference.
        gaps: what is missing.
    """

    scores: dict[str, list[ScoreTable]]
    compared: list[tuple[Group, list[Difference]]]
    gaps: Table

    def sections(self, name: str) -> list[Table]:
        """A table of every (task, backbone), ready to be written."""
        if name == "difference":
            return [difference_table(group, found) for group, found in self.compared]
        return [_titled(present(table), table) for table in self.scores[name]]

    @property
    def names(self) -> list[str]:
        """Names of the tables that exist for each (task, backbone), in the order of a report."""
        return [*self.scores, "difference"]


def build_tables(collection: Collection) -> Tables:
    """Everything that is written or shown, from one pass over the runs."""
    scores: dict[str, list[ScoreTable]] = {}
    for group in collection.groups:
        for build in BUILDERS:
            table = build(group)
            scores.setdefault(table.name, []).append(table)
    compared = [(group, differences(collection, group)) for group in collection.groups]
    return Tables(scores, compared, gaps_table(collection))


def write_tables(
    collection: Collection, folder: Path | None = None, tables: Tables | None = None
) -> list[Path]:
    """Write every table as Markdown, LaTeX and CSV; the same results give the same bytes.

    Args:
        collection: the suite's runs.
        folder: where to write; by default the suite's ``tables``. With several (task, backbone)
            pairs, each also gets its own files, in a folder named after the pair.
        tables: what `build_tables` made of the collection, if it is at hand.

    Returns:
        the files, in the order of a report.
    """
    folder = folder or collection.folder.tables
    tables = tables or build_tables(collection)
    line = header(collection)
    files: list[tuple[Path, str]] = []
    for name in tables.names:
        sections = tables.sections(name)
        files += _texts(folder / name, line, sections)
        files.append((folder / f"{name}.csv", _csv(tables, name)))
        if len(sections) > 1:
            for own, section in zip(file_names(collection.groups), sections, strict=True):
                files += _texts(folder / own / name, line, [section])
    files += _texts(folder / "gaps", line, [tables.gaps])
    files.append((folder / "gaps.csv", gaps_csv(collection)))
    files.append((folder / "runs.csv", runs_csv(collection)))
    for path, text in files:
        write_text(path, text)
    return [path for path, _ in files]


def _texts(path: Path, line: str, sections: Sequence[Table]) -> list[tuple[Path, str]]:
    return [
        (path.with_name(f"{path.name}.md"), markdown(line, sections)),
        (path.with_name(f"{path.name}.tex"), latex(line, sections)),
    ]


def _csv(tables: Tables, name: str) -> str:
    if name == "difference":
        rows = [(g.task, g.backbone, one) for g, found in tables.compared for one in found]
        return differences_csv(rows)
    return scores_csv(tables.scores[name])


def _titled(table: Table, source: ScoreTable) -> Table:
    return replace(table, title=f"{table.title}: {source.task}, {source.backbone}")
