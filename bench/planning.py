"""What a run will do before it does it: the model, its costs, its steps, its chunks of members."""

from __future__ import annotations

import copy
import statistics
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from bench.backbones import architecture, create_backbone, is_pretrained
from bench.budget import Plan, plan_steps
from bench.combine import OneMember
from bench.data.lazy import RESIZED_CROP, Viewed
from bench.data.task import Task
from bench.device import now
from bench.errors import NotApplicable, UserError
from bench.flops import count_flops
from bench.method import Method
from bench.optimise import make_optimizer
from bench.seeding import derive_seed
from bench.step import train_step
from bench.suite import RunSpec

TIMED_STEPS = 5
"""Steps whose median is the step time, after as many for warm-up."""


READ = 8
"""Images of a set on disk that stand for a whole batch: their content costs nothing."""


ODD_BATCHES = (11, 13)
"""Sizes of trial batches: primes, which no number of tokens, windows or members is by chance."""


def check_recipe(spec: RunSpec, task: Task) -> None:
    """Refuse augmentations that the task's inputs can't have.

    Raises:
        UserError: names them, and what would be right.
    """
    names = spec.recipe.augment
    place = f"task {spec.task.name}: recipe.augment"
    if task.is_text and names:
        raise UserError(f"{place}: {', '.join(names)} can't be done to texts: set augment: []")
    if RESIZED_CROP not in names:
        return
    if not isinstance(task.train.inputs, Viewed):
        raise UserError(
            f"{place}: {RESIZED_CROP} needs photographs that are read from disk in their own size; "
            "these are in memory, resized already: use crop or shift"
        )
    if names.index(RESIZED_CROP) or names.count(RESIZED_CROP) > 1:
        raise UserError(f"{place}: {RESIZED_CROP} must come first, and once")


def build_network(
    spec: RunSpec, method: Method, task: Task, index: int, data: Path | None = None
) -> nn.Module:
    """Network `index` of a run, before training; the same backbone for every method of a seed.

    Args:
        spec: the run.
        method: its method.
        task: its data.
        index: among the networks that the method trains apart.
        data: the data folder, where files of pretrained weights lie.

    Raises:
        NotApplicable: the method can't treat the backbone.
    """
    torch.manual_seed(derive_seed(spec.seed, "init", index))
    network = create_backbone(spec.backbone, task.num_classes, task.input_shape, data)
    if is_pretrained(spec.backbone):
        return method.convert(network, task.num_classes)
    reason = method.supports(network)
    if reason is not None:
        raise NotApplicable(reason)
    return method.build(network, task.num_classes)


def make_plan(
    spec: RunSpec,
    method: Method,
    task: Task,
    model: nn.Module,
    device: torch.device,
    data: Path | None = None,
) -> Plan:
    """How many steps the budget buys, and in which chunks of members they are taken.

    Raises:
        UserError: see `check_recipe`.
        NotApplicable: see `check_batches`.
    """
    check_recipe(spec, task)
    check_batches(model, task)
    recipe = spec.recipe
    chunk = 0
    if method.separable and not method.independent and method.members > 1:
        chunk = choose_chunk(model, method, task, spec, device)
    step_flops = training_flops(model, method, task, spec)
    single = create_backbone(architecture(spec.backbone), task.num_classes, task.input_shape, data)
    single_model = OneMember(single)
    reference = _PlainSingle()
    if spec.budget.match == "device_seconds":
        step_cost = step_seconds(model, method, task, spec, device, chunk)
        single_cost = step_seconds(single_model, reference, task, spec, device, 0)
    else:
        step_cost = float(step_flops)
        single_cost = float(training_flops(single_model, reference, task, spec))
    return plan_steps(
        spec.budget,
        networks=method.members if method.independent else 1,
        samples=len(task.train),
        batch_size=recipe.batch_size,
        step_cost=step_cost,
        single_step_cost=single_cost,
        step_flops=step_flops,
        member_chunk=chunk,
    )


class _PlainSingle(Method):
    """The reference of every budget: one network, cross-entropy."""

    name = "plain"
    members: Literal[1] = 1

    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        return OneMember(backbone)


def _one_batch(task: Task, size: int) -> tuple[Tensor, Tensor]:
    """A batch of samples from all over the training set; one that is smaller is repeated.

    Its first samples could be all of one class, or the shortest texts.
    """
    inputs, samples = task.train.inputs, len(task.train)
    index = torch.arange(size) * max(1, samples // size) % samples
    if isinstance(inputs, Tensor):
        return task.normalise(inputs[index]), task.train.labels[index]
    few = index[: min(size, READ)]
    images = inputs[few].repeat(-(-size // len(few)), 1, 1, 1)[:size]
    return task.normalise(images), task.train.labels[index]


def training_flops(model: nn.Module, method: Method, task: Task, spec: RunSpec) -> int:
    """FLOPs of one training step, forward and backward, all members."""
    inputs, target = _one_batch(task, spec.recipe.batch_size)

    def step(ghost: nn.Module, batch: Tensor) -> None:
        ghost.train()
        method.loss(ghost, ghost(batch), target.to(batch.device)).backward()  # type: ignore[no-untyped-call]

    return count_flops(model, inputs, step)


def inference_flops(model: nn.Module, task: Task) -> int:
    """FLOPs of the prediction of one sample, all members.

    A text is one of the test split's mean length.
    """

    def predict(ghost: nn.Module, batch: Tensor) -> None:
        with torch.no_grad():
            ghost.eval()(batch)

    return count_flops(model, _one_sample(task), predict)


def _one_sample(task: Task) -> Tensor:
    """What a model takes of the test split; where lengths differ, one of mean length, rounded."""
    inputs = task.test.inputs
    if not task.is_text:
        return task.normalise(inputs[:1])
    used = inputs[:] != task.pad
    lengths = torch.arange(1, used.shape[1] + 1).mul(used).amax(dim=1)
    return inputs[:1][:, : max(1, round(float(lengths.double().mean())))]


def check_batches(model: nn.Module, task: Task) -> None:
    """Refuse a model that takes another axis than the first for samples.

    Where a layer's rows are tokens, say, as many of them as samples times members would be taken
    for these without a word, and members would mix. So batches are tried whose size nothing else
    has; only shapes are computed.

    Raises:
        NotApplicable: a layer refuses such a batch; the message is its own.
    """
    inputs, _ = _one_batch(task, max(ODD_BATCHES))
    ghost = copy.deepcopy(model).to("meta").eval()
    try:
        with torch.no_grad():
            for size in ODD_BATCHES:
                ghost(inputs[:size].to("meta"))
    except ValueError as error:
        raise NotApplicable(" ".join(str(error).split())) from error


def step_seconds(
    model: nn.Module,
    method: Method,
    task: Task,
    spec: RunSpec,
    device: torch.device,
    chunk: int,
    repeats: int = TIMED_STEPS,
) -> float:
    """Median seconds of a training step, after warm-up; the model is left untouched.

    Of several devices, one is timed, with its share of the batch; the seconds are those of all.
    What they say to each other is not timed.
    """
    devices = spec.recipe.devices
    trial = copy.deepcopy(model).to(device).train()
    optimizer = make_optimizer(method, trial, spec.recipe)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    batch = _one_batch(task, spec.recipe.batch_size // devices)
    inputs, target = (part.to(device) for part in batch)
    times = []
    for _ in range(2 * repeats):
        start = now(device)
        train_step(trial, method, optimizer, inputs, target, spec.recipe, chunk)
        times.append(now(device) - start)
    return devices * statistics.median(times[repeats:])


def choose_chunk(
    model: nn.Module, method: Method, task: Task, spec: RunSpec, device: torch.device
) -> int:
    """Members a step takes at a time: as asked, or the fastest of M, M/2, M/4, …, 1.

    A network that draws at random would draw differently for other chunks, so it is trained whole.
    """
    asked, members = spec.recipe.member_chunk, method.members
    if asked != "auto":
        return min(asked, members)
    if _draws(model, task, spec, device):
        return members
    sizes: list[int] = []
    while not sizes or sizes[-1] > 1:
        sizes.append(-(-members // 2 ** len(sizes)))
    seconds = {
        size: step_seconds(model, method, task, spec, device, size, repeats=2) for size in sizes
    }
    return min(sizes, key=seconds.__getitem__)


def _draws(model: nn.Module, task: Task, spec: RunSpec, device: torch.device) -> bool:
    """Whether a forward pass draws while training, be it in a layer or in a function."""
    trial = copy.deepcopy(model).to(device).train()
    generator = torch.cuda.get_rng_state if device.type == "cuda" else _cpu_state
    size = -(-spec.recipe.batch_size // (spec.recipe.devices * spec.recipe.accumulate))
    before = generator(device)
    with torch.no_grad():
        trial(_one_batch(task, size)[0].to(device))
    return not torch.equal(before, generator(device))


def _cpu_state(_: torch.device) -> Tensor:
    return torch.get_rng_state()
