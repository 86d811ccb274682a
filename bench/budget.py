"""Matched budgets: how many optimiser steps a method may take.

A budget is «as much as N single networks for E epochs». A method gets as many steps as its own step
cost allows, and the learning-rate schedule spans exactly those steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.recipe import Budget

TOLERANCE = 0.02
"""A run that misses its budget by more than this share says so in the tables."""


@dataclass(frozen=True)
class Plan:
    """What a run will do; fixed before its first step, so that a resumed run does the same.

    Attributes:
        networks: networks trained one after the other (M for independent members, else 1).
        steps: optimiser steps of each network.
        step_flops: FLOPs of one step of one network, forward and backward.
        units: what the budget grants, in its own unit (epochs of each network, FLOPs or seconds).
        step_units: what one step costs, in that unit.
        member_chunk: members trained at a time; 0 where the method does not allow a choice.
    """

    networks: int
    steps: int
    step_flops: int
    units: float
    step_units: float
    member_chunk: int

    @property
    def planned(self) -> float:
        """What the steps cost by the plan, in the budget's unit."""
        return self.steps * self.step_units

    @property
    def deviation(self) -> float:
        """Relative distance of the plan from the budget; steps are whole, so it is rarely 0."""
        return self.planned / self.units - 1


def epochs_to_steps(epochs: float, samples: int, batch_size: int) -> float:
    """Steps that show each sample `epochs` times; batches run on across epochs, none is partial."""
    return epochs * samples / batch_size


def plan_steps(
    budget: Budget,
    *,
    networks: int,
    samples: int,
    batch_size: int,
    step_cost: float,
    single_step_cost: float,
    step_flops: int,
    member_chunk: int,
) -> Plan:
    """Share a budget among the steps of a method.

    Args:
        budget: what is granted.
        networks: how many networks the method trains one after the other; they share the budget.
        samples: size of the training set.
        batch_size: samples a step.
        step_cost: cost of one step of one network, in the budget's unit (FLOPs or seconds; unused
            for ``epochs``).
        single_step_cost: the same for a step of a single plain network.
        step_flops: FLOPs of one step of one network.
        member_chunk: members trained at a time, or 0.
    """
    reference = epochs_to_steps(budget.epochs, samples, batch_size)
    if budget.match == "epochs":
        units = budget.epochs
        step_units = batch_size / samples
    else:
        units = budget.networks * reference * single_step_cost
        step_units = networks * step_cost
    steps = max(1, round(units / step_units))
    return Plan(networks, steps, step_flops, units, step_units, member_chunk)
