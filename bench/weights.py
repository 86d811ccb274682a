"""Tensors on disk: safetensors files that carry and check their own digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bench.files import Damaged, write_bytes


def save_tensors(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors and a JSON state in one file, whole or not at all.

    Args:
        path: where.
        tensors: by name; any device, any strides.
        state: JSON values.
    """
    plain = _separate({name: tensor.detach().cpu() for name, tensor in tensors.items()})
    text = json.dumps(state, sort_keys=True, allow_nan=False)
    notes = json.dumps({"state": text, "sha256": _digest(plain, text)})
    # One entry: safetensors writes several in random order; equal content shall be equal bytes.
    write_bytes(path, save(plain, {"sigma-bench": notes}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: it is not what was written.
    """
    if not path.exists():
        raise FileNotFoundError(path)
    try:
        with safe_open(path, framework="pt") as file:
            notes = _notes((file.metadata() or {}).get("sigma-bench", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise Damaged(f"{path}: not a whole safetensors file ({error})") from None
    if notes["sha256"] != _digest(tensors, notes["state"]):
        raise Damaged(f"{path}: content and digest disagree")
    return tensors, json.loads(notes["state"])


def _notes(text: str) -> dict[str, str]:
    """What `save_tensors` notes beside the tensors.

    Raises:
        ValueError: it is something else.
    """
    notes = json.loads(text)
    if not isinstance(notes, dict) or not all(
        isinstance(notes.get(key), str) for key in ("state", "sha256")
    ):
        raise ValueError("it has no digest of this program")
    return notes


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors that share no memory: tied weights are written twice."""
    seen: set[int] = set()
    plain = {}
    for name, tensor in tensors.items():
        whole = tensor.contiguous()
        storage = whole.untyped_storage().data_ptr()
        plain[name] = whole.clone() if storage in seen else whole
        seen.add(storage)
    return plain


def _digest(tensors: Mapping[str, Tensor], state: str) -> str:
    digest = hashlib.sha256(state.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tensor.dtype}{list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
