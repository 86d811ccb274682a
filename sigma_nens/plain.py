"""Plain normalisation layers: reading their values, and building one from a member's values."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def values(norm: nn.Module, name: str) -> Tensor | None:
    """A parameter or buffer of a plain layer, or None where it has none."""
    return cast("Tensor | None", getattr(norm, name, None))


def like(norm: nn.Module) -> Tensor:
    """A tensor of the type and on the device of a layer's values; the default where it has none."""
    return next((v for v in norm.state_dict().values() if v.is_floating_point()), torch.ones(()))


def normal_like(reference: Tensor, generator: torch.Generator | None) -> Tensor:
    """A standard normal draw with the shape, type and device of a tensor.

    It is drawn in float32 on the generator's device, so that a seed means the same for any of them.
    """
    device = "cpu" if generator is None else generator.device
    draw = torch.randn(reference.shape, generator=generator, device=device, dtype=torch.float32)
    return draw.to(reference)


def template(norm: nn.Module) -> nn.Module:
    """A copy of a plain layer without storage and without a fused dropout and activation."""
    kept: dict[str, nn.Module | None] = {
        name: norm._modules[name] for name in ("drop", "act") if name in norm._modules
    }
    for name in kept:
        norm._modules[name] = None
    try:
        return copy.deepcopy(norm).to("meta")
    finally:
        norm._modules.update(kept)


def filled(
    empty: nn.Module,
    weight: Tensor | None,
    bias: Tensor | None,
    statistics: dict[str, Tensor],
    shape: Sequence[int],
) -> nn.Module:
    """A plain layer from a template and the values of one member.

    Args:
        empty: what `template` gave; it isn't changed.
        weight: the scale ``[C]``, or None for 1.
        bias: the shift ``[C]``, or None for 0.
        statistics: the buffers, by name.
        shape: the shape of the layer's own scale.
    """
    norm = copy.deepcopy(empty)
    batch_or_group = isinstance(norm, nn.modules.batchnorm._BatchNorm | nn.GroupNorm)
    known = [v for v in (weight, bias, *statistics.values()) if v is not None]
    reference = next((v for v in known if v.is_floating_point()), torch.ones(()))
    had_weight, had_bias = values(norm, "weight") is not None, values(norm, "bias") is not None
    if weight is None and had_weight:
        weight = reference.new_ones(tuple(shape))
    # What the template had stays; a BatchNorm or GroupNorm without affine map gets all of it.
    if bias is None and (had_bias or (batch_or_group and weight is not None and not had_weight)):
        bias = reference.new_zeros(tuple(shape))
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None:
            setattr(norm, name, nn.Parameter(value.detach().reshape(tuple(shape)).clone()))
    if weight is not None:
        for flag in ("affine", "elementwise_affine"):
            if hasattr(norm, flag):
                setattr(norm, flag, True)
    for name, value in statistics.items():
        setattr(norm, name, value.detach().clone())
    return norm
