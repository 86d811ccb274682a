"""Per-sample records as arrays, and the checks that every metric makes of its inputs."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

TOLERANCE = 1e-4
"""How far from 1 a row of probabilities may sum, and how far above it a confidence may lie."""


class Records(Protocol):
    """Columns by name, one value a sample: a pandas DataFrame or a mapping of arrays."""

    def __getitem__(self, key: str, /) -> Any:
        """The column called `key`."""

    def __contains__(self, key: object, /) -> bool:
        """Whether there is a column called `key`."""


def column(records: Records, name: str) -> Array:
    """One column as float64 ``[N]``.

    Raises:
        ValueError: there is no such column, it is empty, or a value is not finite (with its row).
    """
    if name not in records:
        raise ValueError(f"records: no column {name!r}")
    return finite(records[name], name)


def labels_of(records: Records) -> Integers:
    """The column ``label`` as int64 ``[N]``."""
    return column(records, "label").astype(np.int64)


def hits_of(records: Records) -> Booleans:
    """Whether each sample's prediction is its label ``[N]``."""
    labels = labels_of(records)
    if labels.min() < 0:
        raise ValueError(f"records: row {int(np.argmin(labels))} has no known label")
    return np.asarray(labels == column(records, "prediction"), dtype=np.bool_)


def finite(values: npt.ArrayLike, name: str) -> Array:
    """`values` as float64 ``[N]``, N ≥ 1.

    Raises:
        ValueError: not one-dimensional, empty, or a value is not finite (with its row).
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name}: must be [N] with N >= 1, not {list(array.shape)}")
    bad = ~np.isfinite(array)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"{name}: row {row} is {array[row]}, must be finite")
    return array


def confidences_and_hits(
    confidence: npt.ArrayLike, correct: npt.ArrayLike
) -> tuple[Array, Booleans]:
    """Checked confidences in ``[0, 1]`` and whether each prediction is right, both ``[N]``.

    Raises:
        ValueError: a confidence is no probability, `correct` is neither 0 nor 1 (with the row), or
            the lengths differ.
    """
    values = finite(confidence, "confidence")
    hits = finite(correct, "correct")
    if values.shape != hits.shape:
        raise ValueError(f"confidence has {values.size} rows, correct has {hits.size}")
    wrong = (values < 0) | (values > 1 + TOLERANCE)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"confidence: row {row} is {values[row]}, must be in [0, 1]")
    neither = (hits != 0) & (hits != 1)
    if neither.any():
        row = int(np.argmax(neither))
        raise ValueError(f"correct: row {row} is {hits[row]}, must be 0 or 1")
    return np.minimum(values, 1.0), hits == 1


def probabilities_and_labels(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[Array, Integers]:
    """Checked probabilities ``[N, K]``, rows summing to 1, and labels ``[N]`` in ``[0, K)``.

    Raises:
        ValueError: a row is negative, not finite, or sums to 1 ± more than `TOLERANCE`; a label is
            no class (with the row).
    """
    values = np.asarray(probabilities, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"probabilities: must be [N, K] with N, K >= 1, not {list(values.shape)}")
    sums = values.sum(axis=1)
    good = (np.abs(sums - 1) <= TOLERANCE) & (values >= 0).all(axis=1)
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(
            f"probabilities: row {row} sums to {sums[row]:g} with minimum {values[row].min():g}, "
            "must sum to 1 without negative values"
        )
    return values, class_labels(labels, *values.shape)


def class_labels(labels: npt.ArrayLike, samples: int, classes: int) -> Integers:
    """Checked labels: int64 ``[samples]`` in ``[0, classes)``."""
    values = np.asarray(labels)
    if values.shape != (samples,) or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(
            f"labels: must be integers [{samples}], not {values.dtype} {list(values.shape)}"
        )
    bad = (values < 0) | (values >= classes)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"labels: row {row} is {values[row]}, must be in [0, {classes})")
    return values.astype(np.int64)
