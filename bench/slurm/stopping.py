"""Stopping a job in time: before its limit, and when something more urgent needs its node."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from bench.execution import Event

LIMIT_SIGNAL = signal.SIGUSR2
"""What a job gets when its time limit is near (`sbatch --signal`)."""
PATIENCE = {signal.SIGUSR2: 60.0, signal.SIGTERM: 20.0}
"""Seconds that a training may go on until its next checkpoint. After SIGTERM, Slurm kills in 30."""
AGAIN_SECONDS = 5.0
"""Time between two tries to stop; an exception may get lost in a destructor."""


class Stopped(BaseException):
    """The job must end now. Its run stays resumable; it has not failed."""


class Stopper:
    """Turns signals into `Stopped`, in a training after its next checkpoint.

    Args:
        checkpoints: run id -> the folder of its checkpoints.
    """

    def __init__(self, checkpoints: Callable[[str], Path]) -> None:
        self.signal: int | None = None
        self._checkpoints = checkpoints
        self._process = os.getpid()
        self._training = ""
        self._known: dict[Path, int] = {}

    def install(self) -> None:
        """Listen to what Slurm sends."""
        for number in PATIENCE:
            signal.signal(number, self._ask)

    def shut(self) -> None:
        """Hear nothing more: the job ends already."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in PATIENCE:
            signal.signal(number, signal.SIG_IGN)

    def hear(self, event: Event) -> None:
        """Note what the job is doing; stop it when its state is on disk.

        Raises:
            Stopped: a signal came, and a checkpoint after it.
        """
        self._training = event.run.id if event.kind == "tick" else ""
        if self.signal is not None and (not self._training or self._saved()):
            raise Stopped

    def _ask(self, number: int, _: FrameType | None) -> None:
        # Processes that a training forks, to read data ahead, inherit this.
        if os.getpid() != self._process or self.signal is not None:
            return
        self.signal = number
        print(f"{signal.Signals(number).name}: stopping", flush=True)
        signal.signal(signal.SIGALRM, self._now)
        if not self._training:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
            raise Stopped
        self._known = stamps(self._checkpoints(self._training))
        patience = PATIENCE[signal.Signals(number)]
        signal.setitimer(signal.ITIMER_REAL, patience, AGAIN_SECONDS)

    def _now(self, *_: object) -> None:
        if os.getpid() == self._process:
            raise Stopped

    def _saved(self) -> bool:
        return stamps(self._checkpoints(self._training)) != self._known


def stamps(folder: Path) -> dict[Path, int]:
    """File -> when it was written; files that are being written are left out."""
    found = {}
    for path in folder.glob("[!.]*"):
        try:
            found[path] = path.stat().st_mtime_ns
        except FileNotFoundError:
            continue
    return found
