"""BatchEnsemble against explicit weights W∘(s rᵀ) for every member."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from baselines.batch_ensemble import BatchEnsemble
from baselines.layers.batch_ensemble import BatchEnsembleNetwork, RankOne, Rows, fast_weights
from bench.recipe import Recipe

LAYERS = {
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), (4, 7, 5)),
    "conv2d circular, dilated": (
        lambda: nn.Conv2d(4, 6, 3, padding=2, dilation=2, padding_mode="circular"),
        (4, 7, 5),
    ),
    "conv2d grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding="same"), (4, 7, 5)),
    "conv2d depthwise without bias": (lambda: nn.Conv2d(4, 8, 3, groups=4, bias=False), (4, 7, 5)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3), (4, 7)),
    "conv3d": (lambda: nn.Conv3d(4, 6, 2), (4, 3, 4, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (4, 5, 3)),
    "linear": (lambda: nn.Linear(4, 6), (4,)),
    "linear on tokens": (lambda: nn.Linear(4, 6, bias=False), (5, 4)),
}


def member_layer(layer: nn.Module, factors: RankOne, member: int) -> nn.Module:
    """A plain layer whose weight is written out as W∘(s rᵀ)."""
    plain = copy.deepcopy(layer)
    r, s = factors.input_factor[member], factors.output_factor[member]
    weight = factors.layer.weight
    groups = getattr(layer, "groups", 1)
    full = torch.zeros_like(weight)
    transposed = isinstance(layer, nn.ConvTranspose2d)
    inner, outer = len(r) // groups, len(s) // groups
    for group in range(groups):
        for out in range(outer):
            for into in range(inner):
                scale = s[group * outer + out] * r[group * inner + into]
                at = (group * inner + into, out) if transposed else (group * outer + out, into)
                full[at] = weight[at] * scale
    del plain.weight
    plain.weight = full
    if factors.bias is not None:
        del plain.bias
        plain.bias = factors.bias[member]
    return plain


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_equals_explicit_member_weights(name):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make().double()
    members, batch = 3, 2
    rows = Rows(members)
    rank_one = RankOne(copy.deepcopy(layer), rows, init="normal", std=0.5)
    if rank_one.bias is not None:
        rank_one.bias.data.normal_()
    inputs = torch.randn(batch, *shape, dtype=torch.float64, requires_grad=True)
    parameters = [*rank_one.parameters(), inputs]

    found = rank_one(rows.all_members(inputs))
    plain = [member_layer(layer, rank_one, m) for m in range(members)]
    wanted = torch.stack([each(inputs) for each in plain], dim=1).flatten(0, 1)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)

    direction = torch.randn_like(found)
    gradients = torch.autograd.grad((found * direction).sum(), parameters)
    expected = torch.autograd.grad((wanted * direction).sum(), parameters)
    for gradient, reference in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-11, atol=1e-11)


class Windows(nn.Module):
    """Cuts each sample into rows of its own, as windowed attention does."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        batch = len(x)
        cut = x.flatten(2).transpose(1, 2).reshape(batch * 4, -1, 3)
        return self.head(self.inner(cut).reshape(batch, -1, 3).mean(1))


class Net(nn.Module):
    """Nested, with a shortcut and a layer used twice."""

    def __init__(self, norm: bool = True):
        super().__init__()
        self.stem = nn.Sequential(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False)))
        self.norm = nn.BatchNorm2d(8) if norm else nn.Identity()
        self.twice = nn.Conv2d(8, 8, 1)
        self.again = self.twice
        self.shortcut = nn.Conv2d(8, 8, 1, bias=False)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.norm(self.stem(x)).relu()
        x = self.again(self.twice(x).relu()) + self.shortcut(x)
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("network", [Windows, Net])
@pytest.mark.parametrize("batch", [1, 3, 7])
def test_a_network_equals_members_written_out(network, batch):
    torch.manual_seed(0)
    plain = network().double().eval()
    method = BatchEnsemble(members=3, init="normal", std=0.3)
    model = method.build(copy.deepcopy(plain), 5).eval()
    inputs = torch.randn(batch, 3, 4, 4, dtype=torch.float64)
    logits = model(inputs)
    for member in range(3):
        alone = copy.deepcopy(plain)
        for name, module in model.backbone.named_modules():
            if isinstance(module, RankOne):
                parent, _, child = name.rpartition(".")
                owner = alone.get_submodule(parent)
                setattr(owner, child, member_layer(getattr(owner, child), module, member))
        if hasattr(alone, "again"):
            alone.again = alone.twice
        torch.testing.assert_close(logits[:, member], alone(inputs), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("plain", [nn.Conv2d(3, 6, 1), nn.Conv2d(3, 6, 1, bias=False)])
def test_autocast_keeps_the_type_of_the_plain_layer(plain):
    layer = RankOne(copy.deepcopy(plain), Rows(2), init="normal", std=0.5)
    inputs = layer.rows.all_members(torch.randn(4, 3, 5, 5))
    exact = layer(inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = layer(inputs), plain(inputs)
    assert found.dtype == expected.dtype == torch.bfloat16
    limit = 4 * torch.finfo(torch.bfloat16).eps * exact.abs().max().item()
    torch.testing.assert_close(found.float(), exact, atol=limit, rtol=0)
    found.float().square().sum().backward()
    assert layer.input_factor.grad.dtype == layer.output_factor.grad.dtype == torch.float32


class PadsItself(nn.Module):
    """Asks its convolution for sizes, as networks with dynamic padding do."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        pad = self.conv.kernel_size[0] // self.conv.stride[0]
        x = self.conv(functional.pad(x, (pad, pad, pad, pad))).mean((2, 3))
        return self.head(x.view(-1, self.head.in_features))


def test_a_network_may_ask_a_layer_for_its_sizes():
    torch.manual_seed(0)
    plain = PadsItself().eval()
    inputs = torch.randn(4, 3, 4, 4)
    wanted = plain(inputs)
    model = BatchEnsemble(members=2, init="normal", std=0).build(plain, 5).eval()
    torch.testing.assert_close(model(inputs), wanted.unsqueeze(1).expand(4, 2, 5))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = model.backbone.conv.nonsense
    assert copy.deepcopy(model).backbone.conv.stride == (2, 2)


def test_every_layer_is_converted_and_a_shared_one_stays_shared():
    model = BatchEnsemble(members=2).build(Net(), 5)
    converted = {n for n, m in model.backbone.named_modules() if isinstance(m, RankOne)}
    assert converted == {"stem.0.0", "twice", "shortcut", "head"}
    assert model.backbone.again is model.backbone.twice
    assert isinstance(model.backbone.norm, nn.BatchNorm2d)


def test_the_root_itself_may_be_a_layer():
    model = BatchEnsemble(members=2, batch="repeat").build(nn.Linear(4, 3), 3)
    assert isinstance(model.backbone, RankOne)
    assert model(torch.randn(5, 4)).shape == (5, 2, 3)


@pytest.mark.parametrize("network", [Windows, Net])
def test_without_spread_pretrained_logits_are_kept(network):
    torch.manual_seed(0)
    plain = network().eval()
    inputs = torch.randn(4, 3, 4, 4)
    wanted = plain(inputs)
    model = BatchEnsemble(members=3, init="normal", std=0.0).build(plain, 5).eval()
    assert (model(inputs) - wanted[:, None]).abs().max() < 1e-6


def test_weights_and_bias_are_kept_and_each_member_gets_the_bias():
    plain = Net()
    weight, bias = plain.head.weight.clone(), plain.head.bias.clone()
    model = BatchEnsemble(members=4).build(plain, 5)
    assert torch.equal(model.backbone.head.layer.weight, weight)
    assert torch.equal(model.backbone.head.bias, bias.expand(4, -1))


def test_initial_factors():
    torch.manual_seed(0)
    layer = nn.Linear(4000, 10)
    signs = RankOne(layer, Rows(3), init="random_sign", std=0.5).input_factor
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert abs(signs.mean()) < 0.05
    normal = RankOne(layer, Rows(3), init="normal", std=0.25).input_factor
    assert abs(normal.mean() - 1) < 0.02
    assert abs(normal.std() - 0.25) < 0.02


def network(batch: str, members: int = 4) -> BatchEnsembleNetwork:
    torch.manual_seed(0)
    method = BatchEnsemble(members=members, init="normal", batch=batch)
    return method.build(Net(norm=False).double(), 5)


@pytest.mark.parametrize("batch", [1, 3, 7, 8])
def test_split_trains_one_member_a_sample(batch):
    model = network("split")
    inputs = torch.randn(batch, 3, 4, 4, dtype=torch.float64)
    everyone = model.eval()(inputs)
    assert everyone.shape == (batch, 4, 5)
    logits = model.train()(inputs)
    assert logits.shape == (batch, 1, 5)
    # The same weights give each sample one of the members' logits.
    members = (everyone - logits).abs().sum(2).argmin(1)
    chosen = everyone[torch.arange(batch), members]
    torch.testing.assert_close(logits[:, 0], chosen, rtol=1e-10, atol=1e-10)
    counts = members.bincount(minlength=4)
    assert counts.max() - counts.min() <= 1


def test_split_gives_every_member_its_share_over_many_small_batches():
    rows = Rows(4)
    torch.manual_seed(0)
    seen = torch.zeros(4)
    for _ in range(400):
        rows.one_member_each(torch.zeros(3, 1))
        seen += rows.assignment.sum(0)
    assert seen.sum() == 1200
    assert (seen - 300).abs().max() < 45  # binomial: standard deviation below 9


def test_split_is_repeatable_from_the_global_seed():
    model = network("split").train()
    inputs = torch.randn(7, 3, 4, 4, dtype=torch.float64)

    def logits(seed):
        torch.manual_seed(seed)
        return model(inputs)

    assert torch.equal(logits(3), logits(3))
    assert not torch.equal(logits(3), logits(4))


def test_repeat_trains_every_member_on_every_sample():
    model = network("repeat").train()
    inputs = torch.randn(3, 3, 4, 4, dtype=torch.float64)
    assert torch.equal(model(inputs), model.eval()(inputs))


@pytest.mark.parametrize("init", ["random_sign", "normal"])
def test_members_differ_from_the_start(init):
    torch.manual_seed(0)
    model = BatchEnsemble(members=4, init=init).build(Net(), 5).eval()
    logits = model(torch.randn(2, 3, 4, 4))
    for one in range(4):
        for other in range(one):
            assert (logits[:, one] - logits[:, other]).abs().max() > 1e-3


def test_factors_have_no_weight_decay_and_every_parameter_is_optimised_once():
    method = BatchEnsemble(members=2)
    model = method.build(Net(), 5)
    groups = method.parameter_groups(model, Recipe())
    listed = [p for group in groups for p in group["params"]]
    assert len({id(p) for p in listed}) == len(listed)
    assert {id(p) for p in listed} == {id(p) for p in model.parameters()}
    free = [group for group in groups if group.get("weight_decay") == 0.0]
    assert [id(p) for group in free for p in group["params"]] == [
        id(p) for p in fast_weights(model)
    ]
    assert {name.split(".")[-1] for name, p in model.named_parameters() if p.ndim == 2} >= {
        "input_factor",
        "output_factor",
    }


@pytest.mark.parametrize("batch", ["repeat", "split"])
def test_one_step_moves_every_member_of_every_parameter(batch):
    torch.manual_seed(0)
    method = BatchEnsemble(members=3, batch=batch)
    model = method.build(Net(), 5).train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser = torch.optim.SGD(method.parameter_groups(model, Recipe()), lr=0.1)
    method.loss(model, model(torch.randn(12, 3, 4, 4)), torch.randint(5, (12,))).backward()
    optimiser.step()
    for name, parameter in model.named_parameters():
        moved = (parameter - before[name]).abs().flatten(1 if parameter.ndim > 1 else 0)
        assert (moved.amax(-1) > 0).all(), name


def test_loss_is_the_sum_over_members():
    model = network("repeat").train()
    inputs = torch.randn(6, 3, 4, 4, dtype=torch.float64)
    target = torch.randint(5, (6,))
    logits = model(inputs)
    wanted = sum(functional.cross_entropy(logits[:, m], target) for m in range(4))
    torch.testing.assert_close(BatchEnsemble().loss(model, logits, target), wanted)
