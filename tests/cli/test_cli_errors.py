"""Every mistake a person can make: one line on stderr, exit code 2, nothing written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import registry
from bench.cli import run

SUITE = """
name: tiny
tasks: [digits]
backbones: [resnet8]
methods: [single, {name: deep_ensemble, label: ensemble, members: 2}]
seeds: [0, 1]
budget: {epochs: 1}
"""

PLUGIN = '''
from typing import ClassVar
from bench.method import Method

class Mine(Method):
    """Mine."""
    name: ClassVar[str] = "mine"
    def build(self, backbone, num_classes):
        return backbone
'''

FILES = {
    "tiny.yaml": SUITE,
    "empty.yaml": "",
    "list.yaml": "- 1\n- 2\n",
    "broken.yaml": "name: [unclosed\nmethods: }",
    "binary.yaml": b"\xff\xfe\x00name",
    "key.yaml": SUITE.replace("seeds:", "sedes:"),
    "nested.yaml": SUITE.replace("{epochs: 1}", "{epoch: 1}"),
    "nobudget.yaml": SUITE.replace("budget: {epochs: 1}", ""),
    "notask.yaml": SUITE.replace("[digits]", "[]"),
    "twice.yaml": SUITE.replace("[single,", "[single, single,"),
    "reference.yaml": SUITE + "reference: deep_ensmble\n",
    "name.yaml": SUITE.replace("name: tiny", "name: ../tiny"),
    "option.yaml": SUITE.replace("[digits]", "[{name: digits, corruption: [rotation]}]"),
    "mine.py": PLUGIN,
    "syntax.py": "def (:",
    "raises.py": "raise RuntimeError('first line\\nsecond line')",
    "nothing.py": "x = 1",
    "taken.py": PLUGIN.replace('"mine"', '"single"'),
    "nameless.py": PLUGIN.replace('name: ClassVar[str] = "mine"', "pass"),
    "double.yaml": SUITE + "seeds: [5]\n",
    "afile": "",
    "there.py": "",
}

MISTAKES: list[tuple[str, str]] = [
    # verbs, options, arguments
    ("rnu digits", r"unknown command 'rnu': did you mean run\?"),
    ("--verison", r"unknown option '--verison': did you mean --version\?"),
    ("run digits --methd single", r"unknown option '--methd': did you mean --method"),
    ("run digits --workers -1", "--workers"),
    ("run digits --workers two", "--workers.*integer"),
    ("run digits --seed x", "--seed.*integer"),
    ("run digits --seed", "--seed.*requires an argument"),
    ("run", "missing argument 'SUITE'.*run --help"),
    ("run digits cifar10", "extra argument.*cifar10"),
    ("status", "missing argument 'SUITE'"),
    ("list", "missing argument"),
    ("list method", r"unknown list 'method': did you mean methods\?"),
    ("list methods --plugin gone.py", "plugin gone.py: no such file"),
    # suites
    ("run digist", r"unknown suite 'digist': did you mean digits\?"),
    ("status digist", r"unknown suite 'digist': did you mean digits\?"),
    ("tables digist", r"unknown suite 'digist'"),
    ("report digist", r"unknown suite 'digist'"),
    ("run gone.yaml", "suite gone.yaml: can't be read"),
    ("run .yaml", "suite"),
    ("run empty.yaml", "must be a mapping"),
    ("run list.yaml", "must be a mapping"),
    ("run broken.yaml", "not YAML"),
    ("run binary.yaml", "can't be read"),
    ("run key.yaml", r"unknown key 'sedes': did you mean 'seeds'\?"),
    ("run nested.yaml", r"unknown key 'budget.epoch': did you mean 'epochs'\?"),
    ("status nobudget.yaml", "budget: Field required"),
    ("run notask.yaml", "tasks: "),
    ("run twice.yaml", "two methods are called 'single'.*label"),
    ("status reference.yaml", r"unknown reference 'deep_ensmble'.*known: ensemble, single"),
    ("run name.yaml", "name: "),
    ("run double.yaml", "not YAML: the key 'seeds' stands twice.*line 8"),
    ("run option.yaml", r"task digits: unknown key 'corruption': did you mean 'corruptions'\?"),
    # settings
    ("run tiny.yaml --scale small", "--scale small: suite tiny.yaml has no `scales`"),
    ("run cifar10 --scale tinny", r"unknown scale 'tinny': did you mean tiny\?"),
    ("run cifar10 --scale tiny --set scale=lab", "choose a scale of the suite with --scale NAME"),
    ("status tiny.yaml --set name=paper", "'paper' of results is taken"),
    ("publish digits --to afile", "--to afile: afile is a file, not a folder"),
    ("run tiny.yaml --set epochs", "--set epochs: must look like key=value"),
    ("run tiny.yaml --set =3", "--set =3: must look like key=value"),
    ("run tiny.yaml --set budget.epochs=[1", "not a YAML value"),
    (f"run tiny.yaml --set seeds={'[' * 3000}", "not a YAML value: nested too deep"),
    ("run tiny.yaml --set budget={epochs:1,epochs:2}", "budget"),
    ("run tiny.yaml --set name.x=1", "'name.x' is not a key of the suite"),
    ("run tiny.yaml --set budget.epochs=-1", r"budget.epochs: .*greater than 0.*got -1"),
    ("run tiny.yaml --set budget.epochs=.nan", "budget.epochs"),
    ("run tiny.yaml --set budgt.epochs=1", r"unknown key 'budgt': did you mean 'budget'\?"),
    ("run tiny.yaml --set recipe.optimizer=adam", "recipe.optimizer: .*'sgd' or 'adamw'"),
    ("run tiny.yaml --set methods=[sigle]", r"unknown method 'sigle': did you mean single"),
    ("run tiny.yaml --set tasks=[digist]", r"unknown task 'digist': did you mean digits"),
    ("run tiny.yaml --set tasks=[image_folder]", "task image_folder: which folder"),
    ("run tiny.yaml --set backbones=[resnet9]", r"unknown backbone 'resnet9': did you mean"),
    ("run tiny.yaml --set backbones=['timm:']", "unknown backbone 'timm:'"),
    ("run tiny.yaml --set seeds=[-1]", "seeds.0"),
    ("run tiny.yaml --set methods=[{name:single,depth:3}]", "methods"),
    ("run tiny.yaml --set members=0", "members"),
    # filters, folders, devices, plug-ins
    ("run tiny.yaml --method singel", r"--method: unknown method 'singel': did you mean single"),
    ("run tiny.yaml --method sigma_nens", "--method: unknown method 'sigma_nens'.*known: deep"),
    ("run tiny.yaml --seed 7", r"--seed 7: suite tiny has the seeds 0, 1.*--set 'seeds=\[7\]'"),
    ("run tiny.yaml --results afile", "--results afile: afile is a file, not a folder"),
    ("status tiny.yaml --results afile/deeper", "afile is a file, not a folder"),
    ("run tiny.yaml --data afile", "--data afile: afile is a file"),
    ("run tiny.yaml --device gpu --workers 1", "--device gpu: can't be used here"),
    ("run tiny.yaml --device gpu --dry-run", "--device gpu: can't be used here"),
    ("run tiny.yaml --plugin gone.py", "plugin gone.py: no such file"),
    ("run tiny.yaml --plugin syntax.py", "plugin syntax.py: SyntaxError"),
    ("status tiny.yaml --plugin raises.py", "RuntimeError: first line second line"),
    ("run tiny.yaml --plugin nothing.py", "defines no subclass"),
    ("run tiny.yaml --plugin taken.py", "a method called 'single' exists already"),
    ("run tiny.yaml --plugin nameless.py", "Mine has no `name`"),
    ("run tiny.yaml --set tasks=[image_folder:gone] --workers 1", "gone"),
    ("run tiny.yaml --set tasks=[image_folder:gone] --dry-run", "gone"),
    ("run tiny.yaml --set tasks=[digits,image_folder:gone] --workers 1", "gone"),
    ("run tiny.yaml --set backbones=['timm:resnet19'] --workers 1", "did you mean timm:resnet18"),
    ("run tiny.yaml --set backbones=['timm:resnet19'] --dry-run", "did you mean timm:resnet18"),
    # results that are not there
    ("tables tiny.yaml", "suite tiny: no run of it is in results/tiny.*run tiny.yaml"),
    ("report tiny.yaml --results other", "no run of it is in other/tiny.*--results"),
    # methods
    ("check-method singel", r"unknown method 'singel': did you mean single"),
    ("check-method gone.py", "plugin gone.py: no such file"),
    ("check-method ./gone", "plugin gone: no such file"),
    ("check-method single --set members", "--set members: must look like param=value"),
    ("check-method single --set members=[1", "not a YAML value"),
    ("check-method single --set members=2", "method single: members: "),
    ("check-method batch_ensemble --set member=2", r"unknown key 'member': did you mean 'members'"),
    ("check-method single --backbone resnet9", "unknown backbone 'resnet9'"),
    ("new-method 2fast", "must be a Python identifier, such as my_idea"),
    ("new-method class", "must be a Python identifier"),
    ("new-method my-idea", "must be a Python identifier"),
    ("new-method idée", "must be a Python identifier"),
    ("new-method single", "a method of that name exists already"),
    ("new-method method", "the class can't be called 'Method'"),
    ("new-method _", "the class can't be called ''"),
    ("new-method there", "there.py: is there already; choose another with --output"),
    ("new-method idea --output idea.txt", "--output idea.txt: must end in .py"),
    ("new-method idea --output gone/idea.py", "there is no folder gone"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_plugins", {})
    for name, content in FILES.items():
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words[:60] for words, _ in MISTAKES])
def test_a_mistake_is_one_line(
    words: str, message: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run(words.split())
    out, err = capfd.readouterr()
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert re.search(message, err), err
    written = {path.name for path in folder.rglob("*")} - {"__pycache__"}
    assert {name for name in written if not name.endswith(".pyc")} == set(FILES)
    assert "Traceback" not in out
