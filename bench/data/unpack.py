"""Unpacking archives: nothing leaves its folder, and nothing half lies in place."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath


class UnpackError(Exception):
    """An archive is damaged, unsafe, or lacks what it should hold; the message is one line."""


def unpack(archive: Path, data: Path, into: str, gives: tuple[str, ...]) -> None:
    """Unpack an archive into a hidden folder and move what is wanted to its place.

    Files that lie in place already are left as they are.

    Args:
        archive: a ``.zip``, or anything that tarfile reads.
        data: the data folder.
        into: the folder below it that the archive's paths are relative to.
        gives: what is taken, below the data folder; `into` itself for everything.

    Raises:
        UnpackError: see there; nothing has been moved then.
        OSError: such as a full disk; nothing has been moved then.
    """
    temporary = data / f".{archive.name}.unpacking"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        _extract(archive, temporary)
        moves = [(temporary / PurePosixPath(path).relative_to(into), data / path) for path in gives]
        for source, target in moves:
            if not source.exists():
                raise UnpackError(f"{archive}: holds no {target.relative_to(data / into)}")
        for source, target in moves:
            _move(source, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _extract(archive: Path, folder: Path) -> None:
    try:
        if archive.suffix == ".zip":
            _extract_zip(archive, folder)
        else:
            _extract_tar(archive, folder)
    except tarfile.FilterError as error:
        raise UnpackError(f"{archive}: unsafe, not unpacked: {error}") from None
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        line = " ".join(str(error).split())
        raise UnpackError(f"{archive}: not a readable archive: {line}") from None


def _extract_tar(archive: Path, folder: Path) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise UnpackError(f"{archive}: unpacking it safely takes Python 3.11.4 or newer")
    with tarfile.open(archive) as tar:
        while (member := tar.next()) is not None:
            # The filter takes the slash off absolute names; a published archive has no such names.
            if member.name.startswith(("/", "\\")):
                raise UnpackError(
                    f"{archive}: unsafe, not unpacked: {member.name!r} would leave its folder"
                )
            tar.extract(member, folder, filter="data")
            # It would keep a record of each of a million members.
            tar.members = []  # type: ignore[attr-defined]


def _extract_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            name = member.filename.replace("\\", "/")
            outside = name.startswith("/") or ".." in name.split("/") or ":" in name.split("/")[0]
            if outside:
                raise UnpackError(
                    f"{archive}: unsafe, not unpacked: {member.filename!r} would leave its folder"
                )
        packed.extractall(folder)


def _move(source: Path, target: Path) -> None:
    """Rename; where a folder is there already, add what it lacks."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
    elif source.is_dir() and target.is_dir():
        for child in source.iterdir():
            _move(child, target / child.name)
