"""What the checks share: how they fail, how they ask a model, how they compare."""

from __future__ import annotations

import torch
from torch import Tensor, nn

NOISE = 1e-4
"""Differences below this share of the largest value are rounding."""


FAINT = 1e-3
"""Of several tensors, one below this share of the largest may be nothing but rounding: such as the
gradient of a bias that the next normalisation takes out again, which is 0 on paper."""


class Wrong(Exception):
    """A check failed; the message says what is wrong and what would be right."""


def predict(model: nn.Module, images: Tensor) -> Tensor:
    """Member logits, without gradients."""
    with torch.no_grad():
        found: Tensor = model(images)
    return found


def gap(found: Tensor, expected: Tensor, least: float = 1e-6) -> float:
    """Largest difference as a share of the largest expected value, or of `least` if more."""
    if not found.numel():
        return 0.0
    scale = expected.abs().max().clamp_min(least)
    return float((found.double() - expected.double()).abs().max() / scale)
