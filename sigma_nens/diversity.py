"""The softmax-temperature regulariser of gates, and where it settles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

Reduction = Literal["sum", "feature_mean", "layer_mean"]


def diversity_loss(gates: Sequence[Tensor], tau: float, reduction: Reduction = "sum") -> Tensor:
    r"""How evenly members share the features, in nats; it is minimised along with the task loss.

    With gates s in (0, 1), over layers ℓ, features i and members m:

    .. math:: L = \sum_{\ell, i, m} \log \mathrm{softmax}_\tau(s_{\cdot, \ell, i})_m, \qquad
        \mathrm{softmax}_\tau(s)_m = \frac{e^{s_m / \tau}}{\sum_j e^{s_j / \tau}}

    Its derivative by s_m is ``(1 - M p_m) / τ``: a gate above its share p_m = 1/M grows, the others
    shrink. Equal gates are a saddle. Of gates at 0 or 1 it wants about ``M * equilibrium_share(τ)``
    of each feature's M open.

    Shape:
        - gates: a sequence of ``[M, C]``, one for each layer; C may differ.
        - output: a scalar. It is at most ``-M log M`` for each feature; 0 for M = 1.

    Args:
        gates: σ(γ) of each gated layer.
        tau: the temperature τ > 0.
        reduction: ``"sum"`` over all features of all layers; ``"feature_mean"``, the mean over all
            features of all layers; or ``"layer_mean"``, the mean over layers of each layer's mean
            over features. Members are always summed over.

    Raises:
        ValueError: for a τ that isn't finite and positive, no gates, or layers that differ in M.

    Examples:
        >>> import math, torch
        >>> equal = [torch.full((4, 8), 0.5), torch.full((4, 2), 0.5)]
        >>> math.isclose(diversity_loss(equal, tau=0.2).item(), -10 * 4 * math.log(4), rel_tol=1e-6)
        True
        >>> apart = [torch.eye(4)]
        >>> bool(diversity_loss(apart, 0.2) < diversity_loss([torch.full((4, 4), 0.5)], 0.2))
        True
    """
    _check_tau(tau)
    if reduction not in get_args(Reduction):
        raise ValueError(
            f"reduction must be one of {', '.join(get_args(Reduction))}, got {reduction!r}"
        )
    if not gates:
        raise ValueError("diversity_loss needs the gates of at least one layer")
    shapes = [tuple(g.shape) for g in gates]
    if any(len(shape) != 2 for shape in shapes) or len({shape[0] for shape in shapes}) > 1:
        raise ValueError(f"gates must be [M, C] with one M for all layers, got {shapes}")
    # One softmax for all layers: many small ones cost more than the arithmetic.
    joined = torch.cat(list(gates), dim=1)
    penalty = torch.log_softmax(joined / tau, dim=0).sum(dim=0)
    if reduction == "sum":
        return penalty.sum()
    if reduction == "feature_mean":
        return penalty.mean()
    per_layer = torch.split(penalty, [features for _, features in shapes])
    return torch.stack([layer.mean() for layer in per_layer]).mean()


def equilibrium_share(tau: float) -> float:
    r"""The share of members that own a feature where the regulariser is content.

    If k of M gates of a feature are 1 and the rest 0, `diversity_loss` is
    ``k/τ - M log(k (e^{1/τ} - 1) + M)``. Over real k its minimum lies at

    .. math:: \frac{k^*}{M} = \tau - \frac{1}{e^{1/\tau} - 1}

    Args:
        tau: the temperature τ > 0.

    Returns:
        k*/M, in (0, 1/2): about τ for small τ (each feature owned by few members), and towards 1/2
        for large τ.

    Raises:
        ValueError: for a τ that isn't finite and positive.

    Examples:
        >>> round(equilibrium_share(0.2), 4)
        0.1932
        >>> round(8 * equilibrium_share(1.0), 2)
        3.34
    """
    _check_tau(tau)
    return _share(1.0 / tau)


def temperature_for(k: float, members: int) -> float:
    """The temperature at which the regulariser wants each feature to be owned by k of M members.

    The inverse of `equilibrium_share`: ``members * equilibrium_share(temperature_for(k, members))``
    is k.

    Args:
        k: how many members, in (0, members / 2); it needn't be whole.
        members: M.

    Returns:
        τ > 0.

    Raises:
        ValueError: if k lies outside (0, members / 2), where no temperature leads.

    Examples:
        >>> tau = temperature_for(2, members=8)
        >>> round(tau, 3), round(8 * equilibrium_share(tau), 6)
        (0.278, 2.0)
    """
    share = k / members if members >= 1 else math.nan
    if not 0.0 < share < 0.5:
        raise ValueError(
            f"k must lie in (0, members / 2), got k={k} with members={members}; "
            "no temperature makes the regulariser want more than half of the members"
        )
    # With x = 1/τ the share falls in x, and 1/2 - x/12 <= share <= 1/x brackets the root.
    low, high = 12.0 * (0.5 - share) * 0.999, 1.001 / share
    for _ in range(200):
        middle = 0.5 * (low + high)
        if _share(middle) > share:
            low = middle
        else:
            high = middle
    return 1.0 / (0.5 * (low + high))


def _share(x: float) -> float:
    """1/x - 1/(e^x - 1), for x = 1/τ."""
    if x < 0.05:  # the difference of two large numbers: take its series
        return 0.5 - x / 12 + x**3 / 720 - x**5 / 30240
    return 1.0 / x - (1.0 / math.expm1(x) if x < 700 else 0.0)


def _check_tau(tau: float) -> None:
    if not (math.isfinite(tau) and tau > 0):
        raise ValueError(f"tau must be finite and greater than 0, got {tau}")
