"""Fetching data sets: whole or not at all, resumed where they were cut, checked by their sums.

A file grows under the name ``….part`` and gets its own name once it is complete and its checksum is
right. An archive is unpacked beside its place and moved there when all of it is out; one that was
put there by hand is checked and unpacked without any network.
"""

from __future__ import annotations

import hashlib
import http.client
import importlib.metadata
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bench.data.sources import Part
from bench.data.unpack import UnpackError, unpack

CHUNK = 1 << 20
"""Bytes that are read at once, at most."""
TIMEOUT = 60.0
"""Seconds without an answer after which a connection counts as cut."""
TRIES = 5
"""How often in a row a connection may be cut without a new byte."""
PAUSE = 1.0
"""Seconds before the first new try; twice as many before each further one."""
PASSING = (408, 425, 429, 500, 502, 503, 504)
"""HTTP states that may be gone a moment later."""

Report = Callable[[int, int | None], None]
"""Told how many bytes are there, and of how many if that is known."""


class FetchError(Exception):
    """A file could not be fetched; the message is one line. Nothing half lies in place."""


class _Cut(Exception):
    """A connection ended early; the message says how."""


def fetch(part: Part, data: Path, report: Report) -> str:
    """Fetch one file of a data set, check it, and unpack it if it is an archive.

    Its SHA-256 is written beside it, into ``FILE.sha256``. An archive that was fetched here is
    removed once it is unpacked.

    Args:
        part: what.
        data: the data folder; made if it is not there.
        report: told how far the download is.

    Returns:
        the SHA-256 sum of the file.

    Raises:
        FetchError: no network, no such file, a wrong checksum, no space, or an archive that would
            leave its folder or lacks what it should hold. What has been downloaded stays as
            ``….part`` and is gone on with, except after a wrong checksum.
    """
    target = data / part.file
    try:
        data.mkdir(parents=True, exist_ok=True)
        with _alone(data):
            fetched = not target.is_file()
            digest = _download(part, target, report) if fetched else _check(part, target, "remove")
            _remember(part, target, digest)
            if part.gives:
                unpack(target, data, part.into, part.gives)
                if fetched:
                    target.unlink()
    except UnpackError as error:
        raise FetchError(str(error)) from None
    except OSError as error:
        raise FetchError(f"{error.filename or target}: {error.strerror or error}") from None
    return digest


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """One process at a time in a data folder: two would write into the same ``….part``."""
    path = data / ".fetch.lock"
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise FetchError(f"{data}: another process is fetching into it: wait for it") from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def _download(part: Part, target: Path, report: Report) -> str:
    """Get the file complete and right, under its own name."""
    partial = target.with_name(target.name + ".part")
    partial.parent.mkdir(parents=True, exist_ok=True)
    best, idle = _bytes_of(partial), 0
    while True:
        try:
            _receive(part, partial, report)
            break
        except _Cut as cut:
            there = _bytes_of(partial)
            best, idle = max(best, there), 0 if there > best else idle + 1
            if idle >= TRIES:
                raise FetchError(
                    f"{part.url}: {cut}: {there} bytes are there: fetch again to go on"
                ) from None
            time.sleep(PAUSE * 2**idle)
    digest = _check(part, partial, "removed")
    partial.replace(target)
    return digest


def _receive(part: Part, partial: Path, report: Report) -> None:
    """Append what is missing, or write the file from its start.

    Raises:
        _Cut: before all of it was there; what came is kept.
        FetchError: trying again would not help.
    """
    # Only a checksum shows that both halves are of the same file.
    offset = _bytes_of(partial) if part.md5 or part.sha256 else 0
    if part.size is not None and offset == part.size:
        return
    if part.size is not None and offset > part.size:
        offset = 0
    try:
        response = _open(part.url, offset)
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{offset}":
            return
        if error.code == 416:
            partial.unlink(missing_ok=True)
        if error.code in (*PASSING, 416):
            raise _Cut(f"HTTP {error.code} {error.reason}") from None
        raise FetchError(f"{part.url}: HTTP {error.code} {error.reason}") from None
    with response:
        start = _start(response)
        if start not in (0, offset):
            raise FetchError(f"{part.url}: the server sent other bytes than it was asked for")
        total = _total(part, response, start)
        _need_space(partial, None if total is None else total - start)
        with partial.open("ab" if start else "wb") as file:
            for chunk in _chunks(response):
                file.write(chunk)
                report(file.tell(), total)
            file.flush()
            os.fsync(file.fileno())
            got = file.tell()
    if total is not None and got < total:
        raise _Cut("the connection was cut")


def _open(url: str, offset: int) -> http.client.HTTPResponse:
    """Ask for a file from a byte on.

    Raises:
        HTTPError: the server refuses.
        _Cut, FetchError: it can't be reached, now or at all.
    """
    version = importlib.metadata.version("sigma-bench")
    headers = {"User-Agent": f"sigma-bench/{version}", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError:
        raise
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _Cut("no answer") from None
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise FetchError(f"{url}: can't be reached: {reason}: is there a network?") from None
    except (http.client.HTTPException, OSError) as error:
        raise _Cut(f"no answer: {error or type(error).__name__}") from None
    return response


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            # What has come so far: a full chunk of a slow source would be lost with the process.
            chunk = response.read1(CHUNK)
        except (http.client.HTTPException, OSError) as error:
            raise _Cut(f"the connection was cut: {error or type(error).__name__}") from None
        if not chunk:
            return
        yield chunk


def _start(response: http.client.HTTPResponse) -> int:
    """The first byte that a server sends; 0 if it has sent the whole file all the same."""
    if response.status != 206:
        return 0
    span = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(span) if span.isdigit() else -1


def _total(part: Part, response: http.client.HTTPResponse, start: int) -> int | None:
    """Bytes of the whole file, as the server has it."""
    length = response.headers.get("Content-Length", "")
    total = start + int(length) if length.isdigit() else part.size
    if part.size is not None and total != part.size:
        raise FetchError(
            f"{part.url}: the server has {total} bytes, not the {part.size} that were published: "
            "the file there is another one"
        )
    return total


def _need_space(path: Path, need: int | None) -> None:
    free = shutil.disk_usage(path.parent).free
    if need is not None and need > free:
        raise FetchError(
            f"{path.parent}: the disk is too full: {need / 1e9:.1f} GB are to come, "
            f"{free / 1e9:.1f} GB are free"
        )


def _check(part: Part, path: Path, then: str) -> str:
    """Compare a complete file with its published sums; a wrong one that was fetched is removed.

    Returns:
        its SHA-256 sum.
    """
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            md5.update(chunk)
            sha256.update(chunk)
    for kind, found, right in (
        ("md5", md5.hexdigest(), part.md5),
        ("sha256", sha256.hexdigest(), part.sha256),
    ):
        if right is not None and found != right:
            if then == "removed":
                path.unlink()
            raise FetchError(
                f"{path}: wrong checksum: {kind} {found}, not {right}: "
                + ("removed; fetch again" if then == "removed" else "remove it and fetch again")
            )
    return sha256.hexdigest()


def _remember(part: Part, target: Path, digest: str) -> None:
    """Note the SHA-256 sum beside the file, as sha256sum writes it.

    Raises:
        FetchError: nobody has published a sum, and it is not the one of an earlier time.
    """
    note = target.with_name(target.name + ".sha256")
    line = f"{digest}  {target.name}\n"
    if part.md5 is None and part.sha256 is None and note.is_file():
        before = note.read_text(encoding="utf-8")
        if before != line:
            raise FetchError(
                f"{target}: sha256 {digest}, but {note} has another one from an earlier time: "
                "remove that if the source may have changed"
            )
    note.write_text(line, encoding="utf-8")


def _bytes_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
