"""Folding members into the batch of any input, and reading logits out of any output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def batch_size(inputs: Any) -> int:
    """B, the size of dimension 0 of every tensor in the input.

    Args:
        inputs: a tensor, or tuples, lists and mappings of tensors; tensors without dimensions and
            anything else don't count.

    Raises:
        ValueError: if tensors disagree, or there is none, or the batch is empty.
    """
    sizes = {place: t.shape[0] for place, t in _tensors(inputs, "input")}
    if not sizes:
        raise ValueError(f"the input holds no tensor with a batch: got {type(inputs).__name__}")
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{place}: {size}" for place, size in sizes.items())
        raise ValueError(f"all tensors need the batch on dimension 0, got rows {found}")
    size = next(iter(sizes.values()))
    if size == 0:
        raise ValueError("the batch is empty")
    return size


def fold(inputs: Any, members: int) -> Any:
    """Repeat each sample for each member, batch-major: ``[B, ...] -> [B * m, ...]``.

    Args:
        inputs: as for `batch_size`; containers become plain tuples, lists and dicts.
        members: m.
    """
    if isinstance(inputs, Tensor):
        return inputs.repeat_interleave(members, dim=0) if inputs.ndim else inputs
    if isinstance(inputs, Mapping):
        return {key: fold(value, members) for key, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return type(inputs)([fold(value, members) for value in inputs])
    return inputs


def call(module: nn.Module, inputs: Any) -> Any:
    """Call a module with a tensor, with a tuple's or list's elements, or with a mapping's items."""
    if isinstance(inputs, Mapping):
        return module(**inputs)
    if isinstance(inputs, tuple | list):
        return module(*inputs)
    return module(inputs)


def read_logits(output: Any) -> Tensor:
    """The logits ``[N, K]`` in a module's output: a tensor, or something with ``logits``.

    Raises:
        TypeError: if there are none.
        ValueError: if they have another number of dimensions.
    """
    if isinstance(output, Mapping) and "logits" in output:
        output = output["logits"]
    elif not isinstance(output, Tensor):
        output = getattr(output, "logits", output)
    if not isinstance(output, Tensor):
        raise TypeError(
            "the module must return a tensor of logits, or an object or mapping with logits, got "
            f"{type(output).__name__}"
        )
    if output.ndim != 2:
        raise ValueError(f"the module must return logits [N, K], got {tuple(output.shape)}")
    return output


def mean_probabilities(logits: Tensor) -> Tensor:
    """Mean over members of the softmax: ``[B, m, K] -> [B, K]``, in float32 or wider."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return torch.softmax(logits, dim=-1, dtype=dtype).mean(dim=1)


def _tensors(inputs: Any, place: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(inputs, Tensor):
        if inputs.ndim:
            yield place, inputs
    elif isinstance(inputs, Mapping):
        for key, value in inputs.items():
            yield from _tensors(value, f"{place}[{key!r}]")
    elif isinstance(inputs, tuple | list):
        for index, value in enumerate(inputs):
            yield from _tensors(value, f"{place}[{index}]")
