"""Models of timm."""

from __future__ import annotations

from typing import Any

from torch import nn

from bench.backbones.heads import mark_fresh_head
from bench.backbones.hub import quick_hub
from bench.backbones.names import PRETRAINED, architecture, check_backbone_name, family, weights_of
from bench.backbones.refusals import cannot_take, no_download
from bench.errors import UserError


def timm_model(name: str, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    """A model of timm; with ``@pretrained`` its own weights, adapted by timm's own code.

    That resizes position embeddings and sums the first layer over colours where images differ from
    those that the weights were trained on, and leaves the head out where classes do.

    Args:
        name: with its prefix.
        num_classes: K.
        input_shape: channels, height and width.

    Raises:
        UserError: no such model, it can't take such images, or its weights can't be had.
    """
    import timm

    check_backbone_name(name)
    _, model = family(name)
    config = timm.get_pretrained_cfg(model)
    channels, height, width = input_shape
    # Architectures that are built for one size (transformers, mixers) must be told it.
    fixed = config is not None and config.fixed_input_size
    size = {"img_size": (height, width)} if fixed else {}
    options = {"num_classes": num_classes, "in_chans": channels, **size}
    if weights_of(name) == PRETRAINED:
        return _with_weights(name, model, config, options)
    try:
        network: nn.Module = timm.create_model(model, pretrained=False, **options)
    except Exception as error:
        raise UserError(cannot_take(name, input_shape, error)) from error
    return network


def _with_weights(name: str, model: str, config: Any, options: dict[str, Any]) -> nn.Module:
    import timm

    if config is None or not config.has_weights:
        raise UserError(f"backbone {name}: timm has no weights for it: name a file after the @")
    with quick_hub() as online:
        try:
            network: nn.Module = timm.create_model(model, pretrained=True, **options)
        except Exception as error:
            if online:
                line = " ".join(str(error).split())
                raise UserError(f"backbone {name}: its weights can't be loaded: {line}") from error
            raise no_download(name, _address(config), f"{architecture(name)}@FILE") from error
    if config.num_classes != options["num_classes"]:
        mark_fresh_head(
            network,
            f"the weights are for {config.num_classes} classes, the task has "
            f"{options['num_classes']}",
        )
    return network


def _address(config: Any) -> str:
    """Where the weights can be downloaded with a browser."""
    identity = config.hf_hub_id
    if not identity:
        return str(config.url)
    if identity.endswith("/"):
        identity += config.architecture + (f".{config.tag}" if config.tag else "")
    return f"https://huggingface.co/{identity}/resolve/main/model.safetensors"
