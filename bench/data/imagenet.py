"""ImageNet, or any subset of its classes, in folders of its layout, read as batches are asked for.

Below the data folder::

    imagenet/train/<wnid>/*.JPEG        as torchvision's `ImageNet` unpacks them
    imagenet/val/<wnid>/*.JPEG          the official validation part: here the test split
    imagenet-c/<corruption>/<severity>/<wnid>/*.JPEG
    imagenet-o/, openimage-o/, inaturalist/images/, dtd/images/     images at any depth

Labels are the ranks of the sorted folder names of ``train/``, and the class names are these names.
ImageNet-C is used as published: its 224 pixels are neither resized nor cropped. A set beside the
main one that is missing is left out and noted.

Distances: OpenImage-O, iNaturalist and Textures are far, as in OpenOOD v1.5 (Zhang et al., 2023);
ImageNet-O, whose images were chosen because ImageNet's models are sure of them (Hendrycks et al.,
2021), is near, as in OpenOOD v1 (Yang et al., 2022). All its images are asked of all classes.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from bench.data.catalogue import ImagenetOptions, PublishedCorruption
from bench.data.class_folders import Listed, class_folders, known_classes, list_images
from bench.data.corruptions import CORRUPTIONS
from bench.data.images import files_below, is_image
from bench.data.lazy import Corrupted, ImageFiles
from bench.data.parts import SPLIT_SEED
from bench.data.sources import absent, fetch_command
from bench.data.task import UNKNOWN, Inputs, Outlier, Shift, Split, Task
from bench.errors import UserError
from bench.seeding import derive_seed

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's statistics, as everybody uses them."""

CROP_SHARE = 0.875
"""Of the shorter side, that the centre crop keeps: 224 of 256."""

_OUTLIERS: tuple[tuple[Outlier, tuple[str, ...]], ...] = (
    (Outlier("imagenet_o", "near"), ("imagenet-o",)),
    (Outlier("openimage_o", "far"), ("openimage-o",)),
    (Outlier("inaturalist", "far"), ("inaturalist/images", "iNaturalist/images")),
    (Outlier("textures", "far"), ("dtd/images", "dtd/dtd/images")),
)
"""The sets and the places below the data folder where they may lie."""


def load(name: str, options: ImagenetOptions, data: Path) -> Task:
    """The task `imagenet`.

    Args:
        name: as suites call it.
        options: see `ImagenetOptions`.
        data: the data folder.

    Raises:
        UserError: a folder is missing or empty, or classes don't agree.
    """
    place = f"task {name}"
    root = data / "imagenet"
    for part in ("train", "val"):
        if not (root / part).is_dir():
            raise absent(place, root / part, "imagenet", data)
    classes = class_folders(root / "train", place)
    if len(classes) < 2:
        raise UserError(f"{place}: {root / 'train'} must have 2 class folders or more")
    listed = list_images(root / "train", classes, options.train_per_class, place)
    train, validation = _divide(listed, options.validation, root / "train", place)
    tested = list_images(root / "val", classes, options.test_per_class, place)
    resize = round(options.size / CROP_SHARE)

    def split(part: str, names: list[str], labels: list[int]) -> Split[Inputs]:
        files = _files(root / part, names, options.size, resize, place)
        return Split(files, torch.tensor(labels))

    test = split("val", tested.names, tested.labels)
    shifts = _Shifts(options, data, tested.names, classes, test, place)
    outliers, notes = _outliers(options.size, resize, data, place)
    if others := listed.others + tested.others:
        notes.append(f"{others} files of {root} are no images and are left out.")
    return Task(
        name=name,
        class_names=tuple(classes),
        train=split("train", *train),
        validation=split("train", *validation),
        test=test,
        mean=MEAN,
        std=STD,
        shifts=shifts.available,
        shift_origin=shifts.origin,
        outliers=tuple(outliers),
        load_shift=shifts.load,
        load_outlier=outliers.__getitem__,
        notes=(*notes, *shifts.notes),
    )


def _files(root: Path, names: list[str], size: int, resize: int, place: str) -> ImageFiles:
    encoded = np.array([os.fsencode(name) for name in names], dtype=np.bytes_)
    return ImageFiles(root, encoded, size, resize, place)


def _divide(
    listed: Listed, each: int, folder: Path, place: str
) -> tuple[tuple[list[str], list[int]], tuple[list[str], list[int]]]:
    """Train and validation: `each` images a class are drawn for validation, the same for all runs.

    Raises:
        UserError: names a class that has too few.
    """
    counts = Counter(listed.labels)
    chosen: set[int] = set()
    first = 0
    for label, count in sorted(counts.items()):
        wnid = listed.names[first].partition("/")[0]
        if count <= each:
            raise UserError(
                f"{place}: {folder / wnid} has {count} images to choose from, and validation={each}"
                " takes as many: add images, or set a smaller `validation`"
            )
        generator = torch.Generator().manual_seed(derive_seed(SPLIT_SEED, "validation", wnid))
        drawn = torch.randperm(count, generator=generator)[:each] + first
        chosen.update(drawn.tolist())
        first += count
        assert listed.labels[first - 1] == label
    rows = range(len(listed.names))
    parts = [[row for row in rows if (row in chosen) == taken] for taken in (False, True)]
    train, validation = (
        ([listed.names[row] for row in part], [listed.labels[row] for row in part])
        for part in parts
    )
    return train, validation


def _outliers(
    size: int, resize: int, data: Path, place: str
) -> tuple[dict[Outlier, Split[Inputs]], list[str]]:
    """The out-of-distribution sets that are there, and a note for each that is not."""
    found: dict[Outlier, Split[Inputs]] = {}
    notes = []
    for outlier, places in _OUTLIERS:
        folder = next((data / one for one in places if (data / one).is_dir()), None)
        if folder is None:
            notes.append(
                f"Out-of-distribution set {outlier.name} is left out: the data folder has no "
                f"{places[0]}."
            )
            continue
        paths = [path for path in files_below(folder, place) if is_image(path)]
        if not paths:
            raise UserError(f"{place}: no images in {folder}: add some or remove the folder")
        files = ImageFiles.of(folder, paths, size, resize, f"{place}: outliers {outlier.name}")
        labels = torch.full((len(files),), UNKNOWN, dtype=torch.int64)
        found[outlier] = Split(files, labels)
    return found, notes


class _Shifts:
    """The corrupted copies of the test split, published or made when they are asked for.

    Attributes:
        origin: which of the two.
        available: all of them.
        notes: what is missing.
    """

    def __init__(
        self,
        options: ImagenetOptions,
        data: Path,
        names: list[str],
        classes: list[str],
        test: Split[Inputs],
        place: str,
    ) -> None:
        self._folder = data / "imagenet-c"
        self._options = options
        self._names = names
        self._test = test
        self._place = place
        self.notes: tuple[str, ...] = ()
        there = self._folder.is_dir()
        if options.shift == "official" and not there:
            raise UserError(
                f"{place}: no folder {self._folder}: get it with "
                f"`{fetch_command('imagenet-c', data)}`, or set shift=auto"
            )
        official = there and options.shift != "generated"
        self.origin: Literal["official", "generated"] = "official" if official else "generated"
        kinds = self._published(classes) if official else options.corruptions
        chosen = tuple(CORRUPTIONS) if kinds is None else kinds
        self.available = tuple(Shift(c, s) for c in chosen for s in options.severities)

    def load(self, shift: Shift) -> Split[Inputs]:
        """The test split under a corruption.

        Raises:
            UserError: a published file is missing.
        """
        labels: Tensor = self._test.labels
        if self.origin == "generated":
            return Split(Corrupted(self._test.inputs, shift.corruption, shift.severity), labels)
        folder = self._at(shift.corruption, shift.severity)
        for name in self._names:
            if not (folder / name).is_file():
                raise UserError(f"{self._place}: no file {folder / name}: unpack ImageNet-C again")
        # Published images are crops already: of another size, they are resized as they are.
        size = self._options.size
        return Split(_files(folder, self._names, size, size, self._place), labels)

    def _at(self, corruption: str, severity: int) -> Path:
        return self._folder / corruption / str(severity)

    def _published(self, classes: list[str]) -> tuple[str, ...]:
        """The corruptions that are there, with the classes of the test split in each."""
        names: tuple[str, ...] = get_args(PublishedCorruption)
        there = tuple(name for name in names if (self._folder / name).is_dir())
        for wanted in self._options.corruptions or ():
            if wanted not in there:
                raise UserError(f"{self._place}: no folder {self._folder / wanted}: add it")
        chosen = there if self._options.corruptions is None else self._options.corruptions
        if self._options.corruptions is None and len(there) < len(names):
            missing = ", ".join(name for name in names if name not in there)
            self.notes = (f"{self._folder.name} has no folders for {missing}.",)
        wanted_classes = sorted({name.partition("/")[0] for name in self._names})
        for corruption in chosen:
            for severity in self._options.severities:
                self._check_classes(self._at(corruption, severity), wanted_classes, classes)
        return chosen

    def _check_classes(self, folder: Path, wanted: list[str], classes: list[str]) -> None:
        if not folder.is_dir():
            raise UserError(f"{self._place}: no folder {folder}: unpack ImageNet-C again")
        there = frozenset(known_classes(folder, classes, self._place))
        for wnid in wanted:
            if wnid not in there:
                raise UserError(
                    f"{self._place}: no folder {folder / wnid}: unpack ImageNet-C again"
                )
