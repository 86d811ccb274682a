"""The smooth calibration error: no bins, one number without a free parameter."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.metrics.columns import Array, confidences_and_hits

STEPS = 2**13
"""Steps of the grid over ``[0, 1]``."""

NARROWEST = 1e-3
"""The smallest bandwidth: eight steps of the grid."""


def smooth_ece(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """The smooth ECE of Błasiok and Nakkiran (2023).

    ``smECE_σ = ∫₀¹ |(1/N) Σ_i K_σ(t, c_i) (c_i − a_i)| dt`` with the Gaussian kernel K_σ reflected
    at 0 and 1; smECE is its value at the one bandwidth σ where ``smECE_σ = σ`` (sought in
    [`NARROWEST`, 1]).

    Args:
        confidence: c ``[N]`` in ``[0, 1]``.
        correct: a ``[N]``, 0 or 1.

    Returns:
        in ``[0, 1]``.
    """
    from scipy.optimize import brentq

    values, hits = confidences_and_hits(confidence, correct)
    spectrum = _spectrum(values, (values - hits) / values.size)
    if _error(spectrum, NARROWEST) <= NARROWEST:
        return _error(spectrum, NARROWEST)
    if _error(spectrum, 1.0) >= 1.0:
        return 1.0
    # smECE_σ never grows with σ, so the difference changes its sign once.
    sigma = brentq(lambda width: width - _error(spectrum, width), NARROWEST, 1.0, xtol=1e-10)
    return _error(spectrum, float(sigma))


def _spectrum(positions: Array, masses: Array) -> Array:
    """Cosine coefficients of point masses, each shared by the two grid points beside it."""
    # SciPy is loaded when it is needed: what only compares bins starts without it.
    from scipy.fft import dct

    scaled = positions * STEPS
    lower = np.minimum(scaled.astype(np.int64), STEPS - 1)
    share = scaled - lower
    grid = np.zeros(STEPS + 1)
    grid += np.bincount(lower, (1 - share) * masses, STEPS + 1)
    grid += np.bincount(lower + 1, share * masses, STEPS + 1)
    grid[1:-1] /= 2  # the transform counts inner points twice
    return np.asarray(dct(grid, type=1), dtype=np.float64)


def _error(spectrum: Array, sigma: float) -> float:
    """The error at one bandwidth: the reflected Gaussian only damps each cosine."""
    from scipy.fft import dct

    damped = spectrum * np.exp(-0.5 * (np.pi * sigma * np.arange(STEPS + 1)) ** 2)
    height = np.abs(dct(damped, type=1))
    return float(height.sum() - (height[0] + height[-1]) / 2) / STEPS
