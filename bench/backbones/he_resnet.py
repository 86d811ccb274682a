"""The CIFAR ResNets of He et al. (2016), with shortcuts that have no weights.

"Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2. The names of the layers are
those of the widely used weights of akamaster/pytorch_resnet_cifar10 (Idelbayev, 2018).
"""

from __future__ import annotations

from torch import Tensor, nn, unflatten
from torch.nn import functional

WIDTHS = (16, 32, 64)


class PadShortcut(nn.Module):
    """The shortcut of option A: every second row and column, and new channels of zeros.

    Zeros come equally before and after the old channels, as in the published weights.

    Args:
        before: channels of zeros in front of the old ones of a group.
        after: channels of zeros behind them.
        groups: of channels, each padded by itself.

    Shape:
        ``[B, C, H, W] -> [B, C + groups (before + after), ⌈H/2⌉, ⌈W/2⌉]``.
    """

    def __init__(self, before: int, after: int, groups: int = 1) -> None:
        super().__init__()
        self.before, self.after, self.groups = before, after, groups

    def forward(self, x: Tensor) -> Tensor:
        """Subsample and pad."""
        thin = unflatten(x[:, :, ::2, ::2], 1, (self.groups, -1))
        return functional.pad(thin, (0, 0, 0, 0, self.before, self.after)).flatten(1, 2)

    def extra_repr(self) -> str:
        """The channels of zeros, for printing."""
        return f"before={self.before}, after={self.after}, groups={self.groups}"


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: ``relu(x' + bn2(conv2(relu(bn1(conv1(x))))))``."""

    def __init__(self, inner: int, width: int) -> None:
        super().__init__()
        stride = 1 if inner == width else 2
        self.conv1 = nn.Conv2d(inner, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        new = width - inner
        self.shortcut = PadShortcut(new // 2, new - new // 2) if new else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """``[B, inner, H, W] -> [B, width, H, W]``, halved where the width doubles."""
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return functional.relu(out + self.shortcut(x))


class HeResNet(nn.Module):
    """A CIFAR ResNet of 6n + 2 layers: three stages of n blocks, widths 16, 32 and 64.

    Convolutions and the classifier start as He et al. (2015, "Delving Deep into Rectifiers")
    propose: normal with variance 2 over the number of inputs.

    Args:
        depth: 6n + 2.
        channels: of the images.
        num_classes: K.

    Shape:
        ``[B, channels, H, W] -> [B, K]``.
    """

    def __init__(self, depth: int, channels: int, num_classes: int) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise ValueError(f"depth must be 6n + 2 with n of at least 1, not {depth}")
        first, second, third = WIDTHS
        self.conv1 = nn.Conv2d(channels, first, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        self.layer1 = _stage(blocks, first, first)
        self.layer2 = _stage(blocks, first, second)
        self.layer3 = _stage(blocks, second, third)
        self.linear = nn.Linear(third, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def _stage(blocks: int, inner: int, width: int) -> nn.Sequential:
    widths = [inner] + [width] * (blocks - 1)
    return nn.Sequential(*(BasicBlock(before, width) for before in widths))
