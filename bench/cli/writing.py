"""``sigma-bench tables`` and ``report``: everything that follows from stored results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.options import (
    DEFAULT_RESULTS,
    Plugins,
    Request,
    Results,
    Scale,
    Settings,
    check_folder,
    request,
)
from bench.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from bench.paper.collect import Paper
    from bench.paper.writing import PaperTables
    from bench.tables import Collection

PAPER = "paper"
"""What stands for all suites of the paper together, where a suite is asked for."""

SuiteOrPaper = Annotated[
    str,
    typer.Argument(
        metavar="SUITE|paper",
        help="A suite that ships (`sigma-bench list suites`), a YAML file, or the word paper: "
        "the paper's tables, claims and figures, from all its suites.",
        show_default=False,
    ),
]


def tables(
    suite: SuiteOrPaper,
    scale: Scale = None,
    settings: Settings = None,
    results: Results = DEFAULT_RESULTS,
    plugins: Plugins = None,
) -> None:
    """Write every table again from stored results and print the main one; nothing is trained.

    Example: sigma-bench tables digits
    """
    if suite == PAPER:
        return _paper_tables(_paper(scale, settings, results, plugins))
    from bench.console import make_console
    from bench.tables import main_table_text, write_tables

    collection = _collected(request(suite, settings, results, plugins, scale))
    files = write_tables(collection)
    console = make_console()
    console.print(main_table_text(collection))
    console.print(f"{len(files)} files in {collection.folder.tables}")
    return None


def report(
    suite: SuiteOrPaper,
    scale: Scale = None,
    settings: Settings = None,
    results: Results = DEFAULT_RESULTS,
    plugins: Plugins = None,
) -> None:
    """Write figures and report.html again from stored results; nothing is trained.

    Example: sigma-bench report digits
    """
    if suite == PAPER:
        return _paper_report(_paper(scale, settings, results, plugins))
    from bench.console import make_console
    from bench.figures import write_figures
    from bench.report import write_report

    collection = _collected(request(suite, settings, results, plugins, scale))
    figures = write_figures(collection)
    page = write_report(collection)
    console = make_console()
    console.print(f"{len(figures)} files in {collection.folder.figures}")
    console.print(str(page))
    return None


def write_everything(asked: Request, console: Console) -> None:
    """Tables, figures and the report of a suite; print the main table and the folder."""
    from bench.figures import write_figures
    from bench.report import write_report
    from bench.tables import build_tables, collect, main_table_text, write_tables

    collection = collect(asked.suite, asked.folder, asked.asked)
    built = build_tables(collection)
    write_tables(collection, tables=built)
    write_figures(collection)
    write_report(collection, tables=built)
    console.print(main_table_text(collection))
    folder = collection.folder
    console.print(f"Tables, figures and {folder.report.name}: {folder.path}")


def _collected(asked: Request) -> Collection:
    """The suite's runs.

    Raises:
        UserError: none has ever been started, so that there is nothing to show.
    """
    from bench.tables import collect

    collection = collect(asked.suite, asked.folder, asked.asked)
    if all(entry.state == "not run" for entry in collection.entries):
        others = asked.folder.others(entry.spec for entry in collection.entries)
        remedy = "repeat their --set" if others else "name another folder with --results"
        found = f"only {others} runs with other settings are" if others else "no run of it is"
        raise UserError(
            f"suite {asked.suite.name}: {found} in {asked.folder.path}: "
            f"start with `sigma-bench run {asked.asked}`, or {remedy}"
        )
    return collection


def _paper(
    scale: str | None, settings: list[str] | None, results: Path, plugins: list[Path] | None
) -> Paper:
    """All suites of the paper.

    Raises:
        UserError: an option that has no meaning here, or no suite has any run.
    """
    from bench.paper.collect import collect_paper

    for option, given in (("--set", settings), ("--plugin", plugins)):
        if given:
            raise UserError(f"{option}: the paper's suites are taken as they are: leave it out")
    check_folder("--results", results)
    paper = collect_paper(results, scale)
    if not paper.done:
        first = next(iter(paper.sources.values()))
        raise UserError(
            f"paper: no run of its suites is done in {results}: start with "
            f"`{first.command}` (or another of {', '.join(paper.sources)}), or name another "
            "folder with --results"
        )
    return paper


def _paper_tables(paper: Paper) -> None:
    """Write T1 to T8, the claims, the gaps and the figures; print T1 and the claims."""
    from bench.console import make_console
    from bench.paper.writing import build_paper, show_paper, write_paper

    built = build_paper(paper)
    files = write_paper(paper, built)
    console = make_console()
    show_paper(console, paper, built)
    console.print(f"{len(files)} files in {paper.folder.tables}")
    _paper_report(paper, built)


def _paper_report(paper: Paper, built: PaperTables | None = None) -> None:
    """Write F1 to F6, and the page with claims, tables and figures."""
    from bench.console import make_console
    from bench.paper.figures import paper_figures, write_paper_figures
    from bench.paper.page import write_paper_page

    figures = paper_figures(paper)
    files = write_paper_figures(paper, figures)
    page = write_paper_page(paper, built, figures)
    console = make_console()
    console.print(f"{len(files)} files in {paper.folder.figures}")
    for one in figures.absent:
        filled = f": {one.command}" if one.command else ""
        console.print(f"{one.name} is not drawn: {one.reason}{filled}")
    console.print(str(page))
