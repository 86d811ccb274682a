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
from bench.data.catalogue import load_task
from bench.errors import UserError, unknown
from bench.files import Damaged
from bench.suite import RunSpec

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


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
            min=0, metavar="N", help="Worker processes; 0: one a GPU, or one a core on a CPU."
        ),
    ] = 0,
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
) -> int:
    """Train and evaluate what is not done yet, then write tables, figures and the report.

    Runs that are done are skipped, interrupted ones go on from their last checkpoint, and a failed
    one does not stop the others.

    Example: sigma-bench run digits --method sigma_nens --set budget.epochs=5
    """
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
        failed = _do(asked, chosen, data, device, workers, console)
        if not no_tables:
            from bench.cli.writing import write_everything

            write_everything(asked, console)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from the last checkpoints", file=sys.stderr)
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


def _do(
    asked: Request, chosen: list[RunSpec], data: Path, device: str, workers: int, console: Console
) -> int:
    """Do the runs; how many failed."""
    todo = [run for run in chosen if not is_done(asked, run)]
    done = len(chosen) - len(todo)
    skipped = f", {done} done already" if done else ""
    console.print(f"{asked.suite.name}: {len(chosen)} runs{skipped}, in {asked.folder.path}")
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
    )
    with make_display(console, todo) as display:
        outcomes = execute(todo, place, display.observe)
    return list(outcomes.values()).count("failed")
