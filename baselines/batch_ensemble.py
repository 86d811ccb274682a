"""Rank-1 members around one shared network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from bench.errors import NotApplicable
from bench.method import Method

if TYPE_CHECKING:
    from torch import nn

    from bench.recipe import Recipe


class BatchEnsemble(Method):
    """Members W∘(s rᵀ): a rank-1 factor of their own on each shared weight (Wen et al., 2020).

    "BatchEnsemble: An Alternative Approach to Efficient Ensemble and Lifelong Learning", ICLR 2020,
    equations 3 to 5.

    Shared: the weights W of every convolution and linear layer, and all other parameters:
    normalisation layers (with their batch statistics, over all members), class tokens, embeddings.
    Own of each member: for every convolution and linear layer, in shortcuts and the classifier too,
    an input factor r, an output factor s and, where the layer has one, the bias.

    The backbone's weights are kept. With ``init="normal", std=0`` all members compute what the
    backbone computes; otherwise the shared part is kept and each member starts at another function.

    From pretrained weights, factors start from N(1, `pretrained_std`²) whatever `init` says. The
    spread of training from scratch, 0.5 or random signs, compounds over layers to another function:
    what the weights know would be lost.
    """

    name: ClassVar[str] = "batch_ensemble"

    members: PositiveInt = Field(default=4, description="M")
    init: Literal["random_sign", "normal"] = Field(
        default="normal",
        description="factors start at -1 or 1 with equal chance, or from N(1, std²)",
    )
    std: NonNegativeFloat = Field(
        default=0.5, description="spread of the factors at the start; of `normal` alone"
    )
    pretrained_std: NonNegativeFloat = Field(
        default=0.05, description="spread of the factors at the start from pretrained weights"
    )
    batch: Literal["repeat", "split"] = Field(
        default="split",
        description="in training, every member sees each sample, or each sample trains one member",
    )

    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """The backbone with converted layers: ``[B, C, H, W] -> [B, M, K]``.

        While training with ``batch="split"`` it gives ``[B, 1, K]``: for each sample the logits of
        the member that it trains. Evaluation always gives all members.

        Raises:
            NotApplicable: see `supports`.
        """
        return self._around(backbone, self.init, self.std)

    def convert(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """As `build`, but with factors so near to 1 that the pretrained function stays.

        A head that is fresh has no function to keep: its factors are drawn as `build` draws them,
        so that members have heads of their own, as with other methods.

        Raises:
            NotApplicable: see `supports`.
        """
        from baselines.layers.batch_ensemble import RankOne
        from bench.backbones import fresh_head
        from bench.backbones.heads import head_names

        fresh = head_names(backbone, num_classes) if fresh_head(backbone) else []
        network = self._around(backbone, "normal", self.pretrained_std)
        for name in fresh:
            head = network.get_submodule(f"backbone.{name}")
            if isinstance(head, RankOne):
                head.draw(self.init, self.std)
        return network

    def _around(
        self, backbone: nn.Module, init: Literal["random_sign", "normal"], std: float
    ) -> nn.Module:
        from baselines.layers.batch_ensemble import BatchEnsembleNetwork

        if reason := self.supports(backbone):
            raise NotApplicable(reason)
        return BatchEnsembleNetwork(
            backbone, members=self.members, init=init, std=std, batch=self.batch
        )

    def parameter_groups(self, model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
        """Two groups; the factors r and s have no weight decay, which would pull them to 0."""
        from baselines.layers.batch_ensemble import fast_weights

        fast = fast_weights(model)
        ids = {id(parameter) for parameter in fast}
        slow = [p for p in model.parameters() if p.requires_grad and id(p) not in ids]
        return [{"params": slow}, {"params": fast, "weight_decay": 0.0}]

    def supports(self, backbone: nn.Module) -> str | None:
        """Refuse layers whose projections are bare parameters, such as `nn.MultiheadAttention`."""
        from baselines.layers.batch_ensemble import obstacle

        return obstacle(backbone)
