"""What every number is called, means and looks like: one table for tables, report and docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["higher", "lower"]


@dataclass(frozen=True)
class Definition:
    """One metric.

    Attributes:
        title: as a column of a table is headed.
        text: what it is, in one line.
        direction: which values are better; None where that can't be said.
        format: format specification of a shown value, such as ``.2f``.
        unit: of the shown value; empty for a plain number.
        scale: what the stored value is multiplied by to be shown.
    """

    title: str
    text: str
    direction: Direction | None
    format: str
    unit: str
    scale: float = 1.0

    def show(self, value: float) -> str:
        """`value` as a table shows it, without the unit."""
        return format(value * self.scale, self.format)


def _percent(title: str, text: str, direction: Direction | None, digits: int = 2) -> Definition:
    return Definition(title, text, direction, f".{digits}f", "%", 100.0)


def _nats(title: str, text: str, direction: Direction | None) -> Definition:
    return Definition(title, text, direction, ".3f", "nats")


DEFINITIONS: dict[str, Definition] = {
    "samples": Definition("N", "samples the numbers beside it are of", None, ".0f", ""),
    "accuracy": _percent(
        "Accuracy", "share of samples whose most probable class is the label", "higher"
    ),
    "nll": _nats("NLL", "mean of −log p̄(label)", "lower"),
    "brier": Definition(
        "Brier", "mean of Σ_k (p̄_k − [k = label])², from 0 to 2", "lower", ".3f", ""
    ),
    "ece": _percent(
        "ECE",
        "Σ_b n_b/N |accuracy_b − mean confidence_b| of the predicted class over 15 equal-width, "
        "right-closed bins",
        "lower",
    ),
    "adaptive_ece": _percent(
        "aECE",
        "as ECE, over 15 bins of equal mass (runs of the samples sorted by confidence)",
        "lower",
    ),
    "classwise_ece": _percent(
        "cwECE",
        "mean over classes k of the ECE of p̄_k against «the label is k», 15 equal-width bins each",
        "lower",
        3,
    ),
    "smooth_ece": _percent(
        "smECE",
        "calibration error of the predicted class, smoothed by a reflected Gaussian whose width "
        "equals that error",
        "lower",
    ),
    "mce": _percent(
        "MCE", "largest |accuracy_b − mean confidence_b| of a bin of ECE that is not empty", "lower"
    ),
    "temperature": Definition(
        "T", "temperature of p̄ with the lowest NLL on the validation split", None, ".2f", ""
    ),
    "calibrated_nll": _nats(
        "NLL (T)", "NLL of softmax(log p̄ / T), T fitted on the validation split only", "lower"
    ),
    "calibrated_ece": _percent(
        "ECE (T)", "ECE of softmax(log p̄ / T), T fitted on the validation split only", "lower"
    ),
    "aurc": _percent(
        "AURC",
        "error rate among the samples at least as confident, averaged over samples (ties together)",
        "lower",
    ),
    "excess_aurc": _percent(
        "E-AURC", "AURC minus the AURC of the same predictions with all errors ranked last", "lower"
    ),
    "error_auroc": _percent(
        "Error AUROC", "probability that an error is less confident than a hit, ties half", "higher"
    ),
    "entropy": _nats(
        "Entropy", "mean entropy of the mean prediction, H(p̄): total uncertainty", None
    ),
    "expected_entropy": _nats(
        "Expected entropy", "mean over members of their entropies, mean_m H(p_m)", None
    ),
    "mutual_information": _nats("MI", "entropy minus expected entropy; needs M > 1", None),
    "disagreement": _percent(
        "Disagreement",
        "share of pairs of members that predict different classes; needs M > 1",
        None,
    ),
    "pairwise_kl": _nats(
        "Pairwise KL", "mean of KL(p_i ‖ p_j) over ordered pairs of members; needs M > 1", None
    ),
    "member_accuracy": _percent(
        "Member accuracy", "mean accuracy of the single members; needs M > 1", "higher"
    ),
    "ece_slope": Definition(
        "ECE slope",
        "least-squares slope of ECE (mean over corruptions) over severity",
        "lower",
        ".2f",
        "% per severity",
        100.0,
    ),
    "accuracy_slope": Definition(
        "Accuracy slope",
        "least-squares slope of accuracy (mean over corruptions) over severity",
        "higher",
        ".2f",
        "% per severity",
        100.0,
    ),
    "mean_corruption_error": _percent(
        "mCE",
        "mean over corruptions of the error rate averaged over severities, not divided by that of "
        "a reference",
        "lower",
    ),
    "max_softmax": Definition(
        "Max-softmax", "OOD score: minus the confidence of the mean prediction", None, ".3f", ""
    ),
    "energy": Definition(
        "Energy", "OOD score: mean over members of −log Σ_k exp(logit_k)", None, ".3f", ""
    ),
    "auroc": _percent(
        "AUROC",
        "probability that an OOD sample scores higher than a test sample, ties half",
        "higher",
    ),
    "aupr_in": _percent(
        "AUPR-in", "average precision of finding the test samples by low scores", "higher"
    ),
    "aupr_out": _percent(
        "AUPR-out", "average precision of finding the OOD samples by high scores", "higher"
    ),
    "fpr95": _percent(
        "FPR95",
        "share of test samples flagged at the highest threshold that flags 95 % of the OOD samples",
        "lower",
    ),
}
"""Metric -> definition, for every number in ``metrics.json``."""

COLUMNS: dict[str, str] = {
    "label": "class of the sample; −1 where it is none of the task's",
    "prediction": "most probable class of the mean prediction p̄",
    "confidence": "p̄ of the predicted class",
    "log_likelihood": "log p̄(label); needs a label",
    "entropy": "entropy of the mean prediction, H(p̄), in nats",
    "expected_entropy": "mean of the members' entropies, in nats",
    "mutual_information": "entropy − expected entropy, in nats; needs M > 1",
    "brier": "Σ_k (p̄_k − [k = label])², from 0 to 2; needs a label",
    "max_logit": "largest class value of the members' mean logits",
    "energy": "mean over members of −log Σ_k exp(logit_k)",
    "agreement": "share of members whose most probable class is the prediction; needs M > 1",
    "member_accuracy": "share of members that predict the label; needs M > 1 and a label",
    "disagreement": "share of pairs of members with different most probable classes; needs M > 1",
    "pairwise_kl": "mean of KL(p_i ‖ p_j) over ordered pairs of members, in nats; needs M > 1",
    "calibrated_log_likelihood": "log softmax(log p̄ / T)(label); needs T and a label",
    "calibrated_confidence": "largest value of softmax(log p̄ / T); needs T",
}
"""Column of the per-sample records -> what it is."""
