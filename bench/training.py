"""The one training loop. Every method goes through it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bench.budget import Plan
from bench.data.batches import Batch, Drawing, training_batches
from bench.data.task import Inputs, Task
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
from bench.ranks import ALONE, Ranks
from bench.recipe import Recipe
from bench.seeding import derive_seed
from bench.step import train_step as train_step
from bench.weights import load_tensors, save_tensors

CHECK_EVERY = {"cpu": 1, "cuda": 20}
"""Steps between looks at the loss; each look waits for the device, which costs time on a GPU."""

STATISTICS = "statistics"
"""Name in a checkpoint of every process's running statistics, ``[world, n]``."""


class NonFiniteLoss(RuntimeError):
    """The loss is no longer a number; the message says where."""


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
        task: the data; `inputs` and `labels` are its training split, on the device but for inputs
            that are read when asked for.
        recipe: how.
        plan: how long.
        seed: the run's seed.
        network: index among the plan's networks; each has its own data order and randomness.
        checkpoint: the file of the resumable state.
        checkpoint_seconds: time between two states; a run loses at most this much.
        report: called with a `Tick` after each look at the loss.
        note: called with a line about a damaged checkpoint.
        resumed: called with the step at which training starts or goes on.
        loaders: processes that read inputs ahead; None chooses.
        ranks: the processes that train the network together; each has a session of its own.
    """

    model: nn.Module
    method: Method
    task: Task
    recipe: Recipe
    plan: Plan
    seed: int
    network: int
    inputs: Inputs
    labels: Tensor
    checkpoint: Path
    checkpoint_seconds: float
    report: Callable[[Tick], None]
    note: Callable[[str], None]
    resumed: Callable[[int], None]
    loaders: int | None = None
    ranks: Ranks = ALONE

    @property
    def device(self) -> torch.device:
        """Where the model is, and the batches are."""
        return self.labels.device

    @property
    def drawing(self) -> Drawing:
        """What decides over its batches."""
        size = self.recipe.batch_size
        share = self.ranks.share(size)
        return Drawing(self.seed, self.network, size, self.recipe.augment, share)


@dataclass
class _State:
    """What a checkpoint holds beside weights and optimiser."""

    step: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    loss_steps: int = 0


def train(session: Session) -> float:
    """Train one network to the end of its plan, from its last checkpoint when there is one.

    Of several processes, each calls this; the model ends the same in all.

    Returns:
        seconds of its steps, those before an interruption included.

    Raises:
        NonFiniteLoss: names the step and the learning rate.
        RuntimeError: out of memory; names the batch size.
        UserError: an input can't be read.
    """
    model, recipe, plan, device = session.model, session.recipe, session.plan, session.device
    optimizer = make_optimizer(session.method, model, recipe)
    state = _resume(session, optimizer)
    session.resumed(state.step)
    steps = range(state.step, plan.steps)
    source = training_batches(
        session.inputs, session.labels, session.drawing, steps, session.loaders
    )
    model.train()
    saved = clock = now(device)
    check_every = CHECK_EVERY.get(device.type, 1)
    pending: list[Tensor] = []
    while state.step < plan.steps:
        rate = schedule_factor(recipe, state.step, plan.steps)
        set_learning_rate(optimizer, rate)
        pending.append(_one_step(session, optimizer, source.batch(state.step), state.step))
        state.step += 1
        end_of_epoch = _epoch_ends(state.step, session)
        if state.step % check_every and not end_of_epoch and state.step < plan.steps:
            continue
        due = now(device) - saved >= session.checkpoint_seconds
        due = _account(session, state, pending, recipe.learning_rate * rate, due)
        pending = []
        tick = now(device)
        state.seconds += tick - clock
        session.report(_tick(session, state, recipe.learning_rate * rate, end_of_epoch))
        if end_of_epoch:
            state.loss_sum, state.loss_steps = 0.0, 0
        if due or state.step == plan.steps:
            _save(session, optimizer, state)
            saved = now(device)
        clock = now(device)
    return state.seconds


def _one_step(session: Session, optimizer: Optimizer, batch: Batch, step: int) -> Tensor:
    ranks, recipe = session.ranks, session.recipe
    if ranks.rank:
        # Each process drops out other units; the first does as one process alone.
        torch.manual_seed(derive_seed(session.seed, "step", session.network, step, ranks.rank))
    inputs, target = batch
    try:
        return train_step(
            session.model,
            session.method,
            optimizer,
            session.task.normalise(inputs),
            target,
            recipe,
            session.plan.member_chunk,
            ranks,
        )
    except torch.OutOfMemoryError as error:
        raise RuntimeError(
            f"out of device memory with recipe.batch_size={recipe.batch_size}, accumulate="
            f"{recipe.accumulate}, devices={recipe.devices} and member_chunk="
            f"{session.plan.member_chunk or 'all'}: raise accumulate, or lower one of the others"
        ) from error


def _account(session: Session, state: _State, losses: list[Tensor], rate: float, due: bool) -> bool:
    """Add the losses since the last look, means over processes; stop at the first that is none.

    Returns:
        whether a checkpoint is due by the clock of the first process, which decides for all.
    """
    asked = losses[0].new_tensor(float(due and session.ranks.rank == 0))
    *values, wanted = session.ranks.mean(torch.stack([*losses, asked])).tolist()
    first = state.step - len(losses)
    for offset, loss in enumerate(values):
        if not math.isfinite(loss):
            raise NonFiniteLoss(
                f"loss is {loss} at step {first + offset + 1}, learning rate {rate:.4g}: "
                f"lower recipe.learning_rate or set recipe.gradient_clip"
            )
        state.loss_sum += loss
        state.loss_steps += 1
    return bool(wanted > 0)


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


def _statistics(model: nn.Module) -> list[Tensor]:
    """The buffers that a forward pass may change: running statistics, mostly."""
    return [buffer for buffer in model.buffers() if buffer.is_floating_point()]


def _put_statistics(model: nn.Module, values: Tensor) -> None:
    """Set the buffers of `_statistics` to values ``[n]``."""
    first = 0
    for buffer in _statistics(model):
        part = values[first : first + buffer.numel()]
        buffer.copy_(part.view_as(buffer))
        first += buffer.numel()


def _save(session: Session, optimizer: Optimizer, state: _State) -> None:
    """Write the state; at the end of the training, one that is the same in all processes.

    Running statistics are exponential means of batch statistics, and a mean over processes may be
    taken before or after: it is taken once, after the last step. Until then a checkpoint holds
    those of every process, so that a training that goes on from it gives the same bits.
    """
    extra: dict[str, Tensor] = {}
    buffers = _statistics(session.model)
    if session.ranks.world > 1 and buffers:
        flat = torch.cat([buffer.detach().double().flatten() for buffer in buffers])
        gathered = session.ranks.gather(flat)
        if state.step == session.plan.steps:
            mean = gathered.mean(dim=0)
            _put_statistics(session.model, mean)
            gathered = mean.expand_as(gathered)
        extra[STATISTICS] = gathered
    if session.ranks.rank:
        return
    weights = {f"model.{name}": value for name, value in session.model.state_dict().items()}
    tensors = weights | optimizer_tensors(optimizer) | extra
    save_tensors(session.checkpoint, tensors, vars(state))


def _resume(session: Session, optimizer: Optimizer) -> _State:
    """Put back the last checkpoint; one that is damaged is named, and the network starts anew."""
    try:
        tensors, state = load_tensors(session.checkpoint)
    except FileNotFoundError:
        return _State()
    except Damaged as damage:
        session.note(f"{damage}: network {session.network} starts anew")
        return _State()
    fresh = {name: value.clone() for name, value in session.model.state_dict().items()}
    try:
        found = _State(**state)
        session.model.load_state_dict(checkpoint_weights(tensors))
        if STATISTICS in tensors:
            _put_statistics(session.model, tensors[STATISTICS][session.ranks.rank])
        moments = {key: value for key, value in tensors.items() if key.startswith("optimizer.")}
        restore_optimizer(optimizer, moments)
    except (RuntimeError, TypeError, ValueError, LookupError) as error:
        # What did fit is loaded already.
        session.model.load_state_dict(fresh)
        line = str(error).partition("\n")[0]
        session.note(f"{session.checkpoint}: of another model ({line}): starts anew")
        return _State()
    return found


def checkpoint_weights(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The model's part of a checkpoint."""
    return {key[6:]: value for key, value in tensors.items() if key.startswith("model.")}
