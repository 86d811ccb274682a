"""``sigma-bench check-method`` and ``new-method``: for those who bring a method of their own."""

from __future__ import annotations

import ast
import keyword
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.backbones import check_backbone_name
from bench.errors import UserError
from bench.registry import load_plugin, method_class, method_names
from bench.yaml_text import read_setting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from bench.conformance import CheckResult

TEMPLATE = "new_method.py.txt"


def check_method(
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="A method by name, or a Python file with methods (it is executed).",
            show_default=False,
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PARAM=VALUE",
            help="A hyper-parameter, such as members=2; may be given several times.",
        ),
    ] = None,
    backbone: Annotated[
        str, typer.Option(metavar="NAME", help="The network that the method gets.")
    ] = "resnet8",
) -> int:
    """Check that a method does what its numbers rely on, on a small network with random images.

    Example: sigma-bench check-method batch_ensemble --set members=2
    """
    parameters = _parameters(settings or [])
    names = load_plugin(Path(target)) if _is_file(target) else [target]
    classes = [method_class(name) for name in names]
    check_backbone_name(backbone)
    from bench import conformance
    from bench.console import make_console

    console = make_console()
    passed = True
    for cls in classes:
        results = conformance.check_method(cls, parameters, backbone)
        _show(console, cls.name, results)
        passed = passed and all(result.passed for result in results)
    return 0 if passed else 1


def _is_file(target: str) -> bool:
    return target.endswith(".py") or "/" in target or "\\" in target


def _parameters(settings: list[str]) -> dict[str, Any]:
    """Hyper-parameters from ``key=value``; values are YAML, as in a suite."""
    parameters = {}
    for setting in settings:
        key, value = read_setting(setting, "param=value, such as members=2")
        parameters[key] = value
    return parameters


def _show(console: Console, name: str, results: list[CheckResult]) -> None:
    width = max(len(result.name) for result in results)
    console.print(name)
    for result in results:
        console.print(_line(result, width))
    bad = sum(result.passed is False for result in results)
    untried = sum(result.passed is None for result in results)
    verdict = (
        f"{bad} of {len(results)} checks failed" if bad else f"all {len(results)} checks passed"
    )
    console.print(f"{name}: {verdict}{f', {untried} not tried' if untried else ''}")


def _line(result: CheckResult, width: int) -> Text:
    from rich.text import Text

    word, style = {True: ("ok", "green"), False: ("failed", "bold red"), None: ("-", "dim")}[
        result.passed
    ]
    return Text.assemble((f"  {word:<6}", style), f"  {result.name:<{width}}  {result.detail}")


def new_method(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Such as my_idea.", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="By default NAME.py in this folder.")
    ] = None,
) -> None:
    """Write a small working method, with comments on every hook, to start from.

    Example: sigma-bench new-method my_idea
    """
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        raise UserError(f"new-method {name}: must be a Python identifier, such as my_idea")
    if name in method_names():
        raise UserError(f"new-method {name}: a method of that name exists already")
    path = output or Path(f"{name}.py")
    if path.suffix != ".py":
        raise UserError(f"--output {path}: must end in .py")
    if not path.parent.is_dir():
        raise UserError(f"--output {path}: there is no folder {path.parent}")
    text = render(name, path.name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{path}: is there already; choose another with --output") from None
    print(f"{path}: written; next: sigma-bench check-method {path}")


def render(name: str, file_name: str) -> str:
    """The template's text for a method of that name.

    Raises:
        UserError: the class would have no name, or one that the file imports.
    """
    class_name = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    wrong = f"new-method {name}: the class can't be called {class_name!r}: choose another name"
    if not class_name.isidentifier() or keyword.iskeyword(class_name):
        raise UserError(wrong)
    template = (resources.files("bench") / "templates" / TEMPLATE).read_text(encoding="utf-8")
    text = Template(template).substitute(name=name, class_name=class_name, file_name=file_name)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    if class_name in imported:
        raise UserError(wrong)
    return text
