"""Suites as YAML files: those that ship and a person's own, at several scales, with settings."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from bench.errors import UserError, complaint, unknown, validation_line
from bench.suite import Suite
from bench.yaml_text import read_setting, read_yaml

TAKEN = ("paper", "published")
"""Folders of results that are no suite's: the paper's tables, and where `publish` copies to."""


def shipped_suites() -> dict[str, Path]:
    """The suites that come with the package: name -> file."""
    folder = Path(str(resources.files("bench") / "suites"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load_suite(name: str, overrides: tuple[str, ...] = (), scale: str | None = None) -> Suite:
    """Read a suite that ships (by name) or a YAML file (by path).

    A file may hold a suite at several scales: ``scales`` maps names to what differs there, and
    ``scale`` is the one that is meant when none is asked for. A mapping in it is merged into the
    suite's, anything else takes the place of the suite's. The suite is then called NAME-SCALE.

    Args:
        name: such as ``digits`` or ``my/suite.yaml``.
        scale: one of the file's ``scales``, such as ``tiny``; None for its default.
        overrides: ``key=value`` with dots for depth (``budget.epochs=5``); values are YAML.

    Raises:
        UserError: the file is missing or says something a suite can't mean.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        shipped = shipped_suites()
        if name not in shipped:
            raise unknown("suite", name, shipped)
        path = shipped[name]
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"suite {path}: can't be read: {error}") from None
    try:
        content = read_yaml(text)
    except ValueError as error:
        raise UserError(f"suite {path}: not YAML: {error}") from None
    if not isinstance(content, dict):
        raise UserError(
            f"suite {path}: must be a mapping with the keys {', '.join(Suite.model_fields)}"
        )
    content = _at_scale(content, scale, f"suite {path}")
    for override in overrides:
        _apply(content, override)
        _reach_backbones(content, override)
    try:
        suite = Suite.model_validate(content)
    except ValidationError as error:
        raise validation_line(f"suite {path}", error, _fields_at(error)) from None
    if suite.name in TAKEN:
        raise UserError(
            f"suite {path}: name: the folder {suite.name!r} of results is taken: choose another"
        )
    suite.runs()
    if not any(override.startswith(("backbones=", "methods=")) for override in overrides):
        _check_patterns(suite)
    return suite


def _reach_backbones(content: dict[str, Any], override: str) -> None:
    """Let a setting of recipe or budget hold for every backbone, as whoever types it expects."""
    part, _, key = override.partition("=")[0].partition(".")
    patterns = content.get("for_backbones")
    if part not in ("recipe", "budget") or not isinstance(patterns, dict):
        return
    for setting in patterns.values():
        own = setting.get(part) if isinstance(setting, dict) else None
        if isinstance(own, dict):
            # A whole mapping takes the place of all, a value that of its own.
            own.clear() if not key else own.pop(key, None)


def _check_patterns(suite: Suite) -> None:
    """Refuse a pattern of `for_backbones` that no backbone takes: its values would be lost.

    Raises:
        UserError: names the pattern, and the backbones or the patterns before it.
    """
    names = suite.all_backbones()
    left = list(names)
    for pattern in suite.for_backbones:
        place = f"suite {suite.name}: for_backbones: {pattern!r}"
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(f"{place} fits none of the backbones {', '.join(names)}")
        if not any(fnmatchcase(name, pattern) for name in left):
            raise UserError(
                f"{place} is never used, as patterns before it fit all of its backbones: "
                "put it before them"
            )
        left = [name for name in left if not fnmatchcase(name, pattern)]


def _at_scale(content: dict[str, Any], asked: str | None, place: str) -> dict[str, Any]:
    """The content of a suite at one of its scales.

    Raises:
        UserError: there is no such scale, or ``scales`` is no mapping of mappings.
    """
    scales = content.pop("scales", None)
    default = content.pop("scale", None)
    if scales is None:
        if asked is not None:
            raise UserError(f"--scale {asked}: {place} has no `scales`: leave --scale out")
        if default is not None:
            raise UserError(f"{place}: `scale` names one of `scales`, which are not there")
        return content
    _check_scales(scales, place)
    if default is None and asked is None:
        raise UserError(f"{place}: `scale` must name the default among {', '.join(scales)}")
    chosen = str(default if asked is None else asked)
    if chosen not in scales:
        raise unknown(f"`scale` of {place}" if asked is None else "scale", chosen, scales)
    merged = {**_merged(content, scales[chosen]), "scale": chosen}
    if isinstance(merged.get("name"), str):
        merged["name"] += f"-{chosen}"
    return merged


def _check_scales(scales: Any, place: str) -> None:
    """Refuse what can't be the scales of a suite.

    Raises:
        UserError: says what is wrong.
    """
    if not isinstance(scales, dict) or not all(
        isinstance(name, str) and isinstance(part, dict) for name, part in scales.items()
    ):
        raise UserError(f"{place}: scales: must map names to what differs there")
    for name, part in scales.items():
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise UserError(
                f"{place}: scales: {name!r}: must be letters of a to z, digits, '_', '.' or '-', "
                "as it ends the name of a folder"
            )
        for key in ("scale", "scales"):
            if key in part:
                raise UserError(f"{place}: scales: {name}: a scale can't hold {key!r}: take it out")


def scales_of(name: str) -> tuple[str, ...]:
    """The scales of a suite that ships, the default first; none for a suite without."""
    content = read_yaml(shipped_suites()[name].read_text(encoding="utf-8"))
    default = content.get("scale")
    return tuple(sorted(content.get("scales", ()), key=lambda scale: scale != default))


def _merged(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """The overlay's values over the base's, mappings key by key."""
    merged = dict(base)
    for key, value in overlay.items():
        old = base.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merged(base[key], value) if both else value
    return merged


def _apply(content: dict[str, Any], override: str) -> None:
    """Set one ``key=value`` in a suite's content."""
    key, value = read_setting(override, "key=value, such as budget.epochs=5")
    *path, last = key.split(".")
    if (path or [last])[0] in ("scale", "scales"):
        raise UserError(f"--set {override}: choose a scale of the suite with --scale NAME")
    place: Any = content
    for name in path:
        place = place.setdefault(name, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict):
        raise UserError(f"--set {override}: {key!r} is not a key of the suite")
    place[last] = value


def _fields_at(error: ValidationError) -> list[str]:
    """The field names that were valid where Pydantic's first complaint stands."""
    model: Any = Suite
    for part in complaint(error)["loc"][:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            continue
        model = _inner_model(field.annotation) or model
    return list(model.model_fields)


def _inner_model(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        if found := _inner_model(part):
            return found
    return None
