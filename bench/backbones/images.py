"""Networks for small images that are trained from scratch: CIFAR ResNets and vision transformers.

The residual networks are torch-uncertainty's: convolutions without bias, no dropout.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from bench.backbones.he_resnet import HeResNet

PATCHES = 7
"""A vision transformer cuts each side into at least that many patches, where its pixels suffice."""


def own_network(name: str, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    """Make an untrained network.

    `resnet8` is the `resnet20` of He et al. (2016, "Deep Residual Learning for Image Recognition",
    section 4.2) with the first block of each stage alone. The Wide ResNets follow Zagoruyko and
    Komodakis (2016) with normalisation after the convolutions, as torch-uncertainty orders them.
    The names ``he_resnet`` and a depth stand for the networks as published; see `HeResNet`.

    Args:
        name: of a network without a prefix.
        num_classes: K.
        input_shape: channels, height and width of one image.
    """
    return _BUILDERS[name](input_shape, num_classes)


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


def patch_size(height: int, width: int) -> int:
    """Pixels along a patch: the most that divide both sides into `PATCHES` patches or more.

    4 for 28 and 32 pixels, 8 for 64, 32 for 224; 1 where no larger one does.
    """
    most = min(height, width) // PATCHES
    return next((p for p in range(most, 1, -1) if height % p == 0 and width % p == 0), 1)


def _transformer(
    width: int, depth: int, input_shape: tuple[int, ...], num_classes: int
) -> nn.Module:
    """A vision transformer for images that are too small and too few for the usual ones.

    `vit_tiny` has the sizes of Lee, Lee and Song (2021, "Vision Transformer for Small-Size
    Datasets", table 1: patches of 4 pixels for 32, depth 9, width 192, feed-forward width 384); its
    width is that of DeiT-Ti (Touvron et al., 2021). It has 8 heads where they have 12 and 3, so
    that a packed ensemble (α = 2, γ = 2) can deal them out to 2, 4 or 8 members. Normalisation
    comes before attention and feed-forward layers, a class token is read out, nothing is dropped.
    """
    from timm.models import VisionTransformer

    channels, height, breadth = input_shape
    network: nn.Module = VisionTransformer(
        img_size=(height, breadth),
        patch_size=patch_size(height, breadth),
        in_chans=channels,
        num_classes=num_classes,
        embed_dim=width,
        depth=depth,
        num_heads=8,
        mlp_ratio=2.0,
    )
    return network


_Builder = Callable[[tuple[int, ...], int], nn.Module]

_BUILDERS: dict[str, _Builder] = {
    "resnet8": lambda shape, classes: _resnet8(shape[0], classes),
    "resnet20": lambda shape, classes: _resnet(20, shape[0], classes),
    "resnet18": lambda shape, classes: _resnet(18, shape[0], classes),
    "resnet50": lambda shape, classes: _resnet(50, shape[0], classes),
    "wrn16_4": lambda shape, classes: _wide_resnet(16, 4, shape[0], classes),
    "wrn28_8": lambda shape, classes: _wide_resnet(28, 8, shape[0], classes),
    "wrn28_10": lambda shape, classes: _wide_resnet(28, 10, shape[0], classes),
    "he_resnet20": lambda shape, classes: HeResNet(20, shape[0], classes),
    "he_resnet32": lambda shape, classes: HeResNet(32, shape[0], classes),
    "he_resnet44": lambda shape, classes: HeResNet(44, shape[0], classes),
    "he_resnet56": lambda shape, classes: HeResNet(56, shape[0], classes),
    "vit_pico": lambda shape, classes: _transformer(64, 4, shape, classes),
    "vit_tiny": lambda shape, classes: _transformer(192, 9, shape, classes),
}
