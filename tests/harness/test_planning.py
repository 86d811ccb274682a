"""Budgets of the real methods, against counts by hand."""

from math import prod
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_uncertainty.layers import PackedLinear
from torch_uncertainty.layers.packed import PackedConv2d

from bench.backbones import create_backbone
from bench.budget import TOLERANCE
from bench.data.catalogue import load_task
from bench.planning import build_network, choose_chunk, inference_flops, make_plan, training_flops
from bench.registry import method_class
from bench.suite_files import load_suite

METHODS = (
    "single",
    "deep_ensemble",
    "batch_ensemble",
    "packed_ensemble",
    "film_ensemble",
    "sigma_nens",
)


@pytest.fixture(scope="module")
def runs():
    return {run.method: run for run in load_suite("digits", ("seeds=[0]",)).runs()}


@pytest.fixture(scope="module")
def task(runs):
    return load_task(runs["single"].task, Path("nowhere"))


def built(run, task):
    method = method_class(run.method)(**run.parameters)
    return method, build_network(run, method, task, 0)


def forward_by_hand(model, x):
    """Forward FLOPs of each convolution and linear layer, in the order they are called."""
    found = []

    def note(layer, inputs, output):
        if isinstance(layer, nn.Conv2d):
            weight = layer.weight
            found.append(2 * output.shape[0] * prod(output.shape[2:]) * prod(weight.shape))
        else:
            found.append(2 * output.shape[0] * prod(layer.weight.shape))

    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    handles = [layer.register_forward_hook(note) for layer in layers]
    model.eval()(x)
    for handle in handles:
        handle.remove()
    return found


def test_single_by_hand(runs, task):
    _, model = built(runs["single"], task)
    layers = forward_by_hand(model, torch.zeros(32, *task.input_shape))
    method, model = built(runs["single"], task)
    # Two products a layer in the backward pass, but none for the gradient of the image.
    expected = 3 * sum(layers) - layers[0]
    assert training_flops(model, method, task, runs["single"]) == expected
    per_image = forward_by_hand(model, torch.zeros(1, *task.input_shape))
    assert inference_flops(model, task) == sum(per_image)


@pytest.mark.parametrize("name", ["deep_ensemble", "batch_ensemble", "film_ensemble", "sigma_nens"])
def test_others_cost_single_networks(runs, task, name):
    single, plain = built(runs["single"], task)
    one = training_flops(plain, single, task, runs["single"])
    method, model = built(runs[name], task)
    spent = training_flops(model, method, task, runs[name])
    # Each sample trains one member of BatchEnsemble, by default, and all members of the others.
    members = 1 if name in ("deep_ensemble", "batch_ensemble") else 4
    extra = 0
    if name == "batch_ensemble":
        # The image meets a member's factor, whose gradient needs the first layer's. Factors and
        # biases go to their samples by a product with [B, M], and their gradients come back so.
        widths = [p.shape[1] for p in model.parameters() if p.ndim == 2 and len(p) == 4]
        first = forward_by_hand(plain, torch.zeros(32, *task.input_shape))[0]
        extra = first + 2 * (2 * 32 * 4 * sum(widths))
    assert spent == members * one + extra


def test_packed_by_hand(runs, task):
    method, model = built(runs["packed_ensemble"], task)
    found = []

    def note(layer, inputs, output):
        kernel = getattr(layer, "conv", layer)
        # What a packed layer really multiplies, whatever it calls itself.
        found.append((type(layer).__name__, tuple(kernel.weight.shape), tuple(output.shape)))

    for layer in model.modules():
        if isinstance(layer, PackedConv2d | PackedLinear):
            layer.register_forward_hook(note)
    model.eval()(torch.zeros(32, *task.input_shape))
    convolutions = [
        2 * output[0] * prod(output[2:]) * prod(weight)
        for kind, weight, output in found
        if kind == "PackedConv2d"
    ]
    counted = training_flops(built(runs["packed_ensemble"], task)[1], method, task, runs["single"])
    linear = counted - (3 * sum(convolutions) - convolutions[0])
    # 4 members of 8 classes, 128 features in all; a dense product would be 4 times as much.
    assert 3 * 2 * 32 * (128 * 32 // 4) <= linear <= 3 * 2 * 32 * (128 * 32)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_meets_the_budget(runs, task, name):
    run = runs[name].model_copy(
        update={"recipe": runs[name].recipe.model_copy(update={"member_chunk": 4})}
    )
    method, model = built(run, task)
    plan = make_plan(run, method, task, model, torch.device("cpu"))
    spent = plan.networks * plan.steps * plan.step_flops
    single, plain = built(runs["single"], task)
    one = training_flops(plain, single, task, runs["single"])
    steps = run.budget.epochs * len(task.train) / run.recipe.batch_size
    assert abs(spent / (4 * steps * one) - 1) <= TOLERANCE
    assert plan.deviation == pytest.approx(spent / (4 * steps * one) - 1)


def test_a_budget_of_seconds(runs, task):
    update = {"budget": runs["single"].budget.model_copy(update={"match": "device_seconds"})}
    run = runs["single"].model_copy(update=update)
    method, model = built(run, task)
    plan = make_plan(run, method, task, model, torch.device("cpu"))
    assert plan.units > 0
    assert abs(plan.deviation) <= 0.5 / plan.steps + 1e-9


def test_chunks_as_asked_and_never_with_dropout(runs, task, monkeypatch):
    run = runs["sigma_nens"]
    method, model = built(run, task)
    recipe = run.recipe.model_copy(update={"member_chunk": 3})
    asked = run.model_copy(update={"recipe": recipe})
    assert choose_chunk(model, method, task, asked, torch.device("cpu")) == 3
    timed = []
    monkeypatch.setattr("bench.planning.step_seconds", lambda *_, **__: timed.append(1) or 1.0)
    choose_chunk(model, method, task, run, torch.device("cpu"))
    assert len(timed) == 3
    # Also where no module says so: a function that drops, called from the forward of a layer.
    model.module.bn1.register_forward_hook(lambda _, __, y: functional.dropout(y, 0.1))
    assert choose_chunk(model, method, task, run, torch.device("cpu")) == 4
    assert len(timed) == 3


def test_the_same_backbone_for_every_method_of_a_seed(runs, task):
    def first_weight(name):
        _, model = built(runs[name], task)
        return next(p for p in model.parameters() if p.shape == (16, 1, 3, 3)).detach()

    torch.manual_seed(5)
    other = create_backbone("resnet8", 8, task.input_shape)
    expected = first_weight("single")
    assert not any(torch.equal(p, expected) for p in other.parameters())
    for name in ("deep_ensemble", "film_ensemble", "sigma_nens", "batch_ensemble"):
        assert torch.equal(first_weight(name), expected), name
