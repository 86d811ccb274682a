"""Images that stay on disk until they are asked for: for sets that no memory holds.

An evaluated image is resized until its shorter side is `ImageFiles.resize` and cut to a square at
the centre; a trained one may be a random part of the original instead (`resized_crop`). Both are
torchvision's transforms on Pillow images.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from bench.data.augment import augment
from bench.data.corruptions import corrupt
from bench.data.task import Inputs
from bench.errors import UserError

RESIZED_CROP = "resized_crop"
"""The augmentation that needs the image before it is resized."""

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Of `resized_crop`: the part's share of the area and its width over its height, as in Szegedy et
al. (2015), "Going deeper with convolutions", section 6."""


@runtime_checkable
class Viewed(Protocol):
    """Inputs whose samples can be read for training, each by random numbers of its own."""

    def views(self, index: Tensor, draws: Sequence[int], names: Sequence[str]) -> Tensor:
        """Augmented samples.

        Args:
            index: int64 ``[n]``.
            draws: a seed for each; the view depends on it and on the sample alone.
            names: of augmentations, in their order.

        Returns:
            uint8 ``[n, C, H, W]``.
        """
        ...


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """RGB images in files, ``[N, 3, size, size]``.

    Grey, palette and CMYK images become RGB, transparency is dropped, and orientation tags are not
    applied, as in torchvision's `ImageFolder`.

    Attributes:
        root: the folder that all names start from.
        names: paths below it as bytes, NumPy ``S`` ``[N]``: unlike a list of a million strings, an
            array stays one piece of memory that all loader processes share.
        size: pixels a side.
        resize: the shorter side before the centre is cut out; at least `size`.
        place: what an error names.
    """

    root: Path
    names: NDArray[np.bytes_]
    size: int
    resize: int
    place: str

    @classmethod
    def of(cls, root: Path, paths: Iterable[Path], size: int, resize: int, place: str) -> Self:
        """The images at paths below `root`, in this order."""
        names = [os.fsencode(path.relative_to(root)) for path in paths]
        return cls(root, np.array(names, dtype=np.bytes_), size, resize, place)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(N, 3, size, size)``."""
        return len(self.names), 3, self.size, self.size

    @property
    def dtype(self) -> torch.dtype:
        """uint8."""
        return torch.uint8

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: Tensor | slice, /) -> Tensor:
        """Images as they are evaluated: uint8 ``[n, 3, size, size]``.

        Raises:
            UserError: names the file that can't be read.
        """
        rows = positions(index, len(self))
        result = torch.empty((len(rows), *self.shape[1:]), dtype=torch.uint8)
        for place, row in enumerate(rows.tolist()):
            result[place] = _tensor(self._central(self.open(row)))
        return result

    def views(self, index: Tensor, draws: Sequence[int], names: Sequence[str]) -> Tensor:
        """Images as they are trained on; see `Viewed`.

        With `resized_crop`, which must come first, a part of the original is resized to the whole
        shape; without it, the evaluated view is the start. What follows changes single images.

        Raises:
            UserError: names the file that can't be read.
        """
        result = torch.empty((len(index), *self.shape[1:]), dtype=torch.uint8)
        part = tuple(names[:1]) == (RESIZED_CROP,)
        crop = v2.RandomResizedCrop(self.size, scale=SCALE, ratio=RATIO)
        for place, (row, draw) in enumerate(zip(index.tolist(), draws, strict=True)):
            image = self.open(row)
            # The generator of this process goes on as if nothing had been drawn.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(draw)
                pixels = _tensor(crop(image) if part else self._central(image))
                result[place] = augment(pixels[None], names[1:] if part else names)[0]
        return result

    def path(self, row: int) -> Path:
        """The file of a sample."""
        return self.root / os.fsdecode(bytes(self.names[row]))

    def open(self, row: int) -> Image.Image:
        """A sample's image, whole and in RGB, of its own size."""
        path = self.path(row)
        try:
            with Image.open(path) as image:
                if image.mode.startswith(("I", "F")):
                    raise ValueError(f"{image.mode} has more than 8 bits a channel")
                return image.convert("RGB")
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"{self.place}: {path}: not a readable image: {reason}") from error

    def _central(self, image: Image.Image) -> Image.Image:
        if min(image.size) != self.resize:
            image = v2.functional.resize(image, [self.resize])
        cut: Image.Image = v2.functional.center_crop(image, [self.size])
        return cut


@dataclass(frozen=True, eq=False)
class Corrupted:
    """Inputs under a corruption of `bench.data.corruptions`, made when they are asked for.

    An image is corrupted as in `corrupt` of all inputs at once, whatever part is asked for.

    Attributes:
        source: the clean images.
        corruption: its name.
        severity: 1 to 5.
    """

    source: Inputs
    corruption: str
    severity: int

    @property
    def shape(self) -> Sequence[int]:
        """That of the clean images."""
        return self.source.shape

    @property
    def dtype(self) -> torch.dtype:
        """uint8."""
        return self.source.dtype

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Tensor | slice, /) -> Tensor:
        """Corrupted images, uint8 ``[n, C, H, W]``."""
        rows = positions(index, len(self)).tolist()
        images = self.source[index]
        first = rows[0] if rows else 0
        if rows == list(range(first, first + len(rows))):
            return corrupt(images, self.corruption, self.severity, start=first)
        parts = [
            corrupt(images[place : place + 1], self.corruption, self.severity, start=row)
            for place, row in enumerate(rows)
        ]
        return torch.cat(parts)


def positions(index: Tensor | slice, length: int) -> Tensor:
    """What an index means: int64 ``[n]``, in ``[0, length)``.

    Raises:
        IndexError: outside of that.
    """
    if isinstance(index, slice):
        return torch.arange(length)[index]
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) < length:
        raise IndexError(f"index {int(index.min())} to {int(index.max())} of {length} samples")
    return index


def _tensor(image: Image.Image) -> Tensor:
    pixels: Tensor = v2.functional.pil_to_tensor(image)
    return pixels
