"""Files from a stranger run no code and mark up no page; a method runs when it is named."""

from __future__ import annotations

import ast
import io
import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import answer, do, only_folder, write_suite

import bench
from bench.backbones import create_backbone
from bench.cli import run as sigma_bench
from bench.data.corruption_cache import cached_corruption
from bench.errors import UserError
from bench.files import Damaged, read_json, read_records
from bench.paper.collect import collect_paper
from bench.paper.page import write_paper_page
from bench.suite_files import load_suite
from bench.weights import load_tensors

ROOT = Path(bench.__file__).parents[1]
PACKAGES = ("bench", "baselines", "sigma_nens")
FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "pd.read_pickle",
    "pandas.read_pickle",
    "joblib.load",
    "marshal.load",
    "marshal.loads",
    "shelve.open",
    "dill.load",
    "dill.loads",
    "cloudpickle.load",
    "cloudpickle.loads",
    "yaml.unsafe_load",
    "yaml.full_load",
    "runpy.run_path",
    "torch.hub.load",
    "os.system",
    "os.popen",
}
"""Calls that run what a file says."""
BOUND = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
    "yaml.load": (1, "_Loader"),
}
"""Calls that don't with one argument, which must be there."""
EXECUTED = {"bench/registry.py": "exec_module"}
"""Where a file is executed on purpose: the plug-in that a person names."""


def calls() -> Iterator[tuple[str, int, str, ast.Call]]:
    """(file, line, dotted name, call) of every call in the packages."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    name = ast.unparse(node.func)
                    yield path.relative_to(ROOT).as_posix(), node.lineno, name, node


def test_nothing_in_the_source_runs_what_a_file_says() -> None:
    found = list(calls())
    assert len(found) > 3000
    for path, line, name, call in found:
        place = f"{path}:{line}: {name}"
        assert name not in FORBIDDEN, place
        assert not any(word.value is True for word in call.keywords if _risky(word)), place
        if name in BOUND:
            key, value = BOUND[name]
            if isinstance(key, int):
                assert ast.unparse(call.args[key]) == value, place
            else:
                given = {word.arg: ast.unparse(word.value) for word in call.keywords}
                assert given.get(key) == str(value), place
        if name.endswith("exec_module"):
            assert path in EXECUTED, place
    names = {name for _, _, name, _ in found}
    assert names >= {"torch.load", "np.load", "yaml.load"}, "the walk does not see them"


def _risky(word: ast.keyword) -> bool:
    return word.arg in ("shell", "trust_remote_code", "allow_pickle")


class Bomb:
    """Runs code where it is loaded with pickle."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """What is there once the bomb went off: never."""
    mark = tmp_path / "mark"
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.is_dir(), "the bomb is no bomb"
    mark.rmdir()
    yield mark
    assert not mark.exists()


def bombs(mark: Path) -> list[bytes]:
    """Files of several kinds with a bomb in them."""
    zipped, array = io.BytesIO(), io.BytesIO()
    torch.save({"state_dict": Bomb(mark)}, zipped)
    np.save(array, np.array([Bomb(mark)], dtype=object), allow_pickle=True)
    return [pickle.dumps(Bomb(mark)), zipped.getvalue(), array.getvalue()]


def test_results_from_a_stranger_run_no_code(tmp_path: Path, mark: Path) -> None:
    """In the place of any file of a run; it is done again."""
    suite, results = write_suite(tmp_path), tmp_path / "results"
    assert do(suite, results)[0] == ["done"]
    folder = only_folder(suite, results)
    right = answer(folder, course=False)
    names = [path.relative_to(folder.path) for path in folder.path.rglob("*") if path.is_file()]
    for bomb in bombs(mark):
        for name in names:
            if not name.name.startswith("lock"):
                (folder.path / name).write_bytes(bomb)
        (folder.path / "checkpoint").mkdir(exist_ok=True)
        (folder.path / "checkpoint" / "network-0.safetensors").write_bytes(bomb)
        assert do(suite, results)[0] == ["done"]
        assert answer(folder, course=False) == right


@pytest.mark.parametrize("read", [read_json, read_records, load_tensors])
def test_every_reader_refuses_a_bomb(tmp_path: Path, mark: Path, read: Any) -> None:
    for number, bomb in enumerate(bombs(mark)):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(bomb)
        with pytest.raises(Damaged, match=path.name):
            read(path)


@pytest.mark.parametrize("name", ["w.pt", "w.pth", "w.safetensors"])
def test_pretrained_weights_run_no_code(tmp_path: Path, mark: Path, name: str) -> None:
    for bomb in bombs(mark):
        (tmp_path / name).write_bytes(bomb)
        with pytest.raises(UserError, match=name):
            create_backbone(f"he_resnet20@{name}", 10, (3, 32, 32), tmp_path)


def test_a_suite_runs_no_code(tmp_path: Path, mark: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(f"name: !!python/object/apply:os.mkdir ['{mark}']\n")
    with pytest.raises(UserError, match="not YAML"):
        load_suite(str(path))


def test_a_method_runs_when_it_is_named_only(
    tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not because it lies in this folder, beside the suite, or among the results."""
    text = f"import os\nos.mkdir({str(mark)!r})\n"
    results = tmp_path / "results"
    suite = write_suite(tmp_path)
    assert do(suite, results)[0] == ["done"]
    for place in (tmp_path, results, only_folder(suite, results).path):
        for name in ("my_method.py", "conftest.py", "sitecustomize.py", "single.py"):
            (place / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    asked = [str(suite), "--results", str(results)]
    for words in (["run", *asked, "--no-tables"], ["tables", *asked], ["list", "methods"]):
        assert sigma_bench(words) == 0
    bad = write_suite(tmp_path, methods=["my_method"])
    assert sigma_bench(["run", str(bad), "--results", str(results)]) == 2
    assert not mark.exists()
    assert sigma_bench(["list", "methods", "--plugin", "my_method.py"]) == 2
    assert mark.is_dir()
    mark.rmdir()


def test_arrays_that_are_kept_run_no_code(tmp_path: Path, mark: Path) -> None:
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    labels = torch.tensor([0, 1, 0])
    right = np.array(cached_corruption(tmp_path / "cache", images, labels, "contrast"))
    for bomb in bombs(mark):
        for path in (tmp_path / "cache").rglob("*.npy"):
            path.write_bytes(bomb)
        again = cached_corruption(tmp_path / "cache", images, labels, "contrast")
        assert np.array_equal(right, again)


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def test_the_papers_page_escapes_what_runs_say(tmp_path: Path) -> None:
    """The page of a suite has a test of its own."""
    first = next(iter(collect_paper(tmp_path).sources.values())).collection.entries
    for entry, end in ((first[0], "fail"), (first[1], "refuse")):
        entry.folder.start({})
        entry.folder.fail(EVIL, EVIL) if end == "fail" else entry.folder.refuse(EVIL)
    paper = collect_paper(tmp_path)
    text = write_paper_page(paper).read_text(encoding="utf-8")
    assert "alert(1)" in text, "it shows none of them"
    assert "<script>alert" not in text
    assert "<img" not in text


def test_templates_trust_drawings_alone() -> None:
    """All else is escaped, as the templates' environment does by default."""
    trusted = [
        line.strip()
        for path in sorted((ROOT / "bench" / "templates").glob("*.j2"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\|\s*safe|autoescape|Markup", line)
    ]
    assert trusted
    assert all("svg" in line for line in trusted), trusted
