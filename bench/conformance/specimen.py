"""A method under examination: its models as the harness builds them, and random images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from bench.backbones import create_backbone
from bench.combine import IndependentMembers
from bench.data.task import Outlier, Shift, Split, Task
from bench.errors import validation_line
from bench.method import Method
from bench.planning import build_network
from bench.recipe import Budget, Evaluation, Recipe
from bench.suite import RunSpec, TaskSpec

BACKBONE = "resnet8"
CLASSES = 7
SHAPE = (3, 16, 16)
SEED = 0


@dataclass(frozen=True)
class Specimen:
    """A method with its hyper-parameters, a backbone and a task of random images.

    Attributes:
        method: with its hyper-parameters.
        spec: the run that the harness would do.
        task: random images; one batch is the whole training split.
    """

    method: Method
    spec: RunSpec
    task: Task

    @classmethod
    def of(
        cls, method_class: type[Method], parameters: Mapping[str, Any], backbone: str
    ) -> Specimen:
        """Validate the parameters and the backbone.

        Raises:
            UserError: one of them can't be.
        """
        try:
            method = method_class(**parameters)
        except ValidationError as error:
            place = f"method {method_class.name}"
            raise validation_line(place, error, method_class.model_fields) from None
        create_backbone(backbone, CLASSES, SHAPE)
        # Every member gets two samples where each sample trains one member.
        size = max(8, 2 * method.members)
        spec = RunSpec(
            task=TaskSpec(name="random_images"),
            backbone=backbone,
            method=method_class.name,
            parameters={},
            seed=SEED,
            # No weight decay: it would move a parameter that no gradient reaches.
            recipe=Recipe(
                learning_rate=0.05, weight_decay=0.0, batch_size=size, augment=(), member_chunk=1
            ),
            budget=Budget(match="train_flops", networks=1, epochs=1),
            evaluation=Evaluation(),
        )
        return cls(method, spec, random_task(size))

    def network(self, seed: int = SEED, index: int = 0) -> nn.Module:
        """What is trained: the model, or one of the networks of independent members."""
        spec = self.spec.model_copy(update={"seed": seed})
        return build_network(spec, self.method, self.task, index)

    def model(self, seed: int = SEED) -> nn.Module:
        """What predicts: ``[B, C, H, W] -> [B, M, K]``, fresh."""
        if not self.method.independent:
            return self.network(seed)
        return IndependentMembers([self.network(seed, m) for m in range(self.method.members)])

    @property
    def images(self) -> Tensor:
        """A training batch, normalised, ``[B, C, H, W]``."""
        return self.task.normalise(self.task.train.inputs[:])

    @property
    def labels(self) -> Tensor:
        """Its labels, ``[B]``."""
        return self.task.train.labels


def random_task(size: int) -> Task:
    """Noise with labels that say nothing.

    Args:
        size: samples of the training split.
    """
    generator = torch.Generator().manual_seed(SEED)

    def split(samples: int) -> Split:
        pixels = torch.randint(0, 256, (samples, *SHAPE), dtype=torch.uint8, generator=generator)
        return Split(pixels, torch.randint(0, CLASSES, (samples,), generator=generator))

    def nothing(_: Shift | Outlier) -> Split:
        raise LookupError("random images have no shifts and no outliers")

    return Task(
        name="random_images",
        class_names=tuple(str(label) for label in range(CLASSES)),
        train=split(size),
        validation=split(5),
        test=split(5),
        mean=(0.5, 0.5, 0.5),
        std=(0.29, 0.29, 0.29),
        shifts=(),
        shift_origin="generated",
        outliers=(),
        load_shift=nothing,
        load_outlier=nothing,
    )
