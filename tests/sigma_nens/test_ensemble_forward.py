"""The ensemble: member chunks, stand-alone members, inputs, state."""

import copy
import math
import pickle
from functools import partial
from typing import Any

import pytest
import torch
from sigma_networks import SmallResNet, shake, sum_of_losses
from torch import Tensor, nn

from sigma_nens import MemberEnsemble, MemberNorm, SigmaEnsemble, SigmaNorm, diversity_loss

M = 4
NORMS = {
    "batch": nn.BatchNorm2d,
    "group": partial(nn.GroupNorm, 2),
    "cumulative": partial(nn.BatchNorm2d, momentum=None),
}


def ensemble_of(norm: Any = nn.BatchNorm2d, **options: Any) -> SigmaEnsemble:
    ensemble = SigmaEnsemble(SmallResNet(norm).double(), M, **options)
    shake(ensemble)
    return ensemble


def images(batch: int = 5, seed: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 3, 6, 6, generator=generator, dtype=torch.float64)


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters()}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("head", ["member", "shared"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_chunks_of_members_give_the_same_gradients_and_statistics(
    norm: str, head: Any, size: int
) -> None:
    whole = ensemble_of(NORMS[norm], head=head)
    chunked = copy.deepcopy(whole)
    target = torch.tensor([0, 1, 2, 1, 0])
    for _ in range(2):
        sum_of_losses(whole(images()), target).backward()
        logits = []
        for start in range(0, M, size):
            part = chunked(images(), members=slice(start, min(start + size, M)))
            sum_of_losses(part, target).backward()
            logits.append(part)
        torch.testing.assert_close(torch.cat(logits, dim=1), whole(images()), rtol=0, atol=1e-12)
        chunked(images())  # the line above has moved the statistics of `whole` once more
    mine, theirs = gradients(chunked), gradients(whole)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-9, atol=1e-12, msg=name)
    for (name, value), other in zip(chunked.named_buffers(), whole.buffers(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-10, atol=1e-12, msg=name)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("head", ["member", "shared"])
@pytest.mark.parametrize("ungated", [True, False])
def test_member_is_a_plain_network_that_gives_its_logits(
    norm: str, head: Any, ungated: bool
) -> None:
    if ungated:
        ensemble: MemberEnsemble = MemberEnsemble(SmallResNet(NORMS[norm]).double(), M, head=head)
        shake(ensemble)
    else:
        ensemble = ensemble_of(NORMS[norm], head=head)
    logits = ensemble.eval()(images())
    assert logits.shape == (5, M, 3)
    original = SmallResNet(NORMS[norm])
    for t in range(M):
        network = ensemble.member(t)
        kinds = [type(m) for m in network.modules()]
        assert kinds == [type(m) for m in original.modules()]
        torch.testing.assert_close(network(images()), logits[:, t], rtol=0, atol=1e-12)
        shared = {p.data_ptr() for p in [*ensemble.parameters(), *ensemble.buffers()]}
        assert not shared & {p.data_ptr() for p in [*network.parameters(), *network.buffers()]}
        original.load_state_dict(network.state_dict())
    for t in (-1, M):
        with pytest.raises(IndexError, match=r"member must be in \[0, 4\)"):
            ensemble.member(t)


def test_member_trains_on_as_a_plain_network_in_train_mode() -> None:
    """In train mode a member's batch statistics are its own alone."""
    ensemble = ensemble_of(affine="full").train()
    networks = [ensemble.member(t) for t in range(M)]
    logits = ensemble(images())
    for t, network in enumerate(networks):
        torch.testing.assert_close(network(images()), logits[:, t], rtol=0, atol=1e-12)
        running = network.stem[1].running_mean
        torch.testing.assert_close(ensemble.module.stem[1].running_mean[t], running)


@pytest.mark.parametrize("head", ["member", "shared"])
@pytest.mark.parametrize("affine", ["none", "bias", "full"])
def test_gradients_reach_every_parameter(head: Any, affine: Any) -> None:
    ensemble = ensemble_of(head=head, affine=affine)
    sum_of_losses(ensemble(images()), torch.tensor([0, 1, 2, 1, 0])).backward()
    for name, parameter in ensemble.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
        if "gate_logits" in name or (name.startswith("module.fc") and head == "member"):
            assert (parameter.grad.flatten(1).abs().amax(dim=1) > 0).all(), name


def test_slices_are_checked() -> None:
    ensemble = ensemble_of().eval()
    full = ensemble(images())
    for chosen in (slice(None), slice(1, 3), slice(2, None), slice(None, 1), slice(1, 2, 1)):
        torch.testing.assert_close(ensemble(images(), members=chosen), full[:, chosen])
    for chosen in (slice(2, 2), slice(3, 1), slice(0, M + 1), slice(-1, None), slice(0, M, 2)):
        with pytest.raises(ValueError, match="members: "):
            ensemble(images(), members=chosen)
    with pytest.raises(TypeError, match="must be a slice"):
        ensemble(images(), members=[0, 1])


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("members", [1, 3])
def test_any_batch_and_any_number_of_members(batch: int, members: int) -> None:
    ensemble = SigmaEnsemble(SmallResNet().double(), members)
    for mode in (True, False):
        ensemble.train(mode)
        x = images(batch)
        logits = ensemble(x)
        assert logits.shape == (batch, members, 3)
        assert logits.isfinite().all()
    alone = torch.cat([ensemble(x[i : i + 1]) for i in range(batch)])
    torch.testing.assert_close(alone, logits, rtol=0, atol=1e-12)
    assert (ensemble.diversity_loss(0.2).item() == 0) == (members == 1)


def test_predict_proba_is_the_mean_of_softmaxes() -> None:
    ensemble = ensemble_of().eval()
    logits, found = ensemble(images()), ensemble.predict_proba(images())
    rows = [[[math.exp(v) for v in member] for member in sample] for sample in logits.tolist()]
    for sample, p in zip(rows, found.tolist(), strict=True):
        for k in range(3):
            expected = sum(member[k] / sum(member) for member in sample) / M
            assert p[k] == pytest.approx(expected, abs=1e-12)
    half = SigmaEnsemble(SmallResNet(partial(nn.GroupNorm, 2)), 2).to(torch.bfloat16)
    assert half.predict_proba(images().to(torch.bfloat16)).dtype == torch.float32


def test_parameter_groups_split_all_parameters() -> None:
    ensemble = ensemble_of()
    gates, others = ensemble.gate_parameters(), ensemble.other_parameters()
    assert len(gates) == len(ensemble.gate_layers()) == 6
    everything = {id(p) for p in ensemble.parameters()}
    assert {id(p) for p in gates} | {id(p) for p in others} == everything
    assert len(gates) + len(others) == len(everything)
    assert next(iter(ensemble.gate_layers())) == "stem.1"
    count = sum(p.numel() for p in SmallResNet().parameters())
    affine, heads = 6 * 6, (M - 1) * (6 * 3 + 3)  # bias and gate for each member, per feature
    assert sum(map(Tensor.numel, everything_of(ensemble))) == count + (M - 1) * 2 * affine + heads


def everything_of(module: nn.Module) -> list[Tensor]:
    return list(module.parameters())


def test_diversity_loss_covers_all_gated_layers() -> None:
    ensemble = ensemble_of()
    gates = [torch.sigmoid(p) for p in ensemble.gate_parameters()]
    for reduction in ("sum", "feature_mean", "layer_mean"):
        expected = 0.3 * diversity_loss(gates, 0.2, reduction)
        found = ensemble.diversity_loss(0.2, strength=0.3, reduction=reduction)
        torch.testing.assert_close(found, expected)
    found.backward()
    assert all(p.grad.abs().max() > 0 for p in ensemble.gate_parameters())
    with pytest.raises(ValueError, match="strength"):
        ensemble.diversity_loss(0.2, strength=-1.0)


def test_same_generator_same_ensemble_and_members_differ() -> None:
    def build() -> SigmaEnsemble:
        torch.manual_seed(0)
        net = SmallResNet().double()
        torch.manual_seed(torch.randint(1000, ()).item())
        return SigmaEnsemble(net, M, generator=torch.Generator().manual_seed(5))

    first, second = build(), build()
    for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    logits = first.eval()(images())
    assert all(not torch.allclose(logits[:, 0], logits[:, t]) for t in range(1, M))


def test_state_round_trip(tmp_path: Any) -> None:
    ensemble = ensemble_of(pretrained=True, affine="none").eval()
    names = set(ensemble.state_dict())
    assert not any("template" in name or "context" in name for name in names)
    assert "module.stem.1.gain" in names  # without it, gates drawn anew would not fit
    torch.save(ensemble.state_dict(), tmp_path / "state.pt")
    torch.manual_seed(99)
    other = SigmaEnsemble(SmallResNet().double(), M, pretrained=True, affine="none").eval()
    assert not torch.equal(other(images()), ensemble(images()))
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(images()), ensemble(images()))
    assert torch.equal(other.member(2)(images()), ensemble.member(2)(images()))


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies_have_a_context_of_their_own(how: str) -> None:
    ensemble = ensemble_of().eval()
    expected = ensemble(images())
    twin = copy.deepcopy(ensemble) if how == "deepcopy" else pickle.loads(pickle.dumps(ensemble))
    twin(images(2), members=slice(1, 2))
    assert torch.equal(ensemble.module(images().repeat_interleave(M, 0)), expected.flatten(0, 1))
    layers = [m for m in twin.modules() if hasattr(m, "context")]
    assert len({id(layer.context) for layer in layers}) == 1
    assert layers[0].context is not ensemble.module.stem[1].context
    assert torch.equal(twin(images()), expected)


def test_activation_checkpointing_recomputes_with_the_same_members() -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(SmallResNet):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x, use_reentrant=False)

    make = partial(nn.GroupNorm, 2)
    plain = ensemble_of(make)
    recomputing = SigmaEnsemble(Checkpointed(make).double(), M)
    recomputing.load_state_dict(plain.state_dict())
    for ensemble in (plain, recomputing):
        for start in range(0, M, 2):
            logits = ensemble(images(), members=slice(start, start + 2))
            sum_of_losses(logits, torch.tensor([0, 1, 2, 1, 0])).backward()
    mine, theirs = gradients(recomputing), gradients(plain)
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], msg=name)


@pytest.mark.parametrize(
    ("norm", "training"),
    [(nn.BatchNorm2d, True), (nn.BatchNorm2d, False), (partial(nn.GroupNorm, 2), True)],
)
def test_compiles_without_graph_breaks(norm: Any, training: bool) -> None:
    torch._dynamo.reset()
    ensemble = ensemble_of(norm).train(training)
    compiled = torch.compile(copy.deepcopy(ensemble), backend="eager", fullgraph=True)
    for batch, chosen in ((5, None), (5, slice(0, 2)), (3, slice(2, 4)), (5, None)):
        expected = ensemble(images(batch), members=chosen)
        torch.testing.assert_close(compiled(images(batch), members=chosen), expected)
    for value, other in zip(compiled.buffers(), ensemble.buffers(), strict=True):
        torch.testing.assert_close(value, other)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_layers_compile_alone(momentum: float | None) -> None:
    torch._dynamo.reset()
    for plain, shape in (
        (nn.BatchNorm2d(4, momentum=momentum), (6, 4, 3, 3)),
        (nn.LayerNorm(4), (6, 5, 4)),
        (nn.RMSNorm(4), (6, 5, 4)),
    ):
        layer = SigmaNorm(plain, 3)
        compiled = torch.compile(copy.deepcopy(layer), backend="eager", fullgraph=True)
        for _ in range(2):
            x = torch.randn(shape)
            torch.testing.assert_close(compiled(x), layer(x))
        for value, other in zip(compiled.buffers(), layer.buffers(), strict=True):
            torch.testing.assert_close(value, other)


def test_wrapper_takes_any_member_layer() -> None:
    film = MemberEnsemble(
        SmallResNet().double(), M, norm=lambda plain: MemberNorm(plain, M, std=0.2), head="shared"
    )
    assert not any(isinstance(m, SigmaNorm) for m in film.modules())
    logits = film.eval()(images())
    assert (logits.std(dim=1) > 0).all()
    with pytest.raises(ValueError, match=r"stem.1: made for 3 members, not 4"):
        MemberEnsemble(SmallResNet(), M, norm=lambda plain: MemberNorm(plain, 3))


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, partial(nn.GroupNorm, 2)])
def test_autocast(norm: Any) -> None:
    ensemble = SigmaEnsemble(SmallResNet(norm), M)
    x = images().float()
    expected = ensemble(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ensemble(x)
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    found.float().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == p.dtype for p in ensemble.parameters())
