"""One optimiser step: forward, backward, gradient clipping, in as many parts as memory asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bench.method import Method
from bench.ranks import ALONE, Ranks
from bench.recipe import Recipe


def train_step(
    model: nn.Module,
    method: Method,
    optimizer: Optimizer,
    inputs: Tensor,
    target: Tensor,
    recipe: Recipe,
    chunk: int,
    ranks: Ranks = ALONE,
) -> Tensor:
    """One optimiser step.

    The limit of the gradient's norm holds for the mean over members: for the sum that the loss is,
    it is as many times the recipe's as members took part. So it leaves the sum of gradients alone
    that it would leave alone one by one, and bounds no method more tightly for having members.

    With ``recipe.accumulate`` the batch is gone through in parts that differ by one sample at most;
    a part's loss weighs as much as its samples, so that the gradient is that of the mean over the
    batch. Batch norm sees one part at a time. The penalty counts once.

    Args:
        model: gives member logits.
        method: its loss must be a sum over members and a mean over samples.
        optimizer: takes the step.
        inputs: normalised ``[B, C, H, W]``, or token ids ``[B, L]``; of several devices, the
            share of this one.
        target: ``[B]``.
        recipe: precision, accumulation and gradient clipping.
        chunk: members forward and backward at a time; 0 for all at once.
        ranks: the processes that take the step together; its gradient is the mean of theirs.

    Returns:
        the loss of this process's samples, detached, a scalar on the device.
    """
    optimizer.zero_grad(set_to_none=True)
    total, summed = _backward_all(model, method, inputs, target, recipe, chunk, ranks)
    if recipe.gradient_clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_clip * summed)
    optimizer.step()
    return total


def _backward_all(
    model: nn.Module,
    method: Method,
    inputs: Tensor,
    target: Tensor,
    recipe: Recipe,
    chunk: int,
    ranks: Ranks,
) -> tuple[Tensor, int]:
    """The gradients of a step; its loss, and how many members that is a sum over."""
    parts = list(_parts(inputs, target, recipe.accumulate, method.members, chunk))
    forward = ranks.forward(model)
    total = inputs.new_zeros((), dtype=torch.float32)
    summed = method.members
    for number, (part, labels, members) in enumerate(parts, 1):
        with ranks.hold(forward, number < len(parts)):
            with _precision(recipe, inputs.device):
                logits = forward(part) if members is None else forward(part, members=members)
            loss = method.loss(model, logits.float(), labels)
            if len(labels) < len(target):
                loss = loss * (len(labels) / len(target))
            if number == 1:
                penalty = method.penalty(model)
                loss = loss if penalty is None else loss + penalty
            loss.backward()  # type: ignore[no-untyped-call]
        total = total + loss.detach()
        summed = logits.shape[1] if members is None else method.members
    return total, summed


def _parts(
    inputs: Tensor, target: Tensor, accumulate: int, members: int, chunk: int
) -> Iterator[tuple[Tensor, Tensor, slice | None]]:
    """What one forward pass takes: samples, their labels, and which members (None for all)."""
    chunks: list[slice | None] = [None]
    if chunk and chunk < members:
        firsts = range(0, members, chunk)
        chunks = [slice(first, min(first + chunk, members)) for first in firsts]
    pairs = zip(inputs.tensor_split(accumulate), target.tensor_split(accumulate), strict=True)
    for part, labels in pairs:
        for chosen in chunks:
            yield part, labels, chosen


def _precision(recipe: Recipe, device: torch.device) -> AbstractContextManager[Any]:
    if recipe.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
