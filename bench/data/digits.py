"""Handwritten digits, 8×8: real data that come with scikit-learn, so that nothing is downloaded.

The images are the test part of the UCI set "Optical Recognition of Handwritten Digits" (Alpaydin
and Kaynak, 1998), 1,797 of them. Classes 0 to 7 are the task; 8 and 9 are held out as near
outliers. Far outliers are patches of the two photographs that scikit-learn ships.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor

from bench.data import pixels
from bench.data.catalogue import DigitsOptions
from bench.data.corruptions import SEED, Kind, spoil
from bench.data.parts import kept, outlier_split, pixel_statistics, select, stratified_part
from bench.data.task import Outlier, Shift, Split, Task

KNOWN = 8
"""Classes in distribution: 0 to 7."""

TEST_SHARE, VALIDATION_SHARE = 0.70, 0.20
"""What is left, a tenth, is for training: with more of these easy images every method is right
about nearly all, and there is nothing to compare."""

CORRUPTIONS: dict[str, tuple[Kind, tuple[Any, ...]]] = {
    "gaussian_noise": (pixels.gaussian_noise, (0.10, 0.20, 0.30, 0.40, 0.50)),
    "impulse_noise": (pixels.impulse_noise, (0.05, 0.10, 0.17, 0.25, 0.35)),
    "gaussian_blur": (pixels.gaussian_blur, (0.5, 0.7, 0.9, 1.1, 1.4)),
    "contrast": (pixels.contrast, (0.6, 0.4, 0.3, 0.22, 0.15)),
    "translation": (pixels.translation, (0.3, 0.6, 0.9, 1.2, 1.5)),
    "rotation": (pixels.rotation, (8, 15, 22, 29, 36)),
    "occlusion": (pixels.occlusion, ((2, 2), (2, 3), (3, 3), (3, 4), (4, 4))),
}
"""Name -> function and its strength at severity 1 to 5; lengths are in pixels of the 8×8 image."""

PATCH, REDUCTION, LEAST_DEVIATION = 8, 4, 12.0
"""Side of a patch; the factor by which the photographs are shrunk; patches whose grey values (0 to
255) have a smaller standard deviation are left out: sky has nothing to recognise."""


def load(name: str, options: DigitsOptions, data: Path) -> Task:
    """The task `digits`.

    Args:
        name: as suites call it.
        options: which shifts.
        data: not used: the images are a part of scikit-learn.
    """
    bunch = load_digits()
    images = torch.from_numpy(np.rint(bunch.images * (255 / 16)).astype(np.uint8))[:, None]
    labels = torch.from_numpy(bunch.target).long()
    known = labels < KNOWN
    train, validation, test = _divide(images[known], labels[known], name)
    mean, std = pixel_statistics(train.inputs, f"task {name}")
    outliers = {
        "held_out_digits": Outlier("held_out_digits", "near"),
        "photo_patches": Outlier("photo_patches", "far"),
    }

    def load_shift(shift: Shift) -> Split:
        kind, strengths = CORRUPTIONS[shift.corruption]
        key = f"{SEED}/{shift.corruption}/{shift.severity}"
        return Split(spoil(test.inputs, kind, strengths[shift.severity - 1], key), test.labels)

    def load_outlier(outlier: Outlier) -> Split:
        if outlier == outliers["held_out_digits"]:
            return outlier_split(images[~known])
        if outlier == outliers["photo_patches"]:
            return outlier_split(photo_patches())
        raise KeyError(outlier.name)

    return Task(
        name=name,
        class_names=tuple(str(digit) for digit in range(KNOWN)),
        train=train,
        validation=validation,
        test=test,
        mean=mean,
        std=std,
        shifts=tuple(Shift(c, s) for c in options.corruptions for s in options.severities),
        shift_origin="generated",
        outliers=tuple(outliers.values()),
        load_shift=kept(load_shift, test.inputs.nbytes),
        load_outlier=load_outlier,
    )


def photo_patches() -> Tensor:
    """Grey patches of scikit-learn's two photographs, uint8 ``[N, 1, 8, 8]``.

    Each photograph is averaged over blocks of 4×4 pixels and cut into a grid; patches without
    structure are left out; the others are stretched to 0 to 255, as digits fill that range too.
    """
    patches = np.concatenate([_grid(photo) for photo in load_sample_images().images])
    patches = patches[patches.std(axis=(1, 2)) >= LEAST_DEVIATION].astype(np.float64)
    patches -= patches.min(axis=(1, 2), keepdims=True)
    patches *= 255 / patches.max(axis=(1, 2), keepdims=True)
    return torch.from_numpy(np.rint(patches).astype(np.uint8))[:, None]


def _grid(photo: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The patches of a photograph ``[H, W, 3]``, row by row: ``[N, 8, 8]``."""
    grey = np.asarray(Image.fromarray(photo).convert("L").reduce(REDUCTION))
    rows, columns = grey.shape[0] // PATCH, grey.shape[1] // PATCH
    tiles = grey[: rows * PATCH, : columns * PATCH].reshape(rows, PATCH, columns, PATCH)
    return tiles.swapaxes(1, 2).reshape(-1, PATCH, PATCH)


def _divide(images: Tensor, labels: Tensor, name: str) -> tuple[Split, Split, Split]:
    """Train, validation and test, about 60, 15 and 25 %."""
    place = f"task {name}"
    rest, test = stratified_part(labels, round(TEST_SHARE * len(labels)), place)
    train, validation = stratified_part(labels[rest], round(VALIDATION_SHARE * len(labels)), place)
    parts = (rest[train], rest[validation], test)
    first, second, third = (select(images, labels, part) for part in parts)
    return first, second, third
