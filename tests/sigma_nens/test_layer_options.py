"""Options of member layers and what they refuse; the member head."""

import pytest
import timm.layers
import torch
from torch import nn
from torch.nn import functional

from sigma_nens import MemberLinear, MemberNorm, SigmaNorm, UnsupportedModuleError

M, B, C = 3, 4, 6


@pytest.mark.parametrize(
    ("plain", "shape", "message"),
    [
        (nn.BatchNorm2d(C), (7, C, 2, 2), "7 rows, expected a multiple of 3 members"),
        (nn.BatchNorm2d(C), (6, C + 1, 2, 2), r"expected \(6,\) on the dimension 1"),
        (nn.BatchNorm2d(C), (6, C, 2), "expected 4 dimensions, got 3"),
        (nn.BatchNorm1d(C), (6, C, 2, 2), "expected 2 or 3 dimensions, got 4"),
        (nn.LayerNorm(C), (6, C + 1), r"expected \(6,\) on the last dimensions"),
        (nn.LayerNorm(C), (C,), r"expected \(6,\) on the last dimensions"),
        (nn.GroupNorm(2, C), (6, C + 2, 3), r"expected \(6,\) on the dimension 1"),
        (nn.LayerNorm(C), (0, C), "0 rows"),
    ],
)
def test_inputs_that_cannot_be_a_folded_batch_are_refused(
    plain: nn.Module, shape: tuple[int, ...], message: str
) -> None:
    layer = MemberNorm(plain, M)
    layer.label = "body.norm"
    with pytest.raises(ValueError, match=f"body.norm: .*{message}"):
        layer(torch.zeros(shape))


def test_windows_are_refused_by_a_batchnorm() -> None:
    layer = MemberNorm(nn.BatchNorm1d(C), M)
    layer.context.activate(0, M, B)
    with pytest.raises(ValueError, match="expected 4 samples × 3 members"):
        layer(torch.zeros(B * M * 2, C))


def test_one_value_a_channel_is_refused_in_training_as_by_the_plain_layer() -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        MemberNorm(nn.BatchNorm1d(C), M)(torch.randn(M, C))


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="affine must be one of none, bias, full"):
        MemberNorm(nn.LayerNorm(C), M, affine="half")  # type: ignore[arg-type]
    for members in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="members must be an integer"):
            MemberNorm(nn.LayerNorm(C), members)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="gate_std"):
        SigmaNorm(nn.LayerNorm(C), M, gate_std=-1.0)
    with pytest.raises(ValueError, match="too far below 0"):
        SigmaNorm(nn.LayerNorm(C), M, gate_init=-1000.0)
    with pytest.raises(UnsupportedModuleError, match="Linear is no normalisation layer"):
        MemberNorm(nn.Linear(2, 2), M)


def test_film_spread_gives_members_of_their_own() -> None:
    layer = MemberNorm(nn.BatchNorm2d(500), 4, std=0.2)
    assert layer.weight.std().item() == pytest.approx(0.2, rel=0.1)
    assert layer.weight.mean().item() == pytest.approx(1.0, abs=0.02)
    assert layer.bias.std().item() == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("plain", "shape"),
    [
        (nn.BatchNorm2d(C), (C, 3, 3)),
        (nn.GroupNorm(2, C), (C, 3, 3)),
        (nn.LayerNorm(C), (5, C)),
        (nn.RMSNorm(C), (5, C)),
        (timm.layers.LayerNorm2d(C), (C, 3, 3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_autocast_keeps_the_type_and_precision_of_the_plain_layer(
    plain: nn.Module, shape: tuple[int, ...], narrow: torch.dtype
) -> None:
    layer = SigmaNorm(plain, M, affine="full")
    x = (2 * torch.randn(B * M, *shape) + 1).to(narrow)
    exact = layer(x.float())
    with torch.autocast("cpu", dtype=narrow):
        found, expected = layer(x), plain(x)
    assert found.dtype == expected.dtype
    # Not more than one rounding of the result and one on the way.
    limit = 2 * torch.finfo(narrow).eps * exact.abs().max().item()
    torch.testing.assert_close(found.float(), exact, atol=limit, rtol=0)
    found.float().square().sum().backward()
    assert layer.gate_logits.grad.isfinite().all()
    assert layer.gate_logits.grad.dtype == torch.float32


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("middle", [(), (5,), (2, 3)])
def test_member_linear_is_a_loop(bias: bool, middle: tuple[int, ...]) -> None:
    plain = nn.Linear(7, 4, bias=bias).double()
    head = MemberLinear(plain, M)
    x = torch.randn(B, M, *middle, 7, dtype=torch.float64)
    for start, stop in ((0, M), (1, 2), (1, 3)):
        head.context.activate(start, stop, B)
        chunk = x[:, start:stop]
        found = head(chunk.flatten(0, 1)).unflatten(0, (B, stop - start))
        for t in range(start, stop):
            expected = functional.linear(
                x[:, t], head.weight[t], None if head.bias is None else head.bias[t]
            )
            torch.testing.assert_close(found[:, t - start], expected)
            torch.testing.assert_close(head.plain(t)(x[:, t]), expected)


def test_member_linear_draws_each_member_and_keeps_pretrained_values() -> None:
    plain = nn.Linear(400, 50)
    head = MemberLinear(plain, M)
    assert not torch.equal(head.weight[0], head.weight[1])
    assert head.weight.abs().max() <= 1 / 20
    assert head.weight.std().item() == pytest.approx(1 / 20 / 3**0.5, rel=0.05)
    kept = MemberLinear(plain, M, pretrained=True)
    assert all(torch.equal(kept.weight[t], plain.weight) for t in range(M))
