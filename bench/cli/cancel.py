"""``sigma-bench cancel``: end a suite's jobs on the cluster."""

from __future__ import annotations

from bench.cli.options import (
    DEFAULT_RESULTS,
    Plugins,
    Results,
    Scale,
    Settings,
    SuiteName,
    request,
)
from bench.errors import UserError


def cancel(
    suite: SuiteName,
    scale: Scale = None,
    settings: Settings = None,
    results: Results = DEFAULT_RESULTS,
    plugins: Plugins = None,
) -> None:
    """Cancel all jobs of a suite that wait or run on a Slurm cluster.

    What they have done stays; the same `run` goes on from there.

    Example: sigma-bench cancel digits
    """
    from bench.slurm.queue import QueueError, ask_queue, command
    from bench.slurm.submissions import SlurmFolder

    asked = request(suite, settings, results, plugins, scale)
    names = [one.name for one in SlurmFolder(asked.folder.path).submissions()]
    try:
        tasks = ask_queue(names)
        if tasks:
            command("scancel", *sorted({task.job.partition("_")[0] for task in tasks}))
    except QueueError as error:
        raise UserError(f"cancel {asked.asked}: {error}") from None
    waiting = sum(task.waits for task in tasks)
    if tasks:
        print(f"{asked.suite.name}: cancelled {waiting} queued, {len(tasks) - waiting} running")
    else:
        print(f"{asked.suite.name}: no job is queued or running")
