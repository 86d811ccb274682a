"""Augmentation of whole batches of uint8 images, on the device that holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional


def augment(inputs: Tensor, names: Sequence[str]) -> Tensor:
    """Apply augmentations to a batch, one after the other in the order of `names`.

    Every sample draws its own numbers from PyTorch's global generator of the device of `inputs`;
    seed that to repeat a result.

    Args:
        inputs: uint8 ``[B, C, H, W]``; it stays as it is.
        names: of `AUGMENTATIONS`: ``crop`` pads with zeros by an eighth of each side (at least one
            pixel) and crops back at a random place; ``shift`` does so with one pixel; ``flip``
            mirrors left to right with probability 1/2.

    Returns:
        uint8 ``[B, C, H, W]``.

    Raises:
        ValueError: an unknown name.
    """
    for name in names:
        if name not in AUGMENTATIONS:
            raise ValueError(f"augmentation {name!r}: known are {', '.join(AUGMENTATIONS)}")
        inputs = AUGMENTATIONS[name](inputs)
    return inputs


def _crop(inputs: Tensor) -> Tensor:
    height, width = inputs.shape[2:]
    return _move(inputs, max(1, height // 8), max(1, width // 8))


def _shift(inputs: Tensor) -> Tensor:
    return _move(inputs, 1, 1)


def _flip(inputs: Tensor) -> Tensor:
    mirrored = torch.rand(len(inputs), 1, 1, 1, device=inputs.device) < 0.5
    return torch.where(mirrored, inputs.flip(3), inputs)


def _move(inputs: Tensor, pad_y: int, pad_x: int) -> Tensor:
    """Cut a window of the old size out of each zero-padded image, at a random place."""
    batch, _, height, width = inputs.shape
    padded = functional.pad(inputs, (pad_x, pad_x, pad_y, pad_y))
    top = torch.randint(2 * pad_y + 1, (batch,), device=inputs.device)
    left = torch.randint(2 * pad_x + 1, (batch,), device=inputs.device)
    # A view of all windows, indexed once, is five times as fast as an index for every pixel.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(batch, device=inputs.device), :, top, left]


AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "crop": _crop,
    "shift": _shift,
    "flip": _flip,
}
"""What a recipe may name for whole batches; `resized_crop` is in `bench.data.lazy`."""
