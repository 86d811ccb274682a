"""Tasks of texts: a user's own, in files of ``text<TAB>label``, and what all text tasks share.

A model reads token ids, and its own tokenizer makes them. All splits of a task are padded to one
length, `max_length`, also where no text is so long: typing errors make more tokens of a text. The
padding costs nothing, since `Task.normalise` cuts each batch to its longest text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from bench.data.catalogue import TextFolderOptions, TextOptions
from bench.data.parts import SPLIT_SEED, kept, outlier_split, stratified_part
from bench.data.task import Outlier, Shift, Split, Task
from bench.data.text_sources import SUFFIXES, Labelled, find_tsv, read_labelled, read_texts
from bench.data.typos import misspell
from bench.errors import UserError, unknown

_NUMBER = re.compile(r"0|[1-9][0-9]*")


class Tokenizer(Protocol):
    """What cuts texts into tokens."""

    @property
    def pad(self) -> int:
        """The token id that fills texts up."""
        ...

    def encode(self, texts: Sequence[str], max_length: int) -> Tensor:
        """Token ids, int64 ``[N, L]`` with L at most `max_length`, padded at the end."""
        ...


@dataclass(frozen=True)
class Samples:
    """Texts and their labels in ``[0, K)``."""

    texts: list[str]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.texts)

    def at(self, indices: Iterable[int]) -> Samples:
        """The samples at these indices."""
        chosen = list(indices)
        return Samples([self.texts[i] for i in chosen], [self.labels[i] for i in chosen])

    def first(self, per_class: int | None) -> Samples:
        """At most so many of each class, the first ones, in their order."""
        if per_class is None:
            return self
        seen: Counter[int] = Counter()
        chosen = []
        for index, label in enumerate(self.labels):
            seen[label] += 1
            if seen[label] <= per_class:
                chosen.append(index)
        return self.at(chosen)


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
        parts["train"], parts["val"] = held_out(parts["train"], options.validation_share, place)
        notes.append(
            f"Validation is a stratified part of train ({len(parts['val'])} texts, seed "
            f"{SPLIT_SEED}), as there is no val.tsv."
        )
    return text_task(name, options, tokenizer, classes, parts, outliers, notes)


def text_task(
    name: str,
    options: TextOptions,
    tokenizer: Tokenizer,
    classes: Sequence[str],
    parts: Mapping[str, Samples],
    outliers: Mapping[Outlier, list[str]],
    notes: Sequence[str],
) -> Task:
    """A task of texts that have been read.

    Args:
        name: as suites call it.
        options: which shifts, and how long texts may be.
        tokenizer: the backbone's.
        classes: names in label order.
        parts: ``train``, ``val`` and ``test``, limited and divided already.
        outliers: texts of no class.
        notes: what is known of them so far.
    """
    encoder = _Encoder(tokenizer, options.max_length)
    ids = {key: encoder.encode(part.texts) for key, part in parts.items()}
    splits = {key: Split(ids[key], torch.tensor(part.labels)) for key, part in parts.items()}
    limit = options.outliers_per_set
    foreign = {outlier: texts[:limit] for outlier, texts in outliers.items()}
    encoded = {one: outlier_split(encoder.encode(texts)) for one, texts in foreign.items()}
    cut = {key: encoder.cut(part.texts, ids[key]) for key, part in parts.items()}
    cut |= {f"ood/{o.name}": encoder.cut(t, encoded[o].inputs) for o, t in foreign.items()}
    test = parts["test"]

    def load_shift(shift: Shift) -> Split:
        texts = misspell(test.texts, shift.corruption, shift.severity)
        return Split(encoder.encode(texts), splits["test"].labels)

    return Task(
        name=name,
        class_names=tuple(classes),
        train=splits["train"],
        validation=splits["val"],
        test=splits["test"],
        mean=(),
        std=(),
        shifts=tuple(Shift(kind, s) for kind in options.typos for s in options.severities),
        shift_origin="generated",
        outliers=tuple(encoded),
        load_shift=kept(load_shift, splits["test"].inputs.nbytes),
        load_outlier=encoded.__getitem__,
        pad=tokenizer.pad,
        notes=(
            *notes,
            *_absent_classes(parts, classes),
            *_repeated(parts),
            *_cut(cut, options.max_length),
        ),
    )


def held_out(whole: Samples, share: float, place: str) -> tuple[Samples, Samples]:
    """Training and validation samples: a stratified part of `whole`, always the same.

    Raises:
        UserError: too few samples of a class.
    """
    size = round(share * len(whole))
    try:
        first, second = stratified_part(torch.tensor(whole.labels), size, place)
    except UserError as error:
        raise UserError(f"{error}; or add val.tsv, or set `validation_share`") from None
    return whole.at(first.tolist()), whole.at(second.tolist())


@dataclass(frozen=True)
class _Encoder:
    """Token ids of one width."""

    tokenizer: Tokenizer
    length: int

    def encode(self, texts: Sequence[str]) -> Tensor:
        """int64 ``[N, length]``, padded at the end."""
        found = self.tokenizer.encode(texts, self.length)
        ids = found.new_full((len(texts), self.length), self.tokenizer.pad)
        ids[:, : found.shape[1]] = found
        return ids

    def cut(self, texts: Sequence[str], ids: Tensor) -> int:
        """How many of these texts, encoded as `ids`, are longer than fits in."""
        full = (ids[:, -1] != self.tokenizer.pad).nonzero().flatten().tolist()
        if not full:
            return 0
        longer = self.tokenizer.encode([texts[i] for i in full], self.length + 1)
        if longer.shape[1] <= self.length:
            return 0
        return int((longer[:, self.length] != self.tokenizer.pad).sum())


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


def _absent_classes(parts: Mapping[str, Samples], classes: Sequence[str]) -> list[str]:
    notes = []
    for key, part in parts.items():
        there = set(part.labels)
        missing = [name for label, name in enumerate(classes) if label not in there]
        if missing:
            notes.append(f"{key} has no texts of the classes {', '.join(missing)}.")
    return notes


def _repeated(parts: Mapping[str, Samples]) -> list[str]:
    """A sentence about test texts that the training split has too."""
    known = set(parts["train"].texts)
    count = sum(text in known for text in parts["test"].texts)
    if not count:
        return []
    return [f"{count} of {len(parts['test'])} of test are also in train, word for word."]


def _cut(counts: Mapping[str, int], length: int) -> list[str]:
    """A sentence about texts that are longer than fits in."""
    named = [f"{count} of {name}" for name, count in counts.items() if count]
    return [f"Cut to {length} tokens: {', '.join(named)}."] if named else []
