"""What the queue says: which jobs wait and run, by the names under which they were submitted."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

PENDING = "PENDING"
RUNNING = "RUNNING"
TIMEOUT_SECONDS = 60.0
"""A queue that does not answer in this time is not asked any longer."""
_FORMAT = "%F|%K|%T|%N|%j|%r"


class QueueError(Exception):
    """The queue can't be asked; the message says why."""


@dataclass(frozen=True)
class QueuedTask:
    """A job of an array that has not ended.

    Attributes:
        job: ``ARRAY_INDEX``, as Slurm's commands take it.
        name: under which its array was submitted.
        index: its place in the array.
        state: as squeue names it: PENDING, RUNNING, COMPLETING, ...
        node: where it runs; empty while it waits.
        reason: why it waits.
    """

    job: str
    name: str
    index: int
    state: str
    node: str
    reason: str

    @property
    def waits(self) -> bool:
        """Whether it has not started, or is to start again."""
        return self.state not in (RUNNING, "COMPLETING", "SUSPENDED", "STOPPED", "CONFIGURING")


def ask_queue(names: Iterable[str]) -> list[QueuedTask]:
    """The jobs of these names that wait or run.

    Raises:
        QueueError: Slurm isn't here, or does not answer.
    """
    wanted = ",".join(sorted(names))
    if not wanted:
        return []
    words = ("squeue", "--noheader", "--array", f"--name={wanted}", f"--format={_FORMAT}")
    return [task for line in command(*words).splitlines() if (task := _task(line)) is not None]


def job_state(job: str) -> str:
    """The state of one job, empty when it has left the queue.

    Raises:
        QueueError: Slurm isn't here, or does not answer.
    """
    try:
        return command("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip()
    except QueueError as error:
        if "Invalid job id" in str(error):
            return ""
        raise


def command(*words: str) -> str:
    """The output of one of Slurm's commands.

    Raises:
        QueueError: it isn't here, fails, or takes longer than `TIMEOUT_SECONDS`.
    """
    if shutil.which(words[0]) is None:
        raise QueueError(f"{words[0]} isn't found here")
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise QueueError(f"{words[0]} did not answer in {TIMEOUT_SECONDS:.0f} s") from None
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise QueueError(f"{words[0]}: {reason}")
    return done.stdout


def _task(line: str) -> QueuedTask | None:
    """A line of squeue; None for a job that belongs to no array: none of ours."""
    array, index, state, node, name, reason = line.strip().split("|", 5)
    if not index.isdigit():
        return None
    return QueuedTask(f"{array}_{index}", name, int(index), state, node, reason)
