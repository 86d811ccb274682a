"""The normalisation layers that can be given members, recognised by exact type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from torch import Tensor, nn

from sigma_nens.context import UnsupportedModuleError

Kind = Literal["batch", "layer", "group", "rms"]

_TORCH: dict[type[nn.Module], Kind] = {
    nn.BatchNorm1d: "batch",
    nn.BatchNorm2d: "batch",
    nn.BatchNorm3d: "batch",
    nn.LayerNorm: "layer",
    nn.GroupNorm: "group",
    nn.RMSNorm: "rms",
}
# Known by name so that neither library has to be imported.
_ELSEWHERE: dict[tuple[str, str], Kind] = {
    ("timm", "BatchNormAct2d"): "batch",
    ("timm", "GroupNorm"): "group",
    ("timm", "GroupNorm1"): "group",
    ("timm", "LayerNorm"): "layer",
    ("timm", "LayerNorm2d"): "layer",
    ("torchvision", "LayerNorm2d"): "layer",
}
_BATCH_DIMS = {"BatchNorm1d": (2, 3), "BatchNorm2d": (4,), "BatchNorm3d": (5,)}


@dataclass(frozen=True)
class NormSpec:
    """What a plain normalisation layer computes, without its values.

    Attributes:
        kind: which statistics it takes.
        shape: the shape of its scale for one member: ``(C,)``, or a LayerNorm's normalised shape.
        channels_last: whether `shape` are the input's last dimensions, or dimension 1.
        permuted: a channels-first layer that normalises over the channels alone (LayerNorm2d).
        dims: the numbers of dimensions its input may have; empty if any.
        eps: added to the variance; None stands for the machine epsilon (RMSNorm).
        momentum: of the running statistics; None for a cumulative mean.
        tracked: whether there are running statistics.
        groups: of a GroupNorm.
        fused: whether a dropout and an activation follow inside the layer (timm's BatchNormAct2d).
    """

    kind: Kind
    shape: tuple[int, ...]
    channels_last: bool = False
    permuted: bool = False
    dims: tuple[int, ...] = ()
    eps: float | None = 1e-5
    momentum: float | None = None
    tracked: bool = False
    groups: int = 1
    fused: bool = False

    def check(self, x: Tensor, label: str) -> None:
        """Refuse an input that such a layer can't take.

        Args:
            x: the input.
            label: the layer's name, for the message.

        Raises:
            ValueError: for a wrong number of dimensions or features.
        """
        shape, last = self.shape, self.channels_last and not self.permuted
        if self.dims and x.ndim not in self.dims:
            wanted = " or ".join(str(d) for d in self.dims)
            raise ValueError(f"{label}: expected {wanted} dimensions, got {x.ndim}")
        found = x.shape[-len(shape) :] if last else x.shape[1:2]
        if tuple(found) != shape or (last and x.ndim <= len(shape)):
            place = "last dimensions" if last else "dimension 1"
            raise ValueError(
                f"{label}: expected {shape} on the {place}, got an input of {tuple(x.shape)}"
            )


def norm_kind(module: nn.Module) -> Kind | None:
    """The kind of a normalisation layer that can be given members, or None for anything else."""
    cls = type(module)
    return _TORCH.get(cls) or _ELSEWHERE.get((cls.__module__.split(".")[0], cls.__name__))


def norm_spec(module: nn.Module) -> NormSpec:
    """Describe a plain normalisation layer.

    Raises:
        UnsupportedModuleError: if it isn't one of the known types, exactly.
    """
    kind = norm_kind(module)
    name = type(module).__name__
    if kind == "batch":
        batch = cast(nn.BatchNorm2d, module)
        return NormSpec(
            "batch",
            (batch.num_features,),
            dims=_BATCH_DIMS.get(name, (4,)),
            eps=batch.eps,
            momentum=batch.momentum,
            tracked=batch.running_mean is not None,
            fused=name == "BatchNormAct2d",
        )
    if kind == "group":
        group = cast(nn.GroupNorm, module)
        return NormSpec("group", (group.num_channels,), eps=group.eps, groups=group.num_groups)
    if kind in ("layer", "rms"):
        layer = cast(nn.LayerNorm | nn.RMSNorm, module)
        permuted = name == "LayerNorm2d"
        return NormSpec(
            kind,
            tuple(layer.normalized_shape),
            channels_last=True,
            permuted=permuted,
            dims=(4,) if permuted else (),
            eps=layer.eps,
        )
    raise UnsupportedModuleError(f"{name} is no normalisation layer that can be given members")


def is_normalisation(module: nn.Module) -> bool:
    """Whether a module looks like a normalisation layer with values of its own."""
    if norm_kind(module) is not None or isinstance(module, nn.modules.batchnorm._NormBase):
        return True
    has_values = any(True for _ in module.parameters(recurse=False)) or any(
        True for _ in module.buffers(recurse=False)
    )
    # Networks without normalisation have blocks that say so: timm's NormFreeBlock.
    return "norm" in type(module).__name__.lower().replace("normfree", "") and has_values


def mixes_samples(module: nn.Module) -> bool:
    """Whether a layer gathers statistics over samples, so that members must not share it."""
    if "frozen" in type(module).__name__.lower():
        return False
    running = any("running" in name for name, _ in module.named_buffers(recurse=False))
    return running or isinstance(module, nn.modules.batchnorm._BatchNorm)
