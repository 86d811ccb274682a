"""SST-2: sentences of film reviews, negative or positive (Socher et al., EMNLP 2013).

GLUE's division (Wang et al., ICLR 2019) is used: 67,349 phrases for training, 872 sentences for
test, as the labels of GLUE's own test part are not public. Validation is a part of the training
phrases. It is read from GLUE's folder ``SST-2/``, or else from a Hugging Face copy in ``sst2/``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, get_args

from bench.data.catalogue import Sst2Options, TextFar, TextNear
from bench.data.parts import SPLIT_SEED
from bench.data.sources import fetch_command
from bench.data.task import Outlier, Task
from bench.data.text import Samples, Tokenizer, held_out, text_task
from bench.data.text_sources import (
    column_of_texts,
    find_tsv,
    read_ag_news,
    read_labelled,
    read_texts,
    read_trec,
    saved_part,
)
from bench.errors import UserError

CLASSES = ("negative", "positive")
GLUE, COPY = "SST-2", "sst2"
"""Folders below the data folder: GLUE's, and that of a Hugging Face copy."""

NEAR, FAR = get_args(TextNear), get_args(TextFar)
"""The outlier sets, in the order in which they are evaluated."""

PUBLISHED: dict[str, tuple[str, Callable[[Path, str], list[str]]]] = {
    "ag_news": ("test.csv", read_ag_news),
    "trec": ("TREC_10.label", read_trec),
}
"""The test files of outlier sets in the form in which they are published, and their readers."""


def load(name: str, options: Sst2Options, data: Path, tokenizer: Tokenizer) -> Task:
    """The task `sst2`.

    Args:
        name: as suites call it.
        options: see `Sst2Options`.
        data: the data folder.
        tokenizer: the backbone's.

    Raises:
        UserError: the data are missing or damaged, or an outlier set that was asked for is.
    """
    place = f"task {name}"
    train, test = _read(data, place)
    train, validation = held_out(
        train.first(options.train_per_class), options.validation_share, place
    )
    parts = {"train": train, "val": validation, "test": test.first(options.test_per_class)}
    notes = [
        f"Validation is a stratified part of GLUE's training phrases ({len(validation)} of "
        f"{len(train) + len(validation)}, seed {SPLIT_SEED}); as they are parts of the same "
        "sentences, scores on it are too good.",
        "Test is GLUE's dev part, since the labels of its test part are not public.",
    ]
    outliers = {
        **_outliers("near", options.near, NEAR, data, place, notes),
        **_outliers("far", options.far, FAR, data, place, notes),
    }
    return text_task(name, options, tokenizer, CLASSES, parts, outliers, notes)


def _read(data: Path, place: str) -> tuple[Samples, Samples]:
    """Training and test samples from the first place where they are."""
    glue = data / GLUE
    if (glue / "train.tsv").is_file() and (glue / "dev.tsv").is_file():
        train, test = (_from_glue(glue / f"{part}.tsv", place) for part in ("train", "dev"))
        return train, test
    copy = data / COPY
    parts = [_from_copy(copy, part, place) for part in ("train", "validation")]
    if parts[0] is None or parts[1] is None:
        raise UserError(
            f"{place}: no {glue}/train.tsv and dev.tsv (GLUE), and no copy of Hugging Face's "
            f"data set in {copy}: get it with `{fetch_command('sst2', data)}`"
        )
    return parts[0], parts[1]


def _from_glue(path: Path, place: str) -> Samples:
    rows = read_labelled(path, place, header="sentence\tlabel")
    return _samples(rows.texts, rows.labels, path, place, first=2)


def _from_copy(folder: Path, part: str, place: str) -> Samples | None:
    columns = saved_part(folder, part, place)
    if columns is None:
        return None
    where = folder / part
    if "label" not in columns:
        raise UserError(f"{place}: {where}: no column label, only {', '.join(columns)}")
    labels = [str(label) for label in columns["label"]]
    return _samples(column_of_texts(columns, where, place), labels, where, place, first=1)


def _samples(
    texts: list[str], labels: Sequence[str], path: Path, place: str, first: int
) -> Samples:
    for line, label in enumerate(labels, first):
        if label not in ("0", "1"):
            raise UserError(
                f"{place}: {path}, line {line}: label {label!r}: must be 0 (negative) or 1 "
                "(positive)"
            )
    return Samples(texts, [int(label) for label in labels])


def _outliers(
    distance: Literal["near", "far"],
    wanted: Sequence[str] | None,
    known: Sequence[str],
    data: Path,
    place: str,
    notes: list[str],
) -> dict[Outlier, list[str]]:
    """The outlier sets of a distance that are wanted, or else those that are there."""
    found = {}
    for name in known if wanted is None else wanted:
        texts = _foreign(name, data, f"{place}: outliers {name}")
        if texts is not None:
            found[Outlier(name, distance)] = texts
            continue
        if wanted is not None:
            raise _absent(name, data, f"{place}: outliers {name}")
        notes.append(f"Out-of-distribution set {name} is left out: the data folder has no {name}/.")
    if distance == "near" and found:
        notes.append(
            "The near sets are reviews with the same two classes, of other things: finding them is "
            "finding a shift of domain."
        )
    return found


def _foreign(name: str, data: Path, place: str) -> list[str] | None:
    """The texts of an outlier set's test part, or None."""
    folder = data / name
    if name in PUBLISHED:
        file, read = PUBLISHED[name]
        if (folder / file).is_file():
            return read(folder / file, place)
    path = find_tsv(folder, "test", place)
    if path is not None:
        return read_texts(path, place)
    columns = saved_part(folder, "test", place)
    return None if columns is None else column_of_texts(columns, folder, place)


def _absent(name: str, data: Path, place: str) -> UserError:
    folder = data / name
    if name in PUBLISHED:
        return UserError(
            f"{place}: no {folder}/{PUBLISHED[name][0]}, test.tsv or Hugging Face copy: get it "
            f"with `{fetch_command(name, data)}`"
        )
    return UserError(
        f"{place}: no {folder}/test.tsv and no Hugging Face copy in {folder}: put one there"
    )
