"""The device at hand: choosing it, timing on it, its memory, what a run's environment is."""

from __future__ import annotations

import importlib.metadata
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from bench.errors import UserError

PACKAGES = (
    "sigma-bench",
    "torch",
    "torchvision",
    "torch-uncertainty",
    "timm",
    "transformers",
    "numpy",
    "scikit-learn",
)

CLEAR = Path("/proc/self/clear_refs")
"""Linux: a 5 written here sets the peak of resident memory to what is resident now."""

STATUS = Path("/proc/self/status")
SLACK = 16 * 2**20
"""Bytes by which two looks at a process's memory may differ."""


def choose_device(name: str) -> torch.device:
    """The device of that name; ``auto`` takes a GPU when there is one.

    Raises:
        UserError: there is no such device here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        # Fails where there is no such device, or one without values, such as `meta`.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        line = str(error).splitlines()[0]
        raise UserError(f"--device {name}: can't be used here: {line}") from None
    return device


def device_name(device: torch.device) -> str:
    """What tables call the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def synchronise(device: torch.device) -> None:
    """Wait until the device has done its work, so that a clock does not read queues."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def now(device: torch.device) -> float:
    """Seconds on a monotonic clock, after the device has caught up."""
    synchronise(device)
    return time.perf_counter()


def reset_peak_memory(device: torch.device) -> bool:
    """Start measuring the peak anew.

    Returns:
        whether the peak can be forgotten here. Where the system keeps it for the whole life of a
        process, later figures would hold what was done before.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    # Some systems take the word and do nothing.
    size = _status("VmRSS")
    return size is not None and (_status("VmHWM") or 0) <= size + SLACK


def peak_memory(device: torch.device) -> int:
    """Bytes: allocated on a GPU; resident in this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = _status("VmHWM")
    if peak is not None:
        return peak
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _status(name: str) -> int | None:
    """Bytes that Linux states for this process, or None elsewhere."""
    if not STATUS.exists():
        return None
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def environment(device: torch.device) -> dict[str, Any]:
    """What a result depends on beside its specification: versions, device, commit."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "git_commit": _commit(),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """The commit of a source checkout; an installed package has none."""
    here = Path(__file__).resolve().parent.parent
    if not (here / ".git").exists():
        return "not a checkout"
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()
