"""The script that makes the small scales' image folders from CIFAR."""

import runpy
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from torchvision import datasets

from bench.data.catalogue import load_task
from bench.suite import TaskSpec

SCRIPT = Path(__file__).parents[2] / "docs" / "studies" / "cifar_folder.py"
RNG = np.random.default_rng(0)
IMAGES = {part: RNG.integers(0, 256, (20, 32, 32, 3), np.uint8) for part in ("train", "test")}
OTHER = RNG.integers(0, 256, (8, 32, 32, 3), np.uint8)


class Cifar10:
    """Stands for torchvision's class: what the script uses of it."""

    classes = ("left", "right")

    def __init__(self, root, train):
        self.data = IMAGES["train" if train else "test"]
        self.targets = [row % 2 for row in range(20)]


class Cifar100(Cifar10):
    def __init__(self, root, train):
        self.data = np.concatenate([OTHER, IMAGES["train"][:1]])


def test_the_folder_is_a_task(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "CIFAR10", Cifar10)
    monkeypatch.setattr(datasets, "CIFAR100", Cifar100)
    monkeypatch.setattr(sys, "argv", ["cifar_folder.py", "cifar10", str(tmp_path)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    spec = TaskSpec(name="image_folder:cifar10-lab", options={"near": ["cifar100"]})
    task = load_task(spec, tmp_path)
    assert task.class_names == ("left", "right")
    assert [len(part) for part in (task.train, task.validation, task.test)] == [20, 4, 16]
    kept = {image.numpy().tobytes() for image in task.train.inputs.permute(0, 2, 3, 1)}
    assert kept == {image.tobytes() for image in IMAGES["train"]}
    # Labels stay with their images.
    for image, label in zip(task.test.inputs.permute(0, 2, 3, 1), task.test.labels, strict=True):
        row = next(i for i, one in enumerate(IMAGES["test"]) if (one == image.numpy()).all())
        assert row % 2 == label
    # An outlier that is one of the task's own images is none.
    (outlier,) = task.outliers
    assert len(task.load_outlier(outlier)) == len(OTHER)
    names = sorted(path.name for path in (tmp_path / "cifar10-lab/ood/cifar100").iterdir())
    assert names == [f"{row:05d}.png" for row in range(len(OTHER))]
    assert np.array_equal(
        np.asarray(Image.open(tmp_path / "cifar10-lab/ood/cifar100/00003.png")), OTHER[3]
    )
