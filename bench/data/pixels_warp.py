"""Corruptions that move pixels: glass blur and elastic transformation.

Functions on arrays of pixels with the contract of `bench.data.pixels`. Both follow the published
code of Hendrycks and Dietterich (ICLR 2019) step by step.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import ndimage

from bench.data.pixels import Generators, Pixels, gaussian_blur

Floats = NDArray[np.float64]


def glass_blur(x: Pixels, strength: tuple[float, float, float], generators: Generators) -> Pixels:
    """Blur, let pixels take the colour of a neighbour, and blur again.

    Args:
        x: the images.
        strength: σ of the blurs in pixels, how far away a neighbour may be in pixels, number of
            passes; see `neighbours`.
        generators: one an image.
    """
    sigma, reach, passes = strength
    count, channels, height, width = x.shape
    sources = np.stack([neighbours(height, width, reach, passes, g) for g in generators])
    soft = gaussian_blur(x, sigma, generators).reshape(count, channels, -1)
    moved = np.take_along_axis(soft, sources[:, None], axis=2).reshape(x.shape)
    return gaussian_blur(moved, sigma, generators)


def neighbours(
    height: int, width: int, reach: float, passes: float, generator: Generator
) -> NDArray[np.int64]:
    """Where each pixel's colour comes from after glass blur, as indices into the flat image.

    One after the other, from the lower right, each pixel takes the colour that a neighbour has by
    then. Offsets are ``floor(u)`` with u uniform in ``[-reach, reach)``, for a whole `reach` those
    of the published code. (There a line means to swap two colours; as the colours are views of one
    array, it copies one over the other. The published images are made so.) A part of a pass treats
    that share of the pixels.
    """
    margin = ceil(reach)
    rows, columns = np.arange(height - margin, margin, -1), np.arange(width - margin, margin, -1)
    places = (rows[:, None] * width + columns).ravel()
    index = list(range(height * width))
    for number in range(ceil(passes)):
        offsets = np.floor(generator.uniform(-reach, reach, (len(places), 2))).astype(np.int64)
        chosen, sources = places, places + offsets[:, 1] * width + offsets[:, 0]
        if passes - number < 1:
            struck = generator.random(len(places)) < passes - number
            chosen, sources = chosen[struck], sources[struck]
        # Each step reads what steps before it wrote: no array operation does that.
        for place, source in zip(chosen.tolist(), sources.tolist(), strict=True):
            index[place] = index[source]
    return np.array(index)


def elastic_transform(
    x: Pixels, strength: tuple[float, float, float], generators: Generators
) -> Pixels:
    """Shear the image a little, then shift every pixel by a smooth random field (bilinear).

    Args:
        x: the images.
        strength: amplitude of the field, σ of the normal kernel that smooths it, and how far the
            three points that define the shear may move along each axis; all in pixels.
        generators: one an image.
    """
    amplitude, sigma, corner = strength
    height, width = x.shape[2:]
    rows, columns = np.mgrid[:height, :width].astype(np.float64)
    inverse = np.stack([_shear(height, width, corner, g) for g in generators])[:, :, :, None, None]
    sheared = sample(
        x,
        inverse[:, 1, 0] * columns + inverse[:, 1, 1] * rows + inverse[:, 1, 2],
        inverse[:, 0, 0] * columns + inverse[:, 0, 1] * rows + inverse[:, 0, 2],
    )
    if not amplitude:
        return sheared
    noise = np.stack([g.uniform(-1, 1, (2, height, width)) for g in generators])
    # Small products one by one: their sums do not depend on the number of images.
    field = amplitude * (smoothing(height, sigma) @ noise @ smoothing(width, sigma).T)
    return sample(sheared, rows + field[:, 1], columns + field[:, 0])


def sample(x: Pixels, rows: Floats, columns: Floats) -> Pixels:
    """Images at other places, bilinear; outside they go on mirrored at their border pixels.

    Args:
        x: ``[n, C, H, W]``.
        rows: of the places, ``[n, H', W']``.
        columns: of the places, ``[n, H', W']``.

    Returns:
        ``[n, C, H', W']``.
    """
    count, channels, height, width = x.shape
    flat = x.reshape(count, channels, height * width)
    top, down = _split(rows, height)
    left, right = _split(columns, width)
    result = np.zeros((count, channels, *rows.shape[1:]), dtype=np.float32)
    for below in (0, 1):
        for beside in (0, 1):
            index = ((top + below) * width + left + beside).reshape(count, 1, -1)
            weight = (down if below else 1 - down) * (right if beside else 1 - right)
            values = np.take_along_axis(flat, index, axis=2).reshape(result.shape)
            result += weight[:, None] * values
    return result


@lru_cache(maxsize=64)
def smoothing(size: int, sigma: float) -> Floats:
    """The matrix ``[size, size]`` that smooths a line with a normal kernel up to 3σ.

    Outside, the line goes on mirrored at its ends. For kernels as wide as the image, which the
    corruptions have, a product with it is much faster than a sum over the kernel.
    """
    matrix: Floats = ndimage.gaussian_filter1d(
        np.eye(size), sigma, axis=0, mode="reflect", truncate=3
    )
    matrix.setflags(write=False)
    return matrix


def _shear(height: int, width: int, corner: float, generator: Generator) -> Floats:
    """The affine map ``[2, 3]`` from places ``(x, y)`` of the sheared image to the image.

    Three corners of a square about the centre move at random.
    """
    # The published code has height and width in the other order; its images are square.
    centre, reach = np.array([width // 2, height // 2]), min(height, width) // 3
    points = centre + reach * np.array([[1, 1], [1, -1], [-1, -1]], dtype=np.float64)
    moved = points + generator.uniform(-corner, corner, points.shape)
    solved = np.linalg.solve(np.column_stack([moved, np.ones(3)]), points)
    return solved.T.astype(np.float64)


def _split(places: Floats, size: int) -> tuple[NDArray[np.int64], Pixels]:
    """The pixel at or before each place of a mirrored line, and how far on the place is."""
    period = 2 * (size - 1)
    folded = np.abs(places) % period
    folded = np.minimum(folded, period - folded)
    whole = np.minimum(folded.astype(np.int64), size - 2)
    return whole, (folded - whole).astype(np.float32)
