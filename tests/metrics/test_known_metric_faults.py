"""Faults that other projects' metrics shipped with, each with the right value."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

from bench.metrics.calibration import classwise_bins, ece, mce, reliability_bins
from bench.metrics.definitions import DEFINITIONS
from bench.metrics.detection import auroc, ood_scores
from bench.metrics.records import log_mean_probabilities, sample_records
from bench.metrics.selective import aurc
from bench.metrics.summary import summarise


def logits_of(*members):
    """Logits ``[1, M, K]`` whose softmax is as given; a probability of 0 is one of e^-2000."""
    floored = [[math.log(p) if p else -2000.0 for p in member] for member in members]
    return torch.tensor([floored], dtype=torch.float64)


def test_confidence_of_one_has_no_bin_of_its_own():
    assert ece([1.0, 0.95], [0, 1], bins=10) == pytest.approx(0.475)
    assert mce([1.0, 0.95], [0, 1], bins=10) == pytest.approx(0.475)


def test_confidence_of_zero_is_in_the_first_bin():
    found = reliability_bins([0.0, 0.05, 0.95], [0, 1, 1], bins=10)
    assert found.count.tolist() == [2, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert ece([0.0, 0.05], [0, 1], bins=10) == pytest.approx(0.475)


def test_probability_just_above_one_is_no_logit():
    probabilities = np.array([[1 + 1e-7, 0.0], [0.2, 0.8]])
    bins = classwise_bins(probabilities, np.array([0, 1]))
    assert bins["confidence_sum"].sum() == pytest.approx(2.0, abs=1e-6)
    assert ece([1 + 1e-7, 0.8], [1, 1]) == pytest.approx(0.1, abs=1e-6)


def test_logits_are_no_probabilities():
    with pytest.raises(ValueError, match="row 1 sums to"):
        classwise_bins([[0.5, 0.5], [2.0, -1.0]], np.array([0, 1]))


@pytest.mark.parametrize("key", ["ece", "adaptive_ece", "classwise_ece", "calibrated_ece"])
def test_which_calibration_error_a_number_is(key):
    text = DEFINITIONS[key].text
    own = "ECE" in text and "T fitted" in text
    assert own or "15" in text
    assert own or any(word in text for word in ("predicted class", "classes k", "as ECE"))


def test_bins_count_by_their_size_and_mean_confidence():
    """Nine right at 0.9, one wrong at 0.55: not the plain mean of gaps, and no bin centres."""
    confidence, correct = [0.9] * 9 + [0.55], [1] * 9 + [0]
    assert ece(confidence, correct, bins=10) == pytest.approx(0.9 * 0.1 + 0.1 * 0.55)


def test_one_network_has_no_disagreement():
    labels = torch.tensor([0, 1])
    frame = pd.DataFrame(sample_records(torch.randn(2, 1, 3), labels))
    found = summarise({"validation": frame, "test": frame})
    for key in ("mutual_information", "disagreement", "pairwise_kl", "member_accuracy"):
        assert key not in found["test"]
    json.dumps(found, allow_nan=False)


def test_two_entropies_are_two_columns():
    found = sample_records(logits_of([1, 0], [0, 1]), torch.tensor([0]))
    assert found["entropy"].item() == pytest.approx(math.log(2))
    assert found["expected_entropy"].item() == pytest.approx(0, abs=1e-12)
    assert found["mutual_information"].item() == pytest.approx(math.log(2))
    assert found["disagreement"].item() == 1


@pytest.mark.parametrize("gap", [120.0, 1e4, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nll_of_certain_errors_is_finite(gap, dtype):
    logits = torch.tensor([[[gap, 0.0]]], dtype=dtype)
    found = sample_records(logits, torch.tensor([1]))
    assert found["log_likelihood"].item() == pytest.approx(-gap, rel=1e-6)


def test_nll_of_half_precision_logits_is_finite():
    logits = torch.tensor([[[20.0, 0.0]]], dtype=torch.float16)
    found = sample_records(logits, torch.tensor([1]))["log_likelihood"].item()
    assert found == pytest.approx(-20 - math.exp(-20), abs=1e-12)


def test_one_certain_error_of_one_member_does_not_decide():
    """Members at 0 and 1/2: the mean is 1/4, wherever the logarithm is taken."""
    found = sample_records(logits_of([0, 1], [0.5, 0.5]), torch.tensor([0]))
    assert found["log_likelihood"].item() == pytest.approx(math.log(0.25))


def test_probabilities_are_averaged_not_logits():
    """Mean of logits would give 1/2: members 0.999 and 0.001 at odds that cancel."""
    logits = logits_of([0.9, 0.1], [0.3, 0.7])
    found = log_mean_probabilities(logits).exp()
    assert found[0].tolist() == pytest.approx([0.6, 0.4])
    records = sample_records(logits, torch.tensor([0]))
    assert records["confidence"].item() == pytest.approx(0.6)
    assert records["log_likelihood"].item() == pytest.approx(math.log(0.6))


def test_ood_is_positive_and_higher_means_more_ood():
    own = torch.tensor([[[8.0, 0.0, 0.0], [8.0, 0.1, 0.0]]] * 3)
    other = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]] * 2)
    inside = ood_scores(sample_records(own, torch.zeros(3).long()))
    outside = ood_scores(sample_records(other, torch.full((2,), -1)))
    assert set(inside) == {"max_softmax", "entropy", "mutual_information", "energy"}
    for name, values in inside.items():
        assert auroc(values, outside[name]) == 1.0, name


def test_scores_beyond_one_are_not_squashed():
    """Entropies around 1 nat and energies around −130 keep their ranks."""
    assert auroc([0.2, 0.9, 0.5], [1.1, 1.2, 2.0]) == 1.0
    assert auroc([-131.0, -132.0], [-130.0, -131.5]) == 0.75


def test_tied_confidences_have_one_aurc():
    assert aurc([0.7] * 6, [0, 0, 1, 1, 1, 1]) == aurc([0.7] * 6, [1, 1, 1, 1, 0, 0])
    assert aurc([0.7] * 6, [0, 0, 1, 1, 1, 1]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("batch", [1, 3, 10])
def test_every_sample_counts_once(batch):
    """Ten samples, three right; batches of 3, 3, 3, 1 must not weigh the last sample thrice."""
    logits = torch.zeros(10, 2, 2)
    logits[:, :, 0] = 1.0
    labels = torch.tensor([1] * 7 + [0] * 3)
    parts = zip(logits.split(batch), labels.split(batch), strict=True)
    frame = pd.concat([pd.DataFrame(sample_records(*part)) for part in parts])
    found = summarise({"validation": frame, "test": frame})["test"]
    assert found["samples"] == 10
    assert found["accuracy"] == pytest.approx(0.3)
    right = math.e / (1 + math.e)
    assert found["nll"] == pytest.approx(-(0.3 * math.log(right) + 0.7 * math.log(1 - right)))
    assert found["ece"] == pytest.approx(right - 0.3)
