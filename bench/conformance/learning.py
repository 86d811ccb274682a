"""Checks of what training does to a method's model, and of what the seed decides."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from bench.conformance.measures import FAINT, NOISE, Wrong, gap, predict
from bench.conformance.specimen import SEED, Specimen
from bench.conformance.training import GRADIENT, Trained, gradients, trained

SAME = 1e-5
"""Members whose logits differ by less than this share of the largest logit are the same."""


def every_parameter_learns(specimen: Specimen) -> str:
    """Gradients reach every trainable parameter, and every member's part of it."""
    result = trained(specimen)
    for step, value in enumerate(result.losses, 1):
        if not torch.tensor(value).isfinite():
            raise Wrong(f"loss is {value} in training step {step}")
    still = next(_still(result, specimen.method.members), None)
    if still is not None:
        raise Wrong(
            f"{still} did not move in {len(result.losses)} training steps: no gradient reaches it; "
            "use it in forward, or set requires_grad to False"
        )
    return f"all {len(result.before)} moved in {len(result.losses)} steps"


def _still(result: Trained, members: int) -> Iterator[str]:
    """Parameters, or members' slices of them, that training left as they were."""
    rounding = FAINT * NOISE * max(float(size.max()) for size in result.reached.values())
    for name, before in result.before.items():
        size = result.reached[name]
        # A gradient that is 0 on paper may be too small to move a float, but it does get there.
        moved = (size > 0) & ((result.after[name] != before) | (size <= rounding))
        if not moved.any():
            yield name
        elif members > 1 and before.ndim > 1 and len(before) == members:
            for member, slice_moved in enumerate(moved):
                if not slice_moved.any():
                    yield f"member {member} of {name}"


def members_differ(specimen: Specimen) -> str:
    """Members that give the same logits are one network at the price of M."""
    if specimen.method.members == 1:
        return "one member"
    fresh = _least_difference(specimen.model(), specimen.images)
    if fresh[0] > SAME:
        return f"least difference {fresh[0]:.2g} of the largest logit, before training"
    if specimen.method.independent:
        raise Wrong(
            _same_words(fresh, "though each is a network of its own: is a seed set in build?")
        )
    late = _least_difference(trained(specimen).model, specimen.images)
    if late[0] > SAME:
        return f"least difference {late[0]:.2g} of the largest logit, after training steps"
    raise Wrong(_same_words(late, "at the start and after training steps: start them at random"))


def _same_words(found: tuple[float, int, int], rest: str) -> str:
    return f"members {found[1]} and {found[2]} give the same logits, {rest}"


def _least_difference(model: nn.Module, images: Tensor) -> tuple[float, int, int]:
    """Of all pairs of members, the one whose logits are closest: distance, and the two indices."""
    found = predict(model.eval(), images)
    scale = found.abs().max().clamp_min(1e-12)
    pairs = [
        (float((found[:, a] - found[:, b]).abs().max() / scale), a, b)
        for a in range(found.shape[1])
        for b in range(a + 1, found.shape[1])
    ]
    return min(pairs)


def member_chunks(specimen: Specimen) -> str:
    """Members taken a few at a time give what all at once give, their gradients too."""
    method = specimen.method
    if not method.separable or method.independent or method.members == 1:
        return "not separable: members are always taken together"
    sizes = sorted({1, 2, method.members - 1} & set(range(1, method.members)))
    model = specimen.model().eval()
    whole = predict(model, specimen.images)
    for size in sizes:
        for first in range(0, method.members, size):
            part = slice(first, min(first + size, method.members))
            with torch.no_grad():
                found = model(specimen.images, members=part)
            if found.shape != whole[:, part].shape or gap(found, whole[:, part]) > NOISE:
                raise Wrong(
                    f"model(x, members=slice({part.start}, {part.stop})) is not "
                    f"model(x)[:, {part.start}:{part.stop}] in eval mode"
                )
    reference = gradients(specimen, chunk=0, seed=1)
    steps = (value for name, value in reference.items() if name.startswith(GRADIENT))
    least = FAINT * max(float(step.abs().max()) for step in steps)
    if _apart(gradients(specimen, chunk=0, seed=2), reference, NOISE, least) is not None:
        return f"chunks of {sizes}; training draws at random, so gradients were not compared"
    for size in sizes:
        name = _apart(gradients(specimen, chunk=size, seed=1), reference, 10 * NOISE, least)
        if name is not None:
            raise Wrong(
                f"trained {size} of {method.members} members at a time, {name} is not "
                "what it is with all at once: set separable to False, or give each "
                "member its own statistics"
            )
    return f"chunks of {sizes}, in eval mode and in training"


def _apart(
    found: dict[str, Tensor], expected: dict[str, Tensor], noise: float, least: float
) -> str | None:
    """The first tensor that differs by more than noise, if any does."""
    names = (n for n, value in found.items() if gap(value, expected[n], least) > noise)
    return next(names, None)


def seeds(specimen: Specimen) -> str:
    """The seed decides the weights, and nothing else does."""
    first, again, other = (specimen.model(seed).state_dict() for seed in (SEED, SEED, SEED + 1))
    for name, value in first.items():
        if name not in again or not torch.equal(value, again[name]):
            raise Wrong(
                f"{name} differs between two builds with the same seed: draw from torch's "
                "global generator only"
            )
    if all(name in other and torch.equal(value, other[name]) for name, value in first.items()):
        raise Wrong("another seed gives the same weights: set no seed in build")
    return "same seed, same weights; other seed, other weights"
