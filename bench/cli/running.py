"""``sigma-bench run``: do the runs of a suite that are not done, then write what follows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.backbones import TIMM, check_backbone_name
from bench.cli.options import (
    DEFAULT_RESULTS,
    Plugins,
    Request,
    Results,
    Scale,
    Settings,
    SuiteName,
    check_folder,
    request,
)
from bench.cli.submitting import (
    Account,
    CpusPerRun,
    GpusPerRun,
    On,
    OptionsFile,
    Parallel,
    Partition,
    RunsPerJob,
    SlurmFlags,
    Time,
    Wait,
    check_place,
    submit_runs,
)
from bench.data.catalogue import load_task
from bench.errors import UserError, unknown
from bench.files import Damaged
from bench.suite import RunSpec

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""
WHAT_NOW = {
    False: "the same command goes on from the last checkpoints",
    True: "jobs that are queued go on: the same command follows them",
}
"""On a cluster or not -> what an interruption means."""


def run_suite(
    suite: SuiteName,
    scale: Scale = None,
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="NAME", help="Only runs of this method or label."),
    ] = None,
    seeds: Annotated[
        list[int] | None, typer.Option("--seed", metavar="N", help="Only runs with this seed.")
    ] = None,
    settings: Settings = None,
    results: Results = DEFAULT_RESULTS,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The folder in which data sets lie.")
    ] = Path("data"),
    workers: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Worker processes; 0: one for each recipe.devices GPUs, or cores on a CPU.",
        ),
    ] = 0,
    loaders: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Processes that read images on disk, for each device; 0: none. By default up to "
            "16 on a GPU, by the number of cores, and none on a CPU.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, or auto: a GPU if there is one.")
    ] = "auto",
    plugins: Plugins = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the runs and their cost; write nothing.")
    ] = False,
    no_tables: Annotated[
        bool, typer.Option("--no-tables", help="Train and evaluate only.")
    ] = False,
    on: On = "local",
    parallel: Parallel = None,
    runs_per_job: RunsPerJob = None,
    time: Time = None,
    partition: Partition = None,
    account: Account = None,
    gpus_per_run: GpusPerRun = None,
    cpus_per_run: CpusPerRun = None,
    slurm_options: OptionsFile = None,
    wait: Wait = False,
) -> int:
    """Train and evaluate what is not done yet, then write tables, figures and the report.

    Runs that are done are skipped, interrupted ones go on from their last checkpoint, and a failed
    one does not stop the others. On a cluster the command ends when the jobs are queued.

    Example: sigma-bench run digits --method sigma_nens --set budget.epochs=5
    """
    flags = SlurmFlags(
        parallel,
        runs_per_job,
        time,
        partition,
        account,
        gpus_per_run,
        cpus_per_run,
        slurm_options,
        wait,
    )
    cluster = check_place(on, workers) == "slurm"
    if not cluster:
        flags.check_unused()
    check_folder("--data", data)
    asked = request(suite, settings, results, plugins, scale)
    chosen = choose_runs(asked, methods or [], seeds or [])
    from bench.console import make_console

    console = make_console()
    if dry_run:
        from bench.cli.dry_run import show_plans

        show_plans(asked, chosen, data, device, console)
        return 0
    try:
        todo = _to_do(asked, chosen, console)
        if cluster and todo:
            failed = submit_runs(asked, todo, data, device, flags, console)
        else:
            failed = _do(asked, todo, data, device, workers, loaders, console)
        if not no_tables and (not cluster or wait):
            from bench.cli.writing import write_everything

            write_everything(asked, console)
    except KeyboardInterrupt:
        print(f"interrupted: {WHAT_NOW[cluster]}", file=sys.stderr)
        return INTERRUPTED
    if failed:
        console.print(f"{failed} failed: `sigma-bench status {asked.asked}` says why")
    return 1 if failed else 0


def choose_runs(asked: Request, methods: list[str], seeds: list[int]) -> list[RunSpec]:
    """The runs of a suite that the filters leave.

    Raises:
        UserError: a filter names what the suite does not have.
    """
    runs = asked.suite.runs()
    names = {name for run in runs for name in (run.method, run.label)}
    for method in methods:
        if method not in names:
            raise UserError(f"--method: {unknown('method', method, names)}")
    for seed in seeds:
        if seed not in asked.suite.seeds:
            have = ", ".join(str(one) for one in asked.suite.seeds)
            raise UserError(
                f"--seed {seed}: suite {asked.suite.name} has the seeds {have}: "
                f"change them with --set 'seeds=[{seed}]'"
            )
    return [
        run
        for run in runs
        if (not methods or run.method in methods or run.label in methods)
        and (not seeds or run.seed in seeds)
    ]


def is_done(asked: Request, run: RunSpec) -> bool:
    """Whether a run is done and its files are whole; a damaged one is done again, by name."""
    try:
        return asked.folder.run(run).verify()
    except Damaged:
        return False


def check_sources(runs: list[RunSpec], data: Path) -> None:
    """Find out now what would stop the matrix half-way: a later task's data, a backbone of timm.

    The data of a single task are looked at by whoever starts with it, before anything is written.

    Raises:
        UserError: data are missing, or timm has no such model.
    """
    backbones = {run.backbone for run in runs if run.backbone.startswith(TIMM)}
    if backbones:
        import timm  # noqa: F401  # names are looked up in it once it is imported

        for backbone in sorted(backbones):
            check_backbone_name(backbone)
    inputs = {(run.task.model_dump_json(), run.backbone): run for run in runs}
    if len(inputs) > 1:
        for run in inputs.values():
            load_task(run.task, data, run.backbone)


def _to_do(asked: Request, chosen: list[RunSpec], console: Console) -> list[RunSpec]:
    """The runs that are not done; says how many there are."""
    todo = [run for run in chosen if not is_done(asked, run)]
    done = len(chosen) - len(todo)
    skipped = f", {done} done already" if done else ""
    console.print(f"{asked.suite.name}: {len(chosen)} runs{skipped}, in {asked.folder.path}")
    return todo


def _do(
    asked: Request,
    todo: list[RunSpec],
    data: Path,
    device: str,
    workers: int,
    loaders: int | None,
    console: Console,
) -> int:
    """Do the runs; how many failed."""
    if not todo:
        return 0
    check_sources(todo, data)
    from bench.console import make_display
    from bench.execution import Placement, execute

    place = Placement(
        results=asked.folder.path.parent,
        suite=asked.suite.name,
        data=data,
        device=device,
        workers=workers,
        plugins=asked.plugins,
        loaders=loaders,
    )
    with make_display(console, todo) as display:
        outcomes = execute(todo, place, display.observe)
    return list(outcomes.values()).count("failed")
