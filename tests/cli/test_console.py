"""What a person sees of a matrix, event by event, with a clock that the test moves."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from bench.console import (
    TRAINING_SHARE,
    LiveDisplay,
    Matrix,
    PlainDisplay,
    duration,
    make_console,
    make_display,
    trained_share,
    training_words,
)
from bench.execution import Event
from bench.recipe import Budget, Evaluation, Recipe
from bench.suite import RunSpec, TaskSpec


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def spec(seed: int, task: str = "digits", label: str = "single") -> RunSpec:
    return RunSpec(
        task=TaskSpec(name=task),
        backbone="resnet8",
        method="single",
        parameters={},
        seed=seed,
        recipe=Recipe(),
        budget=Budget(epochs=1),
        evaluation=Evaluation(),
        label=label,
    )


def tick(**changes: Any) -> dict[str, Any]:
    return {
        "network": 0,
        "networks": 1,
        "step": 5,
        "steps": 20,
        "epoch": 1.0,
        "loss": 1.25,
        "learning_rate": 0.1,
        "images_per_second": 5432.1,
        "seconds": 10.0,
        "epoch_end": False,
    } | changes


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7800, "2 h 10 min"),
        (200000, "55 h 33 min"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_training_words_count_the_networks_that_are_still_to_come() -> None:
    assert training_words(tick()) == (
        "epoch 1.0/4, 30 s left, loss 1.25, 5,432 images/s"  # 15 steps of 2 s
    )
    words = training_words(tick(network=1, networks=4))
    assert words.startswith("network 2/4, epoch 1.0/4, 1 min 50 s left")  # 15 + 2 × 20 steps of 2 s


def test_trained_share_is_over_all_networks() -> None:
    assert trained_share(tick(step=20)) == 1.0
    assert trained_share(tick(network=1, networks=4)) == pytest.approx(1.25 / 4)


def test_the_time_left_follows_from_the_pace() -> None:
    clock = Clock()
    runs = [spec(seed) for seed in range(4)]
    matrix = Matrix(runs, clock)
    assert matrix.seconds_left is None
    assert matrix.summary() == "0/4 runs"
    matrix.note(Event("start", runs[0]))
    clock.time += 30
    assert matrix.note(Event("end", runs[0], outcome="done")) == 30
    assert matrix.seconds_left == pytest.approx(90)
    assert matrix.summary() == "1/4 runs, about 1 min 30 s left"
    matrix.note(Event("tick", runs[1], data=tick(step=10)))
    assert matrix.share == pytest.approx((1 + 0.5 * TRAINING_SHARE) / 4)
    matrix.note(Event("waiting", runs[1], "another process works on it"))
    assert matrix.share == pytest.approx(1 / 4)
    for run, outcome in zip(runs[1:], ("failed", "not applicable", "done"), strict=True):
        matrix.note(Event("end", run, outcome=outcome))
    assert matrix.summary() == "4/4 runs, 1 failed, 1 not applicable"


def test_task_and_backbone_are_named_only_where_they_vary() -> None:
    one, other = spec(0), spec(0, task="cifar10")
    assert Matrix([one, spec(1)]).name(one) == "single, seed 0"
    assert Matrix([one, other]).name(other) == "single, seed 0 (cifar10, resnet8)"


def plain(runs: list[RunSpec], clock: Clock) -> tuple[PlainDisplay, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, markup=False, highlight=False, soft_wrap=True, width=40)
    return PlainDisplay(console, Matrix(runs, clock)), file


def test_plain_lines_are_whole_and_rare() -> None:
    clock = Clock()
    runs = [spec(seed) for seed in range(2)]
    display, file = plain(runs, clock)
    with display:
        display.observe(Event("start", runs[0]))
        for step in range(1, 20):
            clock.time += 1
            display.observe(Event("tick", runs[0], data=tick(step=step)))
        display.observe(Event("end", runs[0], "ValueError: [red]no[/red] " + 50 * "x", "failed"))
    lines = file.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].strip() == "start  single, seed 0"
    assert "epoch 1.0/2, 10 s left, loss 1.25, 5,432 images/s" in lines[1]
    assert "[red]no[/red] " + 50 * "x" in lines[2]
    assert lines[2].endswith("[1/2 runs, 1 failed, about 19 s left]")


def test_plain_stages_are_rare_but_notes_and_waits_are_not() -> None:
    clock = Clock()
    run = spec(0)
    display, file = plain([run], clock)
    display.observe(Event("stage", run, "validation"))
    display.observe(Event("note", run, "a.parquet: damaged: redoing it"))
    display.observe(Event("waiting", run, "another process works on it"))
    clock.time += 10
    display.observe(Event("stage", run, "test"))
    texts = [line.split(":")[-1].split("  [")[0].strip() for line in file.getvalue().splitlines()]
    assert texts == ["redoing it", "another process works on it", "test"]


def test_live_rows_come_and_go_and_endings_stay() -> None:
    clock = Clock()
    runs = [spec(seed) for seed in range(2)]
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120, height=30, markup=False)
    display = LiveDisplay(console, Matrix(runs, clock))
    with display:
        display.observe(Event("start", runs[0]))
        display.observe(Event("start", runs[1]))
        display.observe(Event("tick", runs[0], data=tick()))
        display._progress.refresh()
        assert "epoch 1.0/4" in file.getvalue()
        display.observe(Event("stage", runs[1], "validation"))
        display.observe(Event("end", runs[0], "", "done"))
        display.observe(Event("end", runs[1], "ValueError: no", "failed"))
        assert [task.description for task in display._progress.tasks] == ["matrix"]
        assert display._progress.tasks[0].completed == 1.0
    shown = file.getvalue()
    assert "single, seed 0" in shown
    assert "ValueError: no" in shown


def test_a_run_that_was_waited_for_may_end_without_a_start() -> None:
    run = spec(0)
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with LiveDisplay(console, Matrix([run], Clock())) as display:
        display.observe(Event("waiting", run, "another process works on it"))
        display.observe(Event("end", run, "", "done"))
        assert len(display._progress.tasks) == 1


def test_plain_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    console = make_console()
    assert not console.is_terminal
    assert console.width >= 160
    assert isinstance(make_display(console, []), PlainDisplay)
    assert isinstance(make_display(Console(force_terminal=True), []), LiveDisplay)
