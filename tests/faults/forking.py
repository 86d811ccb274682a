"""Starts processes that do runs, and kills them; a process of its own, started by the tests.

It imports everything once and forks: a process then starts at no cost. Nothing is computed before
a fork, as torch's threads would not survive it.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import sklearn.datasets
import torch
import torch_uncertainty
from tiny_runs import do, folders

import bench.figures
import bench.report
import bench.runner
import bench.tables
from bench import execution
from bench.cli import run as sigma_bench

PRELOADED = (
    bench.figures,
    bench.report,
    bench.runner,
    bench.tables,
    sklearn.datasets,
    torch_uncertainty,
)
"""What the processes need: imported once."""


def forked(action: Callable[[], int]) -> int:
    """Start a process that does something and ends with its exit code; gives the process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    os.dup2(2, 1)  # on standard output are answers alone
    try:
        code = action()
    finally:
        sys.stdout.flush()
        os._exit(code)


def waited(pid: int) -> int:
    """How a process ended: its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_after(pid: int, seconds: float) -> int:
    """Kill a process after a while, if it is still there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    return waited(pid)


def run_once(suite: Path, results: Path) -> Callable[[], int]:
    """Do the runs of a suite; 0 if all are done."""
    return lambda: int(set(do(suite, results)[0]) != {"done"})


def measured(action: Callable[[], int]) -> float:
    """Seconds that something takes in a process of its own, which must succeed."""
    start = time.monotonic()
    code = waited(forked(action))
    if code:
        raise RuntimeError(f"it ended with {code}")
    return time.monotonic() - start


def kill_runs(suite: Path, results: Path, kills: int) -> Any:
    """Kill a run at random moments; what is done goes aside, and another begins.

    In ``results / "0"`` is one that was left alone, in ``1`` and so on those that were killed.

    Returns:
        for each of the latter, how each of its processes ended.
    """
    moments = random.Random(0)
    whole = measured(run_once(suite, results / "0"))
    ends: list[list[int]] = []
    while kills:
        ends.append([])
        while not ends[-1] or ends[-1][-1] == -signal.SIGKILL:
            seconds = moments.uniform(0, 0.7 * whole) if kills else 600
            pid = forked(run_once(suite, results / str(len(ends))))
            ends[-1].append(killed_after(pid, seconds))
            kills -= ends[-1][-1] == -signal.SIGKILL
    return ends


def kill_workers(suite: Path, results: Path, kills: int) -> Any:
    """Kill workers of a pool at random moments, and call again until every run is done.

    In ``results / "0"`` are runs that were left alone, in ``1`` and so on those of the pool; what
    is done stays, and others begin.

    Returns:
        for each call, how its runs did and what was said of their ends; how many folders there are.
    """
    moments = random.Random(0)
    longest = 0.8 * measured(run_once(suite, results / "0")) / len(folders(suite, results))
    calls: list[Any] = []
    number = 1
    while kills or set(calls[-1][0]) != {"done"}:
        number += bool(calls) and set(calls[-1][0]) == {"done"}
        note = results / f"{len(calls)}.json"
        pid = forked(partial(_pooled, suite, results / str(number), note))
        while kills and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            kills -= _kill_busy_child(pid, moments, longest)
        if code := waited(pid):
            raise RuntimeError(f"the pool ended with {code}")
        calls.append(json.loads(note.read_text()))
    return {"calls": calls, "folders": number}


class _Forks:
    """What the pool takes for multiprocessing's context: workers are forked, and so start at once.

    A forked process has all ends of all pipes; each closes those of the main process, as it would
    never see them closed else.
    """

    def __init__(self) -> None:
        self.fork = multiprocessing.get_context("fork")
        self.ends: list[Connection] = []

    def Pipe(self) -> tuple[Connection, Connection]:
        mine, theirs = self.fork.Pipe()
        self.ends.append(mine)
        return mine, theirs

    def Process(self, target: Callable[..., None], args: tuple[Any, ...]) -> Any:
        return self.fork.Process(target=self._alone, args=(target, args))

    def _alone(self, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        for end in self.ends:
            end.close()
        target(*args)


def _pooled(suite: Path, results: Path, note: Path) -> int:
    """Do the runs of a suite in two workers; note how each ended."""
    forks = _Forks()
    execution.multiprocessing.get_context = lambda _: forks  # type: ignore[attr-defined]
    outcomes, events = do(suite, results, workers=2)
    note.write_text(json.dumps([outcomes, [one.text for one in events if one.kind == "end"]]))
    return 0


def _kill_busy_child(pid: int, moments: random.Random, longest: float) -> bool:
    """Kill a child of a process that does a run, if one does, after a while of its work."""
    time.sleep(0.002)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    busy = [child for child in children if _is_busy(child)]
    if not busy:
        return False
    time.sleep(moments.uniform(0, longest))
    try:
        os.kill(int(moments.choice(busy)), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _is_busy(pid: str) -> bool:
    """Whether a process holds the folder of a run."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if "/runs/" in str(descriptor.readlink()):
                    return True
    return False


def kill_tables(suite: Path, results: Path, kills: int) -> Any:
    """Kill `tables` at random moments.

    Returns:
        files that were there at some moment and were not what they are in the end, and how many
        were there after each kill.
    """
    moments = random.Random(0)
    measured(run_once(suite, results))
    words = ["tables", str(suite), "--results", str(results)]
    whole = measured(lambda: sigma_bench(words))
    folder = folders(suite, results)[0].path.parents[1] / "tables"
    right = _files(folder)
    wrong: list[str] = []
    there = []
    while len(there) < kills:
        shutil.rmtree(folder, ignore_errors=True)
        pid = forked(lambda: sigma_bench(words))
        if killed_after(pid, moments.uniform(0.3, 1.0) * whole) == 0:
            continue
        found = _files(folder)
        there.append(len(found))
        wrong += [name for name, content in found.items() if right.get(name) != content]
    measured(lambda: sigma_bench(words))
    return {"wrong": wrong, "there": there, "all": len(right), "same": _files(folder) == right}


def _files(folder: Path) -> dict[str, bytes]:
    """The files of a folder, but for those that a writer has not named yet."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".tmp"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def share(suite: Path, results: Path, processes: int) -> Any:
    """Do the runs of a suite in several processes at once.

    Returns:
        for each process, how it ended, and the ids of the runs that it trained.
    """
    results.mkdir(parents=True, exist_ok=True)

    def one(index: int) -> int:
        outcomes, events = do(suite, results)
        trained = sorted({event.run.id for event in events if event.kind == "tick"})
        (results / f"{index}.json").write_text(json.dumps(trained))
        return int(set(outcomes) != {"done"})

    pids = [forked(partial(one, index)) for index in range(processes)]
    codes = [waited(pid) for pid in pids]
    notes = [json.loads((results / f"{index}.json").read_text()) for index in range(processes)]
    return list(zip(codes, notes, strict=True))


ACTIONS = {
    "kill-runs": kill_runs,
    "kill-workers": kill_workers,
    "kill-tables": kill_tables,
    "share": share,
}
if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        what, suite_file, folder, number = json.loads(line)
        found = ACTIONS[what](Path(suite_file), Path(folder), int(number))
        print(json.dumps(found), flush=True)
