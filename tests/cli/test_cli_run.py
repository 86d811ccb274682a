"""``run``, ``status``, ``tables`` and ``report`` on real images, end to end and small."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench import execution, registry
from bench.cli import run
from bench.data.catalogue import load_task
from bench.suite_files import load_suite

SUITE = """
name: tiny
tasks: [{name: digits, corruptions: [rotation], severities: [1, 5]}]
backbones: [resnet8]
methods: [single, {name: deep_ensemble, label: pair, members: 2}]
seeds: [0, 1]
budget: {networks: 1, epochs: 4}
recipe: {batch_size: 64, augment: []}
"""

PLUGIN = '''
"""Methods that go wrong."""
from typing import ClassVar
from bench.method import Method


class Stumbles(Method):
    """Stumbles."""

    name: ClassVar[str] = "stumbles"

    def build(self, backbone, num_classes):
        raise RuntimeError("it stumbles\\nover two lines [bold]")


class Picky(Method):
    """Picky."""

    name: ClassVar[str] = "picky"

    def supports(self, backbone):
        return "it has no attention"

    def build(self, backbone, num_classes):
        return backbone
'''

ONCE = ["--workers", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one method of the suite has run, with one seed."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "tiny.yaml").write_text(SUITE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(["run", "tiny.yaml", "--method", "single", "--seed", "0", *ONCE]) == 0
    return folder


@pytest.fixture
def here(done: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(done)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(registry, "_plugins", {})
    return done


def states(capfd: pytest.CaptureFixture[str], *words: str) -> dict[tuple[str, int], str]:
    capfd.readouterr()
    assert run(["status", "tiny.yaml", "--json", *words]) == 0
    content = json.loads(capfd.readouterr().out)
    found = {(one["label"], one["seed"]): one["state"] for one in content["runs"]}
    counts = {state: count for state, count in content["counts"].items() if count}
    assert counts == {state: list(found.values()).count(state) for state in set(found.values())}
    return found


def test_run_writes_everything_and_says_where(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (run_folder,) = (here / "results/tiny/runs").iterdir()
    assert json.loads((run_folder / "metrics.json").read_text())["test"]["accuracy"] > 0
    assert (here / "results/tiny/report.html").stat().st_size > 10_000
    assert list((here / "results/tiny/figures").glob("*.svg"))
    main = (here / "results/tiny/tables/main.md").read_text()
    assert "single" in main
    assert "`sigma-bench tables tiny.yaml`" in main


def test_run_skips_what_is_done(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a run that is done was given out again")

    monkeypatch.setattr(execution, "execute", never)
    capfd.readouterr()
    assert run(["run", "tiny.yaml", "--method", "single", "--seed", "0", *ONCE]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "tiny: 1 runs, 1 done already, in results/tiny" in out
    assert "Accuracy" in out
    assert "Tables, figures and report.html: results/tiny" in out


def test_a_damaged_record_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(SUITE)
    words = ["run", "tiny.yaml", "--method", "single", "--seed", "0", "--no-tables", *ONCE]
    assert run(words) == 0
    (record,) = (tmp_path / "results").rglob("test.parquet")
    whole = record.read_bytes()
    record.write_bytes(whole[:-100])
    capfd.readouterr()
    assert run(words) == 0
    out, _ = capfd.readouterr()
    assert "test.parquet: content and digest disagree: redoing it" in out
    assert record.read_bytes() == whole
    assert not (tmp_path / "results/tiny/tables").exists()


def test_status_shows_every_run(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert states(capfd) == {
        ("single", 0): "done",
        ("single", 1): "not run",
        ("pair", 0): "not run",
        ("pair", 1): "not run",
    }
    assert run(["status", "tiny.yaml"]) == 0
    out = capfd.readouterr().out
    assert "tiny: 4 runs: 1 done, 3 not run" in out
    rows = [line.split() for line in out.splitlines() if line.split()[:1] in (["single"], ["pair"])]
    assert ["single", "0", "done"] in rows
    assert ["pair", "1", "not", "run"] in rows


def test_a_setting_that_changes_a_run_is_another_run(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = states(capfd, "--set", "budget.epochs=2")
    assert set(found.values()) == {"not run"}


def test_tables_are_written_again_and_printed(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (here / "results/tiny/tables/main.csv").read_bytes()
    (here / "results/tiny/tables/main.csv").unlink()
    capfd.readouterr()
    assert run(["tables", "tiny.yaml"]) == 0
    out = capfd.readouterr().out
    assert "single" in out
    assert "Accuracy" in out
    assert "files in results/tiny/tables" in out
    assert (here / "results/tiny/tables/main.csv").read_bytes() == before


def test_report_is_written_again(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "results/tiny/report.html").unlink()
    capfd.readouterr()
    assert run(["report", "tiny.yaml"]) == 0
    out = capfd.readouterr().out
    assert "results/tiny/report.html" in out
    assert "files in results/tiny/figures" in out
    assert (here / "results/tiny/report.html").exists()


def test_a_failure_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_plugins", {})
    (tmp_path / "tiny.yaml").write_text(SUITE)
    (tmp_path / "wrong.py").write_text(PLUGIN)
    plugin = ["--plugin", "wrong.py", "--set", "methods=[stumbles, picky, single]"]
    capfd.readouterr()
    assert run(["run", "tiny.yaml", "--seed", "0", *plugin, *ONCE]) == 1
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    line = next(one for one in out.splitlines() if one.strip().startswith("failed  stumbles"))
    assert "RuntimeError: it stumbles over two lines [bold]" in line
    assert "1 failed: `sigma-bench status tiny.yaml --set" in out
    assert (tmp_path / "results/tiny/report.html").exists()
    assert states(capfd, *plugin) == {
        ("stumbles", 0): "failed",
        ("stumbles", 1): "not run",
        ("picky", 0): "not applicable",
        ("picky", 1): "not run",
        ("single", 0): "done",
        ("single", 1): "not run",
    }
    monkeypatch.setenv("COLUMNS", "300")
    assert run(["status", "tiny.yaml", *plugin]) == 0
    out = capfd.readouterr().out
    assert "it stumbles over two lines [bold]" in out
    assert "it has no attention" in out


def test_a_dry_run_shows_costs_and_writes_nothing(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "wrong.py").write_text(PLUGIN)
    before = sorted(here.rglob("*"))
    capfd.readouterr()
    plugin = ["--plugin", "wrong.py", "--set", "methods=[single, deep_ensemble, sigma_nens, picky]"]
    monkeypatch.setattr("bench.planning.step_seconds", None)  # nothing is trained or timed
    assert run(["run", "tiny.yaml", "--dry-run", "--set", "members=2", *plugin]) == 0
    out = capfd.readouterr().out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if "0, 1" in line}
    assert list(rows) == ["single", "deep_ensemble", "sigma_nens", "picky"]
    spec = load_suite("tiny.yaml").runs()[0]
    steps = 4 * len(load_task(spec.task, here).train) / 64
    # Method, two seeds, done, networks, steps of each
    assert rows["single"][1:6] == ["0,", "1", "1", "1", str(round(steps))]
    assert rows["deep_ensemble"][1:6] == ["0,", "1", "0", "2", str(round(steps / 2))]
    assert rows["sigma_nens"][1:6] == ["0,", "1", "0", "1", str(round(steps / 2))]
    parameters = [int(rows[name][8].replace(",", "")) for name in ("single", "deep_ensemble")]
    assert parameters[1] == 2 * parameters[0]
    assert "not applicable: it has no attention" in " ".join(rows["picky"])
    assert "8 runs, 1 done" in out
    assert [path for path in sorted(here.rglob("*")) if "__pycache__" not in str(path)] == [
        path for path in before if "__pycache__" not in str(path)
    ]


def test_a_dry_run_flags_a_budget_that_whole_steps_miss(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    words = ["run", "tiny.yaml", "--dry-run", "--method", "pair"]
    assert run([*words, "--set", "budget.epochs=0.001"]) == 0
    (row,) = [line for line in capfd.readouterr().out.splitlines() if "pair" in line]
    assert re.search(r"\+[\d.]+ %\s+misses its budget", row)
    assert run([*words, "--set", "budget.epochs=100"]) == 0
    (row,) = [line for line in capfd.readouterr().out.splitlines() if "pair" in line]
    assert "misses" not in row


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_says_how_to_go_on(workers: str, tmp_path: Path) -> None:
    """The signal goes to the whole group, as a terminal sends it."""
    (tmp_path / "tiny.yaml").write_text(SUITE)
    words = ["tiny.yaml", "--set", "budget.epochs=10000", "--device", "cpu", "--workers", workers]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", "run", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that starts this in the background has its children ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("results/tiny/runs/*/progress.jsonl")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "interrupted: the same command goes on from the last checkpoints\n"
