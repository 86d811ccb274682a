"""What to run: suites, run specifications and their identities."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeVar, get_origin
from unicodedata import category

from pydantic import Field, PositiveInt, ValidationError, field_validator

from bench.backbones import check_backbone_name
from bench.data.catalogue import check_task
from bench.errors import UserError, unknown, validation_line
from bench.recipe import Budget, Evaluation, Frozen, Recipe
from bench.registry import method_class, source_digest

FORMAT = 1
"""The version of the specification; part of every run id."""

_UNSEEN = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories of letters that break a line or can't be shown."""


Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Derived(Frozen):
    """A model with cached properties, which a copy with other values must not inherit."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, some of its values changed."""
        copied = super().model_copy(update=update, deep=deep)
        for name in vars(copied).keys() - type(self).model_fields.keys():
            del vars(copied)[name]
        return copied


class TaskSpec(Frozen):
    """A task by name, with the options of its loader."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class MethodEntry(Frozen):
    """A method of a suite: one run per combination of the values in `grid`."""

    name: str
    label: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(default_factory=dict)
    backbones: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The backbones of this method alone; by default the suite's."""


class Setting(Frozen):
    """How the networks of some backbones are trained: what differs from the suite."""

    recipe: dict[str, Any] = Field(default_factory=dict)
    budget: dict[str, Any] = Field(default_factory=dict)


class RunSpec(Derived):
    """One training and evaluation, complete: equal specifications are the same run.

    `label` and `suite` say how tables call the run; they are not part of its identity.
    """

    task: TaskSpec
    backbone: str
    method: str
    parameters: dict[str, Any]
    """All hyper-parameters of the method, defaults included."""
    seed: Seed
    recipe: Recipe
    budget: Budget
    evaluation: Evaluation
    source: str | None = None
    """Digest of the plug-in file of the method: another text is another run."""
    label: str = ""

    @property
    def identity(self) -> dict[str, Any]:
        """What makes the run this run, as plain JSON values."""
        return {"format": FORMAT, **self.model_dump(mode="json", exclude=self._left_out)}

    @property
    def _left_out(self) -> set[str]:
        return {"label"} if self.source else {"label", "source"}

    @cached_property
    def id(self) -> str:
        """A readable name that ends in the hash of the identity."""
        canonical = json.dumps(self.identity, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(canonical.encode()).hexdigest()[:12]
        words = f"{self.method}-{self.task.name.split(':')[0]}-{self.backbone}-s{self.seed}"
        # Names of folders have at most 255 bytes; a backbone may be a long path.
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', words)[:200]}-{digest}"


class Suite(Derived):
    """A matrix of runs and the comparison that is made of it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)]
    description: str = ""
    tasks: tuple[TaskSpec, ...] = Field(min_length=1)
    backbones: tuple[str, ...] = Field(min_length=1)
    methods: tuple[MethodEntry, ...] = Field(min_length=1)
    members: PositiveInt = 4
    """M of every method that has members and does not say otherwise."""
    seeds: tuple[Seed, ...] = Field(min_length=1)
    budget: Budget
    recipe: Recipe = Recipe()
    evaluation: Evaluation = Evaluation()
    for_backbones: dict[str, Setting] = Field(default_factory=dict)
    """What differs for backbones whose name a pattern fits, such as ``"*@*"`` for pretrained ones:
    recipe and budget, key by key over the suite's."""
    reference: str | None = None
    """Label of the method that paired differences refer to; by default the first with members."""
    scale: str | None = None
    """Which of the scales in the file this is; results of two scales lie apart."""

    @field_validator("tasks", mode="before")
    @classmethod
    def _short_tasks(cls, value: Any) -> Any:
        return [_short(entry, "options") for entry in value] if isinstance(value, list) else value

    @field_validator("methods", mode="before")
    @classmethod
    def _short_methods(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [_short(entry, "parameters", keep=("label", "grid", "backbones")) for entry in value]

    @field_validator("for_backbones", mode="before")
    @classmethod
    def _without_nothing(cls, value: Any) -> Any:
        # A scale takes a pattern, or all of them, back with `null`.
        if value is None:
            return {}
        if not isinstance(value, dict):
            return value
        return {pattern: setting for pattern, setting in value.items() if setting is not None}

    def settings(self, backbone: str) -> tuple[Recipe, Budget]:
        """How networks of a backbone are trained, by the first pattern that fits, if any.

        Raises:
            UserError: a key or a value that a recipe or a budget can't have.
        """
        for pattern, setting in self.for_backbones.items():
            if fnmatchcase(backbone, pattern):
                place = f"suite {self.name}: for_backbones: {pattern!r}"
                return (
                    _changed(self.recipe, setting.recipe, f"{place}: recipe"),
                    _changed(self.budget, setting.budget, f"{place}: budget"),
                )
        return self.recipe, self.budget

    def runs(self) -> list[RunSpec]:
        """The runs of the matrix, method by method within a seed, without repetition.

        Raises:
            UserError: the matrix asks for something that does not exist, or twice for the same.
        """
        return list(self._runs)

    @cached_property
    def _runs(self) -> tuple[RunSpec, ...]:
        runs: dict[str, RunSpec] = {}
        variants = [
            (self._backbones(entry), *variant)
            for entry in self.methods
            for variant in self._variants(entry)
        ]
        sources = {entry.name: source_digest(entry.name) for entry in self.methods}
        self._check_labels([label for _, label, _, _ in variants])
        settings = {}
        for name in self.all_backbones():
            check_backbone_name(name)
            settings[name] = self.settings(name)
        tasks = [check_task(task) for task in self.tasks]
        axes = itertools.product(tasks, settings, self.seeds, variants)
        for task, backbone, seed, (backbones, label, method, parameters) in axes:
            if backbone not in backbones:
                continue
            recipe, budget = settings[backbone]
            run = RunSpec(
                task=task,
                backbone=backbone,
                method=method,
                parameters=parameters,
                seed=seed,
                recipe=recipe,
                budget=budget,
                evaluation=self.evaluation,
                source=sources[method],
                label=label,
            )
            twin = runs.setdefault(run.id, run)
            if twin.label != label:
                both = f"{twin.label!r} and {label!r}"
                raise UserError(f"suite {self.name}: methods {both} are the same: drop one")
        return tuple(runs.values())

    def _backbones(self, entry: MethodEntry) -> tuple[str, ...]:
        return self.backbones if entry.backbones is None else entry.backbones

    def all_backbones(self) -> list[str]:
        """Every backbone of the matrix once, the suite's first."""
        own = (name for entry in self.methods for name in self._backbones(entry))
        return list(dict.fromkeys([*self.backbones, *own]))

    def _check_labels(self, labels: list[str]) -> None:
        for label in labels:
            if not label.strip() or any(category(letter) in _UNSEEN for letter in label):
                raise UserError(
                    f"suite {self.name}: label {label!r}: must be words on one line, such as 'mine'"
                )
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise UserError(
                f"suite {self.name}: two methods are called {twice[0]!r}: give one a `label`"
            )
        if self.reference is not None and self.reference not in labels:
            error = unknown("reference", self.reference, labels)
            raise UserError(f"suite {self.name}: {error}: set `reference` to one of them")

    def _variants(self, entry: MethodEntry) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(label, method, all parameters) for each point of an entry's grid."""
        cls = method_class(entry.name)
        for name in entry.grid:
            if name in entry.parameters:
                raise UserError(
                    f"suite {self.name}: method {entry.name}: {name!r} has a value of its own and "
                    "values in `grid`: drop one"
                )
        for values in itertools.product(*entry.grid.values()):
            point = dict(zip(entry.grid, values, strict=True))
            parameters = {**entry.parameters, **point}
            pinned = get_origin(cls.model_fields["members"].annotation) is Literal
            if "members" not in parameters and not pinned:
                parameters["members"] = self.members
            try:
                method = cls(**parameters)
            except ValidationError as error:
                place = f"suite {self.name}: method {entry.name}"
                raise validation_line(place, error, cls.model_fields) from None
            label = entry.name if entry.label is None else entry.label
            if point:
                label += f" ({', '.join(f'{key}={value}' for key, value in point.items())})"
            yield label, entry.name, method.model_dump(mode="json")


def _short(entry: Any, rest: str, keep: tuple[str, ...] = ()) -> Any:
    """A name alone, or ``{name: …, option: …}``, in the long form of the model."""
    if isinstance(entry, str):
        return {"name": entry}
    if isinstance(entry, dict) and rest not in entry:
        named = {key: entry[key] for key in ("name", *keep) if key in entry}
        return {**named, rest: {key: value for key, value in entry.items() if key not in named}}
    return entry


Model = TypeVar("Model", Recipe, Budget)


def _changed(model: Model, changes: dict[str, Any], place: str) -> Model:
    """A recipe or budget with some values changed, checked again."""
    try:
        return type(model).model_validate({**model.model_dump(), **changes})
    except ValidationError as error:
        raise validation_line(place, error, type(model).model_fields) from None
