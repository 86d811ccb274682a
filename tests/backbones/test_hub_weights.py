"""Weights from hubs: from their caches, and quick refusals where there is no network."""

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch
from safetensors.torch import save_file

from bench.backbones import create_backbone, fresh_head
from bench.backbones.hub import reachable
from bench.errors import UserError

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """Empty caches, and hubs at an address that refuses."""
    from huggingface_hub import constants
    from torchvision.models import get_model_weights

    monkeypatch.setattr(constants, "ENDPOINT", NOWHERE)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "torch"))
    monkeypatch.setattr("bench.backbones.torchvision_models.reachable", lambda _: False)
    reachable.cache_clear()
    yield get_model_weights
    reachable.cache_clear()


@pytest.mark.parametrize(
    ("name", "address", "instead"),
    [
        ("timm:test_resnet@pretrained", "huggingface.co/timm/test_resnet", "timm:test_resnet@FILE"),
        ("torchvision:squeezenet1_1@pretrained", "download.pytorch.org", "squeezenet1_1-"),
        ("hf:no-such-model@pretrained", "huggingface.co/no-such-model", "hf:FOLDER@pretrained"),
    ],
)
def test_without_a_network_it_is_said_at_once_what_to_do(
    no_network, tmp_path, name, address, instead
):
    if name.startswith("hf:"):
        pytest.importorskip("transformers")
    start = time.perf_counter()
    with pytest.raises(UserError, match="network can't be reached") as caught:
        create_backbone(name, 10, (8,) if name.startswith("hf:") else (3, 64, 64), tmp_path)
    assert time.perf_counter() - start < 15  # most of it imports
    line = str(caught.value)
    assert address in line
    assert instead in line
    assert "\n" not in line


def test_the_hubs_own_switch_is_put_back(no_network, tmp_path):
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    with pytest.raises(UserError):
        create_backbone("timm:test_resnet@pretrained", 10, (3, 64, 64), tmp_path)
    assert before == constants.HF_HUB_OFFLINE


@pytest.mark.parametrize("classes", [1000, 6])
def test_timm_reads_its_cache(no_network, tmp_path, classes):
    import timm

    torch.manual_seed(0)
    plain = timm.create_model("test_resnet", num_classes=1000)
    identity = f"test_resnet.{timm.get_pretrained_cfg('test_resnet').tag}"
    entry = tmp_path / "hub" / f"models--timm--{identity}"
    (entry / "refs").mkdir(parents=True)
    (entry / "refs" / "main").write_text("0" * 40)
    (entry / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save_file(plain.state_dict(), entry / "snapshots" / ("0" * 40) / "model.safetensors")
    network = create_backbone("timm:test_resnet@pretrained", classes, (3, 64, 64))
    found, wanted = network.state_dict(), plain.state_dict()
    body = [key for key in wanted if not key.startswith("fc.")]
    assert all(torch.equal(found[key], wanted[key]) for key in body)
    if classes == 1000:
        assert fresh_head(network) is None
        assert torch.equal(found["fc.weight"], wanted["fc.weight"])
    else:
        assert fresh_head(network) == "the weights are for 1000 classes, the task has 6"


@pytest.mark.parametrize("classes", [1000, 6])
def test_torchvision_reads_its_cache(no_network, tmp_path, classes):
    from torchvision.models import get_model

    torch.manual_seed(0)
    plain = get_model("squeezenet1_1")
    file = no_network("squeezenet1_1").DEFAULT.url.rpartition("/")[2]
    (tmp_path / "torch" / "checkpoints").mkdir(parents=True)
    torch.save(plain.state_dict(), tmp_path / "torch" / "checkpoints" / file)
    network = create_backbone("torchvision:squeezenet1_1@pretrained", classes, (3, 64, 64))
    assert torch.equal(network.features[0].weight, plain.features[0].weight)
    head = torch.equal(network.classifier[1].weight[:6], plain.classifier[1].weight[:6])
    assert head == (classes == 1000)
    assert (fresh_head(network) is None) == (classes == 1000)


def test_old_names_of_the_dense_networks_are_known(no_network, tmp_path, monkeypatch):
    from torchvision.models import get_model

    name = "features.denseblock1.denselayer1.norm.1.weight"
    state = get_model("densenet121").state_dict()
    state[name] = state.pop("features.denseblock1.denselayer1.norm1.weight").fill_(0.7)
    weights = no_network("densenet121").DEFAULT
    monkeypatch.setattr(type(weights), "get_state_dict", lambda *_, **__: state)
    monkeypatch.setattr("bench.backbones.torchvision_models.reachable", lambda _: True)
    network = create_backbone("torchvision:densenet121@pretrained", 6, (3, 32, 32))
    assert (network.features.denseblock1.denselayer1.norm1.weight == 0.7).all()


def test_a_model_without_weights_says_so():
    with pytest.raises(UserError, match="no weights"):
        create_backbone("timm:darknet17@pretrained", 10, (3, 64, 64))


class Refuses(BaseHTTPRequestHandler):
    """Answers, with an error."""

    def do_HEAD(self):
        self.send_error(404)

    def log_message(self, *_):
        """Say nothing."""


def test_an_address_that_answers_with_an_error_is_there(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = HTTPServer(("127.0.0.1", 0), Refuses)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        assert reachable(f"http://127.0.0.1:{server.server_port}/weights")
    finally:
        server.shutdown()
        server.server_close()
    assert not reachable(f"{NOWHERE}/weights")
