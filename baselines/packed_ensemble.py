"""Narrow members side by side in grouped layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, PositiveFloat, PositiveInt

from bench.errors import NotApplicable
from bench.method import Method

if TYPE_CHECKING:
    from torch import nn


class PackedEnsemble(Method):
    """Narrow members side by side in one network of grouped layers (Laurent et al., 2023).

    "Packed-Ensembles for Efficient Uncertainty Estimation", ICLR 2023, with torch-uncertainty's
    `PackedConv2d` and `PackedLinear`.

    Shared: nothing but the image, which every member sees. Own of each member: all weights; a layer
    of C channels becomes one of αC, of which each member has αC/M. Grouped convolutions keep their
    groups within a member, depthwise ones stay depthwise.

    Transformers are packed by layers written here, since the library's attention and layer norm
    let members mix: a member has its own slice of every token's features, of the class token and of
    the position embeddings; layer normalisation takes its statistics from that slice alone; each
    attention head belongs to one member, which has αH/M of the backbone's H heads, of their size;
    stochastic depth is drawn by each member. As in the library's packed attention, γ divides
    queries, keys, values and outputs too, but no head: a group has αH/(Mγ) heads, which see the
    features of that group alone.

    The backbone's weights are dropped, since a member has another width; a layer starts with values
    drawn from the backbone's initial ones, scaled to a member's fan-in. γ divides every layer of a
    member further, except those that see the image and the last one. Nothing is rounded: a width
    or a number of heads that α, M and γ don't divide is refused.
    """

    name: ClassVar[str] = "packed_ensemble"

    members: PositiveInt = Field(default=4, description="M")
    alpha: PositiveFloat = Field(
        default=2.0, description="α, the width of all members together, in widths of the backbone"
    )
    gamma: PositiveInt = Field(default=2, description="γ, the groups of each layer of a member")

    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """The packed backbone: ``[B, C, H, W] -> [B, M, K]``.

        It is tried on blank images: one member's activations are made NaN, and no other member's
        logits may become NaN.

        Raises:
            NotApplicable: the backbone has a layer that can't be packed, or members mix.
        """
        from baselines.layers.packed import packed

        return packed(
            backbone, num_classes, members=self.members, alpha=self.alpha, gamma=self.gamma
        )

    def convert(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """Refuse: members have other layers than a pretrained network, and would start anew.

        Raises:
            NotApplicable: always.
        """
        raise NotApplicable(
            "packing changes the architecture: the pretrained weights would be lost"
        )

    def supports(self, backbone: nn.Module) -> str | None:
        """Pack a copy of the backbone, without a change to it or to the random state."""
        from copy import deepcopy

        import torch

        from baselines.layers.packed import output_width

        with torch.random.fork_rng(devices=[]):
            try:
                self.build(deepcopy(backbone), output_width(backbone))
            except NotApplicable as refusal:
                return str(refusal)
        return None
