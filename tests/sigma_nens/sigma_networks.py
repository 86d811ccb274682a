"""Small networks and helpers that several tests share."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

MakeNorm = Callable[[int], nn.Module]


class SmallResNet(nn.Module):
    """Two residual blocks with normalisation layers, one with a shortcut convolution."""

    def __init__(self, norm: MakeNorm = nn.BatchNorm2d, width: int = 6, classes: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), norm(width))
        self.body = nn.ModuleList(self._block(norm, width) for _ in range(2))
        self.shortcut = nn.Sequential(nn.Conv2d(width, width, 1, bias=False), norm(width))
        self.fc = nn.Linear(width, classes)

    @staticmethod
    def _block(norm: MakeNorm, width: int) -> nn.Module:
        first, second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        return nn.Sequential(first, norm(width), nn.ReLU(), second, norm(width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = (self.body[0](x) + x).relu()
        x = (self.body[1](x) + self.shortcut(x)).relu()
        return self.fc(x.mean(dim=(2, 3)))


def sum_of_losses(logits: Tensor, target: Tensor) -> Tensor:
    """The sum over members of the mean cross-entropy."""
    per_member = [functional.cross_entropy(logits[:, t], target) for t in range(logits.shape[1])]
    return torch.stack(per_member).sum()


def shake(module: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter and running statistic a value of its own, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if value.is_floating_point() and not name.endswith("gain"):
                noise = torch.rand(value.shape, generator=generator, dtype=value.dtype)
                is_variance = name.endswith("running_var")
                value.copy_(0.5 + noise if is_variance else value + 0.4 * (noise - 0.5))
    return module
