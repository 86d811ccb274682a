"""What holds for every method that ships here."""

import copy
import subprocess
import sys

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional

from baselines.batch_ensemble import BatchEnsemble
from baselines.deep_ensemble import DeepEnsemble
from baselines.film_ensemble import FilmEnsemble
from baselines.packed_ensemble import PackedEnsemble
from baselines.sigma_nens import SigmaNEns
from baselines.single import Single
from bench.recipe import Recipe

CLASSES = (Single, DeepEnsemble, BatchEnsemble, PackedEnsemble, FilmEnsemble, SigmaNEns)
METHODS = [
    Single(),
    DeepEnsemble(members=3),
    BatchEnsemble(members=3, init="random_sign", batch="repeat"),
    BatchEnsemble(members=3, init="normal", batch="split"),
    PackedEnsemble(members=3, alpha=1.5),
    PackedEnsemble(members=3, alpha=3.0, gamma=2),
    FilmEnsemble(members=3, init="xavier", head="shared"),
    FilmEnsemble(members=3, init="normal", head="member"),
    SigmaNEns(members=3),
    SigmaNEns(members=3, affine="full", head="shared"),
]


def label(method):
    return f"{method.name}{METHODS.index(method)}"


every_method = pytest.mark.parametrize("method", METHODS, ids=label)


def members_of(method) -> int:
    """Members of one built network."""
    return 1 if method.independent else method.members


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12))
        self.body = nn.Conv2d(12, 12, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(12)
        self.shortcut = nn.Conv2d(12, 12, 1, bias=False)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.stem(x).relu()
        x = (self.norm(self.body(x)) + self.shortcut(x)).relu()
        return self.head(x.mean((2, 3)))


def build(method, seed=0) -> nn.Module:
    torch.manual_seed(seed)
    return method.build(Net(), 5)


@every_method
def test_a_step_moves_every_member_of_every_parameter(method):
    model = build(method).train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    groups = method.parameter_groups(model, Recipe())
    optimiser = torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.0)
    torch.manual_seed(1)
    inputs, target = torch.randn(24, 2, 6, 6), torch.randint(5, (24,))
    loss = method.loss(model, model(inputs), target)
    penalty = method.penalty(model)
    (loss if penalty is None else loss + penalty).backward()
    optimiser.step()
    for name, parameter in model.named_parameters():
        moved = (parameter - before[name]).abs().amax(tuple(range(1, parameter.ndim)))
        assert (moved > 0).all(), name


@every_method
def test_groups_hold_every_parameter_once(method):
    model = build(method)
    groups = method.parameter_groups(model, Recipe())
    listed = [id(p) for group in groups for p in group["params"]]
    assert sorted(listed) == sorted(id(p) for p in model.parameters())
    assert all(set(group) <= {"params", "lr", "weight_decay"} for group in groups)


@every_method
@pytest.mark.parametrize("batch", [1, 3, 7])
def test_evaluation_gives_all_members_for_any_batch(method, batch):
    model = build(method).eval()
    inputs = torch.randn(batch, 2, 6, 6)
    with torch.no_grad():
        logits = model(inputs)
        assert logits.shape == (batch, members_of(method), 5)
        assert torch.equal(logits, model(inputs))
        alone = torch.cat([model(sample[None]) for sample in inputs])
        torch.testing.assert_close(logits, alone, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model(inputs.flip(0)), logits.flip(0), rtol=1e-4, atol=1e-5)


@every_method
@pytest.mark.parametrize("batch", [2, 3, 7])
def test_training_takes_any_batch(method, batch):
    model = build(method).train()
    logits = model(torch.randn(batch, 2, 6, 6))
    assert logits.shape[::2] == (batch, 5)
    assert logits.shape[1] in (1, members_of(method))
    method.loss(model, logits, torch.randint(5, (batch,))).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@every_method
def test_members_differ_from_the_start(method):
    logits = build(method).eval()(torch.randn(4, 2, 6, 6))
    for one in range(logits.shape[1]):
        for other in range(one):
            assert (logits[:, one] - logits[:, other]).abs().max() > 1e-4


@every_method
def test_the_seed_decides_the_weights(method):
    def state(seed):
        return torch.cat([p.detach().flatten() for p in build(method, seed).parameters()])

    assert torch.equal(state(0), state(0))
    assert not torch.equal(state(0), state(1))


@every_method
def test_weights_survive_in_a_fresh_copy(method):
    model = build(method)
    model.train()(torch.randn(6, 2, 6, 6))  # running statistics that are no defaults
    inputs = torch.randn(3, 2, 6, 6)
    other = build(method, seed=1)
    other.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(inputs), other.eval()(inputs))


@every_method
def test_a_deep_copy_is_independent(method):
    model = build(method).eval()
    inputs = torch.randn(3, 2, 6, 6)
    wanted = model(inputs)
    other = copy.deepcopy(model)
    other(torch.randn(5, 2, 6, 6))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    assert torch.equal(model(inputs), wanted)


@every_method
def test_the_loss_is_a_sum_over_members(method):
    model = build(method).train()
    inputs, target = torch.randn(6, 2, 6, 6), torch.randint(5, (6,))
    logits = model(inputs)
    wanted = sum(functional.cross_entropy(own, target) for own in logits.unbind(1))
    torch.testing.assert_close(method.loss(model, logits, target), wanted)


@pytest.mark.parametrize("method", [m for m in METHODS if m.separable], ids=label)
@pytest.mark.parametrize("training", [True, False])
def test_separable_members_can_be_computed_apart(method, training):
    model = build(method).double().train(training)
    inputs = torch.randn(6, 2, 6, 6, dtype=torch.float64)
    apart = [copy.deepcopy(model)(inputs, members=slice(m, m + 1)) for m in range(3)]
    torch.testing.assert_close(torch.cat(apart, 1), model(inputs), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_method_says_what_it_is(cls):
    line = cls.__doc__.strip().splitlines()[0]
    assert line.endswith((".", ")."))
    assert all(field.description for field in cls.model_fields.values())
    assert cls().supports(Net()) is None


def test_listing_methods_imports_no_torch():
    modules = [cls.__module__ for cls in CLASSES]
    code = (
        f"import sys, {', '.join(modules)};"
        "heavy = {'torch', 'torch_uncertainty', 'sigma_nens', 'lightning'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (Single, {"members": 4}),
        (DeepEnsemble, {"members": 0}),
        (BatchEnsemble, {"init": "zeros"}),
        (BatchEnsemble, {"std": -1}),
        (BatchEnsemble, {"batch": "tile"}),
        (PackedEnsemble, {"alpha": 0}),
        (PackedEnsemble, {"gamma": 1.5}),
        (FilmEnsemble, {"gain": 0}),
        (SigmaNEns, {"temperature": 0}),
        (SigmaNEns, {"strength": -1e-3}),
        (SigmaNEns, {"reduction": "max"}),
        (SigmaNEns, {"temprature": 1}),
    ],
)
def test_options_that_make_no_sense_are_refused(cls, options):
    with pytest.raises(ValidationError):
        cls(**options)


def test_single_and_deep_ensemble_keep_the_backbone_as_it_is():
    for method in (Single(), DeepEnsemble(members=4)):
        plain = Net().eval()
        inputs = torch.randn(3, 2, 6, 6)
        wanted = plain(inputs)
        assert torch.equal(method.build(plain, 5)(inputs)[:, 0], wanted)
    assert DeepEnsemble.independent
    assert not any(cls.independent for cls in CLASSES if cls is not DeepEnsemble)
