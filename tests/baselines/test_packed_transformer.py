"""Members of packed transformers against narrow transformers in a plain loop; their isolation."""

import copy

import pytest
import torch
from packed_transformers import CLASSES, EVERYTHING, SHAPE, WITH_TOKEN, own, packed, randomised, vit
from torch import nn
from torch.nn import functional
from torchvision.models import vision_transformer as torchvision_vit

from baselines.packed_ensemble import PackedEnsemble


def member_tensors(tensors: dict[str, torch.Tensor], narrow: nn.Module, member: int, members: int):
    """One member's part of each tensor, under the names and in the shapes of a narrow network."""
    renamed = {
        name.replace("patch_embed.proj.conv.", "patch_embed.proj.")
        .replace("conv_proj.conv.", "conv_proj.")
        .replace("stem.conv.", "stem."): own(name, value, member, members)
        for name, value in tensors.items()
    }
    torch_names = {"qkv.": "in_proj_", "proj.": "out_proj."}
    for name in list(renamed):
        for ours, theirs in torch_names.items():
            head, found, tail = name.partition(f"attention.{ours}")
            if found:
                renamed[f"{head}attention.{theirs}{tail}"] = renamed.pop(name)
    shapes = {name: value.shape for name, value in narrow.named_parameters()}
    assert renamed.keys() == shapes.keys()
    return {name: renamed[name].reshape(shapes[name]) for name in shapes}


def check_against_narrow(model: nn.Module, narrow: nn.Module, members: int, shape=SHAPE) -> None:
    """Logits and gradients of every member, in float64, in both modes."""
    model, narrow = model.double(), narrow.double()
    inputs = torch.randn(3, *shape, dtype=torch.float64)
    target = torch.tensor([0, 3, 4])
    for training in (True, False):
        model.train(training).zero_grad()
        logits = model(inputs)
        assert logits.shape == (3, members, CLASSES)
        PackedEnsemble(members=members).loss(model, logits, target).backward()
        gradients = {name: p.grad for name, p in model.backbone.named_parameters()}
        for member in range(members):
            state = dict(model.backbone.named_parameters())
            narrow.load_state_dict(member_tensors(state, narrow, member, members))
            narrow.train(training).zero_grad()
            alone = narrow(inputs)
            functional.cross_entropy(alone, target).backward()
            torch.testing.assert_close(logits[:, member], alone, rtol=1e-9, atol=1e-9)
            ours = member_tensors(gradients, narrow, member, members)
            for name, parameter in narrow.named_parameters():
                torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-8, atol=1e-9)


# --- what a member computes ----------------------------------------------------------------------

KINDS = [
    {},
    {**WITH_TOKEN, "init_values": 0.3},
    {**WITH_TOKEN, "qk_norm": True, "reg_tokens": 2, "pre_norm": True},
    {**WITH_TOKEN, "qkv_bias": False, "no_embed_class": True, "fc_norm": True},
    {"pos_embed": "none", "scale_mlp_norm": True, "proj_bias": False},
]


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize(("members", "alpha"), [(4, 2.0), (2, 1.0), (3, 1.5)])
def test_each_member_is_a_narrow_transformer_of_its_own(options, members, alpha):
    part = alpha / members
    model = packed(members, alpha, width=48, heads=8, **options)
    check_against_narrow(model, vit(int(48 * part), int(8 * part), **options), members)


@pytest.mark.parametrize("options", KINDS)
def test_one_member_of_full_width_is_the_plain_network(options):
    check_against_narrow(packed(1, 1.0, **options), vit(**options), 1)


def block_diagonal(groups: torch.Tensor, parts: int = 1) -> torch.Tensor:
    """[γ, parts·out, in] -> [parts·γ·out, γ·in]: each part has all groups, each on its inputs."""
    return torch.cat([torch.block_diag(*part) for part in groups.chunk(parts, 1)])


def test_groups_of_a_member_are_blocks_of_its_weights():
    members, gamma = 2, 2
    model = packed(members, 2.0, gamma, width=32, heads=4, depth=1).double().eval()
    narrow = vit(32, 4, depth=1).double().eval()
    inputs = torch.randn(3, *SHAPE, dtype=torch.float64)
    tensors = dict(model.backbone.named_parameters())
    for member in range(members):
        state = {}
        for name, value in tensors.items():
            part = own(name, value, member, members)
            grouped = name.endswith("weight") and len(value) == members * gamma
            if grouped:
                part = block_diagonal(part, 3 if "qkv" in name else 1)
            elif name.endswith("qkv.bias"):
                part = part.unflatten(1, (3, -1)).transpose(0, 1)
            name = name.replace("patch_embed.proj.conv.", "patch_embed.proj.")
            state[name] = part.reshape(narrow.get_parameter(name).shape)
        narrow.load_state_dict(state)
        torch.testing.assert_close(model(inputs)[:, member], narrow(inputs), rtol=1e-9, atol=1e-9)


def test_attention_of_torchvision():
    def plain(width: int, heads: int) -> nn.Module:
        return torchvision_vit.VisionTransformer(8, 4, 2, heads, width, 2 * width, num_classes=5)

    torch.manual_seed(0)
    model = PackedEnsemble(members=4, gamma=1).build(plain(32, 4), CLASSES)
    check_against_narrow(randomised(model), plain(16, 2), 4)


class Encoder(nn.Module):
    """Torch's own encoder layer on patches."""

    def __init__(self, width: int, heads: int, norm_first: bool):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.attention_layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=norm_first
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.attention_layer(self.stem(x).flatten(2).mT).mean(1))


@pytest.mark.parametrize("norm_first", [True, False])
def test_torchs_own_encoder_layer(norm_first):
    torch.manual_seed(0)
    plain = Encoder(32, 4, norm_first)
    inputs = torch.randn(3, *SHAPE)
    model = PackedEnsemble(members=2, alpha=1.0, gamma=1).build(copy.deepcopy(plain), CLASSES)
    with torch.no_grad():
        # Its fused kernel for evaluation must not be taken: it knows nothing of members.
        torch.testing.assert_close(model.eval()(inputs), model.train()(inputs))
    narrow = Encoder(16, 2, norm_first).double()
    model = randomised(model).double()
    for member in range(2):
        state = {}
        for name, value in model.backbone.named_parameters():
            name = name.replace("stem.conv.", "stem.").replace("attn.qkv.", "attn.in_proj_")
            name = name.replace("attn.proj.", "attn.out_proj.")
            shape = narrow.get_parameter(name).shape
            state[name] = value.chunk(2)[member].reshape(shape)
        narrow.load_state_dict(state)
        alone = narrow.train()(inputs.double())
        torch.testing.assert_close(model(inputs.double())[:, member], alone, rtol=1e-9, atol=1e-9)


# --- members are isolated ------------------------------------------------------------------------


def logits_of(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    with torch.no_grad():
        return model(inputs)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("members", "gamma"), [(4, 1), (2, 2)])
def test_each_perturbed_parameter_leaves_other_members_alone_bit_for_bit(training, members, gamma):
    model = packed(members, 2.0, gamma, **EVERYTHING).train(training)
    inputs = torch.randn(6, *SHAPE)
    before = logits_of(model, inputs)
    for name, parameter in model.backbone.named_parameters():
        saved = parameter.detach().clone()
        with torch.no_grad():
            part = own(name, parameter, 0, members)
            part += torch.randn_like(part)
        after = logits_of(model, inputs)
        assert not torch.equal(before[:, 0], after[:, 0]), name
        assert torch.equal(before[:, 1:], after[:, 1:]), name
        with torch.no_grad():
            parameter.copy_(saved)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("members", [2, 4])
def test_a_member_of_nan_alone_answers_nan(training, members):
    model = packed(members, **EVERYTHING).train(training)
    inputs = torch.randn(6, *SHAPE)
    before = logits_of(model, inputs)
    others = [member for member in range(members) if member != 1]
    with torch.no_grad():
        for name, parameter in model.backbone.named_parameters():
            own(name, parameter, 1, members).fill_(torch.nan)
    after = logits_of(model, inputs)
    assert after[:, 1].isnan().all()
    assert torch.equal(before[:, others], after[:, others])


def test_a_members_loss_has_no_gradient_for_others():
    model = packed(4, **EVERYTHING).train()
    model(torch.randn(6, *SHAPE))[:, 2].square().sum().backward()
    for name, parameter in model.backbone.named_parameters():
        for member in range(4):
            reached = own(name, parameter.grad, member, 4).any()
            assert reached == (member == 2), name


def pooled_statistics(self, inputs):
    """What torch-uncertainty's packed layer norm does inside a network."""
    return functional.layer_norm(inputs, (self.width,), self.weight, self.bias, self.eps)


def mixed_projections(self, inputs, attn_mask=None, is_causal=False):
    """What its packed attention does: the whole width is cut into queries, keys and values."""
    batch, tokens, width = inputs.shape
    rows = inputs.reshape(batch * tokens, self.groups, -1).transpose(0, 1)
    parts = self.qkv(rows).transpose(0, 1).reshape(batch, tokens, 3, self.groups * self.heads, -1)
    heads = functional.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4).unbind(0))
    rows = heads.transpose(1, 2).reshape(batch * tokens, self.groups, -1).transpose(0, 1)
    return self.proj(rows).transpose(0, 1).reshape(batch, tokens, width)


@pytest.mark.parametrize(
    ("layer", "forward"),
    [("PackedLayerNorm", pooled_statistics), ("PackedAttention", mixed_projections)],
)
def test_layers_that_mix_members_would_be_found(monkeypatch, layer, forward):
    monkeypatch.setattr(f"baselines.layers.packed_attention.{layer}.forward", forward)
    reason = PackedEnsemble(gamma=1).supports(vit())
    assert reason is not None
    assert "members mix" in reason or "one slice of features for each member" in reason
