"""One temperature for a trained ensemble, fitted on the validation split."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from bench.metrics.columns import TOLERANCE, Array, Integers, class_labels

SMALLEST, LARGEST = 0.05, 20.0
"""The temperatures that are considered."""

CHUNK = 2**21
"""Log-probabilities treated at a time."""


def fit_temperature(log_probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The temperature T that minimises the mean NLL of ``softmax(log p̄ / T)``.

    Guo et al., 2017, on the ensemble's mean prediction (Ashukha et al., 2020). The NLL is convex in
    1/T, so the bounded search in log T finds its one minimum.

    Args:
        log_probabilities: log p̄ ``[N, K]`` of the validation split.
        labels: ``[N]`` in ``[0, K)``.

    Returns:
        T in [`SMALLEST`, `LARGEST`]: above 1 where the ensemble is overconfident. 1 where no other
        T is better, as with uniform predictions.

    Raises:
        ValueError: a row is no log-distribution (its probabilities must sum to 1 ± 1e-4), or gives
            its label no probability at all (with the row).
    """
    values, classes = _checked(log_probabilities, labels)
    # The softmax ignores a shift; with the largest at 0 no exponential overflows at any T.
    shifted = values - values.max(axis=1, keepdims=True)

    def loss(log_temperature: float) -> float:
        return _nll(shifted, classes, float(np.exp(log_temperature)))

    bounds = (float(np.log(SMALLEST)), float(np.log(LARGEST)))
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    best = min([float(found.x), *bounds], key=loss)
    if loss(best) >= loss(0.0) - 1e-12:
        return 1.0
    return float(np.exp(best))


def _nll(shifted: Array, labels: Integers, temperature: float) -> float:
    """Mean NLL at a temperature, in bounded memory; the largest value of each row is 0."""
    samples, classes = shifted.shape
    step = max(1, CHUNK // classes)
    total = 0.0
    for start in range(0, samples, step):
        scaled = shifted[start : start + step] / temperature
        own = scaled[np.arange(len(scaled)), labels[start : start + step]]
        total += float((np.log(np.exp(scaled).sum(axis=1)) - own).sum())
    return total / int(samples)


def _checked(log_probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Array, Integers]:
    values = np.asarray(log_probabilities, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"log-probabilities: must be [N, K], not {list(values.shape)}")
    classes = class_labels(labels, *values.shape)
    with np.errstate(invalid="ignore"):
        sums = np.exp(np.asarray(logsumexp(values, axis=1)))
    good = np.abs(sums - 1) <= TOLERANCE
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(
            f"log-probabilities: row {row} has probabilities that sum to {sums[row]:g}, not 1"
        )
    impossible = np.isneginf(values[np.arange(len(classes)), classes])
    if impossible.any():
        raise ValueError(
            f"log-probabilities: row {int(np.argmax(impossible))} gives its label probability 0"
        )
    return values, classes
