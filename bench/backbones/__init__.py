"""Backbones by name: networks ``inputs -> [B, K]`` that know nothing of ensembles.

A name is ``NAME`` (untrained), ``NAME@pretrained`` (the weights that come with it on its hub or in
its folder) or ``NAME@FILE`` (weights in a file). Inputs are images ``[B, C, H, W]``, or the token
ids of texts, int64 ``[B, L]``. Importing this package imports neither torch nor a model library.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.backbones.names import (
    HUGGING_FACE,
    TIMM,
    architecture,
    backbone_names,
    check_backbone_name,
    family,
    is_pretrained,
)
from bench.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from bench.backbones.hugging_face import Tokenizer

__all__ = [
    "TIMM",
    "architecture",
    "backbone_digest",
    "backbone_names",
    "check_backbone_name",
    "create_backbone",
    "fresh_head",
    "is_pretrained",
    "pixel_normalisation",
    "text_tokenizer",
]


def create_backbone(
    name: str, num_classes: int, input_shape: tuple[int, ...], data: Path | None = None
) -> nn.Module:
    """Make a network; what is untrained in it is drawn from torch's global generator.

    The head of a network with pretrained weights is pretrained too, or fresh where its classes are
    not as many as the task's; `fresh_head` tells.

    Args:
        name: one of `backbone_names`, and its weights.
        num_classes: K, at least 1.
        input_shape: channels, height and width of one image; the tokens of one text.
        data: the data folder, where files of pretrained weights and folders of models lie.

    Returns:
        a module in training mode: images ``[B, C, H, W]``, or token ids ``[B, L]``, to logits
        ``[B, K]``.

    Raises:
        UserError: the name is unknown, the network can't take such inputs, or the weights can't be
            had or don't fit it.
    """
    from bench.backbones.creation import create

    return create(name, num_classes, input_shape, data)


def backbone_digest(name: str, data: Path) -> str | None:
    """What identifies the files that a backbone is made from, or None.

    See `bench.backbones.digests.backbone_digest`.
    """
    from bench.backbones.digests import backbone_digest as find

    return find(name, data)


def fresh_head(network: nn.Module) -> str | None:
    """Why the head of a network with pretrained weights is fresh; None where it is pretrained.

    Args:
        network: what `create_backbone` gave for ``NAME@…``, as `Method.convert` receives it.
    """
    from bench.backbones.heads import fresh_head as read

    return read(network)


def pixel_normalisation(
    name: str, data: Path
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Mean and standard deviation that pretrained weights want pixels normalised with, or None.

    See `bench.backbones.pixels.pixel_normalisation`.
    """
    from bench.backbones.pixels import pixel_normalisation as find

    return find(name, data)


def text_tokenizer(name: str, data: Path) -> Tokenizer:
    """What cuts texts into the tokens of a backbone.

    Args:
        name: of a text backbone, ``hf:FOLDER`` or ``hf:HUB_NAME``, with or without weights.
        data: the data folder.

    Raises:
        UserError: the backbone takes images, or there is no such tokenizer.
    """
    if family(name)[0] != HUGGING_FACE:
        raise UserError(
            f"backbone {name}: takes images, not texts: choose one of Hugging Face, hf:NAME"
        )
    from bench.backbones.hugging_face import text_tokenizer as find

    return find(name, data)
