"""``sigma-bench list``: what can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
import yaml

from bench.backbones import backbone_names
from bench.cli.options import Plugins
from bench.data.catalogue import task_names
from bench.errors import UserError, unknown
from bench.registry import load_plugin, method_class, method_names
from bench.suite_files import scales_of, shipped_suites

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from bench.method import Method


def list_things(
    things: Annotated[
        str,
        typer.Argument(
            metavar="methods|suites|tasks|backbones", help="What to list.", show_default=False
        ),
    ],
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the hyper-parameters of methods.")
    ] = False,
    plugins: Plugins = None,
) -> None:
    """List what can be asked for by name.

    Example: sigma-bench list methods --verbose
    """
    if things not in _LISTS:
        raise unknown("list", things, _LISTS)
    for plugin in plugins or ():
        load_plugin(plugin)
    from bench.console import make_console

    console = make_console()
    rows = _LISTS[things]()
    width = max((len(name) for name in rows), default=0)
    for name, description in rows.items():
        console.print(f"{name:<{width}}  {description}")
        if verbose and things == "methods":
            for line in _parameters(name):
                console.print(f"{'':<{width}}    {line}")


def _suites() -> dict[str, str]:
    """Names and descriptions; a suite is validated only when it is asked for."""
    rows = {}
    for name, path in shipped_suites().items():
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        scales = scales_of(name)
        known = (
            f" Scales: {', '.join(scales)} ({scales[0]} unless --scale says so)." if scales else ""
        )
        rows[name] = " ".join(str(content.get("description", "")).split()) + known
    return rows


def _methods() -> dict[str, str]:
    rows = {}
    for name in method_names():
        try:
            rows[name] = first_line(method_class(name))
        except UserError as error:
            rows[name] = f"({error})"
    return rows


_LISTS: dict[str, Callable[[], dict[str, str]]] = {
    "methods": _methods,
    "suites": _suites,
    "tasks": task_names,
    "backbones": backbone_names,
}


def first_line(cls: type[Method]) -> str:
    """The first line of a class's own docstring."""
    lines = (cls.__dict__.get("__doc__") or "").strip().splitlines()
    return lines[0] if lines else ""


def _parameters(name: str) -> list[str]:
    """A method's hyper-parameters, a line each: name, type, default, meaning."""
    try:
        fields = method_class(name).model_fields
    except UserError:
        return []
    return [_parameter(field, info) for field, info in fields.items()]


_BOUNDS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
"""What Pydantic calls bounds, and how they are written."""


def _parameter(field: str, info: FieldInfo) -> str:
    """Such as ``members = 4 (int, > 0): M``."""
    bounds = [
        f"{sign} {getattr(limit, bound)}"
        for limit in info.metadata
        for bound, sign in _BOUNDS.items()
        if getattr(limit, bound, None) is not None
    ]
    kind = ", ".join([_type_words(info.annotation), *bounds])
    default = "" if info.is_required() else f" = {info.get_default(call_default_factory=True)}"
    meaning = f": {info.description}" if info.description else ""
    return f"{field}{default} ({kind}){meaning}"


def _type_words(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(str(value) for value in get_args(annotation))
    plain = isinstance(annotation, type) and get_origin(annotation) is None
    return annotation.__name__ if plain else str(annotation).replace("typing.", "")
