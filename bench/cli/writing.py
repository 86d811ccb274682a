"""``sigma-bench tables`` and ``report``: everything that follows from stored results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.cli.options import (
    DEFAULT_RESULTS,
    Plugins,
    Request,
    Results,
    Settings,
    SuiteName,
    request,
)
from bench.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from bench.tables import Collection


def tables(
    suite: SuiteName,
    settings: Settings = None,
    results: Results = DEFAULT_RESULTS,
    plugins: Plugins = None,
) -> None:
    """Write every table again from stored results and print the main one; nothing is trained.

    Example: sigma-bench tables digits
    """
    from bench.console import make_console
    from bench.tables import main_table_text, write_tables

    collection = _collected(request(suite, settings, results, plugins))
    files = write_tables(collection)
    console = make_console()
    console.print(main_table_text(collection))
    console.print(f"{len(files)} files in {collection.folder.tables}")


def report(
    suite: SuiteName,
    settings: Settings = None,
    results: Results = DEFAULT_RESULTS,
    plugins: Plugins = None,
) -> None:
    """Write figures and report.html again from stored results; nothing is trained.

    Example: sigma-bench report digits
    """
    from bench.console import make_console
    from bench.figures import write_figures
    from bench.report import write_report

    collection = _collected(request(suite, settings, results, plugins))
    figures = write_figures(collection)
    page = write_report(collection)
    console = make_console()
    console.print(f"{len(figures)} files in {collection.folder.figures}")
    console.print(str(page))


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
