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
    order, which the harness sees to.
    """

    name: ClassVar[str] = "deep_ensemble"
    independent: ClassVar[bool] = True

    members: PositiveInt = Field(default=4, description="M, the number of networks trained")

    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """One member of the ensemble: ``[B, C, H, W] -> [B, 1, K]``."""
        from bench.combine import OneMember

        return OneMember(backbone)
