"""Readers of texts: one function a format, each with errors that name the line."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UserError

SUFFIXES = (".tsv", ".tsv.gz")
"""Of files with a text and its label a line."""

TEXT_COLUMNS = ("sentence", "text")
"""What the column of the texts may be called in tables."""


@dataclass(frozen=True)
class Labelled:
    """Texts and what stands as their label, in the order of the file."""

    texts: list[str]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.texts)


def find_tsv(folder: Path, name: str, place: str) -> Path | None:
    """The file ``name.tsv`` or ``name.tsv.gz`` of a folder, or None.

    Raises:
        UserError: both are there.
    """
    found = [path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
    if len(found) > 1:
        raise UserError(f"{place}: {found[0]} and {found[1]} are both there: remove one")
    return found[0] if found else None


def read_lines(path: Path, place: str) -> list[str]:
    """The lines of a UTF-8 file, unpacked where its name ends in ``.gz``; no blank ones at the end.

    Lines end with a line feed, with or without a carriage return, and with nothing else.

    Args:
        path: the file.
        place: what an error names.

    Raises:
        UserError: not UTF-8, not gzip, or nothing in it.
        OSError: can't be read.
    """
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise UserError(f"{place}: {path}: not a whole gzip file: pack it again") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(
            f"{place}: {path}, line {line}: not UTF-8: save the file in that encoding"
        ) from None
    if not text.strip():
        raise UserError(f"{place}: {path}: is empty: it must hold a text a line")
    return [line.removesuffix("\r") for line in text.rstrip("\r\n").split("\n")]


def read_labelled(path: Path, place: str, header: str | None = None) -> Labelled:
    """The lines ``text<TAB>label`` of a file; what stands after the last tab is the label.

    Args:
        path: the file.
        place: what an error names.
        header: what the first line must be, if it is none of the texts.

    Raises:
        UserError: see `read_lines`; or a line without tab, text or label, or another header.
    """
    lines = read_lines(path, place)
    first = 1
    if header is not None:
        if lines[0] != header:
            raise UserError(f"{place}: {path}, line 1: must be {header!r}, not {lines[0][:40]!r}")
        lines, first = lines[1:], 2
    texts, labels = [], []
    for number, line in enumerate(lines, first):
        before, tab, after = line.rpartition("\t")
        text, label = before.strip(), after.strip()
        if not (tab and text and label):
            lacking = "tab" if not tab else "label" if text else "text"
            raise UserError(
                f"{place}: {path}, line {number}: no {lacking}: every line must be a text, a tab "
                "and a label"
            )
        texts.append(text)
        labels.append(label)
    if not texts:
        raise UserError(f"{place}: {path}: has a header only: it must hold a text a line")
    return Labelled(texts, labels)


def read_texts(path: Path, place: str) -> list[str]:
    """The texts of a file, one a line; what stands after a line's last tab is dropped.

    Raises:
        UserError: see `read_lines`; or a line without text.
    """
    texts = []
    for number, line in enumerate(read_lines(path, place), 1):
        before, tab, after = line.rpartition("\t")
        text = (before if tab else after).strip()
        if not text:
            raise UserError(f"{place}: {path}, line {number}: no text: remove the line")
        texts.append(text)
    return texts


def read_ag_news(path: Path, place: str) -> list[str]:
    """The texts of AG News as Zhang et al. (2015) published it, ``"class","title","description"``.

    Title and description are joined by a space, as in Hugging Face's copy.

    Raises:
        UserError: see `read_lines`; or a row that has not three columns.
    """
    texts = []
    rows = csv.reader(io.StringIO("\n".join(read_lines(path, place))), strict=True)
    try:
        for row in rows:
            if len(row) != 3:
                raise csv.Error(f"{len(row)} columns, not 3 (class, title, description)")
            texts.append(f"{row[1]} {row[2]}".strip())
    except csv.Error as error:
        raise UserError(f"{place}: {path}, line {rows.line_num}: {error}: fetch it again") from None
    return texts


def read_trec(path: Path, place: str) -> list[str]:
    """The questions of TREC as Li and Roth (2002) published it, ``CLASS:kind question``.

    The files are in Latin-1, with byte F0 where a space was.

    Raises:
        UserError: a line without class or question.
    """
    content = path.read_bytes().replace(b"\xf0", b" ").decode("latin-1")
    texts = []
    for number, line in enumerate(content.rstrip("\r\n").split("\n"), 1):
        kind, _, question = line.strip().partition(" ")
        if ":" not in kind or not question.strip():
            raise UserError(
                f"{place}: {path}, line {number}: must be CLASS:kind and a question: fetch it again"
            )
        texts.append(question.strip())
    return texts


def saved_part(folder: Path, part: str, place: str) -> dict[str, list[Any]] | None:
    """A part of a Hugging Face data set on disk: columns by name; None if there is none.

    Read is what ``save_to_disk`` wrote (by `datasets`), or else the Parquet files of a data set's
    repository, ``<part>-*.parquet``, in one folder at any depth.

    Args:
        folder: where the data set lies.
        part: ``train``, ``validation`` or ``test``.
        place: what an error names.

    Raises:
        UserError: `datasets` is not installed, or the files are damaged or ambiguous.
    """
    if (folder / "dataset_dict.json").is_file():
        return _from_disk(folder, part, place)
    files = sorted(folder.rglob(f"{part}-*.parquet")) if folder.is_dir() else []
    if not files:
        return None
    if len({path.parent for path in files}) > 1:
        raise UserError(
            f"{place}: {folder}: {part}-*.parquet lie in several folders: keep those of one"
        )
    return _from_parquet(files, place)


def _from_disk(folder: Path, part: str, place: str) -> dict[str, list[Any]] | None:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise UserError(
            f"{place}: {folder}: needs the library that wrote it: pip install datasets"
        ) from None
    try:
        parts = datasets.load_from_disk(str(folder))
        if part not in parts:
            return None
        return {name: list(parts[part][name]) for name in parts[part].column_names}
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(folder, error, place) from None


def _from_parquet(files: list[Path], place: str) -> dict[str, list[Any]]:
    import pyarrow as pa
    from pyarrow import parquet

    tables = []
    for path in files:
        try:
            tables.append(parquet.read_table(path))
        except (OSError, pa.ArrowInvalid) as error:
            raise _unreadable(path, error, place) from None
    try:
        columns: dict[str, list[Any]] = pa.concat_tables(tables).to_pydict()
    except pa.ArrowInvalid as error:
        raise _unreadable(files[0].parent, error, place) from None
    return columns


def _unreadable(path: Path, error: Exception, place: str) -> UserError:
    line = " ".join(str(error).split())
    return UserError(f"{place}: {path}: can't be read, put it there again: {line}")


def column_of_texts(columns: dict[str, list[Any]], folder: Path, place: str) -> list[str]:
    """The column that holds the texts.

    Raises:
        UserError: there is none, or it holds something else.
    """
    name = next((name for name in TEXT_COLUMNS if name in columns), None)
    if name is None:
        raise UserError(
            f"{place}: {folder}: has the columns {', '.join(columns)}: the texts must be in "
            f"{' or '.join(TEXT_COLUMNS)}"
        )
    texts = [value.strip() if isinstance(value, str) else "" for value in columns[name]]
    if not texts or not all(texts):
        row = texts.index("") if texts else 0
        raise UserError(f"{place}: {folder}: row {row} has no text in the column {name}")
    return texts
