"""Options that several verbs share, and the suite that they describe."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.errors import UserError
from bench.registry import load_plugin
from bench.store import SuiteFolder
from bench.suite import Suite
from bench.suite_files import load_suite

SuiteName = Annotated[
    str,
    typer.Argument(
        metavar="SUITE",
        help="A suite that ships (`sigma-bench list suites`) or a YAML file.",
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a value of the suite, such as budget.epochs=5; may be given several times.",
    ),
]
Scale = Annotated[
    str | None,
    typer.Option(
        "--scale",
        metavar="NAME",
        help="One of the suite's scales, such as tiny, lab or paper; by default the suite's own.",
        show_default=False,
    ),
]
Results = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="The folder of all results.")
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="A Python file with methods; may be given several times. It is executed.",
    ),
]

DEFAULT_RESULTS = Path("results")


@dataclass(frozen=True)
class Request:
    """A suite as the command line asks for it.

    Attributes:
        suite: with the settings applied.
        folder: where its results are.
        plugins: files whose methods are loaded.
        asked: the words after a verb that ask for the same again.
    """

    suite: Suite
    folder: SuiteFolder
    plugins: tuple[Path, ...]
    asked: str


def request(
    name: str,
    settings: list[str] | None,
    results: Path,
    plugins: list[Path] | None,
    scale: str | None = None,
) -> Request:
    """Load what the shared options describe; nothing is written.

    Raises:
        UserError: a plug-in, a suite, a setting or a folder is not what it should be.
    """
    files = tuple(plugins or ())
    changes = tuple(settings or ())
    check_folder("--results", results)
    for file in files:
        load_plugin(file)
    suite = load_suite(name, changes, scale)
    asked = [name]
    if scale is not None:
        asked += ["--scale", scale]
    for change in changes:
        asked += ["--set", change]
    if results != DEFAULT_RESULTS:
        asked += ["--results", str(results)]
    for file in files:
        asked += ["--plugin", str(file)]
    return Request(suite, SuiteFolder(results, suite.name), files, shlex.join(asked))


def check_folder(option: str, path: Path) -> None:
    """Refuse a path that is there and no folder; one that isn't there may be made later.

    Raises:
        UserError: names the option.
    """
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise UserError(f"{option} {path}: {place} is a file, not a folder")
