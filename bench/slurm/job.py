"""``python -m bench.slurm.job FILE``: what a job of an array does on its node.

It does its runs one after the other, whatever becomes of each, and asks Slurm to start it again
when it must stop before they are done. Started again, it goes on from their checkpoints.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.execution import Event, Placement, execute
from bench.locks import slurm_job
from bench.slurm.queue import RUNNING, QueueError, command, job_state
from bench.slurm.stopping import LIMIT_SIGNAL, Stopped, Stopper, stamps
from bench.slurm.submissions import read_job_file
from bench.store import RunFolder, SuiteFolder
from bench.suite import RunSpec

EARLY_SECONDS = 90.0
"""Slurm may send its signal this much before it was asked to."""


def main(arguments: Sequence[str]) -> int:
    """Do the runs of this job.

    Args:
        arguments: the job file, whose task number ``SLURM_ARRAY_TASK_ID`` this is.

    Returns:
        0; 1 if a run failed or could not be ended.
    """
    # Before torch is imported, which reads it once.
    os.environ.setdefault("OMP_NUM_THREADS", os.environ.get("SLURM_CPUS_PER_TASK", "1"))
    content, tasks = read_job_file(Path(arguments[0]))
    return Job(content, tasks[int(os.environ["SLURM_ARRAY_TASK_ID"])]).perform()


@dataclass
class Job:
    """A job and its runs.

    Attributes:
        content: the job file's, as `bench.slurm.submit` wrote it.
        runs: of this job.
    """

    content: dict[str, Any]
    runs: list[RunSpec]

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.place = Placement(
            results=Path(self.content["results"]),
            suite=self.content["suite"],
            data=Path(self.content["data"]),
            device=self.content["device"],
            workers=1,
            plugins=tuple(Path(plugin) for plugin in self.content["plugins"]),
            checkpoint_seconds=self.content["checkpoint_seconds"],
        )
        self.stopper = Stopper(lambda run: self.folders[run].checkpoints)
        self.outcomes: dict[str, str] = {}
        self.current: RunSpec | None = None

    @property
    def folders(self) -> dict[str, RunFolder]:
        """Run id -> its folder."""
        suite = SuiteFolder(self.place.results, self.place.suite)
        return {run.id: suite.run(run) for run in self.runs}

    def perform(self) -> int:
        """Do what is left to do; the exit code."""
        from bench.console import make_console, make_display

        before = self._progress()
        self.stopper.install()
        try:
            with make_display(make_console(), self.runs) as display:
                self._all(display.observe)
        except Stopped:
            self.stopper.shut()
            return self._stop(before)
        self.stopper.shut()
        return 1 if "failed" in self.outcomes.values() else 0

    def _all(self, show: Any) -> None:
        """Do the runs; one whose data or device are missing does not stop the others."""

        def hear(event: Event) -> None:
            show(event)
            if event.kind == "start":
                self.current = event.run
            elif event.kind == "end":
                self.outcomes[event.run.id] = event.outcome
            self.stopper.hear(event)

        while left := [run for run in self.runs if run.id not in self.outcomes]:
            self.current = None
            try:
                execute(left, self.place, hear)
            except UserError as error:
                refused = left if self.current is None else [self.current]
                for run in refused:
                    self._refuse(run, str(error), show)

    def _refuse(self, run: RunSpec, reason: str, show: Any) -> None:
        self.folders[run.id].fail(reason, "")
        self.outcomes[run.id] = "failed"
        show(Event("end", run, reason, "failed"))

    def _progress(self) -> dict[str, object]:
        """What changes on disk when a run comes forward."""
        found: dict[str, object] = {}
        for run, folder in self.folders.items():
            found[run] = (stamps(folder.checkpoints), folder.model_path.exists())
        return found

    def _stop(self, before: dict[str, object]) -> int:
        """End before the runs are done: to be started again, or because the job was cancelled."""
        job = os.environ["SLURM_JOB_ID"]
        limit = 60 * self.content["minutes"] - self.content["notice"] - EARLY_SECONDS
        at_limit = self.stopper.signal == LIMIT_SIGNAL and time.monotonic() - self.began >= limit
        if at_limit and not self.outcomes and self._progress() == before:
            return self._give_up()
        if self.stopper.signal == signal.SIGTERM and job_state(job) != RUNNING:
            # Cancelled, or requeued already by whoever sent the signal.
            print(f"job {slurm_job()}: ended by the queue", flush=True)
            return 1
        print(f"job {slurm_job()}: to be started again", flush=True)
        try:
            command("scontrol", "requeue", job)
        except QueueError as error:
            print(f"job {slurm_job()}: can't be started again: {error}", flush=True)
            return 1
        return 0

    def _give_up(self) -> int:
        """A job that comes no further in its time would be started again for ever."""
        reason = (
            f"no checkpoint in {self.content['minutes']} minutes, the time limit of its job: "
            "raise --time"
        )
        for run in self.runs:
            self.folders[run.id].fail(reason, "")
        print(reason, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
