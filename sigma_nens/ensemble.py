"""σN-Ens: an ensemble of members that gate the features of one network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sigma_nens.convert import Select
from sigma_nens.diversity import Reduction, diversity_loss
from sigma_nens.member_ensemble import Head, MemberEnsemble
from sigma_nens.member_norm import Affine
from sigma_nens.norm import SigmaNorm


class SigmaEnsemble(MemberEnsemble):
    r"""σN-Ens: any network as M members that gate its features.

    Each normalisation layer gets a sigmoid gate for each member and feature (`SigmaNorm`):

    .. math:: \sigma\mathrm{Norm}_t(x) = \sigma(\gamma_t) \odot \mathrm{norm}_t(x)

    All other weights are shared, but for the heads. Members are trained as tasks: the loss is the
    sum over members of the cross-entropy on the same batch, plus `diversity_loss`. Give
    `gate_parameters` a higher learning rate (the sigmoid flattens their gradient) and no weight
    decay.

    Shape:
        - input: see `MemberEnsemble`.
        - output: member logits ``[B, m, K]``.

    Args:
        module: the network; its normalisation layers and head are replaced in place.
        members: M.
        pretrained: keep the function of the module: at the start each member gives its logits.
            Otherwise gates start around unit gain and heads afresh.
        head: ``"member"`` or ``"shared"``; see `MemberEnsemble`.
        affine: what each member trains beside its gate: ``"full"``, ``"bias"`` or ``"none"``; None
            for ``"full"`` when pretrained and ``"bias"`` otherwise.
        unit_gain: whether scales start around 1 rather than around σ(gate_init).
        gate_init: mean of the initial gate logits.
        gate_std: standard deviation of the initial gate logits.
        select: which layers get gates; see `MemberEnsemble`.
        head_name: dotted name of the head; see `MemberEnsemble`.
        num_classes: K, to check the head against.
        generator: where gates and heads are drawn from; None for torch's global one.

    Raises:
        UnsupportedModuleError: for a module that can't be treated; the message has its dotted name.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from torch.nn import functional
        >>> net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))
        >>> ensemble = SigmaEnsemble(net, members=4)
        >>> x, y = torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])
        >>> logits = ensemble(x)
        >>> loss = 4 * functional.cross_entropy(logits.flatten(0, 1), y.repeat_interleave(4))
        >>> (loss + ensemble.diversity_loss(tau=0.2, strength=1e-3)).backward()
        >>> ensemble.eval().predict_proba(x).sum(dim=-1).round(decimals=4)
        tensor([1., 1., 1., 1., 1.], grad_fn=<RoundBackward1>)
    """

    def __init__(
        self,
        module: nn.Module,
        members: int = 4,
        *,
        pretrained: bool = False,
        head: Head = "member",
        affine: Affine | None = None,
        unit_gain: bool = True,
        gate_init: float = 0.0,
        gate_std: float = 0.5,
        select: Select | None = None,
        head_name: str | None = None,
        num_classes: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        def gated(plain: nn.Module) -> SigmaNorm:
            return SigmaNorm(
                plain,
                members,
                affine=affine,
                pretrained=pretrained,
                unit_gain=unit_gain,
                gate_init=gate_init,
                gate_std=gate_std,
                generator=generator,
            )

        super().__init__(
            module,
            members,
            norm=gated,
            pretrained=pretrained,
            head=head,
            head_name=head_name,
            num_classes=num_classes,
            select=select,
            generator=generator,
        )

    def gate_layers(self) -> dict[str, SigmaNorm]:
        """The gated layers by dotted name in the module, each once."""
        found = self.module.named_modules()
        return {name: layer for name, layer in found if isinstance(layer, SigmaNorm)}

    def gate_parameters(self) -> list[nn.Parameter]:
        """The gate logits of all layers."""
        return [layer.gate_logits for layer in self.gate_layers().values()]

    def other_parameters(self) -> list[nn.Parameter]:
        """All parameters that are no gate logits."""
        gates = {id(p) for p in self.gate_parameters()}
        return [p for p in self.parameters() if id(p) not in gates]

    def diversity_loss(
        self, tau: float, strength: float = 1.0, reduction: Reduction = "sum"
    ) -> Tensor:
        """The regulariser λ L_div over all gated layers, to be added to the loss once a step.

        Args:
            tau: the temperature τ > 0; where it settles.
            strength: λ >= 0; how hard it pushes.
            reduction: over features and layers; see `sigma_nens.diversity_loss`.

        Returns:
            a scalar, at most 0.
        """
        if not strength >= 0:
            raise ValueError(f"strength must be at least 0, got {strength}")
        gates = [layer.gates() for layer in self.gate_layers().values()]
        return strength * diversity_loss(gates, tau, reduction)
