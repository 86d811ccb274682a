from pathlib import Path

import pytest
import torch

import bench.device
from bench.device import choose_device, environment, peak_memory, reset_peak_memory
from bench.errors import UserError


@pytest.mark.parametrize("name", ["meta", "gpu", "cuda:99", "", "cpu:x"])
def test_devices_that_cannot_be_used(name):
    with pytest.raises(UserError, match="--device") as error:
        choose_device(name)
    assert "\n" not in str(error.value)


def test_auto_gives_one_that_works():
    assert torch.ones(2, device=choose_device("auto")).sum().item() == 2


def test_peak_memory_sees_what_was_used():
    device = torch.device("cpu")
    block = torch.ones(50_000_000)
    assert peak_memory(device) >= block.numel() * 4


def test_a_peak_is_forgotten_where_the_system_can():
    device = torch.device("cpu")
    block = torch.ones(50_000_000)
    high = peak_memory(device)
    del block
    forgotten = reset_peak_memory(device)
    low = peak_memory(device)
    other = torch.ones(50_000_000)
    if forgotten:
        assert peak_memory(device) - low > other.numel() * 2
    else:
        assert peak_memory(device) >= low >= high


@pytest.mark.parametrize("place", ["/dev/null", "/dev/full", "/nowhere/clear_refs"])
def test_a_peak_that_stays_is_said(place, monkeypatch):
    block = torch.ones(50_000_000)
    del block
    monkeypatch.setattr(bench.device, "CLEAR", Path(place))
    assert not reset_peak_memory(torch.device("cpu"))


def test_the_environment_names_versions():
    found = environment(torch.device("cpu"))
    assert found["packages"]["torch"] == torch.__version__.split("+")[0]
    assert found["device"] == "cpu"
