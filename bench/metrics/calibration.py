"""Calibration errors of the predicted class, and classwise.

One definition of the bins for all: B equal-width bins over ``[0, 1]``, right-closed,
``((b−1)/B, b/B]``; a confidence of exactly 0 falls in the first. A bin counts with the mean
confidence of its samples and the weight n_b/N.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.metrics.columns import (
    Array,
    Booleans,
    Integers,
    Records,
    column,
    confidences_and_hits,
    probabilities_and_labels,
)
from bench.metrics.smooth import smooth_ece

__all__ = [
    "BINS",
    "Bins",
    "adaptive_ece",
    "add_classwise_bins",
    "bin_index",
    "classwise_bins",
    "classwise_ece",
    "classwise_ece_from_bins",
    "ece",
    "mce",
    "reliability_bins",
    "smooth_ece",
]

BINS = 15
"""Bins of every binned calibration error."""


@dataclass(frozen=True)
class Bins:
    """A reliability diagram in numbers, one value a bin.

    Attributes:
        lower, upper: the bin is ``(lower, upper]``.
        count: samples in it.
        confidence_sum: sum of their confidences.
        hits: how many of their predictions are right.
    """

    lower: Array
    upper: Array
    count: Integers
    confidence_sum: Array
    hits: Integers

    @property
    def confidence(self) -> Array:
        """Mean confidence; NaN in an empty bin."""
        return self._mean(self.confidence_sum)

    @property
    def accuracy(self) -> Array:
        """Share of right predictions; NaN in an empty bin."""
        return self._mean(self.hits)

    def _mean(self, sums: npt.NDArray[np.generic]) -> Array:
        empty = np.full(self.count.shape, np.nan)
        np.divide(sums, self.count, out=empty, where=self.count > 0)
        return empty


def bin_index(confidence: Array, bins: int = BINS) -> Integers:
    """The bin of each confidence: 0 to ``bins − 1``, right-closed."""
    # Quotients round to the float that is written 0.7; multiples of a step do not.
    edges = np.arange(1, bins) / bins
    return np.searchsorted(edges, confidence, side="left").astype(np.int64)


def reliability_bins(confidence: npt.ArrayLike, correct: npt.ArrayLike, bins: int = BINS) -> Bins:
    """Counts, confidences and hits by bin.

    Args:
        confidence: of the predicted class ``[N]`` in ``[0, 1]``.
        correct: whether the prediction is right ``[N]``.
        bins: how many equal-width bins.
    """
    values, hits = confidences_and_hits(confidence, correct)
    index = bin_index(values, bins)
    edges = np.arange(bins + 1) / bins
    return Bins(
        lower=edges[:-1],
        upper=edges[1:],
        count=np.bincount(index, minlength=bins),
        confidence_sum=np.bincount(index, values, bins).astype(np.float64),
        hits=np.bincount(index[hits], minlength=bins),
    )


def ece(confidence: npt.ArrayLike, correct: npt.ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error of the predicted class: ``Σ_b n_b/N |acc_b − conf_b|``.

    Naeini et al., 2015; Guo et al., 2017.

    Args:
        confidence: of the predicted class ``[N]`` in ``[0, 1]``.
        correct: whether the prediction is right ``[N]``.
        bins: how many equal-width bins.

    Returns:
        in ``[0, 1]``.

    Raises:
        ValueError: a confidence is no probability (with its row).
    """
    found = reliability_bins(confidence, correct, bins)
    return float(np.abs(found.hits - found.confidence_sum).sum() / found.count.sum())


def mce(confidence: npt.ArrayLike, correct: npt.ArrayLike, bins: int = BINS) -> float:
    """Maximum calibration error: the largest ``|acc_b − conf_b|`` of a bin that is not empty."""
    found = reliability_bins(confidence, correct, bins)
    return float(np.nanmax(np.abs(found.accuracy - found.confidence)))


def adaptive_ece(confidence: npt.ArrayLike, correct: npt.ArrayLike, bins: int = BINS) -> float:
    """ECE over bins of equal mass (Nguyen and O'Connor, 2015; Nixon et al., 2019).

    The samples sorted by confidence are cut into `bins` runs whose lengths differ by one at most;
    with N < `bins` each sample is its own. Samples of equal confidence that fall into several runs
    count with their common accuracy, so the order of rows does not matter.

    Args:
        confidence: of the predicted class ``[N]`` in ``[0, 1]``.
        correct: whether the prediction is right ``[N]``.
        bins: how many runs.

    Returns:
        in ``[0, 1]``.
    """
    values, hits = confidences_and_hits(confidence, correct)
    order = np.argsort(values)
    gap = (values - _tied_mean(values, hits))[order]
    runs = np.array_split(gap, min(bins, values.size))
    return float(sum(abs(run.sum()) for run in runs) / values.size)


def _tied_mean(values: Array, hits: Booleans) -> Array:
    """For each sample the accuracy of all samples of its confidence."""
    _, group = np.unique(values, return_inverse=True)
    return np.asarray(np.bincount(group, hits)[group] / np.bincount(group)[group])


def classwise_bins(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = BINS
) -> dict[str, npt.NDArray[np.generic]]:
    """What classwise ECE needs, in K × `bins` rows instead of N × K probabilities.

    Args:
        probabilities: mean prediction p̄ ``[N, K]``, rows summing to 1.
        labels: ``[N]`` in ``[0, K)``.
        bins: equal-width bins a class.

    Returns:
        columns ``[K · bins]``, sorted by class, then bin: ``class``, ``bin``, ``count`` (samples
        whose probability of the class lies in the bin), ``confidence_sum`` (of these probabilities)
        and ``hits`` (those samples that are of the class). Add batches up with
        `add_classwise_bins`.

    Raises:
        ValueError: a row does not sum to 1 ± 1e-4 or a label is no class (with the row).
    """
    values, own = probabilities_and_labels(probabilities, labels)
    samples, classes = values.shape
    index = bin_index(values, bins) + bins * np.arange(classes)
    size = classes * bins
    return {
        "class": np.repeat(np.arange(classes), bins),
        "bin": np.tile(np.arange(bins), classes),
        "count": np.bincount(index.ravel(), minlength=size),
        "confidence_sum": np.bincount(index.ravel(), values.ravel(), size),
        "hits": np.bincount(index[np.arange(samples), own], minlength=size),
    }


def add_classwise_bins(
    first: Mapping[str, npt.NDArray[np.generic]], second: Mapping[str, npt.NDArray[np.generic]]
) -> dict[str, npt.NDArray[np.generic]]:
    """The classwise bins of two batches together.

    Raises:
        ValueError: they are not of the same classes and bins.
    """
    keys = ("class", "bin")
    if not all(np.array_equal(first[key], second[key]) for key in keys):
        raise ValueError("classwise bins: the two batches differ in their classes or bins")
    sums = {key: np.add(first[key], second[key]) for key in ("count", "confidence_sum", "hits")}
    return {**{key: first[key] for key in keys}, **sums}


def classwise_ece_from_bins(bins: Records) -> float:
    """Classwise ECE: the mean over classes of the ECE of «is it class k?» (Kull et al., 2019).

    Args:
        bins: what `classwise_bins` gave, summed over all batches; a mapping or a DataFrame.

    Returns:
        ``(1/K) Σ_k Σ_b n_kb/N |share of class k − mean p̄(k)|``, in ``[0, 1]``.
    """
    # Each class counts all N samples, so the sum of all counts is K · N.
    gap = np.abs(column(bins, "hits") - column(bins, "confidence_sum"))
    return float(gap.sum() / column(bins, "count").sum())


def classwise_ece(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = BINS) -> float:
    """Classwise ECE of probabilities ``[N, K]``; see `classwise_ece_from_bins`."""
    return classwise_ece_from_bins(classwise_bins(probabilities, labels, bins))
