import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.data.augment import AUGMENTATIONS, augment


def images(batch: int, channels: int, height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(batch + height)
    shape = (batch, channels, height, width)
    return torch.randint(1, 256, shape, dtype=torch.uint8, generator=generator)


def moved(image: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """An image with its content moved, pixel by pixel; zeros come in from outside."""
    result = torch.zeros_like(image)
    _, height, width = image.shape
    for y in range(height):
        for x in range(width):
            if 0 <= y - down < height and 0 <= x - right < width:
                result[:, y, x] = image[:, y - down, x - right]
    return result


@settings(max_examples=15, deadline=None)
@given(
    batch=st.integers(1, 5),
    channels=st.sampled_from([1, 3]),
    height=st.integers(3, 18),
    width=st.integers(3, 18),
    name=st.sampled_from(["crop", "shift"]),
    seed=st.integers(0, 99),
)
def test_moves_equal_a_loop_over_pixels(batch, channels, height, width, name, seed):
    x = images(batch, channels, height, width)
    pad_y, pad_x = (max(1, height // 8), max(1, width // 8)) if name == "crop" else (1, 1)
    torch.manual_seed(seed)
    top = torch.randint(2 * pad_y + 1, (batch,))
    left = torch.randint(2 * pad_x + 1, (batch,))
    expected = torch.stack(
        [moved(x[i], pad_y - int(top[i]), pad_x - int(left[i])) for i in range(batch)]
    )
    torch.manual_seed(seed)
    assert torch.equal(augment(x, (name,)), expected)


@pytest.mark.parametrize(("name", "reach"), [("crop", 2), ("shift", 1)])
def test_every_move_occurs_about_equally_often(name, reach):
    x = torch.zeros(5000, 1, 16, 16, dtype=torch.uint8)
    x[:, 0, 8, 8] = 255
    torch.manual_seed(0)
    places = augment(x, (name,)).flatten(1).argmax(1)
    counts = torch.bincount(places, minlength=256).view(16, 16)
    inner = counts[8 - reach : 9 + reach, 8 - reach : 9 + reach]
    assert int(inner.sum()) == len(x)
    expected = len(x) / (2 * reach + 1) ** 2
    assert float((inner - expected).abs().max()) < 5 * expected**0.5


def test_flip_mirrors_whole_samples_half_of_the_time():
    x = images(2000, 3, 4, 6)
    torch.manual_seed(0)
    result = augment(x, ("flip",))
    same = (result == x).flatten(1).all(1)
    mirrored = (result == x.flip(3)).flatten(1).all(1)
    assert bool((same | mirrored).all())
    assert 900 < int(mirrored.sum()) < 1100


def test_augmentations_come_one_after_the_other():
    x = images(6, 3, 8, 8)
    torch.manual_seed(1)
    expected = augment(augment(x, ("flip",)), ("crop",))
    torch.manual_seed(1)
    assert torch.equal(augment(x, ("flip", "crop")), expected)
    torch.manual_seed(1)
    assert not torch.equal(augment(x, ("crop", "flip")), expected)


@pytest.mark.parametrize("names", [(), *[(name,) for name in AUGMENTATIONS]])
def test_the_input_stays_as_it_is(names):
    x = images(7, 3, 9, 5)
    before = x.clone()
    result = augment(x, names)
    assert torch.equal(x, before)
    assert (result.shape, result.dtype) == (x.shape, torch.uint8)


def test_samples_of_a_batch_draw_for_themselves():
    x = images(1, 1, 16, 16).expand(64, 1, 16, 16)
    torch.manual_seed(0)
    assert len(torch.unique(augment(x, ("crop",)), dim=0)) > 10


def test_unknown_name():
    with pytest.raises(ValueError, match="rotate"):
        augment(images(1, 1, 4, 4), ("rotate",))
