"""``sigma-bench status``: how every run of a suite stands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.options import (
    DEFAULT_RESULTS,
    Plugins,
    Results,
    Scale,
    Settings,
    SuiteName,
    request,
)
from bench.slurm.submissions import SlurmFolder
from bench.store import Progress, State
from bench.tables.collection import Collection, Entry, MethodRuns, collect

if TYPE_CHECKING:
    from rich.table import Table

STATES: tuple[State, ...] = (
    "done",
    "running",
    "queued",
    "failed",
    "interrupted",
    "not run",
    "not applicable",
)
STYLES = {
    "done": "green",
    "running": "cyan",
    "queued": "blue",
    "failed": "bold red",
    "interrupted": "magenta",
    "not run": "dim",
    "not applicable": "yellow",
}


def status(
    suite: SuiteName,
    scale: Scale = None,
    settings: Settings = None,
    results: Results = DEFAULT_RESULTS,
    plugins: Plugins = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show which runs of a suite are done, and why others are not.

    Example: sigma-bench status digits
    """
    asked = request(suite, settings, results, plugins, scale)
    collection = collect(asked.suite, asked.folder, asked.asked)
    collection, problem = _with_queue(collection)
    if as_json:
        print(json.dumps(_content(collection), indent=1))
        return
    from bench.console import make_console

    console = make_console()
    console.print(_grid(collection))
    console.print(f"{collection.suite.name}: {_counts(collection)}")
    if problem:
        console.print(f"by the disk alone, as the queue can't be asked: {problem}")
    if others := asked.folder.others(entry.spec for entry in collection.entries):
        console.print(f"beside {others} with other settings: repeat their --set to see them")


def _with_queue(collection: Collection) -> tuple[Collection, str]:
    """The runs as disk and queue have them, and why the queue could not be asked, if so."""
    jobs = SlurmFolder(collection.folder.path)
    if not jobs.ledger.exists():
        return collection, ""
    from bench.slurm.standing import look, true_state

    open_runs = [entry.spec.id for entry in collection.entries if entry.state != "done"]
    standing = look(jobs, open_runs)
    entries = []
    for entry in collection.entries:
        if entry.state == "done":
            entries.append(entry)
            continue
        state, words = true_state(entry.state, entry.reason, entry.folder, standing, jobs)
        entries.append(replace(entry, state=state, reason=words))
    return replace(collection, entries=tuple(entries)), standing.error


def _content(collection: Collection) -> dict[str, Any]:
    return {
        "suite": collection.suite.name,
        "folder": str(collection.folder.path),
        "counts": {state: collection.counts.get(state, 0) for state in STATES},
        "runs": [
            {
                "id": entry.spec.id,
                "method": entry.spec.method,
                "label": entry.spec.label,
                "task": entry.spec.task.name,
                "backbone": entry.spec.backbone,
                "seed": entry.spec.seed,
                "state": entry.state,
                "reason": entry.reason,
            }
            for entry in collection.entries
        ],
    }


def _counts(collection: Collection) -> str:
    counted = [f"{count} {state}" for state in STATES if (count := collection.counts.get(state, 0))]
    return f"{len(collection.entries)} runs: {', '.join(counted)}"


def _grid(collection: Collection) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    several = len(collection.groups) > 1
    grid = Table(box=box.SIMPLE_HEAD)
    for heading in (*(("Task", "Backbone") if several else ()), "Method", "Seed", "State", ""):
        grid.add_column(heading, justify="right" if heading == "Seed" else "left", overflow="fold")
    for task, backbone, method, entry in _rows(collection):
        place = (Text(task), Text(backbone)) if several else ()
        state = Text(entry.state, style=STYLES[entry.state])
        words = Text(", ".join(filter(None, (_where(entry), entry.reason))))
        grid.add_row(*place, Text(method.label), str(entry.spec.seed), state, words)
    return grid


def _rows(collection: Collection) -> Iterator[tuple[str, str, MethodRuns, Entry]]:
    for group in collection.groups:
        for method in group.methods:
            for entry in method.entries:
                yield group.task, group.backbone, method, entry


def _where(entry: Entry) -> str:
    """How far a run that isn't done has come, by its last finished epoch."""
    if entry.state not in ("running", "interrupted", "queued"):
        return ""
    lines = Progress(entry.folder.path / "progress.jsonl").lines()
    words = []
    if lines:
        last = lines[-1]
        if last["networks"] > 1:
            words.append(f"network {last['network'] + 1}/{last['networks']}")
        words += [f"epoch {last['epoch']:.1f}", f"step {last['step']}/{last['steps']}"]
    holder = entry.folder.holder() if entry.state == "running" else None
    if holder is not None and holder.host:
        job = f" (job {holder.job})" if holder.job else ""
        words.append(f"on {holder.host}{job} since {_local(holder.since)}")
    return ", ".join(words)


def _local(moment: str) -> str:
    """A moment of a claim by the clock on the wall here."""
    try:
        return f"{datetime.fromisoformat(moment).astimezone():%d %b %H:%M}"
    except ValueError:
        return moment
