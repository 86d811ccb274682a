"""Selective classification: does the confidence know where the errors are?

Samples of equal confidence are accepted or rejected together, since no threshold can part them: no
value depends on the order of rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.metrics.columns import Array, confidences_and_hits
from bench.metrics.detection import auroc


def risk_coverage(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[Array, Array]:
    """The risk-coverage curve, one point for each distinct confidence, from the highest down.

    Args:
        confidence: of the predicted class ``[N]`` in ``[0, 1]``.
        correct: whether the prediction is right ``[N]``.

    Returns:
        coverage (share of samples at least so confident, in ``(0, 1]``) and risk (error rate among
        them), both ``[distinct confidences]``.
    """
    values, hits = confidences_and_hits(confidence, correct)
    _, group = np.unique(-values, return_inverse=True)
    accepted = np.cumsum(np.bincount(group))
    errors = np.cumsum(np.bincount(group, ~hits))
    return accepted / values.size, errors / accepted


def aurc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Area under the risk-coverage curve (Geifman and El-Yaniv, 2017).

    The risk at each distinct confidence, weighted by its share of the samples; without ties this is
    ``(1/N) Σ_k errors among the k most confident / k``.

    Args:
        confidence: of the predicted class ``[N]`` in ``[0, 1]``.
        correct: whether the prediction is right ``[N]``.

    Returns:
        in ``[0, 1]``; 0 without errors, 1 if all are wrong.
    """
    coverage, risk = risk_coverage(confidence, correct)
    return float((np.diff(coverage, prepend=0.0) * risk).sum())


def excess_aurc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """E-AURC: AURC minus that of the best order of the same predictions (Geifman et al., 2019).

    The best order puts all errors last; its AURC is the exact sum, not the logarithmic
    approximation.

    Returns:
        in ``[0, 1)``; 0 if every error is less confident than every hit.
    """
    values, hits = confidences_and_hits(confidence, correct)
    accepted = np.arange(1, hits.size + 1)
    best = np.maximum(accepted - hits.sum(), 0) / accepted
    # Rounding may leave −1e-17 for the best order itself.
    return max(aurc(values, hits) - float(best.mean()), 0.0)


def error_auroc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """AUROC of finding the wrong predictions (positive) by low confidence.

    Returns:
        in ``[0, 1]``, or None where there is no error or nothing but errors.
    """
    values, hits = confidences_and_hits(confidence, correct)
    if hits.all() or not hits.any():
        return None
    return auroc(-values[hits], -values[~hits])
