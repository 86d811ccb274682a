"""What a person sees while a matrix runs: live rows on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from bench.execution import Event
from bench.suite import RunSpec

PLAIN_WIDTH = 200
"""Columns where no terminal says how many it has; lines in files should not be cut at 80."""
QUIET_SECONDS = 10.0
"""Plain lines of progress are at least this far apart."""
TRAINING_SHARE = 0.8
"""Of a run's time, for the estimate of what is left; planning and evaluation take the rest."""
LEAST_SHARE = 0.05
"""Of the work, before the time left is estimated."""
BAR_WIDTH = 12
STYLES = {"done": "green", "failed": "bold red", "not applicable": "yellow"}

Clock = Callable[[], float]


class Display(Protocol):
    """Shows the events of a matrix; a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def observe(self, event: Event) -> None:
        """Show an event."""


def make_console(*, stderr: bool = False) -> Console:
    """A console that shows texts as they are: no markup, no guessed colours, nothing cut off."""
    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)
    asked = os.environ.get("COLUMNS", "")
    known = asked.isdigit() and int(asked) > 0
    if not known and not console.is_terminal:
        console.width = PLAIN_WIDTH
    elif not known and asked:
        # Some shells export 0; Rich would print nothing at all.
        console.width = shutil.get_terminal_size().columns
    return console


def make_display(console: Console, runs: Sequence[RunSpec]) -> Display:
    """Live rows if the console is a terminal that can redraw, plain lines if not."""
    matrix = Matrix(runs)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveDisplay(console, matrix)
    return PlainDisplay(console, matrix)


def duration(seconds: float) -> str:
    """Seconds in the two largest units: ``8 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


class Matrix:
    """How far the runs that are to be done have come.

    Args:
        runs: those that `bench.execution.execute` gets.
        clock: seconds, monotonic.
    """

    def __init__(self, runs: Sequence[RunSpec], clock: Clock = time.monotonic) -> None:
        self.total = len(runs)
        self.clock = clock
        self.outcomes: dict[str, str] = {}
        self._opened = clock()
        self._started: dict[str, float] = {}
        self._shares: dict[str, float] = {}
        places = {(run.task.name, run.backbone) for run in runs}
        self._one_place = len(places) <= 1

    def name(self, run: RunSpec) -> str:
        """What a person calls the run; its task and backbone only where they vary."""
        name = f"{run.label or run.method}, seed {run.seed}"
        return name if self._one_place else f"{name} ({run.task.name}, {run.backbone})"

    def note(self, event: Event) -> float | None:
        """Account for an event; the seconds that a run took, if it ends one."""
        run = event.run.id
        if event.kind == "start":
            self._started.setdefault(run, self.clock())
        elif event.kind == "tick":
            self._shares[run] = TRAINING_SHARE * trained_share(event.data)
        elif event.kind in ("end", "waiting"):
            self._shares.pop(run, None)
            begun = self._started.pop(run, None)
            if event.kind == "end":
                self.outcomes[run] = event.outcome
                return None if begun is None else self.clock() - begun
        return None

    @property
    def share(self) -> float:
        """Of the work, in ``[0, 1]``; runs count alike."""
        return (len(self.outcomes) + sum(self._shares.values())) / max(1, self.total)

    @property
    def seconds_left(self) -> float | None:
        """By the pace so far; None while that says nothing yet."""
        share = self.share
        if share < LEAST_SHARE:
            return None
        return (self.clock() - self._opened) * (1 - share) / share

    def summary(self) -> str:
        """Runs that ended, how, and the time left."""
        parts = [f"{len(self.outcomes)}/{self.total} runs"]
        parts += [
            f"{count} {outcome}"
            for outcome in ("failed", "not applicable")
            if (count := list(self.outcomes.values()).count(outcome))
        ]
        left = self.seconds_left
        if left is not None and len(self.outcomes) < self.total:
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)


def trained_share(tick: dict[str, Any]) -> float:
    """Share of a run's training that is done, over all its networks."""
    inner = tick["step"] / tick["steps"]
    return float((tick["network"] + inner) / tick["networks"])


def training_words(tick: dict[str, Any]) -> str:
    """A `bench.training.Tick` for a person."""
    epochs = tick["epoch"] * tick["steps"] / tick["step"]
    steps_left = tick["steps"] * (tick["networks"] - tick["network"]) - tick["step"]
    seconds_left = steps_left * tick["seconds"] / tick["step"]
    words = [
        f"epoch {tick['epoch']:.1f}/{epochs:.4g}",
        f"{duration(seconds_left)} left",
        f"loss {tick['loss']:.3g}",
        f"{tick['images_per_second']:,.0f} images/s",
    ]
    if tick["networks"] > 1:
        words.insert(0, f"network {tick['network'] + 1}/{tick['networks']}")
    return ", ".join(words)


def ending(event: Event, name: str, seconds: float | None) -> Text:
    """The line that stays when a run has ended."""
    line = Text.assemble((f"{event.outcome:>14}", STYLES.get(event.outcome, "")), f"  {name}")
    if event.text:
        line.append(f": {event.text}")
    elif seconds is not None:
        line.append(f", {duration(seconds)}", style="dim")
    return line


class PlainDisplay:
    """One line when a run starts or ends, and one line of progress now and then."""

    def __init__(self, console: Console, matrix: Matrix) -> None:
        self.console = console
        self.matrix = matrix
        self._spoke = matrix.clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def observe(self, event: Event) -> None:
        """Print what is worth a line."""
        seconds = self.matrix.note(event)
        name = self.matrix.name(event.run)
        if event.kind == "start":
            self._say(f"{'start':>14}  {name}")
        elif event.kind == "end":
            line = ending(event, name, seconds)
            self._say(line.append(f"  [{self.matrix.summary()}]"))
        elif event.kind == "note":
            self._say(f"{'note':>14}  {name}: {event.text}")
        elif event.kind == "waiting":
            self._say(f"{'waiting':>14}  {name}: {event.text}")
        elif self.matrix.clock() - self._spoke >= QUIET_SECONDS:
            words = training_words(event.data) if event.kind == "tick" else event.text
            self._say(f"{'':>14}  {name}: {words}  [{self.matrix.summary()}]")

    def _say(self, line: str | Text) -> None:
        self._spoke = self.matrix.clock()
        self.console.print(line)


class LiveDisplay:
    """A row for each run in work under the matrix' own bar; what ended stays above."""

    def __init__(self, console: Console, matrix: Matrix) -> None:
        self.console = console
        self.matrix = matrix
        self._rows: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=_column()),
            BarColumn(bar_width=BAR_WIDTH, table_column=Column(width=BAR_WIDTH)),
            TextColumn("{task.fields[words]}", markup=False, table_column=_column(1)),
            console=console,
            expand=True,
        )
        self._whole = self._progress.add_task("matrix", total=1.0, words=matrix.summary())

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        for row in self._rows.values():
            self._progress.remove_task(row)
        self._progress.stop()

    def observe(self, event: Event) -> None:
        """Move the rows; print what should stay."""
        seconds = self.matrix.note(event)
        name = self.matrix.name(event.run)
        if event.kind == "start":
            self._row(event, name)
        elif event.kind == "end":
            self._drop(event)
            self._progress.console.print(ending(event, name, seconds))
        elif event.kind == "note":
            self._progress.console.print(Text(f"{'note':>14}  {name}: {event.text}"))
        elif event.kind == "waiting":
            self._drop(event)
            self._progress.console.print(Text(f"{'waiting':>14}  {name}: {event.text}"))
        elif event.kind == "tick":
            row = self._row(event, name)
            self._progress.update(
                row, completed=trained_share(event.data), words=training_words(event.data)
            )
        else:
            self._progress.update(self._row(event, name), words=event.text)
        self._progress.update(self._whole, completed=self.matrix.share, words=self.matrix.summary())

    def _row(self, event: Event, name: str) -> TaskID:
        if event.run.id not in self._rows:
            self._rows[event.run.id] = self._progress.add_task(name, total=1.0, words="starting")
        return self._rows[event.run.id]

    def _drop(self, event: Event) -> None:
        if event.run.id in self._rows:
            self._progress.remove_task(self._rows.pop(event.run.id))


def _column(ratio: int | None = None) -> Column:
    return Column(no_wrap=True, overflow="ellipsis", ratio=ratio)
