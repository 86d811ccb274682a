"""BatchEnsemble (Wen et al., 2020): the layer, the converter and the network.

Members are folded into the batch, batch-major: row b·M + m of ``[B·M, ...]`` is sample b for
member m.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize

from bench.errors import NotApplicable

_BARE_PROJECTIONS = (nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, nn.Bilinear)


class Rows:
    """Which member each row of the current batch belongs to; a network's layers share one.

    Attributes:
        members: M.
        count: rows of the batch that the network sees.
        assignment: one-hot ``[count, M]``, or None where all members see each sample (batch-major).
    """

    def __init__(self, members: int) -> None:
        self.members = members
        self.count = 0
        self.assignment: Tensor | None = None

    def all_members(self, inputs: Tensor) -> Tensor:
        """Announce and make a batch in which each sample stands once for every member."""
        self.count = len(inputs) * self.members
        self.assignment = None
        return inputs.repeat_interleave(self.members, dim=0)

    def one_member_each(self, inputs: Tensor) -> Tensor:
        """Announce a batch that is dealt out to the members, as evenly as its size allows.

        Members take turns in an order drawn from torch's global generator, so that over many steps
        none gets less than its share, whatever the size of the batch.
        """
        self.count = len(inputs)
        turns = torch.randperm(self.members)[torch.arange(self.count) % self.members]
        one_hot = nn.functional.one_hot(turns, self.members)
        self.assignment = one_hot.to(device=inputs.device, dtype=inputs.dtype)
        return inputs

    def take(self, values: Tensor, rows: int) -> Tensor:
        """Each row's own values.

        Args:
            values: ``[M, C]``, one line a member.
            rows: how many rows the asking layer sees. A multiple of `count` where a network cuts
                each sample into several rows, such as windows.

        Returns:
            ``[rows, C]``.
        """
        if rows % self.count:
            raise NotApplicable(
                "BatchEnsemble needs the batch in the first axis of every layer's input; "
                f"a layer got {rows} rows for a batch of {self.count}"
            )
        if self.assignment is None:
            own = values.repeat(self.count // self.members, 1)
        else:
            # A product with one-hot rows: unlike indexing, its gradient is deterministic on a GPU.
            own = self.assignment.to(values.dtype) @ values
        return own.repeat_interleave(rows // self.count, dim=0)


class RankOne(nn.Module):
    """A convolution or linear layer with weights ``W ∘ (s_m r_mᵀ)`` for member m.

    Computed as ``s_m ∘ layer(r_m ∘ x) + b_m`` (Wen et al., 2020, equation 5), which needs no weight
    per member. Any layer that is linear in its input can be inside: with padding modes, groups or
    dilation, transposed, with normalised weights.

    Args:
        layer: kept, with its weights; its bias becomes the start of every member's bias.
        rows: says which row belongs to which member.
        init: ``random_sign`` draws r and s from {-1, 1}, ``normal`` from N(1, std²).
        std: of ``normal``.

    Shape:
        as `layer`, with the batch first: ``[rows, C_in, ...] -> [rows, C_out, ...]`` for
        convolutions, ``[rows, ..., C_in] -> [rows, ..., C_out]`` for linear layers.
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        layer: _ConvNd | nn.Linear,
        rows: Rows,
        *,
        init: Literal["random_sign", "normal"],
        std: float,
    ) -> None:
        super().__init__()
        if isinstance(layer, nn.Linear):
            widths = layer.in_features, layer.out_features
        else:
            widths = layer.in_channels, layer.out_channels
        self.rows = rows
        self.channels_last = isinstance(layer, nn.Linear)
        members = rows.members
        self.input_factor = nn.Parameter(layer.weight.new_empty(members, widths[0]))
        self.output_factor = nn.Parameter(layer.weight.new_empty(members, widths[1]))
        self.draw(init, std)
        bias = layer.bias
        layer.bias = None
        self.bias = None if bias is None else nn.Parameter(bias.detach().repeat(members, 1))
        self.layer = layer

    def draw(self, init: Literal["random_sign", "normal"], std: float) -> None:
        """Draw the factors; see the class."""
        for factor in (self.input_factor, self.output_factor):
            _draw(factor, init, std)

    def forward(self, inputs: Tensor) -> Tensor:
        """Each row through its member's weights."""
        outputs: Tensor = self.layer(inputs * self._spread(self.input_factor, inputs))
        kind = outputs.dtype
        outputs = outputs * self._spread(self.output_factor, outputs)
        if self.bias is not None:
            outputs = outputs + self._spread(self.bias, outputs)
        # Under autocast the factors are wider than the activations; a plain layer keeps theirs.
        return outputs.to(kind)

    def __getattr__(self, name: str) -> Any:
        """What a network asks of the layer itself: its strides, its kernel's size."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            layer = self.__dict__.get("_modules", {}).get("layer")
            if layer is None or name.startswith("_"):
                raise
            return getattr(layer, name)

    @property
    def weight(self) -> Tensor:
        """Not for use: a network that reads a layer's weight itself would go round the factors.

        Raises:
            NotApplicable: always.
        """
        raise NotApplicable(
            "the network uses the weight of a layer without calling the layer, which BatchEnsemble "
            "can't give members"
        )

    def _spread(self, values: Tensor, like: Tensor) -> Tensor:
        """``[M, C]`` to a shape that broadcasts over `like`."""
        own = self.rows.take(values, len(like))
        ones = (1,) * (like.ndim - 2)
        shape = (*ones, own.shape[1]) if self.channels_last else (own.shape[1], *ones)
        return own.view(len(like), *shape)


class BatchEnsembleNetwork(nn.Module):
    """A backbone whose convolutions and linear layers are `RankOne`.

    Args:
        backbone: ``[B, C, H, W] -> [B, K]``; changed in place.
        members: M.
        init, std: see `RankOne`.
        batch: while training, ``repeat`` shows each sample to every member and ``split`` to one.

    Shape:
        ``[B, C, H, W] -> [B, M, K]``; ``[B, 1, K]`` while training with ``split``.

    Raises:
        NotApplicable: at the first forward pass, where a layer's input does not have the batch
            first or the network uses a layer's weight without calling the layer.
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        members: int,
        init: Literal["random_sign", "normal"],
        std: float,
        batch: Literal["repeat", "split"],
    ) -> None:
        super().__init__()
        self.members = members
        self.batch = batch
        self.rows = Rows(members)
        self.backbone = _converted(backbone, self.rows, init, std, {})

    def forward(self, inputs: Tensor) -> Tensor:
        """Member logits."""
        if self.training and self.batch == "split":
            logits: Tensor = self.backbone(self.rows.one_member_each(inputs))
            return logits.unsqueeze(1)
        logits = self.backbone(self.rows.all_members(inputs))
        return logits.view(len(inputs), self.members, logits.shape[1])


def fast_weights(model: nn.Module) -> list[nn.Parameter]:
    """The factors r and s of all converted layers."""
    layers = [module for module in model.modules() if isinstance(module, RankOne)]
    return [factor for layer in layers for factor in (layer.input_factor, layer.output_factor)]


def obstacle(backbone: nn.Module) -> str | None:
    """Why a backbone can't be converted, naming the layer; None when it can."""
    found = False
    for name, module in backbone.named_modules():
        place = f"layer {name!r} ({type(module).__name__})" if name else type(module).__name__
        if isinstance(module, _BARE_PROJECTIONS):
            return f"{place}: its projections are bare parameters, which BatchEnsemble can't factor"
        if not isinstance(module, _ConvNd | nn.Linear):
            continue
        found = True
        if isinstance(module.weight, UninitializedParameter):
            return f"{place}: its size is unknown before a first forward pass"
        if parametrize.is_parametrized(module, "bias"):
            return (
                f"{place}: its bias is parametrised, which BatchEnsemble can't give to each member"
            )
    return None if found else "the network has no convolution and no linear layer"


def _converted(
    module: nn.Module,
    rows: Rows,
    init: Literal["random_sign", "normal"],
    std: float,
    done: dict[nn.Module, nn.Module],
) -> nn.Module:
    """The module with every convolution and linear layer replaced; a shared one stays shared."""
    if module in done:
        return done[module]
    if isinstance(module, _ConvNd | nn.Linear):
        done[module] = RankOne(module, rows, init=init, std=std)
        return done[module]
    done[module] = module
    # Not named_children(), which leaves out a child's second name.
    for name, child in module._modules.items():
        if child is not None:
            module._modules[name] = _converted(child, rows, init, std, done)
    return module


@torch.no_grad()
def _draw(factor: Tensor, init: Literal["random_sign", "normal"], std: float) -> None:
    if init == "normal":
        factor.normal_(1.0, std)
    else:
        factor.bernoulli_(0.5).mul_(2).sub_(1)
