"""Where runs run: in this process, or in worker processes that outlive each other's failures."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from bench.errors import UserError
from bench.store import Busy, SuiteFolder
from bench.suite import RunSpec

POLL_SECONDS = 1.0
"""Time between looks at a run that another process works on."""
STILLBORN = 3
"""Workers that die one after the other before any is ready: then none will ever be."""


@dataclass(frozen=True)
class Placement:
    """Where runs run.

    Attributes:
        results: the folder of all results.
        suite: whose runs these are.
        data: the folder under which data sets lie.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``auto``.
        workers: processes; 0 chooses: one for as many GPUs as a run takes, or cores on a CPU.
        plugins: files with methods, loaded in every process.
        checkpoint_seconds: time between resumable states.
        loaders: processes that read images on disk ahead, for each device; None chooses.
    """

    results: Path
    suite: str
    data: Path
    device: str = "auto"
    workers: int = 0
    plugins: tuple[Path, ...] = ()
    checkpoint_seconds: float = 30.0
    loaders: int | None = None


@dataclass(frozen=True)
class Event:
    """Something that happened to a run.

    Attributes:
        kind: ``start``, ``tick`` (training progress; `data` as in `bench.training.Tick`), ``stage``
            and ``note`` (`text`), ``end`` (`text` is the error or reason; `outcome` says how),
            ``waiting`` (another process works on it).
        run: the run.
        text: for a person.
        outcome: of ``end``: ``done``, ``failed``, ``not applicable``.
        data: numbers of a ``tick``.
    """

    kind: Literal["start", "tick", "stage", "note", "end", "waiting"]
    run: RunSpec
    text: str = ""
    outcome: str = ""
    data: dict[str, Any] = field(default_factory=dict)


Observer = Callable[[Event], None]


def execute(runs: Sequence[RunSpec], place: Placement, observe: Observer) -> dict[str, str]:
    """Do the runs that are not done, each once, whatever other processes work in the same folder.

    Args:
        runs: of one suite.
        place: where.
        observe: called in this process with every `Event`.

    Returns:
        run id -> ``done``, ``failed`` or ``not applicable``.

    Raises:
        UserError: data or device are missing; said before anything is trained.
    """
    devices = max((run.recipe.devices for run in runs), default=1)
    chosen = place.workers or max(1, default_workers(place.device) // devices)
    workers = min(chosen, max(1, len(runs)))
    queue = deque(runs)
    if workers == 1:
        return _in_process(queue, place, observe)
    with _Pool(workers, place, observe, devices) as pool:
        return pool.drain(queue)


def default_workers(device: str) -> int:
    """One worker a GPU; on a CPU one a core, since small networks gain little from more threads."""
    if device != "cpu":
        import torch

        if torch.cuda.is_available():
            return torch.cuda.device_count() if device in ("auto", "cuda") else 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """What does runs in a process: loads plug-ins once, keeps tasks in memory between runs.

    Of the GPUs, worker `index` takes those from ``index * devices`` on.
    """

    def __init__(self, place: Placement, index: int, workers: int, devices: int = 1) -> None:
        import torch

        from bench.device import choose_device
        from bench.registry import load_plugin

        for plugin in place.plugins:
            load_plugin(plugin)
        device = choose_device(place.device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", index * devices % torch.cuda.device_count())
        if device.type == "cpu" and workers > 1:
            torch.set_num_threads(max(1, default_workers("cpu") // workers))
        self.place = place
        self.device = device

    def perform(self, spec: RunSpec, send: Observer) -> None:
        """Do one run and send what happens."""
        from bench.runner import Options, Reporter, perform

        folder = SuiteFolder(self.place.results, self.place.suite).run(spec)
        options = Options(
            self.place.data, self.device, self.place.checkpoint_seconds, self.place.loaders
        )
        report = Reporter(
            tick=lambda tick: send(Event("tick", spec, data=vars(tick))),
            stage=lambda text: send(Event("stage", spec, text)),
            note=lambda text: send(Event("note", spec, text)),
        )
        try:
            outcome, text = perform(spec, folder, options, report)
        except Busy as busy:
            send(Event("waiting", spec, str(busy)))
        else:
            send(Event("end", spec, text, outcome))


def _in_process(queue: deque[RunSpec], place: Placement, observe: Observer) -> dict[str, str]:
    worker = _Worker(place, 0, 1)
    outcomes: dict[str, str] = {}
    told: set[str] = set()

    def hear(event: Event) -> None:
        if event.kind == "end":
            outcomes[event.run.id] = event.outcome
        elif event.kind == "waiting":
            queue.append(event.run)
            if event.run.id in told:
                return
            told.add(event.run.id)
        observe(event)

    while queue:
        spec = queue.popleft()
        if spec.id in told and all(run.id in told for run in queue):
            time.sleep(POLL_SECONDS)
        else:
            observe(Event("start", spec))
        worker.perform(spec, hear)
    return outcomes


class _Abandoned(BaseException):
    """The main process is gone. The run in work stays resumable; it has not failed."""


def _worker_main(
    pipe: Connection, place: Placement, index: int, workers: int, devices: int
) -> None:
    """The life of a worker process: one run after the other, until the main process lets go."""
    # The terminal sends Ctrl-C to all processes of the group; the main one decides for all.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def send(message: Event | UserError | None) -> None:
        try:
            pipe.send(message)
        except OSError:
            raise _Abandoned from None

    try:
        worker = _Worker(place, index, workers, devices)
        send(None)
        while True:
            worker.perform(_next_run(pipe), send)
            send(None)
    except UserError as error:
        # The main process may have gone with the same error of another worker.
        with suppress(_Abandoned):
            send(error)
    except _Abandoned:
        return


def _next_run(pipe: Connection) -> RunSpec:
    """What the main process asks for next."""
    try:
        run: RunSpec = pipe.recv()
    except (EOFError, OSError):
        raise _Abandoned from None
    return run


@dataclass
class _Seat:
    """A worker process and what it is doing."""

    process: BaseProcess
    pipe: Connection
    run: RunSpec | None = None
    idle: bool = False


class _Pool:
    """Worker processes that are replaced when they die."""

    def __init__(self, workers: int, place: Placement, observe: Observer, devices: int = 1) -> None:
        self.workers = workers
        self.devices = devices
        self.place = place
        self.observe = observe
        self.outcomes: dict[str, str] = {}
        self.told: set[str] = set()
        self.later: list[tuple[float, RunSpec]] = []
        self.stillborn = 0
        # Not fork: a forked child of a process that has used torch's threads may hang.
        self.context = multiprocessing.get_context("spawn")
        self.seats = [self._seat(index) for index in range(workers)]

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for seat in self.seats:
            seat.pipe.close()
            if seat.run is not None:
                seat.process.terminate()
        for seat in self.seats:
            seat.process.join()

    def _seat(self, index: int) -> _Seat:
        mine, theirs = self.context.Pipe()
        # No daemon: a worker must be able to have loaders. It leaves when its pipe closes.
        process = self.context.Process(
            target=_worker_main, args=(theirs, self.place, index, self.workers, self.devices)
        )
        process.start()
        theirs.close()
        return _Seat(process, mine)

    def drain(self, queue: deque[RunSpec]) -> dict[str, str]:
        """Hand out the runs until none is left or in work."""
        self.queue = queue
        while queue or self.later or any(seat.run for seat in self.seats):
            self._requeue()
            handles: dict[Any, _Seat] = {seat.pipe: seat for seat in self.seats}
            for handle in wait(list(handles), timeout=POLL_SECONDS):
                self._hear(handles[handle])
        return self.outcomes

    def _requeue(self) -> None:
        """Look again at runs that other processes work on."""
        now = time.monotonic()
        self.queue.extend(run for due, run in self.later if due <= now)
        self.later = [(due, run) for due, run in self.later if due > now]
        for seat in self.seats:
            if seat.run is None and seat.idle and self.queue:
                self._give(seat)

    def _give(self, seat: _Seat) -> None:
        seat.run = self.queue.popleft()
        seat.idle = False
        try:
            seat.pipe.send(seat.run)
        except OSError:
            # It died idle: another takes its place, and the run.
            self.queue.appendleft(seat.run)
            seat.run, seat.idle = None, True
            self._replace(seat)
            return
        if seat.run.id not in self.told:
            self.observe(Event("start", seat.run))

    def _hear(self, seat: _Seat) -> None:
        try:
            message = seat.pipe.recv()
        except (EOFError, OSError):
            # An `OSError` where it died in the middle of a message.
            self._replace(seat)
            return
        if isinstance(message, UserError):
            raise message
        if message is None:
            self.stillborn = 0
            seat.run, seat.idle = None, True
            if self.queue:
                self._give(seat)
            return
        self._note(message)

    def _note(self, event: Event) -> None:
        if event.kind == "waiting":
            self.later.append((time.monotonic() + POLL_SECONDS, event.run))
            if event.run.id in self.told:
                return
            self.told.add(event.run.id)
        if event.kind == "end":
            self.outcomes[event.run.id] = event.outcome
        self.observe(event)

    def _replace(self, seat: _Seat) -> None:
        """A worker died: its run has failed, the others go on, another takes its place."""
        seat.process.join()
        code = seat.process.exitcode or 0
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        place = self.seats.index(seat)
        self.seats[place] = self._seat(place)
        if seat.run is None:
            if not seat.idle:
                self.stillborn += 1
            if self.stillborn >= STILLBORN:
                raise UserError(f"worker processes can't start ({cause}): try --workers 1")
            return
        self._note(self._end_of_dead(seat.run, cause))

    def _end_of_dead(self, run: RunSpec, cause: str) -> Event:
        """How a run ended whose worker died; it may have been done just before."""
        folder = SuiteFolder(self.place.results, self.place.suite).run(run)
        if folder.state()[0] == "done":
            return Event("end", run, outcome="done")
        line = f"the worker process died ({cause}); run again to resume from the last checkpoint"
        try:
            folder.fail(line, "")
        except OSError as error:
            line += f" (and this could not be stored: {error})"
        return Event("end", run, line, "failed")
