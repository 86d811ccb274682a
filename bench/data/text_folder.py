"""A user's own texts: a folder ``train.tsv val.tsv test.tsv ood/<name>.tsv`` of ``text<TAB>label``.

Each file may be packed, ``.tsv.gz``; ``val.tsv`` and ``ood/`` may be missing.
"""

from __future__ import annotations

import re
from pathlib import Path

from bench.data.catalogue import TextFolderOptions
from bench.data.parts import SPLIT_SEED
from bench.data.task import Outlier, Task
from bench.data.text import Samples, Tokenizer, held_out, text_task
from bench.data.text_sources import SUFFIXES, Labelled, find_tsv, read_labelled, read_texts
from bench.errors import UserError, unknown

_NUMBER = re.compile(r"0|[1-9][0-9]*")


def load(name: str, options: TextFolderOptions, data: Path, tokenizer: Tokenizer) -> Task:
    """The task of a folder of ``text<TAB>label`` files.

    Args:
        name: ``text_folder:PATH``; a relative path starts at the data folder.
        options: see `TextFolderOptions`.
        data: the data folder.
        tokenizer: the backbone's.

    Raises:
        UserError: a file is missing or damaged, a line is incomplete, or labels don't agree.
    """
    place = f"task {name}"
    root = data / Path(name.partition(":")[2]).expanduser()
    files = _files(root, place)
    outlier_files, others = _outlier_files(root / "ood", place)
    for key in options.near:
        if key not in outlier_files:
            raise unknown(f"file of ood/ in `near` of {place}", key, outlier_files)
    read = {key: read_labelled(path, place) for key, path in files.items()}
    classes = _classes(read["train"], files["train"], place)
    limits = {
        "train": options.train_per_class,
        "val": options.val_per_class,
        "test": options.test_per_class,
    }
    parts = {
        key: _numbered(rows, classes, files[key], place).first(limits[key])
        for key, rows in read.items()
    }
    outliers = {
        Outlier(key, "near" if key in options.near else "far"): read_texts(path, place)
        for key, path in outlier_files.items()
    }
    notes = [f"ood/: left out {others} files that are not .tsv or .tsv.gz."] if others else []
    if not outliers:
        notes.append("No out-of-distribution sets: ood/ is missing or empty.")
    if "val" not in parts:
        try:
            parts["train"], parts["val"] = held_out(parts["train"], options.validation_share, place)
        except UserError as error:
            raise UserError(f"{error}; or add val.tsv") from None
        notes.append(
            f"Validation is a stratified part of train ({len(parts['val'])} texts, seed "
            f"{SPLIT_SEED}), as there is no val.tsv."
        )
    return text_task(name, options, tokenizer, classes, parts, outliers, notes)


def _files(root: Path, place: str) -> dict[str, Path]:
    """The files of the splits, those for training and test at least."""
    if not root.is_dir():
        raise UserError(f"{place}: no folder {root}: it must have train.tsv and test.tsv")
    found = {
        key: path
        for key in ("train", "val", "test")
        if (path := find_tsv(root, key, place)) is not None
    }
    for needed in ("train", "test"):
        if needed not in found:
            raise UserError(
                f"{place}: no file {root / needed}.tsv (or .tsv.gz): it must hold a text, a tab "
                "and a label a line"
            )
    return found


def _outlier_files(folder: Path, place: str) -> tuple[dict[str, Path], int]:
    """The files of the outlier sets by name, and how many others lie there."""
    found: dict[str, Path] = {}
    others = 0
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in entries:
        suffix = next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), None)
        if path.name.startswith("."):
            continue
        if suffix is None or not path.is_file():
            others += 1
            continue
        key = path.name.removesuffix(suffix)
        if not key or not key.isprintable():
            raise UserError(f"{place}: {folder} has a file {path.name!r}: give it a printable name")
        if key in found:
            raise UserError(f"{place}: {found[key]} and {path} are both there: remove one")
        found[key] = path
    return found, others


def _classes(train: Labelled, path: Path, place: str) -> list[str]:
    """The class names in label order: numbers from 0 on without a gap, or else sorted names."""
    names = set(train.labels)
    where = f"{place}: {path}"
    if len(names) > len(set(train.texts)):
        raise UserError(
            f"{where}: has more labels than texts: the text must come first, then a tab and its "
            "label"
        )
    if len(names) < 2:
        raise UserError(f"{where}: must have 2 classes or more, not only {train.labels[0]!r}")
    strange = next((name for name in names if not name.isprintable()), None)
    if strange is not None:
        raise UserError(f"{where}: label {strange!r}: must be letters that can be printed")
    if all(map(_NUMBER.fullmatch, names)):
        numbers = sorted(map(int, names))
        if numbers != list(range(len(numbers))):
            shown = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
            raise UserError(
                f"{where}: labels {shown}: numbers must be 0 to {len(numbers) - 1} without a gap"
            )
        return [str(number) for number in numbers]
    if all(map(_NUMBER.fullmatch, train.labels[1:])):
        raise UserError(
            f"{where}, line 1: label {train.labels[0]!r} among numbers: remove the line if it is a "
            "header"
        )
    return sorted(names)


def _numbered(rows: Labelled, classes: list[str], path: Path, place: str) -> Samples:
    """The samples of a file, labels as ranks of their class."""
    ranks = {name: rank for rank, name in enumerate(classes)}
    for line, label in enumerate(rows.labels, 1):
        if label not in ranks:
            shown = ", ".join(classes[:8]) + (", …" if len(classes) > 8 else "")
            raise UserError(
                f"{place}: {path}, line {line}: label {label!r} is not in train: it has {shown}"
            )
    return Samples(rows.texts, [ranks[label] for label in rows.labels])
