import pytest
import torch

from bench.device import choose_device, environment, peak_memory, reset_peak_memory
from bench.errors import UserError


@pytest.mark.parametrize("name", ["meta", "gpu", "cuda:99", "", "cpu:x"])
def test_devices_that_cannot_be_used(name):
    with pytest.raises(UserError, match="--device") as error:
        choose_device(name)
    assert "\n" not in str(error.value)


def test_auto_gives_one_that_works():
    assert torch.ones(2, device=choose_device("auto")).sum().item() == 2


def test_peak_memory_sees_what_was_used_and_forgets_it():
    device = torch.device("cpu")
    block = torch.ones(50_000_000)
    assert peak_memory(device) >= block.numel() * 4
    del block
    reset_peak_memory(device)
    low = peak_memory(device)
    other = torch.ones(50_000_000)
    assert peak_memory(device) - low > other.numel() * 2


def test_the_environment_names_versions():
    found = environment(torch.device("cpu"))
    assert found["packages"]["torch"] == torch.__version__.split("+")[0]
    assert found["device"] == "cpu"
