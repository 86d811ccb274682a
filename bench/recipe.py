"""How networks are trained and evaluated, and what they may spend: the values of a suite."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

Probability = Annotated[float, Field(ge=0, lt=1)]


class Frozen(BaseModel):
    """Immutable, and strict about the names of its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Recipe(Frozen):
    """How a network is trained; the same for every method of a suite."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: PositiveFloat = 0.1
    momentum: Probability = 0.9
    nesterov: bool = True
    weight_decay: NonNegativeFloat = 5e-4
    batch_size: PositiveInt = 128
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: Probability = 0.05
    """Share of the steps over which the learning rate rises linearly from 0."""
    augment: tuple[Literal["crop", "shift", "flip", "resized_crop"], ...] = ("crop", "flip")
    """`crop`: zero-pad by an eighth and crop back; `shift`: by one pixel; `flip`: left to right;
    `resized_crop`: a random part of the original photograph (read from disk), resized."""
    gradient_clip: PositiveFloat | None = None
    """Largest norm of the gradient of the whole model, per member that the loss is a sum over."""
    precision: Literal["float32", "bfloat16"] = "float32"
    accumulate: PositiveInt = 1
    """Parts that a batch is processed in, one after the other, when it does not fit into memory."""
    devices: PositiveInt = 1
    """Devices that share each batch; statistics of batch normalisation are over a device's part."""
    member_chunk: PositiveInt | Literal["auto"] = "auto"
    """Members trained at a time, where a method allows it; `auto` measures (speed only)."""

    @model_validator(mode="after")
    def _batch_divides(self) -> Recipe:
        if self.batch_size % self.devices:
            raise ValueError(
                f"batch_size={self.batch_size} can't be shared evenly by devices={self.devices}: "
                f"{self.batch_size - self.batch_size % self.devices or self.devices} can"
            )
        if self.accumulate > self.batch_size // self.devices:
            raise ValueError(
                f"accumulate={self.accumulate}: a device has only "
                f"{self.batch_size // self.devices} samples of a step: "
                f"{self.batch_size // self.devices} is the most"
            )
        return self


class Budget(Frozen):
    """What every method may spend: as much as `networks` single networks for `epochs` epochs.

    `epochs`: every trained network sees the training set this often, whatever it costs.
    `train_flops`: the FLOPs of forward and backward passes are matched.
    `device_seconds`: the measured time of the training steps is matched.
    """

    match: Literal["epochs", "train_flops", "device_seconds"] = "train_flops"
    networks: PositiveInt = 4
    epochs: Annotated[float, Field(gt=0, le=1_000_000)]


class Evaluation(Frozen):
    """How trained models are evaluated."""

    batch_size: PositiveInt = 500
    shifts: bool = True
    outliers: bool = True
