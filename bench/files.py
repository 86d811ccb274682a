"""Files that are written whole or not at all, and checked when read.

Nothing is ever read with pickle. A file that can't be trusted raises `Damaged`, by name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class Damaged(Exception):
    """A stored file is truncated, altered or not what it should be; the message names it."""


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, through a temporary name beside it.

    Raises:
        OSError: names the file, also where the system does not (when the disk is full).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: Path, content: str) -> None:
    """Write UTF-8 text whole or not at all.

    A path that is no UTF-8 may be in it: its odd bytes are written as JSON would escape them.
    """
    write_bytes(path, content.encode(errors="backslashreplace"))


def _digest(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its own digest, whole or not at all.

    Raises:
        ValueError: a number is not finite; what does not apply must be absent.
    """
    signed = {**content, "sha256": _digest(content)}
    write_text(path, json.dumps(signed, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: it is not what was written.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise Damaged(f"{path}: not valid JSON ({error})") from None
    if not isinstance(content, dict) or "sha256" not in content:
        raise Damaged(f"{path}: not a record of this program")
    claimed = content.pop("sha256")
    if claimed != _digest(content):
        raise Damaged(f"{path}: content and digest disagree")
    return content


def stored_value(path: Path, key: str) -> Any:
    """What a file of `write_json` holds under a name.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: it is not what was written, or has no such name (another version wrote it).
    """
    content = read_json(path)
    if key not in content:
        raise Damaged(f"{path}: has no {key!r}")
    return content[key]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_records(path: Path, records: pd.DataFrame) -> None:
    """Write per-sample records as Parquet with page checksums, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(records, preserve_index=False)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    write_bytes(path, sink.getvalue().to_pybytes())


def read_records(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    """Read per-sample records.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: it is not a whole Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(
            pa.BufferReader(path.read_bytes()), columns=columns, page_checksum_verification=True
        )
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        line = " ".join(str(error).split())
        raise Damaged(f"{path}: not a whole Parquet file ({line})") from None
    frame: pd.DataFrame = table.to_pandas()
    return frame
