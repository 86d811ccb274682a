"""A disk that is full or can only be read: one line, nothing lost, nothing half-written."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import answer, do, leftovers, only_folder, write_suite

from bench import locks
from bench.cli import run as sigma_bench

STORED = (
    "spec.json",
    "environment.json",
    "plan.json",
    "progress.jsonl",
    "network-0.safetensors",
    "training.json",
    "model.safetensors",
    "validation.parquet",
    "test.parquet",
    "classwise.parquet",
    "shift.parquet",
    "ood.parquet",
    "metrics.json",
)
"""All that a run writes, in this order."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("reference")
    suite = write_suite(folder)
    assert do(suite, folder / "results")[0] == ["done"]
    return answer(only_folder(suite, folder / "results"))


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A small disk; called with options of mount, it changes."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> Path:
        how = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        try:
            done = subprocess.run(how, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("there is no mount here")
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        return folder

    yield mount
    while subprocess.run(["umount", str(folder)], capture_output=True).returncode == 0:
        continue


def fail_at(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Let every write to files of a name fail, after the half of it."""
    sync, opened = os.fsync, Path.open

    def fsync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink().name
        if target == name or target.startswith(f".{name}."):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    def open_(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if path.name == name and "a" in mode:
            raise OSError(number, os.strerror(number))
        return opened(path, mode, *rest, **more)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "open", open_)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_a_write_that_fails_is_named_and_made_up_for(
    tmp_path: Path, reference: dict[str, Any], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Every file in turn, of one run that is called again and again."""
    suite, results = write_suite(tmp_path), tmp_path / "results"
    for name in STORED:
        with monkeypatch.context() as patched:
            fail_at(patched, name, number)
            outcomes, events = do(suite, results)
        assert outcomes == ["failed"], name
        line = events[-1].text
        assert os.strerror(number) in line
        assert name in line
        assert "run again" in line
        folder = only_folder(suite, results)
        assert folder.state() == ("failed", line)
        assert not leftovers(folder.path)
    assert do(suite, results)[0] == ["done"]
    assert answer(folder) == reference


def test_a_disk_that_grows_until_the_run_fits(
    tmp_path: Path, reference: dict[str, Any], tmpfs: Callable[[str], Path]
) -> None:
    """A real one, so that whatever writes is seen; not only what was thought of above."""
    suite = write_suite(tmp_path)
    folder = only_folder(suite, tmpfs("size=16k"))
    outcomes: list[str] = []
    size = 16
    while outcomes != ["done"]:
        size += max(16, size // 4)
        assert size < 10_000
        results = tmpfs(f"remount,size={size}k")
        outcomes, events = do(suite, results)
        if outcomes != ["done"]:
            assert "No space left on device" in events[-1].text
            assert folder.state()[0] in ("failed", "interrupted")
            assert not leftovers(folder.path)
    assert size > 300, "it never was too small"
    assert answer(folder) == reference


@pytest.mark.parametrize("verb", ["run", "tables", "publish"])
def test_no_room_for_what_a_command_writes(
    tmp_path: Path, tmpfs: Callable[[str], Path], verb: str, capfd: pytest.CaptureFixture[str]
) -> None:
    suite = write_suite(tmp_path)
    results = tmp_path / "results" if verb == "publish" else tmpfs("size=4m")
    words = [verb, str(suite), "--results", str(results)]
    if verb == "publish":
        words += ["--to", str(tmpfs("size=64k"))]
    if verb != "run":
        assert do(suite, results)[0] == ["done"]
    disk = tmp_path / "disk"
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    code = sigma_bench(words)
    err = capfd.readouterr().err
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "No space left on device" in err
    assert str(disk) in err
    assert not leftovers(disk)
    filler.unlink()
    if verb == "publish":
        tmpfs("remount,size=4m")
    assert sigma_bench(words) == 0


@pytest.mark.parametrize("verb", ["run", "tables"])
def test_results_that_can_only_be_read(
    tmp_path: Path, tmpfs: Callable[[str], Path], verb: str, capfd: pytest.CaptureFixture[str]
) -> None:
    results = tmpfs("size=8m")
    suite = write_suite(tmp_path)
    assert do(suite, results)[0] == ["done"]
    tmpfs("remount,ro")
    words = ["--results", str(results)]
    if verb == "run":
        words += ["--set", "seeds=[1]"]
    code = sigma_bench([verb, str(suite), *words])
    err = capfd.readouterr().err
    assert code == 2
    assert err.count("\n") == 1
    assert "Read-only file system" in err
    assert str(results) in err
    assert sigma_bench(["status", str(suite), "--results", str(results)]) == 0


def test_a_folder_that_can_no_more_be_let_go(
    tmp_path: Path, reference: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim stays; it falls with this process, as that of one that was killed."""
    suite, results = write_suite(tmp_path), tmp_path / "results"

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patched:
        patched.setattr(locks.Path, "rename", refuse)
        assert do(suite, results)[0] == ["done"]
    assert answer(only_folder(suite, results)) == reference
