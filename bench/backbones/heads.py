"""Whether the head of a network with pretrained weights is pretrained too."""

from __future__ import annotations

from torch import nn

_REASON = "bench_fresh_head"


def mark_fresh_head(network: nn.Module, reason: str) -> None:
    """Note on a network with pretrained weights that its head is drawn at random."""
    # A plain attribute: unlike an entry in a table it follows the network when that is copied.
    setattr(network, _REASON, reason)


def fresh_head(network: nn.Module) -> str | None:
    """Why the head of a network with pretrained weights is fresh; None where it is pretrained.

    Args:
        network: what `create_backbone` gave for ``NAME@…``, as `Method.convert` receives it.
    """
    reason: str | None = getattr(network, _REASON, None)
    return reason


def head_names(network: nn.Module, num_classes: int) -> list[str]:
    """The dotted names of the layers that classify.

    timm says so itself; elsewhere it is the last linear layer or convolution with K outputs.
    """
    config = getattr(network, "pretrained_cfg", None)
    if config and config.get("classifier"):
        named = config["classifier"]
        return [named] if isinstance(named, str) else list(named)
    outputs = {
        name: module.out_features if isinstance(module, nn.Linear) else module.out_channels
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d)
    }
    return [name for name, count in outputs.items() if count == num_classes][-1:]
