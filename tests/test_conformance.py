"""Conformance checks pass every method that ships, and each catches the mistake it is there for."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from bench import registry
from bench.cli.checking import render
from bench.conformance import CheckResult, check_method, learning, reload
from bench.conformance.checks import CHECKS
from bench.conformance.measures import gap
from bench.conformance.specimen import Specimen
from bench.conformance.training import gradients
from bench.method import Method
from bench.recipe import Recipe
from bench.weights import load_tensors


@pytest.fixture(autouse=True)
def same_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the fresh process does, done here: starting one for each method takes seconds."""
    monkeypatch.setattr(reload, "ask", reload.answer)


def failures(results: list[CheckResult]) -> dict[str, str]:
    return {result.name: result.detail for result in results if result.passed is False}


# --- methods that are right ---------------------------------------------------------------------

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("single", {}),
    ("deep_ensemble", {"members": 2}),
    ("batch_ensemble", {"members": 3}),
    ("batch_ensemble", {"members": 3, "batch": "split", "init": "normal"}),
    ("packed_ensemble", {"members": 2}),
    ("film_ensemble", {"members": 3}),
    ("sigma_nens", {"members": 3}),
    ("sigma_nens", {"members": 1}),
    ("sigma_nens", {"members": 2, "head": "shared", "affine": "full"}),
]


@pytest.mark.parametrize(("name", "parameters"), VARIANTS)
def test_methods_that_ship_pass(name: str, parameters: dict[str, Any]) -> None:
    results = check_method(registry.method_class(name), parameters)
    assert [result.name for result in results] == [check.name for check in CHECKS]
    assert {result.name: result.detail for result in results if not result.passed} == {}


def test_every_method_that_ships_is_tried() -> None:
    assert {name for name, _ in VARIANTS} == set(registry.method_names())


def test_every_method_loads_in_a_fresh_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process for all: it must know nothing but the stored files."""
    monkeypatch.undo()
    folders, expected = [], []
    for number, (name, parameters) in enumerate(VARIANTS):
        specimen = Specimen.of(registry.method_class(name), parameters, "resnet8")
        model = specimen.model().eval()
        folders.append(tmp_path / str(number))
        reload.store(folders[-1], specimen, model)
        with torch.no_grad():
            expected.append(model(specimen.images))
    reload.ask(*folders)
    for folder, logits in zip(folders, expected, strict=True):
        found, _ = load_tensors(folder / "logits.safetensors")
        assert gap(found["logits"], logits) < 1e-6


def test_a_fresh_process_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match=r"can't load the model: FileNotFoundError.*what.json"):
        reload.ask(tmp_path)


def test_the_template_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plugins", {})
    path = tmp_path / "my_idea.py"
    path.write_text(render("my_idea", path.name), encoding="utf-8")
    assert registry.load_plugin(path) == ["my_idea"]
    for parameters in ({}, {"members": 1}, {"members": 3, "head_learning_rate": 2.0}):
        results = check_method(registry.method_class("my_idea"), parameters)
        assert {result.name: result.detail for result in results if not result.passed} == {}


@pytest.mark.parametrize("name", ["film_ensemble", "sigma_nens"])
def test_a_gradient_that_is_nought_on_paper_is_no_mistake(name: str) -> None:
    """A shift that the next layer's normalisation takes out again leaves rounding behind."""
    backbone = "timm:mobilenetv3_small_050"
    specimen = Specimen.of(registry.method_class(name), {"members": 2}, backbone)
    found = gradients(specimen, chunk=0, seed=1)
    largest = max(float(value.abs().max()) for key, value in found.items() if "gradient" in key)
    shift = found["the gradient of module.blocks.0.0.bn2.bias"]
    assert 0 < shift.abs().max() < 1e-6 * largest
    assert learning.every_parameter_learns(specimen).startswith("all")
    assert learning.member_chunks(specimen) == "chunks of [1], in eval mode and in training"


# --- methods with one mistake each --------------------------------------------------------------


class Heads(nn.Module):
    """M linear heads on a shared trunk; the mistakes below change one thing of it."""

    def __init__(self, backbone: nn.Module, members: int, classes: int) -> None:
        super().__init__()
        features = backbone.linear.in_features
        backbone.linear = nn.Identity()
        self.trunk = backbone
        self.heads = nn.ModuleList(nn.Linear(features, classes) for _ in range(members))

    def forward(self, x: Tensor) -> Tensor:
        features = self.trunk(x)
        return torch.stack([head(features) for head in self.heads], dim=1)


class Right(Method):
    """Right; the others inherit from it."""

    name: ClassVar[str] = "right"
    network: ClassVar[type[nn.Module]] = Heads
    members: PositiveInt = 3

    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        return self.network(backbone, self.members, num_classes)


def test_the_base_of_the_broken_methods_passes() -> None:
    assert {r.name: r.detail for r in check_method(Right) if not r.passed} == {}


class Altered(Heads):
    """Logits that a mistake then changes."""

    def alter(self, logits: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.alter(super().forward(x))


def broken(network: type[nn.Module]) -> type[Method]:
    """The right method with another network, at the top level of this module."""
    name = f"Broken{network.__name__}"
    cls = type(name, (Right,), {"network": network, "__module__": __name__, "__qualname__": name})
    globals()[name] = cls
    return cls


class Identical(Altered):
    def alter(self, logits: Tensor) -> Tensor:
        return logits.mean(1, keepdim=True).expand_as(logits)


class Transposed(Altered):
    def alter(self, logits: Tensor) -> Tensor:
        return logits.transpose(0, 1)


class OneTooFew(Altered):
    def alter(self, logits: Tensor) -> Tensor:
        return logits if self.training else logits[:, 1:]


class WrongInTraining(Altered):
    def alter(self, logits: Tensor) -> Tensor:
        return logits[:, :2] if self.training else logits


class Words(Altered):
    def alter(self, logits: Tensor) -> Any:
        return {"logits": logits}


class Whole(Altered):
    def alter(self, logits: Tensor) -> Tensor:
        return logits.round().long()


class Infinite(Altered):
    def alter(self, logits: Tensor) -> Tensor:
        return logits / 0.0


class BatchOfOne(Altered):
    def alter(self, logits: Tensor) -> Tensor:
        return logits.squeeze()


class Drawing(Altered):
    def alter(self, logits: Tensor) -> Tensor:
        return functional.dropout(logits, 0.5, training=True)


class Counting(Heads):
    def __init__(self, backbone: nn.Module, members: int, classes: int) -> None:
        super().__init__(backbone, members, classes)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


class ByPlace(Altered):
    def alter(self, logits: Tensor) -> Tensor:
        if self.training:
            return logits
        return logits + torch.arange(len(logits), device=logits.device).view(-1, 1, 1)


class BatchStatistics(Heads):
    def __init__(self, backbone: nn.Module, members: int, classes: int) -> None:
        super().__init__(backbone, members, classes)
        self.trunk.bn1 = nn.BatchNorm2d(16, track_running_stats=False)


class BatchSize(Altered):
    def alter(self, logits: Tensor) -> Tensor:
        return logits if self.training else logits * len(logits)


class UnusedParameter(Heads):
    def __init__(self, backbone: nn.Module, members: int, classes: int) -> None:
        super().__init__(backbone, members, classes)
        self.forgotten = nn.Parameter(torch.ones(3))


class DetachedMember(Heads):
    def __init__(self, backbone: nn.Module, members: int, classes: int) -> None:
        super().__init__(backbone, members, classes)
        self.bias = nn.Parameter(torch.randn(members, classes))

    def forward(self, x: Tensor) -> Tensor:
        bias = torch.cat([self.bias[:1], self.bias[1:].detach()])
        return super().forward(x) + bias


class HeadsInAList(Heads):
    def __init__(self, backbone: nn.Module, members: int, classes: int) -> None:
        super().__init__(backbone, members, classes)
        self.heads = None
        self.hidden = [nn.Linear(64, classes) for _ in range(members)]

    def forward(self, x: Tensor) -> Tensor:
        features = self.trunk(x)
        return torch.stack([head(features) for head in self.hidden], dim=1)


class PlainTensor(Heads):
    def __init__(self, backbone: nn.Module, members: int, classes: int) -> None:
        super().__init__(backbone, members, classes)
        self.mask = torch.rand(members, 1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.mask


class Unsaved(Heads):
    def __init__(self, backbone: nn.Module, members: int, classes: int) -> None:
        super().__init__(backbone, members, classes)
        self.register_buffer("mask", torch.rand(members, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.mask


class OtherKeys(Heads):
    def __init__(self, backbone: nn.Module, members: int, classes: int) -> None:
        super().__init__(backbone, members, classes)
        self.register_buffer(f"scale{int(torch.randint(10**9, ()))}", torch.ones(()))


class OwnGenerator(Heads):
    def __init__(self, backbone: nn.Module, members: int, classes: int) -> None:
        super().__init__(backbone, members, classes)
        start = np.random.default_rng().normal(size=(members, classes))
        self.bias = nn.Parameter(torch.tensor(start, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.bias


class Uncopiable(Heads):
    def __init__(self, backbone: nn.Module, members: int, classes: int) -> None:
        super().__init__(backbone, members, classes)
        self.lock = threading.Lock()


class ReadsValues(Altered):
    def alter(self, logits: Tensor) -> Tensor:
        return logits if logits.mean().item() < 1e9 else -logits


class Raises(Right):
    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        raise KeyError("no layer of that name")


class NoModule(Right):
    def build(self, backbone: nn.Module, num_classes: int) -> Any:
        return lambda x: backbone(x)


class Refuses(Right):
    def supports(self, backbone: nn.Module) -> str | None:
        return "it has no attention"


class MeanLoss(Right):
    def loss(self, model: nn.Module, logits: Tensor, target: Tensor) -> Tensor:
        return super().loss(model, logits, target) / logits.shape[1]


class JointLoss(Right):
    def loss(self, model: nn.Module, logits: Tensor, target: Tensor) -> Tensor:
        return super().loss(model, logits, target) - logits.var(1, correction=0).mean()


class VectorLoss(Right):
    def loss(self, model: nn.Module, logits: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(logits[:, 0], target, reduction="none")


class NotANumber(Right):
    def loss(self, model: nn.Module, logits: Tensor, target: Tensor) -> Tensor:
        return super().loss(model, logits, target) * float("nan")


class VectorPenalty(Right):
    def penalty(self, model: nn.Module) -> Tensor | None:
        return model.heads[0].bias


class ForgetsAGroup(Right):
    def parameter_groups(self, model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
        return [{"params": list(model.trunk.parameters())}]


class TwiceInAGroup(Right):
    def parameter_groups(self, model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
        return [{"params": list(model.parameters())}, {"params": list(model.heads.parameters())}]


class Frozen(Right):
    def parameter_groups(self, model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
        rest = {"params": list(model.trunk.parameters())}
        return [rest, {"params": list(model.heads.parameters()), "lr": 0.0}]


class NotSeparable(Right):
    separable: ClassVar[bool] = True


class SlicedHeads(Heads):
    """Some members alone, in front of a trunk whose batch statistics move once a call."""

    def forward(self, x: Tensor, members: slice | None = None) -> Tensor:
        logits = super().forward(x)
        return logits if members is None else logits[:, members]


class SharedStatistics(Right):
    network: ClassVar[type[nn.Module]] = SlicedHeads
    separable: ClassVar[bool] = True


class WrongSlice(SlicedHeads):
    def forward(self, x: Tensor, members: slice | None = None) -> Tensor:
        logits = super().forward(x)
        return logits if members is None else logits[:, : members.stop - members.start]


class WrongMembers(Right):
    network: ClassVar[type[nn.Module]] = WrongSlice
    separable: ClassVar[bool] = True


class FixedSeed(Right):
    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        torch.manual_seed(0)
        for part in backbone.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
        return super().build(backbone, num_classes)


class LosesItsType(Right):
    widths: Any = (1, 2)


class SameNetworks(Right):
    """Independent members that all start from one seed."""

    independent: ClassVar[bool] = True

    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        torch.manual_seed(0)
        for part in backbone.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
        return Heads(backbone, 1, num_classes)


def hidden_class() -> type[Method]:
    class Hidden(Right):
        pass

    return Hidden


BROKEN: list[tuple[type[Method], str, str]] = [
    (LosesItsType, "hyper-parameters", r"widths is \(1, 2\), and \[1, 2\] after"),
    (Raises, "build", r"KeyError: 'no layer of that name' \(.*test_conformance.py:\d+, in build\)"),
    (NoModule, "build", "build gives a function, not a torch.nn.Module"),
    (Refuses, "build", r"refuses the backbone resnet8 \(it has no attention\).*--backbone"),
    (
        broken(Transposed),
        "logits",
        r"eval mode, batch size 1: logits are \[3, 1, 7\], not .*1, 3, 7",
    ),
    (broken(OneTooFew), "logits", r"logits are \[1, 2, 7\], not .* \[1, 3, 7\]"),
    (broken(WrongInTraining), "logits", r"while training: logits are \[8, 2, 7\]"),
    (broken(Words), "logits", "gives a dict, not a tensor"),
    (broken(Whole), "logits", "torch.int64, not floating point"),
    (broken(Infinite), "logits", "not finite"),
    (broken(BatchOfOne), "logits", r"batch size 1: logits are \[3, 7\]"),
    (MeanLoss, "loss", "must be a sum over members"),
    (JointLoss, "loss", "must be a sum over members"),
    (VectorLoss, "loss", "without dimensions"),
    (NotANumber, "loss", "loss is nan"),
    (VectorPenalty, "loss", "penalty must be one finite number"),
    (broken(HeadsInAList), "registered", r"trainable tensor \[7(, 64)?\] is used"),
    (broken(PlainTensor), "registered", "mask is a plain tensor.*register_buffer"),
    (ForgetsAGroup, "parameter groups", "'heads.0.weight' is trainable and in no group"),
    (TwiceInAGroup, "parameter groups", "in two groups"),
    (broken(UnusedParameter), "gradients", "forgotten did not move in 3 training steps"),
    (broken(DetachedMember), "gradients", "member 1 of bias did not move"),
    (Frozen, "gradients", "heads.0.weight did not move"),
    (broken(Identical), "members differ", "members 0 and 1 give the same logits"),
    (broken(Drawing), "deterministic", "differ by .*unless self.training"),
    (broken(Counting), "deterministic", "changes calls"),
    (broken(ByPlace), "batch order", "re-ordered.*every member must see every sample"),
    (broken(BatchStatistics), "batch independence", "on the other samples.*running statistics"),
    (broken(BatchSize), "batch independence", "on the size of the batch"),
    (NotSeparable, "member chunks", "TypeError.*members"),
    (SharedStatistics, "member chunks", "buffer trunk.bn1.running_mean is not.*separable to False"),
    (
        WrongMembers,
        "member chunks",
        r"model\(x, members=slice\(1, 2\)\) is not model\(x\)\[:, 1:2\]",
    ),
    (broken(OwnGenerator), "seeds", "bias differs between two builds.*torch's global generator"),
    (FixedSeed, "seeds", "another seed gives the same weights: set no seed in build"),
    (broken(Unsaved), "save and load", "logits differ by .*state_dict"),
    (broken(OtherKeys), "save and load", "state_dict"),
    (hidden_class(), "save and load", "not at the top level of"),
    (broken(Uncopiable), "cost", "TypeError: .*lock"),
    (broken(ReadsValues), "cost", r"(?i)meta.*test_conformance.py:\d+, in alter"),
]


@pytest.mark.parametrize(
    ("cls", "check", "detail"), BROKEN, ids=[f"{cls.__name__}-{check}" for cls, check, _ in BROKEN]
)
def test_a_mistake_fails_its_own_check_alone(cls: type[Method], check: str, detail: str) -> None:
    found = failures(check_method(cls))
    assert list(found) == [check]
    assert re.search(detail, found[check]), found[check]
    assert "\n" not in found[check]


def test_independent_members_that_start_alike_are_noticed() -> None:
    found = failures(check_method(SameNetworks))
    assert list(found) == ["members differ", "seeds"]
    assert "each is a network of its own: is a seed set in build?" in found["members differ"]


def test_every_check_has_a_mistake_that_it_catches() -> None:
    assert {check for _, check, _ in BROKEN} == {check.name for check in CHECKS}


def test_what_needs_a_failed_check_is_not_tried_and_says_so() -> None:
    results = check_method(Raises)
    assert [r.name for r in results if r.passed is None] == [
        check.name for check in CHECKS if check.name not in ("hyper-parameters", "build")
    ]
    assert all("needs 'build'" in r.detail for r in results if r.passed is None)
