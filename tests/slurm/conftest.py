"""A real Slurm of one node, where one can be started."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

START = Path(__file__).with_name("start_slurm.sh")
ASKED = "SIGMA_BENCH_SLURM"
CANNOT = 77
"""The script's exit code where Slurm can't be started."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Path]:
    """The folder of a Slurm that runs during the tests; skips with the reason where none can."""
    how = os.environ.get(ASKED)
    if how is None:
        pytest.skip(f"needs a real Slurm: `tox -e slurm`, or {ASKED}=1")
    # A socket's path may have 107 characters; pytest's own folders can be longer.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    words = ["--install"] if how == "install" else []
    done = subprocess.run(
        ["bash", START, "start", folder, *words], capture_output=True, text=True, check=False
    )
    if done.returncode == CANNOT:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"no Slurm here: {done.stdout.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stdout + done.stderr
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    os.environ["PATH"] += f"{os.pathsep}/usr/sbin{os.pathsep}/sbin"
    yield folder
    _empty_the_queue()
    subprocess.run(["bash", START, "stop", folder], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _empty_the_queue(seconds: float = 20) -> None:
    """End all jobs, and wait for them: a daemon that is stopped earlier leaves its steps behind."""
    subprocess.run(["scancel", f"--user={getpass.getuser()}"], check=False)
    deadline = time.monotonic() + seconds
    words = ["squeue", "--noheader", "--states=all", "--format=%T"]
    while time.monotonic() < deadline:
        left = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
        if not {"RUNNING", "COMPLETING"} & {*left}:
            return
        time.sleep(0.3)
