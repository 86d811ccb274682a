"""Floating-point operations of a forward pass or of a whole training step.

Counted are the multiplications and additions of convolutions, matrix products and attention, as
``torch.utils.flop_counter`` does (2 FLOPs a multiply-add); element-wise work is not. Counting runs
on the ``meta`` device: the real model and the real shapes, but no arithmetic and no memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

Shape = list[int]


def _convolution_backward(
    grad_shape: Shape,
    x_shape: Shape,
    w_shape: Shape,
    _bias: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,
    _output_padding: Any,
    _groups: int,
    output_mask: list[bool],
    **_: Any,
) -> int:
    """The gradients of input and weight each cost what the forward pass costs.

    PyTorch's own formula forgets the groups in the weight's gradient: with G groups it counts that
    part G times, which would charge a packed ensemble for work it never does.
    """
    positions = prod((x_shape if transposed else grad_shape)[2:])
    forward = 2 * x_shape[0] * positions * prod(w_shape)
    return forward * (int(output_mask[0]) + int(output_mask[1]))


def count_flops(model: nn.Module, batch: Tensor, call: Callable[[nn.Module, Tensor], Any]) -> int:
    """FLOPs of ``call(model, batch)``, where the call may also run a backward pass.

    Args:
        model: left untouched; a copy without storage is used.
        batch: only its shape and type matter.
        call: what is counted.
    """
    ghost = copy.deepcopy(model).to("meta")
    mapping = {torch.ops.aten.convolution_backward: _convolution_backward}
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        call(ghost, batch.to("meta"))
    return int(counter.get_total_flops())
