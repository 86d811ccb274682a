"""The two methods whose members live in the normalisation layers."""

import math

import pytest
import torch
from torch import nn

from baselines.film_ensemble import FilmEnsemble
from baselines.sigma_nens import SigmaNEns
from bench.errors import NotApplicable
from bench.recipe import Recipe
from sigma_nens import MemberLinear, MemberNorm, SigmaNorm


def net(norm=lambda: nn.BatchNorm2d(20)) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 20, 3), norm(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head()
    )


def head() -> nn.Module:
    return nn.Linear(20, 3)


def member_norms(model: nn.Module) -> list[MemberNorm]:
    return [module for module in model.modules() if isinstance(module, MemberNorm)]


# --- FiLM-Ensemble -------------------------------------------------------------------------------


def test_film_starts_as_the_authors_do():
    torch.manual_seed(0)
    model = FilmEnsemble(members=5, init="xavier", head="shared", gain=2.0).build(net(), 3)
    (norm,) = member_norms(model)
    bound = 2.0 * math.sqrt(6 / (5 + 20))
    for values in (norm.weight, norm.bias):
        assert values.shape == (5, 20)
        assert values.abs().max() <= bound
        assert values.mean().abs() < 0.3 * bound
        assert values.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.2)


def test_film_around_the_backbone():
    torch.manual_seed(0)
    plain = net()
    nn.init.constant_(plain[1].weight, 3.0)
    model = FilmEnsemble(members=5, init="normal", std=0.5).build(plain, 3)
    (norm,) = member_norms(model)
    assert norm.weight.mean().item() == pytest.approx(3.0, abs=0.2)
    assert norm.weight.std().item() == pytest.approx(0.5, rel=0.3)
    assert norm.bias.std().item() == pytest.approx(0.5, rel=0.3)


def test_film_without_spread_keeps_the_function():
    torch.manual_seed(0)
    plain = net().eval()
    inputs = torch.randn(3, 1, 8, 8)
    wanted = plain(inputs)
    model = FilmEnsemble(members=4, init="normal", std=0.0, head="shared").build(plain, 3).eval()
    assert (model(inputs) - wanted[:, None]).abs().max() < 1e-6


@pytest.mark.parametrize("method", [FilmEnsemble, SigmaNEns])
@pytest.mark.parametrize(("choice", "kind"), [("shared", nn.Linear), ("member", MemberLinear)])
def test_heads(method, choice, kind):
    model = method(members=2, head=choice).build(net(), 3)
    found = [m for m in model.modules() if isinstance(m, nn.Linear | MemberLinear)]
    assert [type(m) for m in found] == [kind]


@pytest.mark.parametrize(
    "norm", [lambda: nn.BatchNorm2d(20), lambda: nn.GroupNorm(4, 20), lambda: nn.Identity()]
)
@pytest.mark.parametrize("method", [FilmEnsemble(), SigmaNEns()])
def test_support_is_said_before_and_at_building(method, norm):
    plain = net(norm)
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    reason = method.supports(plain)
    after = plain.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    if isinstance(plain[1], nn.Identity):
        assert "no normalisation layer" in reason
        with pytest.raises(NotApplicable, match="no normalisation layer"):
            method.build(plain, 3)
    else:
        assert reason is None
        assert method.build(plain, 3)(torch.randn(2, 1, 8, 8)).shape == (2, 4, 3)


def test_a_layer_that_cannot_have_members_is_named():
    class OwnBatchNorm(nn.BatchNorm2d):
        pass

    for method in (FilmEnsemble(), SigmaNEns()):
        assert "1 (OwnBatchNorm)" in method.supports(net(lambda: OwnBatchNorm(20)))
        with pytest.raises(NotApplicable, match="OwnBatchNorm"):
            method.build(net(lambda: OwnBatchNorm(20)), 3)


def test_member_heads_need_a_linear_layer():
    plain = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 3, 8), nn.Flatten())
    assert "no nn.Linear" in SigmaNEns(head="member").supports(plain)
    assert SigmaNEns(head="shared").supports(plain) is None
    assert SigmaNEns(head="shared").build(plain, 3)(torch.randn(2, 1, 8, 8)).shape == (2, 4, 3)


# --- σN-Ens --------------------------------------------------------------------------------------


def test_gates_start_as_asked():
    torch.manual_seed(0)
    method = SigmaNEns(members=6, gate_init=-1.0, gate_std=0.25, affine="full", unit_gain=False)
    (norm,) = member_norms(method.build(net(), 3))
    assert isinstance(norm, SigmaNorm)
    assert norm.gate_logits.shape == (6, 20)
    assert norm.gate_logits.mean().item() == pytest.approx(-1.0, abs=0.1)
    assert norm.gate_logits.std().item() == pytest.approx(0.25, rel=0.2)
    assert norm.gain.unique().tolist() == [1.0]
    assert isinstance(norm.weight, nn.Parameter)
    bare = member_norms(SigmaNEns(affine="none", gate_init=-1.0).build(net(), 3))[0]
    assert bare.weight is None
    assert bare.bias is None
    assert bare.gain.unique().item() == pytest.approx(1 + math.e)


def test_gate_logits_learn_faster_and_without_decay():
    method = SigmaNEns(gate_learning_rate=7.0)
    model = method.build(net(), 3)
    others, gates = method.parameter_groups(model, Recipe(learning_rate=0.2, weight_decay=1e-3))
    assert set(others) == {"params"}
    assert gates["lr"] == pytest.approx(1.4)
    assert gates["weight_decay"] == 0.0
    assert [id(p) for p in gates["params"]] == [id(member_norms(model)[0].gate_logits)]


@pytest.mark.parametrize(("reduction", "share"), [("sum", 1), ("feature_mean", 1 / 20)])
def test_the_penalty_is_the_diversity_term(reduction, share):
    torch.manual_seed(0)
    method = SigmaNEns(members=3, temperature=0.7, strength=0.05, reduction=reduction)
    model = method.build(net(), 3).double()
    logits = member_norms(model)[0].gate_logits.detach().tolist()
    total = 0.0
    for feature in range(20):
        gates = [1 / (1 + math.exp(-row[feature])) for row in logits]
        normaliser = sum(math.exp(gate / 0.7) for gate in gates)
        total += sum(math.log(math.exp(gate / 0.7) / normaliser) for gate in gates)
    assert method.penalty(model).item() == pytest.approx(0.05 * total * share, rel=1e-10)


def test_the_penalty_reaches_the_gates_alone_and_can_be_left_out():
    method = SigmaNEns()
    model = method.build(net(), 3)
    method.penalty(model).backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None}
    assert {name.split(".")[-1] for name in reached} == {"gate_logits"}
    assert SigmaNEns(strength=0).penalty(model) is None


def test_another_network_is_refused():
    with pytest.raises(TypeError, match="Sequential"):
        SigmaNEns().penalty(net())
