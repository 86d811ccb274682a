"""A suite with results: small random predictions, stored the way a run stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from bench.files import write_records
from bench.metrics.calibration import classwise_bins
from bench.metrics.records import log_mean_probabilities, sample_records
from bench.metrics.summary import summarise
from bench.store import SuiteFolder
from bench.suite import RunSpec, Suite

CLASSES = 5
TEST_SAMPLES = 80
ENVIRONMENT = {"python": "3.11.9", "packages": {"torch": "2.5.0"}, "device": "cpu"}
COST = {
    "members": 1,
    "parameters": 20_000,
    "networks": 1,
    "steps": 100,
    "step_flops": 2_000_000,
    "train_flops": 200_000_000,
    "budget_match": "train_flops",
    "budget_units": 200_000_000.0,
    "budget_spent": 200_000_000.0,
    "budget_deviation": 0.0,
    "device_seconds": 3.25,
    "train_images_per_second": 1000.5,
    "inference_flops": 40_000,
    "inference_images_per_second": 2500.0,
    "device": "cpu",
}
TASK = {
    "num_classes": CLASSES,
    "class_names": [f"class {index}" for index in range(CLASSES)],
    "shift_origin": "generated",
    "notes": ["The corruptions are generated & seeded."],
    "samples": {"train": 100, "validation": 40, "test": TEST_SAMPLES},
}
METHODS = [
    {"name": "single", "label": "single"},
    {"name": "deep_ensemble", "label": "deep_ensemble"},
    {"name": "batch_ensemble", "label": "σN-Ens (τ=0.2)"},
]


def make_suite(**changes: Any) -> Suite:
    content: dict[str, Any] = {
        "name": "tiny",
        "tasks": ["digits"],
        "backbones": ["resnet8"],
        "members": 3,
        "methods": METHODS,
        "seeds": [0, 1, 2],
        "budget": {"match": "train_flops", "networks": 4, "epochs": 10},
        "reference": "deep_ensemble",
    }
    return Suite.model_validate(content | changes)


def _predictions(
    rng: np.random.Generator, labels: np.ndarray, members: int, skill: float
) -> torch.Tensor:
    logits = rng.normal(size=(len(labels), members, CLASSES))
    known = np.flatnonzero(labels >= 0)
    logits[known, :, labels[known]] += skill
    return torch.from_numpy(logits)


def _split(
    rng: np.random.Generator, labels: np.ndarray, members: int, skill: float
) -> pd.DataFrame:
    logits = _predictions(rng, labels, members, skill)
    columns = sample_records(logits, torch.from_numpy(labels), temperature=1.3)
    frame = pd.DataFrame({name: values.numpy() for name, values in columns.items()})
    frame.insert(0, "index", range(len(labels)))
    return frame


def _labels(samples: int) -> np.ndarray:
    return np.arange(samples) % CLASSES


def synthetic_records(spec: RunSpec) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """The metrics and records of one run, from predictions that depend on its identity."""
    rng = np.random.default_rng(int(spec.id[-12:], 16))
    members = int(spec.parameters.get("members", 1))
    skill = 1.5 + 0.3 * members
    shifted = [
        _split(rng, _labels(20), members, skill - 0.3 * severity).assign(
            corruption=corruption, severity=severity
        )
        for corruption in ("blur", "noise")
        for severity in range(1, 6)
    ]
    outliers = [
        _split(rng, np.full(30, -1), members, 0).assign(source=name, distance=distance)
        for name, distance in (("faces", "far"), ("held_out", "near"))
    ]
    records = {
        "validation": _split(rng, _labels(40), members, skill),
        "test": _split(rng, _labels(TEST_SAMPLES), members, skill),
        "shift": pd.concat(shifted, ignore_index=True),
        "ood": pd.concat(outliers, ignore_index=True),
    }
    probabilities = log_mean_probabilities(_predictions(rng, _labels(40), members, skill)).exp()
    bins = classwise_bins(probabilities.numpy(), _labels(40))
    metrics = summarise({**records, "classwise": {"test": bins}, "temperature": 1.3})
    cost = COST | {"members": members, "device_seconds": 3.0 + 0.25 * spec.seed}
    return {"task": TASK, **metrics, "cost": cost}, records


def finish(
    folder: SuiteFolder, spec: RunSpec, change: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Store a run as done; `change` may edit its metrics first."""
    metrics, records = synthetic_records(spec)
    if change is not None:
        metrics = {**metrics, "cost": dict(metrics["cost"]), "task": dict(metrics["task"])}
        change(metrics)
    run = folder.run(spec)
    run.start(ENVIRONMENT)
    for split, frame in records.items():
        write_records(run.records_path(split), frame)
    run.finish(metrics, list(records))
    return metrics


def fill(folder: SuiteFolder, suite: Suite) -> dict[str, Mapping[str, Any]]:
    """Store every run of a suite as done; the metrics by run id."""
    return {spec.id: finish(folder, spec) for spec in suite.runs()}
