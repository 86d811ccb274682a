"""What all tasks of texts share: tokens, typing errors, and notes about what was cut.

A model reads token ids, and its own tokenizer makes them. All splits of a task are padded to one
length, `max_length`, also where no text is so long: typing errors make more tokens of a text. The
padding costs nothing, since `Task.normalise` cuts each batch to its longest text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bench.data.catalogue import TextOptions
from bench.data.parts import kept, outlier_split, stratified_part
from bench.data.task import Outlier, Shift, Split, Task
from bench.data.typos import misspell
from bench.errors import UserError


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
        raise UserError(f"{error}; or set another `validation_share`") from None
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
