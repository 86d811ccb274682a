"""Which metrics stand in which table, and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from bench.metrics.definitions import DEFINITIONS, Definition
from bench.tables.scores import Column, Key

OodScore = Literal["max_softmax", "entropy", "mutual_information", "energy"]
OOD_SCORES: tuple[OodScore, ...] = ("max_softmax", "entropy", "mutual_information", "energy")
OOD_METRICS = ("auroc", "aupr_in", "aupr_out", "fpr95")
SHIFT_METRICS = ("accuracy", "nll", "ece")


def metric(key: Key, title: str | None = None, name: str | None = None) -> Column:
    """A column for a metric, shown as its definition says.

    Args:
        key: where it stands in `metrics.json`.
        title: its heading, where that is not the definition's.
        name: of the metric, where that is not the last part of the key.
    """
    found = DEFINITIONS[name or key[-1]]
    return Column(
        key,
        found.title if title is None else title,
        found.direction or "",
        found.unit,
        found.scale,
        decimals(found),
    )


def decimals(definition: Definition) -> int:
    """Digits after the point in a definition's format (``.2f`` or ``d``)."""
    return int(definition.format.strip(".f")) if definition.format.endswith("f") else 0


def main_columns(origin: str, ood_score: OodScore = "max_softmax") -> tuple[Column, ...]:
    """The comparison at a glance; `origin` names the shift where it isn't the published one."""
    shifted = "Shifted" if origin in ("", "official") else f"Shifted ({origin})"
    return (
        metric(("test", "accuracy")),
        metric(("test", "nll")),
        metric(("test", "ece")),
        metric(("test", "calibrated_nll")),
        metric(("test", "brier")),
        metric(("shift", "mean", "accuracy"), f"{shifted} accuracy"),
        metric(("shift", "mean", "nll"), f"{shifted} NLL"),
        metric(("shift", "mean", "ece"), f"{shifted} ECE"),
        metric(("ood", "near", ood_score, "auroc"), "AUROC near"),
        metric(("ood", "far", ood_score, "auroc"), "AUROC far"),
        PARAMETERS,
        TRAIN_FLOPS,
        SECONDS,
        INFERENCE_SPEED,
    )


def cost_column(name: str, title: str, **shown: Any) -> Column:
    """A column for an entry of ``cost``; costs are reported, never ranked."""
    return Column(("cost", name), title, **shown)


_COUNT: dict[str, Any] = {"constant": True, "digits": 0}
_BIG: dict[str, Any] = {"constant": True, "prefix": True, "digits": 2}
PARAMETERS = cost_column("parameters", "Parameters", **_BIG)
TRAIN_FLOPS = cost_column("train_flops", "Train cost", unit="FLOPs", **_BIG)
SECONDS = cost_column("device_seconds", "Train time", unit="s", digits=1)
INFERENCE_SPEED = cost_column(
    "inference_images_per_second", "Inference speed", unit="images/s", digits=0
)

COST = (
    PARAMETERS,
    cost_column("networks", "Networks", **_COUNT),
    cost_column("steps", "Steps a network", **_COUNT),
    cost_column("step_flops", "One step", unit="FLOPs", **_BIG),
    TRAIN_FLOPS,
    cost_column("budget_deviation", "Off budget", unit="%", scale=100.0, digits=2, constant=True),
    SECONDS,
    cost_column("train_images_per_second", "Train speed", unit="images/s", digits=0),
    cost_column("inference_flops", "Inference", unit="FLOPs/sample", **_BIG),
    INFERENCE_SPEED,
    cost_column("peak_memory_bytes", "Peak memory", unit="MiB", scale=2.0**-20, digits=0),
    cost_column("member_chunk", "Member chunk", **_COUNT),
    cost_column("device", "Device"),
)

_CALIBRATION = (
    *("ece", "adaptive_ece", "classwise_ece", "smooth_ece", "mce", "calibrated_ece"),
    *("nll", "calibrated_nll"),
)
CALIBRATION = (
    *(metric(("test", name)) for name in _CALIBRATION),
    metric(("temperature",)),
)

_UNCERTAINTY = (
    *("entropy", "expected_entropy", "mutual_information", "disagreement", "pairwise_kl"),
    *("member_accuracy", "error_auroc", "aurc", "excess_aurc"),
)
UNCERTAINTY = tuple(metric(("test", name)) for name in _UNCERTAINTY)


def ood_columns(place: Key) -> tuple[Column, ...]:
    """The detection metrics of one source (or mean) and score."""
    return tuple(metric((*place, name)) for name in OOD_METRICS)


def severity_columns(name: str, severities: Sequence[str]) -> tuple[Column, ...]:
    """One metric on clean images, at each severity, its mean and its slope."""
    levels = tuple(metric(("shift", "severity", level, name), level) for level in severities)
    return (
        metric(("test", name), "Clean"),
        *levels,
        metric(("shift", "mean", name), "Mean"),
        _slope(name),
    )


def _slope(name: str) -> Column:
    """The slope over severities; of NLL there is none, so its column stays empty."""
    slope = f"{name}_slope"
    if slope in DEFINITIONS:
        return metric(("shift", slope), "Slope")
    return Column(("shift", slope), "Slope")


def corruption_columns(corruption: str) -> tuple[Column, ...]:
    """Metrics of one corruption, each the mean over its severities."""
    return tuple(metric(("corruption", corruption, name)) for name in SHIFT_METRICS)
