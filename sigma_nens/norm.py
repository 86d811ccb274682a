"""σNorm: per-member normalisation with sigmoid gates."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sigma_nens.member_norm import Affine, MemberNorm
from sigma_nens.plain import like, normal_like


class SigmaNorm(MemberNorm):
    r"""A normalisation layer with a sigmoid gate for each member and feature.

    For member t of M, with gate logits γ_t, a constant gain g_t, and the member's own scale w_t and
    shift b_t where `affine` gives it any:

    .. math:: y = \sigma(\gamma_t) \odot g_t \odot w_t \odot \mathrm{norm}_t(x) + b_t,
        \qquad \sigma(\gamma) = \frac{1}{1 + e^{-\gamma}}

    From scratch, gate logits are drawn around ``gate_init`` and the gain is 1/σ(gate_init), so that
    scales start around 1; a bare gate would start the network at half its scale. When the plain
    layer is pretrained, the gain is 1/σ(γ) of the very draw, so that each member computes what the
    pretrained layer computes while the gates themselves differ: equal gates would be a saddle of
    the diversity regulariser.

    Shape:
        - input: ``[B * m, C, ...]``, or ``[B * m, ..., C]``, batch-major; see `MemberNorm`.
        - output: the same.

    Args:
        norm: the plain layer; see `MemberNorm` for the types. Its values are copied.
        members: M.
        affine: what each member trains beside its gate: ``"full"`` (scale and shift), ``"bias"`` or
            ``"none"``; None for ``"full"`` when pretrained and ``"bias"`` otherwise. A shift only
            where the plain layer has one.
        pretrained: keep the plain layer's function at the start; what `affine` doesn't train is
            then kept as a constant.
        unit_gain: whether scales start around 1; without it the gain is 1.
        gate_init: mean of the initial gate logits.
        gate_std: standard deviation of the initial gate logits.
        generator: where the draw comes from; None for torch's global one.

    Attributes:
        gate_logits: γ ``[M, C]``.
        gain: g ``[M, C]``, constant.

    Raises:
        UnsupportedModuleError: if `norm` is of another type.
        ValueError: for `pretrained` without `unit_gain`, which can't keep the function.

    Examples:
        >>> import torch
        >>> plain = torch.nn.LayerNorm(8)
        >>> layer = SigmaNorm(plain, members=4, pretrained=True)
        >>> x = torch.randn(2, 5, 8)
        >>> folded = x.repeat_interleave(4, dim=0)
        >>> torch.allclose(layer(folded), plain(folded), atol=1e-6)
        True
        >>> layer.gates().shape, bool(layer.gates().std(dim=0).min() > 0)
        (torch.Size([4, 8]), True)
    """

    gate_logits: nn.Parameter
    gain: Tensor

    def __init__(
        self,
        norm: nn.Module,
        members: int,
        *,
        affine: Affine | None = None,
        pretrained: bool = False,
        unit_gain: bool = True,
        gate_init: float = 0.0,
        gate_std: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        if pretrained and not unit_gain:
            raise ValueError("unit_gain=False changes the function of a pretrained network")
        if not math.isfinite(gate_init):
            raise ValueError(f"gate_init must be finite, got {gate_init}")
        if not (math.isfinite(gate_std) and gate_std >= 0):
            raise ValueError(f"gate_std must be finite and at least 0, got {gate_std}")
        chosen: Affine = affine or ("full" if pretrained else "bias")
        super().__init__(norm, members, affine=chosen, pretrained=pretrained)
        centre = like(norm).new_full((members, self.features), gate_init)
        logits = centre + gate_std * normal_like(centre, generator)
        gain = torch.ones_like(centre)
        if unit_gain:
            gain = torch.sigmoid(logits if pretrained else centre).reciprocal()
        if not torch.isfinite(gain).all():
            raise ValueError(f"gate_init={gate_init} is too far below 0: 1 / sigmoid overflows")
        self.gate_logits = nn.Parameter(logits)
        self.register_buffer("gain", gain)

    def gates(self) -> Tensor:
        """σ(γ) of all members ``[M, C]``, each in (0, 1)."""
        return torch.sigmoid(self.gate_logits)

    def scale(self, start: int, stop: int) -> Tensor:
        """σ(γ) ⊙ gain ⊙ w of members start to stop ``[stop - start, C]``."""
        logits: Tensor = self.gate_logits
        gain = self.gain
        if stop - start < self.members:
            logits, gain = logits[start:stop], gain[start:stop]
        scale = torch.sigmoid(logits) * gain
        weight = super().scale(start, stop)
        return scale if weight is None else scale * weight
