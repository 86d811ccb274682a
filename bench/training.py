"""The one training loop. Every method goes through it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bench.budget import Plan
from bench.data.augment import augment
from bench.data.task import Task
from bench.device import now
from bench.files import Damaged
from bench.method import Method
from bench.optimise import (
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    schedule_factor,
    set_learning_rate,
)
from bench.seeding import derive_seed
from bench.suite import Recipe
from bench.weights import load_tensors, save_tensors

CHECK_EVERY = {"cpu": 1, "cuda": 20}
"""Steps between looks at the loss; each look waits for the device, which costs time on a GPU."""


class NonFiniteLoss(RuntimeError):
    """The loss is no longer a number; the message says where."""


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


@dataclass
class Tick:
    """Where a training is, for display and `progress.jsonl`."""

    network: int
    networks: int
    step: int
    steps: int
    epoch: float
    loss: float
    learning_rate: float
    images_per_second: float
    seconds: float
    epoch_end: bool


@dataclass
class Session:
    """One network on its way through its steps.

    Attributes:
        model: what is trained, on the device.
        method: its loss, penalty and parameter groups.
        task: the data; `inputs` and `labels` are its training split on the device.
        recipe: how.
        plan: how long.
        seed: the run's seed.
        network: index among the plan's networks; each has its own data order and randomness.
        checkpoint: the file of the resumable state.
        checkpoint_seconds: time between two states; a run loses at most this much.
        report: called with a `Tick` after each look at the loss.
        note: called with a line about a damaged checkpoint.
        resumed: called with the step at which training starts or goes on.
    """

    model: nn.Module
    method: Method
    task: Task
    recipe: Recipe
    plan: Plan
    seed: int
    network: int
    inputs: Tensor
    labels: Tensor
    checkpoint: Path
    checkpoint_seconds: float
    report: Callable[[Tick], None]
    note: Callable[[str], None]
    resumed: Callable[[int], None]

    @property
    def device(self) -> torch.device:
        """Where the model and the data are."""
        return self.inputs.device


@dataclass
class _State:
    """What a checkpoint holds beside weights and optimiser."""

    step: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    loss_steps: int = 0


def train_step(
    model: nn.Module,
    method: Method,
    optimizer: Optimizer,
    inputs: Tensor,
    target: Tensor,
    recipe: Recipe,
    chunk: int,
) -> Tensor:
    """One optimiser step.

    The limit of the gradient's norm holds for the mean over members: for the sum that the loss is,
    it is as many times the recipe's as members took part. So it leaves the sum of gradients alone
    that it would leave alone one by one, and bounds no method more tightly for having members.

    Args:
        model: gives member logits.
        method: its loss must be a sum over members.
        optimizer: takes the step.
        inputs: normalised ``[B, C, H, W]``.
        target: ``[B]``.
        recipe: precision and gradient clipping.
        chunk: members forward and backward at a time; 0 for all at once.

    Returns:
        the loss, detached, a scalar on the device.
    """
    optimizer.zero_grad(set_to_none=True)
    total, summed = _backward_all(model, method, inputs, target, recipe, chunk)
    if recipe.gradient_clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_clip * summed)
    optimizer.step()
    return total


def _backward_all(
    model: nn.Module, method: Method, inputs: Tensor, target: Tensor, recipe: Recipe, chunk: int
) -> tuple[Tensor, int]:
    """The gradients of a step; its loss, and how many members that is a sum over."""
    penalty = method.penalty(model)
    members = method.members
    if not chunk or chunk >= members:
        with _precision(recipe, inputs.device):
            logits = model(inputs)
        loss = method.loss(model, logits.float(), target)
        if penalty is not None:
            loss = loss + penalty
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), logits.shape[1]
    total = inputs.new_zeros(())
    if penalty is not None:
        penalty.backward()  # type: ignore[no-untyped-call]
        total = total + penalty.detach()
    for first in range(0, members, chunk):
        with _precision(recipe, inputs.device):
            logits = model(inputs, members=slice(first, min(first + chunk, members)))
        loss = method.loss(model, logits.float(), target)
        loss.backward()  # type: ignore[no-untyped-call]
        total = total + loss.detach()
    return total, members


def _precision(recipe: Recipe, device: torch.device) -> AbstractContextManager[Any]:
    if recipe.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def train(session: Session) -> float:
    """Train one network to the end of its plan, from its last checkpoint when there is one.

    Returns:
        device seconds of its steps, those before an interruption included.

    Raises:
        NonFiniteLoss: names the step and the learning rate.
        RuntimeError: out of memory; names the batch size.
    """
    model, recipe, plan, device = session.model, session.recipe, session.plan, session.device
    optimizer = make_optimizer(session.method, model, recipe)
    state = _resume(session, optimizer)
    session.resumed(state.step)
    order = DataOrder(
        len(session.labels),
        recipe.batch_size,
        derive_seed(session.seed, "order", session.network),
    )
    model.train()
    saved = clock = now(device)
    check_every = CHECK_EVERY.get(device.type, 1)
    pending: list[Tensor] = []
    while state.step < plan.steps:
        rate = schedule_factor(recipe, state.step, plan.steps)
        set_learning_rate(optimizer, rate)
        torch.manual_seed(derive_seed(session.seed, "step", session.network, state.step))
        pending.append(_one_step(session, optimizer, order.batch(state.step).to(device)))
        state.step += 1
        end_of_epoch = _epoch_ends(state.step, session)
        if state.step % check_every and not end_of_epoch and state.step < plan.steps:
            continue
        _account(state, pending, recipe.learning_rate * rate)
        pending = []
        tick = now(device)
        state.seconds += tick - clock
        session.report(_tick(session, state, recipe.learning_rate * rate, end_of_epoch))
        if end_of_epoch:
            state.loss_sum, state.loss_steps = 0.0, 0
        if tick - saved >= session.checkpoint_seconds or state.step == plan.steps:
            _save(session, optimizer, state)
            saved = now(device)
        clock = now(device)
    return state.seconds


def _one_step(session: Session, optimizer: Optimizer, index: Tensor) -> Tensor:
    inputs = session.task.normalise(augment(session.inputs[index], session.recipe.augment))
    try:
        return train_step(
            session.model,
            session.method,
            optimizer,
            inputs,
            session.labels[index],
            session.recipe,
            session.plan.member_chunk,
        )
    except torch.OutOfMemoryError as error:
        raise RuntimeError(
            f"out of device memory with recipe.batch_size={session.recipe.batch_size} and "
            f"member_chunk={session.plan.member_chunk or 'all'}: lower one of them"
        ) from error


def _account(state: _State, losses: list[Tensor], rate: float) -> None:
    """Add the losses since the last look, and stop at the first that is no number."""
    first = state.step - len(losses)
    for offset, loss in enumerate(torch.stack(losses).tolist()):
        if not math.isfinite(loss):
            raise NonFiniteLoss(
                f"loss is {loss} at step {first + offset + 1}, learning rate {rate:.4g}: "
                f"lower recipe.learning_rate or set recipe.gradient_clip"
            )
        state.loss_sum += loss
        state.loss_steps += 1


def _epoch_ends(step: int, session: Session) -> bool:
    """Whether the step just done ended an epoch, or the training."""
    size, samples = session.recipe.batch_size, len(session.labels)
    return step * size // samples > (step - 1) * size // samples or step == session.plan.steps


def _tick(session: Session, state: _State, rate: float, epoch_end: bool) -> Tick:
    shown = state.step * session.recipe.batch_size
    return Tick(
        network=session.network,
        networks=session.plan.networks,
        step=state.step,
        steps=session.plan.steps,
        epoch=shown / len(session.labels),
        loss=state.loss_sum / state.loss_steps,
        learning_rate=rate,
        images_per_second=shown / max(state.seconds, 1e-9),
        seconds=state.seconds,
        epoch_end=epoch_end,
    )


def _save(session: Session, optimizer: Optimizer, state: _State) -> None:
    weights = {f"model.{name}": value for name, value in session.model.state_dict().items()}
    save_tensors(session.checkpoint, weights | optimizer_tensors(optimizer), vars(state))


def _resume(session: Session, optimizer: Optimizer) -> _State:
    """Put back the last checkpoint; one that is damaged is named, and the network starts anew."""
    try:
        tensors, state = load_tensors(session.checkpoint)
    except FileNotFoundError:
        return _State()
    except Damaged as damage:
        session.note(f"{damage}: network {session.network} starts anew")
        return _State()
    weights = {key[6:]: value for key, value in tensors.items() if key.startswith("model.")}
    try:
        session.model.load_state_dict(weights)
    except RuntimeError as error:
        line = str(error).splitlines()[0]
        session.note(f"{session.checkpoint}: of another model ({line}): starts anew")
        return _State()
    restore_optimizer(
        optimizer, {key: value for key, value in tensors.items() if key.startswith("optimizer.")}
    )
    return _State(**state)
