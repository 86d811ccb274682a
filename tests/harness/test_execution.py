import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bench import registry
from bench.execution import Event, Placement, execute
from bench.files import file_digest, read_json, write_json
from bench.store import SuiteFolder
from bench.suite_files import load_suite
from bench.weights import load_tensors, save_tensors

# Does the runs of a suite and prints every event, so that a test can act at a chosen moment.
CHILD = """
import sys
from pathlib import Path
from bench.execution import Placement, execute
from bench.suite_files import load_suite

def observe(event):
    print(event.kind, event.run.id, event.outcome, event.text, flush=True)

if __name__ == "__main__":
    suite = load_suite(sys.argv[1])
    place = Placement(
        Path(sys.argv[2]), suite.name, Path("nowhere"), "cpu", int(sys.argv[3]), (), 0.0
    )
    outcomes = execute(suite.runs(), place, observe)
    sys.exit(any(outcome != "done" for outcome in outcomes.values()))
"""

SUITE = {
    "name": "small",
    "tasks": [{"name": "digits", "corruptions": ["contrast"], "severities": [1, 5]}],
    "backbones": ["resnet8"],
    "methods": ["deep_ensemble"],
    "members": 2,
    "seeds": [0],
    "budget": {"match": "epochs", "epochs": 2},
    "recipe": {"batch_size": 16, "augment": ["shift"], "member_chunk": 2},
}


def write_suite(folder, **changes):
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**SUITE, **changes}))
    return path


def start_child(suite, results, workers=1):
    script = suite.parent / "child.py"
    script.write_text(CHILD)
    command = [sys.executable, str(script), str(suite), str(results), str(workers)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def finish_child(child):
    lines, _ = child.communicate(timeout=300)
    return child.returncode, lines.splitlines()


def placement(results, **changes):
    values = {"results": results, "suite": "small", "data": Path("nowhere"), "device": "cpu"}
    return Placement(**{**values, "workers": 1, **changes})


def contents(folder):
    """Digests of what a run computed: weights and records."""
    paths = [folder.model_path, *sorted((folder.path / "records").glob("*.parquet"))]
    return {path.name: file_digest(path) for path in paths}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A suite that was run without interruption, and what it gave."""
    folder = tmp_path_factory.mktemp("done")
    suite = load_suite(str(write_suite(folder)))
    outcomes = execute(suite.runs(), placement(folder / "results"), lambda event: None)
    (run,) = suite.runs()
    assert outcomes == {run.id: "done"}
    return run, SuiteFolder(folder / "results", "small").run(run)


def test_killed_at_random_moments_and_resumed_gives_the_same_bits(tmp_path, done):
    run, reference = done
    suite = write_suite(tmp_path)
    moments = random.Random(0)
    for kill in range(3):
        child = start_child(suite, tmp_path / "results")
        for _ in range(moments.randint(1, 45)):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert child.returncode in (-signal.SIGKILL, 0), kill
    code, _ = finish_child(start_child(suite, tmp_path / "results"))
    assert code == 0
    folder = SuiteFolder(tmp_path / "results", "small").run(run)
    assert contents(folder) == contents(reference)
    first, second = reference.metrics(), folder.metrics()
    for key in ("temperature", "validation", "test", "shift", "ood"):
        assert first[key] == second[key]
    progress = [
        [(line["network"], line["step"], line["loss"]) for line in map(json.loads, path.open())]
        for path in (reference.path / "progress.jsonl", folder.path / "progress.jsonl")
    ]
    assert progress[0] == progress[1]


def test_two_processes_share_the_work_and_do_nothing_twice(tmp_path):
    path = write_suite(tmp_path, methods=["single"], seeds=[0, 1, 2])
    runs = load_suite(str(path)).runs()
    children = [start_child(path, tmp_path / "results") for _ in range(2)]
    outputs = [finish_child(child) for child in children]
    assert [code for code, _ in outputs] == [0, 0]
    trained = [
        {line.split()[1] for line in lines if line.startswith("tick")} for _, lines in outputs
    ]
    assert not trained[0] & trained[1]
    assert trained[0] | trained[1] == {run.id for run in runs}
    folder = SuiteFolder(tmp_path / "results", "small")
    assert all(folder.run(run).verify() for run in runs)


def test_a_killed_worker_costs_its_own_run_alone(tmp_path):
    path = write_suite(tmp_path, methods=["single"], seeds=[0, 1, 2, 3])
    runs = load_suite(str(path)).runs()
    child = start_child(path, tmp_path / "results", workers=2)
    for line in child.stdout:
        if line.startswith("tick"):
            break
    victim = line.split()[1]
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    holders = [pid for pid in children if _holds(pid, victim)]
    assert len(holders) == 1
    os.kill(int(holders[0]), signal.SIGKILL)
    code, lines = finish_child(child)
    assert code == 1
    ends = [line for line in lines if line.startswith("end")]
    assert sum("SIGKILL" in line for line in ends) == 1
    folder = SuiteFolder(tmp_path / "results", "small")
    states = {run.id: folder.run(run).state()[0] for run in runs}
    assert states.pop(victim) == "failed"
    assert set(states.values()) == {"done"}
    outcomes = execute(runs, placement(tmp_path / "results"), lambda event: None)
    assert set(outcomes.values()) == {"done"}


def _holds(pid, run_id):
    """Whether a process has the lock file of a run open."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if run_id in str(descriptor.readlink()):
                return True
        except FileNotFoundError:
            continue
    return False


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("metrics.json", "metrics.json"),
        ("records/test.parquet", "test.parquet"),
        ("records/shift.parquet", "shift.parquet"),
    ],
)
def test_a_damaged_result_is_named_and_redone(tmp_path, done, name, note):
    run, reference = done
    before, scores = contents(reference), reference.metrics()["test"]
    path = reference.path / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    events: list[Event] = []
    place = placement(reference.path.parents[2])
    assert execute([run], place, events.append) == {run.id: "done"}
    assert any(event.kind == "note" and note in event.text for event in events)
    assert not any(event.kind == "tick" for event in events), "the weights were whole"
    assert contents(reference) == before
    assert reference.metrics()["test"] == scores


def test_damaged_weights_are_trained_again(done):
    run, reference = done
    before = contents(reference)
    reference.metrics_path.unlink()
    content = bytearray(reference.model_path.read_bytes())
    content[-100] ^= 1
    reference.model_path.write_bytes(content)
    events: list[Event] = []
    execute([run], placement(reference.path.parents[2]), events.append)
    assert any(event.kind == "note" and "model.safetensors" in event.text for event in events)
    assert any(event.kind == "tick" for event in events)
    assert contents(reference) == before


def test_what_is_done_is_left_alone(done):
    run, reference = done
    stamp = reference.metrics_path.stat().st_mtime_ns
    events: list[Event] = []
    execute([run], placement(reference.path.parents[2]), events.append)
    assert [event.kind for event in events] == ["start", "end"]
    assert reference.metrics_path.stat().st_mtime_ns == stamp


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plan.json", {"steps": 3}),
        ("training.json", {"time": 1.0}),
        ("failure.json", {"message": "from before"}),
        ("environment.json", {}),
    ],
)
def test_files_of_another_version_are_redone(done, name, content):
    run, reference = done
    before = contents(reference)
    reference.metrics_path.unlink()
    write_json(reference.path / name, content)
    place = placement(reference.path.parents[2])
    assert execute([run], place, lambda event: None) == {run.id: "done"}
    assert contents(reference) == before


def test_weights_of_another_model_are_trained_again(done):
    run, reference = done
    before = contents(reference)
    reference.metrics_path.unlink()
    tensors, _ = load_tensors(reference.model_path)
    name = sorted(tensors)[0]
    save_tensors(reference.model_path, {**tensors, name: tensors[name].flatten()[:1]}, {})
    events: list[Event] = []
    execute([run], placement(reference.path.parents[2]), events.append)
    assert any("other weights than the model has" in e.text for e in events if e.kind == "note")
    assert contents(reference) == before


def test_a_worker_that_died_idle_loses_no_run(tmp_path):
    from collections import deque

    from bench.execution import _Pool

    path = write_suite(tmp_path, methods=["single"], seeds=[0, 1])
    runs = load_suite(str(path)).runs()
    with _Pool(1, placement(tmp_path / "results"), lambda event: None) as pool:
        (seat,) = pool.seats
        assert seat.pipe.recv() is None
        seat.idle = True
        seat.process.kill()
        seat.process.join()
        outcomes = pool.drain(deque(runs))
    assert outcomes == {run.id: "done" for run in runs}


PLUGIN = """
from typing import ClassVar, Literal
from bench.method import Method
from baselines.single import Single

class Broken(Single):
    name: ClassVar[str] = "broken"
    where: Literal["build", "loss", "forward", "supports", "members", "classes", "exit"] = "build"

    def build(self, backbone, num_classes):
        if self.where == "build":
            raise ValueError("no way to build")
        if self.where == "exit":
            raise SystemExit("it has had enough")
        model = super().build(backbone, num_classes)
        if self.where == "forward":
            model.register_forward_pre_hook(refuse_evaluation)
        if self.where in ("members", "classes"):
            dim = 1 if self.where == "members" else 2
            model.register_forward_hook(
                lambda m, x, y: y if m.training else y.repeat_interleave(2, dim)
            )
        return model

    def loss(self, model, logits, target):
        if self.where == "loss":
            raise ZeroDivisionError("no way to\\n learn")
        return super().loss(model, logits, target)

    def supports(self, backbone):
        return "it has no wings" if self.where == "supports" else None

def refuse_evaluation(module, inputs):
    if not module.training and inputs[0].device.type != "meta":
        raise RuntimeError("no way to predict")
"""


def test_failures_are_kept_and_the_matrix_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_plugins", {})
    plugin = tmp_path / "broken.py"
    plugin.write_text(PLUGIN)
    registry.load_plugin(plugin)
    grid = {"where": ["build", "loss", "forward", "supports", "members", "classes", "exit"]}
    path = write_suite(tmp_path, methods=[{"name": "broken", "grid": grid}, "single"])
    runs = load_suite(str(path)).runs()
    outcomes = execute(runs, placement(tmp_path / "results", plugins=(plugin,)), lambda event: None)
    folder = SuiteFolder(tmp_path / "results", "small")
    states = {run.parameters.get("where", "single"): folder.run(run).state() for run in runs}
    wrong = "ValueError: the model gives {} at evaluation, not [B, M, K] = [2, 1, 8]"
    assert states == {
        "build": ("failed", "ValueError: no way to build"),
        "loss": ("failed", "ZeroDivisionError: no way to learn"),
        "forward": ("failed", "RuntimeError: no way to predict"),
        "supports": ("not applicable", "it has no wings"),
        "exit": ("failed", "SystemExit: it has had enough"),
        "members": ("failed", wrong.format("[2, 2, 8]")),
        "classes": ("failed", wrong.format("[2, 1, 16]")),
        "single": ("done", ""),
    }
    assert sorted(outcomes.values()) == ["done", *["failed"] * 6, "not applicable"]
    failed = folder.run(runs[1]).path / "failure.json"
    assert "ZeroDivisionError" in read_json(failed)["traceback"]


def test_a_missing_data_set_stops_everything_and_writes_nothing(tmp_path):
    from bench.errors import UserError

    path = write_suite(tmp_path, tasks=["image_folder:nothing"])
    for workers in (1, 2):
        place = placement(tmp_path / "results", data=tmp_path, workers=workers)
        runs = load_suite(str(path)).runs() * workers
        with pytest.raises(UserError, match="nothing"):
            execute(runs, place, lambda event: None)
    assert not (tmp_path / "results").exists()
