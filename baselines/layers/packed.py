"""Packed-Ensembles (Laurent et al., 2023): convolutional networks and transformers, packed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch_uncertainty.layers import PackedLinear

from baselines.layers.packed_conversion import Conversion
from baselines.layers.packed_transformer import (
    check_attention,
    has_packable_parameters,
    is_attention,
    is_layer_norm,
)
from baselines.layers.packed_width import Packing, place_of
from baselines.layers.trace import Trace, changed_outputs, evaluating, trace
from bench.errors import NotApplicable


class PackedNetwork(nn.Module):
    """A packed backbone with the member axis.

    Args:
        backbone: ``[B, C, H, W] -> [M·B, K]``, member 0's rows first (torch-uncertainty's order).
        members: M.

    Shape:
        ``[B, C, H, W] -> [B, M, K]``.
    """

    def __init__(self, backbone: nn.Module, members: int) -> None:
        super().__init__()
        self.members = members
        self.backbone = backbone

    def forward(self, inputs: Tensor) -> Tensor:
        """Member logits."""
        logits: Tensor = self.backbone(inputs)
        return logits.view(self.members, len(inputs), logits.shape[1]).transpose(0, 1)


def packed(
    backbone: nn.Module, num_classes: int, *, members: int, alpha: float, gamma: int
) -> PackedNetwork:
    """Pack a network; it is changed in place.

    Args:
        backbone: ``[B, C, H, W] -> [B, K]``, of convolutions, linear layers, batch normalisation,
            layer normalisation and self-attention.
        num_classes: K.
        members: M.
        alpha: width of all members together over the backbone's.
        gamma: groups of each layer of a member.

    Raises:
        NotApplicable: a layer can't be packed, or members would mix; names the layer where one is
            the reason.
    """
    _check_layers(backbone)
    seen = trace(backbone)
    _check_trace(backbone, seen, num_classes)
    conversion = Conversion(Packing(members, alpha, gamma), seen)
    network = PackedNetwork(conversion.convert(backbone), members)
    _check_isolation(network, conversion, seen.image)
    return network


def output_width(backbone: nn.Module) -> int:
    """K, found by trying the network on a blank image."""
    _check_layers(backbone)
    return trace(backbone).classes


def _holders(backbone: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules that hold parameters themselves; attention stands for all that is in it."""
    inside = {
        part
        for module in backbone.modules()
        if is_attention(module)
        for part in module.modules()
        if part is not module
    }
    for name, module in backbone.named_modules():
        holds = is_attention(module) or next(module.parameters(recurse=False), None) is not None
        if holds and module not in inside:
            yield name, module


def _check_layers(backbone: nn.Module) -> None:
    """Every parameter must belong to a layer that can be packed."""
    for name, module in _holders(backbone):
        place = place_of(name, module)
        known = type(module) in (nn.Conv2d, nn.Linear) or isinstance(module, _BatchNorm)
        if is_attention(module):
            check_attention(place, module)
        elif not (known or is_layer_norm(module) or has_packable_parameters(module)):
            raise NotApplicable(
                f"{place}: has parameters, and only torch's own Conv2d, Linear, BatchNorm and "
                "LayerNorm, plain self-attention and the tokens of plain vision transformers can "
                "be divided among members"
            )


def _check_trace(backbone: nn.Module, seen: Trace, num_classes: int) -> None:
    if seen.classes != num_classes:
        raise NotApplicable(f"the network has {seen.classes} outputs for {num_classes} classes")
    widths = {nn.Linear: "out_features", nn.Conv2d: "out_channels"}
    if getattr(seen.last, widths[type(seen.last)]) != num_classes:
        raise NotApplicable("the network's last layer does not give its logits")
    if seen.last in seen.first:
        raise NotApplicable("the network's only layer sees the image: nothing could be divided")
    for name, module in _holders(backbone):
        if module not in seen.used:
            raise NotApplicable(
                f"{place_of(name, module)}: is not used when the network classifies"
            )


def _check_isolation(network: PackedNetwork, conversion: Conversion, image: Tensor) -> None:
    """Make one member's activations NaN after another: it must answer NaN, and it alone."""
    for member in range(network.members):
        try:
            with evaluating(network), _poisoned(network.members, member, conversion):
                logits = network(image)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            line = " ".join(str(error).split())
            raise NotApplicable(f"the packed network fails on a blank image: {line}") from error
        reached = set(logits.isnan().any(dim=2).any(dim=0).nonzero().flatten().tolist())
        if reached != {member}:
            raise NotApplicable(
                f"members mix: what member {member} computes reaches members {sorted(reached)}; an "
                "operation joins channels across the whole width (a concatenation, shuffle or norm)"
            )


@contextmanager
def _poisoned(members: int, member: int, conversion: Conversion) -> Iterator[None]:
    """Make what a member sees of the image NaN, and look where it arrives in the features."""

    def poison(output: Tensor, dim: int) -> Tensor:
        changed = output.clone()
        changed.chunk(members, dim)[member].fill_(torch.nan)
        return changed

    def look(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        arrived = inputs[0].isnan().flatten(0, -2).any(0)
        expected = torch.zeros_like(arrived)
        if arrived.numel() % members == 0:
            expected.chunk(members)[member].fill_(True)
        if not torch.equal(arrived, expected):
            raise NotApplicable(
                f"{conversion.features_last[module]}: the last axis of its inputs is not made of "
                "one slice of features for each member"
            )

    linear = [m for m in conversion.first if isinstance(m, PackedLinear)]
    others = [m for m in conversion.first if m not in linear]
    watched = [module.register_forward_pre_hook(look) for module in conversion.features_last]
    try:
        with (
            changed_outputs(others, lambda output: poison(output, 1)),
            changed_outputs(linear, lambda output: poison(output, -1)),
        ):
            yield
    finally:
        for hook in watched:
            hook.remove()
