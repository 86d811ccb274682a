"""What a job does on its node: every run whatever becomes of the others, and stopping in time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.errors import UserError
from bench.execution import Event
from bench.slurm import job as jobs
from bench.slurm.job import Job
from bench.slurm.queue import QueueError
from bench.suite import RunSpec
from bench.suite_files import load_suite

Execute = Callable[[list[RunSpec], Any, Callable[[Event], None]], Any]


@pytest.fixture(autouse=True)
def _signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put back what a job changes in its process."""
    numbers = (signal.SIGUSR2, signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    monkeypatch.setenv("SLURM_JOB_ID", "47")
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that the job gives to Slurm."""
    words: list[tuple[str, ...]] = []
    monkeypatch.setattr(jobs, "command", lambda *them: words.append(them) or "")
    monkeypatch.setattr(jobs, "job_state", lambda _: "RUNNING")
    return words


def make_job(folder: Path, runs: int = 3, minutes: int = 600) -> Job:
    content = {
        "results": str(folder),
        "suite": "digits",
        "data": str(folder),
        "device": "cpu",
        "plugins": [],
        "checkpoint_seconds": 1.0,
        "minutes": minutes,
        "notice": 20,
    }
    return Job(content, load_suite("digits").runs()[:runs])


def perform(job: Job, monkeypatch: pytest.MonkeyPatch, execute: Execute) -> int:
    monkeypatch.setattr(jobs, "execute", execute)
    return job.perform()


def tick(run: RunSpec) -> Event:
    data = {"network": 0, "networks": 1, "step": 5, "steps": 10, "epoch": 0.5, "loss": 1.0}
    return Event("tick", run, data={**data, "images_per_second": 1.0, "seconds": 1.0})


def save(job: Job, run: RunSpec, content: str) -> None:
    folder = job.folders[run.id].checkpoints
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "network-0.safetensors").write_text(content)


def test_a_run_that_can_not_start_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path)
    calls = []

    def execute(runs: list[RunSpec], _: Any, hear: Callable[[Event], None]) -> None:
        calls.append(len(runs))
        for run in runs:
            hear(Event("start", run))
            if run is job.runs[1]:
                raise UserError("task digits: data are missing")
            hear(Event("end", run, outcome="done"))

    assert perform(job, monkeypatch, execute) == 1
    assert calls == [3, 1]
    assert list(job.outcomes.values()) == ["done", "failed", "done"]
    assert job.folders[job.runs[1].id].state() == ("failed", "task digits: data are missing")


def test_a_missing_device_fails_all_runs_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path)

    def execute(*_: Any) -> None:
        raise UserError("--device cuda: can't be used here")

    assert perform(job, monkeypatch, execute) == 1
    assert {folder.state() for folder in job.folders.values()} == {
        ("failed", "--device cuda: can't be used here")
    }


def test_a_training_stops_after_its_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, ...]]
) -> None:
    job = make_job(tmp_path)
    ticks = []

    def execute(runs: list[RunSpec], _: Any, hear: Callable[[Event], None]) -> None:
        save(job, runs[0], "before")
        for step in range(10):
            hear(tick(runs[0]))
            ticks.append(step)
            if step == 3:
                signal.raise_signal(signal.SIGUSR2)
            if step == 6:
                save(job, runs[0], "after")

    assert perform(job, monkeypatch, execute) == 0
    assert ticks == list(range(7))
    assert asked == [("scontrol", "requeue", "47")]
    assert job.folders[job.runs[0].id].state()[0] == "not run", "nothing failed"


def test_what_is_no_training_stops_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, ...]]
) -> None:
    job = make_job(tmp_path)

    def execute(runs: list[RunSpec], _: Any, hear: Callable[[Event], None]) -> None:
        hear(Event("stage", runs[0], "test split"))
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("it went on")

    assert perform(job, monkeypatch, execute) == 0
    assert asked == [("scontrol", "requeue", "47")]


def test_a_step_that_never_ends_is_stopped_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, ...]]
) -> None:
    job = make_job(tmp_path)
    monkeypatch.setattr("bench.slurm.stopping.PATIENCE", {signal.SIGUSR2: 0.2, signal.SIGTERM: 0.2})

    def execute(runs: list[RunSpec], _: Any, hear: Callable[[Event], None]) -> None:
        hear(tick(runs[0]))
        signal.raise_signal(signal.SIGUSR2)
        time.sleep(30)
        pytest.fail("it went on")

    assert perform(job, monkeypatch, execute) == 0
    assert len(asked) == 1


def test_a_process_that_a_training_forked_hears_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path)
    codes = []

    def execute(runs: list[RunSpec], _: Any, hear: Callable[[Event], None]) -> None:
        if not (child := os.fork()):
            signal.raise_signal(signal.SIGUSR2)
            os._exit(5)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        for run in runs:
            hear(Event("end", run, outcome="done"))

    assert perform(job, monkeypatch, execute) == 0
    assert codes == [5]


def test_a_cancelled_job_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, ...]]
) -> None:
    job = make_job(tmp_path)
    monkeypatch.setattr(jobs, "job_state", lambda _: "COMPLETING")
    assert perform(job, monkeypatch, lambda *_: signal.raise_signal(signal.SIGTERM)) == 1
    assert asked == []


def test_a_job_that_comes_no_further_is_not_started_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, ...]]
) -> None:
    job = make_job(tmp_path, minutes=1)
    save(job, job.runs[0], "from an earlier start")
    assert perform(job, monkeypatch, lambda *_: signal.raise_signal(signal.SIGUSR2)) == 1
    assert asked == []
    assert {folder.state()[0] for folder in job.folders.values()} == {"failed"}
    assert "raise --time" in job.folders[job.runs[0].id].state()[1]


@pytest.mark.parametrize("what", ["a checkpoint", "a run"])
def test_a_job_that_comes_further_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, ...]], what: str
) -> None:
    job = make_job(tmp_path, minutes=1)

    def execute(runs: list[RunSpec], _: Any, hear: Callable[[Event], None]) -> None:
        if what == "a run":
            hear(Event("end", runs[0], outcome="done"))
        else:
            save(job, runs[0], "new")
        signal.raise_signal(signal.SIGUSR2)

    assert perform(job, monkeypatch, execute) == 0
    assert len(asked) == 1


def test_preemption_before_anything_was_done_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, ...]]
) -> None:
    job = make_job(tmp_path)
    assert perform(job, monkeypatch, lambda *_: signal.raise_signal(signal.SIGUSR2)) == 0
    assert len(asked) == 1


def test_a_queue_that_does_not_start_it_again_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    job = make_job(tmp_path)

    def refuses(*_: str) -> str:
        raise QueueError("scontrol: Requested operation is presently disabled")

    monkeypatch.setattr(jobs, "command", refuses)
    assert perform(job, monkeypatch, lambda *_: signal.raise_signal(signal.SIGUSR2)) == 1
    assert "can't be started again: scontrol: Requested operation" in capfd.readouterr().out
