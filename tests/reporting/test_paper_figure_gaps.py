"""What the paper's figures lack is said: in captions, in the list of what is not drawn."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from paper_figure_results import paper_of, store, suite_of

from bench.paper.figures import LIST, paper_figures, write_paper_figures
from bench.store import SuiteFolder
from bench.suite import RunSpec


@pytest.fixture(autouse=True)
def _any_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No backbone is built here, so that no file of weights need be there."""
    monkeypatch.setattr("bench.suite.check_backbone_name", lambda name: None)


def test_nothing_is_drawn_without_results_but_everything_is_named(tmp_path: Path) -> None:
    found = paper_figures(paper_of(tmp_path))
    assert found.drawings == ()
    kinds = [one.name.split("-")[0] for one in found.absent]
    assert list(dict.fromkeys(kinds)) == ["F1", "F2", "F3", "F4", "F5", "F6"]
    commands = {one.name: one.command for one in found.absent}
    assert commands["F1-frontier"] == "sigma-bench run temperature --data DIR"
    assert commands["F3-members"] == "sigma-bench run members --data DIR"
    assert commands["F6-cost-cifar100"] == "sigma-bench run cifar100 --data DIR"
    [missing] = [one for one in found.absent if one.name == "F6-cost-imagenet"]
    assert "imagenet" in missing.reason

    listed = write_paper_figures(paper_of(tmp_path))[0].read_text(encoding="utf-8")
    for one in found.absent:
        assert one.name in listed
        assert one.command in listed


def test_captions_say_what_is_missing_and_how_many_seeds(tmp_path: Path) -> None:
    def some(spec: RunSpec) -> bool:
        if spec.method == "deep_ensemble":
            return False
        return "@" not in spec.backbone and (spec.method != "sigma_nens" or spec.seed == 0)

    store(tmp_path, "temperature", only=some)
    store(tmp_path, "cifar10", only=lambda spec: spec.seed == 0 and spec.backbone == "resnet18")
    captions = {one.name: one.caption for one in paper_figures(paper_of(tmp_path)).drawings}
    first = captions["F1-frontier"]
    assert "deep_ensemble on cifar10, resnet18 (2 of 2 seeds)" in first
    assert "sigma_nens (temperature=5.0) on cifar10, resnet18 (1 of 2 seeds)" in first
    assert "single on cifar10, resnet18" not in first
    assert "all of cifar10, resnet18@weights.safetensors" in first
    assert "to fill it: sigma-bench run temperature --data DIR" in first
    assert "n = 1 to 2 seeds" in first
    second = captions["F2-severity-resnet18"]
    assert "n = 1 seed, no error bars" in second
    assert "all of cifar100, resnet18" in second
    assert "generated" in second
    assert "F5-gates-resnet18_pretrained" not in captions


def packed_eight(spec: RunSpec) -> bool:
    return spec.method == "packed_ensemble" and spec.parameters["members"] == 8


def test_what_does_not_apply_is_no_gap(tmp_path: Path) -> None:
    store(tmp_path, "members", refused=packed_eight)
    [caption] = [
        one.caption
        for one in paper_figures(paper_of(tmp_path)).drawings
        if one.name == "F3-members"
    ]
    assert "Not applicable: packed_ensemble (members=8) on cifar100, resnet18." in caption
    assert "Not run yet" not in caption


def test_runs_without_gates_or_records_are_named(tmp_path: Path) -> None:
    def without_gates(metrics: dict[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in metrics.items() if name != "method"}

    store(tmp_path, "temperature", only=lambda spec: spec.parameters.get("temperature") != 5)
    store(
        tmp_path,
        "temperature",
        only=lambda spec: spec.parameters.get("temperature") == 5,
        change=without_gates,
    )
    store(tmp_path, "cifar100")
    folder = SuiteFolder(tmp_path, "cifar100")
    for spec in suite_of("cifar100").runs():
        if (spec.method == "single" and spec.seed == 0) or spec.method == "deep_ensemble":
            folder.run(spec).records_path("test").write_bytes(b"PAR1")
    drawn = {one.name: one for one in paper_figures(paper_of(tmp_path)).drawings}
    assert "No gates were recorded for sigma_nens (temperature=5.0)." in (
        drawn["F5-gates-resnet18"].caption
    )
    reliability = drawn["F4-reliability-cifar100-resnet18"]
    assert "single (1 of 2 seeds); deep_ensemble (2 of 2 seeds)" in reliability.caption
    titles = [axes.get_title() for axes in reliability.draw().axes]
    assert titles == ["Single", "Packed-Ensembles", "σN-Ens"]


def test_a_figure_that_can_be_drawn_no_more_is_removed(tmp_path: Path) -> None:
    store(tmp_path, "members")
    folder = paper_of(tmp_path).folder.figures
    write_paper_figures(paper_of(tmp_path))
    mine = folder / "F7-mine.svg"
    mine.write_text("mine")
    assert (folder / "F3-members.svg").exists()
    shutil.rmtree(tmp_path / "members")
    write_paper_figures(paper_of(tmp_path))
    assert sorted(path.name for path in folder.iterdir()) == ["F7-mine.svg", LIST]


def test_runs_that_lack_what_a_figure_shows_are_not_called_missing(tmp_path: Path) -> None:
    store(tmp_path, "temperature", only=lambda spec: spec.method == "single")
    reasons = {one.name: one.reason for one in paper_figures(paper_of(tmp_path)).absent}
    assert reasons["F1-frontier"].endswith(" has what it shows")
    assert reasons["F3-members"].endswith(" is done")
