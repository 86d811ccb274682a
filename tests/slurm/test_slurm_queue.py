"""Submitting, status, following and cancelling, against stand-ins for Slurm's commands."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_slurm import Fake

from bench.cli import run
from bench.execution import Event
from bench.files import read_json
from bench.slurm.follow import LOOKS, Follower
from bench.slurm.submissions import SlurmFolder, read_job_file
from bench.store import SuiteFolder
from bench.suite import RunSpec
from bench.suite_files import load_suite

SUITE = """
name: tiny
tasks: [digits]
backbones: [resnet8]
methods: [single, {name: deep_ensemble, label: pair, members: 2}]
seeds: [0, 1]
budget: {networks: 1, epochs: 4}
"""
ASKED = ["tiny.yaml", "--on", "slurm", "--device", "cpu"]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake(tmp_path)
    monkeypatch.setenv("PATH", f"{fake.bin}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(SUITE)
    return fake


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command line; what it printed."""

    def words(*words: str, code: int = 0) -> str:
        capfd.readouterr()
        assert run(list(words)) == code
        out, err = capfd.readouterr()
        assert err == "" or code
        return out + err

    return words


def specs() -> list[RunSpec]:
    return load_suite("tiny.yaml").runs()


def states(say: Callable[..., str]) -> list[str]:
    return [one["state"] for one in json.loads(say("status", "tiny.yaml", "--json"))["runs"]]


def test_submitting_says_what_and_ends(slurm: Fake, say: Callable[..., str]) -> None:
    out = say("run", *ASKED, "--parallel", "2", "--time", "3:00:00", "--account", "lab")
    assert "tiny: 4 runs, in results/tiny" in out
    assert "4 submitted in 4 jobs: 100, 101" in out
    assert "`sigma-bench cancel tiny.yaml`" in out
    first, second = slurm.read()["jobs"].values()
    script = "\n".join(first["script"])
    for line in ("array=0-2%2", "time=180", "account=lab", "cpus-per-task=4", "signal=USR2@120"):
        assert f"#SBATCH --{line}" in script
    assert "#SBATCH --requeue" in script
    assert "gpus" not in script
    assert "#SBATCH --array=0-0%1" in second["script"]
    assert "#SBATCH --dependency=afterany:100" in second["script"], "more than two would run"
    assert not (Path("results/tiny/tables")).exists()


def test_nothing_is_pickled(slurm: Fake, say: Callable[..., str], tmp_path: Path) -> None:
    """submitit's usual jobs load a pickle; these read the JSON that the script names."""
    say("run", *ASKED)
    script = "\n".join(slurm.read()["jobs"]["100"]["script"])
    assert "submitit.core._submit" not in script
    (command,) = [line for line in script.splitlines() if line.startswith("srun ")]
    found = re.search(r" -m bench\.slurm\.job (\S+\.json)$", command)
    assert found
    assert Path(found[1]).is_absolute()
    content, tasks = read_job_file(Path(found[1]))
    assert [[spec.id for spec in runs] for runs in tasks] == [[run.id] for run in specs()[:3]]
    assert Path(content["results"]) == tmp_path / "results"
    kinds = {path.suffix for path in (tmp_path / "results").rglob("*") if path.is_file()}
    assert kinds <= {".json", ".jsonl", ".sh", ".free"}


def test_runs_are_packed(slurm: Fake, say: Callable[..., str]) -> None:
    assert "4 submitted in 2 jobs: 100" in say("run", *ASKED, "--runs-per-job", "3")
    (submission,) = SlurmFolder(Path("results/tiny")).submissions()
    assert [len(task) for task in submission.tasks] == [3, 1]
    assert submission.array == "100"


def test_status_reads_disk_and_queue(slurm: Fake, say: Callable[..., str]) -> None:
    say("run", *ASKED)
    assert states(say) == ["queued"] * 4
    folder = SuiteFolder(Path("results"), "tiny")
    first, second, third, _ = (folder.run(spec) for spec in specs())
    slurm.change("100_0", "RUNNING")
    first.start({})
    second.start({})
    second.fail("RuntimeError: boom", "")
    slurm.change("100_1", None)
    slurm.change("100_2", None)
    with first.lock():
        assert states(say) == ["running", "failed", "not run", "queued"]
        out = say("status", "tiny.yaml")
    assert "RuntimeError: boom" in out
    assert "job 100_2 ended: results/tiny/slurm/100_2_0_log.out" in out
    assert "job 101_0 (Priority)" in out
    assert "tiny: 4 runs: 1 running, 1 queued, 1 failed, 1 not run" in out
    assert third.state()[0] == "not run", "the disk does not know of the queue"
    assert states(say)[0] == "queued", "its job starts, or is in another run"


def claim(folder: Path, job: str) -> None:
    """As of a process on another node whose heart beat just now."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"host": "node7", "machine": "another", "pid": 5, "job": job, "restarts": 0}
    (folder / "lock.1").write_text(json.dumps(content))


def test_a_node_that_died_is_known_by_the_queue(slurm: Fake, say: Callable[..., str]) -> None:
    """The heartbeat is fresh, but Slurm has requeued or ended the job."""
    say("run", *ASKED)
    for spec, job in zip(specs()[:3], ("100_0", "100_1", "100_2"), strict=True):
        folder = SuiteFolder(Path("results"), "tiny").run(spec)
        folder.start({})
        claim(folder.path, job)
    slurm.change("100_0", "RUNNING")
    slurm.change("100_2", None)
    assert states(say) == ["running", "queued", "interrupted", "queued"]
    assert "on node7 (job 100_0)" in say("status", "tiny.yaml")


def test_what_is_queued_is_not_submitted_again(slurm: Fake, say: Callable[..., str]) -> None:
    say("run", *ASKED, "--seed", "0")
    out = say("run", *ASKED)
    assert "2 queued or running already" in out
    assert "2 submitted in 2 jobs" in out
    slurm.change("100_0", None)
    assert "3 queued or running already\n1 submitted in 1 job: 102" in say("run", *ASKED)
    out = say("run", *ASKED)
    assert "4 queued or running already" in out
    assert "submitted" not in out


def test_a_run_that_somebody_works_on_is_not_submitted(
    slurm: Fake, say: Callable[..., str]
) -> None:
    with SuiteFolder(Path("results"), "tiny").run(specs()[0]).lock():
        out = say("run", *ASKED)
    assert "1 queued or running already" in out
    assert "3 submitted in 3 jobs" in out


def test_a_submitter_that_dies_after_sbatch_loses_nothing(
    slurm: Fake, say: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SlurmFolder, "number", dies)
        say("run", *ASKED, "--seed", "0", code=130)
    assert SlurmFolder(Path("results/tiny")).submissions()[0].array is None
    assert states(say) == ["queued", "queued", "not run", "not run"]
    assert "2 queued or running already" in say("run", *ASKED)
    assert "cancelled 4 queued, 0 running" in say("cancel", "tiny.yaml")


def test_a_submitter_that_dies_before_sbatch_leaves_nothing_queued(
    slurm: Fake, say: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bench.slurm.submit._submit_array", dies)
        say("run", *ASKED, code=130)
    assert states(say) == ["not run"] * 4
    assert "4 submitted" in say("run", *ASKED)


@pytest.mark.parametrize("cut", [1, 30])
def test_a_line_that_was_cut_off_hides_no_other(tmp_path: Path, cut: int) -> None:
    folder = SlurmFolder(tmp_path)
    runs = load_suite("digits").runs()
    folder.announce("tiny", [runs[:1]], {})
    second = folder.announce("tiny", [runs[1:2]], {})
    text = folder.ledger.read_bytes()
    folder.ledger.write_bytes(text[:-cut])
    third = folder.announce("tiny", [runs[2:3]], {})
    names = [one.name for one in folder.submissions()]
    # Without its line break a line is whole.
    assert names[-1] == third.name
    assert (second.name in names) == (cut == 1)
    assert len(names) == (3 if cut == 1 else 2)


def test_cancel_counts(slurm: Fake, say: Callable[..., str]) -> None:
    assert "tiny: no job is queued or running" in say("cancel", "tiny.yaml")
    say("run", *ASKED)
    slurm.change("100_1", "RUNNING")
    slurm.change("100_2", None)
    assert "tiny: cancelled 2 queued, 1 running" in say("cancel", "tiny.yaml")
    assert slurm.read()["jobs"] == {}
    assert states(say) == ["not run"] * 4


def test_without_a_queue(slurm: Fake, say: Callable[..., str]) -> None:
    say("run", *ASKED)
    slurm.down()
    out = say("status", "tiny.yaml")
    assert "4 not run" in out
    assert "by the disk alone, as the queue can't be asked: squeue: error" not in out
    assert "by the disk alone, as the queue can't be asked: squeue: " in out
    assert "Unable to contact slurm controller" in say("run", *ASKED, code=2)
    assert "cancel tiny.yaml: squeue: " in say("cancel", "tiny.yaml", code=2)


def test_without_slurm(
    slurm: Fake, say: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say("run", *ASKED)
    monkeypatch.setenv("PATH", "/nowhere")
    assert "can't be asked: squeue isn't found here" in say("status", "tiny.yaml")
    assert "--on slurm: sbatch isn't found here" in say("run", *ASKED, code=2)


def test_the_queue_is_not_asked_for_what_was_never_submitted(
    slurm: Fake, say: Callable[..., str]
) -> None:
    assert states(say) == ["not run"] * 4
    assert slurm.read()["calls"] == []


def test_a_refusal_is_one_line(slurm: Fake, say: Callable[..., str]) -> None:
    out = say("run", *ASKED, "--partition", "nowhere", code=2)
    assert "error: --on slurm: sbatch: invalid partition specified: nowhere; sbatch: Batch" in out
    assert states(say) == ["not run"] * 4


class Watch:
    """Follows two runs and keeps what is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, str, str]] = []
        self.runs = [spec for spec in specs() if spec.method == "single"]
        self.folder = SuiteFolder(Path("results"), "tiny")
        self.follower = Follower(self.folder, self.runs, self._hear)

    def _hear(self, event: Event) -> None:
        self.events.append((event.kind, event.run.seed, event.outcome, event.text))

    def look(self) -> list[tuple[str, int, str, str]]:
        self.events.clear()
        self.follower.look()
        return list(self.events)


def finish(folder: Any) -> None:
    folder.finish({"test": {"accuracy": 0.5}}, [])


def test_following_to_the_end(slurm: Fake, say: Callable[..., str]) -> None:
    say("run", *ASKED, "--method", "single")
    watch = Watch()
    first, second = (watch.folder.run(spec) for spec in watch.runs)
    assert watch.look() == []
    slurm.change("100_0", "RUNNING")
    first.start({})
    line = {"network": 0, "networks": 1, "step": 5, "steps": 10, "epoch": 0.5}
    (first.path / "progress.jsonl").write_text(json.dumps(line) + "\n")
    with first.lock():
        assert [event[0] for event in watch.look()] == ["start", "tick"]
    finish(first)
    slurm.change("100_0", None)
    assert watch.look() == [("end", 0, "done", "")]
    second.start({})
    second.fail("RuntimeError: boom", "")
    slurm.change("100_1", None)
    assert watch.look() == [("start", 1, "", ""), ("end", 1, "failed", "RuntimeError: boom")]
    assert watch.follower.follow() == {
        watch.runs[0].id: "done",
        watch.runs[1].id: "failed",
    }


def test_an_old_failure_is_no_end_of_a_new_job(slurm: Fake, say: Callable[..., str]) -> None:
    folder = SuiteFolder(Path("results"), "tiny").run(specs()[0])
    folder.start({})
    folder.fail("RuntimeError: yesterday", "")
    say("run", *ASKED, "--method", "single")
    watch = Watch()
    assert watch.look() == []
    slurm.change("100_0", "RUNNING")
    assert watch.look() == []
    folder.start({})
    finish(folder)
    assert ("end", 0, "done", "") in watch.look()


def test_a_job_that_left_without_a_word_is_a_failure(slurm: Fake, say: Callable[..., str]) -> None:
    say("run", *ASKED, "--method", "single")
    watch = Watch()
    slurm.change("100_0", None)
    told = [event for _ in range(LOOKS) for event in watch.look()]
    assert told[0] == ("start", 0, "", "")
    assert told[1][:3] == ("end", 0, "failed")
    assert "job 100_0 ended: results/tiny/slurm/100_0_0_log.out" in told[1][3]
    slurm.down()
    assert [event for _ in range(2 * LOOKS) for event in watch.look()] == []


def test_a_job_file_that_was_edited_is_refused(slurm: Fake, say: Callable[..., str]) -> None:
    say("run", *ASKED, "--method", "single")
    folder = SlurmFolder(Path("results/tiny"))
    path = folder.job_file(folder.submissions()[0].name)
    path.write_text(path.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    with pytest.raises(Exception, match="content and digest disagree"):
        read_json(path)
