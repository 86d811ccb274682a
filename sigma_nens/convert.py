"""Finding what in a module must be given members, and putting it there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from sigma_nens.context import UnsupportedModuleError
from sigma_nens.kinds import is_normalisation, mixes_samples, norm_kind
from sigma_nens.member_norm import MemberNorm

Select = Callable[[str, nn.Module], bool]


@dataclass(frozen=True)
class Site:
    """A module that is to be replaced.

    Attributes:
        name: its dotted name; the first, where it stands in several places.
        module: the module.
        gated: whether `select` chose it; otherwise it only keeps its members apart.
    """

    name: str
    module: nn.Module
    gated: bool = True


def find_norms(module: nn.Module, select: Select | None = None) -> list[Site]:
    """The normalisation layers of a module that need members.

    A BatchNorm that `select` leaves out is still listed (ungated), since its statistics must be
    taken for each member alone. Any other layer left out stays as it is, shared by all members.

    Args:
        module: the network; it isn't changed.
        select: ``(dotted name, layer) -> bool``, which layers to choose; None for all.

    Raises:
        UnsupportedModuleError: for the first module that can't be treated, by its dotted name, or
            if there is nothing to convert.

    Examples:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        >>> [site.name for site in find_norms(net)]
        ['1']
    """
    sites = []
    for name, child in _walk(module):
        if reason := _obstacle(child):
            raise UnsupportedModuleError(f"{_place(name, child)}: {reason}")
        if not is_normalisation(child):
            continue
        gated = select is None or bool(select(name, child))
        if not gated and not mixes_samples(child):
            continue
        if reason := _norm_obstacle(child):
            raise UnsupportedModuleError(f"{_place(name, child)}: {reason}")
        sites.append(Site(name, child, gated))
    if not any(site.gated for site in sites):
        why = (
            "no normalisation layer"
            if select is None
            else "no normalisation layer that is selected"
        )
        raise UnsupportedModuleError(f"{type(module).__name__} has {why}: nothing to convert")
    return sites


def find_head(module: nn.Module, name: str | None = None, num_classes: int | None = None) -> Site:
    """The linear layer that classifies.

    It is the one called `name`; otherwise the last `torch.nn.Linear` in the order of registration
    (projections inside attention layers don't count).

    Args:
        module: the network.
        name: dotted name of the head.
        num_classes: K; the head must have that many outputs. None for any.

    Raises:
        UnsupportedModuleError: if there is no such layer; the message names the candidates.

    Examples:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        >>> find_head(net, num_classes=3).name
        '3'
    """
    found = {n: m for n, m in _walk(module) if _is_linear(m)}
    candidates = ", ".join(f"{n!r} ({m.in_features} → {m.out_features})" for n, m in found.items())
    hint = "name another one with head_name=..., or share the head with head='shared'"
    if not found:
        raise UnsupportedModuleError(
            f"{type(module).__name__} has no nn.Linear to be the head: share it with head='shared'"
        )
    if name is not None and name not in found:
        raise UnsupportedModuleError(
            f"head_name={name!r} is no nn.Linear of {type(module).__name__}; "
            f"there are: {candidates}"
        )
    chosen = name if name is not None else list(found)[-1]
    head = found[chosen]
    if num_classes is not None and head.out_features != num_classes:
        raise UnsupportedModuleError(
            f"{chosen}: the head has {head.out_features} outputs for {num_classes} classes; "
            f"{hint}; there are: {candidates}"
        )
    if _has_hooks(head):
        raise UnsupportedModuleError(f"{_place(chosen, head)}: it has hooks, which would be lost")
    return Site(chosen, head)


def replace_modules(root: nn.Module, new: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """Put new modules wherever old ones stand, so that what was shared stays shared.

    Args:
        root: changed in place.
        new: the new module for each old one.

    Returns:
        `root`, or what takes its place.
    """
    for parent in list(root.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and child in new:
                parent._modules[name] = new[child]
    return new.get(root, root)


@dataclass(frozen=True)
class FastPath:
    """An attribute that let a transformer skip its own normalisation layers, and its old value."""

    module: str
    attribute: str
    value: object

    def restore(self, root: nn.Module) -> None:
        """Put the old value back."""
        setattr(root.get_submodule(self.module), self.attribute, self.value)


def disable_fast_paths(root: nn.Module) -> list[FastPath]:
    """Make transformer encoder layers call their normalisation layers at inference too.

    In eval mode `nn.TransformerEncoderLayer` reads ``norm1.weight`` and ``norm2.weight`` and
    computes everything in one fused call: member scales would be bypassed. It does so for the
    activations it knows only, so it is told that it knows none; the ordinary path doesn't look at
    that flag.
    """
    switches: list[tuple[type[nn.Module], str, object]] = [
        (nn.TransformerEncoderLayer, "activation_relu_or_gelu", 0),
        (nn.TransformerEncoder, "use_nested_tensor", False),
    ]
    changed = []
    for name, module in root.named_modules():
        for cls, attribute, off in switches:
            if isinstance(module, cls) and getattr(module, attribute, off) != off:
                changed.append(FastPath(name, attribute, getattr(module, attribute)))
                setattr(module, attribute, off)
    return changed


def _walk(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Dotted names and modules, each module once, without the inside of parametrisations."""
    for name, child in module.named_modules():
        if "parametrizations" not in name.split("."):
            yield name, child


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) and not isinstance(module, NonDynamicallyQuantizableLinear)


def _has_hooks(module: nn.Module) -> bool:
    return any(
        getattr(module, name, None)
        for name in (
            "_forward_hooks",
            "_forward_pre_hooks",
            "_backward_hooks",
            "_backward_pre_hooks",
        )
    )


def _place(name: str, module: nn.Module) -> str:
    return f"{name or 'the module itself'} ({type(module).__name__})"


def _obstacle(module: nn.Module) -> str | None:
    """Why a network with this module can't have members in its batch, or None."""
    if isinstance(module, torch.jit.ScriptModule):
        return "a compiled TorchScript module can't be changed"
    if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
        return "it has no shapes yet: run one batch through the network first"
    if isinstance(module, nn.MultiheadAttention | nn.RNNBase) and not module.batch_first:
        return (
            "it has the batch on dimension 1, members need it on dimension 0: use batch_first=True"
        )
    return None


def _norm_obstacle(norm: nn.Module) -> str | None:
    """Why a normalisation layer can't be given members, or None."""
    if isinstance(norm, nn.SyncBatchNorm):
        return "it pools all members' statistics: use BatchNorm, and synchronise nothing"
    if isinstance(norm, MemberNorm):
        return "it has members already: the network belongs to an ensemble (ensemble.member(0)?)"
    if norm_kind(norm) is None:
        hint = "" if mixes_samples(norm) else "; leave it shared by all members with select=..."
        return f"a normalisation layer of an unknown type can't be given members{hint}"
    if _has_hooks(norm):
        return "it has hooks, which would be lost"
    return None
