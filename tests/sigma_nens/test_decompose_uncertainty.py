"""Total = aleatoric + modulation uncertainty, against a loop over floats."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sigma_nens import decompose_uncertainty


def entropy(p: list[float]) -> float:
    return -sum(v * math.log(v) for v in p if v > 0)


def softmax(row: list[float]) -> list[float]:
    top = max(row)
    weights = [math.exp(v - top) for v in row]
    return [w / sum(weights) for w in weights]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    members=st.integers(1, 5),
    classes=st.integers(1, 5),
    spread=st.floats(0.01, 300.0),
)
def test_against_loops(seed: int, members: int, classes: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, members, classes, generator=generator) * spread
    found = decompose_uncertainty(logits)
    for b, sample in enumerate(logits.double().tolist()):
        p = [softmax(row) for row in sample]
        mean = [sum(column) / members for column in zip(*p, strict=True)]
        total, aleatoric = entropy(mean), sum(map(entropy, p)) / members
        assert found.total[b].item() == pytest.approx(total, abs=1e-9)
        assert found.aleatoric[b].item() == pytest.approx(aleatoric, abs=1e-9)
        assert found.modulation[b].item() == pytest.approx(total - aleatoric, abs=1e-9)
        assert 0 <= found.modulation[b] <= math.log(members) + 1e-9


def test_opposed_members_at_huge_logits() -> None:
    for size in (1e4, 1e30, math.inf):
        low = -size
        logits = torch.tensor([[[0.0, low], [low, 0.0]]])
        found = decompose_uncertainty(logits)
        assert found.total.item() == pytest.approx(math.log(2), abs=1e-12)
        assert found.aleatoric.item() == 0.0
        assert found.modulation.item() == pytest.approx(math.log(2), abs=1e-12)


def test_half_precision_is_widened_first() -> None:
    logits = torch.tensor([[[20.0, 0.0], [0.0, 20.0]]], dtype=torch.float16)
    found = decompose_uncertainty(logits)
    exact = decompose_uncertainty(logits.double())
    assert found.total.dtype == torch.float64
    assert torch.equal(torch.stack(found), torch.stack(exact))


def test_one_member_has_no_modulation_uncertainty() -> None:
    assert decompose_uncertainty(torch.randn(9, 1, 4)).modulation.abs().max() == 0


@pytest.mark.parametrize("shape", [(3, 4), (3, 0, 4), (3, 2, 0), (3, 2, 4, 1)])
def test_bad_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"logits must be \[B, M, K\]"):
        decompose_uncertainty(torch.zeros(shape))
