"""Methods by name: entry points of installed packages, and files named with ``--plugin``."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from bench.errors import UserError, unknown
from bench.method import Method

GROUP = "sigma_bench.methods"

_plugins: dict[str, type[Method]] = {}


@cache
def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def method_names() -> list[str]:
    """Every method that can be asked for, in alphabetical order."""
    return sorted({*_installed(), *_plugins})


def method_class(name: str) -> type[Method]:
    """The method of that name.

    Raises:
        UserError: no such method, or its package can't be imported.
    """
    if name in _plugins:
        return _plugins[name]
    if name not in _installed():
        error = unknown("method", name, method_names())
        raise UserError(f"{error}; a method in a file of its own needs --plugin FILE")
    point = _installed()[name]
    try:
        found = point.load()
    except Exception as error:
        line = " ".join(str(error).split())
        raise UserError(
            f"method {name!r} ({point.value}) can't be loaded: {type(error).__name__}: {line}"
        ) from error
    return _checked(found, f"entry point {point.value}")


def source_digest(name: str) -> str | None:
    """What identifies the text of a plug-in's method; None for a method of an installed package."""
    if name not in _plugins:
        return None
    path = inspect.getsourcefile(_plugins[name])
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def load_plugin(path: Path) -> list[str]:
    """Register every `Method` that a Python file defines; the names registered.

    The file is executed: name only files you trust.

    Raises:
        UserError: no such file, it can't be executed, it defines no method, or a name is taken.
    """
    if not path.is_file():
        raise UserError(f"plugin {path}: no such file")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    module_name = f"sigma_bench_plugin_{path.stem}_{digest}"
    if module_name in sys.modules:
        return [name for name, cls in _plugins.items() if cls.__module__ == module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"plugin {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        # What a plug-in prints is no part of an answer that a program may read.
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        line = " ".join(str(error).split())
        raise UserError(f"plugin {path}: {type(error).__name__}: {line}") from error
    own = [
        value
        for value in dict.fromkeys(filter(inspect.isclass, vars(module).values()))
        if issubclass(value, Method)
        and value.__module__ == module_name
        and not inspect.isabstract(value)
    ]
    if not own:
        raise UserError(f"plugin {path}: defines no subclass of bench.method.Method")
    for cls in own:
        _checked(cls, f"plugin {path}")
        if cls.name in method_names():
            raise UserError(f"plugin {path}: a method called {cls.name!r} exists already")
        _plugins[cls.name] = cls
    return [cls.name for cls in own]


def _checked(found: object, place: str) -> type[Method]:
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise UserError(f"{place}: not a subclass of bench.method.Method")
    if not isinstance(getattr(found, "name", None), str):
        raise UserError(f"{place}: {found.__name__} has no `name`")
    return found
