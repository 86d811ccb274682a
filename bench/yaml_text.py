"""YAML as people write it in suites and settings: plain values, and no key that hides another."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from bench.errors import UserError

MOST_VALUES = 100_000
"""A few aliases of aliases may stand for more values than any memory holds."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but for what it would let pass in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping; a key that stands twice is refused, as the first value would be lost."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    self._refuse(f"the key {key.value!r} stands twice", key)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        r"""A scalar; half a character, as ``"\ud800"``, could not be written anywhere."""
        text = super().construct_scalar(node)
        if isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text):
            self._refuse(f"{text!r} holds half a surrogate pair, which is no character", node)
        return text

    def _refuse(self, problem: str, node: yaml.Node) -> None:
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def read_yaml(text: str) -> Any:
    """The value that a YAML text stands for.

    Raises:
        ValueError: it is not YAML, a key stands twice, it is nested too deep, or its aliases stand
            for something without end, or nearly so; one line.
    """
    try:
        value = yaml.load(text, _Loader)  # a safe loader
        if _count(value, {}) > MOST_VALUES:
            raise ValueError(f"its aliases make more than {MOST_VALUES:,} values of it")
        return value
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _count(value: Any, known: dict[int, int]) -> int:
    """How many values it is if each alias is written out.

    Args:
        value: of YAML.
        known: id -> number, of lists and mappings that were counted before; 0 while one is.

    Raises:
        ValueError: something holds itself.
    """
    if not isinstance(value, list | dict):
        return 1
    if id(value) not in known:
        known[id(value)] = 0
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count(one, known) for one in inner)
    elif not known[id(value)]:
        raise ValueError("an alias stands in what it is an alias of")
    return known[id(value)]


def read_setting(setting: str, form: str) -> tuple[str, Any]:
    """Key and value of a ``--set``.

    Args:
        setting: such as ``members=2``; the value is YAML.
        form: what it must look like, for the error.

    Raises:
        UserError: it has another form, or its value is not YAML.
    """
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UserError(f"--set {setting}: must look like {form}")
    try:
        return key, read_yaml(text)
    except ValueError as error:
        raise UserError(f"--set {setting}: {text!r} is not a YAML value: {error}") from None
