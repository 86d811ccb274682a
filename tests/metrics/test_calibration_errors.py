"""Binned calibration errors against plain loops; more references in test_against_libraries."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.metrics.calibration import (
    adaptive_ece,
    add_classwise_bins,
    bin_index,
    classwise_bins,
    classwise_ece,
    classwise_ece_from_bins,
    ece,
    mce,
    reliability_bins,
    smooth_ece,
)

CONFIDENCES = st.one_of(
    st.sampled_from([0.0, 1.0, 0.2, 1 / 3, 0.5, 0.6, 0.7, 0.8, 14 / 15, 1 / 15]), st.floats(0, 1)
)
SAMPLES = st.lists(st.tuples(CONFIDENCES, st.booleans()), min_size=1, max_size=40)
ERRORS = [ece, mce, adaptive_ece, smooth_ece]


def gaps(confidence, correct, bins):
    """(n_b, |acc_b − conf_b|) of every bin that is not empty, by the definition of its interval."""
    found = []
    for b in range(1, bins + 1):
        inside = [
            (c, a)
            for c, a in zip(confidence, correct, strict=True)
            if (b - 1) / bins < c <= b / bins or (b == 1 and c == 0)
        ]
        if inside:
            mean = sum(c for c, _ in inside) / len(inside)
            found.append((len(inside), abs(sum(a for _, a in inside) / len(inside) - mean)))
    return found


@settings(max_examples=60, deadline=None)
@given(samples=SAMPLES, bins=st.sampled_from([1, 5, 10, 15]))
def test_ece_and_mce_against_the_loop(samples, bins):
    confidence, correct = zip(*samples, strict=True)
    parts = gaps(confidence, correct, bins)
    expected = sum(count * gap for count, gap in parts) / len(samples)
    assert ece(confidence, correct, bins) == pytest.approx(expected, abs=1e-12)
    assert mce(confidence, correct, bins) == pytest.approx(max(g for _, g in parts), abs=1e-12)


@pytest.mark.parametrize("bins", [5, 10, 15])
def test_bins_are_right_closed_at_every_edge(bins):
    edges = np.arange(bins + 1) / bins
    assert bin_index(edges, bins).tolist() == [0, *range(bins)]
    assert bin_index(np.nextafter(edges[:-1], 2), bins).tolist() == list(range(bins))


def test_edges_are_the_decimals_that_people_write():
    assert bin_index(np.array([0.1, 0.2, 0.3, 0.6, 0.7, 0.8]), 10).tolist() == [0, 1, 2, 5, 6, 7]


def test_golden_value():
    """Bins (0.4, 0.6] and (0.8, 1]: gaps |0.5 − 0.55| and |1 − 0.95|, two samples of four each."""
    confidence, correct = [0.5, 0.6, 0.9, 1.0], [1, 0, 1, 1]
    assert ece(confidence, correct, 5) == pytest.approx(0.05)
    assert mce(confidence, correct, 5) == pytest.approx(0.05)


def adaptive_loop(confidence, correct, bins):
    """Equal-mass bins over runs of the sorted samples, each with its ties' mean correctness."""
    ties = {c: [a for d, a in zip(confidence, correct, strict=True) if d == c] for c in confidence}
    rows = sorted((c, sum(ties[c]) / len(ties[c])) for c in confidence)
    total = 0.0
    for b in range(bins):
        longer = len(rows) % bins
        start = b * (len(rows) // bins) + min(b, longer)
        end = start + len(rows) // bins + (b < longer)
        total += abs(sum(c - a for c, a in rows[start:end]))
    return total / len(rows)


@settings(max_examples=60, deadline=None)
@given(samples=SAMPLES, bins=st.sampled_from([1, 4, 15]))
def test_adaptive_ece_against_the_loop(samples, bins):
    confidence, correct = zip(*samples, strict=True)
    expected = adaptive_loop(confidence, correct, bins)
    assert adaptive_ece(confidence, correct, bins) == pytest.approx(expected, abs=1e-12)


def test_adaptive_ece_with_fewer_samples_than_bins():
    assert adaptive_ece([0.9, 0.6, 0.8], [1, 0, 1], 15) == pytest.approx((0.1 + 0.6 + 0.2) / 3)


@pytest.mark.parametrize("error", ERRORS)
@settings(max_examples=25, deadline=None)
@given(samples=SAMPLES, seed=st.integers(0, 1000))
def test_in_range_and_independent_of_the_order(error, samples, seed):
    confidence, correct = (np.array(part) for part in zip(*samples, strict=True))
    value = error(confidence, correct)
    assert 0 <= value <= 1
    order = np.random.default_rng(seed).permutation(len(confidence))
    assert error(confidence[order], correct[order]) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("error", ERRORS)
def test_certain_predictions(error):
    assert error([1.0, 1.0], [1, 1]) == pytest.approx(0, abs=1e-9)
    assert error([0.0, 0.0], [0, 0]) == pytest.approx(0, abs=1e-9)
    assert error([1.0, 1.0], [0, 0]) == pytest.approx(1)
    assert error([0.0], [1]) == pytest.approx(1)


@pytest.mark.parametrize("error", ERRORS)
def test_one_group_of_ties_is_its_gap(error):
    """Binned errors see |accuracy − confidence|; the smooth error of one point mass is the same."""
    assert error([0.7] * 10, [1] * 5 + [0] * 5) == pytest.approx(0.2, abs=1e-6)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("confidence", "correct", "match"),
    [
        ([0.5, 1.1], [1, 1], "row 1 is 1.1"),
        ([-0.1], [1], "row 0 is -0.1"),
        ([0.5, math.nan], [1, 1], "row 1 is nan"),
        ([0.5, 0.5], [1, 2], "row 1 is 2"),
        ([0.5, 0.5], [1], "confidence has 2 rows, correct has 1"),
        ([], [], r"\[0\]"),
        ([[0.5]], [[1]], r"\[1, 1\]"),
    ],
)
def test_wrong_inputs(error, confidence, correct, match):
    with pytest.raises(ValueError, match=match):
        error(confidence, correct)


def test_reliability_bins():
    found = reliability_bins([0.0, 0.1, 0.35, 1.0], [0, 1, 1, 0], bins=5)
    assert found.count.tolist() == [2, 1, 0, 0, 1]
    assert found.lower.tolist() == [0.0, 0.2, 0.4, 0.6, 0.8]
    assert found.upper.tolist() == [0.2, 0.4, 0.6, 0.8, 1.0]
    np.testing.assert_allclose(found.confidence, [0.05, 0.35, np.nan, np.nan, 1.0])
    np.testing.assert_allclose(found.accuracy, [0.5, 1.0, np.nan, np.nan, 0.0])


def draw(samples, classes, seed=0):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.4), samples)
    probabilities[0] = np.eye(classes)[0]  # probabilities of exactly 0 and 1
    return probabilities, rng.integers(0, max(1, classes - 1), samples)  # the last class is missing


@pytest.mark.parametrize(("samples", "classes"), [(1, 2), (1, 1), (30, 3), (200, 12)])
def test_classwise_ece_against_the_loop(samples, classes):
    probabilities, labels = draw(samples, classes)
    by_class = [
        sum(n * gap for n, gap in gaps(probabilities[:, k], labels == k, 15)) / samples
        for k in range(classes)
    ]
    expected = sum(by_class) / classes
    assert classwise_ece(probabilities, labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("size", [1, 3, 10])
def test_classwise_bins_add_up_over_batches(size):
    probabilities, labels = draw(10, 4)
    whole = classwise_bins(probabilities, labels)
    total = None
    for start in range(0, 10, size):
        part = classwise_bins(probabilities[start : start + size], labels[start : start + size])
        total = part if total is None else add_classwise_bins(total, part)
    for name, values in whole.items():
        np.testing.assert_allclose(total[name], values, rtol=1e-14, err_msg=name)
    assert classwise_ece_from_bins(total) == pytest.approx(classwise_ece(probabilities, labels))


def test_classwise_bins_columns(tmp_path):
    probabilities, labels = draw(20, 3)
    bins = classwise_bins(probabilities, labels)
    frame = pd.DataFrame(bins)
    assert list(frame) == ["class", "bin", "count", "confidence_sum", "hits"]
    assert len(frame) == 3 * 15
    assert frame.groupby("class")["count"].sum().tolist() == [20, 20, 20]
    assert frame.groupby("class")["hits"].sum().tolist() == [sum(labels == k) for k in range(3)]
    frame.to_parquet(tmp_path / "bins.parquet")
    shuffled = pd.read_parquet(tmp_path / "bins.parquet").sample(frac=1, random_state=0)
    expected = classwise_ece(probabilities, labels)
    assert classwise_ece_from_bins(shuffled) == pytest.approx(expected, abs=1e-15)


def test_classwise_bins_of_different_tasks_do_not_add():
    with pytest.raises(ValueError, match="differ in their classes"):
        add_classwise_bins(classwise_bins(*draw(5, 3)), classwise_bins(*draw(5, 4)))


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ([0.5, 0.4998], "row 1 sums to 0.9998"),
        ([0.5, 0.5002], "row 1 sums to 1.0002"),
        ([1.5, -0.5], "row 1 sums to 1 with minimum -0.5"),
        ([math.nan, 0.5], "row 1 sums to nan"),
    ],
)
def test_rows_that_are_no_distribution_are_refused(row, match):
    with pytest.raises(ValueError, match=match):
        classwise_bins([[0.5, 0.5], row], np.array([0, 1]))


def test_rounding_of_float32_is_accepted():
    probabilities = np.array([[1 + 1e-7, 0.0], [0.25, 0.75 - 9e-5]])
    expected = classwise_ece([[1.0, 0.0], [0.25, 0.75]], np.array([0, 1]))
    assert classwise_ece(probabilities, np.array([0, 1])) == pytest.approx(expected, abs=1e-4)
    assert ece([1 + 1e-7, 0.5], [1, 0]) == pytest.approx(0.25, abs=1e-6)


@pytest.mark.parametrize("labels", [[0, 2], [-1, 0], [0], [0.0, 1.0]])
def test_wrong_labels_are_refused(labels):
    with pytest.raises(ValueError, match="labels"):
        classwise_bins([[0.5, 0.5], [0.5, 0.5]], np.array(labels))
