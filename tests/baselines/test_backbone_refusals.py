"""Networks that BatchEnsemble or Packed-Ensembles can't treat are refused, with the reason."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from baselines.batch_ensemble import BatchEnsemble
from baselines.packed_ensemble import PackedEnsemble
from bench.backbones import create_backbone
from bench.errors import NotApplicable

# --- BatchEnsemble


@pytest.mark.parametrize(
    ("network", "name"),
    [
        (lambda: nn.Sequential(nn.Conv2d(1, 4, 1), nn.MultiheadAttention(4, 2)), "'1'"),
        (lambda: nn.TransformerEncoderLayer(8, 2), "'self_attn'"),
        (lambda: nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 2)), "LSTM"),
        (lambda: nn.Sequential(nn.LazyLinear(3)), "'0'"),
        (lambda: nn.ReLU(), "no convolution"),
    ],
)
def test_what_cannot_be_converted_is_refused_by_name(network, name):
    method = BatchEnsemble()
    assert name in method.supports(network())
    with pytest.raises(NotApplicable, match=name):
        method.build(network(), 3)


class TimeFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3)

    def forward(self, x):
        return self.head(x.flatten(2).permute(2, 0, 1)).mean(0)


def test_rows_that_do_not_belong_to_samples_are_refused():
    model = BatchEnsemble(members=2).build(TimeFirst(), 3).eval()
    with pytest.raises(NotApplicable, match="9 rows for a batch of 10"):
        model(torch.randn(5, 3, 3, 3))


class Bypass(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return functional.linear(x, self.head.weight)


def test_a_weight_that_is_used_without_its_layer_is_refused():
    model = BatchEnsemble(members=2).build(Bypass(), 3)
    with pytest.raises(NotApplicable, match="without calling the layer"):
        model(torch.randn(5, 4))


# --- Packed-Ensembles


def with_layer(layer: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )


def with_pool(layer: nn.Module) -> nn.Module:
    return nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Concatenated(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.more = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.stem(x)
        return self.head(torch.cat([x, self.more(x)], 1).mean((2, 3)))


class FunctionalNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x).mean((2, 3))
        return self.head(x - x.mean(1, keepdim=True))


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.auxiliary = nn.Linear(8, 5)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.stem(x).mean((2, 3)))


class AsksAgain(nn.Module):
    """Reads from its layer what a packed one does not have."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.stem(x).mean((2, 3)).view(-1, self.head.in_features))


class BareScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8, 1, 1))

    def forward(self, x):
        return x * self.scale


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (lambda: with_layer(nn.GroupNorm(2, 8)), "'1' (GroupNorm)"),
        (lambda: with_layer(nn.LayerNorm(8)), "'1' (LayerNorm)"),
        (lambda: with_layer(nn.MultiheadAttention(8, 2)), "attention"),
        (lambda: with_layer(nn.PReLU(8)), "'1' (PReLU)"),
        (lambda: with_layer(BareScale()), "BareScale): has parameters"),
        (
            lambda: with_layer(nn.Sequential(nn.Conv2d(8, 12, 1, groups=4), nn.Conv2d(12, 8, 1))),
            "'1.0' (Conv2d): α·C = 2·12",
        ),
        (lambda: nn.Sequential(nn.Conv2d(3, 5, 8), nn.Flatten()), "does not give its logits"),
        (lambda: with_layer(nn.ChannelShuffle(2)), "members mix"),
        (lambda: with_layer(nn.Softmax(dim=1)), "members mix"),
        (Concatenated, "members mix"),
        (FunctionalNorm, "members mix"),
        (Unused, "'auxiliary' (Linear)"),
        (AsksAgain, "fails on a blank image"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), "no 2-D convolution"),
        (lambda: with_pool(nn.Conv2d(3, 5, 3)), "only layer"),
        (lambda: nn.Sequential(nn.Conv2d(3, 5, 8), nn.ReLU()), "vector of logits"),
        (
            lambda: create_backbone("timm:vit_tiny_patch16_224", 5, (3, 32, 32)),
            "attention heads don't divide into 4 equal groups",
        ),
        (
            lambda: create_backbone("timm:convnext_atto", 5, (3, 32, 32)),
            "LayerNorm2d): has parameters",
        ),
    ],
)
def test_what_cannot_be_packed_is_refused_with_the_reason(network, reason):
    method = PackedEnsemble(members=4, gamma=1)
    found = method.supports(network())
    assert found is not None
    assert reason in found
    assert "\n" not in found
    with pytest.raises(NotApplicable):
        method.build(network(), 5)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"members": 3}, r"'conv1' \(Conv2d\): α·C = 2·16 .* 3 equal"),
        ({"members": 4, "alpha": 1.3}, r"'conv1' .* α·C = 1.3·16"),
        ({"members": 4, "alpha": 2.0, "gamma": 3}, r"'layer1.0.conv1' .* 12 equal .* γ = 3"),
    ],
)
def test_a_width_that_does_not_divide_is_refused_by_name(options, reason):
    with pytest.raises(NotApplicable, match=reason):
        PackedEnsemble(**options).build(create_backbone("resnet8", 5, (3, 8, 8)), 5)
