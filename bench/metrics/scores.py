"""Scores that are means over samples, and scores that are binned: one table of both.

Summaries and bootstrap intervals read the same table, so a number and its interval are of one
definition.
"""

from __future__ import annotations

import numpy as np

from bench.metrics.columns import Array, Records, column, confidences_and_hits, hits_of

MEANS: dict[str, tuple[str, float]] = {
    "nll": ("log_likelihood", -1.0),
    "brier": ("brier", 1.0),
    "calibrated_nll": ("calibrated_log_likelihood", -1.0),
    "entropy": ("entropy", 1.0),
    "expected_entropy": ("expected_entropy", 1.0),
    "mutual_information": ("mutual_information", 1.0),
    "disagreement": ("disagreement", 1.0),
    "pairwise_kl": ("pairwise_kl", 1.0),
    "member_accuracy": ("member_accuracy", 1.0),
}
"""Score -> (column whose mean it is, sign). Accuracy is the mean of «prediction = label»."""

BINNED: dict[str, str] = {"ece": "confidence", "calibrated_ece": "calibrated_confidence"}
"""Score -> column of confidences that it bins."""

SAMPLE_SCORES = ("accuracy", *MEANS, *BINNED)
"""Every score that a bootstrap over samples can treat."""


def per_sample(records: Records, score: str) -> Array:
    """Each sample's part ``[N]`` in a score that is a mean over samples.

    Raises:
        ValueError: the score is no such mean, or its column is not in the records.
    """
    if score == "accuracy":
        return hits_of(records).astype(np.float64)
    if score not in MEANS:
        raise ValueError(
            f"{score!r} is no mean over samples; these are: accuracy, {', '.join(MEANS)}"
        )
    name, sign = MEANS[score]
    return sign * column(records, name)


def confidence_and_correct(records: Records, score: str = "ece") -> tuple[Array, Array]:
    """The confidences a binned score reads and whether each prediction is right, both ``[N]``."""
    values, hits = confidences_and_hits(column(records, BINNED[score]), hits_of(records))
    return values, hits.astype(np.float64)


def applies(records: Records, score: str) -> bool:
    """Whether the records have the column that a score needs."""
    needed = {**{key: name for key, (name, _) in MEANS.items()}, **BINNED}.get(score, "prediction")
    return needed in records
