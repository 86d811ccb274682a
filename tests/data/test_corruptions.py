import colorsys
import io
import itertools
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from sklearn.datasets import load_sample_images
from torch.nn import functional

from bench.data import pixels, pixels_weather
from bench.data.catalogue import DigitsCorruption, GeneratedCorruption, PublishedCorruption
from bench.data.corruptions import CORRUPTIONS, corrupt
from bench.data.digits import CORRUPTIONS as DIGITS_CORRUPTIONS

NAMES = tuple(CORRUPTIONS)

STEADY = tuple(
    name
    for name in NAMES
    if name not in ("glass_blur", "saturate", "spatter", "frost", "elastic_transform")
)
"""Those whose distance from the clean image grows at every step."""

TINY_IMAGENET = {
    "gaussian_noise": (0.04, 0.08, 0.12, 0.15, 0.18),
    "shot_noise": (250, 100, 50, 30, 15),
    "impulse_noise": (0.01, 0.02, 0.05, 0.08, 0.14),
    "gaussian_blur": (0.5, 0.75, 1, 1.25, 1.5),
    "defocus_blur": (0.5, 1, 1.5, 2.5, 3),
    "jpeg_compression": (65, 58, 50, 40, 25),
}
"""Constants of Tiny-ImageNet-C, 64 pixels, which the interpolation does not know."""


def photographs(side: int, number: int = 12, channels: int = 3) -> torch.Tensor:
    """Crops of the two photographs that scikit-learn ships, uint8 [N, C, side, side]."""
    crops = []
    for photo in load_sample_images().images:
        x = torch.from_numpy(photo.copy()).permute(2, 0, 1)
        crops += [x[:, a : a + 224, b : b + 224] for a in (0, 100, 200) for b in (0, 200, 400)]
    chosen = torch.stack(crops)[:: max(1, len(crops) // number)].float()
    small = functional.interpolate(chosen, size=(side, side), mode="bilinear", antialias=True)
    return (small.mean(1, keepdim=True) if channels == 1 else small).round().byte()


def generators(number: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng(seed + i) for i in range(number)]


def as_floats(images: torch.Tensor) -> np.ndarray:
    return images.numpy().astype(np.float32) / 255


def test_the_names_of_the_catalogue_are_those_that_can_be_made():
    assert set(get_args(GeneratedCorruption)) == set(CORRUPTIONS)
    assert set(get_args(DigitsCorruption)) == set(DIGITS_CORRUPTIONS)
    assert set(CORRUPTIONS) == set(get_args(PublishedCorruption))
    assert len(CORRUPTIONS) == 19


def distances(corruption: str, side: int, channels: int = 3) -> list[float]:
    """Mean absolute distance from the clean images at severity 1 to 5."""
    # Fogs and snows differ much from image to image: their mean needs more of them.
    few = side == 224 and corruption not in ("fog", "snow")
    x = photographs(side, 6 if few else 18, channels)
    results = [corrupt(x, corruption, severity) for severity in range(1, 6)]
    assert all(y.dtype == torch.uint8 and y.shape == x.shape for y in results)
    return [float((y.float() - x.float()).abs().mean()) for y in results]


@pytest.mark.parametrize("corruption", STEADY)
@pytest.mark.parametrize(("side", "channels"), [(28, 1), (32, 3), (64, 3), (128, 3), (224, 3)])
def test_distance_grows_with_severity(corruption, side, channels):
    found = distances(corruption, side, channels)
    assert found[0] > 0.2
    assert all(a < b for a, b in itertools.pairwise(found)), found


@pytest.mark.parametrize(("side", "channels"), [(28, 3), (32, 3), (32, 1), (64, 3), (224, 3)])
def test_distance_where_severity_is_another_thing(side, channels):
    glass = distances("glass_blur", side, channels)
    assert 2 < max(glass[:2]) < min(glass[3:])
    spatter = distances("spatter", side, channels)
    assert 0.2 < spatter[0] < spatter[1] < spatter[2]
    assert spatter[3] < spatter[4]
    if channels == 3:
        saturate = distances("saturate", side)
        assert 5 < saturate[0] < saturate[1]
        assert saturate[2] < saturate[3] < saturate[4]


@pytest.mark.parametrize("side", [28, 32, 64, 128, 224])
def test_frost_hides_more_with_severity(side):
    x = as_floats(photographs(side, 18))
    clean = x.reshape(18, -1)
    found = []
    for severity in range(1, 6):
        # The same ice each time: severities 3 and 4 differ less than two drawings do.
        strength = CORRUPTIONS["frost"].strength(severity, side)
        frozen = np.clip(pixels_weather.frost(x, strength, generators(18)), 0, 1).reshape(18, -1)
        found.append([np.corrcoef(a, b)[0, 1] for a, b in zip(clean, frozen, strict=True)])
    means = [1 - np.mean(one) for one in found]
    assert means[0] > 0.005
    assert all(a < b for a, b in itertools.pairwise(means)), means


@pytest.mark.parametrize("corruption", NAMES)
def test_an_image_is_corrupted_alike_alone_and_in_a_set(corruption):
    x = photographs(32, 18).repeat(7, 1, 1, 1)
    whole = corrupt(x, corruption, 3)
    assert torch.equal(corrupt(x[:5], corruption, 3), whole[:5])
    assert torch.equal(corrupt(x[90:93], corruption, 3, start=90), whole[90:93])
    other = x.clone()
    other[0] = 255 - other[0]
    assert torch.equal(corrupt(other, corruption, 3)[1:], whole[1:])


@pytest.mark.parametrize("corruption", NAMES)
def test_repeats_are_equal_and_global_generators_have_no_part(corruption):
    x = photographs(32, 4)
    before = x.clone()
    first = corrupt(x, corruption, 4)
    np.random.seed(1)
    torch.manual_seed(1)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        second = corrupt(x, corruption, 4)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(first, second)
    assert torch.equal(x, before)
    assert torch.equal(states[0], torch.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])


@pytest.mark.parametrize(
    "corruption",
    [
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "speckle_noise",
        "glass_blur",
        "motion_blur",
        "snow",
        "frost",
        "fog",
        "elastic_transform",
        "spatter",
    ],
)
def test_random_numbers_differ_between_images_seeds_and_severities(corruption):
    x = photographs(32, 1)[:1].repeat(2, 1, 1, 1)
    first = corrupt(x, corruption, 5)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, corrupt(x, corruption, 5, seed=1))


@pytest.mark.parametrize("corruption", NAMES)
def test_images_need_not_be_square(corruption):
    x = photographs(64, 2)[:, :, :40, :]
    result = corrupt(x, corruption, 5)
    assert (result.shape, result.dtype) == (x.shape, torch.uint8)
    assert not torch.equal(result, x)


@pytest.mark.parametrize(
    ("corruption", "severity", "side", "message"),
    [
        ("rain", 1, 32, "rain"),
        ("fog", 0, 32, "1 to 5"),
        ("fog", 6, 32, "1 to 5"),
        ("fog", 1, 27, "28"),
    ],
)
def test_refusals(corruption, severity, side, message):
    with pytest.raises(ValueError, match=message):
        corrupt(torch.zeros(1, 3, side, side, dtype=torch.uint8), corruption, severity)


def test_an_empty_set_stays_empty():
    assert corrupt(torch.zeros(0, 3, 32, 32, dtype=torch.uint8), "fog", 1).shape == (0, 3, 32, 32)


def test_grey_images_have_no_colour_to_change():
    with pytest.raises(ValueError, match="saturate needs colour images"):
        corrupt(torch.zeros(1, 1, 32, 32, dtype=torch.uint8), "saturate", 1)


def test_constants_of_small_and_large_images():
    for corruption in CORRUPTIONS.values():
        for severity in range(1, 6):
            assert corruption.strength(severity, 32) == corruption.cifar[severity - 1]
            assert corruption.strength(severity, 224) == corruption.imagenet[severity - 1]
    blur = CORRUPTIONS["gaussian_blur"]
    assert [blur.strength(s, 32) for s in range(1, 6)] == [0.4, 0.6, 0.7, 0.8, 1.0]
    assert [blur.strength(s, 224) for s in range(1, 6)] == [1, 2, 3, 4, 6]


def test_constants_between_and_beyond():
    # Half-way between 32 and 224 in ratio lies their geometric mean.
    middle = round((32 * 224) ** 0.5)
    assert CORRUPTIONS["gaussian_blur"].strength(5, middle) == pytest.approx(6**0.5, rel=0.01)
    saturate = CORRUPTIONS["saturate"].strength(4, middle)
    assert saturate == (pytest.approx(10**0.5, rel=0.01), 0.1)
    field = CORRUPTIONS["elastic_transform"].strength(1, middle)
    assert field[0] == pytest.approx(244, rel=0.01)
    assert CORRUPTIONS["motion_blur"].strength(1, 28) == (10.5, 0.875)
    assert CORRUPTIONS["gaussian_noise"].strength(3, 28) == 0.08
    assert CORRUPTIONS["gaussian_blur"].strength(1, 448) == 2


@pytest.mark.parametrize("corruption", TINY_IMAGENET)
def test_constants_at_64_pixels_are_about_those_of_tiny_imagenet_c(corruption):
    expected = TINY_IMAGENET[corruption]
    found = [CORRUPTIONS[corruption].strength(s, 64) for s in range(1, 6)]
    ratios = np.log(found) - np.log(expected)
    assert np.abs(ratios).max() < np.log(2)
    assert np.abs(ratios.mean()) < np.log(1.5)


def test_noise_has_the_stated_size():
    x = np.full((50, 3, 32, 32), 0.4, dtype=np.float32)
    draws = generators(50)
    assert np.std(pixels.gaussian_noise(x, 0.1, draws) - x) == pytest.approx(0.1, rel=0.01)
    assert np.std(pixels.speckle_noise(x, 0.1, draws) - x) == pytest.approx(0.04, rel=0.01)
    shot = pixels.shot_noise(x, 50, draws)
    assert shot.mean() == pytest.approx(0.4, rel=0.01)
    assert shot.var() == pytest.approx(0.4 / 50, rel=0.02)
    impulse = pixels.impulse_noise(x, 0.2, draws)
    for value, share in ((0, 0.1), (1, 0.1), (np.float32(0.4), 0.8)):
        assert np.mean(impulse == value) == pytest.approx(share, abs=0.003)


@pytest.mark.parametrize("strength", [(0.3, 0), (1.5, 0), (2.5, 0.2), (20, 0.2)])
def test_saturate_against_colorsys(strength):
    x = as_floats(photographs(28, 1)[:1])
    x[0, :, 0, :3] = [[0, 0.5, 1]] * 3
    result = pixels.saturate(x, strength, generators(1))
    for row, column in itertools.product(range(28), range(28)):
        hue, saturation, value = colorsys.rgb_to_hsv(*x[0, :, row, column].astype(float))
        changed = min(1, max(0, saturation * strength[0] + strength[1]))
        expected = colorsys.hsv_to_rgb(hue, changed, value)
        assert result[0, :, row, column] == pytest.approx(expected, abs=1e-5)


def test_brightness_against_colorsys():
    x = as_floats(photographs(28, 1)[:1])
    x[0, :, 0, 0] = 0
    result = pixels.brightness(x, 0.2, generators(1))
    for row in range(28):
        for column in range(28):
            hue, saturation, value = colorsys.rgb_to_hsv(*x[0, :, row, column].astype(float))
            expected = colorsys.hsv_to_rgb(hue, saturation, min(1, value + 0.2))
            assert result[0, :, row, column] == pytest.approx(expected, abs=1e-5)


def test_contrast_against_a_float64_loop():
    x = as_floats(photographs(32, 3))
    result = pixels.contrast(x, 0.3, generators(3))
    for image, changed in zip(x.astype(np.float64), result, strict=True):
        for channel in range(3):
            mean = image[channel].mean()
            assert np.allclose(changed[channel], mean + 0.3 * (image[channel] - mean), atol=1e-6)


def test_gaussian_blur_against_a_float64_sum():
    x = as_floats(photographs(28, 1)[:1])
    sigma, reach = 0.8, 3
    steps = np.arange(-reach, reach + 1)
    kernel = np.exp(-(steps**2) / (2 * sigma**2))
    kernel /= kernel.sum()
    padded = np.pad(x[0, 0].astype(np.float64), reach, mode="edge")
    expected = sum(
        kernel[i] * kernel[j] * padded[i : i + 28, j : j + 28]
        for i in range(2 * reach + 1)
        for j in range(2 * reach + 1)
    )
    assert np.allclose(pixels.gaussian_blur(x, sigma, generators(1))[0, 0], expected, atol=1e-5)


def test_defocus_blur_against_scipy():
    x = as_floats(photographs(48, 2))
    result = pixels.defocus_blur(x, 2.3, generators(2))
    kernel = pixels.disc(2.3).astype(np.float64)
    expected = ndimage.correlate(x.astype(np.float64), kernel[None, None], mode="mirror")
    assert np.allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize("radius", [0.5, 1.0, 2.7, 6.0])
def test_discs_have_sum_1_symmetry_and_the_width_of_the_disc(radius):
    kernel = pixels.disc(radius).astype(np.float64)
    assert kernel.sum() == pytest.approx(1, abs=1e-6)
    assert np.allclose(kernel, kernel.T, atol=1e-7)
    assert np.allclose(kernel, kernel[::-1], atol=1e-7)
    steps = np.arange(len(kernel)) - len(kernel) // 2
    variance = (kernel.sum(0) * steps**2).sum()
    if radius > 2:
        # A disc, averaged over a pixel, and what the soft edge adds.
        assert variance == pytest.approx(radius**2 / 4 + 1 / 12 + 0.08, rel=0.03)


def test_streaks_run_from_the_centre_in_their_direction():
    for degrees in (-45.0, 0.0, 30.0):
        kernel = pixels.streak(12, 3.0, degrees).astype(np.float64)
        steps = np.arange(13)
        weights = np.exp(-(steps**2) / 18)
        mean = (weights * steps).sum() / weights.sum()
        places = np.arange(len(kernel)) - len(kernel) // 2
        assert kernel.sum() == pytest.approx(1, abs=1e-6)
        down, right = (kernel.sum(1) * places).sum(), (kernel.sum(0) * places).sum()
        assert down == pytest.approx(mean * np.sin(np.radians(degrees)), abs=0.01)
        assert right == pytest.approx(mean * np.cos(np.radians(degrees)), abs=0.01)


def test_zoom_against_scipy():
    x = as_floats(photographs(33, 1)[:1])
    for factor in (1.0, 1.05, 1.3):
        axis = 16 + (np.arange(33) - 16) / factor
        places = np.stack(np.meshgrid(axis, axis, indexing="ij"))
        expected = [ndimage.map_coordinates(c.astype(np.float64), places, order=1) for c in x[0]]
        assert np.allclose(pixels.zoom(x, factor)[0], expected, atol=1e-5)


def test_zoom_blur_is_the_average_of_the_image_and_its_zooms():
    x = as_floats(photographs(32, 1)[:1])
    zooms = [x] + [pixels.zoom(x, factor) for factor in (1.0, 1.05, 1.1)]
    expected = np.mean(zooms, axis=0)
    assert np.allclose(pixels.zoom_blur(x, (1.1, 3), generators(1)), expected, atol=1e-6)


def test_plasma_against_a_loop():
    size, decay = 8, 2.0
    draws = np.random.default_rng(0).uniform(-1, 1, (2, size * size))
    result = pixels.plasma(draws, size, decay)
    for k in range(2):
        numbers = iter(draws[k])
        height = np.zeros((size, size))
        step, noise = size, 1.0
        while step >= 2:
            half, corners = step // 2, range(0, size, step)
            at = lambda y, x: height[y % size, x % size]  # noqa: B023, E731
            for y in corners:
                for x in corners:
                    near = at(y, x) + at(y + step, x) + at(y, x + step) + at(y + step, x + step)
                    height[y + half, x + half] = near / 4 + noise * next(numbers)
            changed = {}
            for dy, dx in ((0, half), (half, 0)):
                for y in corners:
                    for x in corners:
                        v, u = y + dy, x + dx
                        near = at(v - half, u) + at(v + half, u) + at(v, u - half) + at(v, u + half)
                        changed[v, u] = near / 4 + noise * next(numbers)
            for place, value in changed.items():
                height[place] = value
            step, noise = half, noise / decay**2
        expected = (height - height.min()) / (height.max() - height.min())
        assert np.allclose(result[k], expected, atol=1e-6)


def test_fog_leaves_the_brightest_value_and_a_black_image():
    x = as_floats(photographs(32, 2))
    foggy = pixels.fog(x, (1.0, 2), generators(len(x)))
    assert (foggy.max(axis=(1, 2, 3)) <= x.max(axis=(1, 2, 3)) + 1e-6).all()
    assert not pixels.fog(np.zeros_like(x), (1.0, 2), generators(len(x))).any()


@pytest.mark.parametrize("channels", [1, 3])
def test_pixelate_and_jpeg_against_pillow(channels):
    x = photographs(32, 2, channels)
    for image, coarse, decoded in zip(
        x, corrupt(x, "pixelate", 5), corrupt(x, "jpeg_compression", 5), strict=True
    ):
        array = image[0].numpy() if channels == 1 else image.permute(1, 2, 0).numpy()
        picture = Image.fromarray(np.ascontiguousarray(array))
        small = picture.resize((20, 20), Image.Resampling.BOX)
        expected = np.asarray(small.resize((32, 32), Image.Resampling.BOX))
        found = coarse[0] if channels == 1 else coarse.permute(1, 2, 0)
        assert np.array_equal(found.numpy(), expected)
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=40)
        found = decoded[0] if channels == 1 else decoded.permute(1, 2, 0)
        assert np.array_equal(found.numpy(), np.asarray(Image.open(stream)))


def test_translation_moves_by_the_distance():
    x = np.zeros((40, 1, 15, 15), dtype=np.float32)
    x[:, 0, 7, 7] = 1
    moved = pixels.translation(x, 2.5, generators(40)).astype(np.float64)
    places = np.arange(15)
    down = (moved.sum(axis=(1, 3)) * places).sum(1) - 7
    right = (moved.sum(axis=(1, 2)) * places).sum(1) - 7
    assert np.allclose(np.hypot(down, right), 2.5, atol=1e-3)
    assert down.min() < -1.5
    assert down.max() > 1.5


def test_rotation_turns_to_both_sides_by_the_angle():
    x = np.zeros((20, 1, 15, 15), dtype=np.float32)
    x[:, 0, 7, 12] = 1
    turned = pixels.rotation(x, 30, generators(20)).astype(np.float64)
    places = np.arange(15) - 7
    total = turned.sum(axis=(1, 2, 3))
    down = (turned.sum(axis=(1, 3)) * places).sum(1) / total
    right = (turned.sum(axis=(1, 2)) * places).sum(1) / total
    angles = np.degrees(np.arctan2(down, right))
    assert np.allclose(np.abs(angles), 30, atol=3)
    assert {int(sign) for sign in np.sign(angles)} == {-1, 1}


def test_occlusion_hides_one_rectangle_anywhere():
    x = np.ones((300, 1, 8, 8), dtype=np.float32)
    hidden = pixels.occlusion(x, (2, 3), generators(300)) == 0
    assert (hidden.sum(axis=(1, 2, 3)) == 6).all()
    assert hidden.any(axis=0).all()
    assert x.all()
