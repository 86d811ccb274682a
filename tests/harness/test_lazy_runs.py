"""Runs on images that stay on disk, from the specification to the scores."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from bench.data.catalogue import load_task
from bench.data.task import Split
from bench.errors import UserError
from bench.execution import Placement, execute
from bench.planning import build_network, check_recipe, make_plan
from bench.registry import method_class
from bench.runner import Options, Reporter, perform
from bench.store import SuiteFolder
from bench.suite_files import load_suite

CPU = torch.device("cpu")
WNIDS = ("n00000001", "n00000002", "n00000003")

SUITE = """
name: photographs
tasks:
  - {name: imagenet, size: 32, validation: 2, corruptions: [contrast], severities: [1, 5]}
backbones: [resnet8]
methods: [METHOD]
members: 2
seeds: [0]
budget: {match: epochs, epochs: 2}
recipe: {batch_size: 6, augment: [resized_crop, flip], member_chunk: 2}
evaluation: {batch_size: 4}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    for label, wnid in enumerate(WNIDS):
        for part, count in (("train", 7), ("val", 3)):
            folder = data / "imagenet" / part / wnid
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = np.random.default_rng([label, count, i]).normal(80 * label + 40, 30, 4000)
                image = pixels.clip(0, 255).astype(np.uint8)[: 3 * 36 * (30 + i)]
                Image.fromarray(image.reshape(-1, 36, 3)).save(folder / f"{i}.JPEG", format="JPEG")
    (data / "imagenet-o").mkdir()
    Image.fromarray(np.zeros((40, 40, 3), dtype=np.uint8)).save(data / "imagenet-o" / "0.JPEG")
    return data


def spec_of(folder, method="sigma_nens", settings=()):
    path = folder / "photographs.yaml"
    path.write_text(SUITE.replace("METHOD", method))
    (spec,) = load_suite(str(path), settings).runs()
    return spec


def run(spec, data, results, loaders=None):
    folder = SuiteFolder(results, "photographs").run(spec)
    report = Reporter(lambda tick: None, lambda text: None, lambda text: None)
    outcome = perform(spec, folder, Options(data, CPU, loaders=loaders), report)
    return folder, outcome


def test_a_run_does_not_depend_on_loaders(data, tmp_path):
    spec = spec_of(tmp_path)
    folders = []
    for loaders in (None, 2):
        folder, outcome = run(spec, data, tmp_path / str(loaders), loaders)
        assert outcome == ("done", "")
        folders.append(folder)
    first, second = (folder.metrics() for folder in folders)
    assert folders[0].model_path.read_bytes() == folders[1].model_path.read_bytes()
    assert first["files"] == second["files"]
    assert first["task"]["samples"] == {"train": 15, "validation": 6, "test": 9}
    shift = pd.read_parquet(folders[0].records_path("shift"))
    assert shift.groupby(["corruption", "severity"]).size().to_dict() == {
        ("contrast", 1): 9,
        ("contrast", 5): 9,
    }
    assert len(pd.read_parquet(folders[0].records_path("ood"))) == 1


def test_workers_of_a_pool_have_loaders(data, tmp_path):
    spec = spec_of(tmp_path, "single")
    other = spec.model_copy(update={"seed": 1})
    place = Placement(tmp_path, "photographs", data, "cpu", workers=2, loaders=1)
    outcomes = execute([spec, other], place, lambda event: None)
    assert outcomes == {spec.id: "done", other.id: "done"}


def test_mixed_precision_ends_in_float32(data, tmp_path, monkeypatch):
    kinds = set()
    method = method_class("single")
    loss = method.loss

    def note(self, model, logits, target):
        kinds.add(logits.dtype)
        return loss(self, model, logits, target)

    monkeypatch.setattr(method, "loss", note)
    spec = spec_of(tmp_path, "single", ("recipe.precision=bfloat16", "recipe.accumulate=2"))
    folder, outcome = run(spec, data, tmp_path)
    assert outcome == ("done", "")
    assert kinds == {torch.float32}
    test = pd.read_parquet(folder.records_path("test"))
    confidence = test["confidence"].to_numpy()
    assert np.isfinite(confidence).all()
    # Of bfloat16 every confidence would be one of a few values.
    assert (torch.tensor(confidence).bfloat16().double().numpy() != confidence).any()


def test_an_unreadable_image_fails_the_run_in_one_line(data, tmp_path):
    folder = tmp_path / "data"
    for path in data.rglob("*.JPEG"):
        target = folder / path.relative_to(data)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    broken = folder / "imagenet" / "train" / WNIDS[0] / "3.JPEG"
    broken.write_bytes(broken.read_bytes()[:500])
    _, (outcome, line) = run(spec_of(tmp_path, "single"), folder, tmp_path, 1)
    assert outcome == "failed"
    assert line.startswith(f"UserError: task imagenet: {broken}: not a readable image")
    assert "\n" not in line


def test_costs_do_not_depend_on_how_a_step_is_divided(data, tmp_path):
    plans = []
    for settings in ((), ("recipe.accumulate=3",), ("recipe.devices=2",)):
        spec = spec_of(tmp_path, "sigma_nens", (*settings, "budget.match=train_flops"))
        task = load_task(spec.task, data)
        method = method_class(spec.method)(**spec.parameters)
        plans.append(make_plan(spec, method, task, build_network(spec, method, task, 0), CPU))
    assert plans[0] == plans[1] == plans[2]


def test_seconds_are_those_of_all_devices(data, tmp_path, monkeypatch):
    from bench import planning

    sizes = []
    clock = iter(range(1000))
    monkeypatch.setattr(planning, "now", lambda device: float(next(clock)))
    step = planning.train_step
    monkeypatch.setattr(
        planning, "train_step", lambda *args: (sizes.append(len(args[3])), step(*args))
    )
    spec = spec_of(tmp_path, "single", ("recipe.devices=2",))
    task = load_task(spec.task, data)
    method = method_class(spec.method)(**spec.parameters)
    model = build_network(spec, method, task, 0)
    assert planning.step_seconds(model, method, task, spec, CPU, 0) == 2
    assert set(sizes) == {3}


def test_resized_crops_of_images_in_memory_are_refused(data, tmp_path):
    spec = spec_of(tmp_path)
    task = load_task(spec.task, data)
    check_recipe(spec, task)
    held = Split(task.train.inputs[:], task.train.labels)
    with pytest.raises(UserError, match="resized_crop needs photographs that are read from disk"):
        check_recipe(spec, dataclasses.replace(task, train=held))


@pytest.mark.parametrize("names", ["[flip,resized_crop]", "[resized_crop,resized_crop]"])
def test_resized_crop_comes_first_and_once(data, tmp_path, names):
    spec = spec_of(tmp_path, settings=(f"recipe.augment={names}",))
    with pytest.raises(UserError, match="must come first, and once"):
        run(spec, data, tmp_path)
    assert not (tmp_path / "photographs" / "runs").exists()


def test_augmented_texts_are_refused_before_anything_is_written(data, tmp_path, monkeypatch):
    words = Split(torch.ones(6, 4, dtype=torch.int64), torch.arange(6) % 3)
    task = load_task(spec_of(tmp_path).task, data)
    texts = dataclasses.replace(task, train=words, validation=words, test=words)
    monkeypatch.setattr("bench.runner.load_task", lambda *args: texts)
    spec = spec_of(tmp_path, settings=("recipe.augment=[flip]",))
    with pytest.raises(UserError, match=r"flip can't be done to texts: set augment: \[\]"):
        run(spec, data, tmp_path)
    assert not (tmp_path / "photographs" / "runs").exists()
    check_recipe(spec_of(tmp_path, settings=("recipe.augment=[]",)), texts)
