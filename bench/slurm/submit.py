"""Submitting runs as arrays of jobs, through submitit.

submitit's usual way pickles a function for the job to load, and nothing in a results folder may be
loaded with pickle. So submitit writes the batch script, submits it and reads the job's number, and
the script's command is plain: this program, with the name of a JSON file.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Any

from bench.errors import UserError
from bench.execution import Placement
from bench.locks import Busy, FolderLock
from bench.slurm.options import SlurmOptions
from bench.slurm.queue import QueueError, command
from bench.slurm.standing import look, true_state
from bench.slurm.submissions import SlurmFolder, Submission
from bench.store import SuiteFolder
from bench.suite import RunSpec

ARRAY_SIZE = 1001
"""Slurm's MaxArraySize where the cluster does not say its own; indices are below it."""
PATIENCE = 60.0
"""Seconds to wait for another process that submits runs of the same suite."""


@dataclass(frozen=True)
class Submitted:
    """What a call submitted.

    Attributes:
        runs: that are in the new jobs.
        jobs: how many.
        arrays: their numbers.
        in_hand: runs left out, as a job waits for them or somebody works on them.
    """

    runs: tuple[RunSpec, ...]
    jobs: int
    arrays: tuple[str, ...]
    in_hand: tuple[RunSpec, ...]


def submit(
    folder: SuiteFolder, runs: Sequence[RunSpec], place: Placement, options: SlurmOptions
) -> Submitted:
    """Submit the runs that no job waits for and nobody works on.

    Args:
        folder: of the suite.
        runs: that are not done.
        place: where results and data lie, as every node sees them.
        options: how the jobs look.

    Raises:
        UserError: Slurm or submitit is missing, or refuses the jobs.
    """
    _check_tools()
    slurm = SlurmFolder(folder.path)
    slurm.path.mkdir(parents=True, exist_ok=True)
    try:
        with FolderLock(slurm.path).hold(PATIENCE):
            held = _in_hand(folder, slurm, runs)
            todo = [run for run in runs if run.id not in held]
            packs = list(_packs(todo, options.runs_per_job))
            arrays: list[str] = []
            for tasks in _packs(packs, _array_size() - 1):
                submission = slurm.announce(place.suite, tasks, _place_content(place, options))
                arrays.append(_submit_array(slurm, submission, options, arrays[-1:]))
    except Busy as busy:
        raise UserError(f"--on slurm: {busy}: try again when it is done") from None
    return Submitted(
        tuple(todo), len(packs), tuple(arrays), tuple(run for run in runs if run.id in held)
    )


def _check_tools() -> None:
    for tool in ("sbatch", "srun", "squeue"):
        if shutil.which(tool) is None:
            raise UserError(f"--on slurm: {tool} isn't found here: use a login node of the cluster")
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise UserError(
            "--on slurm: submitit is missing: pip install 'sigma-bench[slurm]'"
        ) from None


def _in_hand(folder: SuiteFolder, slurm: SlurmFolder, runs: Sequence[RunSpec]) -> set[str]:
    """The runs that a job waits for, or that somebody works on.

    Raises:
        UserError: the queue does not say, so that runs could be submitted twice.
    """
    standing = look(slurm, [run.id for run in runs])
    if standing.error:
        raise UserError(f"--on slurm: {standing.error}: can't tell which runs are queued already")
    found = set()
    for run in runs:
        place = folder.run(run)
        state, _ = true_state(*place.state(), place, standing, slurm)
        if state in ("queued", "running"):
            found.add(run.id)
    return found


def _packs(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(items), size):
        yield list(items[first : first + size])


def _array_size() -> int:
    """What the cluster takes: one more than the highest index."""
    try:
        found = re.search(r"MaxArraySize\s*=\s*(\d+)", command("scontrol", "show", "config"))
    except QueueError:
        return ARRAY_SIZE
    return max(2, int(found[1])) if found else ARRAY_SIZE


def _place_content(place: Placement, options: SlurmOptions) -> dict[str, Any]:
    """What the jobs need to know; paths are absolute, since a job may start anywhere."""
    return {
        "results": str(place.results.expanduser().resolve()),
        "suite": place.suite,
        "data": str(place.data.expanduser().resolve()),
        "device": place.device,
        "checkpoint_seconds": place.checkpoint_seconds,
        "plugins": [str(plugin.expanduser().resolve()) for plugin in place.plugins],
        "minutes": options.minutes,
        "notice": options.notice,
    }


def _submit_array(
    slurm: SlurmFolder, submission: Submission, options: SlurmOptions, after: list[str]
) -> str:
    """Submit one array; its number.

    Args:
        slurm: of the suite.
        submission: announced already.
        options: how the jobs look.
        after: an array that must have ended before, so that `options.parallel` holds for both.

    Raises:
        UserError: sbatch refuses.
    """
    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError

    file = slurm.job_file(submission.name).resolve()
    words = [sys.executable, "-u", "-m", "bench.slurm.job", str(file)]
    executor = SlurmExecutor(slurm.path)
    executor.update_parameters(**_parameters(submission, options, after))
    executor.parameters["map_count"] = len(submission.tasks)
    try:
        # What it prints of a refusal is in its error too.
        with redirect_stderr(io.StringIO()):
            job = executor._submit_command(shlex.join(words))
    except FailedJobError as error:
        slurm.job_file(submission.name).unlink(missing_ok=True)
        raise UserError(f"--on slurm: {_refusal(str(error))}") from None
    finally:
        for leftover in slurm.path.glob(".submission_file_*.sh"):
            leftover.unlink(missing_ok=True)
    slurm.number(submission.name, job.job_id)
    return str(job.job_id)


def _parameters(
    submission: Submission, options: SlurmOptions, after: list[str]
) -> dict[str, object]:
    """The parameters of submitit's executor."""
    extra: dict[str, object] = {"requeue": True, **options.extra}
    if after:
        extra["dependency"] = f"afterany:{after[0]}"
    parameters: dict[str, object] = {
        "job_name": submission.name,
        "time": options.minutes,
        "nodes": 1,
        "ntasks_per_node": 1,
        "cpus_per_task": options.cpus,
        "array_parallelism": options.parallel,
        "signal_delay_s": options.notice,
        "stderr_to_stdout": True,
        "wckey": None,
        # srun does not take the number over from the job.
        "srun_args": [f"--cpus-per-task={options.cpus}"],
        "additional_parameters": extra,
    }
    if options.gpus:
        parameters["gpus_per_node"] = options.gpus
    if options.partition is not None:
        parameters["partition"] = options.partition
    if options.account is not None:
        parameters["account"] = options.account
    if options.setup:
        parameters["setup"] = list(options.setup)
    return parameters


def _refusal(text: str) -> str:
    """What sbatch said, out of submitit's report of it."""
    lines = [line.strip() for line in text.splitlines() if "sbatch: error:" in line]
    if lines:
        return "; ".join(dict.fromkeys(line.replace("sbatch: error:", "sbatch:") for line in lines))
    return "sbatch: " + " ".join(text.split())
