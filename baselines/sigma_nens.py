"""σN-Ens as a method of the benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from bench.errors import NotApplicable
from bench.method import Method

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bench.suite import Recipe
    from sigma_nens import SigmaEnsemble


class SigmaNEns(Method):
    """Members gate the features of one network with sigmoids: σN-Ens.

    Shared: all weights outside normalisation layers and, with ``head="shared"``, the head. Own of
    each member: the gate logits of every normalisation layer, what `affine` says, the statistics of
    batch normalisation, and its head.

    The loss has a term λ Σ log softmax_τ over the members of each gate, the package's
    `diversity_loss`: τ says how many members share a feature, λ how hard that is pushed.
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

    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """The gated backbone: ``[B, C, H, W] -> [B, M, K]``; takes ``members=slice``.

        Raises:
            NotApplicable: it has no normalisation layer, or one that can't be given members.
        """
        from sigma_nens import SigmaEnsemble, UnsupportedModuleError

        try:
            return SigmaEnsemble(
                backbone,
                self.members,
                head=self.head,
                affine=self.affine,
                unit_gain=self.unit_gain,
                gate_init=self.gate_init,
                gate_std=self.gate_std,
                num_classes=num_classes,
            )
        except UnsupportedModuleError as error:
            raise NotApplicable(str(error)) from error

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

    def supports(self, backbone: nn.Module) -> str | None:
        """Ask which layers could be gated, without changing any."""
        from baselines.layers.member_norms import obstacle

        return obstacle(backbone, self.head)


def _ensemble(model: nn.Module) -> SigmaEnsemble:
    from sigma_nens import SigmaEnsemble

    if not isinstance(model, SigmaEnsemble):
        raise TypeError(f"expected the SigmaEnsemble that build() made, got {type(model).__name__}")
    return model
