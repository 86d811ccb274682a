"""What to run: suites, run specifications and their identities."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_origin
from unicodedata import category

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from bench.backbones import check_backbone_name
from bench.data.catalogue import check_task
from bench.errors import UserError, complaint, unknown, validation_line
from bench.registry import method_class, source_digest
from bench.yaml_text import read_setting, read_yaml

FORMAT = 1
"""The version of the specification; part of every run id."""

_UNSEEN = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories of letters that break a line or can't be shown."""

Probability = Annotated[float, Field(ge=0, lt=1)]


class Frozen(BaseModel):
    """Immutable, and strict about the names of its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Recipe(Frozen):
    """How a network is trained; the same for every method of a suite."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: PositiveFloat = 0.1
    momentum: Probability = 0.9
    nesterov: bool = True
    weight_decay: NonNegativeFloat = 5e-4
    batch_size: PositiveInt = 128
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: Probability = 0.05
    """Share of the steps over which the learning rate rises linearly from 0."""
    augment: tuple[Literal["crop", "shift", "flip", "resized_crop"], ...] = ("crop", "flip")
    """`crop`: zero-pad by an eighth and crop back; `shift`: by one pixel; `flip`: left to right;
    `resized_crop`: a random part of the original photograph (read from disk), resized."""
    gradient_clip: PositiveFloat | None = None
    """Largest norm of the gradient of the whole model, per member that the loss is a sum over."""
    precision: Literal["float32", "bfloat16"] = "float32"
    accumulate: PositiveInt = 1
    """Parts that a batch is processed in, one after the other, when it does not fit into memory."""
    devices: PositiveInt = 1
    """Devices that share each batch; statistics of batch normalisation are over a device's part."""
    member_chunk: PositiveInt | Literal["auto"] = "auto"
    """Members trained at a time, where a method allows it; `auto` measures (speed only)."""

    @model_validator(mode="after")
    def _batch_divides(self) -> Recipe:
        if self.batch_size % self.devices:
            raise ValueError(
                f"batch_size={self.batch_size} can't be shared evenly by devices={self.devices}: "
                f"{self.batch_size - self.batch_size % self.devices or self.devices} can"
            )
        if self.accumulate > self.batch_size // self.devices:
            raise ValueError(
                f"accumulate={self.accumulate}: a device has only "
                f"{self.batch_size // self.devices} samples of a step: "
                f"{self.batch_size // self.devices} is the most"
            )
        return self


class Budget(Frozen):
    """What every method may spend: as much as `networks` single networks for `epochs` epochs.

    `epochs`: every trained network sees the training set this often, whatever it costs.
    `train_flops`: the FLOPs of forward and backward passes are matched.
    `device_seconds`: the measured time of the training steps is matched.
    """

    match: Literal["epochs", "train_flops", "device_seconds"] = "train_flops"
    networks: PositiveInt = 4
    epochs: PositiveFloat


class Evaluation(Frozen):
    """How trained models are evaluated."""

    batch_size: PositiveInt = 500
    shifts: bool = True
    outliers: bool = True


class TaskSpec(Frozen):
    """A task by name, with the options of its loader."""

    name: str
    options: dict[str, Any] = {}


class MethodEntry(Frozen):
    """A method of a suite: one run per combination of the values in `grid`."""

    name: str
    label: str | None = None
    parameters: dict[str, Any] = {}
    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = {}
    backbones: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The backbones of this method alone; by default the suite's."""


class Setting(Frozen):
    """How the networks of some backbones are trained: what differs from the suite."""

    recipe: dict[str, Any] = {}
    budget: dict[str, Any] = {}


class RunSpec(Frozen):
    """One training and evaluation, complete: equal specifications are the same run.

    `label` and `suite` say how tables call the run; they are not part of its identity.
    """

    task: TaskSpec
    backbone: str
    method: str
    parameters: dict[str, Any]
    """All hyper-parameters of the method, defaults included."""
    seed: NonNegativeInt
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

    @property
    def id(self) -> str:
        """A readable name that ends in the hash of the identity."""
        canonical = json.dumps(self.identity, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(canonical.encode()).hexdigest()[:12]
        words = f"{self.method}-{self.task.name.split(':')[0]}-{self.backbone}-s{self.seed}"
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', words)}-{digest}"


class Suite(Frozen):
    """A matrix of runs and the comparison that is made of it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    description: str = ""
    tasks: tuple[TaskSpec, ...] = Field(min_length=1)
    backbones: tuple[str, ...] = Field(min_length=1)
    methods: tuple[MethodEntry, ...] = Field(min_length=1)
    members: PositiveInt = 4
    """M of every method that has members and does not say otherwise."""
    seeds: tuple[NonNegativeInt, ...] = Field(min_length=1)
    budget: Budget
    recipe: Recipe = Recipe()
    evaluation: Evaluation = Evaluation()
    for_backbones: dict[str, Setting] = {}
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
        """The runs of the matrix, method by method within a seed, without repetition."""
        runs: dict[str, RunSpec] = {}
        variants = [
            (self._backbones(entry), *variant)
            for entry in self.methods
            for variant in self._variants(entry)
        ]
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
                source=source_digest(method),
                label=label,
            )
            twin = runs.setdefault(run.id, run)
            if twin.label != label:
                both = f"{twin.label!r} and {label!r}"
                raise UserError(f"suite {self.name}: methods {both} are the same: drop one")
        return list(runs.values())

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
            raise UserError(f"suite {self.name}: {error}")

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
    try:
        suite = Suite.model_validate(content)
    except ValidationError as error:
        raise validation_line(f"suite {path}", error, _fields_at(error)) from None
    suite.runs()
    if not any(override.startswith("backbones=") for override in overrides):
        _check_patterns(suite)
    return suite


def _check_patterns(suite: Suite) -> None:
    """Refuse a pattern of `for_backbones` that fits no backbone: its values would be lost.

    Raises:
        UserError: names the pattern and the backbones.
    """
    names = suite.all_backbones()
    for pattern in suite.for_backbones:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(
                f"suite {suite.name}: for_backbones: {pattern!r} fits none of the backbones "
                f"{', '.join(names)}"
            )


def _at_scale(content: dict[str, Any], asked: str | None, place: str) -> dict[str, Any]:
    """The content of a suite at one of its scales.

    Raises:
        UserError: there is no such scale, or ``scales`` is no mapping of mappings.
    """
    scales = content.pop("scales", None)
    if scales is None:
        if asked is not None:
            raise UserError(f"--scale {asked}: {place} has no `scales`: leave --scale out")
        return content
    if not isinstance(scales, dict) or not all(
        isinstance(name, str) and isinstance(part, dict) for name, part in scales.items()
    ):
        raise UserError(f"{place}: scales: must map names to what differs there")
    default = content.pop("scale", None)
    if default is None and asked is None:
        raise UserError(f"{place}: `scale` must name the default among {', '.join(scales)}")
    chosen = str(default if asked is None else asked)
    if chosen not in scales:
        raise unknown("scale" if asked else f"`scale` of {place}", chosen, scales)
    merged = _merged(content, scales[chosen])
    return {**merged, "name": f"{merged.get('name')}-{chosen}", "scale": chosen}


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
