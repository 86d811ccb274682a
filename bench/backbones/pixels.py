"""What pretrained weights want pixels normalised with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.backbones.names import (
    HE_RESNET,
    HUGGING_FACE,
    TIMM,
    TORCHVISION,
    check_backbone_name,
    family,
    is_pretrained,
    weight_file,
)
from bench.errors import UserError

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

IMAGENET: Statistics = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's pixels, red, green and blue."""


def pixel_normalisation(name: str, data: Path) -> Statistics | None:
    """Mean and standard deviation that pretrained weights want pixels normalised with.

    Those in the metadata of a safetensors file come first: ``mean`` and ``std``, each a JSON list
    of one number a channel, for pixels in [0, 1]. Otherwise timm's and torchvision's own for their
    models, from a file too, and ImageNet's for He et al.'s CIFAR ResNets.

    Args:
        name: of a backbone.
        data: the folder that files of weights lie in.

    Returns:
        ``(mean, std)``, one value a channel; None for untrained networks, texts, and other weights:
        the training images' own are then right.

    Raises:
        UserError: the file is missing or damaged, or its metadata are no such lists.
    """
    prefix, model = family(name)
    if not is_pretrained(name) or prefix == HUGGING_FACE:
        return None
    path = weight_file(name, data)
    if path is not None and (stated := _stated(path, name)) is not None:
        return stated
    if prefix == TIMM:
        return _of_timm(name, model)
    if prefix == TORCHVISION:
        from bench.backbones.torchvision_models import default_weights

        transforms = default_weights(name).transforms()
        return tuple(transforms.mean), tuple(transforms.std)
    return IMAGENET if model.startswith(HE_RESNET) else None


def _of_timm(name: str, model: str) -> Statistics | None:
    import timm

    check_backbone_name(name)
    config: Any = timm.get_pretrained_cfg(model)
    return None if config is None else (tuple(config.mean), tuple(config.std))


def _stated(path: Path, name: str) -> Statistics | None:
    from bench.backbones.weights import read_metadata

    metadata = read_metadata(path, name)
    if not {"mean", "std"} & set(metadata):
        return None
    mean, std = (_numbers(metadata.get(key, ""), key, path, name) for key in ("mean", "std"))
    if len(mean) != len(std) or min(std) <= 0:
        raise UserError(
            f"backbone {name}: {path}: its metadata want one mean and one std above 0 for each "
            f"channel, not {list(mean)} and {list(std)}"
        )
    return mean, std


def _numbers(text: str, key: str, path: Path, name: str) -> tuple[float, ...]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError:
        values = None
    numbers = isinstance(values, list) and all(
        isinstance(value, int | float) and abs(value) < float("inf") for value in values
    )
    if not (numbers and values):
        raise UserError(
            f"backbone {name}: {path}: its metadata's {key} must be a JSON list of numbers, one a "
            f"channel, not {text!r}"
        )
    return tuple(float(value) for value in values)
