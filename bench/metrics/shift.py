"""Accuracy and calibration under corruption, by severity."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pandas as pd

from bench.metrics.calibration import ece
from bench.metrics.columns import Records, column
from bench.metrics.scores import confidence_and_correct, per_sample

CELL_SCORES = ("accuracy", "nll", "brier", "ece")

_COLUMNS = ("label", "prediction", "confidence", "log_likelihood", "brier")


def shift_metrics(records: Records) -> dict[str, Any]:
    """Scores of each (corruption, severity) and what they come to.

    Args:
        records: of all corrupted samples, with the columns ``corruption`` and ``severity`` beside
            those of `bench.metrics.records.sample_records`.

    Returns:
        plain JSON values: ``cells``, one mapping a (corruption, severity), sorted; ``severity``,
        means over the corruptions at each severity; ``mean``, over all cells;
        ``mean_corruption_error``, the mean over corruptions of their mean error over severities,
        unnormalised, in ``[0, 1]``; and, where there are two severities or more, ``ece_slope`` and
        ``accuracy_slope``, the least-squares slopes of the severity means over severity.

    Raises:
        ValueError: a column is missing or a value is not finite.
    """
    cells = _cells(records)
    by_severity = cells.groupby("severity")[list(CELL_SCORES)].mean()
    errors = 1 - cells.groupby("corruption")["accuracy"].mean()
    found: dict[str, Any] = {
        "cells": cells.to_dict(orient="records"),
        "severity": {str(level): row for level, row in by_severity.to_dict("index").items()},
        "mean": {score: float(cells[score].mean()) for score in CELL_SCORES},
        "mean_corruption_error": float(errors.mean()),
    }
    if len(by_severity) > 1:
        for score in ("ece", "accuracy"):
            found[f"{score}_slope"] = slope(by_severity.index, by_severity[score])
    return found


def slope(severities: Any, values: Any) -> float:
    """Least-squares slope of `values` over `severities`, at least two of them distinct."""
    x = np.asarray(severities, dtype=np.float64)
    y = np.asarray(values, dtype=np.float64)
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / (x * x).sum())


def cell_metrics(records: Records) -> dict[str, float]:
    """Accuracy, NLL, Brier score and ECE of some samples."""
    means = {
        score: float(per_sample(records, score).mean()) for score in ("accuracy", "nll", "brier")
    }
    return {**means, "ece": ece(*confidence_and_correct(records))}


def _cells(records: Records) -> pd.DataFrame:
    """One row a (corruption, severity), sorted by both."""
    if "corruption" not in records:
        raise ValueError("records: no column 'corruption'")
    frame = pd.DataFrame(
        {name: column(records, name) for name in (*_COLUMNS, "severity")}
        | {"corruption": np.asarray(records["corruption"], dtype=object)}
    )
    if (frame["severity"] % 1 != 0).any():
        raise ValueError("records: severities must be whole numbers")
    if frame["corruption"].isna().any():
        raise ValueError("records: a sample has no corruption")
    frame["severity"] = frame["severity"].astype(np.int64)
    groups = frame.groupby(["corruption", "severity"], sort=True)
    cells = []
    for key, group in groups:
        corruption, severity = cast("tuple[str, int]", key)
        place = {"corruption": str(corruption), "severity": int(severity), "samples": len(group)}
        cells.append({**place, **cell_metrics(group)})
    return pd.DataFrame(cells)
