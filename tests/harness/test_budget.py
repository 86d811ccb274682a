import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.budget import TOLERANCE, plan_steps
from bench.recipe import Budget


def plan(budget, **changes):
    values = {
        "networks": 1,
        "samples": 1000,
        "batch_size": 50,
        "step_cost": 300.0,
        "single_step_cost": 100.0,
        "step_flops": 300,
        "member_chunk": 0,
    }
    return plan_steps(budget, **{**values, **changes})


def test_flops_by_hand():
    # 4 single networks, 10 epochs of 20 steps, 100 FLOPs a step.
    found = plan(Budget(match="train_flops", networks=4, epochs=10))
    assert found.units == 4 * 10 * 20 * 100
    assert found.steps == round(80_000 / 300)
    assert found.deviation == pytest.approx(267 * 300 / 80_000 - 1)


def test_independent_networks_share_the_budget():
    budget = Budget(match="train_flops", networks=4, epochs=10)
    found = plan(budget, networks=4, step_cost=100.0)
    assert found.steps == 200
    assert found.deviation == 0


def test_a_single_network_may_train_as_long_as_all_members_together():
    found = plan(Budget(match="train_flops", networks=4, epochs=10), step_cost=100.0)
    assert found.steps == 800


def test_epochs_ignore_the_cost():
    found = plan(Budget(match="epochs", networks=4, epochs=10), step_cost=1e9)
    assert found.steps == 200
    assert found.deviation == 0


def test_at_least_one_step_and_the_excess_is_known():
    found = plan(Budget(match="train_flops", networks=1, epochs=0.01), step_cost=1e6)
    assert found.steps == 1
    assert found.deviation > TOLERANCE


@settings(deadline=None, max_examples=200)
@given(
    st.integers(1, 16),
    st.floats(1, 300),
    st.floats(1, 20),
    st.integers(1, 16),
    st.integers(1, 512),
)
def test_steps_are_the_nearest_whole_number(networks, epochs, ratio, trained, batch_size):
    budget = Budget(match="train_flops", networks=networks, epochs=epochs)
    found = plan(
        budget,
        networks=trained,
        batch_size=batch_size,
        step_cost=100.0 * ratio,
    )
    assert found.steps >= 1
    if found.steps > 1:
        assert abs(found.planned - found.units) <= 0.5 * found.step_units * (1 + 1e-9)
    if found.steps > 25:
        assert abs(found.deviation) <= TOLERANCE
