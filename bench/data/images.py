"""Image files: which there are, how large they are, and decoding them into one array."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from bench.errors import UserError

Result = TypeVar("Result")


@cache
def _suffixes() -> frozenset[str]:
    Image.init()
    return frozenset(s for s, kind in Image.registered_extensions().items() if kind in Image.OPEN)


def is_image(path: Path) -> bool:
    """Whether a file's suffix is one that Pillow reads; a pipe or a device is no image."""
    if path.suffix.lower() not in _suffixes():
        return False
    # A link to nowhere stays: reading it will say so.
    return path.is_file() or not path.exists()


def files_below(folder: Path, place: str) -> list[Path]:
    """All files of a folder at any depth, sorted by path, but for names that begin with a dot.

    Links are followed.

    Args:
        folder: where to look.
        place: what an error names.

    Raises:
        UserError: a folder can't be read, or links back to one that it lies in.
    """
    return sorted(_files(folder, (), place))


def _files(folder: Path, above: tuple[Path, ...], place: str) -> Iterator[Path]:
    real = folder.resolve()
    if real in above or folder.parent.resolve().is_relative_to(real):
        raise UserError(f"{place}: {folder} links to a folder that it lies in: remove the link")
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise UserError(f"{place}: {folder}: can't be read: {error.strerror}") from None
    for entry in entries:
        if entry.is_dir():
            yield from _files(entry, (*above, real), place)
        else:
            yield entry


def sizes(paths: Sequence[Path], place: str) -> list[tuple[int, int]]:
    """Height and width of each image, from its header.

    Raises:
        UserError: a file is no readable image.
    """

    def size(path: Path) -> tuple[int, int]:
        with Image.open(path) as image:
            return image.height, image.width

    return _in_threads(size, paths, place)


def decode(paths: Sequence[Path], channels: int, shape: tuple[int, int], place: str) -> Tensor:
    """Read images into uint8 ``[N, C, H, W]``, in the order of `paths`.

    An image of another size is resized (bilinear, so that it covers the shape) and cropped at the
    centre. Transparency is dropped, palettes are resolved, orientation tags are not applied.

    Args:
        paths: image files.
        channels: 3 (RGB) or 1 (grey).
        shape: height and width of the result.
        place: what an error names.

    Raises:
        UserError: a file can't be decoded, or has more than 8 bits a channel.
    """
    result = np.empty((len(paths), channels, *shape), dtype=np.uint8)

    def read(job: tuple[int, Path]) -> None:
        index, path = job
        pixels = _read(path, channels, shape)
        result[index] = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)

    _in_threads(read, list(enumerate(paths)), place)
    return torch.from_numpy(result)


def check_memory(count: int, channels: int, shape: tuple[int, int], place: str) -> None:
    """Refuse what would not fit before an hour has been spent on decoding it.

    Raises:
        UserError: the decoded images need more memory than is available.
    """
    need, available = count * channels * shape[0] * shape[1], available_bytes()
    if available is not None and need > available:
        raise UserError(
            f"{place}: {count} images of {channels}×{shape[0]}×{shape[1]} need {need / 1e9:.1f} GB "
            f"of memory, {available / 1e9:.1f} GB are available: set a smaller `size` or "
            "`train_per_class`"
        )


def available_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system doesn't say."""
    try:
        # The count of free pages leaves out the page cache, which gives way when asked.
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
        )
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _read(path: Path, channels: int, shape: tuple[int, int]) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        if image.mode.startswith(("I", "F")):
            raise ValueError(f"{image.mode} has more than 8 bits a channel; save it with 8")
        converted = image.convert("RGB" if channels == 3 else "L")
    return np.asarray(_fitted(converted, shape))


def _fitted(image: Image.Image, shape: tuple[int, int]) -> Image.Image:
    """Cover the shape with the image and cut the centre out."""
    height, width = shape
    if (image.height, image.width) == shape:
        return image
    scale = max(height / image.height, width / image.width)
    size = (max(width, round(image.width * scale)), max(height, round(image.height * scale)))
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


Job = TypeVar("Job", Path, tuple[int, Path])


def _in_threads(work: Callable[[Job], Result], jobs: Iterable[Job], place: str) -> list[Result]:
    """`work` for every job; the first failure, in order, becomes a UserError naming the file."""

    def guarded(job: Job) -> Result:
        try:
            return work(job)
        except Exception as error:
            path = job if isinstance(job, Path) else job[1]
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"{place}: {path}: not a readable image: {reason}") from error

    with ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
        return list(pool.map(guarded, jobs))
