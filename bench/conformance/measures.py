"""What the checks share: how they fail, how they ask a model, how they compare."""

from __future__ import annotations

import torch
from torch import Tensor, nn

NOISE = 1e-4
"""Differences below this share of the largest value are rounding."""


class Wrong(Exception):
    """A check failed; the message says what is wrong and what would be right."""


def predict(model: nn.Module, images: Tensor) -> Tensor:
    """Member logits, without gradients."""
    with torch.no_grad():
        found: Tensor = model(images)
    return found


def gap(found: Tensor, expected: Tensor) -> float:
    """Largest difference as a share of the largest expected value."""
    if not found.numel():
        return 0.0
    scale = expected.abs().max().clamp_min(1e-6)
    return float((found.double() - expected.double()).abs().max() / scale)
