"""The regulariser: value, gradient, equilibrium."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sigma_nens import diversity_loss, equilibrium_share, temperature_for

TAUS = st.floats(0.02, 50.0)


def naive(gates: list[torch.Tensor], tau: float) -> list[list[float]]:
    """Σ_m log softmax for each layer and feature, by loops over floats."""
    per_layer = []
    for layer in gates:
        per_feature = []
        for column in layer.double().T.tolist():
            top = max(column)
            normaliser = math.log(sum(math.exp((s - top) / tau) for s in column)) + top / tau
            per_feature.append(sum(s / tau - normaliser for s in column))
        per_layer.append(per_feature)
    return per_layer


def draw(seed: int, members: int, widths: list[int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = {"generator": generator, "dtype": torch.float64}
    return [torch.rand(members, width, **shape) for width in widths]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    members=st.integers(1, 6),
    widths=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    tau=TAUS,
)
def test_value_against_loops(seed: int, members: int, widths: list[int], tau: float) -> None:
    gates = draw(seed, members, widths)
    per_layer = naive(gates, tau)
    flat = [value for layer in per_layer for value in layer]
    expected = {
        "sum": sum(flat),
        "feature_mean": sum(flat) / len(flat),
        "layer_mean": sum(sum(v) / len(v) for v in per_layer) / len(per_layer),
    }
    for reduction, value in expected.items():
        found = diversity_loss(gates, tau, reduction).item()  # type: ignore[arg-type]
        assert found == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert expected["sum"] <= -sum(widths) * members * math.log(members) + 1e-9


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), members=st.integers(2, 6), tau=TAUS)
def test_gradient_is_one_minus_m_p_over_tau(seed: int, members: int, tau: float) -> None:
    (gates,) = draw(seed, members, [3])
    gates.requires_grad_()
    diversity_loss([gates], tau).backward()
    share = torch.softmax(gates.detach() / tau, dim=0)
    assert torch.allclose(gates.grad, (1 - members * share) / tau, rtol=1e-9, atol=1e-12)
    # It is minimised: a step against the gradient raises exactly the gates above their share.
    assert torch.equal(-gates.grad > 0, share > 1 / members)


def test_equal_gates_are_a_saddle() -> None:
    gates = torch.full((4, 5), 0.3, dtype=torch.float64, requires_grad=True)
    loss = diversity_loss([gates], 0.2)
    loss.backward()
    assert gates.grad.abs().max() < 1e-12
    moved = gates.detach().clone()
    moved[0] += 0.05
    assert diversity_loss([moved], 0.2) < loss  # not a minimum


def test_one_member_gives_zero() -> None:
    assert diversity_loss([torch.rand(1, 7)], 0.2).item() == 0.0


@settings(max_examples=30, deadline=None)
@given(members=st.integers(2, 64), tau=st.floats(0.05, 20.0))
def test_polarised_gates_follow_the_closed_form(members: int, tau: float) -> None:
    """f(k) of k open gates, and its minimiser over real k against a grid search."""
    best = members * equilibrium_share(tau)
    growth = math.expm1(1 / tau)

    def penalty(k: float) -> float:
        return k / tau - members * math.log(k * growth + members)

    for k in (0, 1, members // 2, members):
        gates = torch.zeros(members, 1, dtype=torch.float64)
        gates[:k] = 1
        assert diversity_loss([gates], tau).item() == pytest.approx(penalty(k), rel=1e-9)
    step = max(best, 0.01) * 1e-3
    assert penalty(best) <= min(penalty(best - step), penalty(best + step)) + 1e-12
    grid = [i * members / 400 for i in range(401)]
    assert penalty(best) <= min(map(penalty, grid)) + 1e-9


def descend(logits: torch.Tensor, tau: float, steps: int = 3000) -> torch.Tensor:
    """The gates where plain gradient descent on the regulariser alone ends."""
    logits = logits.clone().requires_grad_()
    optimiser = torch.optim.SGD([logits], lr=min(tau, 1.0))
    for _ in range(steps):
        optimiser.zero_grad()
        diversity_loss([torch.sigmoid(logits)], tau).backward()
        optimiser.step()
    return torch.sigmoid(logits.detach())


@pytest.mark.parametrize("members", [4, 8])
def test_descent_from_a_random_start_polarises_near_the_equilibrium(members: int) -> None:
    """The average number of open gates follows k*, never below one owner, and grows with τ."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(members, 256, generator=generator, dtype=torch.float64)
    averages = []
    for tau in (0.02, 0.2, 0.6, 3.0):
        gates = descend(logits, tau)
        assert ((gates < 0.2) | (gates > 0.8)).double().mean() > 0.98
        owners = (gates > 0.5).sum(dim=0)
        assert owners.min() >= 1
        averages.append(owners.double().mean().item())
        wanted = max(1.0, members * equilibrium_share(tau))
        assert averages[-1] == pytest.approx(wanted, abs=0.9)
    assert averages == sorted(averages)
    assert averages[0] == 1.0
    assert averages[-1] - averages[0] > 0.8 * (members / 2 - 1)


def test_any_polarised_allocation_is_stable() -> None:
    """The closed form names the best allocation; descent doesn't leave another one by itself."""
    for k in (1, 3, 7):
        logits = torch.full((8, 1), -2.0, dtype=torch.float64)
        logits[:k] = 2.0
        owners = (descend(logits, 0.2, steps=300) > 0.5).sum()
        assert owners == k


@settings(max_examples=60, deadline=None)
@given(log_tau=st.floats(-12.0, 12.0))
def test_share_is_stable_everywhere(log_tau: float) -> None:
    tau = 10.0**log_tau
    share = equilibrium_share(tau)
    assert 0.0 < share <= 0.5
    x = Fraction(1) / Fraction(tau)
    if x < 20:  # exact rational series of e^x - 1
        term, total = x, Fraction(0)
        for n in range(2, 120):
            total += term
            term = (term * x / n).limit_denominator(10**60)
            if term < Fraction(1, 10**50) * total:
                break
        exact = float(Fraction(tau) - 1 / total)
        assert share == pytest.approx(exact, rel=1e-8)
    else:
        assert share == pytest.approx(tau, rel=1e-6)


def test_share_grows_with_temperature_to_one_half() -> None:
    taus = [10 ** (i / 10) for i in range(-50, 51)]
    shares = [equilibrium_share(tau) for tau in taus]
    assert all(a < b for a, b in itertools.pairwise(shares))
    assert shares[0] == pytest.approx(1e-5)
    assert shares[-1] == pytest.approx(0.5, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(members=st.integers(1, 100), fraction=st.floats(1e-4, 0.4999))
def test_temperature_is_the_inverse_of_share(members: int, fraction: float) -> None:
    k = fraction * members
    assert members * equilibrium_share(temperature_for(k, members)) == pytest.approx(k, rel=1e-9)


@pytest.mark.parametrize(("k", "members"), [(0, 4), (2, 4), (3, 4), (-1, 4), (1, 2), (1, 0)])
def test_unreachable_shares_are_refused(k: float, members: int) -> None:
    with pytest.raises(ValueError, match="k must lie in"):
        temperature_for(k, members)


@pytest.mark.parametrize("tau", [0.0, -1.0, math.nan, math.inf])
def test_bad_temperatures_are_refused(tau: float) -> None:
    with pytest.raises(ValueError, match="tau must be"):
        equilibrium_share(tau)
    with pytest.raises(ValueError, match="tau must be"):
        diversity_loss([torch.rand(2, 2)], tau)


def test_bad_gates_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one layer"):
        diversity_loss([], 0.2)
    with pytest.raises(ValueError, match="one M for all layers"):
        diversity_loss([torch.rand(2, 3), torch.rand(3, 3)], 0.2)
    with pytest.raises(ValueError, match="reduction must be one of"):
        diversity_loss([torch.rand(2, 3)], 0.2, "mean")  # type: ignore[arg-type]
