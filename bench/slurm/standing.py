"""How runs stand that were submitted: what the disk says, and what only the queue knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.slurm.queue import QueuedTask, QueueError, ask_queue
from bench.slurm.submissions import SlurmFolder
from bench.store import RunFolder, State


@dataclass(frozen=True)
class Standing:
    """What is known of the jobs of some runs.

    Attributes:
        tasks: run id -> its job that waits or runs.
        ended: run id -> its last job, when that has left the queue.
        error: why the queue could not be asked; empty if it was, or if there was no need.
    """

    tasks: dict[str, QueuedTask] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    error: str = ""


def look(folder: SlurmFolder, runs: Iterable[str]) -> Standing:
    """Find the jobs of runs; the queue is asked only if any of them was ever submitted."""
    wanted = set(runs)
    relevant = [
        submission
        for submission in folder.submissions()
        if any(run in wanted for task in submission.tasks for run in task)
    ]
    if not relevant:
        return Standing()
    try:
        queue = ask_queue(submission.name for submission in relevant)
    except QueueError as error:
        return Standing(error=str(error))
    places = {(task.name, task.index): task for task in queue}
    standing = Standing()
    for submission in relevant:
        for index, runs_of_task in enumerate(submission.tasks):
            task = places.get((submission.name, index))
            for run in wanted.intersection(runs_of_task):
                if task is not None:
                    standing.tasks[run] = task
                elif submission.array is not None:
                    standing.ended[run] = f"{submission.array}_{index}"
    return standing


def true_state(
    state: State, reason: str, folder: RunFolder, standing: Standing, jobs: SlurmFolder
) -> tuple[State, str]:
    """How a run stands, by disk and queue.

    Args:
        state: by the disk alone.
        reason: by the disk alone.
        folder: of the run.
        standing: of its jobs.
        jobs: where logs are.

    Returns:
        state, and words on it: the reason, or where the run is.
    """
    run = folder.spec.id
    task, ended = standing.tasks.get(run), standing.ended.get(run)
    if state == "running":
        holder = folder.holder()
        if holder is None or not _is_gone(holder.job, task, ended):
            return state, reason
        state = "interrupted"
    if task is not None and state in ("interrupted", "not run", "failed"):
        if task.waits:
            why = f" ({task.reason})" if task.reason not in ("", "None") else ""
            return "queued", f"job {task.job}{why}"
        if state != "failed":
            return "queued", f"job {task.job} works on {task.node or 'a node'}"
    if ended and not reason and state in ("interrupted", "not run"):
        return state, f"job {ended} ended: {jobs.log(ended)}"
    return state, reason


def _is_gone(job: str, task: QueuedTask | None, ended: str | None) -> bool:
    """Whether the job that holds a run does not run: its node died without a word."""
    if task is not None and job == task.job:
        return task.waits
    return bool(job) and job == ended
