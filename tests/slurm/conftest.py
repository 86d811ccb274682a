"""A real Slurm of one node, where one can be started."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
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
    subprocess.run(["scancel", f"--user={os.environ.get('USER') or 'root'}"], check=False)
    subprocess.run(["bash", START, "stop", folder], check=False)
    shutil.rmtree(folder, ignore_errors=True)
