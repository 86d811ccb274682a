"""Weights from a file: read without running anything in it, fitted or refused by name."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.backbones.heads import head_names
from bench.errors import UserError

WRAPPERS = ("state_dict", "model")
"""Keys that training scripts put the weights under."""
PREFIXES = ("module.", "model.", "backbone.")
"""What wrappers put in front of every name."""
COUNTER = "num_batches_tracked"
"""The counter of a BatchNorm: no weight, and missing from older files."""


def read_weights(path: Path, name: str) -> dict[str, Tensor]:
    """The tensors of a file by name, on the CPU.

    Args:
        path: ``.safetensors``, or what ``torch.save`` wrote: a mapping of names to tensors, alone
            or as the entry ``state_dict`` or ``model`` of a checkpoint.
        name: of the backbone, for messages.

    Raises:
        UserError: the file is damaged, holds anything else, or would have to run code.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason, hint = str(error).strip().partition("\n")[0], ""
        if path.suffix != ".safetensors":
            hint = "; save its state_dict as safetensors"
        if isinstance(error, pickle.UnpicklingError):
            # What torch says is how to run the code in the file all the same.
            reason = "it is damaged, or holds objects of Python beside tensors"
        raise UserError(
            f"backbone {name}: {path}: can't be read as plain tensors: {reason}{hint}"
        ) from error
    while isinstance(found, Mapping):
        inner = next((found[k] for k in WRAPPERS if isinstance(found.get(k), Mapping)), None)
        if inner is None:
            break
        found = inner
    if not isinstance(found, Mapping) or not found:
        kind = type(found).__name__
        raise UserError(f"backbone {name}: {path}: holds no named tensors but {kind}")
    for key, value in found.items():
        if not (isinstance(key, str) and isinstance(value, Tensor)):
            raise UserError(
                f"backbone {name}: {path}: {key!r} is no tensor but {type(value).__name__}"
            )
    return dict(found)


def read_metadata(path: Path, name: str) -> dict[str, str]:
    """What a safetensors file says beside its tensors; empty for other files.

    Raises:
        UserError: the file is damaged.
    """
    if path.suffix != ".safetensors":
        return {}
    from safetensors import safe_open

    try:
        with safe_open(path, framework="pt") as opened:
            return dict(opened.metadata() or {})
    except Exception as error:
        line = " ".join(str(error).split())
        raise UserError(f"backbone {name}: {path}: can't be read: {line}") from error


def without_prefixes(state: dict[str, Tensor], expected: set[str]) -> dict[str, Tensor]:
    """The tensors without what a wrapper put in front of all their names.

    Args:
        state: by name.
        expected: the names that the network has; a prefix of all of these is kept.
    """
    for _ in range(len(PREFIXES) * 2):
        for prefix in PREFIXES:
            everywhere = all(key.startswith(prefix) for key in state)
            if everywhere and not all(key.startswith(prefix) for key in expected):
                state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state


def load_weights(
    network: nn.Module, state: dict[str, Tensor], num_classes: int, name: str, place: str
) -> str | None:
    """Put weights into a network. Only a head for another number of classes is left out.

    Tolerated are the prefixes ``module.``, ``model.`` and ``backbone.`` before all names, and
    missing counters of batch normalisation.

    Args:
        network: changed in place.
        state: the tensors by name.
        num_classes: K.
        name: of the backbone, for messages.
        place: where the tensors come from, for messages.

    Returns:
        why the head is as it was, or None where it is pretrained.

    Raises:
        UserError: names the first tensor that is missing, unknown or of another shape; the network
            is as it was.
    """
    expected = network.state_dict()
    state = without_prefixes(state, set(expected))
    reason, left_out = _other_head(network, expected, state, num_classes, place)
    state = {key: value for key, value in state.items() if key not in left_out}
    missing = [
        key
        for key in expected
        if key not in state and key not in left_out and not key.endswith(COUNTER)
    ]
    unknown = [key for key in state if key not in expected]
    if missing or unknown:
        what = f"has no {missing[0]!r}" if missing else f"has {unknown[0]!r} besides"
        raise UserError(
            f"backbone {name}: {place} does not fit: it {what} "
            f"({len(missing)} missing, {len(unknown)} unknown)"
        )
    for key, value in state.items():
        if value.shape != expected[key].shape:
            raise UserError(
                f"backbone {name}: {place} does not fit: {key!r} has shape {list(value.shape)}, "
                f"not {list(expected[key].shape)}"
            )
    network.load_state_dict(state, strict=False)
    return reason


def _other_head(
    network: nn.Module,
    expected: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    num_classes: int,
    place: str,
) -> tuple[str | None, set[str]]:
    """Why the head's weights can't be used, and their names, if they are for other classes."""
    heads = head_names(network, num_classes)
    keys = {f"{head}.{part}" for head in heads for part in ("weight", "bias")} & set(expected)
    for key in (f"{head}.weight" for head in heads):
        if key not in state or key not in expected:
            continue
        theirs, ours = tuple(state[key].shape), tuple(expected[key].shape)
        if theirs[:1] != ours[:1] and theirs[1:] == ours[1:]:
            reason = f"{place} is for {theirs[0]} classes, the task has {num_classes}"
            return reason, keys
    return None, set()
