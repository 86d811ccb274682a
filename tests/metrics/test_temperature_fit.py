"""The fitted temperature against brute force and against the root of the derivative."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax

from bench.metrics import temperature as module
from bench.metrics.temperature import LARGEST, SMALLEST, fit_temperature


def draw(samples=400, classes=4, sharpness=1.0, seed=0):
    """Labels drawn from softmax(z); predictions softmax(sharpness · z): T should be `sharpness`."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((samples, classes))
    labels = np.array([rng.choice(classes, p=softmax(row)) for row in logits])
    return log_softmax(sharpness * logits, axis=1), labels


def nll(log_probabilities, labels, temperature):
    tempered = log_softmax(log_probabilities / temperature, axis=1)
    return -tempered[np.arange(len(labels)), labels].mean()


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 4.0])
def test_minimises_the_nll(sharpness):
    data = draw(sharpness=sharpness)
    found = fit_temperature(*data)
    grid = np.exp(np.linspace(np.log(SMALLEST), np.log(LARGEST), 400))
    assert nll(*data, found) <= min(nll(*data, value) for value in grid) + 1e-12
    assert found == pytest.approx(sharpness, rel=0.25)


@pytest.mark.parametrize("seed", range(3))
def test_derivative_is_zero(seed):
    log_probabilities, labels = draw(sharpness=2.5, seed=seed)

    def derivative(inverse):
        tempered = softmax(inverse * log_probabilities, axis=1)
        own = log_probabilities[np.arange(len(labels)), labels]
        return ((tempered * log_probabilities).sum(axis=1) - own).mean()

    expected = 1 / brentq(derivative, 1 / LARGEST, 1 / SMALLEST, xtol=1e-12)
    assert fit_temperature(log_probabilities, labels) == pytest.approx(expected, rel=1e-4)


@settings(max_examples=25, deadline=None)
@given(
    samples=st.integers(1, 6),
    classes=st.integers(1, 4),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 40.0, 1e4, 1e30]),
    seed=st.integers(0, 10**6),
)
def test_never_worse_than_no_temperature(samples, classes, scale, seed):
    rng = np.random.default_rng(seed)
    values = log_softmax(scale * rng.standard_normal((samples, classes)), axis=1)
    labels = rng.integers(0, classes, samples)
    found = fit_temperature(values, labels)
    assert SMALLEST - 1e-12 <= found <= LARGEST + 1e-9
    assert nll(values, labels, found) <= nll(values, labels, 1.0) * (1 + 1e-12) + 1e-12


def test_right_everywhere_sharpens_to_the_bound():
    values = log_softmax(np.array([[1.0, 0.0], [0.0, 1.0]]), axis=1)
    assert fit_temperature(values, np.array([0, 1])) == pytest.approx(SMALLEST, rel=1e-3)


def test_wrong_everywhere_flattens_to_the_bound():
    values = log_softmax(np.array([[9.0, 0.0], [0.0, 9.0]]), axis=1)
    assert fit_temperature(values, np.array([1, 0])) == pytest.approx(LARGEST, rel=1e-3)


def test_uniform_predictions_need_no_temperature():
    assert fit_temperature(np.full((5, 4), -math.log(4)), np.zeros(5, dtype=int)) == 1.0


def test_a_class_without_probability_is_fine_unless_it_is_the_label():
    values = np.log(np.array([[0.5, 0.25, 0.25], [0.25, 0.75, 0.25]])) - [[0, 0, 0], [0, 0, np.inf]]
    assert SMALLEST <= fit_temperature(values, np.array([1, 0])) <= LARGEST
    with pytest.raises(ValueError, match="row 1 gives its label probability 0"):
        fit_temperature(values, np.array([1, 2]))


@pytest.mark.parametrize("row", [[0.0, 0.0], [math.nan, 0.0], [math.inf, 0.0], [-math.inf] * 2])
def test_rows_that_are_no_distribution_are_refused(row):
    values = np.log(np.full((3, 2), 0.5))
    values[2] = row
    with pytest.raises(ValueError, match="row 2 has probabilities that sum to"):
        fit_temperature(values, np.zeros(3, dtype=int))


@pytest.mark.parametrize("labels", [[0, 2], [0, -1], [0.0, 1.0], [0]])
def test_wrong_labels_are_refused(labels):
    with pytest.raises(ValueError, match="labels"):
        fit_temperature(np.log(np.full((2, 2), 0.5)), np.array(labels))


def test_chunks_do_not_matter(monkeypatch):
    data = draw(sharpness=3.0)
    whole = fit_temperature(*data)
    monkeypatch.setattr(module, "CHUNK", 40)
    assert fit_temperature(*data) == pytest.approx(whole, rel=1e-6)
