"""How well a score tells out-of-distribution samples from the task's own.

OOD is the positive class and a higher score means «more OOD», for every score. Samples of equal
score stand or fall together: no threshold can part them, and the order of rows never matters.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.metrics.columns import Array, Integers, Records, column

TPR_PERCENT = 95
"""The true positive rate of `fpr95`, in percent."""


def ood_scores(records: Records) -> dict[str, Array]:
    """The scores of each sample ``[N]``, higher = more OOD.

    ``max_softmax`` (minus the confidence; Hendrycks and Gimpel, 2017), ``entropy`` (of the mean
    prediction), ``mutual_information`` (where the records have it: M > 1) and ``energy`` (Liu et
    al., 2020, at temperature 1).
    """
    scores = {"max_softmax": -column(records, "confidence"), "entropy": column(records, "entropy")}
    if "mutual_information" in records:
        scores["mutual_information"] = column(records, "mutual_information")
    return {**scores, "energy": column(records, "energy")}


def auroc(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """Area under the ROC curve: P(outside > inside) + ½ P(outside = inside).

    Args:
        inside: scores of the negatives (the task's own samples) ``[N]``.
        outside: scores of the positives (OOD) ``[P]``.

    Returns:
        in ``[0, 1]``; 0.5 where the scores say nothing.

    Raises:
        ValueError: one side is empty or a score is NaN (with its row).
    """
    false, true = _counts(inside, outside)
    mean_height = (true[1:] + true[:-1]) / 2
    return float((np.diff(false) * mean_height).sum() / (int(false[-1]) * int(true[-1])))


def aupr_out(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """Average precision with OOD positive: ``Σ_g (R_g − R_{g−1}) P_g`` over thresholds g.

    Args, errors: see `auroc`.
    """
    false, true = _counts(inside, outside)
    precision = true[1:] / (true[1:] + false[1:])
    return float((np.diff(true) * precision).sum() / true[-1])


def aupr_in(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """Average precision of finding the task's own samples by low scores.

    Args, errors: see `auroc`.
    """
    return aupr_out(-_checked(outside, "outside"), -_checked(inside, "inside"))


def fpr95(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """False positive rate at the highest threshold that flags 95 % of the OOD samples.

    Args, errors: see `auroc`.
    """
    false, true = _counts(inside, outside)
    # In whole numbers: 0.95 · P is not exact.
    enough = 100 * true >= TPR_PERCENT * true[-1]
    return float(false[int(np.argmax(enough))] / false[-1])


def detection_metrics(inside: npt.ArrayLike, outside: npt.ArrayLike) -> dict[str, float]:
    """``auroc``, ``aupr_in``, ``aupr_out`` and ``fpr95`` of one score."""
    return {
        "auroc": auroc(inside, outside),
        "aupr_in": aupr_in(inside, outside),
        "aupr_out": aupr_out(inside, outside),
        "fpr95": fpr95(inside, outside),
    }


def _counts(inside: npt.ArrayLike, outside: npt.ArrayLike) -> tuple[Integers, Integers]:
    """False and true positives at each threshold, from none flagged to all."""
    negatives, positives = _checked(inside, "inside"), _checked(outside, "outside")
    levels, group = np.unique(np.concatenate([negatives, positives]), return_inverse=True)

    def flagged(part: Integers) -> Integers:
        at_level = np.bincount(part, minlength=levels.size)[::-1]
        return np.concatenate([[0], np.cumsum(at_level)])

    return flagged(group[: negatives.size]), flagged(group[negatives.size :])


def _checked(scores: npt.ArrayLike, name: str) -> Array:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{name}: scores must be [N] with N >= 1, not {list(values.shape)}")
    missing = np.isnan(values)
    if missing.any():
        raise ValueError(f"{name}: the score of row {int(np.argmax(missing))} is NaN")
    return values
