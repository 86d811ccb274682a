"""Members that scale and shift the features of one network."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from bench.errors import NotApplicable
from bench.method import Method

if TYPE_CHECKING:
    from torch import nn


class FilmEnsemble(Method):
    """Members scale and shift the features of one network, unbounded (Turkoglu et al., 2022).

    "FiLM-Ensemble: Probabilistic Deep Learning via Feature-wise Linear Modulation", NeurIPS 2022.

    Shared: all weights outside normalisation layers, and the head unless ``head="member"``. Own of
    each member: the scale and shift of every normalisation layer and, for batch normalisation, the
    statistics. With ``init="normal", head="member"`` this is σN-Ens without its gates.

    `init` says where scales and shifts start. ``xavier`` is the authors' way: both uniform on
    [-a, a] with a = gain·√(6 / (M + C)) in a layer of C features; the paper's gain ρ sets how far
    members differ. ``normal`` draws scales around the backbone's own and shifts around its own,
    both with standard deviation `std`: with 0, and a shared head, members compute what the backbone
    computes.

    Pretrained weights are kept whatever `init` says: scales and shifts start around the backbone's
    own, `pretrained_std` apart in units of each feature's spread, and heads at the pretrained head
    where there is one.
    """

    name: ClassVar[str] = "film_ensemble"
    separable: ClassVar[bool] = True

    members: PositiveInt = Field(default=4, description="M")
    init: Literal["xavier", "normal"] = Field(
        default="normal", description="how scales and shifts start: the authors' way, or around 1"
    )
    gain: PositiveFloat = Field(default=1.0, description="ρ, the spread at the start with `xavier`")
    std: NonNegativeFloat = Field(
        default=0.5, description="standard deviation at the start with `normal`"
    )
    pretrained_std: NonNegativeFloat = Field(
        default=0.05,
        description="share of a feature's spread that members start apart by, from pretrained",
    )
    head: Literal["member", "shared"] = Field(
        default="member", description="one classifier for all members (as published), or one each"
    )

    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """The backbone with member norms: ``[B, C, H, W] -> [B, M, K]``; takes ``members=slice``.

        Raises:
            NotApplicable: it has no normalisation layer, or one that can't be given members.
        """
        from baselines.layers.film import film_norm
        from sigma_nens import MemberEnsemble, UnsupportedModuleError

        try:
            return MemberEnsemble(
                backbone,
                self.members,
                norm=lambda plain: film_norm(
                    plain, self.members, init=self.init, gain=self.gain, std=self.std
                ),
                head=self.head,
                num_classes=num_classes,
            )
        except UnsupportedModuleError as error:
            raise NotApplicable(str(error)) from error

    def convert(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """The pretrained backbone with member norms that start around its own; as `build` else.

        Raises:
            NotApplicable: see `build`.
        """
        from baselines.layers.film import pretrained_film_norm
        from baselines.layers.member_norms import draw_heads
        from bench.backbones import fresh_head
        from sigma_nens import MemberEnsemble, UnsupportedModuleError

        try:
            ensemble = MemberEnsemble(
                backbone,
                self.members,
                norm=lambda plain: pretrained_film_norm(
                    plain, self.members, std=self.pretrained_std
                ),
                pretrained=True,
                head=self.head,
                num_classes=num_classes,
            )
        except UnsupportedModuleError as error:
            raise NotApplicable(str(error)) from error
        if fresh_head(backbone) is not None:
            draw_heads(ensemble)
        return ensemble

    def supports(self, backbone: nn.Module) -> str | None:
        """Ask which layers could be given members, without changing any."""
        from baselines.layers.member_norms import obstacle

        return obstacle(backbone, self.head)
