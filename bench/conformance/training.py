"""A few training steps of a specimen, watched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bench.conformance.specimen import Specimen
from bench.optimise import make_optimizer
from bench.training import train_step

STEPS = 3
"""Parameters behind a scale that starts at 0 move from the second step on."""

GRADIENT = "the gradient of"
"""How the names of gradients start, among those of buffers."""


@dataclass(frozen=True)
class Trained:
    """A network before and after.

    Attributes:
        model: after the steps.
        losses: one a step.
        before, after: trainable parameters.
        reached: for each parameter, the largest size that each part of its gradient ever had.
    """

    model: nn.Module
    losses: list[float]
    before: dict[str, Tensor]
    after: dict[str, Tensor]
    reached: dict[str, Tensor]


def trained(specimen: Specimen) -> Trained:
    """Train a fresh network for a few steps, through the harness' own step."""
    network = specimen.network().train()
    method, recipe = specimen.method, specimen.spec.recipe
    optimizer = make_optimizer(method, network, recipe)
    free = {name: p for name, p in network.named_parameters() if p.requires_grad}
    before = {name: parameter.detach().clone() for name, parameter in free.items()}
    reached = {name: torch.zeros_like(value) for name, value in before.items()}
    losses = []
    for step in range(STEPS):
        torch.manual_seed(step)
        images, labels = specimen.images, specimen.labels
        losses.append(train_step(network, method, optimizer, images, labels, recipe, 0).item())
        for name, parameter in free.items():
            if parameter.grad is not None:
                reached[name] = torch.maximum(reached[name], parameter.grad.abs())
    after = {name: parameter.detach().clone() for name, parameter in free.items()}
    return Trained(network, losses, before, after, reached)


def gradients(specimen: Specimen, chunk: int, seed: int) -> dict[str, Tensor]:
    """Gradients and buffers after one step that moves nothing.

    Args:
        specimen: a fresh network is made of it.
        chunk: members at a time; 0 for all at once.
        seed: of what training draws at random.
    """
    network = specimen.network().train()
    still = torch.optim.SGD(network.parameters(), lr=0.0)
    torch.manual_seed(seed)
    recipe = specimen.spec.recipe
    train_step(network, specimen.method, still, specimen.images, specimen.labels, recipe, chunk)
    found = {
        f"{GRADIENT} {name}": parameter.grad
        for name, parameter in network.named_parameters()
        if parameter.grad is not None
    }
    return found | {f"the buffer {name}": value for name, value in network.named_buffers()}


def graph_leaves(root: Tensor) -> Iterator[Tensor]:
    """The tensors at which a backward pass from `root` would leave gradients."""
    seen = set()
    stack = [root.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        stack.extend(following for following, _ in node.next_functions)
