"""Which pretrained weights a name stood for: a file may change under its name."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from bench.backbones.names import HUGGING_FACE, SUFFIXES, family, is_pretrained, weight_file
from bench.files import file_digest

_SETTINGS = (".json", ".txt", ".model")
"""Endings of the files of a model's folder that are its configuration and its tokenizer."""


def backbone_digest(name: str, data: Path) -> str | None:
    """What identifies the files that a backbone is made from.

    Args:
        name: of a backbone.
        data: the folder that relative files and folders lie in.

    Returns:
        a SHA-256 sum over a file of weights and the folder of a model; None where neither lies on
        this machine under the name: for networks that are untrained, and those of a hub.

    Raises:
        UserError: there is no such file.
    """
    paths = []
    if (file := weight_file(name, data)) is not None:
        paths.append(file)
    prefix, model = family(name)
    folder = data / Path(model).expanduser()
    if prefix == HUGGING_FACE and folder.is_dir():
        own_weights = is_pretrained(name) and file is None
        wanted = (*_SETTINGS, *SUFFIXES) if own_weights else _SETTINGS
        paths += sorted(path for path in folder.iterdir() if path.suffix in wanted)
    if not paths:
        return None
    digest = hashlib.sha256()
    for path in paths:
        seen = path.stat()
        digest.update(f"{path.name} {_file(path, seen.st_mtime_ns, seen.st_size)}\n".encode())
    return digest.hexdigest()


# By time and size too: all runs of a suite ask, and a large file takes seconds.
@lru_cache(maxsize=64)
def _file(path: Path, _modified: int, _size: int) -> str:
    return file_digest(path)
