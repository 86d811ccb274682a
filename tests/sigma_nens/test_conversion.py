"""Converting whole networks: what is found, what is refused, what function they keep."""

import copy
from functools import partial
from typing import Any

import pytest
import timm
import timm.layers
import torch
import torchvision
from sigma_networks import SmallResNet, shake
from torch import Tensor, nn

from sigma_nens import (
    MemberEnsemble,
    MemberLinear,
    MemberNorm,
    SigmaEnsemble,
    SigmaNorm,
    find_norms,
)


def lived_in(net: nn.Module) -> nn.Module:
    """Give normalisation layers and head values that a trained network might have."""
    layers = [m for m in net.modules() if not list(m.children()) or hasattr(m, "running_mean")]
    for layer in layers:
        if "norm" in type(layer).__name__.lower():
            shake(layer)
    last = [m for m in layers if isinstance(m, nn.Linear)][-1:]
    for head in last:
        nn.init.normal_(head.weight, std=0.05)
    return net


def convert_and_compare(net: nn.Module, x: Tensor, members: int = 2) -> SigmaEnsemble:
    """Every member of a pretrained conversion gives the network's logits."""
    lived_in(net).eval()
    with torch.no_grad():
        expected = net(x)
        ensemble = SigmaEnsemble(net, members, pretrained=True)
        found = ensemble(x)
        assert not ensemble.training
        for t in range(members):
            assert (found[:, t] - expected).abs().max() < 1e-5
        for p in ensemble.gate_parameters():
            p.add_(torch.randn_like(p) * 0.3)
        moved = ensemble(x)
        assert (moved[:, 0] - moved[:, 1]).abs().max() > 1e-3
        torch.testing.assert_close(ensemble.member(1)(x), moved[:, 1], rtol=1e-4, atol=1e-5)
    return ensemble


@pytest.mark.parametrize(
    ("name", "size", "layers"),
    [
        ("torchvision:resnet18", 64, 20),
        ("torchvision:vit_b_16", 224, 25),
        ("torchvision:convnext_tiny", 32, 23),
        ("torchvision:swin_t", 32, 29),
        ("timm:convnext_atto", 32, 17),
        ("timm:regnetx_002", 32, 44),
        ("timm:efficientnet_b0", 32, 49),
    ],
)
def test_pretrained_networks_keep_their_function(name: str, size: int, layers: int) -> None:
    source, model = name.split(":")
    if source == "timm":
        net = timm.create_model(model, num_classes=5)
    else:
        net = torchvision.models.get_model(model, weights=None, num_classes=5)
    batch = 1 if size == 224 else 2
    ensemble = convert_and_compare(net, torch.randn(batch, 3, size, size))
    assert len(ensemble.gate_layers()) == layers


def test_swin_of_timm_keeps_its_function_over_windows() -> None:
    net = timm.models.swin_transformer.SwinTransformer(
        img_size=32, patch_size=2, window_size=4, embed_dim=12, depths=(2, 2), num_heads=(2, 2),
        num_classes=5,
    )  # fmt: skip
    convert_and_compare(net, torch.randn(2, 3, 32, 32), members=3)


def test_fused_dropout_and_activation_are_kept() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        timm.layers.BatchNormAct2d(4, act_layer=nn.PReLU, drop_layer=partial(nn.Dropout, 0.5)),
        nn.Flatten(),
        nn.Linear(4 * 36, 2),
    )
    ensemble = convert_and_compare(net, torch.randn(2, 3, 8, 8))
    layer = ensemble.gate_layers()["1"]
    assert isinstance(layer.act, nn.PReLU)
    assert isinstance(layer.drop, nn.Dropout)
    assert "1.act.weight" in ensemble.member(0).state_dict()
    training = ensemble.train()(torch.randn(2, 3, 8, 8))
    assert training.shape == (2, 2, 2)


class Encoder(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0, **options)
        nested = not options.get("norm_first", False)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.head(self.encoder(x, src_key_padding_mask=padding).mean(1))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}])
@pytest.mark.parametrize("padded", [True, False])
def test_inference_fast_path_does_not_bypass_gates(options: dict[str, Any], padded: bool) -> None:
    ensemble = SigmaEnsemble(shake(Encoder(**options)), 3)
    shake(ensemble)
    x = torch.randn(4, 5, 8)
    padding = torch.zeros(4, 5, dtype=torch.bool)
    padding[1, 3:] = True
    inputs: Any = (x, padding) if padded else x
    trained = ensemble.train()(inputs).detach()  # no dropout: the ordinary path
    with torch.no_grad():
        found = ensemble.eval()(inputs)
    assert (found[:, 0] - found[:, 1]).abs().max() > 1e-3
    if not padded:
        torch.testing.assert_close(found, trained, rtol=1e-4, atol=1e-5)
    for t in range(3):
        member = ensemble.member(t)
        layer = member.encoder.layers[0]
        original = Encoder(**options).encoder
        assert layer.activation_relu_or_gelu == original.layers[0].activation_relu_or_gelu > 0
        assert member.encoder.use_nested_tensor == original.use_nested_tensor
        args = inputs if padded else (inputs,)
        with torch.no_grad():  # the fast path
            fast = member(*args)
        with torch.enable_grad():  # the ordinary path
            slow = member(*args)
        valid = slice(None) if not padded else [0, 2, 3]  # nested tensors pad with zeros
        torch.testing.assert_close(slow[valid], found[valid, t], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(fast[valid], found[valid, t], rtol=1e-4, atol=1e-5)


def test_fast_path_would_have_bypassed_the_gates() -> None:
    """The trap is real: with the flag left alone, eval mode fails or forgets the members."""
    ensemble = SigmaEnsemble(shake(Encoder()), 2)
    shake(ensemble)
    for fast_path in ensemble._fast_paths:
        fast_path.restore(ensemble.module)
    with torch.no_grad(), pytest.raises((RuntimeError, TypeError, AttributeError, ValueError)):
        ensemble.eval()(torch.randn(4, 5, 8))


def test_root_may_be_a_norm_and_heads_may_be_shared() -> None:
    ensemble = SigmaEnsemble(nn.BatchNorm1d(5), 3, head="shared")
    assert isinstance(ensemble.module, SigmaNorm)
    assert ensemble(torch.randn(4, 5)).shape == (4, 3, 5)
    assert type(ensemble.member(0)) is nn.BatchNorm1d


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.ReLU())
        self.again = nn.ModuleList([self.block, nn.Identity(), self.block[1]])
        self.bn = nn.BatchNorm1d(6)
        self.bn_again = self.bn
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.again[0](self.block(x)))
        return self.fc(self.again[2](self.bn_again(x)))


def test_what_was_shared_stays_shared() -> None:
    net = Shared()
    convert_and_compare(net, torch.randn(4, 6), members=3)
    assert net.again[0] is net.block
    assert net.again[2] is net.block[1]
    assert isinstance(net.block[1], SigmaNorm)
    assert net.bn_again is net.bn
    ensemble = SigmaEnsemble(Shared(), 3)
    assert list(ensemble.gate_layers()) == ["block.1", "bn"]
    member = ensemble.member(0)
    assert member.again[2] is member.block[1]
    assert member.bn_again is member.bn


def test_nested_containers_and_odd_names() -> None:
    net = nn.Sequential(
        nn.Sequential(nn.Sequential(nn.LayerNorm(4))),
        nn.Sequential(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))),
    )
    ensemble = SigmaEnsemble(net, 2)
    assert list(ensemble.gate_layers()) == ["0.0.0", "1.0.0"]
    assert ensemble.head_name == "1.0.1"
    holder = nn.ModuleDict({"1": nn.LayerNorm(4), "norm": nn.Linear(4, 2)})
    assert [s.name for s in find_norms(holder)] == ["1"]
    MemberEnsemble(holder, 2)
    assert isinstance(holder["1"], MemberNorm)
    assert isinstance(holder["norm"], MemberLinear)


def test_attention_inside_is_left_whole() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.norm = nn.LayerNorm(8)
            self.fc = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.norm(self.attention(x, x, x)[0]).mean(1))

    ensemble = convert_and_compare(Net(), torch.randn(2, 5, 8))
    assert type(ensemble.module.attention.out_proj).__name__ == "NonDynamicallyQuantizableLinear"
    assert ensemble.head_name == "fc"


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, partial(nn.GroupNorm, 2)])
def test_layers_left_out_by_select_keep_members_apart(norm: Any) -> None:
    net = SmallResNet(norm).double()
    ensemble = SigmaEnsemble(net, 3, select=lambda name, layer: name.startswith("body"))
    assert all(name.startswith("body.") for name in ensemble.gate_layers())
    assert len(ensemble.gate_layers()) == 4
    stem = ensemble.module.stem[1]
    if norm is nn.BatchNorm2d:
        assert type(stem) is MemberNorm
        assert stem.running_mean.shape == (3, 6)
    else:
        assert type(stem) is nn.GroupNorm
    x = torch.randn(4, 3, 6, 6, dtype=torch.float64)
    whole = ensemble(x)
    parts = [ensemble(x, members=slice(t, t + 1)) for t in range(3)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)


def test_affine_free_layers_follow_the_network_type() -> None:
    net = nn.Sequential(
        nn.Linear(4, 6), nn.LayerNorm(6, elementwise_affine=False), nn.Linear(6, 2)
    ).double()
    ensemble = SigmaEnsemble(net, 2)
    assert {p.dtype for p in ensemble.parameters()} == {torch.float64}
    assert ensemble(torch.randn(3, 4, dtype=torch.float64)).dtype == torch.float64


def test_modes_set_on_purpose_are_kept() -> None:
    net = SmallResNet()
    net.stem.eval()
    ensemble = SigmaEnsemble(net, 2)
    assert ensemble.training
    assert not ensemble.module.stem[1].training
    assert ensemble.module.body[0][1].training


def test_parametrised_weights_are_fine() -> None:
    net = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 6)),
        nn.BatchNorm1d(6),
        nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6)),
        nn.Linear(6, 2),
    )
    ensemble = SigmaEnsemble(net, 2)
    assert list(ensemble.gate_layers()) == ["1"]
    ensemble(torch.randn(3, 4)).sum().backward()


def test_from_scratch_heads_differ_and_pretrained_heads_agree() -> None:
    net = SmallResNet()
    fresh = SigmaEnsemble(copy.deepcopy(net), 3).module.fc.weight
    kept = SigmaEnsemble(copy.deepcopy(net), 3, pretrained=True).module.fc.weight
    assert not torch.equal(fresh[0], fresh[1])
    assert all(torch.equal(kept[t], net.fc.weight) for t in range(3))
