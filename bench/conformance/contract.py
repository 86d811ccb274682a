"""Checks of what a method hands to the harness: parameters, model, logits, loss, groups."""

from __future__ import annotations

import json

from torch import Tensor, nn

from bench.conformance.measures import NOISE, Wrong, predict
from bench.conformance.specimen import CLASSES, Specimen
from bench.conformance.training import graph_leaves
from bench.errors import NotApplicable
from bench.optimise import make_optimizer


def hyper_parameters(specimen: Specimen) -> str:
    """Suites and results keep hyper-parameters as JSON."""
    method = specimen.method
    stored = json.loads(json.dumps(method.model_dump(mode="json"), allow_nan=False))
    again = type(method)(**stored)
    for name in type(method).model_fields:
        before, after = getattr(method, name), getattr(again, name)
        if before != after or type(before) is not type(after):
            raise Wrong(f"{name} is {before!r}, and {after!r} after a trip through JSON")
    return ", ".join(f"{name}={value}" for name, value in stored.items())


def build(specimen: Specimen) -> str:
    """The method takes the backbone and gives a module."""
    try:
        model = specimen.model()
    except NotApplicable as reason:
        raise Wrong(
            f"refuses the backbone {specimen.spec.backbone} ({reason}): "
            "name one that it takes with --backbone"
        ) from None
    if not isinstance(model, nn.Module):
        raise Wrong(f"build gives a {type(model).__name__}, not a torch.nn.Module")
    return f"on {specimen.spec.backbone}"


def logits(specimen: Specimen) -> str:
    """Shapes, type and finite values; any batch size predicts."""
    members = specimen.method.members
    model = specimen.model().eval()
    for size in (1, 3, 5):
        found = predict(model, specimen.images[:size])
        _check_logits(found, f"in eval mode, batch size {size}", (size, members, CLASSES))
    network = specimen.network().train()
    size = len(specimen.images)
    each = 1 if specimen.method.independent else members
    found = network(specimen.images)
    short = isinstance(found, Tensor) and found.shape[1:2] == (1,)
    _check_logits(found, "while training", (size, 1 if short else each, CLASSES))
    return f"[B, {members}, {CLASSES}] in eval mode, [B, {found.shape[1]}, {CLASSES}] in training"


def _check_logits(found: object, when: str, shape: tuple[int, int, int]) -> None:
    if not isinstance(found, Tensor):
        raise Wrong(f"{when}: the model gives a {type(found).__name__}, not a tensor {list(shape)}")
    if tuple(found.shape) != shape:
        raise Wrong(
            f"{when}: logits are {list(found.shape)}, not [batch, members, classes] = {list(shape)}"
        )
    if not found.is_floating_point():
        raise Wrong(f"{when}: logits are {found.dtype}, not floating point")
    if not found.isfinite().all():
        raise Wrong(f"{when}: a logit is not finite")


def loss(specimen: Specimen) -> str:
    """A finite scalar that is the sum of what each member alone would give."""
    method, network = specimen.method, specimen.network().train()
    found = network(specimen.images).float()
    whole = method.loss(network, found, specimen.labels)
    if not isinstance(whole, Tensor) or whole.ndim != 0:
        raise Wrong("loss must be a tensor without dimensions: a sum over members of batch means")
    penalty = method.penalty(network)
    if penalty is not None and (penalty.ndim != 0 or not penalty.isfinite()):
        raise Wrong(f"penalty must be one finite number or None, not {penalty.detach()}")
    if not whole.isfinite():
        raise Wrong(f"loss is {whole.item()}")
    parts = sum(
        method.loss(network, found[:, m : m + 1], specimen.labels).item()
        for m in range(found.shape[1])
    )
    if abs(whole.item() - parts) > NOISE * max(1.0, abs(parts)):
        raise Wrong(
            f"loss of all members is {whole.item():.6g}, the sum of each member's is {parts:.6g}: "
            "loss must be a sum over members; terms of the weights alone belong in penalty"
        )
    words = f"{whole.item():.4g} for {found.shape[1]} members"
    return words if penalty is None else f"{words}, penalty {penalty.item():.4g}"


def registered(specimen: Specimen) -> str:
    """What is trained or drawn belongs to the module, so that it is saved, moved and optimised."""
    network = specimen.network().train()
    for name, part in network.named_modules():
        for attribute, value in vars(part).items():
            if isinstance(value, Tensor):
                place = f"{name}.{attribute}" if name else attribute
                raise Wrong(
                    f"{place} is a plain tensor, which is neither saved nor moved to a "
                    "device: use nn.Parameter or register_buffer"
                )
    known = {id(parameter) for parameter in network.parameters()}
    total = specimen.method.loss(network, network(specimen.images).float(), specimen.labels)
    penalty = specimen.method.penalty(network)
    for leaf in graph_leaves(total if penalty is None else total + penalty):
        if id(leaf) not in known:
            raise Wrong(
                f"a trainable tensor {list(leaf.shape)} is used that is not in model.parameters(): "
                "keep modules in nn.ModuleList and tensors in nn.ParameterList, not in a list"
            )
    return f"{len(known)} parameters"


def parameter_groups(specimen: Specimen) -> str:
    """Every trainable parameter is in exactly one group."""
    try:
        optimizer = make_optimizer(specimen.method, specimen.network(), specimen.spec.recipe)
    except ValueError as error:
        raise Wrong(str(error)) from None
    return f"{len(optimizer.param_groups)} groups" if len(optimizer.param_groups) > 1 else "1 group"
