"""Methods and data that fail in the middle of a run; a clock that goes backwards."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import answer, do, folders, only_folder, write_suite

from bench import registry
from bench.data import digits
from bench.data.task import Task
from bench.errors import UserError
from bench.files import read_json

PLUGIN = '''
from typing import ClassVar, Literal

import torch
from baselines.single import Single


class Faulty(Single):
    """Fails where it is told to."""

    name: ClassVar[str] = "faulty"
    where: Literal["train", "loss", "nan", "inf", "memory", "late", "half", "none"]

    def build(self, backbone, num_classes):
        model = super().build(backbone, num_classes)
        model.register_forward_hook(self.spoil)
        return model

    def loss(self, model, logits, target):
        value = super().loss(model, logits, target)
        return value * float("nan") if self.where == "loss" else value

    def spoil(self, module, inputs, logits):
        if logits.device.type == "meta" or len(logits) < 3:
            return logits
        if module.training:
            if self.where == "train":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            return logits
        if self.where == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        if self.where == "late":
            raise IndexError("lost\\n the thread")
        if self.where in ("nan", "inf"):
            logits = logits.clone()
            logits[1, 0, 2] = float(self.where)
        return {"half": logits[1:], "none": None}.get(self.where, logits)
'''

LINES = {
    "train": "RuntimeError: out of device memory with recipe.batch_size=64, accumulate=1",
    "loss": "NonFiniteLoss: loss is nan at step 1, learning rate 0.1: lower recipe.learning_rate",
    "nan": "ValueError: logits: sample 1 is not finite",
    "inf": "ValueError: logits: sample 1 is not finite",
    "memory": "RuntimeError: out of device memory with evaluation.batch_size=500: lower it",
    "late": "IndexError: lost the thread",
    "half": "ValueError: ",
    "none": "",
}


def test_a_method_that_fails_is_told_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_plugins", {})
    plugin = tmp_path / "faulty.py"
    plugin.write_text(PLUGIN)
    registry.load_plugin(plugin)
    methods = [{"name": "faulty", "grid": {"where": list(LINES)}}, "single"]
    suite = write_suite(tmp_path, methods=methods)
    outcomes, _ = do(suite, tmp_path / "results", plugins=(plugin,))
    found = dict(zip(LINES, folders(suite, tmp_path / "results"), strict=False))
    for where, line in LINES.items():
        state, reason = found[where].state()
        if where == "none":
            # A hook that gives nothing changes nothing.
            assert state == "done"
            continue
        assert state == "failed", where
        assert reason.startswith(line), reason
        assert "\n" not in reason
        assert "Traceback" in read_json(found[where].path / "failure.json")["traceback"]
        assert not found[where].metrics_path.exists()
    assert outcomes == ["done" if where == "none" else "failed" for where in LINES] + ["done"]


@pytest.mark.parametrize("step", [-86_400.0, -1e-3, 0.0])
def test_a_clock_that_goes_backwards_or_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """At each look; what a run finds out and who holds its folder does not depend on it."""
    suite = write_suite(tmp_path)
    assert do(suite, tmp_path / "usual")[0] == ["done"]
    now = [time.time()]

    def clock() -> float:
        now[0] += step
        return now[0]

    monkeypatch.setattr(time, "time", clock)
    assert do(suite, tmp_path / "odd")[0] == ["done"]
    assert do(suite, tmp_path / "odd")[0] == ["done"]
    odd = only_folder(suite, tmp_path / "odd")
    assert answer(odd) == answer(only_folder(suite, tmp_path / "usual"))
    assert odd.state() == ("done", "")


def test_labels_of_no_class_stop_everything_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = digits.load

    def wrong(*words: Any) -> Task:
        task = usual(*words)
        labels = task.test.labels.clone()
        labels[3] = task.num_classes
        return dataclasses.replace(task, test=dataclasses.replace(task.test, labels=labels))

    monkeypatch.setattr(digits, "load", wrong)
    # A task that was loaded before is kept in memory: this one was not.
    task = {"name": "digits", "corruptions": ["rotation"], "severities": [2]}
    suite = write_suite(tmp_path, tasks=[task])
    with pytest.raises(UserError, match=r"task digits: test has labels 0 to 8, not 0 to 7"):
        do(suite, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def picture_folder(root: Path, counts: dict[str, dict[str, int]]) -> Path:
    """Images of noise: split -> class -> how many."""
    from PIL import Image

    draw = torch.Generator().manual_seed(0)
    for split, classes in counts.items():
        for name, count in classes.items():
            folder = root / split / name
            folder.mkdir(parents=True)
            for index in range(count):
                pixels = torch.randint(0, 256, (8, 8, 3), dtype=torch.uint8, generator=draw)
                Image.fromarray(pixels.numpy()).save(folder / f"{index}.png")
    return root


ENOUGH = {"train": {"a": 8, "b": 8}, "val": {"a": 2, "b": 2}, "test": {"a": 3, "b": 3}}


def on_pictures(tmp_path: Path, counts: dict[str, dict[str, int]]) -> tuple[Path, Path]:
    """A suite on a folder of images, and the folder."""
    root = picture_folder(tmp_path / "pictures", counts)
    task = {"name": f"image_folder:{root}", "corruptions": []}
    recipe = {"batch_size": 8, "augment": [], "member_chunk": 1}
    return write_suite(tmp_path, tasks=[task], recipe=recipe), root


def test_a_class_that_is_missing_from_the_test_split(tmp_path: Path) -> None:
    suite, _ = on_pictures(tmp_path, {**ENOUGH, "test": {"a": 3}})
    assert do(suite, tmp_path / "results")[0] == ["done"]
    metrics = only_folder(suite, tmp_path / "results").metrics() or {}
    assert metrics["test"]["samples"] == 3
    assert any("test/ has no images of the classes b" in note for note in metrics["task"]["notes"])


def test_one_sample_in_each_split(tmp_path: Path) -> None:
    counts = {"train": {"a": 1, "b": 1}, "val": {"a": 1}, "test": {"b": 1}}
    suite, _ = on_pictures(tmp_path, counts)
    outcomes, events = do(suite, tmp_path / "results")
    assert outcomes == ["done"], events[-1].text
    metrics = only_folder(suite, tmp_path / "results").metrics() or {}
    assert metrics["test"]["samples"] == 1
    assert metrics["test"]["accuracy"] in (0.0, 1.0)


@pytest.mark.parametrize("fault", ["cut", "empty class", "text"])
def test_pictures_that_are_none_stop_everything_in_one_line(tmp_path: Path, fault: str) -> None:
    suite, root = on_pictures(tmp_path, ENOUGH)
    place = root / "train" / "b"
    if fault == "empty class":
        for path in place.iterdir():
            path.unlink()
    else:
        path = place / "3.png"
        path.write_bytes(path.read_bytes()[:60] if fault == "cut" else b"no image")
    with pytest.raises(UserError) as caught:
        do(suite, tmp_path / "results")
    line = str(caught.value)
    assert str(place) in line
    assert "\n" not in line
    assert not (tmp_path / "results").exists()
