"""The smallest runs there are, what they give, and how a test does them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from bench.execution import Event, Placement, execute
from bench.files import file_digest
from bench.store import RunFolder, SuiteFolder
from bench.suite import RunSpec
from bench.suite_files import load_suite

NAME = "faults"
SUITE: dict[str, Any] = {
    "name": NAME,
    "tasks": [{"name": "digits", "corruptions": ["contrast"], "severities": [1]}],
    "backbones": ["resnet8"],
    "methods": ["single"],
    "seeds": [0],
    "budget": {"match": "epochs", "epochs": 1},
    "recipe": {"batch_size": 64, "augment": ["shift"], "member_chunk": 1},
}
SCORES = ("temperature", "validation", "test", "shift", "ood")
"""What of `metrics.json` does not depend on the clock."""


def write_suite(folder: Path, **changes: Any) -> Path:
    """A suite file in a folder."""
    path = folder / f"{NAME}.yaml"
    path.write_text(yaml.safe_dump({**SUITE, **changes}))
    return path


def place(results: Path, **changes: Any) -> Placement:
    """Where runs run here; a state is kept after every step."""
    values = {"results": results, "suite": NAME, "data": Path("nowhere"), "device": "cpu"}
    return Placement(**{**values, "workers": 1, "checkpoint_seconds": 0.0, **changes})


def do(suite: Path, results: Path, **changes: Any) -> tuple[list[str], list[Event]]:
    """Do the runs of a suite in this process: how each ended, and all that happened."""
    runs = load_suite(str(suite)).runs()
    events: list[Event] = []
    outcomes = execute(runs, place(results, **changes), events.append)
    return [outcomes[run.id] for run in runs], events


def folders(suite: Path, results: Path) -> list[RunFolder]:
    """The folder of each run."""
    return [SuiteFolder(results, NAME).run(run) for run in load_suite(str(suite)).runs()]


def only_folder(suite: Path, results: Path) -> RunFolder:
    """The folder of a suite's one run."""
    (folder,) = folders(suite, results)
    return folder


def answer(folder: RunFolder, course: bool = True) -> dict[str, Any]:
    """What a run found out, bit for bit: weights, records, scores; and the course of training."""
    assert folder.verify(), folder.path
    metrics = folder.metrics() or {}
    paths = [folder.model_path, *sorted((folder.path / "records").iterdir())]
    text = (folder.path / "progress.jsonl").read_text() if course else ""
    lines = map(json.loads, text.splitlines())
    return {
        "files": {path.name: file_digest(path) for path in paths},
        "scores": {name: metrics[name] for name in SCORES},
        "progress": [(line["network"], line["step"], line["loss"]) for line in lines],
    }


def leftovers(folder: Path) -> list[Path]:
    """Files that are half-written, or seem so."""
    return sorted(folder.rglob("*.tmp"))


class Helper:
    """The process of `forking.py`, which imports everything once; see there."""

    def __init__(self, errors: Path) -> None:
        self.errors = errors
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("forking.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors.open("w"),
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def __call__(self, what: str, suite: Path, folder: Path, number: int) -> Any:
        """Let it do something, and give what it found."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([what, str(suite), str(folder), number]), file=self.process.stdin)
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        said = self.errors.read_text()
        assert line, said
        assert "Traceback" not in said
        return json.loads(line)

    def close(self) -> None:
        """Let it end."""
        self.process.communicate(timeout=60)


def spec_of(suite: Path) -> RunSpec:
    """A suite's one run."""
    (run,) = load_suite(str(suite)).runs()
    return run
