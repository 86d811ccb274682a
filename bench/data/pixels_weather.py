"""Corruptions by weather and dirt: snow, frost, spatter of water and of mud.

Functions on arrays of pixels with the contract of `bench.data.pixels`. Snow and spatter follow the
published code of Hendrycks and Dietterich (ICLR 2019). Their frost is a set of photographs; here
ice is drawn, see `ice`.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import ndimage

from bench.data.pixels import Generators, Pixels, correlate, plasma, streak, zoom

GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)
"""Weights of red, green and blue in brightness (ITU-R BT.601)."""

WATER = np.array([175, 238, 238], dtype=np.float32) / np.float32(255)
MUD = np.array([63, 42, 20], dtype=np.float32) / np.float32(255)
ICE = np.array([0.84, 0.94, 1.0], dtype=np.float32)
"""Colours of what covers the image, red, green, blue; grey images take their brightness."""

CRYSTALS, BARBS, TWIGS = 10, 9, 25
"""Feathers of ice a square image; barbs of a feather over the length of the image, coarse, fine."""

FARTHEST, OPAQUE = 20, 0.8
"""Pixels from the rim of a drop where its shading ends; mud thinner than this does not show."""

EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], dtype=np.float64)
"""Light from the upper left."""


def snow(x: Pixels, strength: tuple[float, ...], generators: Generators) -> Pixels:
    """Whiten the image and let flakes fall, blurred by their motion.

    Args:
        x: the images.
        strength: size of a flake; length and σ of its streak (see `bench.data.pixels.streak`), all
            in pixels; mean and standard deviation of the noise that flakes are cut from; the value
            below which there is no flake; weight of the image that is not whitened.
        generators: one an image.
    """
    size, length, sigma, mean, deviation, least, weight = strength
    noise = mean + deviation * _noise(x, generators)
    flakes = zoom(noise, max(1.0, size))
    flakes = np.minimum(np.where(flakes < least, np.float32(0), flakes), np.float32(1))
    fallen = np.concatenate(
        [
            correlate(flakes[i : i + 1], streak(length, sigma, g.uniform(-135, -45)))
            for i, g in enumerate(generators)
        ]
    )
    white = np.maximum(x, _brightness(x) * np.float32(1.5) + np.float32(0.5))
    pale = np.float32(weight) * x + np.float32(1 - weight) * white
    snowy: Pixels = pale + fallen + fallen[:, :, ::-1, ::-1]
    return snowy


def frost(x: Pixels, strength: tuple[float, float], generators: Generators) -> Pixels:
    """Look through ice (weight of the image, weight of the ice)."""
    weight, thickness = strength
    height, width = x.shape[2:]
    covered: Pixels = np.float32(weight) * x + np.float32(thickness) * _coloured(
        ice(height, width, generators), ICE, x.shape[1]
    )
    return covered


def spatter(x: Pixels, strength: tuple[float, ...], generators: Generators) -> Pixels:
    """Drops of water that shine, or of mud that covers.

    Args:
        x: the images.
        strength: σ of the blur that makes drops out of noise and of the rim of mud (0: water), both
            in pixels; mean and standard deviation of the noise; the value from which there is a
            drop; how strongly water shines.
        generators: one an image.
    """
    sigma, rim, mean, deviation, least, shine = strength
    noise = mean + deviation * _noise(x, generators)[:, 0]
    liquid = ndimage.gaussian_filter(noise, (0, sigma, sigma), mode="nearest")
    drops = liquid >= np.float32(least)
    if rim:
        layer = ndimage.gaussian_filter(drops.astype(np.float32), (0, rim, rim), mode="nearest")
        layer[layer < OPAQUE] = 0
        muddy: Pixels = x * (1 - layer[:, None]) + _coloured(layer, MUD, x.shape[1])
        return muddy
    light = np.stack([reflections(*pair) for pair in zip(liquid, drops, strict=True)])
    wet: Pixels = x + np.float32(shine) * _coloured(light, WATER, x.shape[1])
    return wet


def reflections(liquid: Pixels, drops: NDArray[np.bool_]) -> Pixels:
    """The light that drops of water throw, ``[H, W]`` in ``[0, 1]``.

    As published, but for two steps: the rim of a drop is its outermost pixels, where OpenCV's Canny
    filter finds about the same, and distances from it are exact.

    Args:
        liquid: height of the water.
        drops: where there is a drop.
    """
    if not drops.any():
        return np.zeros_like(liquid)
    rim = drops & ~ndimage.binary_erosion(drops, np.ones((3, 3)), border_value=1)
    distance = np.full(liquid.shape, float(FARTHEST))
    if rim.any():
        distance = np.minimum(ndimage.distance_transform_edt(~rim), FARTHEST)
    # Cut off as published, but a whole number that rounding has made a little less stays.
    levels = (ndimage.uniform_filter(distance, 3, mode="mirror") + 1e-6).astype(np.uint8)
    shade = _equalised(levels)
    shade = np.clip(ndimage.correlate(shade, EMBOSS, mode="mirror"), 0, 255)
    light = np.where(drops, liquid, 0) * ndimage.uniform_filter(shade, 3, mode="mirror")
    scaled: Pixels = (light / max(light.max(), 1e-12)).astype(np.float32)
    return scaled


def ice(height: int, width: int, generators: Generators) -> Pixels:
    """Ice on a window, ``[n, H, W]`` in ``[0, 1]``, one drawing a generator.

    Feathers stand at random places and angles, and each pixel belongs to the nearest (a Voronoi
    diagram with elongated cells). A feather has a bright spine, barbs at 60° to it on both sides,
    bent a little, and a bright border where it meets the next; a plasma fractal makes it thick and
    thin. Lengths are in units of the shorter side: the published crops of photographs, too, cover
    about the same part at every size.
    """
    side = min(height, width)
    size = 1 << (max(height, width) - 1).bit_length()
    draws = np.stack([g.uniform(-1, 1, size * size) for g in generators])
    cloud = plasma(draws, size, 1.8)[:, :height, :width]
    along, across, gap = _feathers(height / side, width / side, cloud, generators)
    slope, wobble = np.abs(across) * np.float32(0.577), np.float32(0.4) * cloud
    barbs = _ridges(BARBS * (along - slope + wobble)) ** 2
    twigs = _ridges(TWIGS * (along + slope - wobble)) ** 2
    spine = _peak(across, 0.015)
    feather = spine + _peak(across, 0.15) * (np.float32(0.75) * barbs + np.float32(0.35) * twigs)
    relief = np.float32(0.6) * feather + np.float32(0.3) * _peak(gap, 0.02)
    frozen = cloud * (np.float32(0.5) + relief)
    clipped: Pixels = np.clip(frozen, 0, 1)
    return clipped


def _feathers(
    height: float, width: float, cloud: Pixels, generators: Generators
) -> tuple[Pixels, Pixels, Pixels]:
    """Each pixel's place along and across the nearest feather, and how much nearer it is."""
    rows = np.linspace(0, height, cloud.shape[1], dtype=np.float32)[:, None]
    columns = np.linspace(0, width, cloud.shape[2], dtype=np.float32)
    bent = np.float32(0.12) * cloud
    number = round(CRYSTALS * height * width)
    places = np.stack([_places(height, width, number, g) for g in generators]).astype(np.float32)
    nearest = np.full(cloud.shape, np.inf, dtype=np.float32)
    second, along, across = nearest.copy(), np.zeros_like(cloud), np.zeros_like(cloud)
    for row, column, cosine, sine in places.transpose(1, 2, 0)[..., None, None]:
        down, right = rows - row + bent, columns - column - bent
        u, v = right * cosine + down * sine, down * cosine - right * sine
        distance = np.sqrt(np.float32(0.3) * u * u + v * v)
        nearer = distance < nearest
        second = np.where(nearer, nearest, np.minimum(second, distance))
        nearest = np.where(nearer, distance, nearest)
        along, across = np.where(nearer, u, along), np.where(nearer, v, across)
    return along, across, second - nearest


def _places(height: float, width: float, number: int, generator: Generator) -> Pixels:
    """Row, column, cosine and sine of the angle of each feather, ``[number, 4]``."""
    draws = generator.random((number, 3)) * (height, width, 2 * np.pi)
    return np.column_stack([draws[:, :2], np.cos(draws[:, 2]), np.sin(draws[:, 2])])


def _ridges(x: Pixels) -> Pixels:
    """A wave of straight lines in ``[0, 1]`` that peaks at whole numbers."""
    ridges: Pixels = np.abs(2 * (x - np.floor(x)) - 1)
    return ridges


def _peak(x: Pixels, width: float) -> Pixels:
    """1 at 0, a half at `width`."""
    peak: Pixels = np.float32(1) / (1 + np.square(x / np.float32(width)))
    return peak


def _noise(x: Pixels, generators: Generators) -> Pixels:
    return np.stack([g.standard_normal((1, *x.shape[2:]), dtype=np.float32) for g in generators])


def _brightness(x: Pixels) -> Pixels:
    if x.shape[1] == 1:
        return x
    red, green, blue = (x[:, i : i + 1] for i in range(3))
    weighted: Pixels = GREY[0] * red + GREY[1] * green + GREY[2] * blue
    return weighted


def _coloured(layer: Pixels, colour: Pixels, channels: int) -> Pixels:
    """A layer ``[n, H, W]`` in a colour, ``[n, C, H, W]``."""
    shown = colour if channels == 3 else (colour * GREY).sum(keepdims=True)
    painted: Pixels = layer[:, None] * shown[:, None, None]
    return painted


def _equalised(x: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Histogram equalisation as OpenCV's; an image of one value stays."""
    counts = np.bincount(x.ravel(), minlength=256)
    below = counts[x.min()]
    if below == x.size:
        return x.astype(np.float64)
    table = np.rint((np.cumsum(counts) - below) * (255 / (x.size - below)))
    equalised: NDArray[np.float64] = table[x]
    return equalised
