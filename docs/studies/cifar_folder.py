"""Make the image folders of the suites' small scales from CIFAR, as torchvision stores it.

Training images become ``train/``; test images become ``val/`` (the first fifth of each class) and
``test/``; ``ood/`` gets the test images of the other CIFAR and, where torchvision has them in the
data folder, DTD's textures (short side to 32 pixels, centre crop) and MNIST (padded, grey as RGB).

Usage: python docs/studies/cifar_folder.py cifar10 data       # writes data/cifar10-lab
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torchvision import datasets

SETS = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}
OUTLIERS = 1000


def write(folder: Path, images: NDArray[np.uint8], rows: NDArray[np.int64]) -> None:
    """One PNG an image, named after its row in the original file."""
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        Image.fromarray(images[row]).save(folder / f"{row:05d}.png", compress_level=1)


def some(number: int) -> NDArray[np.int64]:
    """At most `OUTLIERS` rows of so many, always the same."""
    chosen = np.random.default_rng(0).permutation(number)[:OUTLIERS]
    return np.sort(chosen)


def small(images: list[Image.Image]) -> NDArray[np.uint8]:
    """Photographs as 32×32: short side, then centre."""
    return np.stack([np.asarray(ImageOps.fit(image, (32, 32))) for image in images])


def main() -> None:
    """Write the folder of one data set."""
    name, data = sys.argv[1], Path(sys.argv[2])
    out = data / f"{name}-lab"
    train, test = (SETS[name](data, train=part) for part in (True, False))
    for label, word in enumerate(train.classes):
        write(out / "train" / word, train.data, np.flatnonzero(np.array(train.targets) == label))
        rows = np.flatnonzero(np.array(test.targets) == label)
        first = len(rows) // 5
        write(out / "val" / word, test.data, rows[:first])
        write(out / "test" / word, test.data, rows[first:])
    known = {image.tobytes() for image in (*train.data, *test.data)}
    other = "cifar100" if name == "cifar10" else "cifar10"
    images = SETS[other](data, train=False).data
    new = np.array([image.tobytes() not in known for image in images])
    rows = np.flatnonzero(new)
    write(out / "ood" / other, images, rows[some(len(rows))])
    if (data / "dtd").is_dir():
        textures = datasets.DTD(data, split="test")
        chosen = [textures[row][0].convert("RGB") for row in some(len(textures))]
        write(out / "ood" / "dtd", small(chosen), np.arange(len(chosen)))
    if (data / "MNIST").is_dir():
        digits = np.pad(datasets.MNIST(data, train=False).data.numpy(), ((0, 0), (2, 2), (2, 2)))
        write(out / "ood" / "mnist", np.stack([digits] * 3, axis=3), some(len(digits)))


if __name__ == "__main__":
    main()
