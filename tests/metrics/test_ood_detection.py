"""OOD detection against scikit-learn and pairwise loops; more in test_against_libraries."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from bench.metrics.detection import (
    aupr_in,
    aupr_out,
    auroc,
    detection_metrics,
    fpr95,
    ood_scores,
)
from bench.metrics.records import sample_records

SCORES = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6)), min_size=1, max_size=40
)


def joined(inside, outside):
    return [0] * len(inside) + [1] * len(outside), [*inside, *outside]


@settings(max_examples=60, deadline=None)
@given(inside=SCORES, outside=SCORES)
def test_against_scikit_learn(inside, outside):
    target, scores = joined(inside, outside)
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(target, scores), abs=1e-12)
    expected = average_precision_score(target, scores)
    assert aupr_out(inside, outside) == pytest.approx(expected, abs=1e-12)
    expected = average_precision_score(1 - np.array(target), -np.array(scores))
    assert aupr_in(inside, outside) == pytest.approx(expected, abs=1e-12)
    false, true, _ = roc_curve(target, scores, drop_intermediate=False)
    assert fpr95(inside, outside) == pytest.approx(false[true >= 0.95 - 1e-12].min(), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(inside=SCORES, outside=SCORES)
def test_against_loops(inside, outside):
    wins = sum((o > i) + (o == i) / 2 for i in inside for o in outside)
    assert auroc(inside, outside) == pytest.approx(wins / len(inside) / len(outside), abs=1e-12)
    enough = [
        sum(i >= level for i in inside) / len(inside)
        for level in outside
        if 20 * sum(o >= level for o in outside) >= 19 * len(outside)
    ]
    assert fpr95(inside, outside) == pytest.approx(min(enough), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(inside=SCORES, outside=SCORES, seed=st.integers(0, 1000))
def test_order_and_scale_do_not_matter(inside, outside, seed):
    rng = np.random.default_rng(seed)
    expected = detection_metrics(inside, outside)
    shuffled = detection_metrics(rng.permutation(inside), rng.permutation(outside))
    assert shuffled == pytest.approx(expected, abs=1e-12)
    doubled = detection_metrics(2 * np.array(inside), 2 * np.array(outside))
    assert doubled == pytest.approx(expected, abs=1e-12)


def test_perfect_useless_and_inverted():
    low, high = [0.1, 0.2, 0.3], [0.7, 0.8]
    assert detection_metrics(low, high) == {
        "auroc": 1.0,
        "aupr_in": 1.0,
        "aupr_out": 1.0,
        "fpr95": 0.0,
    }
    assert auroc(high, low) == 0
    assert fpr95(high, low) == 1
    tied = detection_metrics([5.0] * 3, [5.0])
    assert tied == {"auroc": 0.5, "aupr_in": 0.75, "aupr_out": 0.25, "fpr95": 1.0}


def test_fpr_at_exactly_95_percent():
    """19 of 20 OOD samples are 95 %: the twentieth may be missed."""
    outside = [*range(10, 29), 0]
    assert fpr95([1.0, 2.0, 11.5], outside) == pytest.approx(1 / 3)
    assert fpr95([1.0, 2.0, 11.5], outside[1:]) == pytest.approx(1.0)


def test_aupr_takes_the_right_side_as_positive():
    """One of four samples is OOD and ranked second: precision 1/2 out; in: 1, 1, 3/4."""
    inside, outside = [0.1, 0.2, 0.9], [0.5]
    assert aupr_out(inside, outside) == pytest.approx(1 / 2)
    assert aupr_in(inside, outside) == pytest.approx((1 + 1 + 3 / 4) / 3)


@pytest.mark.parametrize("metric", [auroc, aupr_in, aupr_out, fpr95])
def test_scores_that_are_missing_are_refused(metric):
    with pytest.raises(ValueError, match="inside: the score of row 1 is NaN"):
        metric([0.0, math.nan], [1.0])
    with pytest.raises(ValueError, match="outside: the score of row 0 is NaN"):
        metric([0.0], [math.nan])
    with pytest.raises(ValueError, match="outside: scores must be"):
        metric([0.0], [])
    with pytest.raises(ValueError, match="inside: scores must be"):
        metric([[0.0]], [1.0])


def test_infinite_scores_rank_at_the_ends():
    assert auroc([-math.inf, 0.0], [1.0, math.inf]) == 1


@pytest.mark.parametrize("members", [1, 3])
def test_every_score_is_higher_for_ood(members):
    generator = torch.Generator().manual_seed(0)
    own = torch.randn(200, members, 6, generator=generator)
    own[:, :, 2] += 9
    other = torch.randn(150, members, 6, generator=generator)
    unknown = torch.full((150,), -1)
    inside = ood_scores(sample_records(own, torch.full((200,), 2)))
    outside = ood_scores(sample_records(other, unknown))
    names = ["max_softmax", "entropy", "mutual_information", "energy"]
    assert list(inside) == [n for n in names if members > 1 or n != "mutual_information"]
    for name, values in inside.items():
        assert auroc(values, outside[name]) > 0.95, name
