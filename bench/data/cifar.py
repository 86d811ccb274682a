"""CIFAR-10 and CIFAR-100 with their usual out-of-distribution sets and corruptions.

Everything is read from where torchvision's data sets put it, below the data folder; nothing is
downloaded here. A set beside the main one that is missing is left out and noted.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision import datasets

from bench.data.catalogue import CifarOptions, PublishedCorruption
from bench.data.corruption_cache import GeneratedShifts
from bench.data.outliers import (
    SIDE,
    Load,
    Source,
    find_outliers,
    open_dtd,
    open_mnist,
    open_places365,
    open_svhn,
    open_tiny_imagenet,
)
from bench.data.parts import kept, outlier_split, pixel_statistics, select, stratified_part
from bench.data.sources import absent, fetch_command
from bench.data.task import Outlier, Shift, Split, Task
from bench.errors import UserError

_CIFAR = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}
_PUBLISHED = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}


def load(name: str, options: CifarOptions, data: Path) -> Task:
    """The task `cifar10` or `cifar100`.

    Args:
        name: which.
        options: see `CifarOptions`.
        data: the folder with torchvision's folders and files.

    Raises:
        UserError: the main set is missing, or a set that is there is damaged.
    """
    place = f"task {name}"
    if options.near is not None and name in options.near:
        raise UserError(f"{place}: near: {name} is the task's own set")
    inputs, labels, classes = _cifar(name, data, True, place)
    test = Split(*_cifar(name, data, False, place)[:2])
    rest, part = stratified_part(labels, options.validation, place)
    train = select(inputs, labels, rest)
    mean, std = pixel_statistics(train.inputs, place)
    own = (inputs, test.inputs)
    outliers, notes = find_outliers(_sources(name), options.near, options.far, own, data, place)
    shifts = _Shifts(name, data, options, test)
    return Task(
        name=name,
        class_names=classes,
        train=train,
        validation=select(inputs, labels, part),
        test=test,
        mean=mean,
        std=std,
        shifts=shifts.available,
        shift_origin=shifts.origin,
        outliers=tuple(outliers),
        load_shift=kept(shifts.load, test.inputs.nbytes),
        load_outlier=cache(lambda outlier: outlier_split(outliers[outlier]())),
        notes=(*notes, *shifts.notes),
    )


def _cifar(
    name: str, data: Path, train: bool, place: str
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Images ``[N, 3, 32, 32]``, labels and class names, once torchvision has compared MD5 sums.

    The files are pickles; torchvision opens them only when their sums are those that it knows, so
    they hold what their authors published.
    """
    source = _CIFAR[name]
    folder = data / source.base_folder
    if not folder.is_dir():
        raise absent(place, folder, name, data)
    try:
        found = source(data, train=train, download=False)
    except RuntimeError:
        raise UserError(
            f"{place}: {folder}: a file is missing or its MD5 sum is wrong: "
            f"remove the folder and get it with `{fetch_command(name, data)}`"
        ) from None
    images = torch.from_numpy(found.data).permute(0, 3, 1, 2).contiguous()
    return images, torch.tensor(found.targets), tuple(found.classes)


def _sources(name: str) -> tuple[Source, ...]:
    """The out-of-distribution sets of a task, near and far as OpenOOD 1.5 divides them."""
    other = "cifar100" if name == "cifar10" else "cifar10"

    def open_other(data: Path, place: str) -> Load:
        images = _cifar(other, data, False, place)[0]
        return lambda: images

    svhn = datasets.SVHN.split_list["test"][1]
    return (
        Source(Outlier(other, "near"), _CIFAR[other].base_folder, other, open_other, searched=True),
        Source(
            Outlier("tiny_imagenet", "near"),
            "tiny-imagenet-200",
            "tiny-imagenet",
            open_tiny_imagenet,
        ),
        Source(Outlier("svhn", "far"), svhn, "svhn", open_svhn, searched=True),
        Source(Outlier("dtd", "far"), "dtd/dtd", "dtd", open_dtd),
        Source(Outlier("mnist", "far"), "MNIST/raw", "mnist", open_mnist),
        Source(Outlier("places365", "far"), "places365", "places365", open_places365),
    )


class _Shifts:
    """The corrupted copies of the test split, published or made here.

    Attributes:
        origin: which of the two.
        available: all of them.
        notes: what is missing.
    """

    def __init__(self, name: str, data: Path, options: CifarOptions, test: Split) -> None:
        self._folder = data / _PUBLISHED[name]
        self._place = f"task {name}"
        self._test = test
        self.notes: tuple[str, ...] = ()
        there = self._folder.is_dir()
        if options.shift == "official" and not there:
            command = fetch_command(f"{name}-c", data)
            raise UserError(
                f"{self._place}: no folder {self._folder}: get it with `{command}`, "
                "or set shift=auto"
            )
        official = there and options.shift != "generated"
        self.origin: Literal["official", "generated"] = "official" if official else "generated"
        if official:
            chosen = self._published(options)
        else:
            every: tuple[str, ...] = get_args(PublishedCorruption)
            chosen = every if options.corruptions is None else options.corruptions
            self._generated = GeneratedShifts(data, test, chosen)
            self.notes = self._generated.notes
        self.available = tuple(Shift(c, s) for c in chosen for s in options.severities)

    def load(self, shift: Shift) -> Split:
        """The test split under a corruption."""
        if self.origin == "generated":
            return self._generated.load(shift)
        count = len(self._test)
        # The file holds the severities one after the other, each with the whole test set in order.
        rows = self._array(shift.corruption)[(shift.severity - 1) * count : shift.severity * count]
        images = torch.from_numpy(np.array(rows)).permute(0, 3, 1, 2).contiguous()
        return Split(images, self._test.labels)

    def _published(self, options: CifarOptions) -> tuple[str, ...]:
        self._check_labels()
        names: tuple[str, ...] = get_args(PublishedCorruption)
        there = [c for c in names if (self._folder / f"{c}.npy").is_file()]
        for wanted in options.corruptions or ():
            if wanted not in there:
                raise UserError(f"{self._place}: no file {self._folder / wanted}.npy: add it")
        chosen = tuple(there) if options.corruptions is None else options.corruptions
        if options.corruptions is None and len(there) < len(names):
            missing = ", ".join(c for c in names if c not in there)
            self.notes = (f"{self._folder.name} has no files for {missing}.",)
        for corruption in chosen:
            self._array(corruption)
        return chosen

    def _array(self, corruption: str) -> NDArray[np.uint8]:
        """A file of all severities, ``[5 N, 32, 32, 3]``, on disk until its rows are asked for."""
        return self._open(f"{corruption}.npy", (5 * len(self._test), SIDE, SIDE, 3))

    def _check_labels(self) -> None:
        labels = self._open("labels.npy", (5 * len(self._test),))
        if not np.array_equal(labels, np.tile(self._test.labels.numpy(), 5)):
            raise UserError(
                f"{self._place}: {self._folder / 'labels.npy'}: the labels are not five times "
                "those of the test set, in its order"
            )

    def _open(self, file: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        path = self._folder / file
        try:
            array: NDArray[np.uint8] = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise UserError(
                f"{self._place}: no file {path}: unpack the published set again"
            ) from None
        except (OSError, ValueError, EOFError) as error:
            line = " ".join(str(error).split())
            raise UserError(f"{self._place}: {path}: not a readable .npy file: {line}") from None
        if array.shape != shape or array.dtype.kind not in "ui":
            raise UserError(
                f"{self._place}: {path}: has {array.dtype} {list(array.shape)}, not uint8 "
                f"{list(shape)}"
            )
        return array
