"""``sigma-bench run --dry-run``: what a suite would do and cost, without doing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.budget import TOLERANCE, Plan
from bench.cli.options import Request
from bench.cli.running import is_done
from bench.data.catalogue import load_task
from bench.device import choose_device
from bench.errors import NotApplicable
from bench.planning import build_network, make_plan
from bench.registry import method_class
from bench.suite import RunSpec
from bench.tables.collection import budgets_words

HEADINGS = ("Seeds", "Done", "Networks", "Steps each", "Train FLOPs", "Parameters", "Off budget")


@dataclass(frozen=True)
class Row:
    """The runs that differ in their seed only, and what each of them would do.

    Attributes:
        runs: one a seed.
        done: how many are done.
        plan: of each; None where the method does not apply.
        parameters: of the whole model.
        reason: why the method does not apply.
    """

    runs: list[RunSpec]
    done: int
    plan: Plan | None
    parameters: int
    reason: str

    @property
    def flops(self) -> int:
        """Training FLOPs of one run."""
        return self.plan.networks * self.plan.steps * self.plan.step_flops if self.plan else 0


def show_plans(
    asked: Request, runs: list[RunSpec], data: Path, device: str, console: Console
) -> None:
    """Print one row for each method on each task and backbone, and the total.

    Raises:
        UserError: data or device are missing.
    """
    where = choose_device(device)
    rows = list(_rows(asked, runs, data, where))
    console.print(_grid(rows))
    console.print(f"Budget: {budgets_words(runs)}.")
    left = sum(row.flops * (len(row.runs) - row.done) for row in rows)
    total = sum(row.flops * len(row.runs) for row in rows)
    done = sum(row.done for row in rows)
    console.print(
        f"{len(runs)} runs, {done} done: {_large(total)}FLOPs of training, "
        f"{_large(left)}FLOPs left."
    )
    if any(run.budget.match == "device_seconds" for run in runs):
        console.print(f"Steps were timed on {where}; each run times its own when it starts.")


def _rows(asked: Request, runs: list[RunSpec], data: Path, device: torch.device) -> Iterator[Row]:
    def family(run: RunSpec) -> tuple[str, str, str]:
        return run.task.model_dump_json(), run.backbone, run.label

    order = {key: place for place, key in enumerate(dict.fromkeys(map(family, runs)))}
    for _, members in groupby(sorted(runs, key=lambda r: order[family(r)]), key=family):
        same = list(members)
        yield _row(same, sum(is_done(asked, run) for run in same), data, device)


def _row(runs: list[RunSpec], done: int, data: Path, device: torch.device) -> Row:
    spec = runs[0]
    task = load_task(spec.task, data, spec.backbone)
    method = method_class(spec.method)(**spec.parameters)
    if spec.budget.match != "device_seconds":
        # The chunk changes the speed alone, so there is no need to measure one.
        recipe = spec.recipe.model_copy(update={"member_chunk": method.members})
        spec = spec.model_copy(update={"recipe": recipe})
    try:
        network = build_network(spec, method, task, 0, data)
        plan = make_plan(spec, method, task, network, device, data)
    except NotApplicable as reason:
        return Row(runs, done, None, 0, str(reason))
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return Row(runs, done, plan, plan.networks * parameters, "")


def _grid(rows: list[Row]) -> Table:
    several = len({(row.runs[0].task.name, row.runs[0].backbone) for row in rows}) > 1
    grid = Table(box=box.SIMPLE_HEAD)
    for heading in (*(("Task", "Backbone") if several else ()), "Method"):
        grid.add_column(heading, overflow="fold")
    for heading in HEADINGS:
        grid.add_column(heading, justify="right", overflow="fold")
    grid.add_column("", overflow="fold")
    for row in rows:
        spec = row.runs[0]
        place = (Text(spec.task.name), Text(spec.backbone)) if several else ()
        grid.add_row(*place, Text(spec.label), *_cells(row))
    return grid


def _cells(row: Row) -> list[Text]:
    seeds = [", ".join(str(run.seed) for run in row.runs), str(row.done)]
    if row.plan is None:
        words = [*seeds, *[""] * (len(HEADINGS) - 2), f"not applicable: {row.reason}"]
        return [Text(word) for word in words]
    deviation = row.plan.deviation
    words = [
        *seeds,
        str(row.plan.networks),
        f"{row.plan.steps:,}",
        _large(row.flops).strip(),
        f"{row.parameters:,}",
        f"{100 * deviation:+.2f} %",
        "misses its budget" if abs(deviation) > TOLERANCE else "",
    ]
    return [Text(word) for word in words]


def _large(value: float) -> str:
    """A number with three digits and the prefix of its unit: ``1.23 T``."""
    for prefix in ("", "k", "M", "G", "T", "P", "E"):
        if value < 999.5:
            return f"{value:.3g} {prefix}"
        value /= 1000
    return f"{value:.3g} Z"
