"""Published results: small, complete for every table, and true to the runs."""

import json
import shutil

import pytest

from bench.cli.app import run
from bench.errors import UserError
from bench.publish import LARGEST, publish
from bench.store import SuiteFolder
from bench.tables import collect


def published(folder, suite, tmp_path):
    collection = collect(suite, folder)
    return publish(collection, tmp_path / "kept", "sigma-bench run tiny"), collection


def test_every_table_follows_from_the_copy_alone(folder, suite, tmp_path):
    from bench.tables import write_tables

    done, _ = published(folder, suite, tmp_path)
    write_tables(collect(suite, folder))
    shutil.rmtree(folder.path / "runs")
    shutil.rmtree(done.folder.path / "tables")
    copies = collect(suite, done.folder)
    assert copies.done == len(copies.entries)
    assert not copies.damages
    write_tables(copies)
    assert {p.name: p.read_bytes() for p in folder.tables.iterdir()} == {
        p.name: p.read_bytes() for p in done.folder.tables.iterdir()
    }


def test_only_what_is_small_is_kept(folder, suite, tmp_path):
    for entry in collect(suite, folder).entries:
        entry.folder.model_path.write_bytes(b"weights")
        (entry.folder.path / "checkpoint").mkdir()
        (entry.folder.path / "lock").touch()
    done, _ = published(folder, suite, tmp_path)
    files = [path for path in (done.folder.path / "runs").rglob("*") if path.is_file()]
    assert {path.name for path in files} <= {
        "spec.json",
        "environment.json",
        "metrics.json",
        "test.parquet",
    }
    assert done.bytes == sum(path.stat().st_size for path in files)


def test_large_records_are_left_out_by_name(folder, suite, tmp_path, monkeypatch):
    monkeypatch.setattr("bench.publish.LARGEST", 10)
    done, _ = published(folder, suite, tmp_path)
    assert len(done.left_out) == done.runs
    copies = collect(suite, done.folder)
    assert copies.done == done.runs
    assert set(copies.damages) == {entry.spec.id for entry in copies.entries}
    assert LARGEST == 1_000_000


def test_a_run_that_is_not_done_is_a_gap_there_too(folder, suite, tmp_path):
    entries = collect(suite, folder).entries
    entries[0].folder.metrics_path.unlink()
    entries[1].folder.metrics_path.unlink()
    entries[1].folder.fail("ValueError: no", "")
    done, _ = published(folder, suite, tmp_path)
    states = {entry.spec.id: entry.state for entry in collect(suite, done.folder).entries}
    assert states[entries[0].spec.id] == "not run"
    assert states[entries[1].spec.id] == "failed"
    assert list(states.values()).count("done") == len(entries) - 2


def test_publishing_again_forgets_what_is_gone(folder, suite, tmp_path):
    done, collection = published(folder, suite, tmp_path)
    collection.entries[0].folder.metrics_path.unlink()
    done, _ = published(folder, suite, tmp_path)
    assert done.runs == len(collection.entries) - 1


def test_the_readme_says_how_and_on_what(folder, suite, tmp_path):
    done, collection = published(folder, suite, tmp_path)
    text = (done.folder.path / "README.md").read_text()
    assert "sigma-bench run tiny" in text
    assert f"{done.runs} of {len(collection.entries)} runs" in text
    environment = json.loads((collection.entries[0].folder.path / "environment.json").read_text())
    assert f"torch {environment['packages']['torch']}" in text


def test_other_runs_that_give_way_are_counted(folder, suite, tmp_path):
    done, _ = published(folder, suite, tmp_path)
    assert done.replaced == 0
    run = next((done.folder.path / "runs").iterdir())
    run.rename(run.with_name("single-of-other-settings"))
    assert published(folder, suite, tmp_path)[0].replaced == 1


def test_the_runs_themselves_are_no_target(folder, suite):
    with pytest.raises(UserError, match="holds the runs themselves"):
        publish(collect(suite, folder), folder.path.parent, "")


@pytest.mark.parametrize("inside", ["", "runs"])
def test_a_folder_among_the_runs_is_no_target(folder, suite, inside):
    before = sorted(folder.path.rglob("*"))
    with pytest.raises(UserError, match="would lie in each other"):
        publish(collect(suite, folder), folder.path / inside, "")
    assert sorted(folder.path.rglob("*")) == before


def test_a_folder_around_the_runs_is_no_target(folder, suite, tmp_path):
    around = SuiteFolder(tmp_path / "around", suite.name)
    inner = SuiteFolder(around.path / "runs", suite.name)
    shutil.copytree(folder.path, inner.path)
    with pytest.raises(UserError, match="would lie in each other"):
        publish(collect(suite, inner), tmp_path / "around", "")
    assert collect(suite, inner).done == 9


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoint/0.pt", "records/ood.parquet"])
def test_runs_of_another_folder_are_never_overwritten(folder, suite, tmp_path, name):
    done, collection = published(folder, suite, tmp_path)
    precious = done.folder.run(collection.entries[0].spec).path / name
    precious.parent.mkdir(exist_ok=True)
    precious.write_bytes(b"weights")
    with pytest.raises(UserError, match="holds runs that would be lost") as error:
        published(folder, suite, tmp_path)
    assert str(precious) in str(error.value)
    assert precious.read_bytes() == b"weights"


def test_what_a_broken_publication_left_is_no_obstacle(folder, suite, tmp_path):
    done, collection = published(folder, suite, tmp_path)
    (done.folder.run(collection.entries[0].spec).path / ".metrics.json.1.tmp").touch()
    published(folder, suite, tmp_path)
    assert not list(done.folder.path.rglob("*.tmp"))


def test_commands_name_a_folder_with_a_space(folder, suite, tmp_path):
    asked = "tiny --results elsewhere --plugin 'my idea.py'"
    done = publish(collect(suite, folder, asked), tmp_path / "my results", "")
    text = (done.folder.path / "README.md").read_text()
    where = f"--results '{tmp_path / 'my results'}'"
    assert f"sigma-bench tables tiny --plugin 'my idea.py' {where}" in text


def test_a_readme_without_description_and_environments(folder, suite, tmp_path):
    for entry in collect(suite, folder).entries:
        (entry.folder.path / "environment.json").unlink()
    done, _ = published(folder, suite, tmp_path)
    text = (done.folder.path / "README.md").read_text()
    assert "9 of 9 runs are done.\n" in text
    assert "\n\n\n" not in text


def test_nothing_to_publish(suite, tmp_path):
    empty = SuiteFolder(tmp_path / "results", suite.name)
    with pytest.raises(UserError, match="no run is done"):
        publish(collect(suite, empty), tmp_path / "kept", "")
    assert not (tmp_path / "kept").exists()


def test_the_verb_needs_results(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["publish", "digits"]) == 2
    assert "no run is done" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
