"""Where the words go: terminals without σ, pipes that close, full disks, odd widths and paths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
name: tiny
tasks: [digits]
backbones: [resnet8]
methods: [{name: single, label: "größer 😀"}]
seeds: [0]
budget: {epochs: 1}
"""

PLUGIN = '''
from typing import ClassVar
from bench.method import Method

print("a greeting")

class Mine(Method):
    """Mine: σ ↑."""
    name: ClassVar[str] = "mine"
    def build(self, backbone, num_classes):
        return backbone

Alias = Mine
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    return tmp_path


def command(folder: Path, words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_the_letters_gets_question_marks(folder: Path, encoding: str) -> None:
    done = command(
        folder, ["list", "methods", "--plugin", "mine.py", "-v"], PYTHONIOENCODING=encoding
    )
    assert done.returncode == 0, done.stderr
    assert "Mine: ? ?." in done.stdout
    done = command(folder, ["status", "tiny.yaml"], PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "gr??er ?" in done.stdout


def test_json_survives_any_encoding_and_what_a_plugin_prints(folder: Path) -> None:
    words = ["status", "tiny.yaml", "--json", "--plugin", "mine.py"]
    done = command(folder, words, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["label"] == "größer 😀"
    assert done.stderr == "a greeting\n"


@pytest.mark.parametrize("columns", ["0", "abc", "-3", ""])
def test_a_width_that_is_none_is_not_taken(folder: Path, columns: str) -> None:
    usual = command(folder, ["status", "tiny.yaml"])
    odd = command(folder, ["status", "tiny.yaml"], COLUMNS=columns)
    assert odd.stdout == usual.stdout
    assert "not run" in odd.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["list", "methods"], ["status", "tiny.yaml", "--json"]])
def test_output_that_takes_nothing_is_one_line(folder: Path, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bench", *words],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode != 0
    assert done.stderr == "error: input or output: No space left on device\n"


def test_a_closed_pipe_ends_in_silence(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", "list", "methods", "-v"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) in (0, 1)
    process.stderr.close()
