"""Suites with any field wrong, and any content at all: one line, exit code 2, nothing written."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.cli import run as sigma_bench
from bench.errors import UserError
from bench.suite import Suite
from bench.suite_files import load_suite

GOOD: dict[str, Any] = {
    "name": "good",
    "description": "Words.",
    "tasks": [{"name": "digits", "options": {"corruptions": ["contrast"], "severities": [1]}}],
    "backbones": ["resnet8"],
    "methods": [
        {"name": "single", "label": "one", "parameters": {}, "grid": {}, "backbones": ["resnet8"]},
        {"name": "deep_ensemble", "label": "two", "parameters": {"members": 2}},
    ],
    "members": 4,
    "seeds": [0, 1],
    "budget": {"match": "epochs", "networks": 2, "epochs": 1.0},
    "recipe": {
        "optimizer": "sgd",
        "learning_rate": 0.1,
        "momentum": 0.9,
        "nesterov": True,
        "weight_decay": 0.0,
        "batch_size": 64,
        "schedule": "cosine",
        "warmup": 0.1,
        "augment": ["shift"],
        "gradient_clip": 1.0,
        "precision": "float32",
        "accumulate": 1,
        "devices": 1,
        "member_chunk": 1,
    },
    "evaluation": {"batch_size": 100, "shifts": True, "outliers": True},
    "for_backbones": {"resnet*": {"recipe": {"momentum": 0.8}, "budget": {"epochs": 2.0}}},
    "reference": "one",
}
UNTYPED = ("options", "parameters", "grid")
"""Fields whose content the task or the method checks, not the suite."""

Place = tuple[str | int, ...]


def put(place: Place, value: Any) -> dict[str, Any]:
    """The good suite with one value changed."""
    content = copy.deepcopy(GOOD)
    inner: Any = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return content


def without(place: Place) -> dict[str, Any]:
    """The good suite without one key."""
    content = copy.deepcopy(GOOD)
    inner: Any = content
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]
    return content


def of_schema(
    schema: dict[str, Any], value: Any, root: dict[str, Any], place: Place = ()
) -> Iterator[tuple[Place, Any]]:
    """(place, wrong value) for all that the schema of a suite says of the good suite's values."""
    if "$ref" in schema:
        schema = {**root["$defs"][schema["$ref"].split("/")[-1]], **schema}
    if "anyOf" in schema:
        # An optional value: what is wrong for its first kind, and no value of the others.
        others = [one.get("type") for one in schema["anyOf"][1:]]
        for where, wrong in of_schema(schema["anyOf"][0], value, root, place):
            if not (isinstance(wrong, str) and "string" in others) and wrong is not None:
                yield where, wrong
        return
    kind = schema.get("type")
    yield from ((place, wrong) for wrong in wrong_kinds(kind) if place)
    yield from ((place, wrong) for wrong in wrong_values(schema))
    if kind == "object":
        if schema.get("additionalProperties") is False:
            yield (*place, "nonsense"), 1
        for name, part in schema.get("properties", {}).items():
            if name in value and name not in UNTYPED:
                yield from of_schema(part, value[name], root, (*place, name))
        inner = schema.get("additionalProperties")
        if isinstance(inner, dict):
            for name in value:
                yield from of_schema(inner, value[name], root, (*place, name))
    if kind == "array" and value:
        yield from of_schema(schema.get("items", {}), value[0], root, (*place, 0))


def wrong_kinds(kind: str | None) -> list[Any]:
    """Values that are of none of a kind."""
    return {
        "string": [None, 3, 1.5, [], {}, True],
        "integer": [None, "many", 1.5, [], {}],
        "number": [None, "much", [], {}, math.nan, math.inf],
        "boolean": [None, "perhaps", 3, [], {}],
        "array": [None, 3, "word", True],
        "object": [3, "word word", [1], True],
    }.get(str(kind), [])


def wrong_values(schema: dict[str, Any]) -> list[Any]:
    """Values of the right kind that the schema excludes."""
    wrong: list[Any] = []
    if "minimum" in schema:
        wrong.append(schema["minimum"] - 1)
    if "exclusiveMinimum" in schema:
        wrong.append(schema["exclusiveMinimum"])
    if "exclusiveMaximum" in schema:
        wrong.append(schema["exclusiveMaximum"])
    if "maximum" in schema:
        wrong.append(schema["maximum"] * 2)
    if "maxLength" in schema:
        wrong.append("x" * (schema["maxLength"] + 1))
    if "enum" in schema:
        wrong.append("nonsense")
    if "pattern" in schema:
        wrong += ["../up", "", "two words"]
    if schema.get("minItems"):
        wrong.append([])
    return wrong


BY_SCHEMA = list(of_schema(Suite.model_json_schema(), GOOD, Suite.model_json_schema()))
BY_HAND: list[tuple[Place, Any]] = [
    (("tasks", 0, "name"), "digist"),
    (("tasks", 0, "options"), {"corruption": ["contrast"]}),
    (("tasks", 0, "options"), {"severities": [6]}),
    (("tasks", 0, "options"), 3),
    (("backbones", 0), "resnet9"),
    (("backbones", 0), "timm:"),
    (("methods", 0, "name"), "sigle"),
    (("methods", 0, "label"), " "),
    (("methods", 0, "label"), "two\nlines"),
    (("methods", 0, "label"), "two"),
    (("methods", 1, "parameters"), {"member": 2}),
    (("methods", 1, "parameters"), {"members": 0}),
    (("methods", 1, "grid"), {"members": [2, 3]}),
    (("methods", 1, "grid"), {"members": []}),
    (("reference",), "three"),
    (("recipe", "devices"), 3),
    (("recipe", "accumulate"), 65),
    (("budget", "epochs"), 1e300),
    (("seeds",), [0, 10**400]),
    (("for_backbones", "resnet*", "budget"), {"epochs": 1e300}),
    (("for_backbones",), {"vit*": {"recipe": {"momentum": 0.5}}}),
    (("for_backbones", "resnet*", "recipe"), {"momentun": 0.5}),
    (("for_backbones", "resnet*", "budget"), {"epochs": -1}),
    (("scale",), "tiny"),
    (("scales",), {"tiny": 3}),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def text_of(content: Any) -> str:
    """A suite as YAML, by the quick writer where there is one."""
    return yaml.dump(content, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))


def refusal(folder: Path, text: str, capfd: pytest.CaptureFixture[str]) -> str:
    """What is said of a suite, which must be one line and exit code 2, with nothing written."""
    (folder / "bad.yaml").write_text(text)
    code = sigma_bench(["run", "bad.yaml", "--workers", "1"])
    out, err = capfd.readouterr()
    assert (code, out) == (2, ""), (text[:200], out[:200], err[:200])
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert len(err) < 1000, err[:200]
    assert [path.name for path in folder.iterdir()] == ["bad.yaml"]
    return err


def test_the_good_suite_is_good(folder: Path) -> None:
    (folder / "good.yaml").write_text(yaml.safe_dump(GOOD))
    assert len(load_suite("good.yaml").runs()) == 4


def test_every_field_with_every_wrong_value(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = BY_SCHEMA + BY_HAND
    assert len(wrong) >= 150
    names = {str(part) for place, _ in BY_SCHEMA for part in place}
    assert names >= {name for model in (Suite,) for name in model.model_fields} - {"scale"}
    for place, value in wrong:
        line = refusal(folder, text_of(put(place, value)), capfd)
        told = [part for part in place if isinstance(part, str)] + [str(value)]
        told += value if isinstance(value, dict) else []
        assert any(part in line for part in told), (place, value, line)


@pytest.mark.parametrize("name", ["name", "tasks", "backbones", "methods", "seeds", "budget"])
def test_every_field_that_is_needed(
    folder: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert name in refusal(folder, yaml.safe_dump(without((name,))), capfd)


BOMB = "[&a [x, x, x, x, x, x, x, x, x]" + "".join(
    f", &{new} [{', '.join([f'*{old}'] * 9)}]"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "just words",
        "- a\n- b\n",
        "{}",
        "? [1, 2]\n: 3\n",
        "1: 2\n",
        "!!python/object/apply:os.system [exit]\n",
        "name: !!binary aGVsbG8=\n",
        "seeds: !!set {1, 2}\n",
        "name: 2020-01-01\n",
        "&a [*a]\n",
        "budget: &b {x: *b}\nscales: {s: {budget: &c {x: *c}}}\nscale: s\n",
        "methods: &m [*m]\n",
        "tasks: [&t {name: digits, options: {corruptions: *t}}]\n",
        f"description: {BOMB}]\n",
        f"description: [{', '.join(['x'] * 5000)}]\n",
        "[" * 1500,
        "name: x\n" * 2,
    ],
    ids=range(19),
)
def test_texts_that_are_no_suites(
    folder: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    refusal(folder, text, capfd)


keys = st.sampled_from([*Suite.model_fields, "scales", "epochs", "match", "options", "label"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.dates(),
    st.binary(max_size=4),
    st.text(max_size=8),
    st.sampled_from(["digits", "single", "resnet8", "epochs", "deep_ensemble", "tiny"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(keys, st.text(max_size=4), st.integers()), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(changes=st.dictionaries(keys, values, max_size=3), whole=values, change=st.booleans())
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_content_is_a_suite_or_a_persons_mistake(
    tmp_path: Path, changes: dict[str, Any], whole: Any, change: bool
) -> None:
    path = tmp_path / "any.yaml"
    content = {**GOOD, **changes} if change else whole
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    said = ""
    try:
        assert load_suite(str(path)).runs()
    except UserError as error:
        said = str(error)
    assert "\n" not in said
