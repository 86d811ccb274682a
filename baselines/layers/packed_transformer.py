"""From the layers of plain transformers to packed ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from baselines.layers.packed_attention import (
    GroupedLinear,
    PackedAttention,
    PackedDropPath,
    PackedHeadNorm,
    PackedLayerNorm,
    PackedMultiheadAttention,
)
from baselines.layers.packed_start import draw, scaled_draw
from baselines.layers.packed_width import Packing, qualified
from bench.errors import NotApplicable

# By name, so that a network without them needs no import of the libraries that have them.
_LAYER_NORMS = {"torch.nn.modules.normalization.LayerNorm", "timm.layers.norm.LayerNorm"}
_TIMM_ATTENTION = {
    "timm.layers.attention.Attention",
    "timm.models.vision_transformer.Attention",
}
_TORCH_ATTENTION = "torch.nn.modules.activation.MultiheadAttention"
_DROP_PATH = "timm.layers.drop.DropPath"
_FEATURES = {
    "timm.models.vision_transformer.VisionTransformer": ("cls_token", "reg_token", "pos_embed"),
    "timm.layers.layer_scale.LayerScale": ("gamma",),
    "timm.models.vision_transformer.LayerScale": ("gamma",),
    "torchvision.models.vision_transformer.VisionTransformer": ("class_token",),
    "torchvision.models.vision_transformer.Encoder": ("pos_embedding",),
}
"""Modules with parameters of their own whose last axis is the features of a token."""
_WIDTHS = {"torchvision.models.vision_transformer.VisionTransformer": "hidden_dim"}
"""The attribute in which a module remembers the features of a token and reshapes by it."""


def is_layer_norm(module: nn.Module) -> bool:
    """Whether it normalises over the last axis, as torch's or timm's LayerNorm."""
    return qualified(module) in _LAYER_NORMS


def is_attention(module: nn.Module) -> bool:
    """Whether it is timm's `Attention` or torch's `MultiheadAttention`."""
    return qualified(module) in _TIMM_ATTENTION or qualified(module) == _TORCH_ATTENTION


def is_drop_path(module: nn.Module) -> bool:
    """Whether it is timm's stochastic depth."""
    return qualified(module) == _DROP_PATH


def holds_tokens(module: nn.Module) -> bool:
    """Whether its children work on tokens, ``[B, N, D]``."""
    return qualified(module).endswith("vision_transformer.VisionTransformer")


def has_packable_parameters(module: nn.Module) -> bool:
    """Whether all parameters that it holds itself can be divided, features last."""
    known = _FEATURES.get(qualified(module), ())
    return {name for name, _ in module.named_parameters(recurse=False)} <= set(known)


def widen_features(place: str, module: nn.Module, packing: Packing) -> None:
    """Give tokens, position embeddings and layer scales the width of all members, in place."""
    kind = qualified(module)
    for name in _FEATURES.get(kind, ()):
        old = getattr(module, name, None)
        if old is not None:
            width = packing.width(place, old.shape[-1], packing.members)
            setattr(module, name, nn.Parameter(draw(old, (*old.shape[:-1], width))))
    if kind in _WIDTHS:
        wide = packing.width(place, getattr(module, _WIDTHS[kind]), packing.members)
        setattr(module, _WIDTHS[kind], wide)


def packed_drop_path(module: nn.Module, packing: Packing) -> PackedDropPath:
    """Stochastic depth, drawn by each member."""
    return PackedDropPath(packing.members, module.drop_prob, module.scale_by_keep)  # type: ignore[arg-type]


def packed_layer_norm(place: str, norm: nn.LayerNorm, packing: Packing) -> PackedLayerNorm:
    """Layer normalisation within members.

    Raises:
        NotApplicable: it normalises over more than features, or they don't divide.
    """
    if len(norm.normalized_shape) != 1:
        raise NotApplicable(f"{place}: normalises over more than the features of one position")
    width = packing.width(place, norm.normalized_shape[0], packing.members)
    weight, bias = (
        None if old is None else draw(old, (width,)) for old in (norm.weight, norm.bias)
    )
    return PackedLayerNorm(packing.members, width, norm.eps, weight, bias)


def check_attention(place: str, attention: nn.Module) -> None:
    """Refuse attention that has parts which can't be divided among members.

    Raises:
        NotApplicable: with its name and the part.
    """
    part = None
    if isinstance(attention, nn.MultiheadAttention):
        if not attention.batch_first:
            part = "batch_first=False"
        elif not attention._qkv_same_embed_dim:
            part = "kdim or vdim"
        elif attention.bias_k is not None or attention.add_zero_attn:
            part = "add_bias_kv or add_zero_attn"
    elif getattr(attention, "gate", None) is not None:
        part = "a gate"
    elif not isinstance(getattr(attention, "norm", nn.Identity()), nn.Identity):
        part = "a norm of its output"
    elif not all(_is_head_norm(norm) for norm in (attention.q_norm, attention.k_norm)):
        part = "norms of queries and keys other than LayerNorm"
    if part is not None:
        raise NotApplicable(f"{place}: attention with {part} can't be divided among members")


def packed_attention(place: str, plain: nn.Module, packing: Packing) -> PackedAttention:
    """Attention whose heads are divided among members, and a member's among its γ groups.

    Raises:
        NotApplicable: heads or features don't divide.
    """
    groups = packing.members * packing.gamma
    heads = packing.width(place, plain.num_heads, groups, what="attention heads") // groups  # type: ignore[arg-type]
    if isinstance(plain, nn.MultiheadAttention):
        return PackedMultiheadAttention(
            heads,
            _grouped(place, plain.in_proj_weight, plain.in_proj_bias, packing, parts=3),
            _grouped(place, plain.out_proj.weight, plain.out_proj.bias, packing),
            dropout=plain.dropout,
        )
    layers: Any = plain
    return PackedAttention(
        heads,
        _grouped(place, layers.qkv.weight, layers.qkv.bias, packing, parts=3),
        _grouped(place, layers.proj.weight, layers.proj.bias, packing),
        q_norm=_packed_head_norm(layers.q_norm, packing),
        k_norm=_packed_head_norm(layers.k_norm, packing),
        dropout=layers.attn_drop.p,
        proj_drop=layers.proj_drop,
    )


@torch.no_grad()
def _grouped(
    place: str, weight: Tensor, bias: Tensor | None, packing: Packing, parts: int = 1
) -> GroupedLinear:
    """Mγ linear layers from one whose outputs are `parts` equal parts, each started for itself."""
    groups = packing.members * packing.gamma
    outputs, plain_fan = weight.shape
    fan = packing.width(place, plain_fan, groups) // groups
    size = packing.width(place, outputs // parts, groups) // groups
    drawn = [
        scaled_draw(start, (groups, size, fan), plain_fan, fan) for start in weight.chunk(parts)
    ]
    if bias is None:
        return GroupedLinear(torch.cat(drawn, 1), None)
    offsets = [scaled_draw(start, (groups, size), plain_fan, fan) for start in bias.chunk(parts)]
    return GroupedLinear(torch.cat(drawn, 1), torch.cat(offsets, 1))


def _is_head_norm(norm: object) -> bool:
    return isinstance(norm, nn.Identity) or (isinstance(norm, nn.Module) and is_layer_norm(norm))


def _packed_head_norm(norm: nn.Identity | nn.LayerNorm, packing: Packing) -> nn.Module:
    if isinstance(norm, nn.Identity):
        return norm
    features = norm.normalized_shape[0]
    shape = (packing.members, features)
    weight, bias = (None if old is None else draw(old, shape) for old in (norm.weight, norm.bias))
    return PackedHeadNorm(packing.members, features, norm.eps, weight, bias)
