"""Layers of packed transformers: several narrow members side by side in the features of a token.

Tokens are ``[B, N, αD]`` (batch, token, features); member m owns the m-th of M equal slices of the
features. Written here, since torch-uncertainty's packed attention and layer norm mix members: its
attention cuts queries, keys and values across members, its layer norm pools their statistics.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class PackedLayerNorm(nn.Module):
    """Layer normalisation of each member's own features.

    Args:
        members: M.
        width: αD, the features of all members together.
        eps: added to the variance.
        weight, bias: initial affine values ``[αD]``, or None for none.

    Shape:
        ``[..., αD] -> [..., αD]``.
    """

    def __init__(
        self, members: int, width: int, eps: float, weight: Tensor | None, bias: Tensor | None
    ) -> None:
        super().__init__()
        self.members = members
        self.width = width
        self.eps = eps
        self.weight = None if weight is None else nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise; groups of one position each are exactly the members' layer norms."""
        rows = inputs.reshape(-1, self.width)
        normed = functional.group_norm(rows, self.members, self.weight, self.bias, self.eps)
        return normed.view(inputs.shape)


class PackedHeadNorm(nn.Module):
    """Layer normalisation within attention heads, with one affine for the heads of a member.

    Args:
        members: M.
        features: d, the features of a head.
        eps: added to the variance.
        weight, bias: initial affine values ``[M, d]``, or None for none.

    Shape:
        ``[M·R, h, N, d] -> [M·R, h, N, d]``, member 0's rows first.
    """

    def __init__(
        self, members: int, features: int, eps: float, weight: Tensor | None, bias: Tensor | None
    ) -> None:
        super().__init__()
        self.members = members
        self.features = features
        self.eps = eps
        self.weight = None if weight is None else nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, heads: Tensor) -> Tensor:
        """Normalise queries or keys."""
        normed = functional.layer_norm(heads, (self.features,), eps=self.eps)
        own = normed.view(self.members, len(heads) // self.members, *heads.shape[1:])
        if self.weight is not None:
            own = own * self.weight[:, None, None, None]
        if self.bias is not None:
            own = own + self.bias[:, None, None, None]
        return own.flatten(0, 1)


class GroupedLinear(nn.Module):
    """One linear layer for each of G groups of features.

    Args:
        weight: initial weights ``[G, out, in]``.
        bias: initial biases ``[G, out]``, or None for none.

    Shape:
        ``[G, R, in] -> [G, R, out]``.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """All groups in one batched product."""
        turned = self.weight.transpose(1, 2)
        if self.bias is None:
            return torch.bmm(inputs, turned)
        return torch.baddbmm(self.bias.unsqueeze(1), inputs, turned)


class PackedAttention(nn.Module):
    """Self-attention of members side by side: every head belongs to one group of one member.

    The features of a token are Mγ groups, member by member. A group's queries, keys and values come
    from its own features alone and are ordered (part, head, feature) *within* the group, as in a
    narrow attention; groups then lie in the batch, so that no operation can join two of them. Heads
    have the backbone's number of features d, and so its scale ``1/√d``.

    Args:
        heads: h, the heads of a group.
        qkv: ``[G, R, αD/G] -> [G, R, 3·h·d]``.
        proj: ``[G, R, h·d] -> [G, R, out]``.
        q_norm, k_norm: norms of queries and keys, ``[G·B, h, N, d]``, or None.
        dropout: probability of dropping an attention weight while training.
        proj_drop: what drops outputs while training, or None.

    Shape:
        ``[B, N, αD] -> [B, N, G·out]``.
    """

    def __init__(
        self,
        heads: int,
        qkv: GroupedLinear,
        proj: GroupedLinear,
        *,
        q_norm: nn.Module | None = None,
        k_norm: nn.Module | None = None,
        dropout: float = 0.0,
        proj_drop: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.groups = len(qkv.weight)
        self.qkv = qkv
        self.q_norm = q_norm or nn.Identity()
        self.k_norm = k_norm or nn.Identity()
        self.dropout = dropout
        self.proj = proj
        self.proj_drop = proj_drop or nn.Identity()

    def forward(
        self, inputs: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Attend among all tokens, without a mask.

        Raises:
            ValueError: a mask is asked for.
        """
        if attn_mask is not None or is_causal:
            raise ValueError("packed attention takes no mask")
        batch, tokens, _ = inputs.shape
        own = inputs.reshape(batch * tokens, self.groups, -1).transpose(0, 1)
        parts = self.qkv(own).view(self.groups * batch, tokens, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(
            self.q_norm(query),
            self.k_norm(key),
            value,
            dropout_p=self.dropout if self.training else 0.0,
        )
        joined = attended.transpose(1, 2).reshape(self.groups, batch * tokens, -1)
        outputs = self.proj(joined).transpose(0, 1).reshape(batch, tokens, -1)
        dropped: Tensor = self.proj_drop(outputs)
        return dropped


class PackedMultiheadAttention(PackedAttention):
    """The same, called as `torch.nn.MultiheadAttention` is called for self-attention."""

    batch_first = True
    in_proj_bias = None
    """None keeps `torch.nn.TransformerEncoderLayer` from its fused kernel for plain attention."""

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        **options: Any,
    ) -> tuple[Tensor, None]:
        """Attend; attention weights are not given, whatever `need_weights` says.

        Raises:
            ValueError: queries, keys and values are not the same tensor, or a mask is given.
        """
        if not (query is key is value):
            raise ValueError("packed attention is for self-attention alone")
        if key_padding_mask is not None or attn_mask is not None or options.get("is_causal"):
            raise ValueError("packed attention takes no mask")
        return super().forward(query), None


class PackedDropPath(nn.Module):
    """Stochastic depth (Huang et al., 2016) that every member draws for itself.

    Args:
        members: M.
        drop: probability of dropping a member's branch for a sample, in [0, 1).
        rescale: divide what is kept by the probability of keeping it.

    Shape:
        ``[B, N, αD] -> [B, N, αD]``.
    """

    def __init__(self, members: int, drop: float, rescale: bool) -> None:
        super().__init__()
        self.members = members
        self.drop = drop
        self.rescale = rescale

    def forward(self, inputs: Tensor) -> Tensor:
        """Drop branches while training."""
        if not self.training or self.drop == 0:
            return inputs
        keep = 1 - self.drop
        kept = inputs.new_empty(len(inputs), 1, self.members, 1).bernoulli_(keep)
        if self.rescale:
            kept = kept / keep
        own = inputs.reshape(*inputs.shape[:2], self.members, -1)
        return (own * kept).flatten(2)
