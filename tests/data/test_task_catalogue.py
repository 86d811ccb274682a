import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.data.catalogue import check_task, load_task, task_names
from bench.data.task import Split, Task
from bench.errors import UserError
from bench.suite import TaskSpec


def spec(name: str, **options: object) -> TaskSpec:
    return TaskSpec(name=name, options=options)


def test_nothing_heavy_is_imported():
    code = (
        "import sys; from bench.suite import TaskSpec; from bench.data import catalogue as c;"
        "c.task_names(); c.check_task(TaskSpec(name='cifar10'));"
        "print([m for m in ('torch', 'numpy', 'sklearn', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_have_one_line_each():
    names = task_names()
    images = ["digits", "image_folder:PATH", "cifar10", "cifar100", "imagenet"]
    assert list(names) == [*images, "text_folder:PATH", "sst2"]
    assert all(text and "\n" not in text for text in names.values())


def test_defaults_are_filled_in():
    checked = check_task(spec("cifar10"))
    assert checked.options == {
        "validation": 5000,
        "shift": "auto",
        "corruptions": None,
        "severities": [1, 2, 3, 4, 5],
        "near": None,
        "far": None,
    }
    assert check_task(checked) == checked
    assert checked == check_task(spec("cifar10", validation=5000, severities=[1, 2, 3, 4, 5]))


@pytest.mark.parametrize("name", ["digits", "cifar10", "cifar100", "image_folder:a/b:c d"])
def test_checking_twice_changes_nothing(name):
    checked = check_task(spec(name))
    assert checked.name == name
    assert check_task(checked) == checked
    assert TaskSpec.model_validate_json(checked.model_dump_json()) == checked


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("digit", {}, ["unknown task", "did you mean digits"]),
        ("cifar", {}, ["cifar10", "cifar100"]),
        ("image_folder", {}, ["which folder", "image_folder:PATH"]),
        ("image_folder: ", {}, ["which folder"]),
        ("digits:data", {}, ["takes no path"]),
        ("digits", {"severity": [1]}, ["unknown key 'severity'", "did you mean 'severities'"]),
        ("digits", {"severities": [0]}, ["severities.0", "got 0"]),
        ("digits", {"severities": [6]}, ["got 6"]),
        ("digits", {"severities": [True]}, ["got True"]),
        ("digits", {"severities": []}, ["severities"]),
        ("digits", {"severities": [1, 1]}, ["stands twice"]),
        ("digits", {"corruptions": ["fog"]}, ["corruptions.0", "rotation", "got 'fog'"]),
        ("cifar10", {"validation": 0}, ["validation", "greater than 0"]),
        ("cifar100", {"shift": "made"}, ["'official'", "got 'made'"]),
        ("image_folder:x", {"channels": 2}, ["channels"]),
        ("image_folder:x", {"validation_share": 1.0}, ["validation_share"]),
        ("image_folder:x", {"size": -3}, ["size"]),
        ("image_folder:x", {"size": float("nan")}, ["size"]),
    ],
)
def test_mistakes_get_one_line(name, options, words):
    with pytest.raises(UserError) as caught:
        check_task(spec(name, **options))
    line = str(caught.value)
    assert "\n" not in line
    for word in words:
        assert word in line


def test_a_process_loads_a_task_once(tmp_path):
    first = load_task(spec("digits"), tmp_path)
    assert load_task(spec("digits", severities=[1, 2, 3, 4, 5]), tmp_path) is first
    assert load_task(spec("digits", severities=[1]), tmp_path) is not first


def test_loading_checks_the_options():
    with pytest.raises(UserError, match="unknown key"):
        load_task(spec("digits", sevrities=[1]), Path())


def split(labels: list[int], shape: tuple[int, ...] = (1, 2, 2)) -> Split:
    inputs = torch.zeros(len(labels), *shape, dtype=torch.uint8)
    return Split(inputs, torch.tensor(labels, dtype=torch.int64))


def made(**parts: Split) -> Task:
    defaults = {"train": split([0, 1]), "validation": split([0]), "test": split([1])}
    return Task(
        name="made",
        class_names=("a", "b"),
        **{**defaults, **parts},
        mean=(0.5,),
        std=(0.25,),
        shifts=(),
        shift_origin="generated",
        outliers=(),
        load_shift=lambda shift: split([0]),
        load_outlier=lambda outlier: split([-1]),
    )


def test_normalise():
    inputs = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    assert made().normalise(inputs).flatten().tolist() == [-2.0, 2.0]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"test": split([])}, "test is empty"),
        ({"validation": split([0], (1, 3, 2))}, r"validation has inputs of shape \[1, 3, 2\]"),
        ({"train": split([0, 2])}, "train has labels 0 to 2"),
        ({"test": split([-1, 1])}, "test has labels -1 to 1"),
    ],
)
def test_a_task_refuses_splits_that_do_not_fit(parts, message):
    with pytest.raises(ValueError, match=message):
        made(**parts)


def test_a_split_refuses_other_types():
    with pytest.raises(ValueError, match="uint8"):
        Split(torch.zeros(2, 1, 2, 2), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="int64"):
        Split(torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.zeros(2))
    with pytest.raises(ValueError, match="int64"):
        split([0, 1]).__class__(split([0, 1]).inputs, torch.zeros(3, dtype=torch.int64))


def test_data_that_cannot_be_read_are_a_persons_mistake(tmp_path, monkeypatch):
    def closed(*_):
        raise PermissionError(13, "Permission denied", "secret/data_batch_1")

    monkeypatch.setattr("bench.data.cifar.load", closed)
    with pytest.raises(UserError, match=r"task cifar10: secret/data_batch_1: can't be read: Perm"):
        load_task(TaskSpec(name="cifar10"), tmp_path)
