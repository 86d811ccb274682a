"""Files that are written whole or not at all, and checked when read.

Nothing is ever read with pickle. A file that can't be trusted raises `Damaged`, by name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa


SCHEMA = b"sigma-bench"
"""Under this name a Parquet file holds `_schema_digest`; old ones have none."""
LEFTOVER_SECONDS = 3600.0
"""A file that is still being written after this long has no writer any more."""


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
            _remove_leftovers(path, temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _remove_leftovers(path: Path, temporary: Path) -> None:
    """Remove what writers of a file left that were killed, by their age on the server's clock."""
    own = f".{path.name}."
    with os.scandir(path.parent) as entries:
        others = [
            path.parent / entry.name
            for entry in entries
            if entry.name.startswith(own)
            and entry.name.endswith(".tmp")
            and entry.name[len(own) : -4].isdigit()
            and entry.name != temporary.name
        ]
    if not others:
        return
    now = temporary.stat().st_mtime
    for other in others:
        # Another process may have removed it just now.
        with contextlib.suppress(FileNotFoundError):
            if now - other.stat().st_mtime > LEFTOVER_SECONDS:
                other.unlink()


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
    except (ValueError, RecursionError) as error:
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
    notes = {**(table.schema.metadata or {}), SCHEMA: _schema_digest(table.schema, len(table))}
    table = table.replace_schema_metadata(notes)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    write_bytes(path, sink.getvalue().to_pybytes())


def _schema_digest(schema: pa.Schema, rows: int) -> bytes:
    """SHA-256 of the columns' names and types and of their length: pages have sums of their own."""
    columns = [[field.name, str(field.type)] for field in schema]
    return hashlib.sha256(json.dumps([rows, columns]).encode()).hexdigest().encode()


def read_records(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    """Read per-sample records.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: it is not a whole Parquet file, or lacks a column.
    """
    # Without what pandas noted of the index: it has no sum, and there is no index.
    table = _read_table(path, columns).replace_schema_metadata(None)
    frame: pd.DataFrame = table.to_pandas()
    return frame


def read_columns(path: Path, columns: Sequence[str]) -> dict[str, npt.NDArray[np.generic]]:
    """Some columns of per-sample records as arrays ``[N]``, without loading pandas.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: it is not a whole Parquet file, or lacks a column.
    """
    table = _read_table(path, columns)
    try:
        return {name: _numbers(table.column(name).combine_chunks()) for name in columns}
    except TypeError as error:
        raise Damaged(f"{path}: {error}") from None


def _numbers(array: pa.Array) -> npt.NDArray[np.generic]:
    """An array's values, not copied; Arrow's own `to_numpy` would load pandas.

    Raises:
        TypeError: they are no numbers, or some are absent.
    """
    import numpy as np
    from pyarrow import types

    kind = array.type
    if array.null_count or not (types.is_integer(kind) or types.is_floating(kind)):
        raise TypeError(f"holds {kind} with {array.null_count} values absent, not numbers alone")
    letter = "f" if types.is_floating(kind) else "i" if types.is_signed_integer(kind) else "u"
    values = np.frombuffer(array.buffers()[1] or b"", f"{letter}{kind.bit_width // 8}")
    return values[array.offset : array.offset + len(array)]


def _read_table(path: Path, columns: Sequence[str] | None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # `read_table` would do the same, after loading what reads folders of files.
        source = pa.BufferReader(path.read_bytes())
        file = pq.ParquetFile(source, page_checksum_verification=True)
        schema = file.schema_arrow
        noted = (schema.metadata or {}).get(SCHEMA)
        if noted not in (None, _schema_digest(schema, file.metadata.num_rows)):
            raise Damaged(f"{path}: columns and digest disagree")
        present = set(schema.names)
        absent = [name for name in columns or () if name not in present]
        if absent:
            raise Damaged(f"{path}: has no column {absent[0]!r}")
        # Several threads would wait for each other longer than a column takes to read.
        table = file.read(columns=None if columns is None else list(columns), use_threads=False)
        if len(table) != file.metadata.num_rows:
            raise Damaged(f"{path}: {len(table)} rows, not {file.metadata.num_rows}")
        return table
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        line = " ".join(str(error).split())
        raise Damaged(f"{path}: not a whole Parquet file ({line})") from None
