"""What a plain network does with an image: which layers see it, which one answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bench.errors import NotApplicable

_SIZES = (32, 64, 128, 224, 299, 28, 16, 8)
"""Heights and widths tried, in this order: the first that the network takes."""


@dataclass(frozen=True)
class Trace:
    """One forward pass in evaluation mode.

    Attributes:
        image: the batch it was made with, ``[2, C, S, S]``.
        first: convolutions and linear layers that see the image itself.
        last: the convolution or linear layer that runs last.
        used: all modules that ran.
        classes: K, the width of the output.
    """

    image: Tensor
    first: frozenset[nn.Module]
    last: nn.Module
    used: frozenset[nn.Module]
    classes: int


def trace(network: nn.Module) -> Trace:
    """Run a network on a blank image and note what happens.

    Raises:
        NotApplicable: it has no convolution, no size of image passes, or it does not answer with
            one vector a sample.
    """
    stem = next((m for m in network.modules() if isinstance(m, nn.Conv2d)), None)
    if stem is None:
        raise NotApplicable("the network has no 2-D convolution")
    failure: Exception | None = None
    for size in _SIZES:
        image = torch.zeros(2, stem.in_channels, size, size, dtype=stem.weight.dtype)
        try:
            return _trace(network, image.to(stem.weight.device))
        except (RuntimeError, ValueError, AssertionError, TypeError) as error:
            failure = failure or error
    line = " ".join(str(failure).split())
    raise NotApplicable(f"no blank image of {list(_SIZES)} pixels passes the network: {line}")


def _trace(network: nn.Module, image: Tensor) -> Trace:
    calls: list[tuple[nn.Module, bool]] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        calls.append((module, bool(inputs) and inputs[0] is image))

    hooks = [module.register_forward_pre_hook(note) for module in network.modules()]
    try:
        with evaluating(network):
            output = network(image)
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != len(image):
        raise NotApplicable("the network does not answer with one vector of logits a sample")
    layers = [(m, sees) for m, sees in calls if isinstance(m, nn.Conv2d | nn.Linear)]
    first = {module for module, sees in layers if sees} or {layers[0][0]}
    return Trace(
        image=image,
        first=frozenset(first),
        last=layers[-1][0],
        used=frozenset(module for module, _ in calls),
        classes=output.shape[1],
    )


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module gets its own mode back."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def changed_outputs(modules: list[nn.Module], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace the modules' outputs while the context lasts."""
    hooks = [
        module.register_forward_hook(lambda _module, _inputs, output: change(output))
        for module in modules
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
