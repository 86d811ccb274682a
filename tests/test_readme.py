"""What the README shows is executed."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from bench.suite import Suite

README = Path(__file__).parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", blocks("python"))
def test_python_blocks_run(block: str) -> None:
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(block, names)
    ensemble, x = names["ensemble"], names["x"]
    assert torch.allclose(names["plain"](x), ensemble(x)[:, 0], atol=1e-5)


@pytest.mark.parametrize("block", blocks("yaml"))
def test_suites_expand(block: str) -> None:
    assert Suite.model_validate(yaml.safe_load(block)).runs()


def test_there_is_something_to_run() -> None:
    assert blocks("python")
    assert blocks("yaml")


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
