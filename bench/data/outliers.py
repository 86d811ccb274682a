"""The out-of-distribution sets of the CIFAR tasks, at 32×32 pixels.

Each is read in the form in which it is published, from where ``sigma-bench data`` puts it. CIFAR
and SVHN have 32×32 pixels as they are. The photographs of TinyImageNet (64×64), DTD and Places365
(256×256) are resized (bilinear, short side to 32) and cropped at the centre; MNIST's digits
(28×28, grey) are resized (bilinear) and get three equal channels.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision import datasets
from torchvision.datasets.utils import check_integrity

from bench.data.images import decode
from bench.data.sources import absent, fetch_command
from bench.data.task import Outlier
from bench.errors import UserError

SIDE = 32

Load = Callable[[], Tensor]
"""Gives images, uint8 ``[N, 3, 32, 32]``."""

_MNIST_IMAGES = "t10k-images-idx3-ubyte.gz"
_IDX_IMAGES = 2051
"""The first four bytes of an IDX file of images: unsigned bytes in three dimensions."""


@dataclass(frozen=True)
class Source:
    """An out-of-distribution set.

    Attributes:
        outlier: its name and distance.
        place: the file or folder by which it is known to be there, below the data folder.
        data_set: what ``sigma-bench data`` calls it.
        open: reads or checks it, given the data folder and the place that an error names, and
            returns what gives its images.
        searched: whether images that the task has too are looked for: they can be where both have
            32×32 pixels as they are.
    """

    outlier: Outlier
    place: str
    data_set: str
    open: Callable[[Path, str], Load]
    searched: bool = False


def find_outliers(
    sources: Iterable[Source],
    near: Sequence[str] | None,
    far: Sequence[str] | None,
    own: Sequence[Tensor],
    data: Path,
    place: str,
) -> tuple[dict[Outlier, Load], tuple[str, ...]]:
    """The out-of-distribution sets that are wanted.

    Args:
        sources: all that there could be.
        near: names of the near ones that must be there; None for those that are there.
        far: the same of the far ones.
        own: the task's images, uint8 ``[N, 3, 32, 32]`` each. An outlier that is the same pixel by
            pixel is no outlier and is left out.
        data: the data folder.
        place: who asks, for errors.

    Returns:
        what gives the images of each, and a sentence for each set that is not there and for images
        that were left out.

    Raises:
        UserError: a set that was asked for is not there, or one that is there is damaged.
    """
    found: dict[Outlier, Load] = {}
    notes: list[str] = []
    seen: set[bytes] = set()
    for source in sources:
        name = source.outlier.name
        wanted = near if source.outlier.distance == "near" else far
        if wanted is not None and name not in wanted:
            continue
        path = data / source.place
        if not path.exists():
            if wanted is not None:
                raise absent(f"{place}: outliers {name}", path, source.data_set, data)
            notes.append(
                f"Out-of-distribution set {name} is left out: the data folder has no "
                f"{source.place}."
            )
            continue
        load = source.open(data, f"{place}: outliers {name}")
        if source.searched:
            seen = seen or {digest for images in own for digest in _digests(images)}
            load, note = _without_seen(load, seen, name)
            notes += note
        found[source.outlier] = load
    return found, tuple(notes)


def _without_seen(load: Load, seen: set[bytes], name: str) -> tuple[Load, list[str]]:
    images = load()
    new = torch.tensor([digest not in seen for digest in _digests(images)], dtype=torch.bool)
    if bool(new.all()):
        return load, []
    kept, count = images[new], int((~new).sum())
    images_are = "image is" if count == 1 else "images are"
    return (lambda: kept), [
        f"{count} {images_are} left out of {name}: this task has the same, pixel by pixel."
    ]


def _digests(images: Tensor) -> list[bytes]:
    """What tells images apart, 16 bytes each."""
    rows = np.ascontiguousarray(images.numpy().reshape(len(images), -1))
    return [hashlib.blake2b(row, digest_size=16).digest() for row in rows]


def open_svhn(data: Path, place: str) -> Load:
    """The test part of SVHN (Netzer et al., 2011), 26,032 images."""
    file = data / datasets.SVHN.split_list["test"][1]
    try:
        found = datasets.SVHN(data, split="test", download=False)
    except RuntimeError:
        raise _wrong_sum(place, file, "svhn", data) from None
    except (ValueError, OSError, NotImplementedError) as error:
        line = " ".join(str(error).split())
        raise UserError(f"{place}: {file}: not a readable .mat file: {line}") from None
    images = torch.from_numpy(np.ascontiguousarray(found.data))
    return lambda: images


def open_dtd(data: Path, place: str) -> Load:
    """The test part of the first division of DTD (Cimpoi et al., 2014), 1,880 images."""
    try:
        # The loader gives paths, so that the images are decoded together and in threads.
        paths = [path for path, _ in datasets.DTD(data, split="test", loader=Path)]
    except OSError as error:
        raise UserError(f"{place}: {data / 'dtd' / 'dtd'}: can't be read: {error}") from None
    return _photographs(paths, "dtd", data, place)


def open_mnist(data: Path, place: str) -> Load:
    """The test part of MNIST (LeCun et al., 1998), 10,000 images."""
    path = data / "MNIST" / "raw" / _MNIST_IMAGES
    if not check_integrity(path, dict(datasets.MNIST.resources)[_MNIST_IMAGES]):
        raise _wrong_sum(place, path, "mnist", data)

    def load() -> Tensor:
        grey = [
            np.asarray(Image.fromarray(one).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
            for one in _read_idx(path, place)
        ]
        return torch.from_numpy(np.stack(grey))[:, None].expand(-1, 3, -1, -1).contiguous()

    return load


def open_tiny_imagenet(data: Path, place: str) -> Load:
    """The validation part of TinyImageNet (Le and Yang, 2015), in the order of its list.

    All 10,000 images, also those of classes that CIFAR has under another name.
    """
    folder = data / "tiny-imagenet-200" / "val"
    names = _lines(folder / "val_annotations.txt", place, "tiny-imagenet", data)
    paths = [folder / "images" / line.split("\t")[0] for line in names]
    return _photographs(paths, "tiny-imagenet", data, place)


def open_places365(data: Path, place: str) -> Load:
    """The validation part of Places365 (Zhou et al., 2017), 36,500 images of 256×256 pixels."""
    folder = data / "places365"
    try:
        found = datasets.Places365(folder, split="val", small=True, download=False)
    except RuntimeError as error:
        line = str(error).partition(". You can")[0]
        raise UserError(
            f"{place}: {line}: get it with `{fetch_command('places365', data)}`"
        ) from None
    return _photographs([Path(path) for path, _ in found.imgs], "places365", data, place)


def _photographs(paths: Sequence[Path], name: str, data: Path, place: str) -> Load:
    """Images that are decoded when they are asked for, once it is sure that all are there."""
    for path in paths:
        if not path.is_file():
            raise absent(place, path, name, data)
    return lambda: decode(paths, 3, (SIDE, SIDE), place)


def _lines(path: Path, place: str, name: str, data: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise absent(place, path, name, data) from None
    except ValueError:
        raise UserError(f"{place}: {path}: is no text in UTF-8: unpack it again") from None
    if not lines:
        raise UserError(f"{place}: {path}: is empty: unpack it again")
    return lines


def _read_idx(path: Path, place: str) -> NDArray[np.uint8]:
    """The images of a gzipped IDX file, uint8 ``[N, H, W]``."""
    try:
        content = gzip.decompress(path.read_bytes())
        kind, *shape = (int(value) for value in np.frombuffer(content, ">u4", count=4))
        images = np.frombuffer(content, np.uint8, offset=16)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"{place}: {path}: not a readable IDX file: {error}") from None
    if kind != _IDX_IMAGES or images.size != np.prod(shape):
        raise UserError(f"{place}: {path}: not an IDX file of images: fetch it again")
    return images.reshape(shape)


def _wrong_sum(place: str, path: Path, name: str, data: Path) -> UserError:
    return UserError(
        f"{place}: {path}: missing, or its MD5 sum is wrong: remove it and get it with "
        f"`{fetch_command(name, data)}`"
    )
