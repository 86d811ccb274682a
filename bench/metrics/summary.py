"""All numbers of one run from its per-sample records: the content of ``metrics.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.errors import unknown
from bench.metrics.calibration import adaptive_ece, classwise_ece_from_bins, ece, mce, smooth_ece
from bench.metrics.columns import Records
from bench.metrics.detection import detection_metrics, ood_scores
from bench.metrics.scores import applies, confidence_and_correct, per_sample
from bench.metrics.selective import aurc, error_auroc, excess_aurc
from bench.metrics.shift import shift_metrics

INPUTS = ("validation", "test", "shift", "ood", "classwise", "temperature")

_DIVERSITY = (
    "entropy",
    "expected_entropy",
    "mutual_information",
    "disagreement",
    "pairwise_kl",
    "member_accuracy",
)


def summarise(records: Mapping[str, Any]) -> dict[str, Any]:
    """Every metric of a trained model.

    Args:
        records: per-sample records by split, each a DataFrame or a mapping of arrays with the
            columns of `bench.metrics.records.sample_records`:

            * ``validation``, ``test``;
            * ``shift`` (optional), with the columns ``corruption`` and ``severity``;
            * ``ood`` (optional), with the columns ``source`` and ``distance`` (``near`` or
              ``far``);
            * ``classwise`` (optional): split name -> what `classwise_bins` gave for that split;
            * ``temperature`` (optional): T, or None.

    Returns:
        plain JSON values with the keys ``temperature``, ``validation``, ``test``, ``shift`` and
        ``ood`` (see docs/metrics.md). What does not apply is absent, never NaN or null: comparisons
        of members for M = 1, calibrated scores without a temperature, `error_auroc` without errors,
        a split that was not given.

    Raises:
        UserError: a key of `records` is none of the above.
        ValueError: a split or column is missing, or a value is not finite (with its row).
    """
    for name in records:
        if name not in INPUTS:
            raise unknown("split", name, INPUTS)
    for name in ("validation", "test"):
        if name not in records:
            raise ValueError(f"records: no split {name!r}")
    classwise = records.get("classwise") or {}
    found: dict[str, Any] = {}
    if records.get("temperature") is not None:
        found["temperature"] = float(records["temperature"])
    for name in ("validation", "test"):
        found[name] = split_metrics(records[name], classwise.get(name))
    if records.get("shift") is not None:
        found["shift"] = shift_metrics(records["shift"])
    if records.get("ood") is not None:
        found["ood"] = ood_metrics(records["test"], records["ood"])
    return found


def split_metrics(records: Records, classwise: Records | None = None) -> dict[str, Any]:
    """The metrics of one split whose labels are known; keys as in docs/metrics.md.

    Args:
        records: its per-sample records.
        classwise: its classwise bins; without them there is no ``classwise_ece``.
    """
    confidence, correct = confidence_and_correct(records)
    found: dict[str, Any] = {
        "samples": len(confidence),
        **_means(records, ("accuracy", "nll", "brier")),
        "ece": ece(confidence, correct),
        "adaptive_ece": adaptive_ece(confidence, correct),
    }
    if classwise is not None:
        found["classwise_ece"] = classwise_ece_from_bins(classwise)
    found |= {"smooth_ece": smooth_ece(confidence, correct), "mce": mce(confidence, correct)}
    if applies(records, "calibrated_nll"):
        found |= _means(records, ("calibrated_nll",))
        found["calibrated_ece"] = ece(*confidence_and_correct(records, "calibrated_ece"))
    found |= {
        "aurc": aurc(confidence, correct),
        "excess_aurc": excess_aurc(confidence, correct),
    }
    errors = error_auroc(confidence, correct)
    if errors is not None:
        found["error_auroc"] = errors
    return {**found, **_means(records, [key for key in _DIVERSITY if applies(records, key)])}


def ood_metrics(test: Records, outliers: Records) -> dict[str, Any]:
    """Detection of each OOD source against the test split, and means over near and far sources.

    Args:
        test: records of the task's own test samples.
        outliers: records of all sources, with the columns ``source`` and ``distance``.

    Returns:
        ``sources`` by name, and ``near`` and ``far`` where there is such a source: for each score
        the mean of each metric over these sources.

    Raises:
        ValueError: a column is missing, or a source is not either near or far.
    """
    for name in ("source", "distance"):
        if name not in outliers:
            raise ValueError(f"records: no column {name!r}")
    inside, outside = ood_scores(test), ood_scores(outliers)
    names = np.asarray(outliers["source"], dtype=object)
    distances = np.asarray(outliers["distance"], dtype=object)
    sources: dict[str, dict[str, Any]] = {}
    for source in sorted(set(names)):
        own = names == source
        scores = {
            score: detection_metrics(inside[score], outside[score][own])
            for score in inside
            if score in outside
        }
        sources[str(source)] = {
            "distance": _distance(str(source), set(distances[own])),
            "samples": int(own.sum()),
            "scores": scores,
        }
    found: dict[str, Any] = {"sources": sources}
    for distance in ("near", "far"):
        own_scores = [one["scores"] for one in sources.values() if one["distance"] == distance]
        if own_scores:
            found[distance] = _mean_scores(own_scores)
    return found


def _means(records: Records, scores: Any) -> dict[str, float]:
    return {score: float(per_sample(records, score).mean()) for score in scores}


def _distance(source: str, distances: set[Any]) -> str:
    if distances not in ({"near"}, {"far"}):
        found = ", ".join(sorted(map(str, distances)))
        raise ValueError(f"source {source!r}: distance must be near or far, not {found}")
    return str(distances.pop())


def _mean_scores(sources: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Mean over sources of each metric of each score."""
    return {
        score: {
            metric: float(np.mean([source[score][metric] for source in sources]))
            for metric in metrics
        }
        for score, metrics in sources[0].items()
    }
