"""Per-member normalisation: each member's own statistics and affine map."""

from __future__ import annotations

import copy
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from sigma_nens.context import MemberContext
from sigma_nens.kinds import NormSpec, norm_spec
from sigma_nens.plain import STATISTICS, filled, like, normal_like, template, values

Affine = Literal["none", "bias", "full"]


class MemberNorm(nn.Module):
    r"""A normalisation layer with statistics and an unbounded affine map for each member.

    For member t of M, with scale ``w_t`` and shift ``b_t``:

    .. math:: y = w_t \odot \mathrm{norm}_t(x) + b_t

    A BatchNorm takes its statistics over that member's batch only and keeps running statistics for
    each member; LayerNorm, GroupNorm and RMSNorm take them per sample, as usual. Members lie in the
    batch, batch-major: row ``b * m + t`` is sample b of active member t. For BatchNorm the same
    memory seen as ``[B, m * C, ...]`` gives all members' statistics in one native call. (Input in
    the channels-last memory format is copied for that.)

    With ``affine="full"`` this is the layer of FiLM-Ensemble (Turkoglu et al., 2022), σN-Ens
    without its gates.

    Shape:
        - input: ``[B * m, C, ...]``, or ``[B * m, ..., C]`` for LayerNorm and RMSNorm. Layers with
          statistics per sample also take ``[B * m * r, ...]`` with the r rows of one sample and
          member next to each other, as in the windows of a Swin transformer.
        - output: the same.

    Args:
        norm: the plain layer: BatchNorm1d/2d/3d, LayerNorm, GroupNorm or RMSNorm of `torch.nn`, or
            timm's LayerNorm, LayerNorm2d, GroupNorm, GroupNorm1, BatchNormAct2d, or torchvision's
            LayerNorm2d. Its values are copied; it isn't changed.
        members: M.
        affine: which part of the affine map each member trains: ``"full"`` (scale, and a shift
            where the plain layer has one), ``"bias"`` (the shift alone) or ``"none"``.
        pretrained: keep what `affine` doesn't train as a constant. Otherwise it is dropped.
        std: standard deviation of a normal draw added to each member's scale and shift.
        generator: where the draw comes from; None for torch's global one.

    Attributes:
        weight: scales ``[M, C]``, or None.
        bias: shifts ``[M, C]``, or None.
        running_mean: ``[M, C]``, or None.
        running_var: ``[M, C]``, or None.
        num_batches_tracked: ``[M]``, or None.

    Raises:
        UnsupportedModuleError: if `norm` is of another type, subclasses too.

    Examples:
        >>> import torch
        >>> layer = MemberNorm(torch.nn.BatchNorm2d(8), members=4)
        >>> layer(torch.randn(2 * 4, 8, 5, 5)).shape
        torch.Size([8, 8, 5, 5])
        >>> layer.weight.shape, layer.running_mean.shape
        (torch.Size([4, 8]), torch.Size([4, 8]))
    """

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        norm: nn.Module,
        members: int,
        *,
        affine: Affine = "full",
        pretrained: bool = False,
        std: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if affine not in get_args(Affine):
            raise ValueError(f"affine must be one of {', '.join(get_args(Affine))}, got {affine!r}")
        if std < 0:
            raise ValueError(f"std must be at least 0, got {std}")
        self.spec: NormSpec = norm_spec(norm)
        self.context = MemberContext(members)
        self.members = members
        self.features = torch.Size(self.spec.shape).numel()
        self.affine: Affine = affine
        self.label = type(norm).__name__
        self._register_affine(norm, affine, pretrained, std, generator)
        self._register_statistics(norm)
        if self.spec.fused:
            self.drop = cast(nn.Module, norm.drop)
            self.act = cast(nn.Module, norm.act)
        # Wrapped in a tuple: no child, and so no part of the state.
        self._template = (template(norm),)
        self.train(norm.training)

    def _register_affine(
        self,
        norm: nn.Module,
        affine: Affine,
        pretrained: bool,
        std: float,
        generator: torch.Generator | None,
    ) -> None:
        weight, bias = values(norm, "weight"), values(norm, "bias")
        if affine == "full" and weight is None:
            weight = like(norm).new_ones(self.spec.shape)
        trained = {"weight": affine == "full", "bias": affine != "none"}
        for name, value in (("weight", weight), ("bias", bias)):
            if value is None or not (trained[name] or pretrained):
                self.register_parameter(name, None)
                continue
            initial = value.detach().reshape(1, -1).repeat(self.members, 1)
            if not trained[name]:
                self.register_buffer(name, initial)
                continue
            if std:
                initial = initial + std * normal_like(initial, generator)
            self.register_parameter(name, nn.Parameter(initial))

    def _register_statistics(self, norm: nn.Module) -> None:
        for name in STATISTICS:
            value = values(norm, name) if self.spec.tracked else None
            if value is not None:
                repeats = (self.members,) + (1,) * value.ndim
                value = value.detach().unsqueeze(0).repeat(repeats)
            self.register_buffer(name, value)

    def scale(self, start: int, stop: int) -> Tensor | None:
        """The scales of members start to stop ``[stop - start, C]``, or None where they are 1."""
        return self._rows(self.weight, start, stop)

    def shift(self, start: int, stop: int) -> Tensor | None:
        """The shifts of members start to stop ``[stop - start, C]``, or None where they are 0."""
        return self._rows(self.bias, start, stop)

    def _rows(self, values: Tensor | None, start: int, stop: int) -> Tensor | None:
        if values is None or stop - start == self.members:
            return values
        return values[start:stop]

    def _active(self, values: Tensor | None) -> Tensor | None:
        return self._rows(values, self.context.start, self.context.stop)

    def _active_affine(self) -> tuple[Tensor | None, Tensor | None]:
        start, stop = self.context.start, self.context.stop
        return self.scale(start, stop), self.shift(start, stop)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise a folded batch; see the class for the shapes.

        Raises:
            ValueError: if the input can't be a folded batch for this layer; the message names it.
        """
        self.spec.check(x, self.label)
        if self.spec.kind != "batch":
            return self._per_sample(x)
        y = self._per_batch(x)
        return cast(Tensor, self.act(self.drop(y))) if self.spec.fused else y

    def _per_batch(self, x: Tensor) -> Tensor:
        members = self.context.active
        batch = self.context.samples(x.shape[0], self.label)
        if x.shape[0] != batch * members:
            raise ValueError(
                f"{self.label}: expected {batch} samples × {members} members on dimension 0, got "
                f"{x.shape[0]} rows; a BatchNorm can't tell which rows form one member's batch"
            )
        scale, shift = self._active_affine()
        mean, var, momentum = self._statistics()
        y = functional.batch_norm(
            x.reshape(batch, members * self.features, *x.shape[2:]),
            mean,
            var,
            None if scale is None else scale.reshape(-1),
            None if shift is None else shift.reshape(-1),
            self.training or not self.spec.tracked,
            momentum,
            self.spec.eps or 0.0,
        )
        if self.training and mean is not None and var is not None and self.spec.momentum is None:
            self._cumulate(mean, var)
        return y.reshape(x.shape)

    def _statistics(self) -> tuple[Tensor | None, Tensor | None, float]:
        """What the native call reads, or writes to, and how fast it forgets."""
        mean, var = self._active(self.running_mean), self._active(self.running_var)
        if mean is None or var is None:
            return None, None, 0.0
        # Views, so that the native call updates the buffers themselves.
        mean, var = mean.view(-1), var.view(-1)
        if not self.training:
            return mean, var, 0.0
        counts = self._active(self.num_batches_tracked)
        if counts is not None:
            counts.add_(1)
        if self.spec.momentum is None:
            # Members may have seen different numbers of batches: take this batch's values alone.
            return torch.zeros_like(mean), torch.zeros_like(var), 1.0
        return mean, var, self.spec.momentum

    def _cumulate(self, mean: Tensor, var: Tensor) -> None:
        """Take this batch's statistics into the cumulative mean over batches."""
        counts = cast(Tensor, self._active(self.num_batches_tracked)).unsqueeze(1)
        for name, value in (("running_mean", mean), ("running_var", var)):
            running = cast(Tensor, self._active(getattr(self, name)))
            running.add_((value.view_as(running) - running) / counts)

    def _per_sample(self, x: Tensor) -> Tensor:
        rows, batch = x.shape[0], self.context.samples(x.shape[0], self.label)
        if self.spec.kind == "group" and rows == batch * self.context.active:
            return self._per_group(x, batch)
        y = self._normalised(x.permute(0, 2, 3, 1) if self.spec.permuted else x)
        scale, shift = (self._by_row(v, batch, y) for v in self._active_affine())
        kind = y.dtype
        if scale is not None:
            y = y * scale if shift is None else torch.addcmul(shift, y, scale)
        elif shift is not None:
            y = y + shift
        # Under autocast the affine map is wider than the activations; a plain layer keeps theirs.
        y = y.to(kind)
        return y.permute(0, 3, 1, 2) if self.spec.permuted else y

    def _per_group(self, x: Tensor, batch: int) -> Tensor:
        """GroupNorm of all members in one native call, with their channels side by side."""
        members, (scale, shift) = self.context.active, self._active_affine()
        y = functional.group_norm(
            x.reshape(batch, members * self.features, *x.shape[2:]),
            members * self.spec.groups,
            None if scale is None else scale.reshape(-1),
            None if shift is None else shift.reshape(-1),
            self.spec.eps or 0.0,
        )
        return y.reshape(x.shape)

    def _normalised(self, x: Tensor) -> Tensor:
        spec = self.spec
        if spec.kind == "group":
            return functional.group_norm(x, spec.groups, eps=spec.eps or 0.0)
        if spec.kind == "rms":
            return functional.rms_norm(x, list(spec.shape), eps=spec.eps)
        return functional.layer_norm(x, list(spec.shape), eps=spec.eps or 0.0)

    def _by_row(self, values: Tensor | None, batch: int, like: Tensor) -> Tensor | None:
        """``[m, C]`` repeated for each row of the input, and shaped to meet it.

        The repetition is small, and makes the gradient sum each row first, which is much faster
        than one reduction over samples and positions.
        """
        if values is None:
            return None
        members, features = values.shape
        repeats = like.shape[0] // (batch * members)
        rows = values.view(1, members, 1, features).expand(batch, members, repeats, features)
        ones = (1,) * (like.ndim - 1 - len(self.spec.shape))
        if self.spec.channels_last:
            return rows.reshape(-1, *ones, *self.spec.shape)
        return rows.reshape(-1, *self.spec.shape, *ones)

    @torch.no_grad()
    def plain(self, member: int) -> nn.Module:
        """A plain layer of the original type that computes what one member computes.

        Args:
            member: which one, in ``[0, M)``.

        Returns:
            a layer that shares no value with this one.
        """
        if not 0 <= member < self.members:
            raise IndexError(f"member must be in [0, {self.members}), got {member}")
        scale, shift = self.scale(member, member + 1), self.shift(member, member + 1)
        buffers = {name: getattr(self, name) for name in STATISTICS}
        statistics = {name: value[member] for name, value in buffers.items() if value is not None}
        norm = filled(self._template[0], scale, shift, statistics, self.spec.shape)
        if self.spec.fused:
            norm.drop, norm.act = copy.deepcopy(self.drop), copy.deepcopy(self.act)
        return norm.train(self.training)

    def extra_repr(self) -> str:
        """Type, members, features and affine, for printing."""
        return (
            f"{self.label}, members={self.members}, features={self.features}, affine={self.affine}"
        )
