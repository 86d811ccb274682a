"""Batches of a split on the device: indexed there where it is in memory, else read by loaders.

Loaders are processes of PyTorch's `DataLoader`; each makes whole batches ahead of time. What a
batch holds depends on the seed and the step alone: not on how many loaders there are, nor on the
step at which a training goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bench.data.augment import augment
from bench.data.lazy import Viewed
from bench.data.task import Inputs, Split
from bench.errors import UserError
from bench.seeding import derive_seed

MOST_LOADERS = 16
"""Loaders a GPU by default; more only help where decoding is much slower than usual."""

PREFETCH = 2
"""Batches that each loader makes ahead."""

Batch = tuple[Tensor, Tensor]


class DataOrder:
    """Which samples each step sees: permutations of the training set, one after the other.

    A batch may run on into the next permutation, so that all are full, every sample is seen equally
    often, and the batch of a step depends on the seed and the step alone.
    """

    def __init__(self, samples: int, batch_size: int, seed: int) -> None:
        self.samples = samples
        self.batch_size = batch_size
        self.seed = seed
        self._epochs: dict[int, Tensor] = {}

    def batch(self, step: int) -> Tensor:
        """Indices int64 ``[batch_size]`` of step `step`."""
        first, last = step * self.batch_size, (step + 1) * self.batch_size
        epochs = range(first // self.samples, (last - 1) // self.samples + 1)
        self._epochs = {epoch: self._epochs.get(epoch, self._permute(epoch)) for epoch in epochs}
        start = epochs[0] * self.samples
        return torch.cat(list(self._epochs.values()))[first - start : last - start]

    def _permute(self, epoch: int) -> Tensor:
        if epoch in self._epochs:
            return self._epochs[epoch]
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "epoch", epoch))
        return torch.randperm(self.samples, generator=generator)


@dataclass(frozen=True)
class Drawing:
    """What decides over the batches of one network's training.

    Attributes:
        seed: the run's seed.
        network: index of the network, each of which has its own order and its own views.
        batch_size: samples a step, over all devices.
        augment: names of augmentations.
        share: which part of each batch this process takes.
    """

    seed: int
    network: int
    batch_size: int
    augment: tuple[str, ...]
    share: slice

    def order(self, samples: int) -> DataOrder:
        """The order of a training set of that size."""
        return DataOrder(samples, self.batch_size, derive_seed(self.seed, "order", self.network))

    def seed_step(self, step: int) -> None:
        """Set the global generator to what it is at the start of a step."""
        torch.manual_seed(derive_seed(self.seed, "step", self.network, step))

    def draws(self, step: int) -> list[int]:
        """A seed for each sample of a step's batch."""
        first = step * self.batch_size
        rows = range(first, first + self.batch_size)
        return [derive_seed(self.seed, "view", self.network, row) for row in rows]


class Source(Protocol):
    """Gives the batches of a training, step after step."""

    def batch(self, step: int) -> Batch:
        """This process's part of a step's batch, augmented; the global generator is seeded.

        Returns:
            inputs as in the split, and labels, on the device.
        """
        ...


def training_batches(
    inputs: Inputs, labels: Tensor, drawing: Drawing, steps: range, loaders: int | None
) -> Source:
    """The source of a training's batches.

    Args:
        inputs: a tensor on the device, or inputs that are read when asked for.
        labels: int64 ``[N]``, on the device.
        drawing: see `Drawing`.
        steps: those that will be asked for, in order.
        loaders: processes that read ahead; 0 reads in this process, None chooses.
    """
    if isinstance(inputs, Tensor):
        return _Resident(inputs, labels, drawing)
    if not isinstance(inputs, Viewed):
        raise TypeError(f"{type(inputs).__name__} has no views to train on")
    return _Read(inputs, labels, drawing, steps, loaders)


class _Resident:
    """Batches of a set that lies on the device."""

    def __init__(self, inputs: Tensor, labels: Tensor, drawing: Drawing) -> None:
        self.inputs = inputs
        self.labels = labels
        self.drawing = drawing
        self.order = drawing.order(len(labels))

    def batch(self, step: int) -> Batch:
        index = self.order.batch(step).to(self.labels.device)
        self.drawing.seed_step(step)
        # Every device augments the whole batch, so that the views are those of one device alone.
        inputs = augment(self.inputs[index], self.drawing.augment)
        share = self.drawing.share
        return inputs[share], self.labels[index[share]]


class _Read:
    """Batches that loaders read from where the inputs are."""

    def __init__(
        self,
        inputs: Viewed,
        labels: Tensor,
        drawing: Drawing,
        steps: range,
        loaders: int | None,
    ) -> None:
        self.device = labels.device
        self.drawing = drawing
        self.next = steps.start
        dataset = _Steps(inputs, labels.cpu(), drawing)
        self.batches = _load(dataset, steps, self.device, loaders)

    def batch(self, step: int) -> Batch:
        if step != self.next:
            raise ValueError(f"step {self.next} is next, not {step}: batches are read in order")
        self.next += 1
        inputs, labels = next(self.batches)
        self.drawing.seed_step(step)
        return inputs, labels


class _Steps(Dataset[Batch | UserError]):
    """The batch of each step, as a loader makes it."""

    def __init__(self, inputs: Viewed, labels: Tensor, drawing: Drawing) -> None:
        self.inputs = inputs
        self.labels = labels
        self.drawing = drawing
        self.order = drawing.order(len(labels))

    def __getitem__(self, step: int) -> Batch | UserError:
        share = self.drawing.share
        index = self.order.batch(step)[share]
        draws = self.drawing.draws(step)[share]
        try:
            return self.inputs.views(index, draws, self.drawing.augment), self.labels[index]
        except UserError as error:
            # DataLoader would wrap it in a traceback of many lines.
            return error


class _Parts(Dataset[Batch | UserError]):
    """Ranges of a split, one after the other."""

    def __init__(self, split: Split[Inputs], size: int) -> None:
        self.split = split
        self.size = size

    def __getitem__(self, part: int) -> Batch | UserError:
        rows = slice(part * self.size, min((part + 1) * self.size, len(self.split)))
        try:
            return self.split.inputs[rows], self.split.labels[rows]
        except UserError as error:
            return error


def evaluation_batches(
    split: Split[Inputs], size: int, device: torch.device, loaders: int | None
) -> Iterator[Batch]:
    """A split in its order, in batches of `size`; the last may be smaller.

    Args:
        split: any.
        size: samples a batch.
        device: where the batches go.
        loaders: as in `training_batches`.

    Returns:
        inputs as in the split, and labels, on the device.
    """
    parts = _Parts(split, size)
    count = range(-(-len(split) // size))
    if not isinstance(split.inputs, Tensor):
        return _load(parts, count, device, loaders)
    return (_arrived(parts[part], device) for part in count)


def default_loaders(device: torch.device) -> int:
    """Loaders of one process: the cores that fall to a GPU; on a CPU, which computes itself, 0."""
    if device.type != "cuda":
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(MOST_LOADERS, (cores or 1) // torch.cuda.device_count()))


def _load(
    dataset: Dataset[Any], order: Sequence[int], device: torch.device, loaders: int | None
) -> Iterator[Batch]:
    """The items of a dataset in an order, made ahead by loaders, on the device."""
    count = default_loaders(device) if loaders is None else loaders
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=None,
        sampler=order,
        num_workers=count,
        pin_memory=device.type == "cuda",
        prefetch_factor=PREFETCH if count else None,
        # Its own seed, which nothing depends on, would be drawn from the global generator.
        generator=torch.Generator(),
    )
    return (_arrived(item, device) for item in loader)


def _arrived(item: Batch | UserError, device: torch.device) -> Batch:
    """A batch on the device; what a loader could not read is raised here."""
    if isinstance(item, UserError):
        raise item
    inputs, labels = item
    # From pinned memory the copy runs while the device computes, and nothing waits for it.
    return inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)
