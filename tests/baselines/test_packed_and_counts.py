"""Packed-Ensembles against narrow networks on their own, and sizes against torch-uncertainty's."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn
from torch_uncertainty.layers import PackedConv2d, PackedLinear
from torch_uncertainty.models.classification.resnet import (
    batched_resnet,
    packed_resnet,
    resnet,
)
from torch_uncertainty.models.classification.wideresnet import (
    packed_wideresnet28x10,
)

from baselines.batch_ensemble import BatchEnsemble
from baselines.layers.batch_ensemble import RankOne
from baselines.packed_ensemble import PackedEnsemble
from bench.backbones import create_backbone
from bench.backbones.he_resnet import PadShortcut
from bench.recipe import Recipe

SHAPE = (3, 8, 8)


def count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def packed(name: str = "resnet8", classes: int = 5, shape=SHAPE, **options) -> nn.Module:
    torch.manual_seed(0)
    method = PackedEnsemble(**{"gamma": 1, **options})
    return method.build(create_backbone(name, classes, shape), classes)


# --- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", [18, 20, 50])
@pytest.mark.parametrize(("members", "alpha"), [(4, 2.0), (2, 1.5)])
def test_packed_residual_networks_have_the_library_size(arch, members, alpha):
    library = packed_resnet(3, 10, arch, members, alpha, gamma=1, style="cifar")
    ours = packed(f"resnet{arch}", 10, members=members, alpha=alpha)
    assert count(ours) == count(library)


def test_packed_wide_network_has_the_library_size():
    library = packed_wideresnet28x10(
        3, 10, num_estimators=4, alpha=2.0, gamma=1, conv_bias=False, style="cifar"
    )
    assert count(packed("wrn28_10", 10, members=4, alpha=2.0)) == count(library)


def test_batch_ensemble_has_the_library_size():
    library = batched_resnet(3, 10, 50, 4, conv_bias=False, style="cifar")
    ours = BatchEnsemble(members=4).build(create_backbone("resnet50", 10, SHAPE), 10)
    assert count(ours) == count(library)


@pytest.mark.parametrize("arch", [18, 20])
def test_batch_ensemble_has_the_library_size_and_factors_in_shortcuts(arch):
    library = batched_resnet(3, 10, arch, 4, conv_bias=False, style="cifar")
    plain = create_backbone(f"resnet{arch}", 10, SHAPE)
    # The library leaves the shortcuts of basic blocks alone.
    shortcuts = [m for n, m in plain.named_modules() if n.endswith("shortcut.0")]
    assert all(isinstance(m, nn.Conv2d) for m in shortcuts)
    factors = sum(4 * (m.in_channels + m.out_channels) for m in shortcuts)
    assert factors > 0
    assert count(BatchEnsemble(members=4).build(plain, 10)) == count(library) + factors


@pytest.mark.parametrize("name", ["resnet8", "resnet20", "resnet18", "resnet50", "wrn16_4"])
def test_batch_ensemble_converts_every_layer(name):
    plain = create_backbone(name, 10, SHAPE)
    wanted = {n for n, m in plain.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    assert any("shortcut" in n for n in wanted)
    model = BatchEnsemble(members=2).build(plain, 10)
    assert {n for n, m in model.backbone.named_modules() if isinstance(m, RankOne)} == wanted


@pytest.mark.parametrize("name", ["resnet8", "resnet20", "resnet18", "resnet50", "wrn16_4"])
def test_packing_converts_every_layer(name):
    plain = create_backbone(name, 10, SHAPE)
    convolutions = {n for n, m in plain.named_modules() if isinstance(m, nn.Conv2d)}
    model = PackedEnsemble(gamma=1).build(plain, 10)
    found = {n for n, m in model.backbone.named_modules() if isinstance(m, PackedConv2d)}
    assert found == convolutions
    assert isinstance(model.backbone.linear, PackedLinear)


# --- how they start ------------------------------------------------------------------------------


class Careful(nn.Module):
    """A network with a start of its own: other variances, a residual branch and a head at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 32, 3, padding=1, groups=2, bias=False)
        self.bn = nn.BatchNorm2d(32)
        self.fc1 = nn.Linear(32, 64)
        self.fc2 = nn.Linear(64, 5)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out")
        nn.init.constant_(self.conv1.bias, 0.3)
        nn.init.kaiming_normal_(self.conv2.weight, mode="fan_out")
        nn.init.zeros_(self.bn.weight)
        nn.init.trunc_normal_(self.fc1.weight, std=0.5)
        nn.init.zeros_(self.fc2.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv1(x).relu()
        x = (x + self.bn(self.conv2(x))).mean(dim=(2, 3))
        return self.fc2(self.fc1(x).relu())


def test_packed_layers_start_as_the_backbone_does():
    torch.manual_seed(0)
    plain = Careful()
    layers = {name: getattr(plain, name) for name in ("conv1", "conv2", "fc1", "fc2")}
    model = PackedEnsemble(members=4, alpha=2.0, gamma=1).build(copy.deepcopy(plain), 5).backbone
    assert torch.equal(model.bn.weight, torch.zeros(64))
    assert torch.equal(model.conv1.bias, torch.full((64,), 0.3))
    assert torch.equal(model.fc2.weight, torch.zeros(4, 5, 32))
    for name in ("conv1", "conv2", "fc1"):
        new, old = getattr(model, name).weight, layers[name].weight
        # Half as many inputs a member, but for the image.
        ratio = 1.0 if name == "conv1" else 2**0.5
        assert new.std().item() == pytest.approx(ratio * old.std().item(), rel=0.05), name
        assert set(new.flatten().tolist()) <= set((ratio * old).flatten().tolist())
    parts = model.fc1.weight.unbind()
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(parts, 2))


def test_packed_networks_start_as_the_library_does():
    """The backbones of torch-uncertainty have PyTorch's start, and its packed layers too."""
    library = packed_resnet(3, 10, 20, 4, 2.0, gamma=1, style="cifar")
    theirs = {n: p for n, p in library.named_parameters() if p.ndim > 1}
    ours = {n: p for n, p in packed("resnet20", 10).backbone.named_parameters() if p.ndim > 1}
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.std().item() == pytest.approx(theirs[name].std().item(), rel=0.12), name


# --- what a member computes ----------------------------------------------------------------------


def member_state(model: nn.Module, member: int, members: int) -> dict[str, torch.Tensor]:
    """The tensors of one member under the names of a plain narrow network."""
    state = {}
    for name, value in model.backbone.state_dict().items():
        own = value.chunk(members)[member] if value.ndim else value
        if name == "linear.weight":
            own = own[0]
        state[name.replace(".conv.", ".")] = own
    return state


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch", [1, 3, 7])
def test_each_member_is_a_narrow_network_of_its_own(training, batch):
    model = packed("resnet20", members=4, alpha=2.0).double()
    randomise_norms(model)
    inputs = torch.randn(batch, *SHAPE, dtype=torch.float64)
    narrow = resnet(3, 5, 20, width_multiplier=0.5, style="cifar").double()
    before = copy.deepcopy(model)
    logits = model.train(training)(inputs)
    assert logits.shape == (batch, 4, 5)
    for member in range(4):
        narrow.load_state_dict(member_state(before, member, 4))
        alone = narrow.train(training)(inputs)
        torch.testing.assert_close(logits[:, member], alone, rtol=1e-9, atol=1e-9)
        ours, theirs = member_state(model, member, 4), narrow.state_dict()
        for name in theirs:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-9, atol=1e-9)


def randomise_norms(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            module.weight.data.normal_()
            module.bias.data.normal_()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet20", {"members": 4}),
        ("resnet8", {"members": 4, "gamma": 2}),
        ("wrn16_4", {"members": 2, "alpha": 1.0}),
        ("timm:mobilenetv2_050", {"members": 4, "alpha": 4.0}),
        ("timm:resnet10t", {"members": 2}),
        ("he_resnet20", {"members": 4, "gamma": 2}),
    ],
)
def test_a_perturbed_member_leaves_the_others_alone_bit_for_bit(name, options):
    shape = (3, 32, 32)
    model = packed(name, shape=shape, **options).eval()
    inputs = torch.randn(4, *shape)
    with torch.no_grad():
        before = model(inputs)
        for parameter in model.parameters():
            own = parameter.chunk(options["members"])[0]
            own += 0.1 * torch.randn_like(own)
        after = model(inputs)
    assert not torch.equal(before[:, 0], after[:, 0])
    assert torch.equal(before[:, 1:], after[:, 1:])


def test_a_shortcut_of_zeros_pads_each_member_as_its_narrow_network_would():
    model = packed("he_resnet20", members=4, alpha=2.0)
    (shortcut,) = (
        module for name, module in model.named_modules() if name.endswith("layer2.0.shortcut")
    )
    x = torch.randn(2, 32, 6, 6)
    alone = PadShortcut(4, 4)
    wanted = torch.cat([alone(member) for member in x.chunk(4, dim=1)], dim=1)
    assert torch.equal(shortcut(x), wanted)


# --- α, γ, groups --------------------------------------------------------------------------------


def test_gamma_is_done_exactly():
    plain = packed(members=4, alpha=2.0)
    grouped = packed(members=4, alpha=2.0, gamma=2)
    for name, module in grouped.named_modules():
        if isinstance(module, PackedConv2d):
            stem = name == "backbone.conv1"
            assert module.conv.groups == (1 if stem else 8)
            halved = plain.get_submodule(name).weight.numel() // (1 if stem else 2)
            assert module.weight.numel() == halved


class Depthwise(nn.Module):
    def __init__(self, groups: int = 8):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.middle = nn.Conv2d(8, 16, 3, groups=groups, padding=1, padding_mode="circular")
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.middle(self.stem(x).relu()).relu().mean((2, 3)))


@pytest.mark.parametrize(("groups", "packed_groups"), [(8, 16), (2, 8)])
def test_grouped_convolutions_keep_their_groups_within_a_member(groups, packed_groups):
    model = PackedEnsemble(members=4, alpha=2.0, gamma=1).build(Depthwise(groups), 3)
    conv = model.backbone.middle.conv
    assert (conv.in_channels, conv.out_channels, conv.groups) == (16, 32, packed_groups)
    assert conv.padding_mode == "circular"
    assert model.backbone.stem.conv.groups == 1


class Dense(nn.Module):
    """A convolutional network that flattens its features, with a hidden linear layer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, stride=8), nn.BatchNorm2d(8), nn.ReLU())
        self.hidden = nn.Sequential(nn.Flatten(), nn.Linear(8 * 16, 12), nn.BatchNorm1d(12))
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.hidden(self.features(x)).relu())


def test_flattened_features_and_hidden_layers():
    model = PackedEnsemble(members=2, alpha=2.0, gamma=1).build(Dense(), 3)
    assert model.backbone.hidden[1].weight.shape == (2, 12, 128)
    assert model.backbone.hidden[2].num_features == 24
    assert model(torch.randn(3, 1, 32, 32)).shape == (3, 2, 3)


class ConvolutionalHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 1))

    def forward(self, x):
        return self.body(x).mean((2, 3))


def test_the_last_layer_may_be_a_convolution():
    model = PackedEnsemble(members=4, alpha=1.0).build(ConvolutionalHead(), 3)
    assert model.backbone.body[2].conv.out_channels == 12
    assert model(torch.randn(5, 1, 8, 8)).shape == (5, 4, 3)


class TwoStems(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Conv2d(1, 4, 3, padding=1)
        self.right = nn.Conv2d(1, 4, 1)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head((self.left(x) * self.right(x)).mean((2, 3)))


def test_every_layer_that_sees_the_image_sees_it_whole():
    model = PackedEnsemble(members=4).build(TwoStems(), 3)
    assert model.backbone.left.conv.groups == model.backbone.right.conv.groups == 1
    assert model(torch.randn(2, 1, 5, 5)).shape == (2, 4, 3)


def test_initial_weights_have_the_scale_of_a_member_fan_in():
    model = packed("resnet20", members=4, alpha=2.0)
    for module in model.modules():
        if isinstance(module, PackedConv2d | PackedLinear):
            weight = module.weight
            fan_in = weight[0].numel() if isinstance(module, PackedConv2d) else weight.shape[2]
            bound = 1 / math.sqrt(fan_in)
            assert weight.abs().max() <= bound
            if weight.numel() > 1000:
                assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_asking_for_support_changes_nothing():
    backbone = create_backbone("resnet8", 5, SHAPE)
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    random = torch.get_rng_state()
    assert PackedEnsemble().supports(backbone) is None
    assert torch.equal(random, torch.get_rng_state())
    after = backbone.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert backbone.training
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in backbone.modules()
    )


def test_the_built_network_is_in_training_mode_without_hooks():
    model = packed()
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_one_step_moves_every_member_of_every_parameter():
    method = PackedEnsemble(members=4)
    model = packed(members=4).train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser = torch.optim.SGD(method.parameter_groups(model, Recipe()), lr=0.1)
    method.loss(model, model(torch.randn(16, *SHAPE)), torch.randint(5, (16,))).backward()
    optimiser.step()
    for name, parameter in model.named_parameters():
        moved = (parameter - before[name]).abs().view(4, -1)
        assert (moved.amax(1) > 0).all(), name


def test_members_differ_from_the_start():
    logits = packed(members=4).eval()(torch.randn(2, *SHAPE))
    for one in range(4):
        for other in range(one):
            assert (logits[:, one] - logits[:, other]).abs().max() > 1e-3
