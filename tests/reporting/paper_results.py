"""Small suites that stand for the paper's, and results with scores that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from bench.files import write_records
from bench.paper.collect import SUITES
from bench.store import SuiteFolder
from bench.suite import RunSpec
from bench.suite_files import load_suite

SAMPLES = 400
METHODS = ["single", "deep_ensemble", "packed_ensemble", "sigma_nens"]
GRIDS: dict[str, Any] = {
    "temperature": ["deep_ensemble", {"name": "sigma_nens", "grid": {"temperature": [0.1, 1, 5]}}],
    "members": [
        "single",
        {"name": "packed_ensemble", "grid": {"members": [2, 4, 16]}},
        {"name": "sigma_nens", "grid": {"members": [2, 4, 16]}},
    ],
    "strength": [
        "deep_ensemble",
        {"name": "sigma_nens", "grid": {"strength": [0.0, 1.0e-3, 1.0e-1]}},
    ],
}
BACKBONES = {
    "imagenet": ["resnet50", "resnet50@pretrained", "vit_tiny"],
    "pretrained": ["resnet20", "resnet20@weights.safetensors"],
    "cifar100": ["resnet8", "wrn28_8", "wrn28_10"],
    "sst2": ["hf:bert@pretrained"],
}

Scores = Callable[[RunSpec], Mapping[str, Any]]


def content(name: str) -> dict[str, Any]:
    """A suite of the paper in small: scales ``paper`` (the default) and ``tiny``."""
    return {
        "name": name,
        "tasks": ["digits"],
        "backbones": BACKBONES.get(name, ["resnet8"]),
        "methods": GRIDS.get(name, METHODS),
        "seeds": [0, 1, 2],
        "budget": {"match": "train_flops", "networks": 4, "epochs": 10},
        "reference": "deep_ensemble" if name != "members" else None,
        "scale": "paper",
        "scales": {"paper": {}, "tiny": {"seeds": [0, 1], "budget": {"epochs": 1}}},
    }


def ship(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let these suites be the ones that ship, whatever backbones there are."""
    folder.mkdir()
    paths = {name: folder / f"{name}.yaml" for name in SUITES}
    for name, path in paths.items():
        path.write_text(yaml.safe_dump(content(name)), encoding="utf-8")
    monkeypatch.setattr("bench.suite_files.shipped_suites", lambda: paths)
    monkeypatch.setattr("bench.suite.check_backbone_name", lambda name: None)


def records(accuracy: float, seed: int, nll: float) -> pd.DataFrame:
    """Test records with that share of hits and that mean NLL, one confidence for all."""
    hits = np.zeros(SAMPLES, dtype=bool)
    hits[: round(accuracy * SAMPLES)] = True
    # The same samples are hard for every method, but for a few that the seed chooses.
    hits = np.roll(hits, seed)
    labels = np.arange(SAMPLES) % 5
    return pd.DataFrame(
        {
            "index": np.arange(SAMPLES),
            "label": labels,
            "prediction": np.where(hits, labels, (labels + 1) % 5),
            "confidence": np.full(SAMPLES, 0.9),
            "log_likelihood": np.full(SAMPLES, -nll),
        }
    )


def outliers(total: float, members: int) -> pd.DataFrame:
    """Records of two near sources of different sizes and a far one."""
    sizes = {"a": ("near", 3), "b": ("near", 9), "c": ("far", 5)}
    parts = [
        pd.DataFrame(
            {
                "source": [name] * size,
                "distance": [distance] * size,
                "entropy": np.full(size, total + place),
                "expected_entropy": np.full(size, 0.5 * total),
                **({"mutual_information": np.full(size, 0.25)} if members > 1 else {}),
            }
        )
        for place, (name, (distance, size)) in enumerate(sizes.items())
    ]
    return pd.concat(parts, ignore_index=True)


DEFAULTS: dict[str, Any] = {
    "accuracy": 0.9,
    "nll": 0.4,
    "auroc": 0.8,
    "ece": 0.05,
    "slope": 0.002,
    "parameters": 1000,
    "seconds": 7200.0,
    "records": True,
}


def metrics_of(spec: RunSpec, chosen: Mapping[str, Any]) -> dict[str, Any]:
    members = int(spec.parameters.get("members", 1))
    detection = {
        name: {"auroc": chosen["auroc"], "aupr_in": 0.7, "aupr_out": 0.6, "fpr95": 0.5}
        for name in ("max_softmax", "entropy", "energy", "mutual_information")
        if members > 1 or name != "mutual_information"
    }
    test = {
        "samples": SAMPLES,
        "accuracy": chosen["accuracy"],
        "nll": chosen["nll"],
        "ece": chosen["ece"],
        "calibrated_nll": chosen["nll"] - 0.01,
        "entropy": 1.0,
        "expected_entropy": 0.75,
        "error_auroc": 0.8,
    }
    if members > 1:
        test |= {"mutual_information": 0.25, "disagreement": 0.1}
    shifted = {"accuracy": 0.6, "nll": 1.2, "ece": 0.1}
    return {
        "task": {"num_classes": 5, "shift_origin": "generated", "notes": ["100 % & generated_x."]},
        "test": test,
        "shift": {
            "severity": {"1": shifted, "5": shifted},
            "mean": shifted,
            "ece_slope": chosen["slope"],
            "accuracy_slope": -0.05,
        },
        "ood": {"sources": {}, "near": detection, "far": detection},
        "cost": {
            "parameters": chosen["parameters"],
            "train_flops": 2_000_000,
            "device_seconds": chosen["seconds"],
            "budget_deviation": 0.0,
        },
    }


def store(
    results: Path,
    name: str,
    scale: str = "tiny",
    scores: Scores = lambda spec: {},
    only: Callable[[RunSpec], bool] = lambda spec: True,
) -> None:
    """Store runs of a suite as done, with `scores` over the defaults."""
    suite = load_suite(name, (), scale)
    folder = SuiteFolder(results, suite.name)
    for spec in filter(only, suite.runs()):
        chosen = DEFAULTS | dict(scores(spec))
        run = folder.run(spec)
        run.start({})
        write_records(
            run.records_path("test"), records(chosen["accuracy"], spec.seed, chosen["nll"])
        )
        members = int(spec.parameters.get("members", 1))
        write_records(run.records_path("ood"), outliers(1.0, members))
        run.finish(metrics_of(spec, chosen), ["test", "ood"])
        if not chosen["records"]:
            run.records_path("test").unlink()


def by_method(**chosen: Mapping[str, Any]) -> Scores:
    """Scores by the name of the method."""
    return lambda spec: chosen.get(spec.method, {})
