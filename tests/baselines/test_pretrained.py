"""What methods keep of pretrained weights, and what they say of trained gates."""

import copy
import json

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import nn

from baselines.batch_ensemble import BatchEnsemble
from baselines.deep_ensemble import DeepEnsemble
from baselines.film_ensemble import FilmEnsemble
from baselines.layers.batch_ensemble import RankOne
from baselines.layers.film import pretrained_film_norm
from baselines.sigma_nens import SigmaNEns
from baselines.single import Single
from bench.backbones import create_backbone, fresh_head
from bench.errors import NotApplicable
from sigma_nens import MemberLinear, MemberNorm, SigmaNorm, equilibrium_share

SHAPE, CLASSES = (3, 16, 16), 6
IMAGE_BACKBONES = ("resnet8", "he_resnet20", "vit_pico")


def pretrained(name, folder, classes=CLASSES):
    """A network from a file of weights that no initialisation gives, its statistics too."""
    torch.manual_seed(0)
    plain = create_backbone(name, CLASSES, SHAPE)
    for parameter in plain.parameters():
        parameter.data += 0.3 * parameter.data.std().nan_to_num(0.0) * torch.randn_like(parameter)
    for module in plain.modules():
        if isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
    plain.train()
    for _ in range(30):  # statistics that fit the weights
        plain(torch.randn(8, *SHAPE))
    save_file(plain.state_dict(), folder / "w.safetensors")
    return create_backbone(f"{name}@w.safetensors", classes, SHAPE, folder)


def tiny_bert(classes=3):
    transformers = pytest.importorskip("transformers")
    from bench.backbones.hugging_face import TextClassifier

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        num_labels=classes,
        initializer_range=0.3,
    )
    network = transformers.BertForSequenceClassification(config)
    for module in network.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
    return TextClassifier(network, 0)


def moved(model, wanted, inputs):
    """How far each member's logits are from the backbone's, in units of their spread."""
    logits = model.eval()(inputs)
    change = (logits - wanted.unsqueeze(1)).square().mean((0, 2)).sqrt()
    return change / wanted.std()


METHODS = {
    "single": Single(),
    "deep_ensemble": DeepEnsemble(),
    "sigma_nens": SigmaNEns(),
    "sigma_nens, full affine": SigmaNEns(affine="full", gate_init=1.0),
    "sigma_nens, no affine": SigmaNEns(affine="none", head="shared"),
    "sigma_nens, one layer": SigmaNEns(layers=r".*norm1|.*bn1"),
    "film_ensemble, std 0": FilmEnsemble(pretrained_std=0.0, init="xavier"),
    "batch_ensemble, std 0": BatchEnsemble(pretrained_std=0.0, init="random_sign"),
}


@pytest.mark.parametrize("name", IMAGE_BACKBONES)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_the_pretrained_function_is_kept(method, name, tmp_path):
    backbone = pretrained(name, tmp_path).eval()
    assert fresh_head(backbone) is None
    inputs = torch.randn(4, *SHAPE)
    wanted = backbone(inputs)
    model = method.convert(backbone, CLASSES).eval()
    logits = model(inputs)
    assert logits.shape == (4, 1 if method.independent else method.members, CLASSES)
    assert (logits - wanted.unsqueeze(1)).abs().max() < 1e-5


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_the_function_of_a_text_model_is_kept(method):
    if "one layer" in next(key for key, value in METHODS.items() if value is method):
        method = SigmaNEns(layers=".*attention.*")
    backbone = tiny_bert().eval()
    inputs = torch.tensor([[2, 7, 9, 3, 0, 0], [2, 8, 30, 31, 22, 3]])
    wanted = backbone(inputs)
    assert wanted.std() > 0.01
    logits = method.convert(copy.deepcopy(backbone), 3).eval()(inputs)
    assert (logits - wanted.unsqueeze(1)).abs().max() < 1e-5


@pytest.mark.parametrize("name", IMAGE_BACKBONES)
@pytest.mark.parametrize("method", [FilmEnsemble(), BatchEnsemble()])
def test_members_start_apart_but_near_the_pretrained_function(method, name, tmp_path):
    backbone = pretrained(name, tmp_path).eval()
    inputs = torch.randn(8, *SHAPE)
    wanted = backbone(inputs)
    far = moved(method.build(copy.deepcopy(backbone), CLASSES), wanted, inputs)
    model = method.convert(backbone, CLASSES)
    near = moved(model, wanted, inputs)
    assert near.min() > 0.001
    assert near.max() < 0.35 < far.mean()
    logits = model(inputs)
    for one in range(4):
        for other in range(one):
            assert (logits[:, one] - logits[:, other]).abs().max() > 1e-3


def test_how_far_members_start_apart():
    torch.manual_seed(0)
    plain = nn.BatchNorm2d(4000)
    nn.init.uniform_(plain.weight, -3, 3)
    nn.init.normal_(plain.bias)
    norm = pretrained_film_norm(plain, 3, std=0.1)
    scale = (norm.weight / plain.weight - 1).flatten()
    shift = ((norm.bias - plain.bias) / plain.weight).flatten()
    for values in (scale, shift):
        assert values.std().item() == pytest.approx(0.1, rel=0.05)
        assert abs(values.mean().item()) < 0.005
    assert isinstance(norm.weight, nn.Parameter)
    model = BatchEnsemble(pretrained_std=0.02).convert(nn.Linear(4000, 5), 5)
    factor = model.backbone.input_factor
    assert factor.mean().item() == pytest.approx(1, abs=0.005)
    assert factor.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("method", [SigmaNEns(), FilmEnsemble()])
def test_members_draw_fresh_heads_of_their_own(method, tmp_path):
    backbone = pretrained("resnet8", tmp_path, classes=4)
    assert "task has 4" in fresh_head(backbone)
    before = backbone.state_dict()
    weights = before["conv1.weight" if "conv1.weight" in before else "conv.weight"].clone()
    model = method.convert(backbone, 4)
    (head,) = (m for m in model.modules() if isinstance(m, MemberLinear))
    bound = head.in_features**-0.5
    for values in (head.weight, head.bias):
        assert values.abs().max() <= bound
        assert values.flatten(1).unique(dim=0).shape[0] == 4
    assert torch.equal(next(p for p in model.parameters() if p.shape == weights.shape), weights)


def test_factors_of_a_fresh_head_are_drawn_as_from_scratch(tmp_path):
    method = BatchEnsemble(members=64, std=0.5, pretrained_std=0.05)
    model = method.convert(pretrained("resnet8", tmp_path, classes=4), 4)
    head = model.get_submodule("backbone.linear")
    for factor in (head.input_factor, head.output_factor):
        assert 0.4 < factor.std() < 0.6
    inner = model.get_submodule("backbone.layer1.0.conv1")
    assert 0.03 < inner.input_factor.std() < 0.07


@pytest.mark.parametrize("method", [SigmaNEns(), FilmEnsemble()])
def test_a_pretrained_head_is_copied_to_every_member(method, tmp_path):
    backbone = pretrained("resnet8", tmp_path)
    (head,) = (m for m in method.convert(backbone, CLASSES).modules() if type(m) is MemberLinear)
    assert torch.equal(head.weight, head.weight[:1].expand_as(head.weight))


def test_gates_of_a_pretrained_network_differ_between_members(tmp_path):
    model = SigmaNEns().convert(pretrained("resnet8", tmp_path), CLASSES)
    for layer in model.gate_layers().values():
        assert layer.gates().std(dim=0).min() > 0


def test_a_bare_gate_cannot_keep_a_function(tmp_path):
    with pytest.raises(NotApplicable, match="unit_gain=False"):
        SigmaNEns(unit_gain=False).convert(pretrained("resnet8", tmp_path), CLASSES)


@pytest.mark.parametrize("make", ["build", "convert"])
def test_a_converted_network_learns_every_member_parameter(make, tmp_path):
    for method in (SigmaNEns(members=2), FilmEnsemble(members=2), BatchEnsemble(members=2)):
        model = getattr(method, make)(pretrained("vit_pico", tmp_path), CLASSES).train()
        logits = model(torch.randn(6, *SHAPE))
        method.loss(model, logits, torch.arange(6)).backward()
        for module in model.modules():
            if isinstance(module, MemberNorm | MemberLinear | RankOne):
                assert all(p.grad is not None for p in module.parameters(recurse=False))


# --- which layers are gated ----------------------------------------------------------------------


def gated(model):
    return [name for name, m in model.module.named_modules() if isinstance(m, SigmaNorm)]


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (r"layer3\..*", ["layer3.0.bn1", "layer3.0.bn2"]),
        (r"layer1\.0\.bn2|bn1", ["bn1", "layer1.0.bn2"]),
        (r".*bn2", ["layer1.0.bn2", "layer2.0.bn2", "layer3.0.bn2"]),
    ],
)
@pytest.mark.parametrize("make", ["build", "convert"])
def test_layers_are_chosen_by_their_whole_name(make, pattern, wanted):
    from bench.backbones.he_resnet import HeResNet

    method = SigmaNEns(layers=pattern)
    plain = HeResNet(8, 3, CLASSES)
    names = [name for name, m in plain.named_modules() if isinstance(m, nn.BatchNorm2d)]
    model = getattr(method, make)(plain, CLASSES)
    assert gated(model) == wanted
    # The others keep their members' statistics apart all the same.
    apart = [name for name, m in model.module.named_modules() if isinstance(m, MemberNorm)]
    assert apart == names
    assert [fact["layer"] for fact in method.facts(model)["gates"]] == wanted


def test_layers_that_match_nothing_are_named():
    method = SigmaNEns(layers="layer9")
    backbone = create_backbone("he_resnet20", CLASSES, SHAPE)
    reason = method.supports(backbone)
    assert "layers='layer9'" in reason
    assert "bn1" in reason
    with pytest.raises(NotApplicable, match="layer9"):
        method.build(backbone, CLASSES)


def test_a_layer_that_is_left_out_may_be_of_any_type():
    class OwnNorm(nn.LayerNorm):
        pass

    network = nn.Sequential(OwnNorm(4), nn.LayerNorm(4), nn.Linear(4, 3))
    assert "OwnNorm" in SigmaNEns().supports(network)
    assert SigmaNEns(layers="1").supports(network) is None
    assert gated(SigmaNEns(layers="1").build(network, 3)) == ["1"]


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(ValidationError, match="no regular expression"):
        SigmaNEns(layers="layer3.(")


# --- what is said of gates -----------------------------------------------------------------------


def test_facts_of_gates_by_hand():
    torch.manual_seed(0)
    method = SigmaNEns(members=3, temperature=0.7)
    network = nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 5))
    model = method.build(network, 5)
    layers = model.gate_layers()
    layers["0"].gate_logits.data = torch.tensor([[40.0, 0.0], [-40.0, 0.0], [-40.0, 0.0]])
    layers["2"].gate_logits.data *= 4
    first, second = method.facts(model)["gates"]
    json.dumps([first, second])
    assert (first["layer"], first["features"]) == ("0", 2)
    assert first["histogram"] == [2] + [0] * 9 + [3] + [0] * 8 + [1]
    assert first["members_per_feature"] == pytest.approx((1 + 3) / 2)
    assert first["equilibrium"] == pytest.approx(3 * equilibrium_share(0.7))
    assert (second["layer"], second["features"]) == ("2", 8)
    gates = layers["2"].gate_logits.double().sigmoid().tolist()
    counts, sharing = [0] * 20, 0.0
    for feature in range(8):
        column = [row[feature] for row in gates]
        for gate in column:
            counts[min(19, int(gate * 20))] += 1
        sharing += sum(column) ** 2 / sum(gate**2 for gate in column) / 8
    assert second["histogram"] == counts
    assert second["members_per_feature"] == pytest.approx(sharing)


def test_other_methods_have_nothing_to_say():
    assert Single().facts(Single().build(nn.Linear(2, 2), 2)) == {}
