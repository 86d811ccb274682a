"""σN-Ens as a method of the benchmark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

from bench.errors import NotApplicable
from bench.method import Method

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bench.recipe import Recipe
    from sigma_nens import SigmaEnsemble, SigmaNorm

BINS = 20
"""Bins of a histogram of gates, of equal width over [0, 1]."""


class SigmaNEns(Method):
    """Members gate the features of one network with sigmoids: σN-Ens.

    Shared: all weights outside normalisation layers and, with ``head="shared"``, the head. Own of
    each member: the gate logits of every normalisation layer, what `affine` says, the statistics of
    batch normalisation, and its head.

    The loss has a term λ Σ log softmax_τ over the members of each gate, the package's
    `diversity_loss`: τ says how many members share a feature, λ how hard that is pushed.

    From pretrained weights, gates are divided by their initial values and keep the norm's own scale
    and shift, so that each member starts at the pretrained function, with a head of its own draw
    where there is no pretrained one.
    """

    name: ClassVar[str] = "sigma_nens"
    separable: ClassVar[bool] = True

    members: PositiveInt = Field(default=4, description="M")
    temperature: PositiveFloat = Field(
        default=0.2, description="τ; low: each feature belongs to few members, high: to more"
    )
    strength: NonNegativeFloat = Field(
        default=1e-3, description="λ, the weight of the diversity term; 0 leaves it out"
    )
    reduction: Literal["sum", "feature_mean", "layer_mean"] = Field(
        default="sum", description="how the diversity term is joined over features and layers"
    )
    gate_init: float = Field(default=0.0, description="mean of the gate logits at the start")
    gate_std: NonNegativeFloat = Field(
        default=0.5, description="standard deviation of the gate logits at the start"
    )
    unit_gain: bool = Field(
        default=True, description="divide gates by their initial value, so that scales start at 1"
    )
    gate_learning_rate: PositiveFloat = Field(
        default=10.0,
        description="learning rate of the gate logits, in learning rates of the recipe",
    )
    head: Literal["member", "shared"] = Field(
        default="member", description="one classifier for each member, or one for all"
    )
    affine: Literal["none", "bias", "full"] = Field(
        default="bias", description="what each member learns in a norm beside its gate"
    )
    layers: str = Field(
        default=".*",
        description="regular expression that the dotted name of a normalisation layer must match "
        "in full to be gated",
    )

    @field_validator("layers")
    @classmethod
    def _check_layers(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from error
        return pattern

    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """The gated backbone: ``[B, C, H, W] -> [B, M, K]``; takes ``members=slice``.

        Raises:
            NotApplicable: it has no normalisation layer, or one that can't be given members.
        """
        return self._gated(backbone, num_classes, pretrained=False)

    def convert(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """The gated backbone that starts at the pretrained function, in every member.

        Raises:
            NotApplicable: see `build`; or ``unit_gain=False``, which changes the function.
        """
        from baselines.layers.member_norms import draw_heads
        from bench.backbones import fresh_head

        if not self.unit_gain:
            raise NotApplicable("unit_gain=False changes the function of a pretrained network")
        ensemble = self._gated(backbone, num_classes, pretrained=True)
        if fresh_head(backbone) is not None:
            draw_heads(ensemble)
        return ensemble

    def _gated(self, backbone: nn.Module, num_classes: int, *, pretrained: bool) -> SigmaEnsemble:
        from sigma_nens import SigmaEnsemble, UnsupportedModuleError

        if reason := self.supports(backbone):
            raise NotApplicable(reason)
        try:
            return SigmaEnsemble(
                backbone,
                self.members,
                pretrained=pretrained,
                head=self.head,
                affine=self.affine,
                unit_gain=self.unit_gain,
                gate_init=self.gate_init,
                gate_std=self.gate_std,
                select=self._selected,
                num_classes=num_classes,
            )
        except UnsupportedModuleError as error:
            raise NotApplicable(str(error)) from error

    def _selected(self, name: str, layer: nn.Module) -> bool:
        return re.fullmatch(self.layers, name) is not None

    def penalty(self, model: nn.Module) -> Tensor | None:
        """The diversity term λ L_div; None with λ = 0."""
        if self.strength == 0:
            return None
        return _ensemble(model).diversity_loss(self.temperature, self.strength, self.reduction)

    def parameter_groups(self, model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
        """Two groups; gate logits learn faster (the sigmoid flattens their gradient), undecayed."""
        ensemble = _ensemble(model)
        gates = {
            "params": [p for p in ensemble.gate_parameters() if p.requires_grad],
            "lr": recipe.learning_rate * self.gate_learning_rate,
            "weight_decay": 0.0,
        }
        return [{"params": [p for p in ensemble.other_parameters() if p.requires_grad]}, gates]

    def facts(self, model: nn.Module) -> dict[str, Any]:
        """How the gates of each layer have been shared out among the members.

        Returns:
            ``{"gates": [...]}``, for each gated layer: its name (``layer``), how many ``features``
            it has, a ``histogram`` of its gates σ(γ) (counts in 20 bins over [0, 1]),
            ``members_per_feature``, the mean over features of the participation ratio
            (Σ_m g_m)² / Σ_m g_m² in [1, M] (k equal gates and M - k closed ones count as k), and
            ``equilibrium``, how many the diversity term alone would leave: M times the package's
            `equilibrium_share`.
        """
        from sigma_nens import equilibrium_share

        wanted = self.members * equilibrium_share(self.temperature)
        layers = _ensemble(model).gate_layers()
        return {"gates": [_gate_facts(name, layer, wanted) for name, layer in layers.items()]}

    def supports(self, backbone: nn.Module) -> str | None:
        """Ask which layers could be gated, without changing any."""
        from baselines.layers.member_norms import norm_names, obstacle

        names = norm_names(backbone)
        if names and not any(re.fullmatch(self.layers, name) for name in names):
            some = ", ".join(names[:: max(1, len(names) // 5)])
            return f"layers={self.layers!r} matches no normalisation layer: there are {some}"
        return obstacle(backbone, self.head, self._selected if names else None)


def _gate_facts(name: str, layer: SigmaNorm, equilibrium: float) -> dict[str, Any]:
    gates = layer.gates().detach().double().cpu()
    sharing = gates.sum(0).square() / gates.square().sum(0)
    return {
        "layer": name,
        "features": layer.features,
        "histogram": [int(count) for count in gates.histc(BINS, 0.0, 1.0)],
        "members_per_feature": float(sharing.mean()),
        "equilibrium": equilibrium,
    }


def _ensemble(model: nn.Module) -> SigmaEnsemble:
    from sigma_nens import SigmaEnsemble

    if not isinstance(model, SigmaEnsemble):
        raise TypeError(f"expected the SigmaEnsemble that build() made, got {type(model).__name__}")
    return model
