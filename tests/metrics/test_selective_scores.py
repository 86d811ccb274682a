"""AURC, E-AURC and error detection against plain loops; more in test_against_libraries."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from bench.metrics.selective import aurc, error_auroc, excess_aurc, risk_coverage

SAMPLES = st.lists(
    st.tuples(st.one_of(st.sampled_from([0.0, 0.5, 0.75, 1.0]), st.floats(0, 1)), st.booleans()),
    min_size=1,
    max_size=30,
)


def columns(samples):
    confidence, correct = zip(*samples, strict=True)
    return np.array(confidence), np.array(correct)


def loop(confidence, correct):
    """Each sample's risk: the error rate among all that are at least as confident."""
    risks = []
    for own in confidence:
        accepted = [not a for c, a in zip(confidence, correct, strict=True) if c >= own]
        risks.append(sum(accepted) / len(accepted))
    return sum(risks) / len(risks)


def best_order(correct):
    return loop(range(len(correct), 0, -1), sorted(correct, reverse=True))


@settings(max_examples=60, deadline=None)
@given(samples=SAMPLES)
def test_against_the_loop(samples):
    confidence, correct = columns(samples)
    expected = loop(confidence, correct)
    assert aurc(confidence, correct) == pytest.approx(expected, abs=1e-12)
    excess = expected - best_order(correct)
    assert excess_aurc(confidence, correct) == pytest.approx(excess, abs=1e-12)
    assert excess_aurc(confidence, correct) >= 0


@settings(max_examples=40, deadline=None)
@given(samples=SAMPLES)
def test_error_auroc_against_scikit_learn(samples):
    confidence, correct = columns(samples)
    if correct.all() or not correct.any():
        assert error_auroc(confidence, correct) is None
    else:
        expected = roc_auc_score(~correct, -confidence)
        assert error_auroc(confidence, correct) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(samples=SAMPLES, seed=st.integers(0, 1000))
def test_order_of_rows_does_not_matter(samples, seed):
    confidence, correct = columns(samples)
    order = np.random.default_rng(seed).permutation(len(confidence))
    for score in (aurc, excess_aurc, error_auroc):
        assert score(confidence[order], correct[order]) == score(confidence, correct)


def test_golden_values():
    """Risks 0, 1/2, 1/3: the best order of the same predictions has 0, 0, 1/3."""
    confidence, correct = [0.9, 0.8, 0.7], [1, 0, 1]
    assert aurc(confidence, correct) == pytest.approx(5 / 18)
    assert excess_aurc(confidence, correct) == pytest.approx(3 / 18)
    assert error_auroc(confidence, correct) == 0.5


@pytest.mark.parametrize("order", list(itertools.permutations([1, 1, 1, 1, 0, 0]))[::120])
def test_equal_confidences_stand_together(order):
    assert aurc([0.5] * 6, order) == pytest.approx(1 / 3)
    assert error_auroc([0.5] * 6, order) == 0.5


def test_no_errors_and_nothing_but_errors():
    confidence = [0.9, 0.8, 0.8, 0.1]
    assert aurc(confidence, [1] * 4) == 0
    assert aurc(confidence, [0] * 4) == 1
    for correct in ([1] * 4, [0] * 4):
        assert excess_aurc(confidence, correct) == 0
        assert error_auroc(confidence, correct) is None


def test_one_sample():
    assert (aurc([0.3], [0]), aurc([0.3], [1])) == (1, 0)


def test_errors_ranked_last_are_perfect():
    confidence, correct = [0.9, 0.8, 0.3, 0.2], [1, 1, 0, 0]
    assert excess_aurc(confidence, correct) == 0
    assert error_auroc(confidence, correct) == 1


def test_curve():
    coverage, risk = risk_coverage([0.5, 1.0, 0.5, 0.0], [0, 1, 1, 0])
    np.testing.assert_allclose(coverage, [0.25, 0.75, 1.0])
    np.testing.assert_allclose(risk, [0, 1 / 3, 0.5])
