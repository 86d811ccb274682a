"""Total uncertainty, split into an aleatoric and a modulation part."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Uncertainty(NamedTuple):
    """What `decompose_uncertainty` gives, each ``[B]``, in nats, float64.

    Attributes:
        total: entropy of the mean prediction, in ``[0, log K]``.
        aleatoric: mean entropy of the members' predictions, in ``[0, log K]``.
        modulation: mutual information between prediction and member, in ``[0, log M]``.
    """

    total: Tensor
    aleatoric: Tensor
    modulation: Tensor


def decompose_uncertainty(logits: Tensor) -> Uncertainty:
    r"""Split the entropy of an ensemble's prediction.

    With p_t the softmax of member t's logits and H the entropy:

    .. math:: H\Big[\frac{1}{M} \sum_t p_t\Big] =
        \underbrace{\frac{1}{M} \sum_t H[p_t]}_\text{aleatoric} + \text{modulation}

    In σN-Ens the backbone is shared and deterministic, so the second part, the mutual information
    between prediction and member, comes from re-weighted features alone: modulation uncertainty.

    Shape:
        - logits: ``[B, M, K]``.
        - output: three of ``[B]``.

    Args:
        logits: member logits of any floating-point type.

    Raises:
        ValueError: if `logits` has not three dimensions, or no member or class.

    Examples:
        >>> import torch
        >>> opposed = torch.tensor([[[1e4, 0.0], [0.0, 1e4]]])
        >>> u = decompose_uncertainty(opposed)
        >>> [round(part.item(), 4) for part in u]
        [0.6931, 0.0, 0.6931]
    """
    if logits.ndim != 3 or 0 in logits.shape[1:]:
        raise ValueError(f"logits must be [B, M, K], got {tuple(logits.shape)}")
    log_p = torch.log_softmax(logits.double(), dim=-1)
    log_mean = torch.logsumexp(log_p, dim=1) - math.log(logits.shape[1])
    # entr(p) = -p log p, with entr(0) = 0 where the product would be 0 times infinity.
    total = torch.special.entr(log_mean.exp()).sum(dim=-1)
    aleatoric = torch.special.entr(log_p.exp()).sum(dim=-1).mean(dim=1)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0.0))
