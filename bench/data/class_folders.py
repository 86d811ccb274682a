"""Folders of class folders with very many images, listed without a look at each file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UserError

SUFFIXES = frozenset({".jpeg", ".jpg", ".png"})


@dataclass(frozen=True)
class Listed:
    """The images of a part, class by class.

    Attributes:
        names: ``<wnid>/<file>``.
        labels: one a name.
        others: how many files are no images.
    """

    names: list[str]
    labels: list[int]
    others: int


def _entries(folder: Path, place: str) -> list[os.DirEntry[str]]:
    """What lies in a folder, by name, but for names that begin with a dot."""
    try:
        with os.scandir(folder) as found:
            entries = [entry for entry in found if not entry.name.startswith(".")]
    except OSError as error:
        raise UserError(f"{place}: {folder}: can't be read: {error.strerror}") from None
    return sorted(entries, key=lambda entry: entry.name)


def class_folders(folder: Path, place: str) -> list[str]:
    """The names of the class folders in a folder; loose images are refused."""
    names = []
    for entry in _entries(folder, place):
        if entry.is_dir():
            names.append(entry.name)
        elif Path(entry.name).suffix.lower() in SUFFIXES:
            raise UserError(
                f"{place}: {folder / entry.name} lies outside of a class folder: sort {folder.name}"
                "/ into folders as torchvision.datasets.ImageNet does"
            )
    for name in names:
        if not name.isprintable():
            raise UserError(f"{place}: {folder} has a folder {name!r}: rename it")
    return names


def known_classes(folder: Path, classes: list[str], place: str) -> list[str]:
    """The class folders of a folder, which must all be classes of the task.

    Raises:
        UserError: names the first that is not.
    """
    names = class_folders(folder, place)
    known = frozenset(classes)
    for name in names:
        if name not in known:
            raise UserError(
                f"{place}: class {name!r} is in {folder}, but not in imagenet/train: remove it "
                "there, or add it here"
            )
    return names


def list_images(folder: Path, classes: list[str], limit: int | None, place: str) -> Listed:
    """The images of a part, by class and by name, at most `limit` a class."""
    ranks = {name: rank for rank, name in enumerate(classes)}
    names: list[str] = []
    labels: list[int] = []
    others = 0
    for wnid in known_classes(folder, classes, place):
        files = [entry.name for entry in _entries(folder / wnid, place) if entry.is_file()]
        images = [file for file in files if Path(file).suffix.lower() in SUFFIXES]
        if not images:
            raise UserError(f"{place}: no images in {folder / wnid}: add some or remove the folder")
        others += len(files) - len(images)
        names += [f"{wnid}/{file}" for file in images[:limit]]
        labels += [ranks[wnid]] * len(images[:limit])
    if not names:
        raise UserError(f"{place}: no images in {folder}: it must hold a folder per class")
    return Listed(names, labels, others)
