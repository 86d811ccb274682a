"""One network trained by several processes, one a device, that share each step's batch.

The processes are started here, watched, and stopped together: when one fails, or the process that
started them is gone, none goes on. What they do is `bench.training.train` in each, with gradients
averaged by PyTorch's DistributedDataParallel through Lightning Fabric.
"""

from __future__ import annotations

import inspect
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.budget import Plan
from bench.errors import UserError
from bench.registry import method_class
from bench.sessions import Hearing, Options
from bench.suite import RunSpec
from bench.training import Tick

GRACE_SECONDS = 3.0
"""After the first failure, time for others to say theirs: the earliest is the one to tell."""

END_SECONDS = 60.0
"""Time for a process to end once it has said that it is done."""

_START = "from bench.distributed_rank import main; main()"


class RankFailed(RuntimeError):
    """One of several processes failed; the message says which and why."""


@dataclass(frozen=True)
class Trained:
    """What the processes say at the end.

    Attributes:
        seconds: of the steps, by a clock on the wall.
        peak_memory: bytes of the process that used most, since this start.
    """

    seconds: float
    peak_memory: int


@dataclass
class _Rank:
    """A process and what it has said of its end."""

    rank: int
    process: subprocess.Popen[bytes]
    errors: Path
    done: dict[str, Any] | None = None
    failed: dict[str, Any] | None = None
    ended: bool = False
    clock: float = field(default=0.0)


def check_devices(device: torch.device, devices: int) -> None:
    """Refuse more devices than there are.

    Raises:
        UserError: names how many there are.
    """
    if devices == 1 or device.type != "cuda":
        return
    there = torch.cuda.device_count() - (device.index or 0)
    if devices > there:
        raise UserError(
            f"recipe.devices={devices}: from {device} on there are {there} GPUs: use --workers 1, "
            "or set fewer devices"
        )


def train_together(
    spec: RunSpec, plan: Plan, network: int, options: Options, checkpoint: Path, hearing: Hearing
) -> Trained:
    """Train one network on ``spec.recipe.devices`` devices; its weights are in the checkpoint.

    Args:
        spec: the run.
        plan: how long.
        network: index among the plan's networks.
        options: where; its device is the first that is used.
        checkpoint: the file of the resumable state.
        hearing: who is told; called in this thread.

    Raises:
        RankFailed: a process failed; all have been stopped.
    """
    job = {
        "spec": spec.model_dump(mode="json"),
        "plan": vars(plan),
        "network": network,
        "world": spec.recipe.devices,
        "data": str(options.data.expanduser().resolve()),
        "device": str(options.device),
        "checkpoint": str(checkpoint.resolve()),
        "checkpoint_seconds": options.checkpoint_seconds,
        "loaders": options.loaders,
        "plugin": _plugin(spec),
    }
    if options.device.type == "cuda":
        # What planning has left in this process's pool would be missing in the first one's.
        torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory(prefix="sigma-bench-") as folder:
        job["meeting"] = str(Path(folder) / "meeting")
        with _started(job, Path(folder)) as ranks:
            return _attend(ranks, hearing)


def _plugin(spec: RunSpec) -> str | None:
    """The file of the run's method, where it is no installed one."""
    if spec.source is None:
        return None
    path = inspect.getsourcefile(method_class(spec.method))
    return None if path is None else str(Path(path).resolve())


@contextmanager
def _started(job: dict[str, Any], folder: Path) -> Iterator[list[_Rank]]:
    """The processes, each with its job; all are gone afterwards."""
    world = job["world"]
    threads = max(1, torch.get_num_threads() // world)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    ranks: list[_Rank] = []
    try:
        for rank in range(world):
            errors = folder / f"rank-{rank}.txt"
            with errors.open("wb") as file:
                process = subprocess.Popen(
                    [sys.executable, "-c", _START],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    env=environment,
                )
            ranks.append(_Rank(rank, process, errors))
            assert process.stdin is not None
            process.stdin.write(json.dumps({**job, "rank": rank}).encode() + b"\n")
            # The pipe stays open: a process leaves when it closes, however this one ended.
            process.stdin.flush()
        yield ranks
    finally:
        for one in ranks:
            one.process.kill()
        for one in ranks:
            one.process.wait()
            for pipe in (one.process.stdin, one.process.stdout):
                if pipe is not None:
                    pipe.close()


def _attend(ranks: list[_Rank], hearing: Hearing) -> Trained:
    """Pass on what the processes say until all are done or one has failed."""
    said: queue.SimpleQueue[tuple[_Rank, dict[str, Any] | None]] = queue.SimpleQueue()
    for one in ranks:
        threading.Thread(target=_listen, args=(one, said), daemon=True).start()
    deadline: float | None = None
    while not all(one.ended for one in ranks):
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            one, message = said.get(timeout=left)
        except queue.Empty:
            break
        if message is None:
            one.ended = True
            one.clock = time.time()
            deadline = deadline or _deadline(one)
        elif message["kind"] == "failed":
            one.failed = message
            deadline = deadline or time.monotonic() + GRACE_SECONDS
        elif message["kind"] == "done":
            one.done = message
            deadline = time.monotonic() + END_SECONDS
        else:
            _pass_on(message, hearing)
    _raise_failure(ranks)
    ends = [one.done for one in ranks if one.done is not None]
    return Trained(ends[0]["seconds"], max(end["peak_memory"] for end in ends))


def _listen(one: _Rank, said: queue.SimpleQueue[tuple[_Rank, dict[str, Any] | None]]) -> None:
    """Queue a process's messages, and None at its end."""
    assert one.process.stdout is not None
    for line in one.process.stdout:
        said.put((one, json.loads(line)))
    said.put((one, None))


def _deadline(one: _Rank) -> float | None:
    """When to stop waiting for the others; None where the process ended as it should."""
    return None if one.done is not None else time.monotonic() + GRACE_SECONDS


def _pass_on(message: dict[str, Any], hearing: Hearing) -> None:
    if message["kind"] == "tick":
        hearing.tick(Tick(**message["tick"]))
    elif message["kind"] == "note":
        hearing.note(message["text"])
    else:
        hearing.resumed(message["step"])


def _raise_failure(ranks: list[_Rank]) -> None:
    """Say the failure that came first: others only lost their company.

    Raises:
        RankFailed: where a process is not done.
    """
    open_ends = [one for one in ranks if one.done is None]
    if not open_ends:
        return
    # Who died without a word was killed, and whoever spoke after that missed it.
    silent = [one for one in open_ends if one.ended and one.failed is None]
    if silent:
        one = min(silent, key=lambda rank: rank.clock)
        raise RankFailed(f"device {one.rank + 1} of {len(ranks)}: {_last_words(one)}")
    spoken = [one for one in open_ends if one.failed is not None]
    if not spoken:
        raise RankFailed(f"{len(open_ends)} of {len(ranks)} processes did not end")
    one = min(spoken, key=lambda rank: rank.failed["time"] if rank.failed else 0.0)
    assert one.failed is not None
    error = RankFailed(f"device {one.rank + 1} of {len(ranks)}: {one.failed['text']}")
    error.add_note(one.failed["traceback"])
    raise error


def _last_words(one: _Rank) -> str:
    """How a process ended that did not say why."""
    code = one.process.wait()
    cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    lines = one.errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"the process died ({cause})" + (f": {lines[-1]}" if lines else "")
