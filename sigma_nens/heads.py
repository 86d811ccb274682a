"""Classification heads: one linear map for each member."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from sigma_nens.context import MemberContext


class MemberLinear(nn.Module):
    r"""A linear layer with its own weight and bias for each member.

    .. math:: y_t = W_t x_t + b_t

    Shape:
        - input: ``[B * m, ..., D]``, batch-major.
        - output: ``[B * m, ..., K]``.

    Args:
        linear: the plain layer ``D -> K``; it gives sizes, type and device, and its values when
            pretrained.
        members: M.
        pretrained: start each member from the plain layer's values; otherwise each has a fresh draw
            of its own, from the distribution of `torch.nn.Linear`.
        generator: where the draw comes from; None for torch's global one.

    Attributes:
        weight: ``[M, K, D]``.
        bias: ``[M, K]``, or None where the plain layer has none.

    Examples:
        >>> import torch
        >>> head = MemberLinear(torch.nn.Linear(16, 10), members=4)
        >>> head(torch.randn(2 * 4, 16)).shape
        torch.Size([8, 10])
        >>> sum(p.numel() for p in head.parameters()) == 4 * (16 * 10 + 10)
        True
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        linear: nn.Linear,
        members: int,
        *,
        pretrained: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.context = MemberContext(members)
        self.members = members
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.label = type(linear).__name__
        bound = 1 / math.sqrt(max(1, self.in_features))
        for name in ("weight", "bias"):
            value = cast("Tensor | None", getattr(linear, name))
            if value is None:
                self.register_parameter(name, None)
                continue
            initial = value.detach().expand(members, *value.shape).clone()
            if not pretrained:
                initial = _uniform_like(initial, bound, generator)
            self.register_parameter(name, nn.Parameter(initial))
        self.train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to each row its member's map.

        Raises:
            ValueError: if the first dimension can't be a folded batch.
        """
        context = self.context
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        batch = context.samples(x.shape[0], self.label)
        if context.active < self.members:
            weight = weight[context.start : context.stop]
            bias = None if bias is None else bias[context.start : context.stop]
        rows = torch.unflatten(x, 0, (batch, context.active, -1))
        rows = rows.transpose(0, 1)  # [m, B, r, ..., D]
        flat = rows.flatten(1, -2)
        if bias is None:
            y = torch.bmm(flat, weight.mT)
        else:
            y = torch.baddbmm(bias.unsqueeze(1), flat, weight.mT)
        y = torch.unflatten(y, 1, tuple(rows.shape[1:-1])).transpose(0, 1)
        return y.flatten(0, 2)

    @torch.no_grad()
    def plain(self, member: int) -> nn.Linear:
        """A plain linear layer with a copy of one member's values.

        Args:
            member: which one, in ``[0, M)``.
        """
        if not 0 <= member < self.members:
            raise IndexError(f"member must be in [0, {self.members}), got {member}")
        linear = nn.Linear(
            self.in_features, self.out_features, bias=self.bias is not None, device="meta"
        )
        linear.weight = nn.Parameter(self.weight[member].clone())
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias[member].clone())
        return linear.train(self.training)

    def extra_repr(self) -> str:
        """Sizes and members, for printing."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, members={self.members}, bias={self.bias is not None}"


def _uniform_like(like: Tensor, bound: float, generator: torch.Generator | None) -> Tensor:
    device = "cpu" if generator is None else generator.device
    draw = torch.rand(like.shape, generator=generator, device=device, dtype=torch.float32)
    return ((2 * draw - 1) * bound).to(like)
