from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from bench.data.catalogue import DigitsOptions
from bench.data.digits import CORRUPTIONS, load, photo_patches
from bench.data.task import UNKNOWN, Outlier, Shift, Split, Task


@pytest.fixture(scope="module")
def task() -> Task:
    return load("digits", DigitsOptions(), Path("nowhere"))


def rows(split: Split) -> np.ndarray:
    return split.inputs.numpy().reshape(len(split), -1) / 255


def test_splits_are_the_digits_0_to_7_each_once(task):
    bunch = load_digits()
    expected = Counter(
        (int(label), np.rint(image * 255 / 16).astype(np.uint8).tobytes())
        for image, label in zip(bunch.images, bunch.target, strict=True)
        if label < 8
    )
    found = Counter(
        (int(label), image.numpy().tobytes())
        for split in (task.train, task.validation, task.test)
        for image, label in zip(split.inputs, split.labels, strict=True)
    )
    assert found == expected


def test_shares_are_10_20_70_percent_in_every_class(task):
    counts = torch.stack(
        [torch.bincount(s.labels, minlength=8) for s in (task.train, task.validation, task.test)]
    ).double()
    shares = counts / counts.sum(0)
    for row, share in zip(shares, (0.10, 0.20, 0.70), strict=True):
        assert torch.allclose(row, torch.tensor(share, dtype=torch.float64), atol=0.01)


def test_shape_and_range(task):
    assert task.input_shape == (1, 8, 8)
    assert task.num_classes == 8
    assert int(task.train.inputs.min()) == 0
    assert int(task.train.inputs.max()) == 255
    normal = task.normalise(task.train.inputs)
    assert float(normal.mean()) == pytest.approx(0, abs=1e-5)
    assert float(normal.std()) == pytest.approx(1, abs=1e-4)


def test_two_loads_are_equal(task):
    again = load("digits", DigitsOptions(), Path("elsewhere"))
    for name in ("train", "validation", "test"):
        assert torch.equal(getattr(task, name).inputs, getattr(again, name).inputs)
    for shift in task.shifts:
        assert torch.equal(task.load_shift(shift).inputs, again.load_shift(shift).inputs)


def test_near_outliers_are_all_eights_and_nines(task):
    split = task.load_outlier(Outlier("held_out_digits", "near"))
    bunch = load_digits()
    expected = np.rint(bunch.images[bunch.target >= 8] * 255 / 16).astype(np.uint8)
    assert np.array_equal(split.inputs[:, 0].numpy(), expected)
    assert set(split.labels.tolist()) == {UNKNOWN}


def test_far_outliers_have_structure(task):
    split = task.load_outlier(Outlier("photo_patches", "far"))
    patches = photo_patches()
    assert torch.equal(split.inputs, patches)
    assert set(split.labels.tolist()) == {UNKNOWN}
    assert len(patches) > 200
    assert set(patches.flatten(1).min(1).values.tolist()) == {0}
    assert set(patches.flatten(1).max(1).values.tolist()) == {255}
    assert len(torch.unique(patches, dim=0)) == len(patches)
    assert float(patches.double().flatten(1).std(1).min()) > 20


def test_a_shift_keeps_labels_and_order(task):
    for corruption in CORRUPTIONS:
        shifted = task.load_shift(Shift(corruption, 1))
        assert torch.equal(shifted.labels, task.test.labels)
        difference = (shifted.inputs.double() - task.test.inputs.double()).abs()
        other = (shifted.inputs.double() - task.test.inputs.roll(1, 0).double()).abs()
        assert float(difference.mean()) < 0.6 * float(other.mean())


def test_accuracy_falls_with_severity(task):
    known = (task.train, task.validation)
    classifier = SVC().fit(
        np.concatenate([rows(split) for split in known]), torch.cat([s.labels for s in known])
    )
    assert classifier.score(rows(task.test), task.test.labels) > 0.98
    accuracy = np.array(
        [
            [
                classifier.score(rows(shifted), shifted.labels)
                for shifted in (task.load_shift(Shift(corruption, s)) for s in range(1, 6))
            ]
            for corruption in CORRUPTIONS
        ]
    )
    means = accuracy.mean(axis=0)
    assert means[0] > 0.9
    assert (np.diff(means) < -0.03).all(), means
    assert means[-1] > 0.4
    # No corruption gets easier, and none leaves less than chance.
    assert (np.diff(accuracy, axis=1) <= 0).all(), accuracy
    assert accuracy.min() > 1 / 8


def test_options_choose_the_shifts():
    task = load("digits", DigitsOptions(corruptions=("rotation",), severities=(1, 5)), Path())
    assert task.shifts == (Shift("rotation", 1), Shift("rotation", 5))
    assert load("digits", DigitsOptions(corruptions=()), Path()).shifts == ()
