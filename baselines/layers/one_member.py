"""A network as an ensemble of one."""

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
