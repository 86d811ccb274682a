"""Member layers against a loop over M plain layers, in float64."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import timm.layers
import torch
import torchvision.models.convnext
from torch import Tensor, nn

from sigma_nens import MemberNorm, SigmaNorm

M, B, C = 3, 4, 6
BATCH_KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(C), (C,)),
    "BatchNorm1d sequence": (lambda: nn.BatchNorm1d(C), (C, 5)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(C, eps=1e-3, momentum=0.3), (C, 5, 4)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(C), (C, 2, 3, 2)),
    "BatchNorm2d cumulative": (lambda: nn.BatchNorm2d(C, momentum=None), (C, 3, 3)),
    "BatchNorm2d untracked": (lambda: nn.BatchNorm2d(C, track_running_stats=False), (C, 3, 3)),
    "BatchNorm2d no affine": (lambda: nn.BatchNorm2d(C, affine=False), (C, 3, 3)),
    "BatchNormAct2d": (lambda: timm.layers.BatchNormAct2d(C, act_layer=nn.SiLU), (C, 3, 3)),
}
SAMPLE_KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "LayerNorm": (lambda: nn.LayerNorm(C), (5, C)),
    "LayerNorm flat": (lambda: nn.LayerNorm(C), (C,)),
    "LayerNorm of two dimensions": (lambda: nn.LayerNorm((5, C)), (2, 5, C)),
    "LayerNorm no bias": (lambda: nn.LayerNorm(C, bias=False), (5, C)),
    "LayerNorm no affine": (lambda: nn.LayerNorm(C, elementwise_affine=False), (5, C)),
    "GroupNorm": (lambda: nn.GroupNorm(2, C), (C, 3, 4)),
    "GroupNorm flat": (lambda: nn.GroupNorm(3, C), (C,)),
    "GroupNorm no affine": (lambda: nn.GroupNorm(2, C, affine=False), (C, 3, 4)),
    "RMSNorm": (lambda: nn.RMSNorm(C), (5, C)),
    "RMSNorm no affine": (lambda: nn.RMSNorm(C, elementwise_affine=False), (5, C)),
    "timm LayerNorm": (lambda: timm.layers.LayerNorm(C), (5, C)),
    "timm LayerNorm2d": (lambda: timm.layers.LayerNorm2d(C), (C, 3, 4)),
    "timm GroupNorm": (lambda: timm.layers.GroupNorm(C, 2), (C, 3, 4)),
    "timm GroupNorm1": (lambda: timm.layers.GroupNorm1(C), (C, 3, 4)),
    "torchvision LayerNorm2d": (
        lambda: torchvision.models.convnext.LayerNorm2d(C, eps=1e-6),
        (C, 3, 4),
    ),
}
KINDS = BATCH_KINDS | SAMPLE_KINDS


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


class Reference(nn.Module):
    """The same, one plain layer after the other, gates applied to their affine map."""

    def __init__(self, layer: MemberNorm, plain: nn.Module) -> None:
        super().__init__()
        self.gate_logits = self.gain = None
        if isinstance(layer, SigmaNorm):
            self.gate_logits = nn.Parameter(layer.gate_logits.detach().clone())
            self.gain = layer.gain.clone()
        self.channels_last = "LayerNorm2d" not in type(plain).__name__ and isinstance(
            plain, nn.LayerNorm | nn.RMSNorm
        )
        self.shape = tuple(getattr(plain, "normalized_shape", (C,)))
        self.norms = nn.ModuleList(copy.deepcopy(plain) for _ in range(layer.members))
        self.scales, self.shifts = nn.ParameterList(), nn.ParameterList()
        for t, norm in enumerate(self.norms):
            for name, target in (("weight", self.scales), ("bias", self.shifts)):
                mine, theirs = getattr(layer, name), getattr(norm, name, None)
                if theirs is not None:  # the plain layer computes the statistics alone
                    fill = torch.ones_like if name == "weight" else torch.zeros_like
                    setattr(norm, name, nn.Parameter(fill(theirs), requires_grad=False))
                if mine is not None:
                    target.append(nn.Parameter(mine[t].detach().clone()))

    def forward(self, x: Tensor) -> Tensor:
        """x: ``[B, M, ...]``."""
        rows = []
        for t, norm in enumerate(self.norms):
            act = getattr(norm, "act", None)
            if act is not None:
                norm.act = nn.Identity()
            y = norm(x[:, t])
            if self.gate_logits is not None:
                scale = (1 / (1 + torch.exp(-self.gate_logits[t]))) * self.gain[t]
                y = y * self._like(scale, y)
            if len(self.scales):
                y = y * self._like(self.scales[t], y)
            if len(self.shifts):
                y = y + self._like(self.shifts[t], y)
            if act is not None:
                norm.act, y = act, act(y)
            rows.append(y)
        return torch.stack(rows, dim=1)

    def _like(self, values: Tensor, y: Tensor) -> Tensor:
        if self.channels_last:
            return values.view(self.shape)
        return values.view(1, -1, *(1,) * (y.ndim - 2))


def shaken(plain: nn.Module) -> nn.Module:
    with torch.no_grad():
        for name, value in [*plain.named_parameters(), *plain.named_buffers()]:
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) + (0.5 if name != "bias" else -0.5))
    return plain


def scattered(layer: MemberNorm) -> MemberNorm:
    with torch.no_grad():
        for value in layer.parameters():
            value.add_(torch.randn_like(value) * 0.3)
        for name in ("running_mean", "running_var"):
            value = getattr(layer, name)
            if value is not None:
                value.add_(torch.rand_like(value))
    return layer


@pytest.fixture(params=["none", "bias", "full", "ungated none", "ungated bias", "ungated full"])
def make(request: pytest.FixtureRequest) -> Callable[[nn.Module], MemberNorm]:
    option: Any = request.param
    if option.startswith("ungated"):
        affine: Any = option.split()[1]
        return lambda plain: scattered(MemberNorm(plain, M, affine=affine))
    return lambda plain: scattered(SigmaNorm(plain, M, affine=option))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [True, False])
def test_layer_is_a_loop_over_plain_layers(
    kind: str, training: bool, make: Callable[[nn.Module], MemberNorm]
) -> None:
    build, shape = KINDS[kind]
    plain = shaken(build())
    layer = make(plain).train(training)
    reference = Reference(layer, plain).train(training)
    for t, norm in enumerate(reference.norms):
        for name in ("running_mean", "running_var"):
            if getattr(layer, name) is not None:
                getattr(norm, name).copy_(getattr(layer, name)[t])
    for _ in range(2):  # twice, so that running statistics count
        x = torch.randn(B, M, *shape, requires_grad=True)
        other = x.detach().clone().requires_grad_()
        found, expected = layer(x.flatten(0, 1)), reference(other)
        weights = torch.randn_like(expected)
        (found.unflatten(0, (B, M)) * weights).sum().backward()
        (expected * weights).sum().backward()
        torch.testing.assert_close(found.unflatten(0, (B, M)), expected, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(x.grad, other.grad, rtol=1e-9, atol=1e-9)
    pairs = [(layer.weight, reference.scales), (layer.bias, reference.shifts)]
    for mine, theirs in pairs:
        assert (mine is None) == (len(theirs) == 0)
        if isinstance(mine, nn.Parameter):
            grads = torch.stack([p.grad.flatten() for p in theirs])
            torch.testing.assert_close(mine.grad, grads, rtol=1e-9, atol=1e-9)
    if isinstance(layer, SigmaNorm):
        torch.testing.assert_close(
            layer.gate_logits.grad, reference.gate_logits.grad, rtol=1e-9, atol=1e-9
        )
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        value = getattr(layer, name)
        if value is not None:
            expected_statistic = torch.stack([getattr(n, name) for n in reference.norms])
            torch.testing.assert_close(value, expected_statistic, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_layer_of_a_member_computes_the_same(
    kind: str, make: Callable[[nn.Module], MemberNorm]
) -> None:
    build, shape = KINDS[kind]
    plain = shaken(build())
    layer = make(plain).eval()
    x = torch.randn(B, M, *shape)
    expected = layer(x.flatten(0, 1)).unflatten(0, (B, M))
    for t in range(M):
        folded = layer.plain(t)
        assert type(folded) is type(plain)
        assert not folded.training
        assert not any(p.is_meta for p in [*folded.parameters(), *folded.buffers()])
        torch.testing.assert_close(folded(x[:, t]), expected[:, t], rtol=1e-10, atol=1e-10)
        mine = {p.data_ptr() for p in [*layer.parameters(), *layer.buffers()]}
        assert not mine & {p.data_ptr() for p in [*folded.parameters(), *folded.buffers()]}
    with pytest.raises(IndexError):
        layer.plain(M)


@pytest.mark.parametrize("affine", ["none", "bias", "full"])
@pytest.mark.parametrize("kind", KINDS)
def test_pretrained_layer_keeps_its_function_while_gates_differ(kind: str, affine: Any) -> None:
    build, shape = KINDS[kind]
    plain = shaken(build()).eval()
    layer = SigmaNorm(plain, M, affine=affine, pretrained=True)
    x = torch.randn(B, *shape)
    expected = plain(x)
    found = layer(x.repeat_interleave(M, dim=0)).unflatten(0, (B, M))
    for t in range(M):
        torch.testing.assert_close(found[:, t], expected, rtol=1e-10, atol=1e-10)
    assert (layer.gates().std(dim=0) > 0).all()
    trained = {name for name, _ in layer.named_parameters(recurse=False)}
    has_bias = getattr(plain, "bias", None) is not None
    assert ("weight" in trained) == (affine == "full")
    assert ("bias" in trained) == (affine != "none" and has_bias)


def test_unit_gain_from_scratch_and_its_absence() -> None:
    plain = nn.LayerNorm(2000)
    layer = SigmaNorm(plain, 2, gate_init=1.0, gate_std=0.0)
    torch.testing.assert_close(layer.scale(0, 2), torch.ones(2, 2000))
    bare = SigmaNorm(plain, 2, unit_gain=False, gate_std=0.0)
    torch.testing.assert_close(bare.scale(0, 2), torch.full((2, 2000), 0.5))
    drawn = SigmaNorm(plain, 2, gate_init=0.5, gate_std=0.3)
    assert drawn.gate_logits.mean().item() == pytest.approx(0.5, abs=0.03)
    assert drawn.gate_logits.std().item() == pytest.approx(0.3, abs=0.02)
    with pytest.raises(ValueError, match="unit_gain=False"):
        SigmaNorm(plain, 2, unit_gain=False, pretrained=True)


def test_same_generator_same_gates() -> None:
    draws = [
        SigmaNorm(nn.LayerNorm(8), 2, generator=torch.Generator().manual_seed(7)).gate_logits
        for _ in range(2)
    ]
    assert torch.equal(*draws)


@pytest.mark.parametrize("kind", SAMPLE_KINDS)
def test_rows_of_one_sample_and_member_may_follow_each_other(kind: str) -> None:
    """Windows: ``[B * m * r, ...]`` is the same as normalising each window by its member."""
    build, shape = SAMPLE_KINDS[kind]
    layer = scattered(SigmaNorm(shaken(build()), M, affine="full"))
    layer.context.activate(0, M, B)
    x = torch.randn(B, M, 5, *shape)
    found = layer(x.flatten(0, 2)).view(x.shape)
    for window in range(5):
        expected = layer(x[:, :, window].flatten(0, 1)).unflatten(0, (B, M))
        torch.testing.assert_close(found[:, :, window], expected)


@pytest.mark.parametrize("kind", ["BatchNorm2d", "GroupNorm", "timm LayerNorm2d"])
def test_channels_last_memory_format_gives_the_same(kind: str) -> None:
    build, shape = KINDS[kind]
    layer = scattered(SigmaNorm(build(), M))
    x = torch.randn(B * M, *shape)
    expected = layer(x)
    found = layer(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, expected)


def test_member_is_untouched_by_another_bit_for_bit() -> None:
    for build, shape in KINDS.values():
        layer = scattered(SigmaNorm(build(), M)).eval()
        x = torch.randn(B, M, *shape)
        before = layer(x.flatten(0, 1)).unflatten(0, (B, M))
        x[:, 0] += 1.0
        with torch.no_grad():
            layer.gate_logits[0] += 1.0
        after = layer(x.flatten(0, 1)).unflatten(0, (B, M))
        assert torch.equal(before[:, 1:], after[:, 1:])
        assert not torch.equal(before[:, 0], after[:, 0])
