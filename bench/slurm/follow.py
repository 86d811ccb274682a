"""Following submitted runs to their end, by reading disk and queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bench.execution import Event
from bench.slurm.standing import Standing, look, true_state
from bench.slurm.submissions import SlurmFolder
from bench.store import Progress, RunFolder, SuiteFolder
from bench.suite import RunSpec

POLL_SECONDS = 5.0
"""Time between two looks."""
LOOKS = 3
"""A run without a job is over after so many looks: what a node wrote may be seen a little later."""


class Follower:
    """Tells the events of runs that other machines do.

    Args:
        folder: of the suite.
        runs: that were submitted just now, or before.
        observe: called with every event.
    """

    def __init__(
        self, folder: SuiteFolder, runs: Sequence[RunSpec], observe: Callable[[Event], None]
    ) -> None:
        self.outcomes: dict[str, str] = {}
        self._jobs = SlurmFolder(folder.path)
        self._runs = [folder.run(run) for run in runs]
        self._observe = observe
        self._old_failures = {one.spec.id: _failure_time(one) for one in self._runs}
        self._started: set[str] = set()
        self._alone: dict[str, int] = {}

    def follow(self, poll_seconds: float = POLL_SECONDS) -> dict[str, str]:
        """Wait until every run has ended; run id -> ``done``, ``failed``, ``not applicable``."""
        while self.look():
            time.sleep(poll_seconds)
        return self.outcomes

    def look(self) -> int:
        """Tell what is new; how many runs are still open."""
        left = [one for one in self._runs if one.spec.id not in self.outcomes]
        # The queue before the disk: a run that has left the queue by then has written all.
        standing = look(self._jobs, [one.spec.id for one in left])
        for one in left:
            self._look_at(one, standing)
        return len(self._runs) - len(self.outcomes)

    def _look_at(self, one: RunFolder, standing: Standing) -> None:
        run = one.spec
        has_job = run.id in standing.tasks or bool(standing.error)
        state, words = true_state(*one.state(), one, standing, self._jobs)
        if state in ("done", "not applicable"):
            self._end(run, state, words if state != "done" else "")
        elif state == "running":
            self._alone.pop(run.id, None)
            self._tell_progress(one)
        elif state == "failed" and _failure_time(one) != self._old_failures[run.id]:
            self._end(run, "failed", words)
        elif not has_job:
            self._alone[run.id] = self._alone.get(run.id, 0) + 1
            if self._alone[run.id] >= LOOKS:
                self._end(run, "failed", words or "its job has left the queue")

    def _end(self, run: RunSpec, outcome: str, text: str) -> None:
        self._start(run)
        self.outcomes[run.id] = outcome
        self._observe(Event("end", run, text, outcome))

    def _start(self, run: RunSpec) -> None:
        if run.id not in self._started:
            self._started.add(run.id)
            self._observe(Event("start", run))

    def _tell_progress(self, one: RunFolder) -> None:
        self._start(one.spec)
        lines = Progress(one.path / "progress.jsonl").lines()
        if lines:
            self._observe(Event("tick", one.spec, data=lines[-1]))


def _failure_time(folder: RunFolder) -> int | None:
    try:
        return (folder.path / "failure.json").stat().st_mtime_ns
    except FileNotFoundError:
        return None
