import pytest
import torch
from torch import nn
from torch.nn import functional

from bench.flops import count_flops


def forward(model: nn.Module, x: torch.Tensor) -> None:
    model(x)


def train(model: nn.Module, x: torch.Tensor) -> None:
    model(x).sum().backward()


def test_small_net_by_hand():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 4, 3, stride=2),
        nn.Flatten(),
        nn.Linear(36, 5),
    )
    x = torch.zeros(2, 3, 8, 8)
    first = 2 * 2 * (8 * 8) * (8 * 3 * 9)
    second = 2 * 2 * (3 * 3) * (4 * 8 * 9)
    linear = 2 * 2 * 36 * 5
    assert count_flops(net, x, forward) == first + second + linear
    # The image needs no gradient, so the first layer has one backward product, the others have two.
    assert count_flops(net, x, train) == 2 * first + 3 * second + 3 * linear


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_grouped_convolution_costs_its_share(groups):
    net = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, groups=groups, padding=1))
    x = torch.zeros(3, 8, 5, 5)
    pointwise = 2 * 3 * 25 * 8 * 8
    grouped = 2 * 3 * 25 * 8 * (8 // groups) * 9
    assert count_flops(net, x, forward) == pointwise + grouped
    assert count_flops(net, x, train) == 2 * pointwise + 3 * grouped


def test_a_transposed_convolution():
    net = nn.ConvTranspose2d(4, 6, 3, stride=2)
    x = torch.zeros(1, 4, 5, 5)
    forward_flops = 2 * 25 * 4 * 6 * 9
    assert count_flops(net, x, forward) == forward_flops
    assert count_flops(net, x, train) == 2 * forward_flops


def test_the_model_is_left_alone():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    count_flops(net, torch.randn(2, 3, 6, 6), train)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_calls_with_a_loss_and_several_outputs():
    net = nn.Linear(7, 3)

    def step(model: nn.Module, x: torch.Tensor) -> None:
        target = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        functional.cross_entropy(model(x), target).backward()

    assert count_flops(net, torch.zeros(4, 7), step) == 2 * (2 * 4 * 7 * 3)
