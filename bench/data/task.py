"""What a task is: inputs and labels for training, and every split that a trained model is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol

import torch
from torch import Tensor
from typing_extensions import TypeVar

UNKNOWN = -1
"""The label of a sample that belongs to none of the task's classes."""


class Inputs(Protocol):
    """What a split's samples are read from: a tensor, or what reads them when they are asked for.

    The second kind is for images that no memory holds; see `bench.data.lazy`.
    """

    @property
    def shape(self) -> Sequence[int]:
        """``[N, C, H, W]`` or ``[N, L]``."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """uint8 for images, int64 for texts."""
        ...

    def __len__(self) -> int:
        """N."""
        ...

    def __getitem__(self, index: Tensor | slice, /) -> Tensor:
        """The samples at these indices (int64 ``[n]``), or in this range, as models see them."""
        ...


Held = TypeVar("Held", bound=Inputs, default=Tensor, covariant=True)


@dataclass(frozen=True)
class Split(Generic[Held]):
    """Samples in a fixed order.

    Attributes:
        inputs: images, uint8 ``[N, C, H, W]``; or texts, token ids int64 ``[N, L]``, padded at the
            end. A tensor, or any other `Inputs`.
        labels: int64 ``[N]``, in ``[0, K)``; `UNKNOWN` for out-of-distribution samples.
    """

    inputs: Held
    labels: Tensor

    def __post_init__(self) -> None:
        shape = tuple(self.inputs.shape)
        if (self.inputs.dtype, len(shape)) not in ((torch.uint8, 4), (torch.int64, 2)):
            raise ValueError(
                "inputs must be uint8 [N, C, H, W] or int64 [N, L], not "
                f"{self.inputs.dtype} {list(shape)}"
            )
        if self.labels.dtype != torch.int64 or tuple(self.labels.shape) != shape[:1]:
            raise ValueError(
                f"labels must be int64 [{len(self.inputs)}], not {self.labels.dtype} "
                f"{list(self.labels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Shift:
    """The test split under one corruption.

    Attributes:
        corruption: such as ``gaussian_noise``.
        severity: 1 (mild) to 5.
    """

    corruption: str
    severity: int


@dataclass(frozen=True)
class Outlier:
    """A data set of none of the task's classes.

    Attributes:
        name: such as ``svhn``.
        distance: ``near`` (looks like the task's own data) or ``far``.
    """

    name: str
    distance: Literal["near", "far"]


@dataclass(frozen=True)
class Task:
    """A classification task with everything that is measured on it.

    Attributes:
        name: as suites call it.
        class_names: K names in label order.
        train, validation, test: the splits. Hyper-parameters and temperatures see `validation`
            only.
        mean, std: what pixels in ``[0, 1]`` are normalised with, one value a channel: those of the
            training images, or those that a pretrained backbone wants; empty for texts.
        shifts: the corruptions of `test` that can be loaded.
        shift_origin: ``official`` (published files) or ``generated`` (made here, seeded); tables
            say so.
        outliers: the out-of-distribution sets that can be loaded.
        load_shift: gives the same samples as `test`, in the same order, corrupted.
        load_outlier: gives a split whose labels are all `UNKNOWN`.
        pad: the token id that fills texts up; unused for images.
        notes: what a reader of the results must know, one sentence each (a missing set, say).

    Raises:
        ValueError: a split is empty, has other shapes than `train`, or labels outside ``[0, K)``.
    """

    name: str
    class_names: tuple[str, ...]
    train: Split[Inputs]
    validation: Split[Inputs]
    test: Split[Inputs]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    shifts: tuple[Shift, ...]
    shift_origin: Literal["official", "generated"]
    outliers: tuple[Outlier, ...]
    load_shift: Callable[[Shift], Split[Inputs]]
    load_outlier: Callable[[Outlier], Split[Inputs]]
    pad: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            split: Split[Inputs] = getattr(self, name)
            if not len(split):
                raise ValueError(f"{name} is empty")
            if tuple(split.inputs.shape[1:]) != self.input_shape:
                raise ValueError(
                    f"{name} has inputs of shape {list(split.inputs.shape[1:])}, "
                    f"train of {list(self.input_shape)}"
                )
            least, most = int(split.labels.min()), int(split.labels.max())
            if least < 0 or most >= self.num_classes:
                raise ValueError(
                    f"{name} has labels {least} to {most}, not 0 to {self.num_classes - 1}"
                )

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one image: channels, height, width; of one text: its greatest length in tokens."""
        return tuple(self.train.inputs.shape[1:])

    @property
    def is_text(self) -> bool:
        """Whether inputs are token ids."""
        return self.train.inputs.dtype == torch.int64

    def normalise(self, inputs: Tensor) -> Tensor:
        """What a model takes, on the device of the inputs.

        Args:
            inputs: a batch of a split.

        Returns:
            images: float32 ``[B, C, H, W]`` of about zero mean and unit variance; texts: int64
            ``[B, l]``, cut to the longest of the batch, which costs no token and saves time.
        """
        if inputs.dtype == torch.int64:
            used = (inputs != self.pad).any(dim=0).nonzero()
            return inputs[:, : int(used.max()) + 1] if len(used) else inputs[:, :1]
        mean = torch.tensor(self.mean, device=inputs.device).view(1, -1, 1, 1)
        std = torch.tensor(self.std, device=inputs.device).view(1, -1, 1, 1)
        return (inputs.float() / 255 - mean) / std
