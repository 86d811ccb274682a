"""Wrapping any module as an ensemble of members that share all weights but a few."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from sigma_nens import inputs as folding
from sigma_nens.context import MemberContext, resolve_members
from sigma_nens.convert import (
    Select,
    Site,
    disable_fast_paths,
    find_head,
    find_norms,
    replace_modules,
)
from sigma_nens.heads import MemberLinear
from sigma_nens.member_norm import MemberNorm

Head = Literal["member", "shared"]
MakeNorm = Callable[[nn.Module], MemberNorm]


class MemberEnsemble(nn.Module):
    r"""Any network as M members that differ in their normalisation layers and heads alone.

    The members lie in the batch, so that M members cost what one network costs on M times the
    batch, and every member's statistics are its own. With ``norm`` at its default the members have
    unbounded affine maps, as in FiLM-Ensemble; `SigmaEnsemble` gives them sigmoid gates.

    Since members share no statistic, ``forward(x, members=slice(a, b))`` gives exactly the logits
    of members a to b, and the gradient of a sum over members can be accumulated a few members at a
    time. Run the backward pass before the next forward if the network recomputes activations.

    Shape:
        - input: a tensor ``[B, ...]``; or a tuple, list or mapping of tensors with the batch on
          dimension 0, passed as ``module(*x)`` or ``module(**x)``. Anything else in them is passed
          on.
        - output: member logits ``[B, m, K]``; m is M, or what `members` chose.

    Args:
        module: a network that gives logits ``[N, K]`` (or an object or mapping with ``logits``) for
            a batch of N. Its normalisation layers and head are replaced in place.
        members: M.
        norm: makes the member layer for a plain one; None for `MemberNorm`.
        pretrained: whether heads start from the plain head's values.
        head: ``"member"`` for one head a member, ``"shared"`` for one for all.
        head_name: dotted name of the head; None for the last `torch.nn.Linear` in order of
            registration.
        num_classes: K, to check the head against; None for no check.
        select: ``(dotted name, layer) -> bool``, which normalisation layers `norm` is used for;
            None for all. A BatchNorm left out still gets statistics and an affine map for each
            member, any other layer left out is shared.
        generator: where new heads' values come from; None for torch's global one.

    Raises:
        UnsupportedModuleError: for a module that can't be treated; the message has its dotted name
            and the network is as it was.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        >>> ensemble = MemberEnsemble(net, members=4)
        >>> x = torch.randn(5, 6)
        >>> ensemble(x).shape, ensemble(x, members=slice(0, 2)).shape
        (torch.Size([5, 4, 3]), torch.Size([5, 2, 3]))
        >>> ensemble.eval().member(1)(x).shape
        torch.Size([5, 3])
    """

    def __init__(
        self,
        module: nn.Module,
        members: int = 4,
        *,
        norm: MakeNorm | None = None,
        pretrained: bool = False,
        head: Head = "member",
        head_name: str | None = None,
        num_classes: int | None = None,
        select: Select | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self._context = MemberContext(members)
        self.members = members
        if head not in get_args(Head):
            raise ValueError(f"head must be one of {', '.join(get_args(Head))}, got {head!r}")
        if head == "shared" and head_name is not None:
            raise ValueError(f"head_name={head_name!r} has no use with head='shared'")
        # Look at everything before changing anything.
        norms = find_norms(module, select)
        make = norm or (lambda plain: MemberNorm(plain, members, pretrained=pretrained))
        like = next((p for p in module.parameters() if p.is_floating_point()), torch.ones(()))
        new: dict[nn.Module, nn.Module] = {}
        for site in norms:
            layer = make(site.module) if site.gated else MemberNorm(site.module, members)
            if not site.module.state_dict():  # it couldn't say where its values should live
                layer.to(like)
            new[site.module] = self._adopt(layer, site)
        self.head_name: str | None = None
        self._classes: int | None = None
        if head == "member":
            site = find_head(module, head_name, num_classes)
            plain = cast(nn.Linear, site.module)
            self.head_name, self._classes = site.name, plain.out_features
            linear = MemberLinear(plain, members, pretrained=pretrained, generator=generator)
            new[plain] = self._adopt(linear, site)
        self._fast_paths = disable_fast_paths(module)
        self.module = replace_modules(module, new)
        # Not train(): that would reach modules which were put into another mode on purpose.
        self.training = module.training

    def _adopt(self, layer: MemberNorm | MemberLinear, site: Site) -> nn.Module:
        """Let a layer know this ensemble's batches, and its own name for messages."""
        if layer.members != self.members:
            raise ValueError(f"{site.name}: made for {layer.members} members, not {self.members}")
        layer.context = self._context
        layer.label = f"{site.name} ({type(site.module).__name__})" if site.name else layer.label
        return layer

    def forward(self, x: Any, members: slice | None = None) -> Tensor:
        """Member logits.

        Args:
            x: the input; see the class.
            members: which members, a slice with a step of 1 inside ``[0, M]``; None for all.

        Returns:
            logits ``[B, m, K]``.

        Raises:
            ValueError: for a bad slice, an input whose tensors disagree in B, or an output that
                isn't logits ``[B * m, K]``.
        """
        start, stop = resolve_members(members, self.members)
        batch = folding.batch_size(x)
        self._context.activate(start, stop, batch)
        output = folding.call(self.module, folding.fold(x, stop - start))
        logits = folding.read_logits(output)
        if logits.shape[0] != batch * (stop - start):
            raise ValueError(
                f"the module gave {logits.shape[0]} rows of logits for {batch} samples × "
                f"{stop - start} members"
            )
        if self._classes not in (None, logits.shape[1]):
            raise ValueError(
                f"the module gave {logits.shape[1]} logits, but {self.head_name!r}, taken to be "
                f"its head, has {self._classes} outputs: name the head with head_name=..."
            )
        return torch.unflatten(logits, 0, (batch, stop - start))

    def predict_proba(self, x: Any) -> Tensor:
        """The mean over members of their class probabilities.

        The module is used in the mode it is in: call ``eval()`` first.

        Args:
            x: the input; see the class.

        Returns:
            probabilities ``[B, K]`` that sum to 1, in float32 or wider.
        """
        return folding.mean_probabilities(self(x))

    def member(self, index: int) -> nn.Module:
        """One member as a plain network of the original structure.

        Its scale is folded into its normalisation layers, which are of their original types again;
        it shares no value with the ensemble, and in eval mode gives the ensemble's logits of that
        member.

        Args:
            index: which member, in ``[0, M)``.

        Raises:
            IndexError: if there is no such member.
        """
        if not 0 <= index < self.members:
            raise IndexError(f"member must be in [0, {self.members}), got {index}")
        network = copy.deepcopy(self.module)
        layers = [m for m in network.modules() if isinstance(m, MemberNorm | MemberLinear)]
        network = replace_modules(network, {layer: layer.plain(index) for layer in layers})
        for fast_path in self._fast_paths:
            fast_path.restore(network)
        return network

    def extra_repr(self) -> str:
        """Members and head, for printing."""
        return f"members={self.members}, head={self.head_name or 'shared'}"
