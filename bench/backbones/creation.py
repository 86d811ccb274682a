"""From a name to a network."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import nn

from bench.backbones.heads import mark_fresh_head
from bench.backbones.names import (
    HUGGING_FACE,
    TIMM,
    TORCHVISION,
    architecture,
    check_backbone_name,
    family,
    weight_file,
)
from bench.backbones.refusals import cannot_take
from bench.errors import UserError

PADDING_SHARE = 0.01
"""Of the largest logit, that padding may change one by: some attention is an approximation."""


def create(
    name: str, num_classes: int, input_shape: tuple[int, ...], data: Path | None
) -> nn.Module:
    """See `bench.backbones.create_backbone`."""
    check_backbone_name(name)
    prefix, _ = family(name)
    _check_sizes(name, prefix, num_classes, input_shape)
    if prefix == HUGGING_FACE:
        from bench.backbones.hugging_face import text_model

        classifier = text_model(name, num_classes, input_shape, data)
        # Any token that is no padding will do.
        tokens = torch.full((2, *input_shape), int(classifier.pad == 0))
        _try(name, classifier, tokens, num_classes)
        _try_padding(name, classifier, tokens, classifier.pad)
        _try_counting(name, classifier, tokens)
        return classifier.train()
    network = _image_network(name, prefix, num_classes, input_shape, data)
    _try(name, network, torch.zeros(2, *input_shape), num_classes)
    return network.train()


def _image_network(
    name: str, prefix: str, num_classes: int, input_shape: tuple[int, ...], data: Path | None
) -> nn.Module:
    file = weight_file(name, data)
    if prefix == TIMM:
        from bench.backbones.timm_models import timm_model

        network = timm_model(name, num_classes, input_shape)
    elif prefix == TORCHVISION:
        from bench.backbones.torchvision_models import torchvision_model

        network = torchvision_model(name, num_classes, input_shape)
    else:
        from bench.backbones.images import own_network

        network = own_network(architecture(name), num_classes, input_shape)
    if file is not None:
        from bench.backbones.weights import load_weights, read_weights

        state = read_weights(file, name)
        if reason := load_weights(network, state, num_classes, name, str(file)):
            mark_fresh_head(network, reason)
    return network


def _check_sizes(name: str, prefix: str, num_classes: int, input_shape: tuple[int, ...]) -> None:
    if num_classes < 1:
        raise UserError(f"backbone {name}: num_classes must be at least 1, not {num_classes}")
    wanted, takes, other = 3, "images", "texts"
    if prefix == HUGGING_FACE:
        wanted, takes, other = 1, "texts", "images"
    if len(input_shape) == 4 - wanted:
        hint = f"{HUGGING_FACE}NAME" if wanted == 3 else "one for images"
        raise UserError(f"backbone {name}: takes {takes}, not {other}: choose {hint}")
    if len(input_shape) != wanted or min(input_shape) < 1:
        shape = "(channels, height, width)" if wanted == 3 else "(tokens,)"
        raise UserError(
            f"backbone {name}: input_shape must be {shape}, each at least 1, "
            f"not {tuple(input_shape)}"
        )


def _try(name: str, network: nn.Module, inputs: torch.Tensor, num_classes: int) -> None:
    """Try the network on blank inputs: one whose stages shrink to nothing fails or gives NaN."""
    shape = tuple(inputs.shape[1:])
    network.eval()
    try:
        with torch.no_grad():
            logits = network(inputs)
    except Exception as error:
        raise UserError(cannot_take(name, shape, error)) from error
    if logits.shape != (2, num_classes):
        found = f"gives {list(logits.shape)} instead of logits [2, {num_classes}]"
        raise UserError(cannot_take(name, shape, found))
    if not logits.isfinite().all():
        raise UserError(cannot_take(name, shape, "its logits are not finite"))


def _try_padding(name: str, network: nn.Module, tokens: torch.Tensor, pad: int) -> None:
    """Refuse a network in evaluation mode whose answer depends on how far a text is filled up.

    Such networks read the last token, say, or want texts filled up at their start; what they
    answer would depend on the batch that a text is in.
    """
    length = tokens.shape[1]
    kept = -(-length // 2)
    padded = tokens.clone()
    padded[:, kept:] = pad
    with torch.no_grad():
        filled, cut = network(padded), network(padded[:, :kept])
    if (filled - cut).abs().max() > PADDING_SHARE * torch.maximum(filled.abs(), cut.abs()).max():
        reason = "its answer to a text depends on the padding at the end"
        raise UserError(cannot_take(name, (length,), reason))


def _try_counting(name: str, network: nn.Module, tokens: torch.Tensor) -> None:
    """Refuse a network that looks at values to choose what it does: see `bench.flops`."""
    try:
        with torch.no_grad():
            copy.deepcopy(network).to("meta")(tokens.to("meta"))
    except (RuntimeError, NotImplementedError) as error:
        reason = f"what it does depends on values, so its cost can't be counted: {error}"
        raise UserError(cannot_take(name, tuple(tokens.shape[1:]), reason)) from error
