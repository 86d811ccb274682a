"""Backbones by name: networks ``[B, C, H, W] -> [B, K]`` that know nothing of ensembles.

Importing this module imports neither torch nor a model library; `create_backbone` does.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import UserError, unknown

if TYPE_CHECKING:
    from torch import nn

TIMM = "timm:"
"""The prefix of a model of timm, such as ``timm:convnext_tiny``."""

_DESCRIPTIONS = {
    "resnet8": "CIFAR ResNet, 3 stages of 1 basic block, widths 16-32-64 (0.08 M parameters)",
    "resnet20": "CIFAR ResNet, 3 stages of 3 basic blocks, widths 16-32-64 (0.27 M parameters)",
    "resnet18": "ResNet-18 with a 3x3 stem and no max-pooling (11 M parameters)",
    "resnet50": "ResNet-50 with a 3x3 stem and no max-pooling (24 M parameters)",
    "wrn16_4": "Wide ResNet of depth 16 and width 4, no dropout (2.7 M parameters)",
    "wrn28_8": "Wide ResNet of depth 28 and width 8, no dropout (23 M parameters)",
    "wrn28_10": "Wide ResNet of depth 28 and width 10, no dropout (37 M parameters)",
}
_TIMM_DESCRIPTION = (
    "any model of timm, untrained, such as timm:convnext_tiny or timm:vit_tiny_patch16_224"
)


def backbone_names() -> dict[str, str]:
    """Every name that can be asked for -> one line that describes it."""
    return {**_DESCRIPTIONS, f"{TIMM}NAME": _TIMM_DESCRIPTION}


def check_backbone_name(name: str) -> None:
    """Refuse a name that no backbone has.

    A model of timm is looked up only if timm has been imported already: its import is slow, and
    `create_backbone` looks it up anyway.

    Raises:
        UserError: with the nearest names.
    """
    if not name.startswith(TIMM):
        if name not in _DESCRIPTIONS:
            raise unknown("backbone", name, backbone_names())
        return
    if not name.removeprefix(TIMM):
        raise UserError(f"unknown backbone {name!r}: name a model of timm, such as timm:resnet18")
    if "timm" in sys.modules:
        _check_timm_name(name)


def architecture(name: str) -> str:
    """The name without its weights."""
    return name.partition("@")[0]


def is_pretrained(name: str) -> bool:
    """Whether the name asks for pretrained weights: ``NAME@pretrained`` or ``NAME@FILE``."""
    return "@" in name


def pixel_normalisation(
    name: str, data: Path
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Mean and standard deviation that pretrained weights want pixels normalised with, or None."""
    return None


def text_tokenizer(name: str, data: Path) -> Any:
    """What cuts texts into the tokens of a backbone."""
    raise UserError(
        f"backbone {name}: takes images, not texts: choose one of Hugging Face, hf:NAME"
    )


def create_backbone(
    name: str, num_classes: int, input_shape: tuple[int, ...], data: Path | None = None
) -> nn.Module:
    """Make an untrained network; its weights are drawn from torch's global generator.

    The CIFAR networks are torch-uncertainty's: convolutions without bias, no dropout. `resnet8` is
    the `resnet20` of He et al. (2016, "Deep Residual Learning for Image Recognition", section 4.2)
    with the first block of each stage alone. The Wide ResNets follow Zagoruyko and Komodakis (2016)
    with normalisation after the convolutions, as torch-uncertainty orders them.

    Args:
        name: one of `backbone_names`.
        num_classes: K, at least 1.
        input_shape: channels, height and width of one image.
        data: the data folder, where files of pretrained weights lie.

    Returns:
        a module in training mode, ``[B, C, H, W] -> logits [B, K]``.

    Raises:
        UserError: the name is unknown, or the network can't take images of that shape.
    """
    check_backbone_name(name)
    _check_sizes(name, num_classes, input_shape)
    if name.startswith(TIMM):
        network = _timm_model(name, num_classes, input_shape)
    else:
        network = _BUILDERS[name](input_shape[0], num_classes)
    _check_images(name, network, num_classes, input_shape)
    return network.train()


def _resnet(arch: int, channels: int, num_classes: int) -> nn.Module:
    from torch_uncertainty.models.classification.resnet import resnet

    network: nn.Module = resnet(
        in_channels=channels, num_classes=num_classes, arch=arch, style="cifar"
    )
    return network


def _resnet8(channels: int, num_classes: int) -> nn.Module:
    network = _resnet(20, channels, num_classes)
    for stage in ("layer1", "layer2", "layer3"):
        setattr(network, stage, getattr(network, stage)[:1])
    return network


def _wide_resnet(depth: int, width: int, channels: int, num_classes: int) -> nn.Module:
    # Its public function makes the 28x10 only; the class behind it takes any depth and width.
    from torch_uncertainty.models.classification.wideresnet.std import _WideResNet

    network: nn.Module = _WideResNet(
        depth=depth,
        widen_factor=width,
        in_channels=channels,
        num_classes=num_classes,
        conv_bias=False,
        dropout_rate=0.0,
        style="cifar",
    )
    return network


_BUILDERS: dict[str, Callable[[int, int], nn.Module]] = {
    "resnet8": _resnet8,
    "resnet20": lambda channels, classes: _resnet(20, channels, classes),
    "resnet18": lambda channels, classes: _resnet(18, channels, classes),
    "resnet50": lambda channels, classes: _resnet(50, channels, classes),
    "wrn16_4": lambda channels, classes: _wide_resnet(16, 4, channels, classes),
    "wrn28_8": lambda channels, classes: _wide_resnet(28, 8, channels, classes),
    "wrn28_10": lambda channels, classes: _wide_resnet(28, 10, channels, classes),
}


def _check_timm_name(name: str) -> None:
    import timm

    model = name.removeprefix(TIMM)
    if timm.is_model(model):
        return
    near = difflib.get_close_matches(model, timm.list_models(), n=3, cutoff=0.5)
    names = " or ".join(TIMM + close for close in near)
    hint = f"did you mean {names}?" if near else "timm.list_models() lists them"
    raise UserError(f"unknown backbone {name!r}: timm {timm.__version__} has no such model: {hint}")


def _timm_model(name: str, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    import timm

    _check_timm_name(name)
    model = name.removeprefix(TIMM)
    channels, height, width = input_shape
    config = timm.get_pretrained_cfg(model)
    # Architectures that are built for one size (transformers, mixers) must be told it.
    fixed = config is not None and config.fixed_input_size
    size = {"img_size": (height, width)} if fixed else {}
    try:
        network: nn.Module = timm.create_model(
            model, pretrained=False, num_classes=num_classes, in_chans=channels, **size
        )
    except Exception as error:
        raise UserError(_refusal(name, input_shape, error)) from error
    return network


def _check_sizes(name: str, num_classes: int, input_shape: tuple[int, ...]) -> None:
    if num_classes < 1:
        raise UserError(f"backbone {name}: num_classes must be at least 1, not {num_classes}")
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise UserError(
            f"backbone {name}: input_shape must be (channels, height, width), each at least 1, "
            f"not {tuple(input_shape)}"
        )


def _check_images(
    name: str, network: nn.Module, num_classes: int, input_shape: tuple[int, ...]
) -> None:
    """Try the network on blank images: one whose stages shrink to nothing fails or gives NaN."""
    import torch

    network.eval()
    try:
        with torch.no_grad():
            logits = network(torch.zeros(2, *input_shape))
    except Exception as error:
        raise UserError(_refusal(name, input_shape, error)) from error
    if logits.shape != (2, num_classes) or not logits.isfinite().all():
        found = f"gives {list(logits.shape)} instead of finite logits [2, {num_classes}]"
        raise UserError(_refusal(name, input_shape, found))


def _refusal(name: str, input_shape: tuple[int, ...], reason: object) -> str:
    shape = "x".join(str(size) for size in input_shape)
    line = " ".join(str(reason).split())
    return f"backbone {name} can't take images of {shape}: {line}"
