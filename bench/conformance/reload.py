"""A model brought back from its stored tensors in a process of its own."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.conformance.specimen import SEED, Specimen
from bench.method import Method
from bench.registry import load_plugin
from bench.weights import load_tensors, save_tensors

PATIENCE = 600
"""Seconds after which the process is given up."""


def logits_in_fresh_process(specimen: Specimen, model: nn.Module) -> Tensor:
    """Store a model, load it elsewhere under another seed, and ask it there.

    Returns:
        the logits of the specimen's images, ``[B, M, K]``.

    Raises:
        RuntimeError: the other process could not load it; says why.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store(folder, specimen, model)
        ask(folder)
        tensors, _ = load_tensors(folder / "logits.safetensors")
    return tensors["logits"]


def store(folder: Path, specimen: Specimen, model: nn.Module) -> None:
    """Write what the other process needs to know: tensors, and which method they belong to."""
    save_tensors(folder / "model.safetensors", model.state_dict(), {})
    (folder / "what.json").write_text(json.dumps(_what(specimen)), encoding="utf-8")


def ask(*folders: Path) -> None:
    """Start the process and wait until it has answered for each folder.

    Raises:
        RuntimeError: it could not; says why.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import main; main()", *map(str, folders)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(f"a fresh process can't load the model: {lines[-1]}")


def main() -> None:
    """The process."""
    for folder in sys.argv[1:]:
        answer(Path(folder))


def answer(folder: Path) -> None:
    """Build under another seed, load, predict, store the logits."""
    what = json.loads((folder / "what.json").read_text(encoding="utf-8"))
    specimen = Specimen.of(_find(what), what["parameters"], what["backbone"])
    model = specimen.model(SEED + 1)
    tensors, _ = load_tensors(folder / "model.safetensors")
    model.load_state_dict(tensors)
    with torch.no_grad():
        logits = model.eval()(specimen.images)
    save_tensors(folder / "logits.safetensors", {"logits": logits}, {})


def _what(specimen: Specimen) -> dict[str, Any]:
    cls = type(specimen.method)
    return {
        "module": cls.__module__,
        "file": getattr(sys.modules[cls.__module__], "__file__", None),
        "class": cls.__qualname__,
        "parameters": specimen.method.model_dump(mode="json"),
        "backbone": specimen.spec.backbone,
    }


def _find(what: dict[str, Any]) -> type[Method]:
    """The method's class, from its plug-in file or its module."""
    if importlib.util.find_spec(what["module"]) is None:
        load_plugin(Path(what["file"]))
    found: Any = importlib.import_module(what["module"])
    for part in what["class"].split("."):
        if not hasattr(found, part):
            raise LookupError(f"{what['class']} is not at the top level of {what['module']}")
        found = getattr(found, part)
    cls: type[Method] = found
    return cls
