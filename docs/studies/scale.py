"""Print what the paper's suites cost, and measure ten thousand stored runs; see docs/scale.md.

Usage: python docs/studies/scale.py cost            FLOPs and device hours of the suites that ship
       python docs/studies/scale.py files           files and bytes that one run leaves
       python docs/studies/scale.py folders [N ...] time of status, tables and so on with N runs
       python docs/studies/scale.py samples [N ...] time of tables of 1,000 runs with N test samples
       python docs/studies/scale.py locks           operations and time of the lock of a run
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from torch import nn

from bench.backbones import create_backbone
from bench.files import write_records
from bench.flops import count_flops
from bench.locks import FolderLock
from bench.metrics.calibration import classwise_bins
from bench.metrics.records import log_mean_probabilities, sample_records
from bench.metrics.summary import summarise
from bench.slurm.submissions import SlurmFolder
from bench.store import SuiteFolder
from bench.suite import RunSpec
from bench.suite_files import load_suite

SUITES = (
    *("cifar10", "cifar100", "imagenet", "sst2", "members", "temperature", "strength"),
    *("layers", "pretrained"),
)
TASKS = {
    # task: classes, input shape, training samples, samples evaluated
    # (test, official corruptions of 5 severities, outliers; docs/data.md)
    "cifar10": (10, (3, 32, 32), 45_000, 10_000 * (1 + 19 * 5) + 60_000),
    "cifar100": (100, (3, 32, 32), 45_000, 10_000 * (1 + 19 * 5) + 60_000),
    "imagenet": (1000, (3, 224, 224), 1_256_167, 50_000 * (1 + 19 * 5) + 60_000),
    "sst2": (2, (128,), 67_349, 872 * (1 + 4 * 5) + 5_000),
}
SUSTAINED = 25e12
"""FLOPs a second of one A100 in training, as assumed: 16 % of its 156 TFLOP/s in TF32."""


def cost() -> None:
    """One row a suite: runs, FLOPs of a run, device hours."""
    print("| suite | runs | FLOPs of a run, least and most | evaluation | A100 hours |")
    print("|---|---|---|---|---|")
    totals = [0, 0.0]
    for name in SUITES:
        runs = load_suite(name, scale="paper").runs()
        training = [_training_flops(run) for run in runs]
        evaluation = [_evaluation_flops(run) for run in runs]
        hours = (sum(training) + sum(evaluation)) / SUSTAINED / 3600
        share = sum(evaluation) / (sum(training) + sum(evaluation))
        totals[0] += len(runs)
        totals[1] += hours
        print(
            f"| {name} | {len(runs)} | {min(training):.2g} to {max(training):.2g} "
            f"| {share:.0%} | {hours:,.0f} |"
        )
    print(f"| all | {totals[0]} | | | {totals[1]:,.0f} |")


_counted: dict[tuple[str, str], tuple[float, float]] = {}


def _sample_flops(run: RunSpec) -> tuple[float, float]:
    """FLOPs of a training step and of a forward pass of a single network, per sample."""
    key = (run.task.name, run.backbone.partition("@")[0])
    if key not in _counted:
        classes, shape, *_ = TASKS[run.task.name]
        network = _network(key[1], classes, shape)
        batch = torch.zeros(4, *shape) if len(shape) == 3 else torch.ones(4, *shape).long()
        step = count_flops(network, batch, lambda model, x: _logits(model, x).sum().backward())
        forward = count_flops(network, batch, _without_gradient)
        _counted[key] = step / 4, forward / 4
    return _counted[key]


def _network(name: str, classes: int, shape: tuple[int, ...]) -> nn.Module:
    if not name.startswith("hf:"):
        return create_backbone(name, classes, shape)
    from transformers import BertConfig, BertForSequenceClassification

    # The default configuration is that of bert-base-uncased.
    network: nn.Module = BertForSequenceClassification(BertConfig(num_labels=classes))
    return network


def _logits(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    answer = model(batch)
    logits: torch.Tensor = answer if isinstance(answer, torch.Tensor) else answer.logits
    return logits


def _without_gradient(model: nn.Module, batch: torch.Tensor) -> None:
    with torch.no_grad():
        _logits(model, batch)


def _training_flops(run: RunSpec) -> float:
    """What the budget grants: as much as so many single networks, for every method."""
    samples = TASKS[run.task.name][2]
    return run.budget.networks * run.budget.epochs * samples * _sample_flops(run)[0]


def _evaluation_flops(run: RunSpec) -> float:
    """Of a method that computes all its members apart: the most that any takes."""
    members = int(run.parameters.get("members", 1))
    return members * TASKS[run.task.name][3] * _sample_flops(run)[1]


def files() -> None:
    """What a run leaves, by kind: bytes for each sample, and for a parameter."""
    with tempfile.TemporaryDirectory() as folder:
        for classes in (10, 1000):
            path = Path(folder) / "test.parquet"
            write_records(path, _records(5000, 4, classes, seed=0))
            print(f"{classes} classes: {path.stat().st_size / 5000:.0f} bytes of records a sample")
        suite, spec = _make_suite(Path(folder), 1)
        _store(SuiteFolder(Path(folder), suite), spec, *_one_run(spec))
        for path in sorted(Path(folder).rglob("*.json")):
            print(f"{path.name}: {path.stat().st_size} bytes")
    print("model.safetensors: 4 bytes a parameter; checkpoint: 8 with SGD, 12 with AdamW")


def _records(samples: int, members: int, classes: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, samples)
    logits = rng.normal(size=(samples, members, classes))
    logits[np.arange(samples), :, labels] += 4
    columns = sample_records(torch.from_numpy(logits), torch.from_numpy(labels), temperature=1.3)
    frame = pd.DataFrame({name: values.numpy() for name, values in columns.items()})
    frame.insert(0, "index", range(samples))
    return frame


def _one_run(spec: RunSpec, samples: int = 200) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Metrics and records as a run would store them, of random predictions."""
    frames = {
        name: _records(samples, 4, 10, seed) for seed, name in enumerate(("validation", "test"))
    }
    shift = [
        _records(20, 4, 10, 10 * kind + severity).assign(corruption=name, severity=severity)
        for kind, name in enumerate(("blur", "noise"))
        for severity in range(1, 6)
    ]
    ood = _records(50, 4, 10, 99).assign(source="faces", distance="far", label=-1)
    frames |= {"shift": pd.concat(shift, ignore_index=True), "ood": ood}
    rng = np.random.default_rng(0)
    probabilities = log_mean_probabilities(torch.from_numpy(rng.normal(size=(50, 4, 10)))).exp()
    bins = classwise_bins(probabilities.numpy(), np.arange(50) % 10)
    scores = summarise({**frames, "classwise": {"test": bins}, "temperature": 1.3})
    costs = {
        "members": 4,
        "parameters": 11_000_000,
        "networks": 1,
        "steps": 1000,
        "step_flops": 1000,
        "train_flops": 10**6,
        "budget_match": "train_flops",
        "budget_units": 1e6,
        "budget_spent": 1e6,
        "budget_deviation": 0.0,
        "device_seconds": 1.0,
        "train_images_per_second": 1.0,
        "inference_flops": 1000,
        "inference_images_per_second": 1.0,
        "device": "cpu",
    }
    task = {
        "num_classes": 10,
        "class_names": [f"class {index}" for index in range(10)],
        "shift_origin": "generated",
        "notes": [],
        "samples": {"train": 1000, "validation": samples, "test": samples},
    }
    return {"task": task, **scores, "cost": costs}, frames


def _store(
    folder: SuiteFolder, spec: RunSpec, metrics: dict[str, Any], frames: dict[str, pd.DataFrame]
) -> None:
    run = folder.run(spec)
    run.start({"python": "3.11", "packages": {"torch": "2.5"}, "device": "cpu"})
    for split, frame in frames.items():
        write_records(run.records_path(split), frame)
    run.finish(metrics, list(frames))


def _make_suite(folder: Path, runs: int) -> tuple[str, RunSpec]:
    """A suite of so many runs: settings of σN-Ens, ten seeds each; its first run."""
    settings = max(1, runs // 10)
    content = {
        "name": f"many{runs}",
        "tasks": ["digits"],
        "backbones": ["resnet8"],
        "methods": [
            {"name": "sigma_nens", "grid": {"strength": [i / 1000 for i in range(settings)]}}
        ],
        "seeds": list(range(min(runs, 10))),
        "budget": {"match": "train_flops", "networks": 4, "epochs": 10},
    }
    path = folder / f"many{runs}.yaml"
    path.write_text(yaml.safe_dump(content))
    return f"many{runs}", load_suite(str(path)).runs()[0]


def folders(counts: list[int]) -> None:
    """One row a verb, one column a count: seconds of processor time, start-up included."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        rows: dict[str, list[float]] = {}
        for count in counts:
            for verb, seconds in _times(folder, count):
                rows.setdefault(verb, []).append(seconds)
    print("| | " + " | ".join(f"{count:,} runs" for count in counts) + " |")
    print("|---|" + "---|" * len(counts))
    for verb, times in rows.items():
        print(f"| {verb} | " + " | ".join(f"{seconds:.2f} s" for seconds in times) + " |")


def _times(folder: Path, count: int) -> Iterator[tuple[str, float]]:
    suite, first = _make_suite(folder, count)
    file = folder / f"{suite}.yaml"
    specs = load_suite(str(file)).runs()
    place = SuiteFolder(folder / "results", suite)
    _fill(place, specs, first)
    yield "expand the matrix", _seconds(lambda: load_suite(str(file)).runs())
    jobs = SlurmFolder(place.path)
    for start in range(0, count, 1000):
        jobs.announce(suite, [[spec] for spec in specs[start : start + 1000]], {})
    yield "read the list of jobs", _seconds(jobs.submissions)
    jobs.ledger.unlink()
    _interrupt(place, specs[: count // 10])
    yield "`status`", _seconds(lambda: _verb("status", file))
    yield "`tables`", _seconds(lambda: _verb("tables", file))


def samples(counts: list[int]) -> None:
    """Seconds of processor time of `tables` over 1,000 runs, by test samples of each."""
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            os.chdir(name)
            suite, first = _make_suite(Path(name), 1000)
            file = Path(name) / f"{suite}.yaml"
            specs = load_suite(str(file)).runs()
            _fill(SuiteFolder(Path(name) / "results", suite), specs, first, count)
            seconds = _seconds(partial(_verb, "tables", file))
            print(f"{count:,} test samples: {seconds:.2f} s")


def _fill(place: SuiteFolder, specs: list[RunSpec], first: RunSpec, samples: int = 200) -> None:
    """Store all runs as done, with the same records; fsync is left out, as it is not measured."""
    metrics, frames = _one_run(first, samples)
    _store(place, first, metrics, frames)
    source = place.run(first)
    content = source.metrics()
    assert content is not None
    sync = os.fsync
    os.fsync = lambda fd: None
    try:
        for spec in specs[1:]:
            run = place.run(spec)
            run.start({"python": "3.11", "packages": {"torch": "2.5"}, "device": "cpu"})
            (run.path / "records").mkdir()
            for split in frames:
                os.link(source.records_path(split), run.records_path(split))
            run.finish({k: v for k, v in content.items() if k not in ("run", "files")}, [*frames])
            (run.path / "lock.1.free").write_text("{}")
    finally:
        os.fsync = sync


def _interrupt(place: SuiteFolder, specs: list[RunSpec]) -> None:
    """Let a part of the runs be unfinished, with a claim of another machine that beats no more."""
    claim = json.dumps({"host": "node7", "machine": "another", "pid": 1, "job": "7_1"})
    for spec in specs:
        run = place.run(spec)
        run.metrics_path.unlink()
        (run.path / "lock.2").write_text(claim)
        os.utime(run.path / "lock.2", (1, 1))


def _verb(verb: str, file: Path) -> None:
    words = [sys.executable, "-m", "bench", verb, str(file)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def _seconds(work: Callable[[], object]) -> float:
    """Processor seconds of this process and its children: other load does not count."""
    before = sum(os.times()[:4])
    work()
    return sum(os.times()[:4]) - before


def locks() -> None:
    """Time of taking and freeing a run folder, and of looking who has it."""
    rounds = 200
    with tempfile.TemporaryDirectory() as folder:
        lock = FolderLock(Path(folder))

        def take() -> None:
            for _ in range(rounds):
                with lock.hold():
                    pass

        def watch() -> None:
            for _ in range(rounds):
                lock.holder()

        for name, work in (("take and free", take), ("look", watch)):
            start = time.perf_counter()
            work()
            print(f"{name}: {(time.perf_counter() - start) / rounds * 1e3:.2f} ms")


def main() -> None:
    """Do what the first argument says."""
    verb, *rest = sys.argv[1:] or ["help"]
    if verb == "cost":
        cost()
    elif verb == "files":
        files()
    elif verb == "folders":
        folders([int(word) for word in rest] or [1000, 3000, 10_000])
    elif verb == "samples":
        samples([int(word) for word in rest] or [200, 1000, 10_000])
    elif verb == "locks":
        locks()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
