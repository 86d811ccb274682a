"""How packed layers start: from the backbone's own initial values."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def start_like(layer: nn.Module, plain: nn.Module, plain_fan: int, fan: int) -> None:
    """Start a packed layer as the backbone starts the plain one: at its variance, or at 0.

    Args:
        layer: has ``weight`` and ``bias`` (or None), which are filled.
        plain: the backbone's layer, which has them too.
        plain_fan: inputs of one output of the backbone's layer.
        fan: inputs of one output of the packed layer.
    """
    for name in ("weight", "bias"):
        new = getattr(layer, name)
        if new is not None:
            new.copy_(scaled_draw(getattr(plain, name), new.shape, plain_fan, fan))


def scaled_draw(
    start: Tensor, shape: torch.Size | tuple[int, ...], plain_fan: int, fan: int
) -> Tensor:
    """Values for weights or biases of a linear map with another number of inputs.

    They are drawn from the plain layer's initial ones, and scaled so that outputs vary as much with
    `fan` inputs as with `plain_fan` (variance 1 / fan-in; He et al., 2015). The start of the packed
    layers' library would cost members what a careful one gives a single network. A constant is
    kept as it is.
    """
    drawn = draw(start, shape)
    return drawn if _constant(start) else (plain_fan / fan) ** 0.5 * drawn


def draw(values: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Values in a new shape, drawn with replacement from torch's global generator."""
    flat = values.detach().flatten()
    return flat[torch.randint(len(flat), tuple(shape)).to(flat.device)]


def _constant(values: Tensor) -> bool:
    return bool((values == values.flatten()[0]).all())
