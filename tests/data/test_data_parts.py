import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.data import parts
from bench.data.parts import kept, outlier_split, pixel_statistics, stratified_part
from bench.data.task import UNKNOWN, Shift
from bench.errors import UserError


def test_pixel_statistics_against_float64():
    inputs = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (50, 3, 7, 5), np.uint8))
    inputs[:, 1] //= 3
    mean, std = pixel_statistics(inputs, "task x")
    x = inputs.numpy().astype(np.float64) / 255
    assert mean == pytest.approx(x.mean(axis=(0, 2, 3)), abs=1e-12)
    assert std == pytest.approx(x.std(axis=(0, 2, 3)), abs=1e-12)


def test_a_channel_of_one_value_is_refused():
    inputs = torch.randint(0, 256, (4, 2, 3, 3), dtype=torch.uint8)
    inputs[:, 1] = 7
    with pytest.raises(UserError, match="task x: channel 1"):
        pixel_statistics(inputs, "task x")


@settings(max_examples=25, deadline=None)
@given(
    counts=st.lists(st.integers(2, 40), min_size=2, max_size=6),
    share=st.floats(0.1, 0.9),
    seed=st.integers(0, 9),
)
def test_parts_are_disjoint_complete_and_stratified(counts, share, seed):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    size = min(max(round(share * len(labels)), len(counts)), len(labels) - len(counts))
    first, second = stratified_part(labels, size, "task x")
    assert len(second) == size
    assert torch.equal(torch.cat([first, second]).sort().values, torch.arange(len(labels)))
    for part in (first, second):
        assert torch.equal(part, part.sort().values)
    expected = torch.tensor(counts) * size / len(labels)
    found = torch.bincount(labels[second], minlength=len(counts))
    assert float((found - expected).abs().max()) <= 1


def test_a_part_does_not_depend_on_global_generators():
    labels = torch.arange(60) % 3
    np.random.seed(1)
    torch.manual_seed(1)
    first = stratified_part(labels, 20, "task x")
    np.random.seed(2)
    torch.manual_seed(2)
    second = stratified_part(labels, 20, "task x")
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("labels", "size", "message"),
    [
        ([0, 0, 1], 1, "1 sample only"),
        ([0, 0, 1, 1], 1, "must be 2 to 2"),
        ([0, 0, 1, 1], 3, "must be 2 to 2"),
        ([0, 0, 1, 1], 4, "must be 2 to 2"),
    ],
)
def test_parts_that_can_not_be_made(labels, size, message):
    with pytest.raises(UserError, match=f"task x: .*{message}"):
        stratified_part(torch.tensor(labels), size, "task x")


def test_what_is_kept_stays_within_the_memory(monkeypatch):
    monkeypatch.setattr(parts, "KEPT_BYTES", 100)
    asked = []

    def load(shift):
        asked.append(shift)
        return outlier_split(torch.zeros(1, 1, 1, 1, dtype=torch.uint8))

    held = kept(load, 40)
    first, second, third = (Shift("fog", severity) for severity in (1, 2, 3))
    assert held(first) is held(first)
    held(second)
    assert held(first) is held(first)
    assert asked == [first, second]
    held(third)
    held(second)
    assert asked == [first, second, third, second]


def test_outliers_are_of_no_class():
    split = outlier_split(torch.zeros(3, 1, 2, 2, dtype=torch.uint8))
    assert split.labels.tolist() == [UNKNOWN] * 3
