"""Packed transformers: stochastic depth, sizes, costs, start, training, saving."""

import copy
import itertools

import pytest
import torch
from packed_transformers import CLASSES, EVERYTHING, SHAPE, WITH_TOKEN, own, packed, randomised, vit
from timm.layers import DropPath
from torch import nn

from baselines.layers.packed_attention import PackedDropPath
from baselines.packed_ensemble import PackedEnsemble
from bench.flops import count_flops
from bench.recipe import Recipe

# --- stochastic depth ----------------------------------------------------------------------------


def test_members_draw_their_own_stochastic_depth():
    layer = PackedDropPath(4, 0.25, rescale=True)
    ones = torch.ones(5000, 2, 8)
    torch.manual_seed(0)
    kept = layer(ones).view(5000, 2, 4, 2)
    assert kept.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert torch.equal(kept, kept[:, :1, :, :1].expand_as(kept))
    drawn = (kept[:, 0, :, 0] > 0).double()
    torch.testing.assert_close(drawn.mean(0), torch.full((4,), 0.75).double(), atol=0.03, rtol=0)
    correlation = torch.corrcoef(drawn.T) - torch.eye(4)
    assert correlation.abs().max() < 0.06
    assert torch.equal(layer.eval()(ones), ones)


@pytest.mark.parametrize("rescale", [True, False])
def test_stochastic_depth_of_one_member_is_timms(rescale):
    inputs = torch.randn(64, 3, 6)
    torch.manual_seed(1)
    wanted = DropPath(0.4, rescale)(inputs)
    torch.manual_seed(1)
    torch.testing.assert_close(PackedDropPath(1, 0.4, rescale)(inputs), wanted)


def test_blocks_of_a_packed_transformer_drop_by_member():
    model = packed(4, drop_path_rate=0.5)
    found = [module for module in model.modules() if isinstance(module, PackedDropPath)]
    assert [module.drop for module in found] == [0.5, 0.5]
    assert not any(isinstance(module, DropPath) for module in model.modules())


# --- sizes, costs, start -------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1, 2])
@pytest.mark.parametrize(("members", "alpha"), [(1, 1.0), (2, 2.0), (4, 2.0)])
def test_number_of_parameters(members, alpha, gamma):
    width = int(64 * alpha / members)
    model = PackedEnsemble(members=members, alpha=alpha, gamma=gamma).build(
        vit(64, 8, mlp_ratio=4.0), CLASSES
    )
    patches = 49 * width + 4 * width
    block = 12 * width**2 // gamma + 13 * width
    one = patches + 2 * block + 2 * width + CLASSES * (width + 1)
    assert sum(p.numel() for p in model.parameters()) == members * one


@pytest.mark.parametrize("training", [True, False])
def test_a_packed_transformer_costs_what_its_members_cost(training):
    def run(model: nn.Module, batch: torch.Tensor) -> None:
        logits = model.train(training)(batch)
        if training:
            logits.sum().backward()

    inputs = torch.zeros(2, *SHAPE)
    model = packed(4, 2.0)
    narrow = count_flops(vit(16, 2), inputs, run)
    assert narrow > 0
    assert count_flops(model, inputs, run) == 4 * narrow


def test_packed_layers_start_as_the_transformer_does():
    torch.manual_seed(0)
    plain = vit(64, 8, **WITH_TOKEN, init_values=0.1)
    with torch.no_grad():
        queries, keys, values = plain.blocks[0].attn.qkv.weight.chunk(3)
        queries.fill_(0.5)
        keys.mul_(10)
    before = copy.deepcopy(plain)
    model = PackedEnsemble(members=4, alpha=2.0, gamma=1).build(plain, CLASSES).backbone
    ratio = 2**0.5  # Half as many inputs a member.
    parts = model.blocks[0].attn.qkv.weight.chunk(3, dim=1)
    assert torch.equal(parts[0], torch.full((4, 32, 32), 0.5))
    for part, start in zip(parts[1:], (keys, values), strict=True):
        old = before.blocks[0].attn.qkv.weight.chunk(3)[1 if start is keys else 2]
        assert part.std().item() == pytest.approx(ratio * old.std().item(), rel=0.05)
        assert set(part.flatten().tolist()) <= set((ratio * old).flatten().tolist())
    assert not model.blocks[0].attn.qkv.bias.any()
    assert torch.equal(model.blocks[1].norm1.weight, torch.ones(128))
    assert torch.equal(model.blocks[1].ls1.gamma, torch.full((128,), 0.1))
    assert model.pos_embed.shape == (1, 5, 128)
    assert model.pos_embed.std().item() == pytest.approx(before.pos_embed.std().item(), rel=0.15)
    members = model.blocks[1].attn.proj.weight.unbind()
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(members, 2))


# --- training, saving, mixed precision -----------------------------------------------------------


@pytest.mark.parametrize("gamma", [1, 2])
def test_one_step_moves_every_member_of_every_parameter(gamma):
    method = PackedEnsemble(members=2, gamma=gamma)
    model = packed(2, 2.0, gamma, **WITH_TOKEN, init_values=0.1).train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser = torch.optim.SGD(method.parameter_groups(model, Recipe()), lr=0.1)
    method.loss(model, model(torch.randn(16, *SHAPE)), torch.randint(5, (16,))).backward()
    optimiser.step()
    for name, parameter in model.named_parameters():
        for member in range(2):
            moved = own(name, parameter - before[name], member, 2)
            assert moved.any(), name


def test_weights_go_into_another_model():
    model = packed(4, **EVERYTHING).eval()
    other = packed(4, **EVERYTHING).eval()
    randomised(other)
    inputs = torch.randn(3, *SHAPE)
    assert not torch.equal(model(inputs), other(inputs))
    other.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
    assert torch.equal(model(inputs), other(inputs))


def test_bfloat16():
    model = packed(4, **WITH_TOKEN, qk_norm=True, init_values=0.3).train()
    inputs = torch.randn(4, *SHAPE)
    exact = model(inputs)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(inputs)
    torch.testing.assert_close(logits.float(), exact, atol=0.1 * exact.std().item(), rtol=0.1)
    logits.float().square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all(), name


def test_the_built_transformer_is_in_training_mode_without_hooks():
    model = PackedEnsemble(members=4, gamma=1).build(vit(**EVERYTHING), CLASSES)
    for module in model.modules():
        assert module.training
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
