"""CIFAR-10 and CIFAR-100 with their usual out-of-distribution sets and corruptions.

Everything is read from where torchvision's data sets put it, below the data folder; nothing is
downloaded here. A set beside the main one that is missing is left out and noted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision import datasets

from bench.data.catalogue import CifarOptions, PublishedCorruption
from bench.data.corruptions import CORRUPTIONS, corrupt
from bench.data.images import decode
from bench.data.parts import kept, outlier_split, pixel_statistics, select, stratified_part
from bench.data.task import Outlier, Shift, Split, Task
from bench.errors import UserError

SIDE = 32

_CIFAR = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}
_PUBLISHED = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}
_PUBLISHED_AT = {
    "cifar10": "https://zenodo.org/records/2535967",
    "cifar100": "https://zenodo.org/records/3555552",
}


@dataclass(frozen=True)
class _Source:
    """A set beside the main one.

    Attributes:
        outlier: its name and distance.
        place: the file or folder by which it is known to be there, below the data folder.
        open: reads or checks it and returns what gives its images.
    """

    outlier: Outlier
    place: str
    open: Callable[[Path, str], Callable[[], Tensor]]


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
    inputs, labels, classes = _cifar(name, data, True, place)
    test = Split(*_cifar(name, data, False, place)[:2])
    rest, part = stratified_part(labels, options.validation, place)
    train = select(inputs, labels, rest)
    mean, std = pixel_statistics(train.inputs, place)
    outliers, notes = _outliers(name, data, place)
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
    command = f'python -c "from torchvision.datasets import {source.__name__} as D; '
    command += f"D('{data}', download=True)\""
    if not folder.is_dir():
        raise UserError(f"{place}: no folder {folder}: get it with {command}")
    try:
        found = source(data, train=train, download=False)
    except RuntimeError:
        raise UserError(
            f"{place}: {folder}: a file is missing or its MD5 sum is wrong: "
            f"remove the folder and get it with {command}"
        ) from None
    images = torch.from_numpy(found.data).permute(0, 3, 1, 2).contiguous()
    return images, torch.tensor(found.targets), tuple(found.classes)


def _outliers(
    name: str, data: Path, place: str
) -> tuple[dict[Outlier, Callable[[], Tensor]], list[str]]:
    """The out-of-distribution sets that are there, and a note for each that is not."""
    other = "cifar100" if name == "cifar10" else "cifar10"
    sources = (
        _Source(Outlier(other, "near"), _CIFAR[other].base_folder, _open_other(other)),
        _Source(Outlier("svhn", "far"), datasets.SVHN.split_list["test"][1], _open_svhn),
        _Source(Outlier("dtd", "far"), "dtd/dtd", _open_dtd),
    )
    found, notes = {}, []
    for source in sources:
        if (data / source.place).exists():
            found[source.outlier] = source.open(data, place)
        else:
            notes.append(
                f"Out-of-distribution set {source.outlier.name} is left out: the data folder has "
                f"no {source.place}."
            )
    return found, notes


def _open_other(name: str) -> Callable[[Path, str], Callable[[], Tensor]]:
    def opened(data: Path, place: str) -> Callable[[], Tensor]:
        images = _cifar(name, data, False, f"{place}: outliers {name}")[0]
        return lambda: images

    return opened


def _open_svhn(data: Path, place: str) -> Callable[[], Tensor]:
    try:
        found = datasets.SVHN(data, split="test", download=False)
    except RuntimeError:
        file = data / datasets.SVHN.split_list["test"][1]
        raise UserError(
            f"{place}: outliers svhn: {file}: its MD5 sum is wrong: remove it, or get it with "
            f"python -c \"from torchvision.datasets import SVHN as D; D('{data}', 'test', "
            'download=True)"'
        ) from None
    images = torch.from_numpy(np.ascontiguousarray(found.data))
    return lambda: images


def _open_dtd(data: Path, place: str) -> Callable[[], Tensor]:
    """The test part of DTD's first division, resized when asked for: short side, centre crop."""
    place = f"{place}: outliers dtd"
    try:
        # The loader gives paths, so that the images are decoded together and in threads.
        paths = [path for path, _ in datasets.DTD(data, split="test", loader=Path)]
    except OSError as error:
        raise UserError(f"{place}: {data / 'dtd' / 'dtd'}: can't be read: {error}") from None
    for path in paths:
        if not path.is_file():
            raise UserError(f"{place}: no file {path}: unpack DTD again")
    return lambda: decode(paths, 3, (SIDE, SIDE), place)


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
            raise UserError(
                f"{self._place}: no folder {self._folder}: get {_PUBLISHED[name]} from "
                f"{_PUBLISHED_AT[name]} and unpack it there, or set shift=auto"
            )
        official = there and options.shift != "generated"
        self.origin: Literal["official", "generated"] = "official" if official else "generated"
        chosen = self._published(options) if official else self._makable(options)
        self.available = tuple(Shift(c, s) for c in chosen for s in options.severities)

    def load(self, shift: Shift) -> Split:
        """The test split under a corruption."""
        if self.origin == "generated":
            images = corrupt(self._test.inputs, shift.corruption, shift.severity)
            return Split(images, self._test.labels)
        count = len(self._test)
        # The file holds the severities one after the other, each with the whole test set in order.
        rows = self._array(shift.corruption)[(shift.severity - 1) * count : shift.severity * count]
        images = torch.from_numpy(np.array(rows)).permute(0, 3, 1, 2).contiguous()
        return Split(images, self._test.labels)

    def _makable(self, options: CifarOptions) -> tuple[str, ...]:
        if options.corruptions is None:
            return tuple(CORRUPTIONS)
        for corruption in options.corruptions:
            if corruption not in CORRUPTIONS:
                raise UserError(
                    f"{self._place}: {corruption} can't be generated: put the published file into "
                    f"{self._folder}, or choose from {', '.join(CORRUPTIONS)}"
                )
        return options.corruptions

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
