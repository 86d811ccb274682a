"""``list``, ``check-method``, ``new-method``, help and what the quick verbs import."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import registry
from bench.backbones import backbone_names
from bench.cli import run
from bench.cli.checking import render
from bench.conformance import CheckResult, reload
from bench.data.catalogue import task_names
from bench.registry import method_names
from bench.suite_files import shipped_suites

VERBS = ("run", "status", "tables", "report", "list", "check-method", "new-method")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(registry, "_plugins", {})
    return tmp_path


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    out, err = capfd.readouterr()
    assert f"Example: sigma-bench {verb} " in out
    assert err == ""


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_top_help_teaches_the_first_commands(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 0
    out = capfd.readouterr().out
    for verb in VERBS:
        assert verb in out
    assert "sigma-bench run digits" in out


def test_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capfd.readouterr().out == f"sigma-bench {importlib.metadata.version('sigma-bench')}\n"


@pytest.mark.parametrize(
    ("things", "names"),
    [
        ("methods", method_names()),
        ("suites", list(shipped_suites())),
        ("tasks", list(task_names())),
        ("backbones", list(backbone_names())),
    ],
)
def test_lists_have_a_line_for_each_name(
    things: str, names: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["list", things]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert all(len(line.split()) > 2 for line in lines)


def test_hyper_parameters_are_listed_with_defaults_and_bounds(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run(["list", "methods", "--verbose"]) == 0
    out = capfd.readouterr().out
    block = out[out.index("batch_ensemble") : out.index("deep_ensemble")]
    lines = [line.strip() for line in block.splitlines()[1:]]
    assert lines[0] == "members = 4 (int, > 0): M"
    assert any(line.startswith("batch = split (repeat | split): ") for line in lines)
    assert any(line.startswith("std = 0.5 (float, ≥ 0): ") for line in lines)


def test_a_method_that_cannot_be_loaded_is_listed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    point = importlib.metadata.EntryPoint("lost", "no_such_package.lost:Lost", registry.GROUP)
    monkeypatch.setattr(registry, "_installed", lambda: {"lost": point})
    assert run(["list", "methods", "-v"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("lost  (method 'lost' (no_such_package.lost:Lost) can't be loaded: ")


def test_a_new_method_passes_its_checks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reload, "ask", reload.answer)
    assert run(["new-method", "my_idea"]) == 0
    assert "my_idea.py: written" in capfd.readouterr().out
    assert run(["list", "methods", "--plugin", "my_idea.py"]) == 0
    assert "my_idea          M linear heads on one shared backbone." in capfd.readouterr().out
    assert run(["check-method", "my_idea.py", "--set", "members=2"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "my_idea: all 15 checks passed" in out
    assert "members=2, head_learning_rate=1.0" in out


@pytest.mark.parametrize(
    ("name", "class_name"),
    [("my_idea", "MyIdea"), ("x", "X"), ("_a__b", "AB"), ("kFold2", "KFold2")],
)
def test_the_template_is_a_module_under_80_lines(name: str, class_name: str) -> None:
    text = render(name, f"{name}.py")
    classes = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    assert classes == [class_name, f"{class_name}Network"]
    assert len(text.splitlines()) < 80
    assert "$" not in text


def test_the_template_satisfies_the_linter(folder: Path) -> None:
    pytest.importorskip("ruff")
    path = folder / "my_idea.py"
    path.write_text(render("my_idea", path.name), encoding="utf-8")
    rules = ["--isolated", "--line-length=100", "--target-version=py311"]
    ruff = [sys.executable, "-m", "ruff"]
    checks = ["--select=E,F,W,I,UP,B,SIM,C4,RUF,D", "--config=lint.pydocstyle.convention='google'"]
    known = ["--config=lint.isort.known-first-party=['bench']", "--ignore=D107,RUF002,RUF003"]
    for words in (["check", *rules, *checks, *known], ["format", "--check", *rules]):
        done = subprocess.run([*ruff, *words, str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_failed_check_gives_exit_code_1(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "bench.conformance.check_method",
        lambda cls, parameters, backbone: [
            CheckResult("build", True, f"{cls.name} {parameters} {backbone}"),
            CheckResult("loss", False, "loss is [nan]"),
            CheckResult("cost", None, "not tried: needs 'loss'"),
        ],
    )
    words = ["check-method", "single", "--set", "members=1", "--backbone", "resnet20"]
    assert run(words) == 1
    out, err = capfd.readouterr()
    assert err == ""
    assert [line.split() for line in out.splitlines()] == [
        ["single"],
        ["ok", "build", "single", "{'members':", "1}", "resnet20"],
        ["failed", "loss", "loss", "is", "[nan]"],
        ["-", "cost", "not", "tried:", "needs", "'loss'"],
        ["single:", "1", "of", "3", "checks", "failed,", "1", "not", "tried"],
    ]


HEAVY = ("torch", "pandas", "matplotlib", "scipy", "sklearn", "pyarrow", "timm")


def test_quick_verbs_import_nothing_heavy(folder: Path) -> None:
    script = (
        "import json, sys\n"
        "from bench.cli import run\n"
        "found = {}\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    code = run(words)\n"
        "    loaded = [name for name in json.loads(sys.argv[2]) if name in sys.modules]\n"
        "    found[' '.join(words)] = [code, loaded]\n"
        "print('\\n' + json.dumps(found), file=sys.stderr)\n"
    )
    words = [
        ["--help"],
        ["run", "--help"],
        ["--version"],
        *(["list", things] for things in ("suites", "tasks", "backbones")),
        ["list", "methods", "--verbose"],
        ["status", "digits"],
        ["tables", "digits"],
        ["report", "digits"],
    ]
    command = [sys.executable, "-c", script, json.dumps(words), json.dumps(HEAVY)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stderr.splitlines()[-1])
    assert [code for code, _ in found.values()] == [0] * 8 + [2, 2]
    assert {verb: loaded for verb, (_, loaded) in found.items() if "torch" in loaded} == {}
    quick = {verb: loaded for verb, (code, loaded) in found.items() if code == 0}
    assert all(loaded == [] for loaded in quick.values()), quick


def test_a_closed_pipe_is_no_traceback(folder: Path) -> None:
    command = f"{sys.executable} -m bench list methods --verbose | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
