"""What a person may say about jobs, and how the rest is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cli import run
from bench.cli.submitting import SlurmFlags, make_options
from bench.errors import UserError
from bench.slurm.options import SlurmOptions, parse_time, read_extra
from bench.suite_files import load_suite

NONE = SlurmFlags(None, None, None, None, None, None, None, None, False)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("90:00", 90),
        ("90:01", 91),
        ("0:30", 1),
        ("1:30:00", 90),
        ("1:00:01", 61),
        ("2-0", 2880),
        ("1-12", 2160),
        ("0-00:30", 30),
        ("2-00:00:30", 2881),
    ],
)
def test_time_limits_as_slurm_reads_them(text: str, minutes: int) -> None:
    assert parse_time(text) == minutes


@pytest.mark.parametrize("text", ["", "0", "0:00", "4h", "-5", "1:2:3:4", "1-", "1.5", "١"])
def test_what_is_no_time_limit(text: str) -> None:
    with pytest.raises(UserError, match="--time"):
        parse_time(text)


@pytest.mark.parametrize(("minutes", "notice"), [(1, 20), (5, 100), (6, 120), (2880, 120)])
def test_a_job_is_told_in_time(minutes: int, notice: int) -> None:
    assert SlurmOptions(minutes=minutes).notice == notice


def test_extra_options(tmp_path: Path) -> None:
    path = tmp_path / "more.yaml"
    path.write_text(
        "qos: long\nmail_type: END\nexclusive: true\nhold: false\nsetup: [module load x]"
    )
    extra, setup = read_extra(path)
    assert extra == {"qos": "long", "mail-type": "END", "exclusive": True}
    assert setup == ("module load x",)
    path.write_text("")
    assert read_extra(path) == ({}, ())
    assert read_extra(None) == ({}, ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("qso: long", "unknown option of sbatch 'qso': did you mean qos"),
        ("time: 5", "time: use the flag --time"),
        ("cpus_per_task: 5", "use the flag --cpus-per-run"),
        ("array: 0-4", "use the flag --parallel"),
        ("dependency: singleton", "unknown option of sbatch"),
        ("output: x", "unknown option of sbatch"),
        ("comment: [a]", "comment: must be one line"),
        ('comment: "a\\n#SBATCH --uid=0"', "comment: must be one line"),
        ("comment: ''", "comment: must be one line"),
        ("setup: {a: b}", "setup: must be a list"),
        ("setup: [1]", "setup: must be a list"),
        ("- qos", "must be a mapping"),
        ("qos: {", "not YAML"),
        ("qos: a\nqos: b", "stands twice"),
    ],
)
def test_refused_options(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "more.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_extra(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"--slurm-options {path}: ")


def test_a_file_of_options_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't be read: No such file"):
        read_extra(tmp_path / "none.yaml")


def with_devices(count: int) -> list:
    return load_suite("digits", (f"recipe.devices={count}",)).runs()


def flags(**changes: object) -> SlurmFlags:
    return SlurmFlags(**{**vars(NONE), **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "devices", "asked", "gpus"),
    [
        ("auto", 1, None, 1),
        ("cuda", 4, None, 4),
        ("auto", 2, 4, 4),
        ("auto", 1, 0, 0),
        ("cpu", 1, None, 0),
        ("cpu", 2, 0, 0),
    ],
)
def test_gpus_of_a_job(device: str, devices: int, asked: int | None, gpus: int) -> None:
    options = make_options(flags(gpus_per_run=asked), with_devices(devices), device)
    assert options.gpus == gpus


@pytest.mark.parametrize(
    ("device", "devices", "asked", "words"),
    [("cpu", 1, 2, "--device cpu uses none"), ("auto", 4, 2, "recipe.devices=4 needs 4")],
)
def test_gpus_that_do_not_fit(device: str, devices: int, asked: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_options(flags(gpus_per_run=asked), with_devices(devices), device)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--on", "mars"], "--on mars: must be one of local, slurm"),
        (["--on", "slurm", "--workers", "2"], "--workers: is for --on local"),
        (["--parallel", "2"], "--parallel: is for --on slurm"),
        (["--runs-per-job", "2"], "--runs-per-job: is for --on slurm"),
        (["--gpus-per-run", "0"], "--gpus-per-run: is for --on slurm"),
        (["--wait"], "--wait: is for --on slurm"),
        (["--slurm-options", "x"], "--slurm-options: is for --on slurm"),
        (["--on", "slurm", "--parallel", "0"], "--parallel"),
        (["--on", "slurm", "--time", "soon"], "--time soon: not a time limit"),
    ],
)
def test_flags_that_do_not_fit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bench.execution.execute", None)  # nothing is to be done
    assert run(["run", "digits", *words]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []
