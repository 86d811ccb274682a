"""Locks: one holder at a time, whatever dies, sleeps or has a wrong clock."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from bench import locks
from bench.locks import STALE_SECONDS, Busy, FolderLock

ELSEWHERE = {
    "host": "node7",
    "machine": "another boot",
    "pid": 1,
    "started": "1",
    "since": "2026-01-01T00:00:00+00:00",
    "job": "",
    "restarts": 0,
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr(locks, "_watched", {})
    for name in ("JOB_ID", "ARRAY_JOB_ID", "ARRAY_TASK_ID", "RESTART_COUNT"):
        monkeypatch.delenv(f"SLURM_{name}", raising=False)


@pytest.fixture
def clock(monkeypatch):
    """This process's monotonic clock, which the test turns."""

    class Clock:
        now = 1000.0

    monkeypatch.setattr(locks.time, "monotonic", lambda: Clock.now)
    return Clock


def claim(folder, age=0.0, number=1, **changes):
    path = folder / f"lock.{number}"
    path.write_text(json.dumps({**ELSEWHERE, **changes}))
    stamp = time.time() - age
    os.utime(path, (stamp, stamp))
    return path


def takes(folder):
    try:
        with FolderLock(folder).hold():
            return True
    except Busy:
        return False


def test_one_holder_at_a_time_and_free_afterwards(tmp_path):
    with FolderLock(tmp_path).hold():
        holder = FolderLock(tmp_path).holder()
        assert holder.pid == os.getpid()
        assert holder.host
        with pytest.raises(Busy, match=f"another process .*process {os.getpid()} on {holder.host}"):
            FolderLock(tmp_path).hold().__enter__()
    assert FolderLock(tmp_path).holder() is None
    for _ in range(3):
        assert takes(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock.4.free"]


def test_a_dead_process_of_this_machine_is_known_at_once(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from bench.locks import FolderLock\n"
        "with FolderLock(Path(sys.argv[1])).hold(): print('held', flush=True); time.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"held\n"
    assert FolderLock(tmp_path).holder().pid == child.pid
    assert not takes(tmp_path)
    child.send_signal(signal.SIGKILL)
    # Nobody has waited for it yet: it is a zombie, whose entry in /proc is still there.
    deadline = time.monotonic() + 30
    while locks.process_start(child.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert FolderLock(tmp_path).holder() is None
    assert takes(tmp_path)
    child.wait()
    child.stdout.close()


def test_a_process_id_given_anew_is_another_process(tmp_path):
    mine = locks.process_start(os.getpid())
    claim(tmp_path, machine=locks.machine(), pid=os.getpid(), started=mine)
    assert not takes(tmp_path)
    claim(tmp_path, machine=locks.machine(), pid=os.getpid(), started=f"{mine}0")
    assert FolderLock(tmp_path).holder() is None
    assert takes(tmp_path)


def test_another_machine_is_believed_while_its_heart_beats(tmp_path, clock):
    path = claim(tmp_path)
    for beat in range(10):
        clock.now += STALE_SECONDS - 1
        assert not takes(tmp_path)
        os.utime(path, (beat, beat))
    assert not takes(tmp_path)
    clock.now += STALE_SECONDS - 1
    assert not takes(tmp_path)
    clock.now += 2
    assert takes(tmp_path)


@pytest.mark.parametrize("age", [0.0, 1e6, -1e6], ids=["now", "long ago", "in the future"])
def test_no_wall_clock_decides_a_takeover(tmp_path, clock, age):
    """The other node's clock, or the server's, may be days off either way, or set back."""
    claim(tmp_path, age=age)
    assert not takes(tmp_path)
    clock.now += STALE_SECONDS + 1
    assert takes(tmp_path)


def test_a_heartbeat_whose_clock_goes_backwards_is_a_heartbeat(tmp_path, clock):
    path = claim(tmp_path)
    assert not takes(tmp_path)
    clock.now += STALE_SECONDS + 1
    os.utime(path, (1, 1))
    assert not takes(tmp_path)


def test_what_is_shown_goes_by_the_last_heartbeat(tmp_path):
    claim(tmp_path, age=STALE_SECONDS / 2)
    assert FolderLock(tmp_path).holder().host == "node7"
    claim(tmp_path, age=STALE_SECONDS * 2)
    assert FolderLock(tmp_path).holder() is None


def test_a_claim_that_was_cut_off_is_watched_too(tmp_path, clock):
    (tmp_path / "lock.1").write_text('{"mach')
    assert not takes(tmp_path)
    clock.now += STALE_SECONDS + 1
    assert takes(tmp_path)


@pytest.mark.parametrize(
    ("job", "restarts", "taken"), [("47_3", 0, True), ("47_3", 1, False), ("47_4", 0, False)]
)
def test_a_requeued_job_takes_over_from_itself(tmp_path, monkeypatch, job, restarts, taken):
    """Its earlier process has ended; one of the same start may work on another node."""
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "47")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    claim(tmp_path, job=job, restarts=restarts)
    assert takes(tmp_path) == taken


def test_who_looked_too_long_ago_withdraws(tmp_path, monkeypatch):
    """Between its look and its claim others have taken the folder, and let go."""
    with FolderLock(tmp_path).hold():
        pass
    look = locks._highest

    def slow(folder):
        found = look(folder)
        monkeypatch.setattr(locks, "_highest", look)
        with FolderLock(folder).hold():
            pass
        with FolderLock(folder).hold():
            pass
        return found

    monkeypatch.setattr(locks, "_highest", slow)
    assert not takes(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock.3.free"]
    assert takes(tmp_path)


def test_a_sleeper_notices_that_it_lost_the_folder(tmp_path, monkeypatch, clock):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.01)
    with FolderLock(tmp_path).hold() as held:
        held.check()
        stolen = claim(tmp_path, number=2)
        held.claim.unlink()
        assert held.lost.wait(10)
        with pytest.raises(Busy, match="took this over"):
            held.check()
    assert [path.name for path in tmp_path.iterdir()] == [stolen.name], "it freed another's claim"


def test_the_heart_beats(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.01)
    with FolderLock(tmp_path).hold() as held:
        os.utime(held.claim, (1, 1))
        deadline = time.monotonic() + 10
        while held.claim.stat().st_mtime < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert held.claim.stat().st_mtime > 2


def test_a_full_disk_leaves_no_claim(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(locks.os, "fsync", full)
    with pytest.raises(OSError, match="No space"), FolderLock(tmp_path).hold():
        pass
    assert list(tmp_path.iterdir()) == []


def _count(folder, turns):
    """Add to a number in a file, which loses counts when two do it at once."""
    number = folder.parent / "number"
    for _ in range(turns):
        with FolderLock(folder).hold(patience=120):
            value = int(number.read_text())
            time.sleep(0.001)
            number.write_text(str(value + 1))


def test_many_processes_exclude_each_other(tmp_path):
    (tmp_path / "number").write_text("0")
    folder = tmp_path / "run"
    folder.mkdir()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_count, args=(folder, 6)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4
    assert (tmp_path / "number").read_text() == "24"


def test_two_threads_of_one_process_exclude_each_other(tmp_path):
    (tmp_path / "number").write_text("0")
    folder = tmp_path / "run"
    folder.mkdir()
    threads = [threading.Thread(target=_count, args=(folder, 5)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "number").read_text() == "15"
