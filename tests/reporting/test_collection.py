"""Reading a suite's runs: states, reasons, damage, grouping."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_suite import COST, TASK, finish, make_suite

from bench.files import write_json
from bench.recipe import Budget
from bench.store import SuiteFolder
from bench.suite import Suite, TaskSpec
from bench.tables import collect
from bench.tables.collection import budget_words, header, task_labels
from bench.tables.layout import file_names


def test_every_run_of_the_matrix_is_there(folder: SuiteFolder, suite: Suite) -> None:
    collection = collect(suite, folder)

    assert [entry.spec for entry in collection.entries] == suite.runs()
    assert collection.done == 9
    assert collection.counts == {"done": 9}
    for entry in collection.entries:
        assert entry.metrics == entry.folder.metrics()
    [group] = collection.groups
    assert (group.task, group.backbone) == ("digits", "resnet8")
    assert [m.label for m in group.methods] == ["single", "deep_ensemble", "σN-Ens (τ=0.2)"]
    assert [m.members for m in group.methods] == [1, 3, 3]
    assert [[e.spec.seed for e in m.entries] for m in group.methods] == [[0, 1, 2]] * 3


def test_states_carry_their_reason(tmp_path: Path, suite: Suite) -> None:
    folder = SuiteFolder(tmp_path, suite.name)
    done, failed, refused, started, _ = specs = suite.runs()[:5]
    finish(folder, done)
    folder.run(failed).fail("RuntimeError: out of memory", "Traceback …")
    folder.run(refused).refuse("no convolution to convert")
    folder.run(started).start({})

    entries = collect(suite, folder).entries

    found = {entry.spec.id: (entry.state, entry.reason) for entry in entries}
    assert found[done.id] == ("done", "")
    assert found[failed.id] == ("failed", "RuntimeError: out of memory")
    assert found[refused.id] == ("not applicable", "no convolution to convert")
    assert found[started.id][0] == "interrupted"
    assert found[specs[4].id] == ("not run", "")


def test_a_run_that_somebody_works_on_is_running(tmp_path: Path, suite: Suite) -> None:
    folder = SuiteFolder(tmp_path, suite.name)
    run = folder.run(suite.runs()[0])
    run.start({})
    assert collect(suite, folder).entries[0].state == "interrupted"
    holder = (
        "import json, sys; from pathlib import Path\n"
        "from bench.store import RunFolder; from bench.suite import RunSpec\n"
        "spec = RunSpec.model_validate_json(sys.argv[2])\n"
        "with RunFolder(Path(sys.argv[1]), spec).lock():\n"
        "  print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(run.path), run.spec.model_dump_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert collect(suite, folder).entries[0].state == "running"
        process.communicate(b"")
    assert collect(suite, folder).entries[0].state == "interrupted"


@pytest.mark.parametrize("content", [b"{", b"", b'{"run": "another"}', b"\xff\xfe"])
def test_damaged_metrics_are_a_gap_that_names_the_file(
    folder: SuiteFolder, suite: Suite, content: bytes
) -> None:
    run = folder.run(suite.runs()[3])
    run.metrics_path.write_bytes(content)

    entry = collect(suite, folder).entries[3]

    assert entry.metrics is None
    assert entry.state == "interrupted"
    assert str(run.metrics_path) in entry.reason


def test_an_edited_number_is_noticed(folder: SuiteFolder, suite: Suite) -> None:
    path = folder.run(suite.runs()[0]).metrics_path
    content = json.loads(path.read_text())
    content["test"]["accuracy"] = 1.0
    path.write_text(json.dumps(content))

    assert collect(suite, folder).entries[0].metrics is None


def test_damaged_or_missing_records_are_known(folder: SuiteFolder, suite: Suite) -> None:
    specs = suite.runs()
    cut, gone = (folder.run(spec).records_path("test") for spec in specs[:2])
    cut.write_bytes(cut.read_bytes()[:-20])
    gone.unlink()

    collection = collect(suite, folder)

    assert set(collection.damages) == {specs[0].id, specs[1].id}
    assert "digest" in collection.damages[specs[0].id]
    assert "missing" in collection.damages[specs[1].id]
    [group] = collection.groups
    sound = {e.spec.id for method in group.methods for e in collection.sound(method)}
    assert sound == {spec.id for spec in specs[2:]}


def test_groups_are_task_times_backbone(tmp_path: Path) -> None:
    suite = make_suite(backbones=["resnet8", "resnet20"], seeds=[0])
    groups = collect(suite, SuiteFolder(tmp_path, "tiny")).groups
    assert [group.title for group in groups] == ["digits, resnet8", "digits, resnet20"]
    assert all(len(group.methods) == 3 for group in groups)


def test_tasks_of_one_name_are_told_apart_by_what_differs() -> None:
    tasks = [
        TaskSpec(name="folder:a", options={"size": 8, "channels": 3}),
        TaskSpec(name="folder:a", options={"size": 16, "channels": 3}),
        TaskSpec(name="folder:b", options={"size": 16}),
    ]
    assert list(task_labels(tasks).values()) == [
        "folder:a (size=8)",
        "folder:a (size=16)",
        "folder:b",
    ]


def test_file_names_are_safe_short_and_distinct(tmp_path: Path) -> None:
    suite = make_suite(backbones=["resnet8", "resnet20"], seeds=[0])
    groups = collect(suite, SuiteFolder(tmp_path, "tiny")).groups
    odd = [
        type(groups[0])(task, backbone, groups[0].methods)
        for task, backbone in (("a b", "x"), ("a/b", "x"), ("A_b", "x"), ("../" * 99, "é" * 300))
    ]
    names = file_names(odd)
    assert len({name.lower() for name in names}) == 4
    assert all(len(name) <= 90 and "/" not in name and not name.startswith(".") for name in names)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(match="epochs", epochs=1), "every network sees the training set for 1 epoch"),
        (
            Budget(match="train_flops", networks=4, epochs=2.5),
            "as many train FLOPs as 4 single networks trained for 2.5 epochs",
        ),
        (
            Budget(match="device_seconds", networks=1, epochs=30),
            "as many device seconds as 1 single network trained for 30 epochs",
        ),
    ],
)
def test_budget_in_words(budget: Budget, words: str) -> None:
    assert budget_words(budget) == words


def test_header_names_suite_runs_budget_and_command(folder: SuiteFolder, suite: Suite) -> None:
    folder.run(suite.runs()[0]).metrics_path.unlink()
    line = header(collect(suite, folder, asked="my/tiny.yaml --results out"))
    assert "\n" not in line
    for part in ("tiny", "8 of 9 runs", "4 single networks", "`sigma-bench tables my/tiny.yaml"):
        assert part in line


def test_reference_is_the_suites_or_the_first_with_members(folder: SuiteFolder) -> None:
    named = make_suite(reference="single")
    assert collect(named, folder).reference == "single"
    assert collect(make_suite(reference=None), folder).reference == "deep_ensemble"
    alone = make_suite(reference=None, methods=["single"])
    assert collect(alone, folder).reference is None


def test_a_thousand_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    suite = make_suite(seeds=list(range(334)))
    folder = SuiteFolder(tmp_path, suite.name)
    score = {"accuracy": 0.5, "nll": 1.0, "brier": 0.5, "ece": 0.1}
    metrics = {"files": {}, "task": TASK, "test": {"samples": 80, **score}, "cost": COST}
    specs = suite.runs()
    for spec in specs:
        write_json(folder.run(spec).metrics_path, {"run": spec.id, **metrics})

    collection = collect(suite, folder)

    assert collection.done == len(specs) == 1002
    [group] = collection.groups
    assert [len(method.done) for method in group.methods] == [334] * 3


def test_reading_tables_needs_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys, bench.tables, bench.figures, bench.report\n"
        "print(sorted({'torch', 'matplotlib', 'torchvision', 'lightning'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
