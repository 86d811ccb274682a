"""Smooth ECE against the kernel sums of its definition."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import brentq

from bench.metrics.smooth import NARROWEST, smooth_ece


def draw(samples, seed, bias=0.0):
    rng = np.random.default_rng(seed)
    confidence = rng.beta(4, 1.5, samples)
    return confidence, rng.random(samples) < np.clip(confidence - bias, 0, 1)


def kernel_error(confidence, correct, sigma, points=2001):
    """∫ |mean of K_σ(t, c)(c − a)| dt with the Gaussian's mirror images written out."""
    t = np.linspace(0, 1, points)
    height = np.zeros(points)
    for c, a in zip(confidence, correct, strict=True):
        for shift in range(-8, 9, 2):
            for image in (c + shift, -c + shift):
                height += (c - a) * np.exp(-0.5 * ((t - image) / sigma) ** 2)
    height /= len(confidence) * sigma * np.sqrt(2 * np.pi)
    return trapezoid(np.abs(height), t)


@pytest.mark.parametrize(
    ("samples", "bias", "seed"), [(1, 0.0, 0), (20, 0.0, 1), (150, 0.3, 2), (150, -0.2, 3)]
)
def test_against_kernel_sums(samples, bias, seed):
    data = draw(samples, seed, bias)
    sigma = brentq(lambda s: s - kernel_error(*data, s), 0.01, 1.0, xtol=1e-5)
    assert smooth_ece(*data) == pytest.approx(kernel_error(*data, sigma), abs=1e-4)
    assert smooth_ece(*data) == pytest.approx(sigma, abs=1e-4)


def test_more_bias_more_error():
    errors = [smooth_ece(*draw(4000, 0, bias)) for bias in (0.0, 0.1, 0.3)]
    assert errors[0] < 0.03
    assert errors == sorted(errors)
    assert errors[2] == pytest.approx(0.3, abs=0.03)


def test_no_error_at_all():
    assert smooth_ece([1.0] * 5, [1] * 5) == 0


@pytest.mark.parametrize("samples", [1, 9, 57])
def test_nothing_but_certain_errors(samples):
    """The error is 1 at every bandwidth, or 1 + 1e-15 after rounding."""
    assert smooth_ece([1.0] * samples, [0] * samples) == pytest.approx(1, abs=1e-12)


def test_below_the_narrowest_bandwidth():
    """0.9995 and always right: the error is its gap, though narrower than any bandwidth sought."""
    value = smooth_ece([0.9995] * 10, [1] * 10)
    assert value == pytest.approx(0.0005, rel=1e-6)
    assert value < NARROWEST


def test_no_jump_at_a_bin_edge():
    """Errors on both sides of an edge: a hair's move changes a binned error, not this one."""
    correct = [1, 0] * 20
    left = smooth_ece(np.full(40, 0.6 - 1e-9), correct)
    right = smooth_ece(np.full(40, 0.6 + 1e-9), correct)
    assert left == pytest.approx(right, abs=1e-6)
