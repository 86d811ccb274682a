"""Files of a run that are cut off or have a wrong bit: noticed, named and redone."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import SCORES, answer, do, only_folder, write_suite

from bench.cli import run as sigma_bench
from bench.files import Damaged, read_json, read_records
from bench.store import Progress, RunFolder
from bench.weights import load_tensors, save_tensors

FLIPS = 60
SIGNED = ("spec.json", "environment.json", "plan.json", "training.json", "metrics.json")
RECORDS = tuple(f"records/{name}.parquet" for name in ("validation", "test", "classwise", "shift"))
TENSORS = ("model.safetensors", "checkpoint/network-0.safetensors")


class Halted(BaseException):
    """Ends a run as a kill would: nothing is stored of it."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunFolder, dict[str, Any]]:
    """A suite whose run is done, the run, and what it found."""
    folder = tmp_path_factory.mktemp("finished")
    suite = write_suite(folder)
    assert do(suite, folder / "results")[0] == ["done"]
    run = only_folder(suite, folder / "results")
    return suite, run, answer(run)


@pytest.fixture(scope="module")
def halted(finished: tuple[Path, RunFolder, dict[str, Any]]) -> Path:
    """The folder of that run as it was half-way through its training."""
    from tiny_runs import place

    from bench.execution import execute

    suite, run, _ = finished
    results = suite.parent / "halted"

    def stop(event: Any) -> None:
        if event.kind == "tick" and event.data["step"] == 2:
            raise Halted

    with pytest.raises(Halted):
        execute([run.spec], place(results), stop)
    return only_folder(suite, results).path


def flipped(content: bytes, bit: int) -> bytes:
    """The same bytes but for one bit."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def damages(content: bytes, seed: str) -> list[bytes]:
    """A content with one wrong bit, at random and in every place near its ends; or cut off."""
    chosen = random.Random(seed)
    last = 8 * len(content) - 1
    bits = {chosen.randint(0, last) for _ in range(FLIPS)} | set(range(0, min(last, 1600), 17))
    ends = {chosen.randrange(len(content)) for _ in range(20)} | {0, 1, len(content) - 1}
    return [flipped(content, bit) for bit in sorted(bits)] + [content[:end] for end in ends]


@pytest.mark.parametrize("name", [*SIGNED, *RECORDS, *TENSORS])
def test_no_damaged_file_is_read_as_something_else(
    finished: tuple[Path, RunFolder, dict[str, Any]], halted: Path, tmp_path: Path, name: str
) -> None:
    source = halted / name if name.startswith("checkpoint") else finished[1].path / name
    content = source.read_bytes()
    path = tmp_path / source.name
    path.write_bytes(content)
    right = _read(path)
    for damaged in damages(content, name):
        path.write_bytes(damaged)
        said = ""
        try:
            assert _same(_read(path), right), "believed"
        except Damaged as damage:
            said = str(damage)
        assert not said or source.name in said
        assert "\n" not in said


def _read(path: Path) -> Any:
    if path.suffix == ".json":
        return read_json(path)
    if path.suffix == ".parquet":
        return read_records(path)
    return load_tensors(path)


def _same(found: Any, right: Any) -> bool:
    """Equal, so that a bit that carries no meaning may have any value."""
    if isinstance(right, dict):
        return bool(found == right)
    if isinstance(right, tuple):
        tensors, state = found
        return state == right[1] and all(
            torch.equal(tensors[name], value) for name, value in right[0].items()
        )
    return bool(found.equals(right))


def test_damaged_progress_is_read_up_to_the_damage(halted: Path, tmp_path: Path) -> None:
    line = (halted / "progress.jsonl").read_bytes() or b""
    whole = Progress(tmp_path / "progress.jsonl")
    tick = {"network": 0, "networks": 1, "step": 3, "steps": 9, "epoch": 0.5, "loss": 1.25}
    for step in range(3):
        whole.append({**tick, "step": step})
    content = whole.path.read_bytes() + line
    for damaged in damages(content, "progress"):
        whole.path.write_bytes(damaged)
        for one in whole.lines():
            assert one.keys() >= Progress.KEYS
            assert all(isinstance(one[key], int | float) for key in Progress.KEYS)
        whole.rewind(0, 1)
        assert all(one["step"] <= 1 or one["network"] < 0 for one in whole.lines())


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize(
    "name", [*SIGNED, "progress.jsonl", "records/test.parquet", "records/ood.parquet", TENSORS[0]]
)
def test_a_done_run_with_a_damaged_file_is_done_again(
    finished: tuple[Path, RunFolder, dict[str, Any]],
    tmp_path: Path,
    name: str,
    number: int,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """From its weights, or where these are damaged from the start; with the same answer."""
    suite, run, right = finished
    results = tmp_path / "results"
    shutil.copytree(run.path.parents[2], results)
    folder = only_folder(suite, results)
    path = folder.path / name
    content = path.read_bytes()
    path.write_bytes(random.Random(name).choice(damages(content, f"{name}{number}")))
    if name == TENSORS[0]:
        # Nobody reads the weights of a run that is done.
        folder.metrics_path.unlink()
    assert sigma_bench(["run", str(suite), "--results", str(results), "--no-tables"]) == 0
    said = capfd.readouterr()
    assert "Traceback" not in said.err + said.out
    if name != "progress.jsonl":
        assert path.name in said.out.replace("\n", "")
        read_json(path) if name in SIGNED else _read(path)
    found = answer(folder, course=False)
    assert found["files"] == right["files"]
    assert found["scores"] == right["scores"]


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("name", ["plan.json", "progress.jsonl", TENSORS[1]])
def test_a_run_half_way_with_a_damaged_file_ends_the_same(
    finished: tuple[Path, RunFolder, dict[str, Any]],
    halted: Path,
    tmp_path: Path,
    name: str,
    number: int,
) -> None:
    suite, _, right = finished
    results = tmp_path / "results"
    folder = only_folder(suite, results)
    shutil.copytree(halted, folder.path)
    path = folder.path / name
    content = path.read_bytes() if path.exists() and path.stat().st_size else b"{}\n"
    path.write_bytes(random.Random(name).choice(damages(content, f"{name}{number}")))
    outcomes, events = do(suite, results)
    assert outcomes == ["done"]
    if name != "progress.jsonl":
        assert any(path.name in event.text for event in events if event.kind == "note")
    found = answer(folder, course=False)
    assert found["files"] == right["files"]
    assert all(found["scores"][key] == right["scores"][key] for key in SCORES)


@pytest.mark.parametrize("change", ["state", "moments", "weights"])
def test_a_checkpoint_of_another_version_leaves_no_trace(
    finished: tuple[Path, RunFolder, dict[str, Any]], halted: Path, tmp_path: Path, change: str
) -> None:
    """It is whole, but does not fit: what did fit of it must not be the start of the training."""
    suite, _, right = finished
    results = tmp_path / "results"
    folder = only_folder(suite, results)
    shutil.copytree(halted, folder.path)
    path = folder.path / TENSORS[1]
    tensors, state = load_tensors(path)
    if change == "state":
        state["stage"] = 1
    elif change == "moments":
        tensors["optimizer.x.momentum_buffer"] = torch.zeros(3)
    else:
        name = max(key for key in tensors if key.startswith("model."))
        tensors[name] = tensors[name].flatten()[:1]
    save_tensors(path, tensors, state)
    outcomes, events = do(suite, results)
    assert outcomes == ["done"]
    assert any("starts anew" in event.text for event in events if event.kind == "note")
    assert answer(folder) == right


@pytest.mark.parametrize("name", [*SIGNED, *RECORDS, *TENSORS])
def test_a_folder_in_the_place_of_a_file_is_one_line(
    finished: tuple[Path, RunFolder, dict[str, Any]],
    tmp_path: Path,
    name: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    suite, run, _ = finished
    results = tmp_path / "results"
    shutil.copytree(run.path.parents[2], results)
    path = only_folder(suite, results).path / name
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)
    code = sigma_bench(["run", str(suite), "--results", str(results), "--no-tables"])
    said = capfd.readouterr()
    assert code in (0, 1, 2)
    assert "Traceback" not in said.err + said.out
    if code:
        assert path.name in (said.err + said.out).replace("\n", "")
