"""Optimiser and schedule from a recipe; the learning rate is a function of the step alone."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bench.method import Method
from bench.recipe import Recipe


def make_optimizer(method: Method, model: nn.Module, recipe: Recipe) -> Optimizer:
    """The recipe's optimiser over the method's parameter groups.

    Raises:
        ValueError: a trainable parameter is in no group, or in two.
    """
    groups = method.parameter_groups(model, recipe)
    _check_groups(model, groups)
    if recipe.optimizer == "adamw":
        optimizer: Optimizer = torch.optim.AdamW(
            groups, lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
    else:
        optimizer = torch.optim.SGD(
            groups,
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov and recipe.momentum > 0,
            weight_decay=recipe.weight_decay,
        )
    for group in optimizer.param_groups:
        group["peak_lr"] = group["lr"]
    return optimizer


def _check_groups(model: nn.Module, groups: list[dict[str, Any]]) -> None:
    listed = [id(parameter) for group in groups for parameter in group["params"]]
    if len(listed) != len(set(listed)):
        raise ValueError("parameter_groups: a parameter is in two groups")
    left = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in set(listed)
    ]
    if left:
        raise ValueError(f"parameter_groups: {left[0]!r} is trainable and in no group")


def schedule_factor(recipe: Recipe, step: int, steps: int) -> float:
    """What the peak learning rate is multiplied by in step `step` of `steps`; in ``(0, 1]``."""
    warmup = round(recipe.warmup * steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if recipe.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def set_learning_rate(optimizer: Optimizer, factor: float) -> None:
    """Scale every group's peak learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * factor


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors, for a checkpoint."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer.{index}.{name}": torch.as_tensor(value)
        for index, entries in state.items()
        for name, value in entries.items()
        if value is not None
    }


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        _, index, name = key.split(".", 2)
        # Optimisers keep what they are given and change it in place.
        state.setdefault(int(index), {})[name] = tensor.clone()
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
