"""What all of it is for: a trained network is right less often, the more so with severity."""

import itertools

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.data.corruptions import CORRUPTIONS, corrupt

SIDE, CLASSES = 28, 8


def gratings(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Faint stripes of 4 directions and 2 widths on clouds of random colours, and their class."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.rand(number, *shape, generator=generator)

    labels = torch.arange(number) % CLASSES
    angle = (labels % 4 * torch.pi / 4 + (draw() - 0.5) * 0.2).view(-1, 1, 1)
    period = torch.where(labels < 4, 4.0, 7.0).view(-1, 1, 1)
    places = torch.arange(float(SIDE))
    along = places[:, None] * angle.sin() + places * angle.cos()
    wave = torch.cos(2 * torch.pi * (along / period + draw(1, 1)))[:, None]
    strength = 0.08 * torch.where(draw(1, 1, 1) < 0.5, -1, 1) + 0.1 * (draw(3, 1, 1) - 0.5)
    cloud = functional.interpolate(draw(3, 4, 4), size=(SIDE, SIDE), mode="bicubic") - 0.5
    pixels = 0.25 + 0.5 * draw(3, 1, 1) + 0.2 * cloud + strength * wave
    return (pixels.clamp(0, 1) * 255).round().byte(), labels


def trained_network() -> nn.Module:
    """A small convolutional network that knows the gratings."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2, 2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, 1, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, CLASSES),
        )
        images, labels = gratings(1600, seed=0)
        optimiser = torch.optim.Adam(network.parameters(), 5e-3)
        for _ in range(15):
            for part in torch.randperm(len(images)).split(64):
                optimiser.zero_grad()
                logits = network(images[part].float() / 255 - 0.5)
                functional.cross_entropy(logits, labels[part]).backward()
                optimiser.step()
    return network.eval()


@torch.no_grad()
def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    return float((network(images.float() / 255 - 0.5).argmax(1) == labels).double().mean())


def test_accuracy_falls_with_severity():
    network = trained_network()
    images, labels = gratings(400, seed=1)
    clean = accuracy(network, images, labels)
    assert clean > 0.95
    found = np.array(
        [
            [accuracy(network, corrupt(images, name, s), labels) for s in range(1, 6)]
            for name in CORRUPTIONS
        ]
    )
    means = [clean, *found.mean(axis=0)]
    assert all(a > b for a, b in itertools.pairwise(means)), means
    assert means[5] < clean - 0.1
    worst = dict(zip(CORRUPTIONS, found[:, 4], strict=True))
    # Broad stripes stand compression and coarse pixels.
    spared = {name for name, value in worst.items() if value >= clean}
    assert spared <= {"jpeg_compression", "pixelate"}, worst
