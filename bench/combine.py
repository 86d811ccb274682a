"""Plain networks in the shape of the contract: alone, or several that answer together."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class OneMember(nn.Module):
    """A plain network, with the member axis.

    Args:
        backbone: ``[B, C, H, W] -> [B, K]``.

    Shape:
        ``[B, C, H, W] -> [B, 1, K]``.
    """

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, inputs: Tensor) -> Tensor:
        """Member logits ``[B, 1, K]``."""
        logits: Tensor = self.backbone(inputs)
        return logits.unsqueeze(1)


class IndependentMembers(nn.Module):
    """M networks, each ``[B, ...] -> [B, 1, K]``, as one model: ``[B, ...] -> [B, M, K]``."""

    def __init__(self, networks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor, members: slice | None = None) -> Tensor:
        """The logits of all members, or of some: ``[B, m, K]``."""
        chosen = self.networks if members is None else self.networks[members]
        return torch.cat([network(x) for network in chosen], dim=1)
