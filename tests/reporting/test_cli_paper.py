"""``sigma-bench tables paper`` and ``report paper``: what a person types and sees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from paper_results import ship, store

from bench.cli import run


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ship(monkeypatch, tmp_path / "suites")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return Path("results")


@pytest.mark.parametrize("verb", ["tables", "report"])
def test_nothing_run_is_one_line_with_the_first_command(
    results: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([verb, "paper"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "paper: no run of its suites is done in results" in shown.err
    assert "`sigma-bench run cifar10 --scale paper --data DIR`" in shown.err
    assert not results.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "seeds=[0]"], "--set: the paper's suites are taken as they are"),
        (["--plugin", "mine.py"], "--plugin: the paper's suites are taken as they are"),
        (["--scale", "tinny"], "did you mean tiny"),
        (["--results", "suites/cifar10.yaml"], "is a file, not a folder"),
    ],
)
def test_options_without_a_meaning_are_refused(
    results: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(results, "cifar10", only=lambda spec: spec.seed == 0)
    assert run(["tables", "paper", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (results / "paper").exists()


def test_tables_claims_and_gaps_are_shown(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.paper.writing.count_parameters", lambda spec, classes: 24_000_000)
    monkeypatch.setattr("bench.cli.writing._paper_report", lambda *_: None)
    store(results, "cifar10", only=lambda spec: spec.method != "packed_ensemble")
    assert run(["tables", "paper"]) == 0
    out = capsys.readouterr().out
    assert "T1 CIFAR: digits (cifar10 at scale tiny), resnet8" in out
    assert "90.00" in out
    assert "T1 CIFAR: digits (cifar100 at scale paper): cifar100 at scale paper: 0 of 36" in out
    assert "accuracy: σN-Ens is as accurate as a deep ensemble." in out
    assert "holds at scale tiny; cifar10: digits, resnet8" in out
    assert "  sigma-bench run cifar10 --scale tiny --data DIR  (6 of 8 runs done)" in out
    assert "  sigma-bench run sst2 --scale paper --data DIR  (0 of 12 runs done)" in out
    folder = results / "paper" / "tables"
    assert len(list(folder.iterdir())) == 30
    assert "30 files in results/paper/tables" in out


def test_a_narrow_terminal_loses_no_method(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("bench.paper.writing.count_parameters", lambda spec, classes: 24_000_000)
    monkeypatch.setattr("bench.cli.writing._paper_report", lambda *_: None)
    store(results, "cifar10")
    assert run(["tables", "paper"]) == 0
    table = capsys.readouterr().out.split("accuracy: ")[0]
    grid = [line for line in table.splitlines() if line.strip().startswith("sigma_nens")]
    assert len(grid) > 1
    assert all(len(line) <= 60 for line in grid)


def test_another_scale_is_asked_for_by_name(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.paper.writing.count_parameters", lambda spec, classes: 24_000_000)
    monkeypatch.setattr("bench.cli.writing._paper_report", lambda *_: None)
    store(results, "cifar10", "paper")
    store(results, "cifar10", "tiny", scores=lambda spec: {"accuracy": 0.5})
    assert run(["tables", "paper", "--scale", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "cifar10 at scale tiny" in out
    assert "50.00" in out
    assert "90.00" not in out
    first = (results / "paper" / "tables" / "t1-cifar.md").read_text(encoding="utf-8")
    assert "sigma-bench tables paper --scale tiny" in first.splitlines()[0]


def test_a_suites_own_tables_take_a_scale(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store(results, "cifar10", "tiny")
    assert run(["tables", "cifar10", "--scale", "tiny"]) == 0
    assert "digits, resnet8" in capsys.readouterr().out
    assert (results / "cifar10-tiny" / "tables" / "main.md").exists()
    assert run(["tables", "cifar10"]) == 2
    assert "cifar10-paper" in capsys.readouterr().err


SCRIPT = """
import sys
from pathlib import Path
import pytest
from paper_results import ship, store
from bench.cli import run

patch = pytest.MonkeyPatch()
ship(patch, Path("suites"))
wide = {("wrn28_8", "sigma_nens"), ("wrn28_10", "deep_ensemble")}
store(Path("results"), "cifar100", only=lambda spec: (spec.backbone, spec.method) in wide)
assert run(["tables", "paper"]) == 0
slow = {"torch", "torchvision", "timm", "lightning", "transformers"} & set(sys.modules)
assert not slow, slow
"""


def test_nothing_heavy_is_imported_where_runs_say_it_all(tmp_path: Path) -> None:
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        env={"PYTHONPATH": f"{here}:{here.parents[1]}", "PATH": "", "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "results" / "paper" / "tables" / "claims.md").exists()
    assert (tmp_path / "results" / "paper" / "figures" / "figures.md").exists()
