"""``sigma-bench data``: which data sets are there, what is missing, and fetching it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.options import check_folder
from bench.data.sources import ALIASES, DataSet, Part, data_set, data_sets, fetch_command
from bench.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from bench.data.fetch import Report

SHOWN = 4
"""Of the missing files, how many are named."""


def data(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Data sets; all if none.", show_default=False),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The folder in which data sets lie.")
    ] = Path("data"),
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch what is missing; an interrupted one goes on.")
    ] = False,
) -> int:
    """Show which data sets are there and how to get the others, or fetch them.

    With names, the exit code is 1 if something is missing or could not be fetched.

    Example: sigma-bench data cifar10-c --fetch
    """
    check_folder("--data", folder)
    chosen = list(dict.fromkeys(data_set(name) for name in names or ()))
    from bench.console import make_console

    console = make_console()
    if fetch:
        _check_fetchable(chosen)
        # No set waits for another that can't be had.
        done = [_fetch(one, folder, console) for one in chosen]
        return 0 if all(done) else 1
    if not chosen:
        _list(folder, console)
        return 0
    for index, one in enumerate(chosen):
        if index:
            console.print()
        _describe(one, folder, console)
    return 1 if any(one.missing(folder) for one in chosen) else 0


def _check_fetchable(chosen: list[DataSet]) -> None:
    if not chosen:
        raise UserError("--fetch: which data sets? name them: see `sigma-bench data`")
    for one in chosen:
        if not one.parts:
            raise UserError(
                f"{one.name} can't be fetched, its terms must be accepted with an account: "
                f"see `sigma-bench data {one.name}`"
            )


def _list(folder: Path, console: Console) -> None:
    """A line for each data set."""
    rows = [
        (one.name, _state(one, folder), human_size(one.size), one.title)
        for one in data_sets().values()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, state, size, title in rows:
        columns = (f"{name:<{widths[0]}}", f"{state:<{widths[1]}}", f"{size:>{widths[2]}}", title)
        console.print("  ".join(columns))
    console.print("sigma-bench data NAME: where it lies, its terms, and how to get it")


def _describe(one: DataSet, folder: Path, console: Console) -> None:
    """All that is known of a data set, a fact a line."""
    others = [other for other, name in ALIASES.items() if name == one.name]
    also = f" (also called {', '.join(others)})" if others else ""
    console.print(f"{one.name}{also}: {one.title}")
    facts = [("place", str(folder / one.place)), ("state", _state(one, folder))]
    missing = one.missing(folder)
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        facts.append(("missing", ", ".join(missing[:SHOWN]) + more))
    facts += [("size", f"{human_size(one.size)} to fetch"), ("licence", one.licence)]
    facts += [("cite", one.cite), ("page", one.home)]
    for part in one.parts:
        facts.append(("file", f"{part.url} ({human_size(part.size)}, {part.checksum})"))
    if one.parts:
        facts.append(("fetch", fetch_command(one.name, folder)))
    for number, step in enumerate(one.steps, 1):
        facts.append((f"step {number}", step.format(data=folder)))
    for fact, value in facts:
        console.print(f"  {fact:<8} {value}")


def _state(one: DataSet, folder: Path) -> str:
    count, missing = len(one.leaves), len(one.missing(folder))
    if not missing:
        return "there"
    return "missing" if missing == count else f"{count - missing} of {count} there"


def human_size(size: int | None) -> str:
    """Bytes to three digits, such as ``170 MB``; ``size unknown`` for None."""
    if size is None:
        return "size unknown"
    value, unit = float(size), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"


def _fetch(one: DataSet, folder: Path, console: Console) -> bool:
    """Fetch what a data set lacks; whether it is complete now."""
    from bench.data.fetch import FetchError, fetch

    for part in one.parts:
        if not part.missing(folder):
            continue
        console.print(f"{one.name}: {part.url} ({human_size(part.size)})")
        try:
            digest = _with_bar(part, console, partial(fetch, part, folder))
        except FetchError as error:
            print(f"error: {one.name}: {error}", file=sys.stderr)
            return False
        right = "no published checksum" if part.checksum.startswith("no") else "checksum right"
        console.print(f"{one.name}: {right}; sha256 {digest}")
    missing = one.missing(folder)
    if missing:
        lines = ", ".join(missing[:SHOWN])
        print(f"error: {one.name}: fetched, but it lacks {lines}", file=sys.stderr)
        return False
    console.print(f"{one.name}: there, at {folder / one.place}")
    return True


def _with_bar(part: Part, console: Console, work: Callable[[Report], str]) -> str:
    """Do the work under a progress bar; no bar where no terminal could redraw it."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal or console.is_dumb_terminal,
        transient=True,
    )
    name = Path(part.file).name
    with bar:
        job = bar.add_task(name, total=part.size)

        def report(done: int, total: int | None) -> None:
            whole = total is not None and done >= total
            description = f"checking {name}" if whole else name
            bar.update(job, completed=done, total=total, description=description)

        return work(report)
