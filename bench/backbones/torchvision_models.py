"""Classifiers of torchvision."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bench.backbones.heads import mark_fresh_head
from bench.backbones.hub import reachable
from bench.backbones.names import PRETRAINED, architecture, check_backbone_name, family, weights_of
from bench.backbones.refusals import cannot_take, no_download
from bench.backbones.weights import load_weights
from bench.errors import UserError

_DENSE_LAYER = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\.")


def torchvision_model(name: str, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    """A classifier of torchvision; with ``@pretrained`` its default weights.

    Args:
        name: with its prefix.
        num_classes: K.
        input_shape: 3 channels, height and width.

    Raises:
        UserError: no such model, it can't take such images, or its weights can't be had.
    """
    from torchvision.models import get_model

    check_backbone_name(name)
    _, model = family(name)
    channels, height, width = input_shape
    if channels != 3:
        raise UserError(cannot_take(name, input_shape, "it takes 3 channels"))
    options: dict[str, Any] = {"num_classes": num_classes}
    if model.startswith("vit_"):
        if height != width:
            raise UserError(cannot_take(name, input_shape, "it takes square images"))
        options["image_size"] = height
    try:
        network: nn.Module = get_model(model, weights=None, **options)
    except Exception as error:
        raise UserError(cannot_take(name, input_shape, error)) from error
    if weights_of(name) == PRETRAINED:
        weights = default_weights(name)
        state = _download(name, weights)
        reason = load_weights(network, state, num_classes, name, str(weights))
        if reason:
            mark_fresh_head(network, reason)
    return network


def default_weights(name: str) -> Any:
    """The newest weights of a model, an entry of its `torchvision.models.WeightsEnum`."""
    from torchvision.models import get_model_weights

    check_backbone_name(name)
    return get_model_weights(family(name)[1]).DEFAULT


def _download(name: str, weights: Any) -> dict[str, Tensor]:
    import torch

    file = weights.url.rpartition("/")[2]
    cached = Path(torch.hub.get_dir()) / "checkpoints" / file
    instead = f"{architecture(name)}@{file}"
    if not cached.is_file() and not reachable(weights.url):
        raise no_download(name, weights.url, instead)
    try:
        state = weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
    except OSError as error:
        raise no_download(name, weights.url, instead) from error
    except Exception as error:
        line = " ".join(str(error).split())
        raise UserError(f"backbone {name}: its weights can't be loaded: {line}") from error
    # The files of the DenseNets are older than their layers' names; torchvision does the same.
    return {_DENSE_LAYER.sub(r"\1\2.", key): value for key, value in state.items()}
