"""Locks on folders that hold on shared file systems and fall when their process or node dies.

`flock` is local to a node on many network file systems, or not there at all. These locks need one
thing of a file system: that a file is created by one process only (``O_EXCL``).

A process that wants a folder creates the claim ``lock.N`` there, N one above all that exist; who
succeeds holds the folder if nothing higher has appeared meanwhile. Numbers only grow, so whoever
looked too long ago finds its number taken, or outdone. Letting go renames the claim to
``lock.N.free``. A claim is abandoned when

* it was made on this machine, and its process is gone;
* it was made by this Slurm job before the job was requeued;
* its heartbeat has stood still for `STALE_SECONDS` while this process watched. The watcher's own
  monotonic clock decides: clocks of nodes and servers may differ, or be set back.

A process that loses a folder although it lives (it was suspended) notices, and writes nothing more.
"""

from __future__ import annotations

import json
import os
import platform
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BEAT_SECONDS = 30.0
"""Time between two heartbeats of a claim: one metadata operation each."""
STALE_SECONDS = 180.0
"""Without a heartbeat for this long, a process on another machine is dead."""
RETRY_SECONDS = 0.1
"""Time between two tries for a folder."""

_CLAIM = re.compile(r"lock\.(\d+)(\.free)?")


class Busy(Exception):
    """Another process works in the folder."""


@dataclass(frozen=True)
class Holder:
    """Who works in a folder.

    Attributes:
        host: the name of its machine; empty where the claim does not say (yet).
        pid: its process there.
        since: when it took the folder, by its own clock: ISO 8601, UTC.
        job: its Slurm job, such as ``4711_3``; empty outside Slurm.
    """

    host: str
    pid: int
    since: str
    job: str


@dataclass
class Held:
    """A folder that this process holds.

    Attributes:
        claim: the file that says so.
        descriptor: of that file, open: `lsof` and `fuser` name who works in a folder.
        lost: set when another process has taken the folder over.
    """

    claim: Path
    descriptor: int
    lost: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Make sure that the folder is still this process's.

        Raises:
            Busy: another process has taken it over, since no heartbeat came from here.
        """
        if self.lost.is_set() or not self.claim.exists():
            raise Busy(f"{self.claim.parent}: another process took this over while this one slept")


class FolderLock:
    """The lock of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def hold(self, patience: float = 0.0) -> Iterator[Held]:
        """Hold the folder, which must exist.

        Args:
            patience: seconds to try.

        Raises:
            Busy: another process holds it.
            OSError: the folder can't be written.
        """
        held = self._take(time.monotonic() + patience)
        stop = threading.Event()
        beat = threading.Thread(target=_beat, args=(held, stop), daemon=True)
        beat.start()
        try:
            yield held
        finally:
            stop.set()
            beat.join()
            os.close(held.descriptor)
            if not held.lost.is_set():
                _let_go(held.claim)

    def holder(self) -> Holder | None:
        """Who works in the folder now, or None.

        A look changes nothing. For a process on another machine it compares the last heartbeat
        with this machine's clock; taking a folder over never does.
        """
        number, claim = _highest(self.folder)
        if claim is None or number == 0:
            return None
        content = _content(claim)
        alive = _known_alive(content)
        if alive is None:
            try:
                alive = time.time() - claim.stat().st_mtime < STALE_SECONDS
            except FileNotFoundError:
                return None
        return _holder(content) if alive else None

    def _take(self, deadline: float) -> Held:
        while True:
            held = self._try()
            if held is not None:
                return held
            if time.monotonic() >= deadline:
                raise Busy(f"{self.folder}: another process works here{_name(self)}")
            time.sleep(RETRY_SECONDS)

    def _try(self) -> Held | None:
        """Make the next claim, if the highest is free or abandoned."""
        number, holding = _highest(self.folder)
        if holding is not None and not _is_abandoned(holding):
            return None
        mine = self.folder / f"lock.{number + 1}"
        try:
            held = Held(mine, os.open(mine, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            return None
        try:
            os.write(held.descriptor, json.dumps(_myself()).encode())
            # Other nodes see the content once the server has it.
            os.fsync(held.descriptor)
        except OSError:
            _withdraw(held)
            raise
        claims = _claims(self.folder)
        if max(claims, default=0) != number + 1 or len(claims[number + 1]) > 1:
            # It looked too long ago: others have come and gone.
            _withdraw(held)
            return None
        for older in [path for key, paths in claims.items() if key <= number for path in paths]:
            older.unlink(missing_ok=True)
        return held


def _withdraw(held: Held) -> None:
    os.close(held.descriptor)
    held.claim.unlink(missing_ok=True)


def _beat(held: Held, stop: threading.Event) -> None:
    """Show every now and then that this process lives, until it lets go or loses the folder."""
    while not stop.wait(BEAT_SECONDS):
        try:
            os.utime(held.claim)
        except FileNotFoundError:
            held.lost.set()
            return
        except OSError:
            # The server is away: nobody else can take the folder over either.
            continue


def _let_go(claim: Path) -> None:
    # Taken over, or in a folder that can't be written any more: then the claim falls with this
    # process, or with its heartbeat.
    with suppress(OSError):
        claim.rename(claim.with_name(f"{claim.name}.free"))


def _claims(folder: Path) -> dict[int, list[Path]]:
    """Number -> the claims of that number: one, but for the moment in which one is withdrawn."""
    found: dict[int, list[Path]] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if match := _CLAIM.fullmatch(entry.name):
                    found.setdefault(int(match[1]), []).append(folder / entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return found


def _highest(folder: Path) -> tuple[int, Path | None]:
    """The highest number, and its claim unless that is free; 0 where there is none."""
    claims = _claims(folder)
    if not claims:
        return 0, None
    number = max(claims)
    holding = [path for path in claims[number] if not path.name.endswith(".free")]
    return number, holding[0] if holding else None


def _content(claim: Path) -> dict[str, Any]:
    """What a claim says; nothing while it is being written, or when it is gone."""
    try:
        content = json.loads(claim.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _myself() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "machine": machine(),
        "pid": os.getpid(),
        "started": process_start(os.getpid()),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "job": slurm_job(),
        "restarts": int(os.environ.get("SLURM_RESTART_COUNT", "0")),
    }


def _holder(content: Mapping[str, Any]) -> Holder:
    pid = content.get("pid", 0)
    return Holder(
        host=str(content.get("host", "")),
        pid=pid if isinstance(pid, int) else 0,
        since=str(content.get("since", "")),
        job=str(content.get("job", "")),
    )


def _name(lock: FolderLock) -> str:
    holder = lock.holder()
    if holder is None or not holder.host:
        return ""
    job = f", Slurm job {holder.job}" if holder.job else ""
    return f" (process {holder.pid} on {holder.host}{job})"


def _known_alive(content: Mapping[str, Any]) -> bool | None:
    """Whether the process of a claim lives, where that can be known without waiting."""
    if content.get("machine") == machine():
        start = process_start(content.get("pid", 0))
        return start is not None and start == content.get("started")
    job = slurm_job()
    if job and content.get("job") == job:
        restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        if content.get("restarts", restarts) < restarts:
            # Slurm starts a job again only after all its processes have ended.
            return False
    return None


_watched: dict[Path, tuple[int, float]] = {}
"""Claim -> its heartbeat, and when this process saw it first, by its monotonic clock."""


def _is_abandoned(claim: Path) -> bool:
    alive = _known_alive(_content(claim))
    if alive is not None:
        return not alive
    try:
        heartbeat = claim.stat().st_mtime_ns
    except FileNotFoundError:
        # Free or taken over just now; the next look tells.
        return False
    now = time.monotonic()
    seen, since = _watched.get(claim, (None, now))
    if seen != heartbeat:
        _watched[claim] = (heartbeat, now)
        return False
    return now - since >= STALE_SECONDS


def machine() -> str:
    """What tells whether two processes see each other by their ids.

    On Linux that is this start of this kernel and the namespace of process ids (a container has its
    own); elsewhere the host's name.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def process_start(pid: int) -> str | None:
    """When a process of this machine began, in whatever unit; None if there is none.

    Process ids are given anew, so an id alone does not tell a process from a later one.
    """
    if not Path("/proc/self/stat").exists():
        return "unknown" if _answers(pid) else None
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold anything; state is the first field after it.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZXx" else fields[19]


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def slurm_job() -> str:
    """This process's Slurm job, ``ARRAY_INDEX`` in an array; empty outside Slurm."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    index = os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{index}" if array and index else os.environ.get("SLURM_JOB_ID", "")
