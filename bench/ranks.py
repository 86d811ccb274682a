"""The processes that train one network together, as the training loop sees them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn


class Ranks:
    """One process alone; `bench.distributed` has several.

    Attributes:
        rank: of this process; the first, 0, reports and writes.
        world: how many there are.
    """

    rank = 0
    world = 1

    def share(self, samples: int) -> slice:
        """This process's part of a step's batch; all parts are of one size.

        Args:
            samples: in the batch; `world` divides it.
        """
        each = samples // self.world
        return slice(self.rank * each, (self.rank + 1) * each)

    def forward(self, model: nn.Module) -> nn.Module:
        """What to call in the model's place, so that gradients become the mean over processes."""
        return model

    def hold(self, forward: nn.Module, on: bool) -> AbstractContextManager[Any]:
        """Where `on`, forward and backward passes keep their gradients to this process."""
        return nullcontext()

    def mean(self, values: Tensor) -> Tensor:
        """The mean over processes, the same in each; all must ask."""
        return values

    def gather(self, values: Tensor) -> Tensor:
        """The values of all processes, ``[world, ...]``; all must ask."""
        return values[None]


ALONE = Ranks()
"""The default: nobody to agree with."""
