"""Whole runs on a task of texts: every method, from the plan to the metrics."""

import json

import pandas as pd
import pytest
import torch
from torch import nn
from word_tokenizer import FIRST, VOCABULARY, Words

from bench.data.catalogue import load_task
from bench.errors import UserError
from bench.flops import count_flops
from bench.planning import build_network, inference_flops, make_plan, training_flops
from bench.recipe import Budget, Evaluation, Recipe
from bench.registry import method_class
from bench.runner import Options, Reporter, perform
from bench.store import RunFolder
from bench.suite import RunSpec, TaskSpec

WIDTH, CLASSES, MEMBERS = 8, 2, 2
SETTING = {"batch_size": 8, "augment": (), "optimizer": "adamw", "learning_rate": 0.02}
EPOCHS = 20
METHODS = ("single", "deep_ensemble", "batch_ensemble", "film_ensemble", "sigma_nens")


class TinyText(nn.Module):
    """Mean of the word vectors, a hidden layer, normalisation, classes; padding is left out."""

    def __init__(self, num_classes):
        super().__init__()
        self.embed = nn.Embedding(FIRST + VOCABULARY, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, ids):
        there = (ids != Words.pad).unsqueeze(-1)
        vectors = self.hidden(self.embed(ids))
        mean = (vectors * there).sum(dim=1) / there.sum(dim=1)
        return self.head(self.norm(mean).relu())


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.data.catalogue.text_tokenizer", lambda *_: Words())
    monkeypatch.setattr(
        "bench.planning.create_backbone", lambda name, classes, *_: TinyText(classes)
    )
    root = tmp_path / "data" / "reviews"
    (root / "ood").mkdir(parents=True)
    words = {"good": ("splendid", "moving", "witty"), "bad": ("tedious", "clumsy", "hollow")}
    rows = [
        f"the {words[label][i % 3]} story of picture number {i}"
        + " indeed" * (i % 4)
        + f"\t{label}"
        for i in range(36)
        for label in ("good", "bad")
    ]
    for name, part in (("train", rows[:48]), ("val", rows[48:60]), ("test", rows[60:])):
        (root / f"{name}.tsv").write_text("\n".join(part) + "\n")
    (root / "ood" / "news.tsv").write_text("stocks fall sharply\nrain is expected today\n")
    (root / "ood" / "tweets.tsv").write_text("what a story\n")
    return tmp_path / "data"


def run(method, **recipe):
    chosen = method_class(method)
    parameters = {} if method == "single" else {"members": MEMBERS}
    task = TaskSpec(
        name="text_folder:reviews",
        options={"typos": ["typo_swap"], "severities": [1, 5], "near": ["tweets"]},
    )
    return RunSpec(
        task=task,
        backbone="tiny_text",
        method=method,
        parameters=chosen(**parameters).model_dump(),
        seed=0,
        recipe=Recipe(**SETTING | recipe),
        budget=Budget(networks=MEMBERS, epochs=EPOCHS),
        evaluation=Evaluation(batch_size=5),
    )


def done(spec, data, folder):
    quiet = Reporter(lambda tick: None, lambda line: None, lambda line: None)
    return perform(spec, folder, Options(data, torch.device("cpu")), quiet)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_on_texts(method, data, tmp_path):
    spec = run(method)
    folder = RunFolder(tmp_path / "results", spec)
    assert done(spec, data, folder) == ("done", "")
    metrics = json.loads(folder.metrics_path.read_text())
    assert metrics["task"]["shift_origin"] == "generated"
    assert metrics["task"]["samples"] == {"train": 48, "validation": 12, "test": 12}
    records = {
        split: pd.read_parquet(folder.records_path(split)) for split in ("test", "shift", "ood")
    }
    assert len(records["test"]) == 12
    assert set(zip(records["shift"].corruption, records["shift"].severity, strict=True)) == {
        ("typo_swap", 1),
        ("typo_swap", 5),
    }
    assert records["ood"].groupby("source").size().to_dict() == {"news": 2, "tweets": 1}
    # One word decides, and each is in the training texts many times.
    accuracy = (records["test"].prediction == records["test"].label).mean()
    assert accuracy > 0.9


def test_records_do_not_depend_on_the_length_that_texts_are_padded_to(data):
    """Batches are cut to their longest text, so a text must get the same logits in any batch."""
    spec = run("sigma_nens")
    task = load_task(spec.task, data, spec.backbone)
    model = build_network(spec, method_class("sigma_nens")(members=2), task, 0).eval()
    whole = model(task.test.inputs)
    assert whole.shape == (12, MEMBERS, CLASSES)
    single = torch.cat([model(task.normalise(task.test.inputs[i : i + 1])) for i in range(12)])
    torch.testing.assert_close(single, whole)


def planned(method, data):
    spec = run(method)
    task = load_task(spec.task, data, spec.backbone)
    built = method_class(method)(**spec.parameters)
    network = build_network(spec, built, task, 0)
    return spec, built, task, network


def test_flops_are_those_of_the_linear_layers(data):
    """Looking a vector up costs none; a backward pass costs two forward passes."""
    spec, method, task, network = planned("single", data)
    length = max(len(text.split()) for text in first_texts(data, 8)) + 2
    hidden, head = 2 * 8 * length * WIDTH * WIDTH, 2 * 8 * WIDTH * CLASSES
    assert training_flops(network, method, task, spec) == 3 * (hidden + head)
    one = count_flops(network, task.normalise(task.test.inputs[:1]), lambda model, ids: model(ids))
    assert inference_flops(network, task) == one


def first_texts(data, count):
    lines = (data / "reviews/train.tsv").read_text().splitlines()[:count]
    return [line.split("\t")[0] for line in lines]


@pytest.mark.parametrize("method", METHODS)
def test_plans_are_matched_to_single_networks(method, data):
    spec, built, task, network = planned(method, data)
    plan = make_plan(spec, built, task, network, torch.device("cpu"))
    single = planned("single", data)
    cost = training_flops(single[3], single[1], task, spec)
    assert plan.units == pytest.approx(MEMBERS * EPOCHS * 48 / 8 * cost)
    assert abs(plan.deviation) < 0.02


def test_augmentation_of_texts_is_refused(data, tmp_path):
    spec = run("single", augment=("crop", "flip"))
    with pytest.raises(UserError) as caught:
        done(spec, data, RunFolder(tmp_path / "results", spec))
    line = str(caught.value)
    assert "recipe.augment: crop, flip can't be done to texts: set augment: []" in line
    assert not (tmp_path / "results").exists() or not any((tmp_path / "results").rglob("*.json"))


def test_step_time_and_chunks_are_measured_on_token_ids(data):
    spec = run("film_ensemble").model_copy(
        update={"budget": Budget(match="device_seconds", networks=2, epochs=1)}
    )
    task = load_task(spec.task, data, spec.backbone)
    method = method_class("film_ensemble")(members=2)
    network = build_network(spec, method, task, 0)
    plan = make_plan(spec, method, task, network, torch.device("cpu"))
    assert plan.steps > 0
    assert plan.member_chunk in (1, 2)
