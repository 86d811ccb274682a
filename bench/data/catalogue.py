"""Tasks by name: what exists, which options it takes, and where its loader is.

Nothing heavy is imported before a task is loaded.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
)

from bench.backbones import pixel_normalisation, text_tokenizer
from bench.errors import UserError, unknown, validation_line

if TYPE_CHECKING:
    from bench.data.task import Task
    from bench.suite import TaskSpec

DigitsCorruption = Literal[
    "gaussian_noise",
    "impulse_noise",
    "gaussian_blur",
    "contrast",
    "translation",
    "rotation",
    "occlusion",
]
"""What can be done to 8×8 digits."""

PublishedCorruption = Literal[
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
    "speckle_noise",
    "gaussian_blur",
    "spatter",
    "saturate",
]
"""The files of CIFAR-10-C and CIFAR-100-C: ImageNet-C's 15 corruptions and the 4 beside them."""

GeneratedCorruption = PublishedCorruption
"""What can be made here, for images of at least 28 pixels: all of them."""

CifarNear = Literal["cifar10", "cifar100", "tiny_imagenet"]
"""Near out-of-distribution sets of the CIFAR tasks; a task's own set is none of them."""

CifarFar = Literal["svhn", "dtd", "mnist", "places365"]
"""Far out-of-distribution sets of the CIFAR tasks."""

TextNear = Literal["imdb", "yelp_polarity"]
"""Near out-of-distribution sets of `sst2`."""

TextFar = Literal["ag_news", "trec"]
"""Far out-of-distribution sets of `sst2`."""

Typo = Literal["typo_swap", "typo_drop", "typo_neighbour"]
"""What can be done to texts; see `bench.data.typos`."""

Item = TypeVar("Item")


def _distinct(values: tuple[Item, ...]) -> tuple[Item, ...]:
    if len(set(values)) < len(values):
        raise ValueError("an entry stands twice")
    return values


Severity = Annotated[int, Field(strict=True, ge=1, le=5)]
Severities = Annotated[tuple[Severity, ...], Field(min_length=1), AfterValidator(_distinct)]


class Options(BaseModel):
    """What a suite may say about a task."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DigitsOptions(Options):
    """Options of `digits`."""

    corruptions: Annotated[tuple[DigitsCorruption, ...], AfterValidator(_distinct)] = get_args(
        DigitsCorruption
    )
    """Of the test split; none switches the shift off."""
    severities: Severities = (1, 2, 3, 4, 5)


class CifarOptions(Options):
    """Options of `cifar10` and `cifar100`."""

    validation: PositiveInt = 5000
    """Training images kept for validation, stratified."""
    shift: Literal["auto", "official", "generated"] = "auto"
    """`official`: the published .npy files; `generated`: made here; `auto`: official if there."""
    corruptions: Annotated[tuple[PublishedCorruption, ...], AfterValidator(_distinct)] | None = None
    """By default all that there are; an empty list switches the shift off."""
    severities: Severities = (1, 2, 3, 4, 5)
    near: Annotated[tuple[CifarNear, ...], AfterValidator(_distinct)] | None = None
    """Out-of-distribution sets that look like the task's own; by default those that are there."""
    far: Annotated[tuple[CifarFar, ...], AfterValidator(_distinct)] | None = None
    """Other out-of-distribution sets; by default those that are there."""


class ImageFolderOptions(Options):
    """Options of `image_folder:PATH`."""

    size: PositiveInt | None = None
    """Pixels a side. Images of another size are resized (short side) and cropped (centre); without
    it, all images must have the same size."""
    channels: Literal[1, 3] = 3
    """3: RGB; 1: grey."""
    corruptions: Annotated[tuple[GeneratedCorruption, ...], AfterValidator(_distinct)] = (
        "gaussian_noise",
        "shot_noise",
        "defocus_blur",
        "fog",
        "brightness",
        "contrast",
        "pixelate",
        "jpeg_compression",
    )
    """Of the test split; an empty list switches the shift off."""
    severities: Severities = (1, 2, 3, 4, 5)
    near: Annotated[tuple[str, ...], AfterValidator(_distinct)] = ()
    """Folders of ``ood/`` that count as near; the others count as far."""
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of ``train/`` for validation where there is no ``val/``."""
    train_per_class: PositiveInt | None = None
    """At most so many training images a class, the first by name (before validation is taken)."""
    val_per_class: PositiveInt | None = None
    """At most so many images a class of ``val/``, the first by name."""
    test_per_class: PositiveInt | None = None
    """At most so many test images a class, the first by name."""
    outliers_per_set: PositiveInt | None = None
    """At most so many images of each folder of ``ood/``, the first by name."""


class ImagenetOptions(Options):
    """Options of `imagenet`."""

    size: Annotated[int, Field(strict=True, ge=28)] = 224
    """Pixels a side. Evaluated images are resized to size / 0.875 (short side), then cropped."""
    validation: PositiveInt = 10
    """Training images a class kept for validation: the official validation part is the test."""
    train_per_class: PositiveInt | None = None
    """At most so many training images a class, the first by name (before validation is taken)."""
    test_per_class: PositiveInt | None = None
    """At most so many test images a class, the first by name."""
    shift: Literal["auto", "official", "generated"] = "auto"
    """`official`: ImageNet-C's folders; `generated`: made here; `auto`: official if there."""
    corruptions: Annotated[tuple[PublishedCorruption, ...], AfterValidator(_distinct)] | None = None
    """By default all that there are; an empty list switches the shift off."""
    severities: Severities = (1, 2, 3, 4, 5)


class TextOptions(Options):
    """Options of all tasks of texts."""

    max_length: Annotated[int, Field(strict=True, ge=4, le=8192)] = 64
    """Tokens of a text, those that mark its ends included; what is longer is cut at the end."""
    typos: Annotated[tuple[Typo, ...], AfterValidator(_distinct)] = get_args(Typo)
    """Typing errors in the test split; an empty list switches the shift off."""
    severities: Severities = (1, 2, 3, 4, 5)
    train_per_class: PositiveInt | None = None
    """At most so many training texts a class, the first ones (before validation is taken)."""
    test_per_class: PositiveInt | None = None
    """At most so many test texts a class, the first ones."""
    outliers_per_set: PositiveInt | None = None
    """At most so many texts of each out-of-distribution set, the first ones."""


class TextFolderOptions(TextOptions):
    """Options of `text_folder:PATH`."""

    near: Annotated[tuple[str, ...], AfterValidator(_distinct)] = ()
    """Files of ``ood/``, without ``.tsv``, that count as near; the others count as far."""
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the training texts for validation where there is no ``val.tsv``."""
    val_per_class: PositiveInt | None = None
    """At most so many texts a class of ``val.tsv``, the first ones."""


class Sst2Options(TextOptions):
    """Options of `sst2`."""

    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.03
    """Share of the training phrases for validation."""
    near: Annotated[tuple[TextNear, ...], AfterValidator(_distinct)] | None = None
    """Reviews of other things out of distribution; by default those that are there."""
    far: Annotated[tuple[TextFar, ...], AfterValidator(_distinct)] | None = None
    """Other texts out of distribution; by default those that are there."""


@dataclass(frozen=True)
class Entry:
    """A task of the catalogue.

    Attributes:
        pattern: how a suite writes it; ``:PATH`` at the end asks for a path.
        description: one line.
        options: the model of its options.
        module: has ``load(name, options, data) -> Task``, for texts
            ``load(name, options, data, tokenizer) -> Task``.
        text: whether inputs are texts.
    """

    pattern: str
    description: str
    options: type[Options]
    module: str
    text: bool = False

    @property
    def takes_path(self) -> bool:
        """Whether the name goes on with a path."""
        return self.pattern.endswith(":PATH")


_ENTRIES = (
    Entry(
        "digits",
        "handwritten digits 0 to 7, 8×8, from scikit-learn; 8, 9 and photographs are OOD",
        DigitsOptions,
        "bench.data.digits",
    ),
    Entry(
        "image_folder:PATH",
        "a folder with train/ val/ test/ of class folders, and ood/<name>/",
        ImageFolderOptions,
        "bench.data.image_folder",
    ),
    Entry(
        "cifar10",
        "CIFAR-10; OOD: CIFAR-100, TinyImageNet, SVHN, …; shift: CIFAR-10-C, or generated",
        CifarOptions,
        "bench.data.cifar",
    ),
    Entry(
        "cifar100",
        "CIFAR-100; OOD: CIFAR-10, TinyImageNet, SVHN, …; shift: CIFAR-100-C, or generated",
        CifarOptions,
        "bench.data.cifar",
    ),
    Entry(
        "imagenet",
        "ImageNet folders; OOD: ImageNet-O, OpenImage-O, iNaturalist, DTD; shift: ImageNet-C, or "
        "generated",
        ImagenetOptions,
        "bench.data.imagenet",
    ),
    Entry(
        "text_folder:PATH",
        "a folder with train.tsv, val.tsv, test.tsv of text<TAB>label, and ood/<name>.tsv",
        TextFolderOptions,
        "bench.data.text_folder",
        text=True,
    ),
    Entry(
        "sst2",
        "SST-2, film reviews; OOD: AG News, TREC, IMDB, Yelp; shift: typing errors",
        Sst2Options,
        "bench.data.sst2",
        text=True,
    ),
)


def task_names() -> dict[str, str]:
    """Every task: how a suite writes its name -> one line about it."""
    return {entry.pattern: entry.description for entry in _ENTRIES}


def check_task(spec: TaskSpec) -> TaskSpec:
    """The same task with every option written out, so that equal tasks have equal identities.

    Whether its data are there shows when it is loaded.

    Raises:
        UserError: no such task, a path missing or too much, or an option that it can't have.
    """
    entry = _entry(spec.name)
    try:
        options = entry.options.model_validate(spec.options)
    except ValidationError as error:
        raise validation_line(f"task {spec.name}", error, entry.options.model_fields) from None
    return spec.model_copy(update={"options": options.model_dump(mode="json")})


def load_task(spec: TaskSpec, data: Path, backbone: str | None = None) -> Task:
    """Load a task; a process that asks again for the same gets the same object.

    Args:
        spec: name and options; the options are checked and completed.
        data: the folder in which data sets lie.
        backbone: what the inputs are made for: pretrained weights bring the statistics that images
            are normalised with, and texts are cut into the tokens of their model. None for images
            as they are.

    Raises:
        UserError: the specification is wrong, or the data are missing or damaged.
    """
    spec = check_task(spec)
    options = json.dumps(spec.options, sort_keys=True)
    folder = data.expanduser().resolve()
    try:
        if _entry(spec.name).text:
            if backbone is None:
                raise ValueError(f"task {spec.name}: texts need a backbone to be made for")
            return _load(spec.name, options, folder, backbone)
        task = _load(spec.name, options, folder, None)
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        place = error.filename or folder
        raise UserError(f"task {spec.name}: {place}: can't be read: {reason}") from error
    statistics = None if backbone is None else pixel_normalisation(backbone, folder)
    if statistics is None:
        return task
    mean, std = statistics
    if len(mean) != len(task.mean):
        raise UserError(
            f"task {spec.name}: images of {len(task.mean)} channels, but the weights of {backbone} "
            f"want {len(mean)}"
        )
    return dataclasses.replace(task, mean=mean, std=std)


# Two, since runs go through a suite task by task and a task may fill much of the memory.
@lru_cache(maxsize=2)
def _load(name: str, options: str, data: Path, backbone: str | None) -> Task:
    entry = _entry(name)
    load: Callable[..., Task] = importlib.import_module(entry.module).load
    checked = entry.options.model_validate_json(options)
    more = () if backbone is None else (text_tokenizer(backbone, data),)
    try:
        return load(name, checked, data, *more)
    except ValueError as error:
        # Data that can be read and make no task: labels of no class, say.
        raise UserError(f"task {name}: {' '.join(str(error).split())}") from error


def _entry(name: str) -> Entry:
    """The entry that a task's name belongs to."""
    kind, colon, path = name.partition(":")
    for entry in _ENTRIES:
        if entry.pattern.partition(":")[0] != kind:
            continue
        if entry.takes_path and not path.strip():
            raise UserError(f"task {name}: which folder? write {entry.pattern}")
        if colon and not entry.takes_path:
            raise UserError(f"task {name}: takes no path: write {entry.pattern}")
        return entry
    raise unknown("task", name, task_names())
