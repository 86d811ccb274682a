"""Typing errors of five severities, made in texts: the shift of text tasks.

The kinds are three of the four that Damerau ("A technique for computer detection and correction of
spelling errors", CACM 1964) found behind four in five misspelt words, as Pruthi et al. ("Combating
adversarial misspellings with robust word recognition", ACL 2019) test classifiers with them:

- ``typo_swap``: two adjacent letters change places;
- ``typo_drop``: a letter is left out;
- ``typo_neighbour``: a letter gives way to a neighbour on a QWERTY keyboard.

As typists hardly ever miss the first letter of a word (Kukich, "Techniques for automatically
correcting words in text", ACM Computing Surveys 1992, section 2.1.2), it stays. Pruthi et al. spare
the last letter and words below four letters too, and make one or two errors a text, placed by an
adversary; here the errors fall at random, and there are so many at high severities that they need
the room. Only letters are hit, within a word: spaces, digits and punctuation stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.random import Generator, Philox

from bench.seeding import derive_seed

SEED = 0
"""Of the typing errors of every task: all runs see the same texts, whatever their seed."""

SHARES = (0.02, 0.05, 0.10, 0.15, 0.20)
"""Typing errors a letter of the text, at severity 1 to 5."""

_WORD = re.compile(r"[^\W\d_]+")
"""A run of letters of any alphabet."""

_ROWS = (("qwertyuiop", 0.0), ("asdfghjkl", 0.25), ("zxcvbnm", 0.75))
"""The letters of a keyboard, row by row, and how far each row is indented, in keys."""


def _keyboard() -> dict[str, str]:
    """Each key's neighbours: those beside it, and those that it overlaps in the next rows."""
    places = {
        key: (column + indent, float(row))
        for row, (keys, indent) in enumerate(_ROWS)
        for column, key in enumerate(keys)
    }

    def touch(one: str, other: str) -> bool:
        across, down = (abs(a - b) for a, b in zip(places[one], places[other], strict=True))
        return (down == 0 and across == 1) or (down == 1 and across < 1)

    lower = {key: "".join(other for other in places if touch(key, other)) for key in places}
    return lower | {key.upper(): others.upper() for key, others in lower.items()}


NEIGHBOURS = _keyboard()
"""The letters next to each letter of a QWERTY keyboard, in its own case."""


def _inner(text: str) -> list[int]:
    """Where letters stand that are not the first of their word."""
    return [place for word in _WORD.finditer(text) for place in range(word.start() + 1, word.end())]


def _swap(text: str, count: int, random: Generator) -> str:
    inner = _inner(text)
    pairs = [
        first
        for first, second in pairwise(inner)
        if second == first + 1 and text[first] != text[second]
    ]
    letters = list(text)
    moved: set[int] = set()
    for first in _shuffled(pairs, random):
        if len(moved) == 2 * count:
            break
        # A letter moves once, so that no swap undoes another.
        if not moved & {first, first + 1}:
            moved |= {first, first + 1}
            letters[first : first + 2] = text[first + 1], text[first]
    return "".join(letters)


def _drop(text: str, count: int, random: Generator) -> str:
    gone = set(_shuffled(_inner(text), random)[:count])
    return "".join(letter for place, letter in enumerate(text) if place not in gone)


def _neighbour(text: str, count: int, random: Generator) -> str:
    keys = [place for place in _inner(text) if text[place] in NEIGHBOURS]
    letters = list(text)
    for place in _shuffled(keys, random)[:count]:
        others = NEIGHBOURS[text[place]]
        letters[place] = others[int(random.random() * len(others))]
    return "".join(letters)


def _shuffled(places: list[int], random: Generator) -> list[int]:
    return [places[i] for i in np.argsort(random.random(len(places)), kind="stable")]


TYPOS: dict[str, Callable[[str, int, Generator], str]] = {
    "typo_swap": _swap,
    "typo_drop": _drop,
    "typo_neighbour": _neighbour,
}
"""The kinds by name; each makes so many errors in a text, or as many as have room."""


def misspell(
    texts: Sequence[str], kind: str, severity: int, seed: int = SEED, start: int = 0
) -> list[str]:
    """Make typing errors in texts, in each by random numbers of its own.

    The result for a text depends on the text, its index in the set, the kind, the severity and the
    seed: not on the other texts, nor on how the set is divided, nor on any global state.

    A text of n letters gets ``SHARES[severity - 1] * n`` errors, rounded up or down at random, so
    that the share is right on average also for short texts; fewer where words have no room left.

    Args:
        texts: any; one without letters stays as it is.
        kind: a key of `TYPOS`.
        severity: 1 (mild) to 5.
        seed: of the random numbers.
        start: index of ``texts[0]`` in the set, for a set that comes in parts.

    Raises:
        ValueError: unknown kind or severity.
    """
    if kind not in TYPOS:
        raise ValueError(f"kind of typing error {kind!r}: known are {', '.join(TYPOS)}")
    if severity not in range(1, 6):
        raise ValueError(f"severity must be 1 to 5, not {severity}")
    make, share = TYPOS[kind], SHARES[severity - 1]
    spoilt = []
    for index, text in enumerate(texts, start):
        random = Generator(Philox(key=derive_seed(seed, kind, severity, index)))
        letters = sum(len(word) for word in _WORD.findall(text))
        spoilt.append(make(text, int(share * letters + random.random()), random))
    return spoilt
