"""The data sets that tasks read: where they lie, where they come from, and on which terms.

Nothing here reads or writes; `bench.data.fetch` fetches, and the loaders know the contents.
Addresses, sizes and checksums are those that torchvision, torch-uncertainty, torchtext, TensorFlow
Datasets, Hugging Face `datasets` or `detectors` (iNaturalist) state in their sources.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.errors import UserError, unknown

ALIASES = {"textures": "dtd"}
"""Other names of data sets."""

IMAGENET_TERMS = "non-commercial research and education, ImageNet's terms of access"
"""Of ImageNet and of what is cut out of it."""


@dataclass(frozen=True)
class Part:
    """One file of a data set, to be fetched.

    Attributes:
        url: where it is published.
        file: where it is put, below the data folder.
        size: bytes; None where nobody states them.
        md5, sha256: its published checksums.
        into: for an archive, the folder into which it is unpacked, below the data folder.
        gives: for an archive, what is taken out of it, below the data folder; `into` itself for
            everything. Empty for a file that stays as it is.
        proof: the paths below the data folder by which its contents are known to be whole; by
            default those of `gives`, or the file itself.
    """

    url: str
    file: str
    size: int | None
    md5: str | None = None
    sha256: str | None = None
    into: str = ""
    gives: tuple[str, ...] = ()
    proof: tuple[str, ...] = ()

    @property
    def checksum(self) -> str:
        """The published checksum, such as ``md5 c58f…``, or that there is none."""
        if self.sha256 is not None:
            return f"sha256 {self.sha256}"
        return "no published checksum" if self.md5 is None else f"md5 {self.md5}"

    @property
    def leaves(self) -> tuple[str, ...]:
        """What must be there afterwards, below the data folder."""
        return self.proof or self.gives or (self.file,)

    def missing(self, data: Path) -> tuple[str, ...]:
        """What of it is not there, below the data folder."""
        return tuple(path for path in self.leaves if not (data / path).exists())


@dataclass(frozen=True)
class DataSet:
    """A data set and how to get it.

    Attributes:
        name: as ``sigma-bench data`` calls it.
        title: one line.
        place: the folder or file below the data folder where it lies.
        licence: the terms as far as they are known.
        cite: whom to cite.
        home: the page that describes it.
        parts: the files to fetch; empty where that takes an account.
        steps: how to get it by hand, ``{data}`` standing for the data folder; empty where
            ``--fetch`` does it.
        by_hand: for those, the paths that must be there.
        by_hand_size: for those, bytes to fetch.
    """

    name: str
    title: str
    place: str
    licence: str
    cite: str
    home: str
    parts: tuple[Part, ...] = ()
    steps: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    by_hand_size: int | None = None

    @property
    def leaves(self) -> tuple[str, ...]:
        """What must be there, below the data folder."""
        return self.by_hand + tuple(path for part in self.parts for path in part.leaves)

    @property
    def size(self) -> int | None:
        """Bytes to fetch in all; None where a part does not say."""
        sizes = [part.size for part in self.parts] if self.parts else [self.by_hand_size]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def missing(self, data: Path) -> tuple[str, ...]:
        """What of it is not there, below the data folder."""
        return tuple(path for path in self.leaves if not (data / path).exists())


@cache
def data_sets() -> dict[str, DataSet]:
    """All data sets by name."""
    from bench.data.sources_cifar import CIFAR
    from bench.data.sources_imagenet import IMAGENET
    from bench.data.sources_text import TEXTS

    return {one.name: one for one in (*CIFAR, *IMAGENET, *TEXTS)}


def data_set(name: str) -> DataSet:
    """A data set by its name or by its other name.

    Raises:
        UserError: there is none of that name.
    """
    known = data_sets()
    found = known.get(ALIASES.get(name, name))
    if found is None:
        raise unknown("data set", name, [*known, *ALIASES])
    return found


def fetch_command(name: str, data: Path) -> str:
    """The command that fetches a data set, or says how to get it."""
    fetch = " --fetch" if data_set(name).parts else ""
    return f"sigma-bench data {name} --data {shlex.quote(str(data))}{fetch}"


def absent(place: str, path: Path, name: str, data: Path) -> UserError:
    """The error for a data set that is not there.

    Args:
        place: who asks for it.
        path: the file or folder that was expected.
        name: the data set.
        data: the data folder.
    """
    kind = "file" if path.suffix else "folder"
    return UserError(f"{place}: no {kind} {path}: get it with `{fetch_command(name, data)}`")
