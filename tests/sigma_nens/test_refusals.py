"""What can't be converted is refused by its dotted name, and left as it was."""

from typing import Any

import pytest
import timm.layers
import timm.models.nfnet
import torch
import torchvision
from sigma_networks import SmallResNet
from torch import Tensor, nn

from sigma_nens import SigmaEnsemble, SigmaNorm, UnsupportedModuleError, find_head, find_norms


def within(module: nn.Module) -> nn.Module:
    """A network with the module at ``body.1``, after a layer that can be treated."""
    return nn.ModuleDict({"body": nn.Sequential(nn.LayerNorm(8), module), "fc": nn.Linear(8, 2)})


class MyBatchNorm(nn.BatchNorm2d):
    pass


class LlamaRMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))


REFUSED: dict[str, tuple[Any, str]] = {
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(8), "pools all members' statistics"),
    "FrozenBatchNorm2d": (lambda: torchvision.ops.FrozenBatchNorm2d(8), "unknown type"),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(8), "unknown type"),
    "MyBatchNorm": (lambda: MyBatchNorm(8), "unknown type"),
    "LlamaRMSNorm": (LlamaRMSNorm, "unknown type"),
    "LazyBatchNorm2d": (nn.LazyBatchNorm2d, "run one batch"),
    "GroupNormAct": (lambda: timm.layers.GroupNormAct(8, 2), "unknown type"),
    "LayerNormAct2d": (lambda: timm.layers.LayerNormAct2d(8), "unknown type"),
    "FrozenBatchNormAct2d": (lambda: timm.layers.FrozenBatchNormAct2d(8), "unknown type"),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(8, 2), "batch_first=True"),
    "LSTM": (lambda: nn.LSTM(8, 8), "batch_first=True"),
    "ParametrizedLayerNorm": (
        lambda: nn.utils.parametrizations.weight_norm(nn.LayerNorm((8, 8))),
        "unknown type",
    ),
    "SigmaNorm": (lambda: SigmaNorm(nn.LayerNorm(8), 2), "members already"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_modules_that_cannot_be_treated_are_refused_by_name_and_left_alone(name: str) -> None:
    build, reason = REFUSED[name]
    net = within(build())
    before = [type(m) for m in net.modules()]
    with pytest.raises(UnsupportedModuleError, match=rf"body\.1 \({name}\): .*{reason}"):
        SigmaEnsemble(net, 2)
    assert [type(m) for m in net.modules()] == before


def test_transformer_layer_with_the_batch_on_dimension_one_is_refused() -> None:
    net = within(nn.TransformerEncoderLayer(8, 2))
    with pytest.raises(UnsupportedModuleError, match=r"body\.1\.self_attn \(MultiheadAttention\)"):
        SigmaEnsemble(net, 2)


def test_hooks_are_not_lost_silently() -> None:
    norm, head = SmallResNet(), SmallResNet()
    norm.stem[1].register_forward_hook(lambda *_: None)
    head.fc.register_forward_pre_hook(lambda *_: None)
    for net, name in ((norm, r"stem\.1 \(BatchNorm2d\)"), (head, r"fc \(Linear\)")):
        with pytest.raises(UnsupportedModuleError, match=f"{name}: it has hooks"):
            SigmaEnsemble(net, 2)


def test_unknown_layers_may_be_shared_if_they_keep_samples_apart() -> None:
    def known(name: str, layer: nn.Module) -> bool:
        return type(layer) is nn.LayerNorm

    for build in (LlamaRMSNorm, lambda: torchvision.ops.FrozenBatchNorm2d(8)):
        net = within(build())
        assert list(SigmaEnsemble(net, 2, select=known).gate_layers()) == ["body.0"]
    for build in (
        lambda: nn.SyncBatchNorm(8),
        lambda: MyBatchNorm(8),
        lambda: nn.InstanceNorm2d(8, track_running_stats=True),
    ):
        with pytest.raises(UnsupportedModuleError, match=r"body\.1"):
            SigmaEnsemble(within(build()), 2, select=known)


def test_nothing_to_convert_is_an_error() -> None:
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="no normalisation layer: nothing to convert"):
        SigmaEnsemble(plain, 2)
    with pytest.raises(ValueError, match="no normalisation layer that is selected"):
        SigmaEnsemble(SmallResNet(), 2, select=lambda name, layer: False)


def test_a_block_without_normalisation_is_no_normalisation_layer() -> None:
    block = timm.models.nfnet.NormFreeBlock(8, 8, skipinit=True, act_layer=nn.ReLU)
    assert any(True for _ in block.parameters(recurse=False))
    with pytest.raises(UnsupportedModuleError, match="NormFreeBlock has no normalisation layer"):
        SigmaEnsemble(block, 2, head="shared")
    both = nn.Sequential(block, nn.BatchNorm2d(8))
    assert [site.name for site in find_norms(both)] == ["1"]


def test_the_head_is_found_or_refused() -> None:
    net = SmallResNet()
    assert find_head(net, num_classes=3).name == "fc"
    with pytest.raises(UnsupportedModuleError, match=r"fc: the head has 3 outputs for 7 classes"):
        SigmaEnsemble(net, 2, num_classes=7)
    with pytest.raises(UnsupportedModuleError, match=r"'stem' is no nn.Linear.*'fc' \(6 → 3\)"):
        SigmaEnsemble(net, 2, head_name="stem")
    with pytest.raises(ValueError, match="has no use with head='shared'"):
        SigmaEnsemble(net, 2, head="shared", head_name="fc")
    with pytest.raises(ValueError, match="head must be one of member, shared"):
        SigmaEnsemble(net, 2, head="each")  # type: ignore[arg-type]
    without = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten())
    with pytest.raises(UnsupportedModuleError, match=r"no nn\.Linear to be the head"):
        SigmaEnsemble(without, 2)
    assert SigmaEnsemble(without, 2, head="shared")(torch.randn(2, 3, 1, 1)).shape == (2, 2, 4)
    assert type(net.stem[1]) is nn.BatchNorm2d  # refused conversions changed nothing


def test_head_by_name() -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.fc, self.aux = nn.LayerNorm(4), nn.Linear(4, 3), nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.norm(x))

    with pytest.raises(UnsupportedModuleError, match=r"aux: .*'fc' \(4 → 3\), 'aux' \(4 → 5\)"):
        SigmaEnsemble(TwoHeads(), 2, num_classes=3)
    ensemble = SigmaEnsemble(TwoHeads(), 2, num_classes=3, head_name="fc")
    assert ensemble(torch.randn(2, 4)).shape == (2, 2, 3)
    wrong = SigmaEnsemble(TwoHeads(), 2)
    with pytest.raises(ValueError, match="gave 3 logits, but 'aux'"):
        wrong(torch.randn(2, 4))
