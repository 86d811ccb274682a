"""Transformers that can't be packed are refused, with the layer and the reason."""

import pytest
import timm
import torch
from timm.models import VisionTransformer
from torch import nn

from baselines.layers.packed_attention import PackedMultiheadAttention
from baselines.packed_ensemble import PackedEnsemble
from bench.backbones import create_backbone
from bench.errors import NotApplicable


def vit(width: int = 32, heads: int = 4, **options) -> VisionTransformer:
    return VisionTransformer(
        img_size=8,
        patch_size=4,
        num_classes=5,
        embed_dim=width,
        num_heads=heads,
        depth=1,
        **options,
    )


class Tokens(nn.Module):
    """Patches, one layer, the mean over patches, a head."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.layer = layer
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.layer(self.stem(x).flatten(2).mT).mean(1))


class Attending(nn.Module):
    def __init__(self, shift: float = 0.0, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 4, **options)
        self.shift = shift

    def forward(self, x):
        return self.attention(x, x, x + self.shift if self.shift else x)[0]


def batch_first(**options) -> nn.Module:
    return Tokens(Attending(batch_first=True, **options))


@pytest.mark.parametrize(
    ("network", "options", "reason"),
    [
        (
            lambda: vit(36, 3, global_pool="avg"),
            {"members": 4},
            r"'blocks.0.attn' .*α·H = 2·3 attention heads .* 4 equal groups",
        ),
        (
            lambda: vit(32, 4),
            {"members": 4, "gamma": 4},
            r"'blocks.0.attn' .*α·H = 2·4 attention heads .* 16 equal .*γ = 4",
        ),
        (lambda: vit(32, 4), {"alpha": 1.3}, r"α·C = 1.3·32 channels"),
        (lambda: vit(20, 4), {"members": 16}, r"α·C = 2·20 channels .* 16 equal groups"),
        (
            lambda: vit(32, 8, mlp_ratio=1.125),
            {"members": 16},
            r"'blocks.0.mlp.fc1' .*α·C = 2·36 channels",
        ),
        (lambda: vit(scale_attn_norm=True), {}, "'blocks.0.attn' .*a norm of its output"),
        (lambda: vit(norm_layer="rmsnorm"), {}, "RmsNorm.*has parameters"),
        (lambda: vit(attn_layer="diff"), {}, "DiffAttention.*has parameters"),
        (lambda: vit(global_pool="map"), {}, "AttentionPoolLatent.*has parameters"),
        (
            lambda: timm.create_model(
                "deit_tiny_distilled_patch16_224", img_size=32, num_classes=5
            ),
            {},
            "VisionTransformerDistilled.*has parameters",
        ),
        (lambda: Tokens(Attending()), {}, "attention with batch_first=False"),
        (lambda: batch_first(kdim=8, vdim=4), {}, "attention with kdim or vdim"),
        (lambda: batch_first(add_bias_kv=True), {}, "attention with add_bias_kv"),
        (lambda: batch_first(add_zero_attn=True), {}, "add_zero_attn"),
        (lambda: batch_first(shift=1.0), {}, "self-attention alone"),
        (lambda: Tokens(nn.LayerNorm([4, 8])), {}, "'layer' .*more than the features"),
    ],
)
def test_what_cannot_be_packed_is_refused_with_the_reason(network, options, reason):
    method = PackedEnsemble(**{"gamma": 1, **options})
    found = method.supports(network())
    assert found is not None
    assert "\n" not in found
    with pytest.raises(NotApplicable, match=reason):
        method.build(network(), 5)


class AcrossPixels(nn.Module):
    """Normalises over the width of the image, which no width of the network gives away."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.norm(self.stem(x)).mean((2, 3)))


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_a_norm_of_another_axis_is_refused_by_name(alpha):
    with pytest.raises(NotApplicable, match=r"'norm' \(LayerNorm\): the last axis"):
        PackedEnsemble(members=2, alpha=alpha, gamma=1).build(AcrossPixels(), 5)


def test_heads_of_the_usual_small_transformer_do_not_divide():
    reason = PackedEnsemble().supports(create_backbone("timm:vit_tiny_patch16_224", 5, (3, 32, 32)))
    assert reason is not None
    assert "α·H = 2·3 attention heads don't divide into 8 equal groups" in reason


def test_masks_are_refused():
    attention = PackedEnsemble(members=2, gamma=1).build(vit(), 5).backbone.blocks[0].attn
    tokens = torch.zeros(2, 4, 64)
    assert attention(tokens).shape == (2, 4, 64)
    with pytest.raises(ValueError, match="no mask"):
        attention(tokens, attn_mask=torch.zeros(4, 4))
    with pytest.raises(ValueError, match="no mask"):
        attention(tokens, is_causal=True)
    layer = PackedEnsemble(members=2, gamma=1).build(batch_first(), 5).backbone.layer.attention
    assert isinstance(layer, PackedMultiheadAttention)
    tokens = torch.zeros(2, 4, 16)
    assert layer(tokens, tokens, tokens)[0].shape == (2, 4, 16)
    for options in (
        {"attn_mask": torch.zeros(4, 4)},
        {"key_padding_mask": torch.zeros(2, 4, dtype=torch.bool)},
        {"is_causal": True},
    ):
        with pytest.raises(ValueError, match="no mask"):
            layer(tokens, tokens, tokens, **options)


@pytest.mark.parametrize("network", [vit, lambda: create_backbone("resnet8", 5, (3, 8, 8))])
def test_pretrained_networks_are_refused(network):
    plain = network()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    with pytest.raises(NotApplicable, match="packing changes the architecture"):
        PackedEnsemble().convert(plain, 5)
    assert all(torch.equal(value, before[name]) for name, value in plain.state_dict().items())


def test_asking_for_support_changes_nothing():
    plain = vit()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    random = torch.get_rng_state()
    assert PackedEnsemble(members=2).supports(plain) is None
    assert torch.equal(random, torch.get_rng_state())
    after = plain.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in plain.modules())
