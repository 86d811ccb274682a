"""Small trainings, by one process or as one of two: ``python two_ranks.py RANK FOLDER``."""

import sys
from pathlib import Path

import torch
from torch import nn

from baselines.sigma_nens import SigmaNEns
from baselines.single import Single
from bench.budget import Plan
from bench.data.task import Split, Task
from bench.ranks import ALONE
from bench.recipe import Recipe
from bench.training import Session, train
from bench.weights import save_tensors

SAMPLES, CLASSES, STEPS = 20, 3, 5


def network(kind):
    """A small network with one kind of normalisation."""
    norms = {
        "group": (nn.GroupNorm(2, 8), nn.GroupNorm(2, 8)),
        "layer": (nn.LayerNorm([8, 6, 6]), nn.LayerNorm([8, 4, 4])),
        "batch": (nn.BatchNorm2d(8), nn.BatchNorm2d(8)),
    }[kind]
    return nn.Sequential(
        nn.Conv2d(1, 8, 3),
        norms[0],
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        norms[1],
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, CLASSES),
    )


# Name -> kind of normalisation, members (0: a single network), member chunk, recipe.
SCENARIOS = {
    "layer": ("layer", 0, 0, {}),
    "group": ("group", 0, 0, {"gradient_clip": 0.05}),
    "sigma_all": ("group", 4, 0, {}),
    "sigma_layer_1": ("layer", 4, 1, {}),
    "sigma_1": ("group", 4, 1, {"gradient_clip": 0.05}),
    "sigma_3": ("group", 4, 3, {}),
    "accumulate": ("group", 0, 0, {"accumulate": 3}),
    "sigma_1_accumulate": ("group", 4, 1, {"accumulate": 3}),
    "batch": ("batch", 0, 0, {"augment": ()}),
}


def make_task():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (SAMPLES, 1, 8, 8), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(0, CLASSES, (SAMPLES,), generator=generator))
    return Task(
        name="noise",
        class_names=("a", "b", "c"),
        train=split,
        validation=split,
        test=split,
        mean=(0.5,),
        std=(0.3,),
        shifts=(),
        shift_origin="generated",
        outliers=(),
        load_shift=lambda shift: split,
        load_outlier=lambda outlier: split,
    )


def make_session(name, folder, ranks, report=lambda tick: None, **changes):
    kind, members, chunk, recipe = SCENARIOS[name]
    torch.manual_seed(1)
    method = SigmaNEns(members=members, strength=0.01) if members else Single()
    task = make_task()
    values = {"batch_size": 8, "learning_rate": 0.05, "augment": ("shift", "flip"), "warmup": 0}
    return Session(
        model=method.build(network(kind), CLASSES),
        method=method,
        task=task,
        recipe=Recipe(**{**values, **recipe, **changes}),
        plan=Plan(1, STEPS, 1, 1.0, 1.0, chunk),
        seed=0,
        network=0,
        inputs=task.train.inputs,
        labels=task.train.labels,
        checkpoint=folder / f"{name}.safetensors",
        checkpoint_seconds=1e9,
        report=report,
        note=lambda text: None,
        resumed=lambda step: None,
        ranks=ranks,
    )


def run(name, folder, ranks=ALONE, **changes):
    """The trained weights and the loss of each step."""
    losses = []
    job = make_session(name, folder, ranks, lambda tick: losses.append(tick.loss), **changes)
    train(job)
    return {**job.model.state_dict(), "losses": torch.tensor(losses)}


class Killed(Exception):
    pass


def run_twice(name, folder, ranks):
    """The trained weights, after a death in the middle."""

    def kill(tick):
        if tick.step == 3:
            raise Killed

    steps = []
    job = make_session(name, folder, ranks, kill, devices=2)
    job.checkpoint_seconds = 0
    job.resumed = steps.append
    try:
        train(job)
    except Killed:
        job = make_session(name, folder, ranks, devices=2)
        job.resumed = steps.append
        train(job)
    return {**job.model.state_dict(), "started": torch.tensor(steps)}


def main():
    from bench.distributed_rank import join

    torch.set_num_threads(1)
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    ranks = join(rank, 2, torch.device("cpu"), folder / "meeting")
    for name in SCENARIOS:
        state = run(name, folder / "checkpoints", ranks, devices=2)
        save_tensors(folder / f"{name}-{rank}.safetensors", state, {})
    state = run_twice("batch", folder / "resumed", ranks)
    save_tensors(folder / f"resumed-{rank}.safetensors", state, {})


if __name__ == "__main__":
    main()
