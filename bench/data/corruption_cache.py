"""Generated corruptions on disk, so that the runs of a suite make them once.

The format is CIFAR-C's: a file ``<corruption>.npy`` holds the whole set at severity 1, then at
severity 2, and so on, as uint8 ``[5 N, H, W, C]``; ``labels.npy`` holds the labels five times. A
file ``<corruption>.json`` beside it has its SHA-256 sum and is written last. The folder's name
tells the images, the labels and the code that they were corrupted with: other ones lie in another
folder, and all of it may be deleted at any time.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import PIL
import scipy
import torch
from filelock import FileLock
from torch import Tensor

from bench.data import corruptions as code
from bench.data import pixels, pixels_warp, pixels_weather
from bench.data.corruptions import SEED, corrupt
from bench.data.task import Shift, Split
from bench.errors import UserError
from bench.files import Damaged, file_digest, stored_value, write_bytes, write_json

if TYPE_CHECKING:
    Rows = np.memmap[tuple[int, ...], np.dtype[np.uint8]]

SEVERITIES = 5

PART = 1 << 26
"""Bytes of images that are corrupted at a time on their way to disk."""

LARGEST_SHARE = 0.5
"""Of the free space of a disk that a task's corrupted images may take."""


def cached_corruption(folder: Path, images: Tensor, labels: Tensor, corruption: str) -> Rows:
    """A set under a corruption at all severities, from disk; made first where it is not there.

    A file that is truncated or altered is made again. Of several processes that ask at once, one
    makes it and the others wait. A file appears whole or not at all.

    Args:
        folder: where all caches lie; this set gets a folder of its own in it.
        images: uint8 ``[N, C, H, W]`` on the CPU, as `corrupt` wants them, N at least 1.
        labels: int64 ``[N]``, at least 0.
        corruption: a key of `bench.data.corruptions.CORRUPTIONS`.

    Returns:
        read-only uint8 ``[5 N, H, W, C]``, on disk until its rows are read.

    Raises:
        UserError: it can't be written, as the disk is full, say.
        ValueError: see `corrupt`; or there are no images.
    """
    if not len(images):
        raise ValueError("no images")
    corrupt(images[:0], corruption, 1)  # Refuses what can't be made before anything is written.
    return _cached(folder / cache_name(images, labels), images, labels, corruption)


def cache_name(images: Tensor, labels: Tensor) -> str:
    """The name of the folder for a set: its size, and a digest of all that the files depend on."""
    count, channels, height, width = images.shape
    digest = hashlib.sha256(_code().encode())
    digest.update(f"{SEED}/{list(images.shape)}".encode())
    digest.update(images.contiguous().numpy().data)
    digest.update(labels.contiguous().numpy().data)
    return f"{count}x{height}x{width}x{channels}-{digest.hexdigest()[:16]}"


class GeneratedShifts:
    """The generated corruptions of a test split, kept on disk where that is possible.

    Args:
        data: the data folder; the files lie in ``.cache/corruptions`` below it.
        test: the split.
        corruptions: all that will be asked for.

    Attributes:
        notes: why nothing is kept on disk, if so: the folder can't be written, or the files would
            take more than `LARGEST_SHARE` of the free space. The images are the same either way.
    """

    def __init__(self, data: Path, test: Split, corruptions: Iterable[str]) -> None:
        self._test = test
        self._open: dict[str, Rows] = {}
        self._folder = data / ".cache" / "corruptions"
        names = tuple(corruptions)
        if names:
            self._folder /= cache_name(test.inputs, test.labels)
        missing = [name for name in names if not _is_whole(self._folder / f"{name}.npy")]
        reason = _hindrance(data, self._folder, missing, test.inputs.nbytes)
        self._on_disk = reason is None
        self.notes = (
            () if reason is None else (f"Corrupted images are made anew for every run: {reason}.",)
        )

    def load(self, shift: Shift) -> Split:
        """The split under a corruption."""
        if not self._on_disk:
            images = corrupt(self._test.inputs, shift.corruption, shift.severity)
            return Split(images, self._test.labels)
        count = len(self._test)
        rows = self._rows(shift.corruption)[(shift.severity - 1) * count : shift.severity * count]
        images = torch.from_numpy(np.array(rows)).permute(0, 3, 1, 2).contiguous()
        return Split(images, self._test.labels)

    def _rows(self, corruption: str) -> Rows:
        if corruption not in self._open:
            inputs, labels = self._test.inputs, self._test.labels
            self._open[corruption] = _cached(self._folder, inputs, labels, corruption)
        return self._open[corruption]


def _hindrance(data: Path, folder: Path, missing: list[str], size: int) -> str | None:
    """Why corruptions that are missing can't be put on disk, if so."""
    if not missing:
        return None
    if not data.is_dir():
        return f"there is no folder {data}"
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        return f"{parent} can't be written"
    needed, free = len(missing) * SEVERITIES * size, shutil.disk_usage(parent).free
    if needed > LARGEST_SHARE * free:
        return (
            f"on disk they would take {needed / 1e9:.3g} GB, and {parent} has {free / 1e9:.3g} GB "
            "free"
        )
    return None


def _cached(folder: Path, images: Tensor, labels: Tensor, corruption: str) -> Rows:
    """See `cached_corruption`; in the set's own folder."""
    path = folder / f"{corruption}.npy"
    shape = _shape(images)
    rows = _valid(path, shape)
    if rows is not None:
        return rows
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{corruption}.lock"):
            rows = _valid(path, shape)
            if rows is None:
                _make(path, images, labels, corruption)
                rows = _opened(path)
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        right = (
            f"make room for {np.prod(shape) / 1e6:.0f} MB"
            if full
            else f"make {folder} a folder that can be written, or remove it"
        )
        raise UserError(f"{path}: can't be written: {reason}: {right}") from error
    return rows


def _shape(images: Tensor) -> tuple[int, ...]:
    count, channels, height, width = images.shape
    return SEVERITIES * count, height, width, channels


def _valid(path: Path, shape: tuple[int, ...]) -> Rows | None:
    """The rows of a file that is what was written; None if it is missing, damaged or unreadable."""
    if not _is_whole(path):
        return None
    try:
        if stored_value(path.with_suffix(".json"), "file") != file_digest(path):
            return None
        rows = _opened(path)
    except (OSError, ValueError, Damaged):
        return None
    return rows if rows.shape == shape and rows.dtype == np.dtype(np.uint8) else None


def _is_whole(path: Path) -> bool:
    """Whether a file has its record and the size that stands there, which shows without reading."""
    try:
        return bool(stored_value(path.with_suffix(".json"), "size") == path.stat().st_size)
    except (OSError, Damaged):
        return False


def _opened(path: Path) -> Rows:
    rows: Rows = np.load(path, mmap_mode="r", allow_pickle=False)
    return rows


def _make(path: Path, images: Tensor, labels: Tensor, corruption: str) -> None:
    """Write the files of a corruption, the record last. The caller holds the lock."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        leftover.unlink()
    path.with_suffix(".json").unlink(missing_ok=True)
    _write_labels(path.with_name("labels.npy"), labels)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        # Plain writes: a full disk makes them fail, where a memory map would kill the process.
        with temporary.open("wb") as file:
            digest = _write_rows(file, images, corruption)
            file.flush()
            os.fsync(file.fileno())
        size = temporary.stat().st_size
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    write_json(path.with_suffix(".json"), {"file": digest, "size": size, "code": _code()})


def _write_rows(file: BinaryIO, images: Tensor, corruption: str) -> str:
    """Write an array file of all severities; its SHA-256 sum."""
    digest = hashlib.sha256()

    def write(content: Any) -> None:
        digest.update(content)
        file.write(content)

    header = io.BytesIO()
    layout = {"descr": "|u1", "fortran_order": False, "shape": _shape(images)}
    np.lib.format.write_array_header_1_0(header, layout)
    write(header.getvalue())
    step = max(1, PART // images[:1].nbytes)
    for severity in range(1, SEVERITIES + 1):
        for start in range(0, len(images), step):
            part = corrupt(images[start : start + step], corruption, severity, start=start)
            write(part.permute(0, 2, 3, 1).contiguous().numpy())
    return digest.hexdigest()


def _write_labels(path: Path, labels: Tensor) -> None:
    values = np.tile(labels.numpy(), SEVERITIES)
    # Bytes, as in CIFAR-C, where they hold the labels.
    smallest = values.astype(np.min_scalar_type(int(values.max())))
    content = io.BytesIO()
    np.save(content, smallest, allow_pickle=False)
    write_bytes(path, content.getvalue())


@lru_cache(maxsize=1)
def _code() -> str:
    """A digest of everything beside the images that the corrupted images depend on."""
    digest = hashlib.sha256()
    for module in (code, pixels, pixels_warp, pixels_weather):
        digest.update(Path(str(module.__file__)).read_bytes())
    digest.update(f"{np.__version__} {scipy.__version__} {PIL.__version__}".encode())
    return digest.hexdigest()
