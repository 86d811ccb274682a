"""A user's own images: a folder ``train/ val/ test/ ood/<name>/`` of class folders.

The layout is that of torchvision's `ImageFolder`: the folder's name is the class, labels are the
ranks of the sorted names, images may lie deeper. ``val/`` and ``ood/`` may be missing; below
``ood/<name>/`` images lie in any way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from bench.data.catalogue import ImageFolderOptions
from bench.data.corruption_cache import GeneratedShifts
from bench.data.corruptions import CORRUPTIONS, SMALLEST_SIDE
from bench.data.images import check_memory, decode, files_below, is_image, sizes
from bench.data.parts import SPLIT_SEED, kept, outlier_split, pixel_statistics, stratified_part
from bench.data.task import Outlier, Shift, Split, Task
from bench.errors import UserError, unknown


@dataclass
class _Files:
    """The image files of one folder and what is odd about it."""

    paths: list[Path] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    others: int = 0


def load(name: str, options: ImageFolderOptions, data: Path) -> Task:
    """The task of a folder.

    Everything is decoded at once, so that a broken file shows before anything is trained.

    Args:
        name: ``image_folder:PATH``; a relative path starts at the data folder.
        options: see `ImageFolderOptions`.
        data: the data folder.

    Raises:
        UserError: a folder is missing or empty, classes don't agree, an image can't be read, sizes
            differ and no `size` is given, or the images would not fit into memory.
    """
    place = f"task {name}"
    root = data / Path(name.partition(":")[2]).expanduser()
    files, outlier_files, classes = _list(root, options, place)
    every = [p for part in (*files.values(), *outlier_files.values()) for p in part.paths]
    shape = _shape(every, options, place)
    check_memory(len(every), options.channels, shape, place)
    _check_corruptions(options, shape, place)

    def read(part: _Files) -> Tensor:
        return decode(part.paths, options.channels, shape, place)

    notes = _notes(files, outlier_files, classes)
    if "val" not in files:
        notes.append(_divide(files, options, place))
    splits = {key: Split(read(part), torch.tensor(part.labels)) for key, part in files.items()}
    outliers = {
        Outlier(key, "near" if key in options.near else "far"): outlier_split(read(part))
        for key, part in outlier_files.items()
    }
    mean, std = pixel_statistics(splits["train"].inputs, place)
    test = splits["test"]
    shifts = GeneratedShifts(data, test, options.corruptions)
    return Task(
        name=name,
        class_names=tuple(classes),
        train=splits["train"],
        validation=splits["val"],
        test=test,
        mean=mean,
        std=std,
        shifts=tuple(Shift(c, s) for c in options.corruptions for s in options.severities),
        shift_origin="generated",
        outliers=tuple(outliers),
        load_shift=kept(shifts.load, test.inputs.nbytes),
        load_outlier=outliers.__getitem__,
        notes=(*notes, *shifts.notes),
    )


def _check_corruptions(options: ImageFolderOptions, shape: tuple[int, int], place: str) -> None:
    """Refuse corruptions that images of a shape, or grey images, can't have."""
    if options.corruptions and min(shape) < SMALLEST_SIDE:
        raise UserError(
            f"{place}: images of {shape[0]}×{shape[1]} are too small for the corruptions "
            f"({SMALLEST_SIDE} pixels at least): set `size`, or `corruptions: []`"
        )
    for corruption in options.corruptions:
        if options.channels == 1 and CORRUPTIONS[corruption].colour:
            raise UserError(
                f"{place}: {corruption} needs colour images: take it out of `corruptions`, or set "
                "`channels: 3`"
            )


def _list(
    root: Path, options: ImageFolderOptions, place: str
) -> tuple[dict[str, _Files], dict[str, _Files], list[str]]:
    """The files of the splits and of the outliers, and the class names."""
    if not root.is_dir():
        raise UserError(
            f"{place}: no folder {root}: it must have train/ and test/ of class folders"
        )
    for needed in ("train", "test"):
        if not (root / needed).is_dir():
            raise UserError(f"{place}: no folder {root / needed}: it must hold a folder per class")
    classes = [folder.name for folder in _folders(root / "train", place)]
    if len(classes) < 2:
        raise UserError(
            f"{place}: {root / 'train'} must have 2 class folders or more, not {len(classes)}"
        )
    limits = {
        "train": options.train_per_class,
        "val": options.val_per_class,
        "test": options.test_per_class,
    }
    files = {
        key: _class_files(root / key, classes, limit, place)
        for key, limit in limits.items()
        if (root / key).is_dir()
    }
    outliers = _outlier_files(root / "ood", options, place) if (root / "ood").is_dir() else {}
    for key in options.near:
        if key not in outliers:
            raise unknown(f"folder of ood/ in `near` of {place}", key, outliers)
    return files, outliers, classes


def _folders(folder: Path, place: str) -> list[Path]:
    """The folders of a folder by name; their names stand in results, so they must be text."""
    found = [
        path for path in _entries(folder, place) if path.is_dir() and not path.name.startswith(".")
    ]
    for path in found:
        if not path.name.isprintable():
            raise UserError(
                f"{place}: {folder} has a folder {path.name!r}: rename it to letters that can be "
                "printed, in UTF-8"
            )
    return sorted(found, key=lambda path: path.name)


def _entries(folder: Path, place: str) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise UserError(f"{place}: {folder}: can't be read: {error.strerror}") from None


def _class_files(folder: Path, classes: list[str], limit: int | None, place: str) -> _Files:
    """The images of a split, class by class."""
    found = _Files()
    _refuse_loose(folder, place, "a class folder")
    for class_folder in _folders(folder, place):
        if class_folder.name not in classes:
            raise UserError(
                f"{place}: class {class_folder.name!r} is in {folder.name}/, but not in train/: "
                f"train/ has {', '.join(classes)}"
            )
        images = _images(class_folder, found, place)[:limit]
        found.paths += images
        found.labels += [classes.index(class_folder.name)] * len(images)
    if not found.paths:
        raise UserError(f"{place}: no images in {folder}: it must hold a folder per class")
    return found


def _outlier_files(folder: Path, options: ImageFolderOptions, place: str) -> dict[str, _Files]:
    """The images of each outlier set, however deep."""
    _refuse_loose(folder, place, "ood/<name>/")
    outliers = {}
    for part in _folders(folder, place):
        found = _Files()
        found.paths = _images(part, found, place)[: options.outliers_per_set]
        outliers[part.name] = found
    return outliers


def _images(folder: Path, found: _Files, place: str) -> list[Path]:
    """The images below a folder, sorted; other files are counted."""
    files = files_below(folder, place)
    images = [path for path in files if is_image(path)]
    found.others += len(files) - len(images)
    if not images:
        raise UserError(f"{place}: no images in {folder}: add some or remove the folder")
    return images


def _refuse_loose(folder: Path, place: str, where: str) -> None:
    files = (path for path in _entries(folder, place) if not path.is_dir() and is_image(path))
    loose = sorted(path for path in files if not path.name.startswith("."))
    if loose:
        raise UserError(f"{place}: {loose[0]} lies outside a folder: move it into {where}")


def _shape(paths: list[Path], options: ImageFolderOptions, place: str) -> tuple[int, int]:
    """Height and width of all images once decoded."""
    if options.size is not None:
        return options.size, options.size
    found = sizes(paths, place)
    for path, shape in zip(paths, found, strict=True):
        if shape != found[0]:
            raise UserError(
                f"{place}: images differ in size ({paths[0]}: {_text(found[0])}, {path}: "
                f"{_text(shape)}): set `size`, such as size={min(min(s) for s in found)}"
            )
    return found[0]


def _text(shape: tuple[int, int]) -> str:
    return f"{shape[1]}×{shape[0]}"


def _notes(files: dict[str, _Files], outliers: dict[str, _Files], classes: list[str]) -> list[str]:
    """What a reader of the results must know about the folder."""
    notes = []
    for key, part in files.items():
        missing = [c for label, c in enumerate(classes) if label not in set(part.labels)]
        if missing:
            notes.append(f"{key}/ has no images of the classes {', '.join(missing)}.")
    parts: Iterable[tuple[str, _Files]] = (
        *files.items(),
        *((f"ood/{key}", part) for key, part in outliers.items()),
    )
    for key, part in parts:
        if part.others:
            notes.append(f"{key}/: left out {part.others} files that are no images.")
    if not outliers:
        notes.append("No out-of-distribution sets: ood/ is missing or empty.")
    return notes


def _divide(files: dict[str, _Files], options: ImageFolderOptions, place: str) -> str:
    """Take the files of a validation split out of those for training; a note about it."""
    whole = files["train"]
    size = round(options.validation_share * len(whole.paths))
    try:
        parts = stratified_part(torch.tensor(whole.labels), size, place)
    except UserError as error:
        raise UserError(f"{error}; or add val/, or set `validation_share`") from None
    for key, indices in zip(("train", "val"), parts, strict=True):
        chosen = indices.tolist()
        files[key] = _Files([whole.paths[i] for i in chosen], [whole.labels[i] for i in chosen])
    return (
        f"Validation is a stratified part of train/ ({size} images, seed {SPLIT_SEED}), as there "
        "is no val/."
    )
