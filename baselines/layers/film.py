"""FiLM-Ensemble (Turkoglu et al., 2022): where scales and shifts start."""

from __future__ import annotations

from typing import Literal

import torch
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


@torch.no_grad()
def pretrained_film_norm(plain: nn.Module, members: int, *, std: float) -> MemberNorm:
    """A pretrained normalisation layer whose members start a little apart.

    With w and b the plain layer's scale and shift and ε, η standard normal draws, a member starts
    at the scale ``w (1 + std ε)`` and the shift ``b + std w η``: each feature moves by about that
    share of its own spread, whatever its scale.

    Args:
        plain: the layer it takes the place of.
        members: M.
        std: how far members start apart; with 0 each computes what the plain layer computes.

    Raises:
        sigma_nens.UnsupportedModuleError: a layer of that type can't be given members.
    """
    norm = MemberNorm(plain, members, affine="full", pretrained=True)
    if norm.weight is None:
        return norm
    spread = std * norm.weight.abs()
    norm.weight.add_(spread * torch.randn_like(spread))
    if norm.bias is not None:
        norm.bias.add_(spread * torch.randn_like(spread))
    return norm
