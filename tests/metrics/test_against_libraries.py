"""Second opinions of torchmetrics and torch-uncertainty, away from the edges where those are wrong.

One file, since importing them takes seconds. Continuous random confidences have no ties and meet no
bin edge.
"""

import numpy as np
import pytest
import torch
from torch_uncertainty.metrics.classification import (
    AURC,
    FPR95,
    AdaptiveCalibrationError,
    BrierScore,
    CategoricalNLL,
    Disagreement,
    Entropy,
    MutualInformation,
)
from torch_uncertainty.metrics.classification.calibration.classwise_calibration_error import (
    ClasswiseCalibrationError,
)
from torch_uncertainty.metrics.classification.calibration.smooth_calibration_error import (
    SmoothCalibrationError,
)
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_average_precision,
    multiclass_accuracy,
    multiclass_calibration_error,
)

from bench.metrics.calibration import adaptive_ece, classwise_ece, ece, mce, smooth_ece
from bench.metrics.detection import aupr_in, aupr_out, auroc, fpr95
from bench.metrics.records import log_mean_probabilities, sample_records
from bench.metrics.selective import aurc, error_auroc

CLASSES = 6


class Case:
    """A random ensemble with its records, in float64."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, CLASSES, (500,), generator=generator)
        shared, own = (
            torch.randn(500, members, CLASSES, generator=generator, dtype=torch.float64)
            for members in (1, 4)
        )
        signal = torch.nn.functional.one_hot(self.labels, CLASSES)[:, None]
        logits = 1.8 * shared + 0.8 * own + 2 * signal
        self.members = logits.softmax(dim=2)
        self.probabilities = log_mean_probabilities(logits).exp()
        self.records = sample_records(logits, self.labels)
        self.confidence = self.records["confidence"].numpy()
        self.correct = (self.records["prediction"] == self.labels).numpy()


@pytest.fixture(scope="module", params=[0, 1])
def case(request):
    return Case(request.param)


def value(metric, *inputs):
    metric.update(*inputs)
    return float(metric.compute())


def test_accuracy(case):
    expected = multiclass_accuracy(case.probabilities, case.labels, CLASSES, average="micro")
    assert case.correct.mean() == pytest.approx(float(expected))


def test_nll_and_brier(case):
    inputs = (case.probabilities, case.labels)
    found = -case.records["log_likelihood"].mean().item()
    assert found == pytest.approx(value(CategoricalNLL(), *inputs), rel=1e-6)
    found = case.records["brier"].mean().item()
    assert found == pytest.approx(value(BrierScore(num_classes=CLASSES), *inputs), rel=1e-6)


def test_entropy_mutual_information_and_disagreement(case):
    members = case.members
    for column, metric, inputs in [
        ("entropy", Entropy(), case.probabilities),
        ("expected_entropy", Entropy(), members.flatten(0, 1)),
        ("mutual_information", MutualInformation(), members),
        ("disagreement", Disagreement(), members),
    ]:
        found = case.records[column].mean().item()
        assert found == pytest.approx(value(metric, inputs), rel=1e-5), column


@pytest.mark.parametrize(("error", "norm"), [(ece, "l1"), (mce, "max")])
def test_binned_errors(case, error, norm):
    expected = multiclass_calibration_error(
        case.probabilities, case.labels, CLASSES, n_bins=15, norm=norm
    )
    assert error(case.confidence, case.correct) == pytest.approx(float(expected), abs=1e-6)


def test_adaptive_ece(case):
    metric = AdaptiveCalibrationError("multiclass", num_bins=15, num_classes=CLASSES)
    expected = value(metric, case.probabilities, case.labels)
    assert adaptive_ece(case.confidence, case.correct) == pytest.approx(expected, abs=1e-6)


def test_classwise_ece(case):
    metric = ClasswiseCalibrationError(CLASSES, num_bins=15)
    expected = value(metric, case.probabilities, case.labels)
    found = classwise_ece(case.probabilities.numpy(), case.labels.numpy())
    assert found == pytest.approx(expected, abs=1e-6)


def test_smooth_ece(case):
    metric = SmoothCalibrationError("reflected", eps=1e-4, mesh_pts=2000, refine_steps=20)
    expected = value(metric, case.probabilities.float(), case.labels)  # it has no float64
    assert smooth_ece(case.confidence, case.correct) == pytest.approx(expected, abs=5e-5)


def test_aurc(case):
    """Theirs is the trapezoid over k/N for k = 1…N, divided by its width: the same risks."""
    samples = len(case.confidence)
    theirs = value(AURC(), case.probabilities, case.labels)
    first = float(not case.correct[np.argmax(case.confidence)])
    last = 1 - case.correct.mean()
    expected = (theirs * (samples - 1) + (first + last) / 2) / samples
    assert aurc(case.confidence, case.correct) == pytest.approx(expected, abs=1e-6)


def test_error_auroc(case):
    doubt = torch.from_numpy(1 - case.confidence)  # in [0, 1]: torchmetrics would squash others
    expected = binary_auroc(doubt, torch.from_numpy(~case.correct).long())
    assert error_auroc(case.confidence, case.correct) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("levels", [None, 7])
def test_ood_detection(levels):
    """With a few levels most scores are tied."""
    generator = torch.Generator().manual_seed(2)
    inside = torch.rand(300, generator=generator, dtype=torch.float64) * 0.8
    outside = torch.rand(200, generator=generator, dtype=torch.float64) * 0.7 + 0.3
    if levels:
        inside, outside = ((part * levels).round() / levels for part in (inside, outside))
    scores = torch.cat([inside, outside])
    target = torch.cat([torch.zeros(300), torch.ones(200)]).long()
    sides = (inside.numpy(), outside.numpy())
    assert auroc(*sides) == pytest.approx(float(binary_auroc(scores, target)), abs=1e-6)
    expected = float(binary_average_precision(scores, target))
    assert aupr_out(*sides) == pytest.approx(expected, abs=1e-6)
    expected = float(binary_average_precision(1 - scores, 1 - target))
    assert aupr_in(*sides) == pytest.approx(expected, abs=1e-6)
    assert fpr95(*sides) == pytest.approx(value(FPR95(pos_label=1), scores, target), abs=1e-6)
