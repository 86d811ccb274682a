"""The examples in the docstrings of the package, executed; and what importing it costs."""

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest
import torch

import sigma_nens

MODULES = [f"sigma_nens.{m.name}" for m in pkgutil.iter_modules(sigma_nens.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_module(name: str) -> None:
    torch.manual_seed(0)
    assert doctest.testmod(importlib.import_module(name), verbose=False).failed == 0


@pytest.mark.parametrize("name", sigma_nens.__all__)
def test_public_objects_are_documented_with_an_example(name: str) -> None:
    thing = getattr(sigma_nens, name)
    assert inspect.getdoc(thing)
    is_data = isinstance(thing, type) and issubclass(thing, tuple | Exception)
    if not is_data:
        assert ">>>" in (thing.__doc__ or "")


def test_import_needs_torch_only() -> None:
    code = (
        "import sys, sigma_nens\n"
        "heavy = {'bench', 'baselines', 'timm', 'torchvision', 'lightning', 'pydantic'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
