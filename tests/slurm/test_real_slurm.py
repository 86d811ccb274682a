"""Runs on a real Slurm: failures, pre-emption, time limits, runs started twice, cancelling."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.cli.options import Request, request
from bench.execution import Placement
from bench.slurm.options import SlurmOptions
from bench.slurm.submissions import SlurmFolder
from bench.slurm.submit import _place_content, _submit_array, submit
from bench.store import Progress

pytestmark = pytest.mark.usefixtures("cluster")

SUITE = """
name: {name}
tasks: [{{name: digits, corruptions: [rotation], severities: [1]}}]
backbones: [resnet8]
methods: {methods}
seeds: {seeds}
budget: {{networks: 1, epochs: {epochs}}}
recipe: {{batch_size: 64, augment: []}}
"""

PLUGIN = '''
"""A method that goes wrong."""
from typing import ClassVar
from bench.method import Method


class Stumbles(Method):
    """Stumbles."""

    name: ClassVar[str] = "stumbles"

    def build(self, backbone, num_classes):
        raise RuntimeError("it stumbles")
'''
OPTIONS = ("--device", "cpu", "--cpus-per-run", "1")
FOREVER = 100_000


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("COLUMNS", "300")
    return tmp_path


def write_suite(name: str, epochs: float, methods: str = "[single]", seeds: str = "[0]") -> str:
    content = SUITE.format(name=name, epochs=epochs, methods=methods, seeds=seeds)
    Path(f"{name}.yaml").write_text(content)
    return f"{name}.yaml"


def bench(*words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def states(*words: str) -> dict[str, int]:
    counts = json.loads(bench("status", *words, "--json"))["counts"]
    return {state: count for state, count in counts.items() if count}


def until(what: Callable[[], object], seconds: float = 120, hint: Path | None = None) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            logs = [path.read_text() for path in hint.glob("*.out")] if hint else []
            queue = subprocess.run(["squeue"], capture_output=True, text=True, check=False).stdout
            pytest.fail("\n".join(["it did not happen", queue, *logs]))
        time.sleep(0.3)


def asked_for(file: str) -> Request:
    return request(file, None, Path("results"), None)


def place(asked: Request) -> Placement:
    return Placement(Path("results"), asked.suite.name, Path("data"), "cpu", checkpoint_seconds=1)


def test_a_failing_run_among_others(here: Path) -> None:
    """Four runs, two to a job; then again, which submits the failed ones alone, and once."""
    (here / "wrong.py").write_text(PLUGIN)
    file = write_suite("mixed", 0.2, "[single, stumbles]", "[0, 1]")
    words = (file, "--plugin", "wrong.py")
    out = bench(
        *("run", *words, "--on", "slurm", *OPTIONS, "--wait", "--runs-per-job", "2"), code=1
    )
    assert re.search(r"4 submitted in 2 jobs: \d+", out)
    assert out.count("RuntimeError: it stumbles") == 2
    assert "2 failed" in out
    assert (here / "results/mixed/report.html").exists()
    assert states(*words) == {"done": 2, "failed": 2}
    assert not [path for path in here.rglob("*") if path.suffix in (".pkl", ".pickle")]
    (here / "held.yaml").write_text("hold: true\n")
    out = bench("run", *words, "--on", "slurm", *OPTIONS, "--slurm-options", "held.yaml")
    assert "4 runs, 2 done already" in out
    assert "2 submitted in 2 jobs" in out
    out = bench("run", *words, "--on", "slurm", *OPTIONS)
    assert "2 queued or running already" in out
    assert "submitted" not in out
    assert states(*words) == {"done": 2, "queued": 2}
    assert "(JobHeldUser)" in bench("status", *words)
    assert "cancelled 2 queued, 0 running" in bench("cancel", *words)
    assert states(*words) == {"done": 2, "failed": 2}


def test_preempted_then_out_of_time_then_cancelled(here: Path) -> None:
    """One run that never ends: it goes on from its checkpoint whatever stops its job."""
    asked = asked_for(write_suite("long", FOREVER))
    (spec,) = asked.suite.runs()
    new = submit(asked.folder, [spec], place(asked), SlurmOptions(minutes=1, gpus=0, cpus=1))
    folder, slurm = asked.folder.run(spec), SlurmFolder(asked.folder.path)
    log = slurm.log(f"{new.arrays[0]}_0")
    progress = Progress(folder.path / "progress.jsonl")

    def step() -> int:
        lines = progress.lines()
        return lines[-1]["step"] if lines else 0

    def said(words: str, times: int = 1) -> Callable[[], bool]:
        return lambda: log.exists() and log.read_text().count(words) >= times

    until(lambda: list(folder.checkpoints.glob("[!.]*")), hint=slurm.path)
    urgent = ["srun", "--partition=urgent", "--exclusive", "--job-name=urgent", "true"]
    other = subprocess.Popen(urgent, stderr=subprocess.DEVNULL)
    until(said("to be started again"), hint=slurm.path)
    assert said("SIGTERM: stopping")()
    assert other.wait(60) == 0
    first = step()
    assert first > 0
    until(lambda: states("long.yaml") == {"queued": 1}, seconds=20, hint=slurm.path)
    until(lambda: step() > first, hint=slurm.path)
    assert states("long.yaml") == {"running": 1}
    assert f"(job {new.arrays[0]}_0) since" in bench("status", "long.yaml")

    until(said("SIGUSR2: stopping"), hint=slurm.path)
    until(said("to be started again", 2), hint=slurm.path)
    until(lambda: folder.holder() is None, hint=slurm.path)
    second = step()
    until(lambda: step() > second, hint=slurm.path)

    steps = [line["step"] for line in progress.lines()]
    assert steps == sorted(set(steps)), "an epoch was done twice"
    out = bench("cancel", "long.yaml")
    assert "cancelled 0 queued, 1 running" in out
    until(said("ended by the queue"), hint=slurm.path)
    until(lambda: states("long.yaml") == {"interrupted": 1}, seconds=30, hint=slurm.path)
    assert "no job is queued or running" in bench("cancel", "long.yaml")
    assert str(log) in bench("status", "long.yaml")


def test_a_job_killed_without_a_word_is_no_running_run(here: Path) -> None:
    """Slurm starts it again by itself; it takes over from the process that was killed."""
    asked = asked_for(write_suite("killed", FOREVER))
    (spec,) = asked.suite.runs()
    new = submit(asked.folder, [spec], place(asked), SlurmOptions(minutes=9, gpus=0, cpus=1))
    folder, slurm = asked.folder.run(spec), SlurmFolder(asked.folder.path)
    until(lambda: list(folder.checkpoints.glob("[!.]*")), hint=slurm.path)
    holder = folder.holder()
    assert holder is not None
    assert holder.job == f"{new.arrays[0]}_0"
    os.kill(holder.pid, 9)
    until(lambda: states("killed.yaml") == {"interrupted": 1}, seconds=30, hint=slurm.path)
    bench("cancel", "killed.yaml")


def test_a_run_started_twice_is_done_once(here: Path) -> None:
    """The second job waits; when the first is cancelled it goes on from its checkpoint."""
    asked = asked_for(write_suite("twice", FOREVER))
    (spec,) = asked.suite.runs()
    slurm, folder = SlurmFolder(asked.folder.path), asked.folder.run(spec)
    options = SlurmOptions(minutes=9, gpus=0, cpus=1)
    jobs = []
    for _ in range(2):
        submission = slurm.announce("twice", [[spec]], _place_content(place(asked), options))
        jobs.append(f"{_submit_array(slurm, submission, options, [])}_0")
    waits = f"waiting  single, seed 0: {folder.path.resolve()}: another process works here"

    def waiting() -> list[str]:
        logs = {job: slurm.log(job) for job in jobs}
        return [job for job, log in logs.items() if log.exists() and waits in log.read_text()]

    until(lambda: waiting() and list(folder.checkpoints.glob("[!.]*")), hint=slurm.path)
    (second,) = waiting()
    (first,) = {*jobs} - {second}
    holder = folder.holder()
    assert holder is not None
    assert holder.job == first
    subprocess.run(["scancel", first], check=True)
    until(lambda: (now := folder.holder()) and now.job == second, hint=slurm.path)
    progress = Progress(folder.path / "progress.jsonl")
    done = progress.lines()[-1]["step"]
    until(lambda: progress.lines()[-1]["step"] > done, hint=slurm.path)
    steps = [line["step"] for line in progress.lines()]
    assert steps == sorted(set(steps))
    bench("cancel", "twice.yaml")


def test_more_jobs_than_an_array_takes(here: Path) -> None:
    """This cluster's arrays take four jobs: the fifth waits in an array of its own."""
    write_suite("many", FOREVER, seeds="[0, 1, 2, 3, 4]")
    (here / "more.yaml").write_text("comment: hello\nsetup: ['export MARK=here']\n")
    words = (*OPTIONS, "--parallel", "1", "--time", "9", "--slurm-options", "more.yaml")
    out = bench("run", "many.yaml", "--on", "slurm", *words)
    found = re.search(r"5 submitted in 5 jobs: (\d+), (\d+)", out)
    assert found
    shown = subprocess.check_output(["scontrol", "show", "job", found[2]], text=True)
    assert f"Dependency=afterany:{found[1]}_*" in shown
    assert "Comment=hello" in shown
    assert "export MARK=here" in (here / f"results/many/slurm/{found[1]}_submission.sh").read_text()
    out = bench("cancel", "many.yaml")
    assert re.search(r"cancelled [45] queued, [01] running", out)
    until(lambda: states("many.yaml").keys() <= {"not run", "interrupted"}, seconds=30)


def test_what_slurm_refuses_is_one_line(here: Path) -> None:
    file = write_suite("refused", 1)
    words = ("run", file, "--on", "slurm", *OPTIONS, "--partition", "nowhere")
    done = subprocess.run(
        [sys.executable, "-m", "bench", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "--on slurm: sbatch: invalid partition specified: nowhere" in line
    assert states(file) == {"not run": 1}
