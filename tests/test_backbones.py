"""Backbones give plain logits for small images; wrong names and sizes are refused in one line."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from bench.backbones import backbone_names, check_backbone_name, create_backbone
from bench.errors import UserError

SMALL = ("resnet8", "resnet20", "wrn16_4")


def count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("name", [*SMALL, "he_resnet20", "vit_pico"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
def test_plain_logits_for_small_images(name, shape):
    network = create_backbone(name, 7, shape)
    assert network.training
    logits = network(torch.randn(2, *shape))
    assert isinstance(logits, torch.Tensor)
    assert logits.shape == (2, 7)


def by_hand(blocks: int, channels: int, classes: int) -> int:
    """Parameters of a CIFAR ResNet of He et al. (2016): widths 16, 32, 64, projections."""
    total = 9 * channels * 16 + 2 * 16 + 64 * classes + classes
    inner = 16
    for width in (16, 32, 64):
        for _ in range(blocks):
            total += 9 * inner * width + 9 * width * width + 4 * width
            total += 0 if inner == width else inner * width + 2 * width
            inner = width
    return total


@pytest.mark.parametrize(("name", "blocks"), [("resnet8", 1), ("resnet20", 3)])
def test_residual_networks_have_the_published_size(name, blocks):
    assert count(create_backbone(name, 10, (3, 32, 32))) == by_hand(blocks, 3, 10)


@pytest.mark.parametrize(
    ("name", "low", "high"), [("resnet18", 11.1e6, 11.3e6), ("resnet50", 23.4e6, 23.6e6)]
)
def test_large_residual_networks(name, low, high):
    assert low < count(create_backbone(name, 10, (3, 8, 8))) < high


def test_wide_networks_have_the_asked_depth_and_width():
    network = create_backbone("wrn16_4", 10, (3, 32, 32))
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    main = [m for m in convolutions if m.kernel_size == (3, 3)]
    assert len(main) == 13  # depth 16: 13 main convolutions, 3 projections
    assert sorted({m.out_channels for m in main}) == [16, 64, 128, 256]


def test_no_bias_before_a_norm_and_no_dropout():
    for name in SMALL:
        network = create_backbone(name, 10, (3, 8, 8))
        assert all(m.bias is None for m in network.modules() if isinstance(m, nn.Conv2d))
        assert all(m.p == 0 for m in network.modules() if isinstance(m, nn.Dropout | nn.Dropout2d))


def test_weights_follow_the_global_seed():
    def weights(seed):
        torch.manual_seed(seed)
        return torch.cat(
            [p.flatten() for p in create_backbone("resnet8", 5, (1, 8, 8)).parameters()]
        )

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize("name", ["timm:resnet18", "timm:vit_tiny_patch16_224"])
def test_timm_models_take_channels_classes_and_size(name):
    network = create_backbone(name, 6, (1, 32, 48))
    assert network(torch.randn(2, 1, 32, 48)).shape == (2, 6)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet81", "resnet8"),
        ("wrn28-10", "wrn28_10"),
        ("timm:resnet19", "timm:resnet18"),
        ("timm:", "timm:resnet18"),
        ("he_resnet57", "he_resnet56"),
        ("", "known"),
    ],
)
def test_an_unknown_name_gives_the_nearest(name, near):
    import timm  # noqa: F401  (names of timm are looked up once it is there)

    with pytest.raises(UserError) as caught:
        check_backbone_name(name)
    assert near in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("timm:vit_tiny_patch16_224", (3, 8, 8)),  # not one patch
        ("timm:inception_v3", (3, 8, 8)),  # stages shrink to nothing
        ("resnet8", (3, 0, 8)),
    ],
)
def test_images_that_are_too_small_are_refused(name, shape):
    with pytest.raises(UserError, match=name) as caught:
        create_backbone(name, 5, shape)
    assert "\n" not in str(caught.value)


def test_no_classes_are_refused():
    with pytest.raises(UserError, match="num_classes"):
        create_backbone("resnet8", 0, (3, 8, 8))


def test_names_can_be_listed_and_checked_without_torch():
    code = (
        "import sys; from bench.backbones import backbone_names, check_backbone_name;"
        "[check_backbone_name(n) for n in backbone_names()];"
        "assert not {'torch', 'timm', 'torch_uncertainty'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_listed_name_is_described_in_one_line():
    for name, line in backbone_names().items():
        assert line, name
        assert "\n" not in line, name
