"""What a person says about the jobs: flags, and a YAML file for the rest of sbatch's options."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import UserError, unknown
from bench.yaml_text import read_yaml

EXTRA = frozenset(
    {
        *("begin", "bb", "comment", "constraint", "container", "core-spec", "cores-per-socket"),
        *("cpu-freq", "cpus-per-gpu", "deadline", "delay-boot", "distribution", "exclude"),
        *("exclusive", "export", "extra-node-info", "gpu-bind", "gpu-freq", "gres", "gres-flags"),
        *("hint", "hold", "licenses", "mail-type", "mail-user", "mem", "mem-bind", "mem-per-cpu"),
        *("mem-per-gpu", "mincpus", "network", "nice", "nodelist", "no-kill", "oversubscribe"),
        *("prefer", "priority", "profile", "propagate", "qos", "reservation", "sockets-per-node"),
        *("switches", "thread-spec", "threads-per-core", "time-min", "tmp", "wckey"),
    }
)
"""Long options of sbatch that may stand in the file."""
OWN = {
    "account": "--account",
    "array": "--parallel",
    "cpus-per-task": "--cpus-per-run",
    "gpus": "--gpus-per-run",
    "gpus-per-node": "--gpus-per-run",
    "partition": "--partition",
    "time": "--time",
}
"""Options that have a flag of their own."""
SETUP = "setup"
"""The one key that is no option of sbatch: shell lines before the runs, such as `module load`."""

_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?P<h>\d+)(?::(?P<m>\d+)(?::(?P<s>\d+))?)?"
    r"|(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)"
    r"|(?P<only_minutes>\d+)(?::(?P<only_seconds>\d+))?)",
    re.ASCII,
)


@dataclass(frozen=True)
class SlurmOptions:
    """How the jobs look.

    Attributes:
        minutes: time limit of a job; a run that needs longer is requeued and goes on.
        parallel: jobs that run at once, at most.
        runs_per_job: runs that one job does, one after the other.
        gpus: of a job.
        cpus: of a job.
        partition: Slurm's default where None.
        account: Slurm's default where None.
        extra: more options of sbatch, without dashes before the name.
        setup: shell lines before the runs.
    """

    minutes: int = 240
    parallel: int = 16
    runs_per_job: int = 1
    gpus: int = 1
    cpus: int = 4
    partition: str | None = None
    account: str | None = None
    extra: dict[str, str | int | bool] = field(default_factory=dict)
    setup: tuple[str, ...] = ()

    @property
    def notice(self) -> int:
        """Seconds before its time limit at which a job is told to stop."""
        return min(120, 20 * self.minutes)


def parse_time(text: str) -> int:
    """Minutes of a time limit as Slurm writes it, rounded up.

    Args:
        text: ``90`` (minutes), ``90:00``, ``1:30:00``, ``2-0``, ``2-00:00`` or ``2-00:00:00``.

    Raises:
        UserError: it is none of these, or nothing.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise UserError(
            f"--time {text}: not a time limit of Slurm: minutes (90), hours:minutes:seconds "
            "(1:30:00) or days-hours (2-0)"
        )
    part = {name: int(value or 0) for name, value in match.groupdict().items()}
    seconds = (
        86400 * part["days"]
        + 3600 * (part["h"] + part["hours"])
        + 60 * (part["m"] + part["minutes"] + part["only_minutes"])
        + part["s"]
        + part["seconds"]
        + part["only_seconds"]
    )
    if seconds == 0:
        raise UserError(f"--time {text}: a job needs at least a minute")
    return math.ceil(seconds / 60)


def read_extra(path: Path | None) -> tuple[dict[str, str | int | bool], tuple[str, ...]]:
    """Options of sbatch and set-up lines from a YAML file.

    Returns:
        option without dashes in front -> value, and shell lines.

    Raises:
        UserError: names the file and the key.
    """
    if path is None:
        return {}, ()
    place = f"--slurm-options {path}"
    content = _mapping(path, place)
    extra: dict[str, str | int | bool] = {}
    setup: tuple[str, ...] = ()
    for key, value in content.items():
        if key == SETUP:
            setup = _lines(value, place)
            continue
        name = str(key).replace("_", "-")
        if name in OWN:
            raise UserError(f"{place}: {key}: use the flag {OWN[name]}")
        if name not in EXTRA:
            error = unknown("option of sbatch", name, {*EXTRA, SETUP})
            raise UserError(f"{place}: {error}")
        if not isinstance(value, str | int | bool) or "\n" in str(value) or value == "":
            raise UserError(f"{place}: {key}: must be one line of text, a number or true")
        if value is not False:
            extra[name] = value
    return extra, setup


def _mapping(path: Path, place: str) -> dict[object, object]:
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{place}: can't be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{place}: not YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UserError(f"{place}: must be a mapping such as `qos: long`")
    return content


def _lines(value: object, place: str) -> tuple[str, ...]:
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise UserError(f"{place}: {SETUP}: must be a list of shell lines")
    return tuple(lines)
