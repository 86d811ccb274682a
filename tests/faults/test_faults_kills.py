"""SIGKILL at random moments, and several processes on one folder."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_runs import Helper, answer, folders, leftovers, only_folder, write_suite

KILLS = 20


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helper]:
    helper = Helper(tmp_path_factory.mktemp("helper") / "errors")
    yield helper
    helper.close()


def test_a_run_that_is_killed_20_times_gives_the_same_bits(tmp_path: Path, helper: Helper) -> None:
    suite = write_suite(tmp_path)
    ends = helper("kill-runs", suite, tmp_path / "results", KILLS)
    assert sum(one.count(-signal.SIGKILL) for one in ends) == KILLS
    assert all(one[-1] == 0 for one in ends), ends
    reference = answer(only_folder(suite, tmp_path / "results" / "0"))
    for number in range(1, len(ends) + 1):
        folder = only_folder(suite, tmp_path / "results" / str(number))
        assert answer(folder) == reference, number
        assert not leftovers(folder.path)


def test_workers_that_are_killed_20_times_lose_nothing(tmp_path: Path, helper: Helper) -> None:
    suite = write_suite(tmp_path, seeds=[0, 1, 2])
    found = helper("kill-workers", suite, tmp_path / "results", KILLS)
    for outcomes, texts in found["calls"]:
        assert set(outcomes) <= {"done", "failed"}
        assert outcomes.count("failed") == sum("died (SIGKILL)" in text for text in texts)
    alone = folders(suite, tmp_path / "results" / "0")
    for number in range(1, found["folders"] + 1):
        killed = folders(suite, tmp_path / "results" / str(number))
        assert [answer(folder) for folder in killed] == [answer(folder) for folder in alone]
        assert {folder.state() for folder in killed} == {("done", "")}
        assert not leftovers(tmp_path / "results" / str(number))


def test_tables_that_are_killed_are_whole_or_absent(tmp_path: Path, helper: Helper) -> None:
    suite = write_suite(tmp_path)
    found = helper("kill-tables", suite, tmp_path / "results", KILLS)
    assert found["wrong"] == []
    assert found["same"]
    assert max(found["there"]) > 0
    assert len(set(found["there"])) > 2, "they were killed at one moment only"


@pytest.mark.parametrize("processes", [2, 8])
def test_several_processes_do_each_run_once(tmp_path: Path, helper: Helper, processes: int) -> None:
    suite = write_suite(tmp_path, seeds=[0, 1, 2])
    found = helper("share", suite, tmp_path / "results", processes)
    assert [code for code, _ in found] == [0] * processes
    trained = [run for _, runs in found for run in runs]
    done = folders(suite, tmp_path / "results")
    assert sorted(trained) == sorted(folder.spec.id for folder in done)
    assert all(folder.verify() for folder in done)


def test_what_a_killed_writer_left_goes_in_time(tmp_path: Path) -> None:
    """A name that nobody will write to again; a young one may belong to a living process."""
    from bench.files import write_text

    old, young, other = (
        tmp_path / name for name in (".main.md.1.tmp", ".main.md.2.tmp", ".x.1.tmp")
    )
    for path in (old, young, other):
        path.write_text("half")
    os.utime(old, (1, 1))
    write_text(tmp_path / "main.md", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [young.name, other.name, "main.md"]
