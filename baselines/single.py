"""One network."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from bench.method import Method

if TYPE_CHECKING:
    from torch import nn


class Single(Method):
    """One network, trained as usual: what every ensemble is compared with."""

    name: ClassVar[str] = "single"

    members: Literal[1] = Field(default=1, description="always 1")

    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """The backbone itself, with a member axis of 1."""
        from bench.combine import OneMember

        return OneMember(backbone)

    def convert(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """The backbone itself, with the weights it has."""
        return self.build(backbone, num_classes)
