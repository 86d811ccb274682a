"""Ways to spoil images: the functions behind the corruptions, on arrays of pixels.

Each takes pixels as float32 ``[n, C, H, W]`` in ``[0, 1]``, a strength, and one random generator
for each image; it returns pixels of the same shape, which may leave ``[0, 1]``. No value depends on
the other images of the array. That holds to the last bit: NumPy rounds every product and every sum
on its own, whereas a library's convolution may order its sums by the size of the batch.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

Pixels = NDArray[np.float32]
Generators = Sequence[Generator]

NEGLIGIBLE = 1e-4
"""Kernel weights below this share of the sum are left out."""

SOFTNESS = 0.4
"""Standard deviation, in pixels, of the edge of a defocused disc."""


def gaussian_noise(x: Pixels, scale: float, generators: Generators) -> Pixels:
    """Add normal noise of standard deviation `scale`."""
    return x + np.float32(scale) * _normal(x, generators)


def speckle_noise(x: Pixels, scale: float, generators: Generators) -> Pixels:
    """Add normal noise in proportion to the pixel."""
    return x + np.float32(scale) * x * _normal(x, generators)


def shot_noise(x: Pixels, photons: float, generators: Generators) -> Pixels:
    """Count photons: Poisson with mean `photons` at a white pixel."""
    counts = [g.poisson(image * photons) for image, g in zip(x, generators, strict=True)]
    return (np.stack(counts) / photons).astype(np.float32)


def impulse_noise(x: Pixels, share: float, generators: Generators) -> Pixels:
    """Set a share of the values to 0 or 1, each channel by itself."""
    draws = np.stack([g.random(x.shape[1:], dtype=np.float32) for g in generators])
    pepper, salt = draws < share / 2, (draws >= share / 2) & (draws < share)
    struck: Pixels = np.where(pepper, np.float32(0), np.where(salt, np.float32(1), x))
    return struck


def gaussian_blur(x: Pixels, sigma: float, generators: Generators) -> Pixels:
    """Blur with a normal kernel of `sigma` pixels; the border pixel goes on outside."""
    blurred: Pixels = ndimage.gaussian_filter(x, (0, 0, sigma, sigma), mode="nearest")
    return blurred


def defocus_blur(x: Pixels, radius: float, generators: Generators) -> Pixels:
    """Blur with a disc of a radius in pixels and a soft edge."""
    return correlate(x, disc(radius))


def motion_blur(x: Pixels, strength: tuple[float, float], generators: Generators) -> Pixels:
    """Smear along a line within 45° of the horizontal, by half a normal kernel (length, sigma)."""
    smeared = [
        correlate(x[i : i + 1], streak(*strength, g.uniform(-45, 45)))
        for i, g in enumerate(generators)
    ]
    return np.concatenate(smeared)


def zoom_blur(x: Pixels, strength: tuple[float, float], generators: Generators) -> Pixels:
    """Average of the image and of zooms from 1 to a largest factor (factor, number of zooms)."""
    largest, number = strength[0], round(strength[1])
    total = x.copy()
    for factor in np.linspace(1, largest, number):
        total += zoom(x, float(factor))
    return total / np.float32(number + 1)


def fog(x: Pixels, strength: tuple[float, float], generators: Generators) -> Pixels:
    """Lay a plasma fractal over the image (thickness, how fast detail fades)."""
    thickness, decay = strength
    height, width = x.shape[2:]
    size = 1 << (max(height, width) - 1).bit_length()
    draws = np.stack([g.uniform(-1, 1, size * size) for g in generators])
    mist = np.float32(thickness) * plasma(draws, size, decay)[:, None, :height, :width]
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    veiled: Pixels = (x + mist) * brightest / (brightest + np.float32(thickness))
    return veiled


def brightness(x: Pixels, amount: float, generators: Generators) -> Pixels:
    """Raise the value (of hue, saturation, value), at most to 1; black turns grey."""
    value = x.max(axis=1, keepdims=True)
    raised = np.minimum(value + np.float32(amount), np.float32(1))
    # Hue and saturation stay when all channels are scaled alike.
    ratio = raised / np.where(value > 0, value, np.float32(1))
    brighter: Pixels = np.where(value > 0, x * ratio, raised)
    return brighter


def saturate(x: Pixels, strength: tuple[float, float], generators: Generators) -> Pixels:
    """Change the saturation (of hue, saturation, value): multiply and add, within 0 and 1.

    A grey pixel has hue 0, so that saturation added turns it red, as in the published sets.
    """
    factor, amount = (np.float32(number) for number in strength)
    value = x.max(axis=1, keepdims=True)
    depth = value - x
    spread = depth.max(axis=1, keepdims=True)
    before = spread / np.where(value > 0, value, np.float32(1))
    after = np.clip(before * factor + amount, 0, 1)
    share = depth / np.where(spread > 0, spread, np.float32(1))
    share[:, 1:][np.broadcast_to(spread == 0, share[:, 1:].shape)] = 1
    saturated: Pixels = value * (1 - after * share)
    return saturated


def contrast(x: Pixels, factor: float, generators: Generators) -> Pixels:
    """Pull each channel towards its mean over the image."""
    height, width = x.shape[2:]
    # A sum of integers is the same in every order, a sum of floats is not.
    total = np.rint(x * 255).astype(np.int64).sum(axis=(2, 3), keepdims=True)
    mean = (total / (255 * height * width)).astype(np.float32)
    paler: Pixels = (x - mean) * np.float32(factor) + mean
    return paler


def pixelate(x: Pixels, factor: float, generators: Generators) -> Pixels:
    """Shrink by a factor below 1 and enlarge again, both with Pillow's box filter."""
    height, width = x.shape[2:]
    small = (max(1, int(width * factor)), max(1, int(height * factor)))

    def coarse(image: Image.Image) -> Image.Image:
        box = Image.Resampling.BOX
        return image.resize(small, box).resize((width, height), box)

    return _as_pixels([coarse(image) for image in _as_images(x)])


def jpeg_compression(x: Pixels, quality: float, generators: Generators) -> Pixels:
    """Encode as JPEG of a quality and decode."""

    def decoded(image: Image.Image) -> Image.Image:
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=round(quality))
        return Image.open(stream)

    return _as_pixels([decoded(image) for image in _as_images(x)])


def translation(x: Pixels, distance: float, generators: Generators) -> Pixels:
    """Move by a distance in pixels in a random direction (bilinear, black outside)."""
    moved = np.empty_like(x)
    for i, generator in enumerate(generators):
        angle = generator.uniform(0, 2 * np.pi)
        offset = (0, distance * np.sin(angle), distance * np.cos(angle))
        moved[i] = ndimage.shift(x[i], offset, order=1, mode="constant")
    return moved


def rotation(x: Pixels, degrees: float, generators: Generators) -> Pixels:
    """Turn about the centre by an angle to a random side (bilinear, black outside)."""
    turned = np.empty_like(x)
    for i, generator in enumerate(generators):
        side = generator.choice((-1, 1))
        ndimage.rotate(x[i], side * degrees, (1, 2), reshape=False, order=1, output=turned[i])
    return turned


def occlusion(x: Pixels, size: tuple[int, int], generators: Generators) -> Pixels:
    """Set a rectangle (height, width) at a random place to black."""
    hidden = x.copy()
    for image, generator in zip(hidden, generators, strict=True):
        top, left = (int(generator.integers(x.shape[2 + i] - size[i] + 1)) for i in (0, 1))
        image[:, top : top + size[0], left : left + size[1]] = 0
    return hidden


def disc(radius: float) -> Pixels:
    """The kernel of an unfocused lens, ``[k, k]`` with sum 1.

    A pixel weighs as much as the disc covers of it, and a normal kernel of `SOFTNESS` pixels blurs
    the edge, so that the effect grows evenly with the radius (a disc of whole pixels jumps).
    """
    fine = 16
    reach = int(np.ceil(radius)) + 1
    points = (np.arange((2 * reach + 1) * fine) + 0.5) / fine - reach - 0.5
    inside = points[:, None] ** 2 + points[None, :] ** 2 <= radius**2
    cover = inside.reshape(2 * reach + 1, fine, 2 * reach + 1, fine).mean(axis=(1, 3))
    return _trimmed(ndimage.gaussian_filter(np.pad(cover, 1), SOFTNESS, mode="constant", radius=1))


def streak(length: float, sigma: float, degrees: float) -> Pixels:
    """The kernel of a motion from the centre outwards, ``[k, k]`` with sum 1.

    The weight at ``i`` pixels from the centre is ``exp(-i² / 2σ²)`` up to `length`, spread over the
    four pixels around.
    """
    steps = np.arange(int(length) + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    steps, weights = steps[weights > NEGLIGIBLE], weights[weights > NEGLIGIBLE]
    reach = len(steps)
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1))
    y = reach + steps * np.sin(np.radians(degrees))
    x = reach + steps * np.cos(np.radians(degrees))
    row, column = np.floor(y).astype(int), np.floor(x).astype(int)
    for down in (0, 1):
        for right in (0, 1):
            part = np.abs(1 - down - (y - row)) * np.abs(1 - right - (x - column))
            np.add.at(kernel, (row + down, column + right), weights * part)
    return _trimmed(kernel)


def zoom(x: Pixels, factor: float) -> Pixels:
    """Enlarge by a factor of at least 1 about the centre and cut to the old size (bilinear)."""
    for axis in (2, 3):
        size = x.shape[axis]
        centre = (size - 1) / 2
        place = centre + (np.arange(size) - centre) / factor
        low = np.clip(np.floor(place).astype(int), 0, size - 2)
        part = (place - low).astype(np.float32).reshape((-1, 1) if axis == 2 else (1, -1))
        x = x.take(low, axis) * (1 - part) + x.take(low + 1, axis) * part
    return x


def correlate(x: Pixels, kernel: Pixels) -> Pixels:
    """Correlate each channel with a kernel ``[k, k]``, k odd; images are mirrored at the border."""
    reach = len(kernel) // 2
    height, width = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="reflect")
    total = np.zeros_like(x)
    for row, column in np.argwhere(kernel):
        total += kernel[row, column] * padded[:, :, row : row + height, column : column + width]
    return total


def plasma(draws: NDArray[np.float64], size: int, decay: float) -> Pixels:
    """Fractal height maps by the diamond-square algorithm on a torus.

    Args:
        draws: in ``[-1, 1]``, ``[n, size²]``.
        size: a power of two.
        decay: each halving of the step divides the noise by the square of it.

    Returns:
        ``[n, size, size]``, each map stretched to ``[0, 1]``.
    """
    height = np.zeros((len(draws), size, size))
    step, noise, used = size, 1.0, 0

    def midpoint(*neighbours: NDArray[np.float64]) -> NDArray[np.float64]:
        nonlocal used
        count = neighbours[0][0].size
        wobble = draws[:, used : used + count].reshape(neighbours[0].shape)
        used += count
        middle: NDArray[np.float64] = sum(neighbours[1:], neighbours[0]) / 4 + noise * wobble
        return middle

    while step >= 2:
        half = step // 2
        corner = height[:, ::step, ::step].copy()
        below, right = np.roll(corner, -1, axis=1), np.roll(corner, -1, axis=2)
        centre = midpoint(corner, below, right, np.roll(below, -1, axis=2))
        height[:, half::step, half::step] = centre
        height[:, ::step, half::step] = midpoint(corner, right, centre, np.roll(centre, 1, axis=1))
        height[:, half::step, ::step] = midpoint(corner, below, centre, np.roll(centre, 1, axis=2))
        step, noise = half, noise / decay**2
    height -= height.min(axis=(1, 2), keepdims=True)
    height /= height.max(axis=(1, 2), keepdims=True)
    return height.astype(np.float32)


def _normal(x: Pixels, generators: Generators) -> Pixels:
    return np.stack([g.standard_normal(x.shape[1:], dtype=np.float32) for g in generators])


def _trimmed(kernel: NDArray[np.float64]) -> Pixels:
    kernel = np.where(kernel > NEGLIGIBLE * kernel.sum(), kernel, 0)
    kernel /= kernel.sum()
    return kernel.astype(np.float32)


def _as_images(x: Pixels) -> list[Image.Image]:
    values = np.rint(np.clip(x, 0, 1) * 255).astype(np.uint8)
    if x.shape[1] == 1:
        return [Image.fromarray(image[0]) for image in values]
    return [Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))) for image in values]


def _as_pixels(images: Sequence[Image.Image]) -> Pixels:
    values = np.stack([np.asarray(image) for image in images]).astype(np.float32) / np.float32(255)
    return values[:, None] if values.ndim == 3 else values.transpose(0, 3, 1, 2)
