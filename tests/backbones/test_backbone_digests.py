"""Other weights under the same name are other weights."""

import json

import pytest
import torch
from safetensors.torch import save_file

from bench.backbones import backbone_digest, create_backbone
from bench.errors import UserError
from bench.runner import Options, Reporter, perform
from bench.store import RunFolder
from bench.suite_files import load_suite

CPU = torch.device("cpu")
SUITE = """
name: digested
tasks: [{name: digits, severities: [1]}]
backbones: ["resnet8@w.safetensors"]
methods: [single]
seeds: [0]
budget: {match: epochs, epochs: 0.1}
recipe: {augment: []}
evaluation: {shifts: false, outliers: false}
"""


def weights(path, seed, classes=10):
    torch.manual_seed(seed)
    save_file(create_backbone("resnet8", classes, (1, 8, 8)).state_dict(), path)


def test_a_file_by_its_content(tmp_path):
    weights(tmp_path / "w.safetensors", 0)
    first = backbone_digest("resnet8@w.safetensors", tmp_path)
    weights(tmp_path / "w.safetensors", 1)
    second = backbone_digest("resnet8@w.safetensors", tmp_path)
    weights(tmp_path / "w.safetensors", 0)
    assert first == backbone_digest("resnet8@w.safetensors", tmp_path) != second


def test_a_folder_by_its_settings_and_the_weights_that_are_used(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    for name in ("config.json", "vocab.txt", "model.safetensors", "README.md"):
        (folder / name).write_text("1")

    def digests():
        return [backbone_digest(name, tmp_path) for name in ("hf:m", "hf:m@pretrained")]

    before = digests()
    assert before[0] != before[1]
    (folder / "README.md").write_text("22")
    assert digests() == before
    (folder / "model.safetensors").write_text("22")
    assert digests()[0] == before[0]
    assert digests()[1] != before[1]
    (folder / "vocab.txt").write_text("22")
    assert digests()[0] != before[0]


@pytest.mark.parametrize("name", ["resnet8", "timm:resnet18@pretrained", "hf:some/hub-name"])
def test_none_where_no_file_lies_here(name, tmp_path):
    assert backbone_digest(name, tmp_path) is None


def done(spec, data, folder):
    quiet = Reporter(lambda tick: None, lambda line: None, lambda line: None)
    return perform(spec, folder, Options(data, CPU), quiet)


def test_a_run_that_is_begun_goes_on_with_its_own_weights_alone(tmp_path):
    (tmp_path / "s.yaml").write_text(SUITE)
    (spec,) = load_suite(str(tmp_path / "s.yaml")).runs()
    folder = RunFolder(tmp_path / "run", spec)
    path = tmp_path / "w.safetensors"
    save_file({"nothing": torch.zeros(1)}, path)
    assert done(spec, tmp_path, folder)[0] == "failed"
    # Nothing is trained yet, so the file may be mended.
    weights(path, 0)
    assert done(spec, tmp_path, folder) == ("done", "")
    noted = json.loads((folder.path / "environment.json").read_text())["backbone_digest"]
    assert noted == backbone_digest(spec.backbone, tmp_path)
    weights(path, 1)
    for left in (folder.metrics_path, None):
        with pytest.raises(UserError, match=r"other weights than .* was begun with") as caught:
            done(spec, tmp_path, folder)
        assert "\n" not in str(caught.value)
        if left is not None:
            left.unlink()
    weights(path, 0)
    assert done(spec, tmp_path, folder) == ("done", "")
