"""Weights from files: what is tolerated, and what is refused by name."""

import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from bench.backbones import create_backbone, fresh_head, pixel_normalisation
from bench.backbones.heads import head_names
from bench.errors import UserError

SHAPE = (3, 8, 8)
NAME = "he_resnet20"


@pytest.fixture(scope="module")
def trained():
    """Some weights, as `state_dict` gives them."""
    torch.manual_seed(0)
    network = create_backbone(NAME, 10, SHAPE)
    for value in network.state_dict().values():
        if value.is_floating_point():
            value.uniform_(0.1, 0.5)
    return network.state_dict()


def load(state, tmp_path, file="w.safetensors", classes=10, name=NAME):
    path = tmp_path / file
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return create_backbone(f"{name}@{file}", classes, SHAPE, tmp_path)


def refusal(state, tmp_path, **options):
    with pytest.raises(UserError) as caught:
        load(state, tmp_path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def same(network, state):
    found = network.state_dict()
    assert all(torch.equal(found[key], value) for key, value in state.items())


@pytest.mark.parametrize("file", ["w.safetensors", "w.pt", "w.pth", "w.bin"])
def test_every_kind_of_file(trained, tmp_path, file):
    network = load(trained, tmp_path, file)
    same(network, trained)
    assert network.training
    assert fresh_head(network) is None


def test_an_absolute_file_needs_no_data_folder(trained, tmp_path):
    save_file(trained, tmp_path / "w.safetensors")
    same(create_backbone(f"{NAME}@{tmp_path / 'w.safetensors'}", 10, SHAPE), trained)


@pytest.mark.parametrize("prefix", ["module.", "model.", "backbone.", "model.backbone.module."])
def test_prefixes_of_wrappers(trained, tmp_path, prefix):
    same(load({prefix + key: value for key, value in trained.items()}, tmp_path), trained)


@pytest.mark.parametrize("wrapped", ["state_dict", "model", "both"])
def test_checkpoints_of_training_scripts(trained, tmp_path, wrapped):
    inner = {"model": trained} if wrapped == "both" else trained
    key = "state_dict" if wrapped == "both" else wrapped
    same(load({key: inner, "epoch": 3, "best": 0.5}, tmp_path, "w.pth"), trained)


def test_counters_of_batch_norm_may_be_missing(trained, tmp_path):
    state = {k: v for k, v in trained.items() if not k.endswith("num_batches_tracked")}
    assert len(state) < len(trained)
    same(load(state, tmp_path), state)


def test_a_head_for_other_classes_is_fresh_and_says_so(trained, tmp_path):
    torch.manual_seed(1)
    one = load(trained, tmp_path, classes=4)
    torch.manual_seed(2)
    other = load(trained, tmp_path, classes=4)
    assert "is for 10 classes, the task has 4" in fresh_head(one)
    assert not torch.equal(one.linear.weight, other.linear.weight)
    same(one, {key: value for key, value in trained.items() if not key.startswith("linear.")})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("layer2.1.conv1.weight"), "has no 'layer2.1.conv1.weight'"),
        (lambda s: s.pop("bn1.running_var"), "has no 'bn1.running_var'"),
        (lambda s: s.pop("linear.bias"), "has no 'linear.bias'"),
        (lambda s: s.update(extra=torch.ones(1)), "has 'extra'"),
        (
            lambda s: s.update({"conv1.weight": torch.ones(16, 1, 3, 3)}),
            r"'conv1.weight' has shape [16, 1, 3, 3], not [16, 3, 3, 3]",
        ),
        (lambda s: s.update({"linear.weight": torch.ones(9, 65)}), "'linear.weight' has shape"),
        (lambda s: s.update({"model.bn1.bias": s.pop("bn1.bias")}), "has no 'bn1.bias'"),
    ],
)
def test_any_other_mismatch_is_refused_by_name(trained, tmp_path, change, words):
    state = dict(trained)
    change(state)
    assert words in refusal(state, tmp_path)


class Runs:
    """What a pickle can do to its reader."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("write", [torch.save, lambda o, p: p.write_bytes(pickle.dumps(o))])
def test_no_code_in_a_file_is_run(tmp_path, write):
    mark = tmp_path / "was-run"
    write({"conv1.weight": Runs(mark)}, tmp_path / "w.pt")
    with pytest.raises(UserError, match="as plain tensors") as caught:
        create_backbone(f"{NAME}@w.pt", 10, SHAPE, tmp_path)
    # One line, and no advice to read the file in a way that would run the code.
    assert "\n" not in str(caught.value)
    assert "weights_only" not in str(caught.value)
    assert "objects of Python" in str(caught.value)
    assert str(caught.value).isprintable()
    assert not mark.exists()


def test_weights_that_are_no_numbers_are_refused(trained, tmp_path):
    state = {key: value.clone() for key, value in trained.items()}
    state["linear.bias"][0] = float("nan")
    assert "its logits are not finite" in refusal(state, tmp_path)


@pytest.mark.parametrize("file", ["w.safetensors", "w.pt"])
def test_damaged_and_missing_files(tmp_path, file):
    with pytest.raises(UserError, match="no such file"):
        create_backbone(f"{NAME}@{file}", 10, SHAPE, tmp_path)
    (tmp_path / file).write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="can't be read") as caught:
        create_backbone(f"{NAME}@{file}", 10, SHAPE, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("state", [[torch.ones(2)], {}, {"epoch": 3}, {3: torch.ones(1)}])
def test_files_without_named_tensors(tmp_path, state):
    assert str(tmp_path / "w.pt") in refusal(state, tmp_path, file="w.pt")


def test_a_file_for_a_model_of_timm(tmp_path):
    torch.manual_seed(0)
    plain = create_backbone("timm:test_vit", 10, (3, 32, 32))
    save_file(plain.state_dict(), tmp_path / "w.safetensors")
    assert head_names(plain, 10) == ["head"]
    for classes in (10, 7):
        network = create_backbone("timm:test_vit@w.safetensors", classes, (3, 32, 32), tmp_path)
        assert torch.equal(network.pos_embed, plain.pos_embed)
        assert torch.equal(network.head.weight[:7], plain.head.weight[:7]) == (classes == 10)
        assert (fresh_head(network) is None) == (classes == 10)


def test_the_head_may_be_a_convolution():
    network = nn.Sequential(nn.Linear(5, 4), nn.Conv2d(4, 5, 1), nn.Flatten())
    assert head_names(network, 5) == ["1"]
    assert head_names(network, 4) == ["0"]
    assert head_names(network, 6) == []


# --- the statistics of pixels ---------------------------------------------------------------------


def test_statistics_that_weights_want(trained, tmp_path):
    imagenet = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    save_file(trained, tmp_path / "w.safetensors")
    wanted = {
        "he_resnet20": None,
        "he_resnet20@w.safetensors": imagenet,
        "resnet18@w.safetensors": None,
        "timm:resnet18": None,
        "timm:resnet18@w.safetensors": imagenet,
        "timm:vit_base_patch16_224.augreg_in1k@pretrained": ((0.5,) * 3, (0.5,) * 3),
        "torchvision:resnet50@pretrained": imagenet,
        "hf:any@pretrained": None,
    }
    for name, statistics in wanted.items():
        assert pixel_normalisation(name, tmp_path) == statistics, name


def test_statistics_in_the_file_come_first(trained, tmp_path):
    metadata = {"mean": "[0.5, 0.4, 0.3]", "std": "[1, 0.2, 0.1]"}
    save_file(trained, tmp_path / "w.safetensors", metadata)
    for name in ("he_resnet20", "resnet18", "timm:resnet18"):
        found = pixel_normalisation(f"{name}@w.safetensors", tmp_path)
        assert found == ((0.5, 0.4, 0.3), (1.0, 0.2, 0.1))


@pytest.mark.parametrize(
    "metadata",
    [
        {"mean": "[0.5]"},
        {"mean": "0.5", "std": "[1]"},
        {"mean": "[0.5, 0.5]", "std": "[1]"},
        {"mean": "[0.5]", "std": "[0]"},
        {"mean": '["a"]', "std": "[1]"},
        {"mean": "[NaN]", "std": "[1]"},
        {"mean": "nonsense", "std": "[1]"},
    ],
)
def test_statistics_that_are_none_are_refused(trained, tmp_path, metadata):
    save_file(trained, tmp_path / "w.safetensors", metadata)
    with pytest.raises(UserError, match="its metadata") as caught:
        pixel_normalisation("he_resnet20@w.safetensors", tmp_path)
    assert "\n" not in str(caught.value)
