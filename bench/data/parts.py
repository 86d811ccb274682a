"""Pieces that the loaders share: pixel statistics, stratified parts, loads that are kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from bench.data.task import UNKNOWN, Split
from bench.errors import UserError

SPLIT_SEED = 0
"""Of every division that is made here: a task is the same for all runs."""

KEPT_BYTES = 1 << 30
"""Memory that the corrupted copies of one test split may take."""

Key = TypeVar("Key")


def pixel_statistics(inputs: Tensor, place: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, exact.

    Args:
        inputs: uint8 ``[N, C, H, W]``.
        place: what an error names.

    Returns:
        mean and std in ``[0, 1]``, C values each.

    Raises:
        UserError: a channel has one value only, so that it can't be normalised.
    """
    values = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in range(inputs.shape[1]):
        counts = torch.bincount(inputs[:, channel].flatten(), minlength=256).double()
        share = counts / counts.sum()
        mean = (share * values).sum()
        deviation = (share * (values - mean) ** 2).sum().sqrt()
        if not (counts > 0).sum() > 1:
            raise UserError(f"{place}: channel {channel} of all training images has one value only")
        means.append(float(mean))
        deviations.append(float(deviation))
    return tuple(means), tuple(deviations)


def stratified_part(labels: Tensor, size: int, place: str) -> tuple[Tensor, Tensor]:
    """Divide samples in two, with the classes' shares in both; the same for the same labels.

    Args:
        labels: int64 ``[N]``.
        size: samples of the second part.
        place: what an error names.

    Returns:
        indices of the first and of the second part, each ascending.

    Raises:
        UserError: a class has a single sample, or a part can't hold a sample of each class.
    """
    counts = torch.bincount(labels)
    classes = int((counts > 0).sum())
    if bool((counts == 1).any()):
        one = int((counts == 1).int().argmax())
        raise UserError(
            f"{place}: class number {one} has 1 sample only, which can't be divided: add some"
        )
    if not classes <= size <= len(labels) - classes:
        raise UserError(
            f"{place}: {size} of {len(labels)} samples for validation: with {classes} classes it "
            f"must be {classes} to {len(labels) - classes}"
        )
    first, second = train_test_split(
        torch.arange(len(labels)).numpy(),
        test_size=size,
        stratify=labels.numpy(),
        random_state=SPLIT_SEED,
    )
    return torch.from_numpy(first).sort().values, torch.from_numpy(second).sort().values


def select(inputs: Tensor, labels: Tensor, indices: Tensor) -> Split:
    """The samples at these indices."""
    return Split(inputs[indices], labels[indices])


def outlier_split(inputs: Tensor) -> Split:
    """Samples of no known class."""
    return Split(inputs, torch.full((len(inputs),), UNKNOWN, dtype=torch.int64))


def kept(load: Callable[[Key], Split], bytes_each: int) -> Callable[[Key], Split]:
    """Keep what was loaded last, as much as `KEPT_BYTES` hold: many runs ask for the same.

    The splits are shared: nobody may write to them.
    """
    return lru_cache(maxsize=max(1, KEPT_BYTES // max(1, bytes_each)))(load)
