"""From the layers of a plain network to packed ones, one by one."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch_uncertainty.layers import PackedConv2d, PackedLinear

from baselines.layers.packed_start import draw, start_like
from baselines.layers.packed_transformer import (
    holds_tokens,
    is_attention,
    is_drop_path,
    is_layer_norm,
    packed_attention,
    packed_drop_path,
    packed_layer_norm,
    widen_features,
)
from baselines.layers.packed_width import Packing, place_of
from baselines.layers.trace import Trace
from bench.backbones.he_resnet import PadShortcut
from bench.errors import NotApplicable


class Conversion:
    """The conversion of one network.

    Args:
        packing: its width and division.
        seen: what the plain network does with an image.

    Attributes:
        first: packed layers that see the image.
        features_last: packed layers that work on the last axis -> what refusals call them.
    """

    def __init__(self, packing: Packing, seen: Trace) -> None:
        self.packing = packing
        self.seen = seen
        self.first: list[nn.Module] = []
        self.features_last: dict[nn.Module, str] = {}
        self._done: dict[nn.Module, nn.Module] = {}

    def convert(self, module: nn.Module, name: str = "", tokens: bool = False) -> nn.Module:
        """The module with every layer packed, in place where it can be.

        Args:
            module: a part of the plain network.
            name: its name there.
            tokens: it is known to work on tokens, ``[B, N, D]``.

        Raises:
            NotApplicable: a layer can't be packed.
        """
        if module in self._done:
            return self._done[module]
        packed = self._packed(module, name, tokens)
        self._done[module] = packed
        if packed is not module:
            packed.train(module.training)
            if module in self.seen.first:
                self.first.append(packed)
            return packed
        tokens = tokens or holds_tokens(module)
        for child_name, child in module._modules.items():
            if child is not None:
                path = f"{name}.{child_name}" if name else child_name
                module._modules[child_name] = self.convert(child, path, tokens)
        return module

    def _packed(self, module: nn.Module, name: str, tokens: bool) -> nn.Module:
        """The packed layer for a plain one; the module itself where it is no layer to replace."""
        place, packing = place_of(name, module), self.packing
        ends = {"first": module in self.seen.first, "last": module is self.seen.last}
        if isinstance(module, nn.Conv2d):
            conv: nn.Module = _packed_conv(place, module, packing, **ends)
            return conv
        if isinstance(module, nn.Linear):
            linear: nn.Module = _packed_linear(place, module, packing, **ends)
            return linear
        if is_attention(module):
            return packed_attention(place, module, packing)
        if isinstance(module, nn.LayerNorm) and is_layer_norm(module):
            norm = packed_layer_norm(place, module, packing)
            self.features_last[norm] = place
            return norm
        if tokens and is_drop_path(module):
            return packed_drop_path(module, packing)
        if isinstance(module, PadShortcut):
            return _packed_shortcut(place, module, packing)
        if isinstance(module, _BatchNorm):
            _widen(module, packing.width(place, module.num_features, packing.members))
        else:
            widen_features(place, module, packing)
        return module


def _packed_conv(
    place: str, conv: nn.Conv2d, packing: Packing, *, first: bool, last: bool
) -> PackedConv2d:
    gamma = 1 if first or last else packing.gamma
    groups = conv.groups
    if first and groups != 1:
        raise NotApplicable(
            f"{place}: sees the image through {groups} groups, which can't be packed"
        )
    if 1 < groups == conv.in_channels and not last:
        # Depthwise: a member has other channels than the backbone, and one group for each.
        groups = packing.width(place, conv.in_channels, packing.members) // packing.members
        gamma = 1
    divisor = gamma * groups * packing.members
    if not first:
        packing.width(place, conv.in_channels, divisor)
    if not last:
        packing.width(place, conv.out_channels, divisor if not first else packing.members)
    packed_conv = PackedConv2d(
        conv.in_channels,
        conv.out_channels,
        kernel_size=conv.kernel_size,
        stride=conv.stride,
        padding=conv.padding,
        dilation=conv.dilation,
        padding_mode=conv.padding_mode,
        bias=conv.bias is not None,
        alpha=packing.alpha,
        num_estimators=packing.members,
        gamma=gamma,
        groups=groups,
        # Otherwise the library lowers γ in narrow layers without a word.
        minimum_channels_per_group=1,
        first=first,
        last=last,
        device=conv.weight.device,
        dtype=conv.weight.dtype,
    )
    fans = conv.weight[0].numel(), packed_conv.weight[0].numel()
    start_like(packed_conv, conv, *fans)
    return packed_conv


def _packed_linear(
    place: str, linear: nn.Linear, packing: Packing, *, first: bool, last: bool
) -> PackedLinear:
    gamma = 1 if first or last else packing.gamma
    if not first:
        packing.width(place, linear.in_features, gamma * packing.members)
    if not last:
        packing.width(place, linear.out_features, gamma * packing.members)
    packed_linear = PackedLinear(
        linear.in_features,
        linear.out_features,
        alpha=packing.alpha,
        num_estimators=packing.members,
        gamma=gamma,
        bias=linear.bias is not None,
        first=first,
        last=last,
        device=linear.weight.device,
        dtype=linear.weight.dtype,
    )
    fans = linear.in_features, packed_linear.weight.shape[-1]
    start_like(packed_linear, linear, *fans)
    return packed_linear


def _packed_shortcut(place: str, shortcut: PadShortcut, packing: Packing) -> PadShortcut:
    """Zeros around the channels of each member, as many as its width asks for."""
    wide = [
        packing.width(place, channels, packing.members) if channels else 0
        for channels in (shortcut.before, shortcut.after)
    ]
    before, after = (width // packing.members for width in wide)
    return PadShortcut(before, after, packing.members)


def _widen(norm: _BatchNorm, width: int) -> None:
    """Give a batch normalisation another width, untrained; in place, so that subclasses stay."""
    norm.num_features = width
    for name in ("weight", "bias"):
        old = getattr(norm, name)
        if old is not None:
            setattr(norm, name, nn.Parameter(draw(old, (width,))))
    if norm.running_mean is not None and norm.running_var is not None:
        norm.running_mean = norm.running_mean.new_zeros(width)
        norm.running_var = norm.running_var.new_ones(width)
        norm.reset_running_stats()
