"""A suite's results as a folder to keep under version control: small, and enough for every table.

Weights, checkpoints and the per-sample records of corrupted and out-of-distribution samples stay
behind. What is copied is read by `tables` and `report` as it is.
"""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.files import Damaged, read_json, write_bytes, write_text
from bench.store import RunFolder, SuiteFolder
from bench.tables.collection import Collection, Entry, collect

LARGEST = 1_000_000
"""Bytes of a file that is worth keeping under version control."""

ALWAYS = ("spec.json", "environment.json", "plan.json", "training.json", "progress.jsonl")
RECORDS = "records/test.parquet"
"""What paired differences and reliability diagrams are made from."""
COPIED = (*ALWAYS, "failure.json", "not_applicable.json", RECORDS, "metrics.json")
"""The files of a run that are published; the scores last, as their presence means «done»."""


@dataclass(frozen=True)
class Published:
    """What was put where.

    Attributes:
        folder: the suite's folder.
        runs: how many runs have their scores there.
        bytes: of their files.
        left_out: records that were too large, by path.
        replaced: how many other runs were published there before.
    """

    folder: SuiteFolder
    runs: int
    bytes: int
    left_out: tuple[Path, ...]
    replaced: int


def publish(collection: Collection, target: Path, command: str) -> Published:
    """Copy the records of a suite's runs, then make tables and figures from the copies.

    Args:
        collection: the suite's runs; those that are done, failed or don't apply are copied.
        target: a folder of results other than that of the runs.
        command: what was typed to get the results, for the README.md of the folder.

    Returns:
        what was published.

    Raises:
        UserError: no run is done, or the target is no folder to publish into.
    """
    from bench.figures import write_figures
    from bench.tables import write_tables

    folder = SuiteFolder(target, collection.suite.name)
    _check_target(folder, collection.folder, target)
    if not collection.done:
        raise UserError(
            f"suite {collection.suite.name}: no run is done in {collection.folder.path}: "
            f"start with `sigma-bench run {collection.asked}`"
        )
    replaced = folder.others(entry.spec for entry in collection.entries)
    shutil.rmtree(folder.path / "runs", ignore_errors=True)
    kept = [_copy(entry, folder.run(entry.spec)) for entry in collection.entries]
    copies = collect(collection.suite, folder, _asked_in(target, collection.asked))
    write_tables(copies)
    write_figures(copies)
    write_text(folder.path / "README.md", _readme(copies, command))
    return Published(
        folder,
        copies.done,
        sum(size for size, _ in kept),
        tuple(path for _, left_out in kept for path in left_out),
        replaced,
    )


def _asked_in(target: Path, asked: str) -> str:
    """The words that ask for a suite, with another folder of results."""
    words = shlex.split(asked)
    if "--results" in words:
        place = words.index("--results")
        del words[place : place + 2]
    return shlex.join([*words, "--results", str(target)])


def _check_target(folder: SuiteFolder, runs: SuiteFolder, target: Path) -> None:
    """Refuse to publish over runs, of whichever folder: what is published takes their place.

    Raises:
        UserError: names what is in the way.
    """
    here, there = folder.path.resolve(), runs.path.resolve()
    if here == there:
        raise UserError(f"--to {target}: holds the runs themselves: name another folder")
    if here.is_relative_to(there) or there.is_relative_to(here):
        raise UserError(
            f"--to {target}: {folder.path} and the runs in {runs.path} would lie in each other: "
            "name another folder"
        )
    for run in (folder.path / "runs").glob("*"):
        for path in run.rglob("*"):
            leftover = path.name.startswith(".") and path.name.endswith(".tmp")
            if path.is_file() and path.relative_to(run).as_posix() not in COPIED and not leftover:
                raise UserError(
                    f"--to {target}: {path} was not published, so {folder.path} holds runs that "
                    "would be lost: name another folder"
                )


def _copy(entry: Entry, target: RunFolder) -> tuple[int, list[Path]]:
    """Copy what is small of one run: how many bytes, and which records were too large."""
    source = entry.folder
    if entry.state not in ("done", "failed", "not applicable"):
        return 0, []
    left_out, size = [], 0
    for name in COPIED:
        path = source.path / name
        if not path.exists():
            continue
        content = path.read_bytes()
        if name == RECORDS and len(content) > LARGEST:
            left_out.append(path)
            continue
        write_bytes(target.path / name, content)
        size += len(content)
    return size, left_out


def _readme(collection: Collection, command: str) -> str:
    """What the folder holds, how it came about, and on what."""
    description = " ".join(collection.suite.description.split())
    lines = [
        f"# {collection.suite.name}",
        "",
        *([description, ""] if description else ()),
        "```console",
        command,
        "```",
        "",
        f"{collection.done} of {len(collection.entries)} runs are done{_where(collection)}.",
        "",
        "`runs/` has each run's specification, environment, course of training, scores and test "
        f"records (up to {LARGEST // 1_000_000} MB); weights and other records are not kept. "
        "Tables and figures come from these files alone:",
        "",
        "```console",
        f"sigma-bench tables {collection.asked}",
        f"sigma-bench report {collection.asked}",
        "```",
        "",
    ]
    return "\n".join(lines)


def _where(collection: Collection) -> str:
    """The environments of the runs, each thing once, as the end of a sentence."""
    found = [content for entry in collection.entries if (content := _environment(entry))]
    words: dict[str, None] = {}
    for one in found:
        versions = {"python": one.get("python"), **one.get("packages", {})}
        words |= dict.fromkeys(f"{name} {version}" for name, version in versions.items())
        words |= dict.fromkeys(
            f"{key} {one[key]}" for key in ("device", "git_commit") if key in one
        )
    return f", on {', '.join(words)}" if words else ""


def _environment(entry: Entry) -> dict[str, Any] | None:
    try:
        return read_json(entry.folder.path / "environment.json")
    except (FileNotFoundError, Damaged):
        return None


def command_words(asked: str, target: Path) -> str:
    """The two commands that lead to a published folder."""
    return f"sigma-bench run {asked}\nsigma-bench publish {asked} --to {shlex.quote(str(target))}"
