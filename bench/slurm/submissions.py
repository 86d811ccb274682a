"""What was submitted, in ``<suite>/slurm``: enough to find every job again, whoever has died.

``jobs.jsonl`` gets a line before an array of jobs is submitted (its name, and the runs of each job)
and one after (its number). Names are never given twice, so that an array can be found in the queue
by its name alone, should the submitting process die between the two.
``<name>.json`` is what the jobs read: complete run specifications and where data and results lie.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.files import read_json, write_json
from bench.suite import RunSpec


@dataclass(frozen=True)
class Submission:
    """An array of jobs that was, or was to be, submitted.

    Attributes:
        name: of the array in the queue.
        tasks: the ids of the runs of each job.
        array: the array's number; None where it is not known.
    """

    name: str
    tasks: tuple[tuple[str, ...], ...]
    array: str | None = None


class SlurmFolder:
    """The folder of a suite's jobs: ``<results>/<suite>/slurm``."""

    def __init__(self, suite_folder: Path) -> None:
        self.path = suite_folder / "slurm"

    @property
    def ledger(self) -> Path:
        """The list of all submissions."""
        return self.path / "jobs.jsonl"

    def job_file(self, name: str) -> Path:
        """What the jobs of an array read."""
        return self.path / f"{name}.json"

    def log(self, job: str) -> Path:
        """What a job printed."""
        return self.path / f"{job}_0_log.out"

    def submissions(self) -> list[Submission]:
        """All submissions, the oldest first. A line that a crash cut off is left out."""
        found: dict[str, Submission] = {}
        for line in self._lines():
            name = line.get("name")
            if not isinstance(name, str):
                continue
            if "tasks" in line:
                tasks = tuple(tuple(map(str, runs)) for runs in line["tasks"])
                found[name] = Submission(name, tasks)
            elif name in found and "array" in line:
                found[name] = Submission(name, found[name].tasks, str(line["array"]))
        return list(found.values())

    def announce(
        self, suite: str, tasks: Sequence[Sequence[RunSpec]], place: dict[str, Any]
    ) -> Submission:
        """Write what an array of jobs needs, and that it will be submitted.

        Args:
            suite: whose runs these are.
            tasks: the runs of each job.
            place: what the jobs need to know beside; JSON values.
        """
        name = f"{suite}-{secrets.token_hex(4)}"
        content = [[spec.model_dump(mode="json") for spec in runs] for runs in tasks]
        write_json(self.job_file(name), {**place, "tasks": content})
        submission = Submission(name, tuple(tuple(spec.id for spec in runs) for runs in tasks))
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        self._append({"name": name, "submitted": moment, "tasks": submission.tasks})
        return submission

    def number(self, name: str, array: str) -> None:
        """Note the number that an array got."""
        self._append({"name": name, "array": array})

    def _append(self, line: dict[str, Any]) -> None:
        """Add a line whole, after whatever a crash left."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.ledger, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o666)
        try:
            size = os.fstat(descriptor).st_size
            cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, (b"\n" if cut else b"") + json.dumps(line).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = self.ledger.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        lines = []
        for line in text.splitlines():
            try:
                content = json.loads(line)
            except ValueError:
                continue
            if isinstance(content, dict):
                lines.append(content)
        return lines


def read_job_file(path: Path) -> tuple[dict[str, Any], list[list[RunSpec]]]:
    """What `SlurmFolder.announce` wrote: the place, and the runs of each job.

    Raises:
        bench.files.Damaged: it is not what was written.
    """
    place = read_json(path)
    tasks = [[RunSpec.model_validate(spec) for spec in runs] for runs in place.pop("tasks")]
    return place, tasks
