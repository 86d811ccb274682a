"""Results for the paper's figures: scores that are plain functions of what was run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.files import write_records
from bench.paper.collect import Paper, Source
from bench.store import SuiteFolder
from bench.suite import RunSpec, Suite
from bench.tables.collection import collect

TAUS = (0.1, 1.0, 5.0)
LAYERS, BINS = 3, 20
COMPARED: list[Any] = ["single", "deep_ensemble", "packed_ensemble"]
SUITES: dict[str, dict[str, Any]] = {
    "cifar10": {
        "tasks": ["cifar10"],
        "backbones": ["resnet18", "wrn28_10", "wrn28_8"],
        "methods": [
            *({"name": one, "backbones": ["resnet18", "wrn28_10"]} for one in COMPARED),
            "sigma_nens",
        ],
    },
    "cifar100": {
        "tasks": ["cifar100"],
        "backbones": ["resnet18"],
        "methods": [*COMPARED, "sigma_nens"],
    },
    "temperature": {
        "tasks": ["cifar10"],
        "backbones": ["resnet18", "resnet18@weights.safetensors"],
        "methods": [
            "single",
            "deep_ensemble",
            {"name": "sigma_nens", "grid": {"temperature": list(TAUS)}},
        ],
    },
    "members": {
        "tasks": ["cifar100"],
        "backbones": ["resnet18"],
        "methods": [
            "single",
            *(
                {"name": one, "grid": {"members": [2, 4, 8]}}
                for one in ("deep_ensemble", "packed_ensemble", "sigma_nens")
            ),
        ],
    },
}


def suite_of(name: str) -> Suite:
    budget = {"match": "train_flops", "networks": 4, "epochs": 10}
    content = {"name": name, "members": 4, "seeds": [0, 1], "budget": budget}
    return Suite.model_validate(content | SUITES[name])


def scores(spec: RunSpec, severity: int = 0) -> dict[str, float]:
    """Accuracy, ECE and NLL of a run: another number for every method, τ, M, severity and seed."""
    place = ("single", "packed_ensemble", "sigma_nens", "deep_ensemble").index(spec.method)
    members = int(spec.parameters.get("members", 1))
    tau = float(spec.parameters.get("temperature", 0.2))
    own = 0.01 * place + 0.002 * np.log2(members) + 0.003 * spec.seed - 0.004 * np.log(tau)
    return {
        "accuracy": 0.9 + own - 0.05 * severity,
        "ece": 0.05 - 0.3 * own + 0.02 * severity,
        "nll": 0.4 - own + 0.1 * severity,
    }


def gates(spec: RunSpec) -> list[dict[str, Any]]:
    tau = float(spec.parameters["temperature"])
    return [
        {
            "layer": f"layer{index}",
            "features": 8,
            "histogram": [8 + index] + [1 + spec.seed] * (BINS - 2) + [int(10 * tau)],
            "members_per_feature": 1.0 + 0.2 * tau + 0.1 * index + 0.05 * spec.seed,
            "equilibrium": 0.3 * tau,
        }
        for index in range(LAYERS)
    ]


def cost(spec: RunSpec) -> dict[str, float]:
    wide = 4 if spec.backbone.startswith("wrn") else 1
    members = int(spec.parameters.get("members", 1)) if spec.method == "deep_ensemble" else 1
    return {
        "parameters": 1_000_000 * wide * members,
        "train_flops": 5_000_000_000_000 * wide,
        "inference_flops": 70_000_000 * wide * members,
    }


def metrics_of(spec: RunSpec) -> dict[str, Any]:
    levels = {str(level): scores(spec, level) for level in range(1, 6)}
    found: dict[str, Any] = {
        "task": {"num_classes": 5, "shift_origin": "generated", "notes": []},
        "test": {"samples": 6, **scores(spec)},
        "shift": {"severity": levels, "mean": levels["3"]},
        "cost": {**cost(spec), "device_seconds": 3.0, "budget_deviation": 0.0},
    }
    if spec.method == "sigma_nens":
        found["method"] = {"gates": gates(spec)}
    return found


RECORDS = pd.DataFrame(
    {
        "label": [0, 1, 2, 3, 4, 0],
        "prediction": [0, 1, 2, 3, 0, 1],
        "confidence": [0.95, 0.9, 0.85, 0.55, 0.52, 0.31],
        "log_likelihood": np.full(6, -0.4),
    }
)


def store(
    results: Path,
    name: str,
    only: Callable[[RunSpec], bool] = lambda spec: True,
    refused: Callable[[RunSpec], bool] = lambda spec: False,
    change: Callable[[dict[str, Any]], Mapping[str, Any]] = lambda metrics: metrics,
) -> None:
    """Store the runs of a suite that `only` names as done, or as not applicable."""
    folder = SuiteFolder(results, name)
    for spec in filter(only, suite_of(name).runs()):
        run = folder.run(spec)
        run.start({})
        if refused(spec):
            run.refuse("64 channels can't be packed")
            continue
        write_records(run.records_path("test"), RECORDS)
        run.finish(change(metrics_of(spec)), ["test"])


def paper_of(results: Path) -> Paper:
    """The paper of these suites as they stand."""
    sources = {
        name: Source(name, "paper", collect(suite_of(name), SuiteFolder(results, name), name))
        for name in SUITES
    }
    return Paper(results, None, sources)
