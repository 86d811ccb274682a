"""Percentile bootstrap over test samples: intervals of a score and of paired differences.

What is resampled is the test samples, with the trained networks as they are: an interval says how
far the number depends on which samples were tested; the deviation over seeds says how far it
depends on the training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from bench.metrics.calibration import BINS, bin_index
from bench.metrics.columns import Array, Integers, Records, labels_of
from bench.metrics.scores import BINNED, confidence_and_correct, per_sample

Counts = npt.NDArray[np.integer]

RESAMPLES = 1000
LEVEL = 0.95

CHUNK = 2**21
"""Weights in float64 at a time (16 MiB)."""

KEPT = 2**28
"""Weights that are kept for the next runs, a byte each as a rule (256 MiB); more are drawn anew."""


@dataclass(frozen=True)
class Interval:
    """A number and where it lies under resampling.

    Attributes:
        value: on the samples as they are.
        low, high: the outer percentiles over resamples.
    """

    value: float
    low: float
    high: float


def bootstrap_interval(
    runs: Sequence[Records],
    score: str,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """The mean of a score over runs, with its percentile interval (Efron and Tibshirani, 1993).

    Args:
        runs: records of one or more runs (seeds) on the same samples in the same order.
        score: one of `bench.metrics.scores.SAMPLE_SCORES`, such as ``nll`` or ``ece``.
        resamples: how many draws of N samples with replacement.
        level: the share of draws inside the interval.
        seed: of the draws; the same seed and N give the same draws for every score.

    Raises:
        ValueError: no runs, a missing column, labels that differ between runs, or a `resamples` or
            `level` that makes no interval.
    """
    return bootstrap_intervals(runs, [score], resamples=resamples, level=level, seed=seed)[score]


def bootstrap_intervals(
    runs: Sequence[Records],
    scores: Sequence[str],
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> dict[str, Interval]:
    """`bootstrap_interval` of several scores from the same draws."""
    found = Draws(_aligned(runs).size, resamples, seed).of(runs, scores)
    return {score: _interval(found.values[score], found.draws[score], level) for score in scores}


def paired_difference(
    a: Sequence[Records],
    b: Sequence[Records],
    score: str,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """Seed mean of `a` minus seed mean of `b`, resampling both on the same samples.

    Args:
        a: records of the runs (seeds) of one method.
        b: those of the other, on the same samples in the same order; as many seeds or not.
        score: one of `bench.metrics.scores.SAMPLE_SCORES`.
        resamples: how many draws of N samples with replacement.
        level: the share of draws inside the interval.
        seed: of the draws.

    Returns:
        the difference; an interval without 0 is a difference that does not hang on the choice of
        test samples.

    Raises:
        ValueError: as `bootstrap_interval`, or the labels of `a` and `b` differ (with the row).
    """
    return paired_differences(a, b, [score], resamples=resamples, level=level, seed=seed)[score]


def paired_differences(
    a: Sequence[Records],
    b: Sequence[Records],
    scores: Sequence[str],
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> dict[str, Interval]:
    """`paired_difference` of several scores from the same draws."""
    if not a or not b:
        raise ValueError("bootstrap: no runs")
    draws = Draws(_aligned([*a, *b]).size, resamples, seed)
    return draws.of(a, scores).minus(draws.of(b, scores), level)


@dataclass(frozen=True)
class Resampled:
    """Scores of some runs, their mean over the runs, under the draws of a `Draws`.

    Attributes:
        labels: of the samples ``[N]``.
        values: score -> its value on the samples as they are.
        draws: score -> its value under each draw ``[resamples]``.
    """

    labels: Integers
    values: dict[str, float]
    draws: dict[str, Array]

    def minus(self, other: Resampled, level: float = LEVEL) -> dict[str, Interval]:
        """These scores minus others under the same draws, with their intervals.

        Raises:
            ValueError: the others are of other samples, or of other scores.
        """
        if not np.array_equal(self.labels, other.labels) or self.draws.keys() != other.draws.keys():
            raise ValueError(
                "bootstrap: only the same scores of the same samples have a difference"
            )
        return {
            score: _interval(
                value - other.values[score], self.draws[score] - other.draws[score], level
            )
            for score, value in self.values.items()
        }


class Draws:
    """Draws of N samples with replacement, the same ones for all runs that are scored under them.

    Args:
        samples: N.
        resamples: how many draws.
        seed: of the draws; the same seed and N give the same draws.

    Raises:
        ValueError: fewer than one draw.
    """

    def __init__(self, samples: int, resamples: int = RESAMPLES, seed: int = 0) -> None:
        if resamples < 1:
            raise ValueError(f"bootstrap: resamples must be at least 1, not {resamples}")
        self.samples = samples
        self.resamples = resamples
        self.seed = seed

    def of(self, runs: Sequence[Records], scores: Sequence[str]) -> Resampled:
        """Scores of runs of one method, their mean over the runs, under every draw.

        Raises:
            ValueError: no runs, a missing column, or runs of other samples.
        """
        labels = _aligned(runs)
        if labels.size != self.samples:
            raise ValueError(f"bootstrap: draws of {self.samples} samples, runs of {labels.size}")
        parts = [_Part(runs, score) for score in scores]
        columns = np.hstack([part.columns for part in parts])
        ends = np.cumsum([part.columns.shape[1] for part in parts])[:-1]
        found: list[list[Array]] = [[] for _ in parts]
        for counts in self._chunks():
            means = np.split(counts.astype(np.float64) @ columns / self.samples, ends, axis=1)
            for part, own, folded in zip(parts, means, found, strict=True):
                folded.append(part.fold(own))
        draws = [np.concatenate(folded) for folded in found]
        return Resampled(
            labels,
            {part.score: part.value for part in parts},
            {part.score: draw for part, draw in zip(parts, draws, strict=True)},
        )

    def _chunks(self) -> Iterator[Counts]:
        """How often each sample is in each draw, some draws at a time: ``[some, samples]``."""
        keep = self.resamples * self.samples <= KEPT
        return iter(self._kept) if keep else self._drawn()

    @cached_property
    def _kept(self) -> list[Counts]:
        return list(self._drawn())

    def _drawn(self) -> Iterator[Counts]:
        rng = np.random.default_rng(self.seed)
        step = max(1, CHUNK // self.samples)
        for start in range(0, self.resamples, step):
            counts = _counts(rng, min(step, self.resamples - start), self.samples)
            yield counts.astype(np.min_scalar_type(counts.max()))


class _Part:
    """A score of some runs as sums over samples: ``columns [N, C]``, folded to one number."""

    def __init__(self, runs: Sequence[Records], score: str) -> None:
        self.score = score
        self.binned = score in BINNED
        if self.binned:
            self.columns = np.hstack([_binned_gaps(run, score) for run in runs])
        else:
            # A mean of means is the mean of the mean column.
            self.columns = np.mean([per_sample(run, score) for run in runs], axis=0)[:, None]

    @property
    def value(self) -> float:
        """The score on the samples as they are, its mean over runs."""
        return float(self.fold(self.columns.mean(axis=0, keepdims=True))[0])

    def fold(self, means: Array) -> Array:
        """Scores ``[R]`` of R weighted column means ``[R, C]``."""
        if not self.binned:
            return means[:, 0]
        by_run = np.abs(means).reshape(len(means), -1, BINS).sum(axis=2)
        return np.asarray(by_run.mean(axis=1))


def _binned_gaps(run: Records, score: str) -> Array:
    """Confidence minus correctness of each sample, in the column of its bin: ``[N, BINS]``."""
    confidence, correct = confidence_and_correct(run, score)
    gaps = np.zeros((confidence.size, BINS))
    gaps[np.arange(confidence.size), bin_index(confidence)] = confidence - correct
    return gaps


def _counts(rng: np.random.Generator, draws: int, samples: int) -> Counts:
    """How often each sample is in each draw: ``[draws, samples]``, rows summing to `samples`."""
    chosen = rng.integers(0, samples, size=(draws, samples))
    chosen += samples * np.arange(draws)[:, None]
    counts = np.bincount(chosen.ravel(), minlength=draws * samples)
    return counts.reshape(draws, samples)


def _interval(value: float, draws: Array, level: float) -> Interval:
    if not 0 < level < 1:
        raise ValueError(f"bootstrap: level must be in (0, 1), not {level}")
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value=value, low=float(low), high=float(high))


def _aligned(runs: Sequence[Records]) -> Integers:
    """The labels of the samples ``[N]``, the same ones in the same order in every run."""
    if not runs:
        raise ValueError("bootstrap: no runs")
    first = labels_of(runs[0])
    for number, run in enumerate(runs[1:], start=1):
        labels = labels_of(run)
        if labels.size != first.size:
            raise ValueError(
                f"bootstrap: run {number} has {labels.size} samples, run 0 has {first.size}"
            )
        differ = labels != first
        if differ.any():
            row = int(np.argmax(differ))
            raise ValueError(
                f"bootstrap: row {row} has the label {labels[row]} in run {number} and "
                f"{first[row]} in run 0: not the same samples in the same order"
            )
    return first
