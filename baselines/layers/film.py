"""FiLM-Ensemble (Turkoglu et al., 2022): where scales and shifts start."""

from __future__ import annotations

from typing import Literal

from torch import nn

from sigma_nens import MemberNorm


def film_norm(
    plain: nn.Module, members: int, *, init: Literal["xavier", "normal"], gain: float, std: float
) -> MemberNorm:
    """A normalisation layer with an initial scale and shift for each member.

    Args:
        plain: the layer it takes the place of.
        members: M.
        init: ``xavier`` for uniform on ±gain·√(6 / (M + C)), ``normal`` for a draw around `plain`.
        gain: of ``xavier``.
        std: of ``normal``.

    Raises:
        sigma_nens.UnsupportedModuleError: a layer of that type can't be given members.
    """
    norm = MemberNorm(plain, members, affine="full", std=std if init == "normal" else 0.0)
    if init == "xavier":
        for values in (norm.weight, norm.bias):
            if values is not None:
                nn.init.xavier_uniform_(values, gain=gain)
    return norm
