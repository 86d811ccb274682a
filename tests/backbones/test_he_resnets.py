"""He et al.'s CIFAR ResNets against their definition, written out from the names of the weights."""

import pytest
import torch
from torch.nn import functional

from bench.backbones import create_backbone
from bench.backbones.he_resnet import HeResNet
from bench.backbones.images import patch_size


def norm(x, state, name):
    mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    scale = state[f"{name}.weight"] / (var + 1e-5).sqrt()
    shift = state[f"{name}.bias"] - mean * scale
    return x * scale[None, :, None, None] + shift[None, :, None, None]


def option_a(x, width):
    """Every second row and column; the old channels in the middle of new ones of zeros."""
    small = x[:, :, ::2, ::2]
    wide = torch.zeros(len(x), width, *small.shape[2:], dtype=x.dtype)
    start = (width - x.shape[1]) // 2
    wide[:, start : start + x.shape[1]] = small
    return wide


def by_definition(x, state, blocks):
    x = norm(functional.conv2d(x, state["conv1.weight"], padding=1), state, "bn1").clamp_min(0)
    for stage, width in enumerate((16, 32, 64), start=1):
        for block in range(blocks):
            at, halved = f"layer{stage}.{block}", stage > 1 and block == 0
            out = functional.conv2d(
                x, state[f"{at}.conv1.weight"], stride=2 if halved else 1, padding=1
            )
            out = norm(out, state, f"{at}.bn1").clamp_min(0)
            out = functional.conv2d(out, state[f"{at}.conv2.weight"], padding=1)
            out = norm(out, state, f"{at}.bn2")
            x = (out + (option_a(x, width) if halved else x)).clamp_min(0)
    return x.mean((2, 3)) @ state["linear.weight"].T + state["linear.bias"]


@pytest.mark.parametrize(("depth", "blocks"), [(20, 3), (56, 9)])
def test_the_network_is_the_published_one(depth, blocks):
    torch.manual_seed(0)
    network = create_backbone(f"he_resnet{depth}", 10, (3, 16, 16)).double().eval()
    for name, value in network.named_buffers():
        if "running" in name:
            value.uniform_(0.5, 1.5)
    for name, value in network.named_parameters():
        if ".bn" in name or name.startswith("bn"):
            torch.nn.init.uniform_(value, 0.3, 0.7)
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    wanted = by_definition(x, network.state_dict(), blocks)
    torch.testing.assert_close(network(x), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85)])
def test_sizes_are_those_of_the_paper(depth, millions):
    """He et al. (2016), table 6."""
    count = sum(p.numel() for p in HeResNet(depth, 3, 10).parameters())
    assert round(count / 1e6, 2) == millions


def test_a_depth_that_is_none_is_refused():
    with pytest.raises(ValueError, match="21"):
        HeResNet(21, 3, 10)


@pytest.mark.parametrize(
    ("sides", "patch"),
    [((32, 32), 4), ((28, 28), 4), ((64, 64), 8), ((224, 224), 32), ((8, 8), 1), ((31, 31), 1)],
)
def test_patches_divide_the_image(sides, patch):
    assert patch_size(*sides) == patch


def test_the_vision_transformer_has_the_published_size():
    """Lee, Lee and Song (2021), table 1: 2.7 M parameters at 32 pixels; heads for 8 members."""
    network = create_backbone("vit_tiny", 100, (3, 32, 32))
    assert 2.65e6 < sum(p.numel() for p in network.parameters()) < 2.75e6
    assert len(network.blocks) == 9
    assert network.patch_embed.num_patches == 64
    # α·H heads in M·γ groups, with α = γ = 2 and M = 8
    assert all(2 * block.attn.num_heads % (8 * 2) == 0 for block in network.blocks)
