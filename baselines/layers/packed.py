"""Packed-Ensembles (Laurent et al., 2023): any plain convolutional network, packed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch_uncertainty.layers import PackedConv2d, PackedLinear

from baselines.layers.trace import Trace, changed_outputs, evaluating, trace
from bench.errors import NotApplicable


@dataclass(frozen=True)
class Packing:
    """How wide a packed network is, and how it is divided.

    Attributes:
        members: M.
        alpha: width of all members together over the backbone's.
        gamma: groups of each layer of a member.
    """

    members: int
    alpha: float
    gamma: int

    def width(self, place: str, channels: int, groups: int) -> int:
        """αC, where it is a whole number that `groups` divides.

        Raises:
            NotApplicable: it isn't, or they don't.
        """
        wide = self.alpha * channels
        whole = round(wide)
        if abs(wide - whole) > 1e-9 * wide or whole % groups:
            raise NotApplicable(
                f"{place}: α·C = {self.alpha:g}·{channels} channels don't divide into {groups} "
                f"equal groups (M = {self.members}, γ = {self.gamma})"
            )
        return whole


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
        backbone: ``[B, C, H, W] -> [B, K]``, of convolutions, linear layers and batch
            normalisation.
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
    packing = Packing(members, alpha, gamma)
    _check_trace(backbone, seen, num_classes)
    first: list[nn.Module] = []
    network = PackedNetwork(_converted(backbone, "", packing, seen, first, {}), members)
    _check_isolation(network, first, seen.image)
    return network


def output_width(backbone: nn.Module) -> int:
    """K, found by trying the network on a blank image."""
    _check_layers(backbone)
    return trace(backbone).classes


def _place(name: str, module: nn.Module) -> str:
    cls = type(module)
    own = cls.__module__.startswith("torch.")
    kind = cls.__name__ if own else f"{cls.__module__}.{cls.__qualname__}"
    return f"layer {name!r} ({kind})" if name else f"the network ({kind})"


def _check_layers(backbone: nn.Module) -> None:
    """Every parameter must belong to a layer that can be packed."""
    for name, module in backbone.named_modules():
        place = _place(name, module)
        if isinstance(module, nn.MultiheadAttention):
            raise NotApplicable(
                f"{place}: attention mixes members in torch-uncertainty's packed form"
            )
        if type(module) in (nn.Conv2d, nn.Linear) or isinstance(module, _BatchNorm):
            continue
        if next(module.parameters(recurse=False), None) is not None:
            raise NotApplicable(
                f"{place}: has parameters, and only torch's own Conv2d, Linear and BatchNorm "
                "layers can be divided among members"
            )


def _check_trace(backbone: nn.Module, seen: Trace, num_classes: int) -> None:
    if seen.classes != num_classes:
        raise NotApplicable(f"the network has {seen.classes} outputs for {num_classes} classes")
    widths = {nn.Linear: "out_features", nn.Conv2d: "out_channels"}
    if getattr(seen.last, widths[type(seen.last)]) != num_classes:
        raise NotApplicable("the network's last layer does not give its logits")
    if seen.last in seen.first:
        raise NotApplicable("the network's only layer sees the image: nothing could be divided")
    for name, module in backbone.named_modules():
        if module not in seen.used and next(module.parameters(recurse=False), None) is not None:
            raise NotApplicable(f"{_place(name, module)}: is not used when the network classifies")


def _converted(
    module: nn.Module,
    name: str,
    packing: Packing,
    seen: Trace,
    first: list[nn.Module],
    done: dict[nn.Module, nn.Module],
) -> nn.Module:
    """The module with every layer packed; those that see the image are also noted in `first`."""
    if module in done:
        return done[module]
    done[module] = module
    place = _place(name, module)
    ends = {"first": module in seen.first, "last": module is seen.last}
    if isinstance(module, nn.Conv2d):
        done[module] = _packed_conv(place, module, packing, **ends)
    elif isinstance(module, nn.Linear):
        done[module] = _packed_linear(place, module, packing, **ends)
    elif isinstance(module, _BatchNorm):
        _widen(module, packing.width(place, module.num_features, packing.members))
    if ends["first"]:
        first.append(done[module])
    for child_name, child in module._modules.items():
        if child is not None:
            path = f"{name}.{child_name}" if name else child_name
            module._modules[child_name] = _converted(child, path, packing, seen, first, done)
    return done[module]


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
    _start_like(packed_conv, conv, *fans)
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
    _start_like(packed_linear, linear, *fans)
    return packed_linear


@torch.no_grad()
def _start_like(
    layer: PackedConv2d | PackedLinear, plain: nn.Conv2d | nn.Linear, plain_fan: int, fan: int
) -> None:
    """Start a packed layer as the backbone starts the plain one: at its variance, or at 0.

    Values are drawn from the plain layer's initial ones, and scaled so that outputs vary as much
    with other numbers of inputs, `fan` for `plain_fan` (variance 1 / fan-in; He et al., 2015). The
    library's own start would cost members what a careful one gives a single network.
    """
    scale = (plain_fan / fan) ** 0.5
    for name in ("weight", "bias"):
        start, new = getattr(plain, name), getattr(layer, name)
        if new is not None:
            drawn = _draw_from(start, new.shape)
            new.copy_(drawn if _constant(start) else scale * drawn)


def _draw_from(values: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Values in a new shape, drawn with replacement from torch's global generator."""
    flat = values.detach().flatten()
    return flat[torch.randint(len(flat), tuple(shape)).to(flat.device)]


def _constant(values: Tensor) -> bool:
    return bool((values == values.flatten()[0]).all())


def _widen(norm: _BatchNorm, width: int) -> None:
    """Give a batch normalisation another width, untrained; in place, so that subclasses stay."""
    norm.num_features = width
    for name in ("weight", "bias"):
        old = getattr(norm, name)
        if old is not None:
            setattr(norm, name, nn.Parameter(_draw_from(old, (width,))))
    if norm.running_mean is not None and norm.running_var is not None:
        norm.running_mean = norm.running_mean.new_zeros(width)
        norm.running_var = norm.running_var.new_ones(width)
        norm.reset_running_stats()


def _check_isolation(network: PackedNetwork, first: list[nn.Module], image: Tensor) -> None:
    """Make one member's activations NaN after another: it must answer NaN, and it alone."""
    for member in range(network.members):

        def poison(output: Tensor, member: int = member) -> Tensor:
            poisoned = output.clone()
            poisoned.chunk(network.members, dim=1)[member].fill_(torch.nan)
            return poisoned

        try:
            with evaluating(network), changed_outputs(first, poison):
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
