"""``sigma-bench run --on slurm``: hand the runs to the cluster, and follow them if asked to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bench.cli.options import Request
from bench.data.catalogue import load_task
from bench.errors import UserError
from bench.suite import RunSpec

if TYPE_CHECKING:
    from rich.console import Console

    from bench.slurm.options import SlurmOptions

PLACES = ("local", "slurm")

_PANEL = "On a Slurm cluster"
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="PLACE",
        help="local: in processes of this machine; slurm: as jobs of a cluster.",
    ),
]
Parallel = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Jobs at once; 16.", rich_help_panel=_PANEL),
]
RunsPerJob = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Runs that one job does, one by one; 1.", rich_help_panel=_PANEL
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        metavar="LIMIT",
        help="Of a job: 90 (minutes), 4:00:00, 2-0 (days); 4:00:00. A job that needs longer is "
        "started again and goes on.",
        rich_help_panel=_PANEL,
    ),
]
Partition = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of the cluster.", rich_help_panel=_PANEL)
]
Account = Annotated[
    str | None, typer.Option(metavar="NAME", help="That pays.", rich_help_panel=_PANEL)
]
GpusPerRun = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="1, or recipe.devices; 0 with --device cpu.",
        rich_help_panel=_PANEL,
    ),
]
CpusPerRun = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Cores; 4.", rich_help_panel=_PANEL)
]
OptionsFile = Annotated[
    Path | None,
    typer.Option(
        "--slurm-options",
        metavar="FILE",
        help="YAML with more options of sbatch (`qos: long`), and `setup`: shell lines.",
        rich_help_panel=_PANEL,
    ),
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Follow the jobs to their end.", rich_help_panel=_PANEL),
]


@dataclass(frozen=True)
class SlurmFlags:
    """The flags for jobs as they were given; None where one was not."""

    parallel: int | None
    runs_per_job: int | None
    time: str | None
    partition: str | None
    account: str | None
    gpus_per_run: int | None
    cpus_per_run: int | None
    slurm_options: Path | None
    wait: bool

    def check_unused(self) -> None:
        """Refuse a flag that has no meaning on this machine.

        Raises:
            UserError: names the flag.
        """
        for name, value in vars(self).items():
            if value is not None and value is not False:
                flag = "--" + name.replace("_", "-")
                raise UserError(f"{flag}: is for --on slurm")


def check_place(on: str, workers: int) -> Literal["local", "slurm"]:
    """Where runs are to be done.

    Raises:
        UserError: there is no such place, or `workers` has no meaning there.
    """
    if on == "local":
        return "local"
    if on != "slurm":
        raise UserError(f"--on {on}: must be one of {', '.join(PLACES)}")
    if workers:
        raise UserError("--workers: is for --on local; a cluster has --parallel and --runs-per-job")
    return "slurm"


def make_options(flags: SlurmFlags, runs: list[RunSpec], device: str) -> SlurmOptions:
    """What the jobs need, from the flags and what the runs ask for.

    Raises:
        UserError: a flag, or the file of options, is not what it should be.
    """
    from bench.slurm.options import SlurmOptions, parse_time, read_extra

    extra, setup = read_extra(flags.slurm_options)
    devices = max((run.recipe.devices for run in runs), default=1)
    given = {
        "minutes": None if flags.time is None else parse_time(flags.time),
        "parallel": flags.parallel,
        "runs_per_job": flags.runs_per_job,
        "cpus": flags.cpus_per_run,
        "gpus": flags.gpus_per_run,
    }
    if device == "cpu":
        if flags.gpus_per_run:
            raise UserError(f"--gpus-per-run {flags.gpus_per_run}: --device cpu uses none")
        given["gpus"] = 0
    elif flags.gpus_per_run is None:
        given["gpus"] = devices
    elif 0 < flags.gpus_per_run < devices:
        raise UserError(
            f"--gpus-per-run {flags.gpus_per_run}: recipe.devices={devices} needs {devices}"
        )
    numbers = {name: value for name, value in given.items() if value is not None}
    return SlurmOptions(
        **numbers, partition=flags.partition, account=flags.account, extra=extra, setup=setup
    )


def submit_runs(
    asked: Request,
    todo: list[RunSpec],
    data: Path,
    device: str,
    flags: SlurmFlags,
    console: Console,
) -> int:
    """Submit the runs; how many failed, of which nothing is known unless they are followed.

    Raises:
        UserError: data are missing, or the cluster takes no jobs.
    """
    from bench.execution import Placement
    from bench.slurm.submit import submit

    options = make_options(flags, todo, device)
    for run in {(run.task.model_dump_json(), run.backbone): run for run in todo}.values():
        load_task(run.task, data, run.backbone)
    place = Placement(
        results=asked.folder.path.parent,
        suite=asked.suite.name,
        data=data,
        device=device,
        plugins=asked.plugins,
    )
    new = submit(asked.folder, todo, place, options)
    if new.in_hand:
        console.print(f"{len(new.in_hand)} queued or running already")
    if new.runs:
        plural = "" if new.jobs == 1 else "s"
        console.print(
            f"{len(new.runs)} submitted in {new.jobs} job{plural}: {', '.join(new.arrays)}"
        )
    if not flags.wait:
        console.print(
            f"`sigma-bench status {asked.asked}` says how they stand, "
            f"`sigma-bench cancel {asked.asked}` ends them"
        )
        return 0
    return _follow(asked, todo, console)


def _follow(asked: Request, runs: list[RunSpec], console: Console) -> int:
    from bench.console import make_display
    from bench.slurm.follow import Follower

    with make_display(console, runs) as display:
        outcomes = Follower(asked.folder, runs, display.observe).follow()
    return list(outcomes.values()).count("failed")
