"""Independent networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, PositiveInt

from bench.method import Method

if TYPE_CHECKING:
    from torch import nn


class DeepEnsemble(Method):
    """M networks trained apart (Lakshminarayanan et al., 2017).

    "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles", NeurIPS 2017,
    without its adversarial training. Members share nothing: each has its own weights, seed and data
    order, which the harness sees to. From pretrained weights they start as copies, but for heads
    that are fresh: where the head is pretrained too, they differ by their data order alone.
    """

    name: ClassVar[str] = "deep_ensemble"
    independent: ClassVar[bool] = True

    members: PositiveInt = Field(default=4, description="M, the number of networks trained")

    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """One member of the ensemble: ``[B, C, H, W] -> [B, 1, K]``."""
        from bench.combine import OneMember

        return OneMember(backbone)

    def convert(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """One member with the pretrained weights; its head is its own draw where it is fresh."""
        return self.build(backbone, num_classes)
