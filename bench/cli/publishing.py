"""``sigma-bench publish``: results as a small folder to keep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import (
    DEFAULT_RESULTS,
    Plugins,
    Results,
    Scale,
    Settings,
    SuiteName,
    check_folder,
    request,
)


def publish(
    suite: SuiteName,
    scale: Scale = None,
    settings: Settings = None,
    results: Results = DEFAULT_RESULTS,
    plugins: Plugins = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="DIR",
            help="The folder of all published results; by default published/ in --results.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Copy what is small of a suite's results, and make its tables and figures from the copy.

    Specifications, scores and test records are kept, weights and large records are not: enough for
    `tables` and `report` (with --results DIR), and small enough for version control.

    Example: sigma-bench publish digits
    """
    to = results / "published" if to is None else to
    check_folder("--to", to)
    from bench.console import make_console
    from bench.publish import command_words
    from bench.publish import publish as published
    from bench.tables import collect

    asked = request(suite, settings, results, plugins, scale)
    collection = collect(asked.suite, asked.folder, asked.asked)
    done = published(collection, to, command_words(asked.asked, to))
    console = make_console()
    if done.replaced:
        console.print(f"takes the place of {done.replaced} runs that were published before")
    for path in done.left_out:
        console.print(f"left out, as it is too large: {path}")
    console.print(f"{done.runs} runs, {done.bytes / 1e6:.1f} MB: {done.folder.path}")
