import json
import multiprocessing
import os
import signal
import time

import pandas as pd
import pytest
import torch

from bench.errors import UserError
from bench.files import (
    Damaged,
    read_columns,
    read_json,
    read_records,
    write_bytes,
    write_json,
    write_records,
)
from bench.store import Busy, Progress, RunFolder
from bench.suite_files import load_suite
from bench.weights import load_tensors, save_tensors

TICK = {"network": 0, "networks": 2, "step": 5, "steps": 10, "epoch": 0.5}


@pytest.fixture
def folder(tmp_path):
    spec = load_suite("digits").runs()[0]
    return RunFolder(tmp_path / "runs" / spec.id, spec)


def finish(folder):
    records = pd.DataFrame({"label": [0, 1], "confidence": [0.5, 1.0]})
    write_records(folder.records_path("test"), records)
    folder.finish({"test": {"accuracy": 0.5}}, ["test"])


def test_json_round_trip(tmp_path):
    content = {"a": 1, "b": [1.5, "σ"], "c": {"d": None}}
    write_json(tmp_path / "x.json", content)
    assert read_json(tmp_path / "x.json") == content
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_json_refuses_what_is_not_a_number(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"nll": float("nan")})
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize("cut", [0, 1, 10, -3])
def test_truncated_json_is_named(tmp_path, cut):
    path = tmp_path / "metrics.json"
    write_json(path, {"accuracy": 0.75})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(Damaged, match=r"metrics\.json"):
        read_json(path)


def test_altered_json_is_named(tmp_path):
    path = tmp_path / "metrics.json"
    write_json(path, {"accuracy": 0.75})
    path.write_text(path.read_text().replace("0.75", "0.95"))
    with pytest.raises(Damaged, match="digest"):
        read_json(path)


@pytest.mark.parametrize("fault", ["truncate", "flip"])
def test_damaged_records_are_named(tmp_path, fault):
    path = tmp_path / "test.parquet"
    frame = pd.DataFrame({"label": range(1000), "confidence": [i / 1000 for i in range(1000)]})
    write_records(path, frame)
    pd.testing.assert_frame_equal(read_records(path), frame)
    content = bytearray(path.read_bytes())
    if fault == "truncate":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 3] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(Damaged, match=r"test\.parquet"):
        read_records(path)
    with pytest.raises(Damaged, match=r"test\.parquet"):
        read_columns(path, ["label", "confidence"])


def test_columns_are_read_as_the_frame_has_them(tmp_path):
    path = tmp_path / "test.parquet"
    numbers = {"int64": [3, -1], "uint8": [0, 255], "float64": [0.1, 1 / 3], "float32": [0.5, -2]}
    frame = pd.DataFrame({name: pd.Series(values, dtype=name) for name, values in numbers.items()})
    frame["word"], frame["flag"], frame["gap"] = "a", True, [1.0, float("nan")]
    write_records(path, frame)
    found = read_columns(path, [*reversed(numbers)])
    assert list(found) == [*reversed(numbers)]
    for name, values in found.items():
        assert values.dtype == frame[name].dtype == name
        assert values.tolist() == frame[name].tolist()
    for read in (read_columns, read_records):
        with pytest.raises(Damaged, match=r"test\.parquet: has no column 'prediction'"):
            read(path, ["int64", "prediction"])
    for name in ("word", "flag", "gap"):
        with pytest.raises(Damaged, match=r"test\.parquet: holds .*, not numbers alone"):
            read_columns(path, [name])
    with pytest.raises(FileNotFoundError):
        read_columns(tmp_path / "none.parquet", ["int64"])
    write_records(path, frame[:0])
    assert read_columns(path, ["float64"])["float64"].shape == (0,)


@pytest.mark.parametrize("fault", ["truncate", "flip", "empty"])
def test_damaged_weights_are_named(tmp_path, fault):
    path = tmp_path / "model.safetensors"
    tensors = {
        "w": torch.randn(50, 3),
        "n": torch.tensor(3),
        "half": torch.randn(4).bfloat16(),
        "strided": torch.randn(4, 6).t(),
    }
    tensors["tied"] = tensors["w"]
    save_tensors(path, tensors, {"step": 7})
    found, state = load_tensors(path)
    assert state == {"step": 7}
    assert all(torch.equal(found[name], value) for name, value in tensors.items())
    content = bytearray(path.read_bytes())
    if fault == "flip":
        content[-20] ^= 1
    else:
        content = content[: 0 if fault == "empty" else -5]
    path.write_bytes(content)
    with pytest.raises(Damaged, match=r"model\.safetensors"):
        load_tensors(path)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "metrics.json"
    write_json(path, {"a": 1})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"half")
    assert read_json(path) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.json"]


def test_states(folder):
    assert folder.state() == ("not run", "")
    folder.start({"python": "3"})
    assert folder.state()[0] == "interrupted"
    folder.fail("ValueError: boom", "traceback")
    assert folder.state() == ("failed", "ValueError: boom")
    folder.start({"python": "3"})
    assert folder.state()[0] == "interrupted"
    folder.refuse("no norm layers")
    assert folder.state() == ("not applicable", "no norm layers")
    folder.start({})
    with folder.lock():
        assert folder.state()[0] == "running"
    finish(folder)
    assert folder.state() == ("done", "")
    assert folder.verify()


def test_a_failure_never_counts_as_done(folder):
    folder.start({})
    folder.fail("x", "y")
    assert folder.metrics() is None
    assert not folder.verify()


def test_metrics_of_another_run_are_refused(folder):
    finish(folder)
    content = read_json(folder.metrics_path)
    write_json(folder.metrics_path, {**content, "run": "another"})
    with pytest.raises(Damaged, match="another"):
        folder.metrics()


@pytest.mark.parametrize("fault", ["missing", "altered"])
def test_verification_names_the_records(folder, fault):
    finish(folder)
    path = folder.records_path("test")
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(Damaged, match=r"test\.parquet"):
        folder.verify()


def _hold(folder, ready):
    with folder.lock():
        ready.set()
        time.sleep(600)


def test_lock_excludes_and_dies_with_its_process(folder):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_hold, args=(folder, ready))
    process.start()
    assert ready.wait(300)
    with pytest.raises(Busy, match="another process"), folder.lock(patience=0.1):
        pass
    assert folder.is_locked()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not folder.is_locked()
    with folder.lock(patience=0.1):
        assert folder.is_locked()


@pytest.mark.parametrize("write", ["start", "fail", "refuse", "finish"])
def test_a_folder_that_was_taken_over_is_not_written(folder, write):
    """This process was suspended for so long that another took it for dead."""
    words = {"start": [{}], "fail": ["a", "b"], "refuse": ["a"], "finish": [{}, []]}
    with folder.lock():
        (folder.path / "lock.1").rename(folder.path / "lock.2")
        with pytest.raises(Busy, match="took this over"):
            getattr(folder, write)(*words[write])
        assert [path.name for path in folder.path.iterdir()] == ["lock.2"]


def test_leftovers_of_a_dead_process_go(folder):
    folder.path.mkdir(parents=True)
    (folder.path / ".metrics.json.123.tmp").write_text("half")
    with folder.lock():
        assert [path.name for path in folder.path.iterdir()] == ["lock.1"]


def test_progress_survives_a_cut_line_and_rewinds(tmp_path):
    progress = Progress(tmp_path / "progress.jsonl")
    for network, step in [(0, 5), (0, 10), (1, 5), (1, 10)]:
        progress.append({**TICK, "network": network, "step": step})
    with progress.path.open("a") as file:
        file.write('{"network": 1, "st')
    assert len(progress.lines()) == 4
    progress.rewind(1, 7)
    kept = [(line["network"], line["step"]) for line in progress.lines()]
    assert kept == [(0, 5), (0, 10), (1, 5)]
    last = json.loads(progress.path.read_text().splitlines()[-1])
    assert last == {**TICK, "network": 1, "step": 5}


@pytest.mark.parametrize("line", ["5", "null", "[]", '{"network": 0, "step": 3}'])
def test_a_foreign_line_of_progress_is_dropped_with_what_follows(tmp_path, line):
    progress = Progress(tmp_path / "progress.jsonl")
    progress.append(TICK)
    with progress.path.open("a") as file:
        file.write(f"{line}\n{json.dumps(TICK)}\n")
    assert progress.lines() == [TICK]


@pytest.mark.parametrize("name", ["failure.json", "not_applicable.json"])
def test_a_reason_of_another_version_is_named_and_redone(folder, name):
    folder.start({})
    write_json(folder.path / name, {"message": "from before"})
    state, reason = folder.state()
    assert state == "interrupted"
    assert name in reason
    assert "has no" in reason
    assert "run again" in reason


def test_metrics_without_their_files_are_damaged(folder):
    write_json(folder.metrics_path, {"run": folder.spec.id, "test": {"accuracy": 0.5}})
    with pytest.raises(Damaged, match="names no files"):
        folder.verify()
    assert folder.state()[0] == "interrupted"


@pytest.mark.parametrize("where", ["open", "fsync"])
def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch, where):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    path = tmp_path / "deep" / "metrics.json"
    if where == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr("pathlib.Path.open", full)
    with pytest.raises(OSError, match="No space") as caught:
        write_bytes(path, b"x")
    assert caught.value.filename == str(path)
    assert list(path.parent.iterdir()) == []


def test_a_lock_that_is_no_file_is_one_line(folder):
    (folder.path / "lock.1").mkdir(parents=True)
    with pytest.raises(UserError, match=r"can't be written.*--results"), folder.lock():
        pass
