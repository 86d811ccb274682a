"""What a run needs beside its specification, and the training of one of its networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bench.budget import Plan
from bench.data.task import Inputs, Task
from bench.method import Method
from bench.planning import build_network
from bench.ranks import ALONE, Ranks
from bench.suite import RunSpec
from bench.training import Session, Tick


@dataclass(frozen=True)
class Options:
    """Where and how to run; none of it is part of a run's identity.

    Attributes:
        data: the folder under which data sets lie.
        device: such as ``cpu`` or ``cuda:0``; the first of several.
        checkpoint_seconds: time between two resumable states.
        loaders: processes that read images on disk ahead, for each device; None chooses.
    """

    data: Path
    device: torch.device
    checkpoint_seconds: float = 30.0
    loaders: int | None = None


@dataclass(frozen=True)
class Hearing:
    """Who is told about a training.

    Attributes:
        tick: called with progress.
        note: called with a line about a damaged checkpoint.
        resumed: called with the step at which training starts or goes on.
    """

    tick: Callable[[Tick], None]
    note: Callable[[str], None]
    resumed: Callable[[int], None]


def training_data(task: Task, device: torch.device) -> tuple[Inputs, Tensor]:
    """The training split on the device, but for inputs that are read when asked for."""
    inputs = task.train.inputs
    if isinstance(inputs, Tensor):
        inputs = inputs.to(device)
    return inputs, task.train.labels.to(device)


def open_session(
    spec: RunSpec,
    method: Method,
    task: Task,
    plan: Plan,
    network: int,
    data: tuple[Inputs, Tensor],
    options: Options,
    checkpoint: Path,
    hearing: Hearing,
    ranks: Ranks = ALONE,
) -> Session:
    """Network `network` of a run, ready to be trained.

    Args:
        spec: the run.
        method: its method.
        task: its task.
        plan: how long.
        network: index among the plan's networks.
        data: see `training_data`.
        options: where.
        checkpoint: the file of the resumable state.
        hearing: who is told.
        ranks: the processes that train it together.
    """
    inputs, labels = data
    return Session(
        model=build_network(spec, method, task, network, options.data).to(options.device),
        method=method,
        task=task,
        recipe=spec.recipe,
        plan=plan,
        seed=spec.seed,
        network=network,
        inputs=inputs,
        labels=labels,
        checkpoint=checkpoint,
        checkpoint_seconds=options.checkpoint_seconds,
        report=hearing.tick,
        note=hearing.note,
        resumed=hearing.resumed,
        loaders=options.loaders,
        ranks=ranks,
    )
