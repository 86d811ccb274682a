"""Glass blur, elastic transformation, snow, frost and spatter against plain loops."""

import itertools

import numpy as np
import pytest
from scipy import ndimage

from bench.data import pixels_warp, pixels_weather
from bench.data.corruptions import CORRUPTIONS


def generators(number: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng(seed + i) for i in range(number)]


def picture(height: int, width: int, number: int = 2, channels: int = 3) -> np.ndarray:
    """Random but smooth images, float32 [n, C, H, W]."""
    noise = np.random.default_rng(7).random((number, channels, height, width))
    smooth = ndimage.gaussian_filter(noise, (0, 0, 1.5, 1.5))
    low, high = smooth.min((2, 3), keepdims=True), smooth.max((2, 3), keepdims=True)
    return ((smooth - low) / (high - low)).astype(np.float32)


@pytest.mark.parametrize("strength", [(0.4, 1, 2), (0.9, 2, 1), (1.1, 3, 2), (0, 1, 1)])
def test_glass_blur_against_the_published_loop(strength):
    x = picture(13, 17)
    sigma, reach, passes = strength
    result = pixels_warp.glass_blur(x, strength, generators(2))
    for image, found, generator in zip(x, result, generators(2), strict=True):
        y = ndimage.gaussian_filter(image.astype(np.float64), (0, sigma, sigma), mode="nearest")
        y = y.transpose(1, 2, 0).copy()
        for _ in range(passes):
            size = (13 - 2 * reach) * (17 - 2 * reach)
            draws = iter(np.floor(generator.uniform(-reach, reach, (size, 2))).astype(int))
            for h in range(13 - reach, reach, -1):
                for w in range(17 - reach, reach, -1):
                    dx, dy = next(draws)
                    v, u = h + dy, w + dx
                    y[h, w], y[v, u] = y[v, u], y[h, w]
        expected = ndimage.gaussian_filter(y, (sigma, sigma, 0), mode="nearest")
        assert np.allclose(found, expected.transpose(2, 0, 1), atol=1e-5)


def test_offsets_of_glass_blur_are_those_of_the_published_code():
    places = np.arange(1600).reshape(40, 40)
    down, right = np.divmod(pixels_warp.neighbours(40, 40, 1, 1, generators(1)[0]), 40)
    offsets = np.stack([down.reshape(40, 40) - places // 40, right.reshape(40, 40) - places % 40])
    # One pass from the lower right reads only what is not yet written: offsets show as drawn.
    assert not offsets[:, :2].any()
    assert not offsets[:, :, :2].any()
    inner = offsets[:, 2:, 2:]
    assert set(np.unique(inner)) == {-1, 0}
    assert inner.mean(axis=(1, 2)) == pytest.approx([-0.5, -0.5], abs=0.04)


def test_part_of_a_pass_treats_a_part_of_the_pixels():
    def moved(passes: float, reach: float = 1) -> float:
        index = pixels_warp.neighbours(60, 60, reach, passes, generators(1)[0])
        return float((index != np.arange(3600)).mean())

    whole = moved(1)
    assert whole == pytest.approx(0.75, abs=0.05)
    assert moved(0.3) == pytest.approx(0.3 * whole, abs=0.04)
    # Between two reaches, the farther offsets are the rarer.
    index = pixels_warp.neighbours(60, 60, 1.5, 1, generators(1)[0]).reshape(60, 60)[2:-1, 2:-1]
    offsets = (index // 60 - np.arange(3600).reshape(60, 60)[2:-1, 2:-1] // 60).ravel()
    assert offsets.min() < -1
    assert (offsets > 0).mean() < (offsets == 0).mean()


@pytest.mark.parametrize("shape", [(12, 12), (9, 14)])
def test_sample_against_scipy(shape):
    x = picture(*shape)
    draws = np.random.default_rng(1).uniform(-30, 45, (2, 2, 6, 5))
    draws[0, 0, 0] = (0, shape[0] - 1, -1, shape[0], 2 * shape[0] - 2)
    result = pixels_warp.sample(x, draws[0], draws[1])
    for image, found, rows, columns in zip(x, result, draws[0], draws[1], strict=True):
        for channel, values in zip(image.astype(np.float64), found, strict=True):
            expected = ndimage.map_coordinates(channel, (rows, columns), order=1, mode="mirror")
            assert np.allclose(values, expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(24, 24), (20, 31)])
@pytest.mark.parametrize("strength", [(0, 0, 2.0), (2.56, 1.92, 1.9), (60.0, 17.0, 3.0)])
def test_elastic_transform_against_a_float64_loop(strength, shape):
    x = picture(*shape)
    amplitude, sigma, corner = strength
    (height, width), reach = shape, min(shape) // 3
    rows, columns = np.mgrid[:height, :width].astype(np.float64)
    result = pixels_warp.elastic_transform(x, strength, generators(2))
    for image, found, generator in zip(x, result, generators(2), strict=True):
        centre = np.array([width // 2, height // 2])
        before = [centre + reach * np.array(corner) for corner in ((1, 1), (1, -1), (-1, -1))]
        after = before + generator.uniform(-corner, corner, (3, 2))
        # Forward map, as published, inverted place by place.
        equations = np.zeros((6, 6))
        for k, (u, v) in enumerate(before):
            equations[2 * k, :3] = equations[2 * k + 1, 3:] = (u, v, 1)
        forward = np.linalg.solve(equations, np.ravel(after)).reshape(2, 3)
        places = np.linalg.solve(
            forward[:, :2], np.stack([columns.ravel(), rows.ravel()]) - forward[:, 2:]
        ).reshape(2, height, width)
        shifts = np.zeros((2, height, width))
        if amplitude:
            for k in range(2):
                noise = generator.uniform(-1, 1, shape)
                smooth = ndimage.gaussian_filter(noise, sigma, mode="reflect", truncate=3)
                shifts[k] = amplitude * smooth
        for channel, values in zip(image.astype(np.float64), found, strict=True):
            sheared = ndimage.map_coordinates(channel, places[::-1], order=1, mode="mirror")
            moved = (rows + shifts[1], columns + shifts[0])
            expected = ndimage.map_coordinates(sheared, moved, order=1, mode="mirror")
            assert np.allclose(values, expected, atol=2e-5)


@pytest.mark.parametrize("side", [28, 32, 64, 128, 224])
def test_elastic_fields_strain_more_with_severity(side):
    strains = []
    for severity in range(1, 6):
        amplitude, sigma, _ = CORRUPTIONS["elastic_transform"].strength(severity, side)
        noise = np.random.default_rng(0).uniform(-1, 1, (4, side, side))
        smooth = pixels_warp.smoothing(side, sigma)
        field = amplitude * (smooth @ noise @ smooth.T)
        strains.append(np.abs(np.diff(field, axis=1)).mean())
    assert all(a < b for a, b in itertools.pairwise(strains)), strains


@pytest.mark.parametrize("channels", [1, 3])
def test_snow_against_a_float64_loop(channels):
    x = picture(20, 26, channels=channels)
    length, sigma, mean, deviation, least, weight = 9, 2.5, 0.2, 0.3, 0.5, 0.8
    strength = (1, length, sigma, mean, deviation, least, weight)
    result = pixels_weather.snow(x, strength, generators(2))
    for image, found, generator in zip(x.astype(np.float64), result, generators(2), strict=True):
        noise = mean + deviation * generator.standard_normal((1, 20, 26), dtype=np.float32)[0]
        flakes = np.clip(np.where(noise < least, 0, noise), 0, 1).astype(np.float64)
        angle = np.radians(generator.uniform(-135, -45))
        rows, columns = np.mgrid[:20, :26].astype(np.float64)
        fallen, total = np.zeros((20, 26)), 0.0
        for i in range(length + 1):
            share = np.exp(-(i**2) / (2 * sigma**2))
            at = (rows + i * np.sin(angle), columns + i * np.cos(angle))
            fallen += share * ndimage.map_coordinates(flakes, at, order=1, mode="mirror")
            total += share
        fallen /= total
        grey = image[0] if channels == 1 else np.tensordot((0.299, 0.587, 0.114), image, 1)
        white = np.maximum(image, 1.5 * grey + 0.5)
        expected = weight * image + (1 - weight) * white + fallen + np.rot90(fallen, 2)
        assert np.allclose(found, expected, atol=1e-3)


def test_snow_falls():
    # Flakes trail upwards or sideways of it: streaks are taller than wide.
    black = np.zeros((30, 1, 40, 40), dtype=np.float32)
    snowy = pixels_weather.snow(black, (1, 16, 6, 0.1, 0.2, 0.6, 1.0), generators(30))
    along_columns = np.abs(np.diff(snowy, axis=2)).mean()
    along_rows = np.abs(np.diff(snowy, axis=3)).mean()
    assert 1.3 * along_columns < along_rows


def test_frost_lays_ice_over_the_image():
    x = picture(32, 40)
    ice = pixels_weather.ice(32, 40, generators(2))
    result = pixels_weather.frost(x, (0.8, 0.6), generators(2))
    colour = np.array(pixels_weather.ICE)[:, None, None]
    for image, layer, found in zip(x, ice, result, strict=True):
        assert np.allclose(found, 0.8 * image + 0.6 * layer * colour, atol=1e-6)


@pytest.mark.parametrize("side", [28, 32, 64, 224])
def test_ice_is_in_range_structured_and_another_for_each_image(side):
    ice = pixels_weather.ice(side, side, generators(12))
    assert ice.shape == (12, side, side)
    assert ice.min() >= 0
    assert ice.max() <= 1
    assert 0.25 < ice.mean() < 0.6
    assert (ice.std(axis=(1, 2)) > 0.08).all()
    flat = ice.reshape(12, -1)
    likeness = np.corrcoef(flat)[~np.eye(12, dtype=bool)]
    assert likeness.max() < 0.8
    assert abs(likeness.mean()) < 0.2
    # A line that crosses the image meets several barbs or borders.
    rows = ice[:, side // 2]
    turns = (np.diff(np.sign(np.diff(rows, axis=1)), axis=1) != 0).sum(axis=1)
    assert turns.mean() > 5


def test_mud_against_a_float64_loop():
    x = picture(24, 24)
    sigma, rim, mean, deviation, least = 0.7, 0.6, 0.65, 0.1, 0.68
    strength = (sigma, rim, mean, deviation, least, 0)
    result = pixels_weather.spatter(x, strength, generators(2))
    for image, found, generator in zip(x.astype(np.float64), result, generators(2), strict=True):
        noise = mean + deviation * generator.standard_normal((1, 24, 24), dtype=np.float32)[0]
        liquid = ndimage.gaussian_filter(noise.astype(np.float64), sigma, mode="nearest")
        layer = ndimage.gaussian_filter((liquid > least).astype(float), rim, mode="nearest")
        layer[layer < 0.8] = 0
        assert 0 < (layer > 0).mean() < 0.5
        for channel, colour, values in zip(image, (63, 42, 20), found, strict=True):
            expected = channel * (1 - layer) + layer * colour / 255
            assert np.allclose(values, expected, atol=1e-5)


def test_water_shines_in_drops_only_and_brightens():
    x = np.full((4, 3, 32, 32), 0.2, dtype=np.float32)
    strength = CORRUPTIONS["spatter"].strength(3, 32)
    wet = pixels_weather.spatter(x, strength, generators(4)) - x
    assert wet.min() >= 0
    for image, generator in zip(wet, generators(4), strict=True):
        noise = 0.65 + 0.3 * generator.standard_normal((1, 32, 32), dtype=np.float32)[0]
        drops = ndimage.gaussian_filter(noise, 1.0, mode="nearest") >= 0.69
        assert not image[:, ~drops].any()
        assert image.max(axis=(1, 2)) == pytest.approx(0.5 * pixels_weather.WATER, rel=1e-5)


def test_reflections_step_by_step():
    liquid = np.full((12, 12), 0.7, dtype=np.float32)
    drops = np.zeros((12, 12), dtype=bool)
    drops[3:9, 2:10] = True
    # Distances from the outermost pixels of the drop, in a loop.
    rim = [(r, c) for r in range(3, 9) for c in range(2, 10) if r in (3, 8) or c in (2, 9)]
    distance = np.array(
        [[min(np.hypot(r - a, c - b) for a, b in rim) for c in range(12)] for r in range(12)]
    )
    mirrored = np.pad(distance, 1, mode="reflect")
    blurred = np.array(
        [[int(mirrored[r : r + 3, c : c + 3].mean() + 1e-6) for c in range(12)] for r in range(12)]
    )
    values = sorted(set(blurred.ravel()))
    lowest = (blurred == values[0]).sum()
    ranks = {v: np.rint(((blurred <= v).sum() - lowest) * 255 / (144 - lowest)) for v in values}
    shade = np.pad(np.vectorize(ranks.get)(blurred).astype(float), 1, mode="reflect")
    kernel = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    embossed = np.array(
        [
            [np.clip((shade[r : r + 3, c : c + 3] * kernel).sum(), 0, 255) for c in range(12)]
            for r in range(12)
        ]
    )
    embossed = np.pad(embossed, 1, mode="reflect")
    light = np.array(
        [
            [embossed[r : r + 3, c : c + 3].mean() * drops[r, c] for c in range(12)]
            for r in range(12)
        ]
    )
    expected = light / light.max()
    assert np.allclose(pixels_weather.reflections(liquid, drops), expected, atol=1e-5)


def test_no_drop_no_light_and_all_drop_no_rim():
    liquid = np.full((8, 8), 0.7, dtype=np.float32)
    assert not pixels_weather.reflections(liquid, np.zeros((8, 8), dtype=bool)).any()
    assert np.allclose(pixels_weather.reflections(liquid, np.ones((8, 8), dtype=bool)), 1)
