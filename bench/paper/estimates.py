"""Numbers with an interval that counts both the seeds and the test samples."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bench.paper.collect import Source
from bench.tables.collection import Collection, Group, MethodRuns
from bench.tables.differences import Difference, differences
from bench.tables.scores import Key, lookup, mean_and_std

if TYPE_CHECKING:
    from bench.metrics.bootstrap import Interval

LEVEL = 0.95
LEAST_SEEDS = 2
"""Runs of each method that an interval needs."""
SEEDS = "seeds"
SEEDS_AND_SAMPLES = "seeds and test samples"


TESTED = {
    "test": "test samples",
    "shift": "corrupted samples",
    "ood": "out-of-distribution samples",
}
"""Part of `metrics.json` -> what its scores were measured on, in words."""


class Incomparable(Exception):
    """Numbers that must not be set against each other; the message says why."""


@dataclass(frozen=True)
class Estimate:
    """A measured number and where it lies.

    Attributes:
        value: of the seed means.
        low, high: its 95 % interval.
        n: seeds of each method that is in it.
        basis: what the interval counts.
    """

    value: float
    low: float
    high: float
    n: tuple[int, ...]
    basis: str = SEEDS

    def over(self, base: float) -> Estimate:
        """The estimate in units of a positive number.

        Raises:
            Incomparable: it is not positive.
        """
        if base <= 0:
            raise Incomparable(f"nothing is a share of {base:g}")
        return replace(self, value=self.value / base, low=self.low / base, high=self.high / base)


def contrast(samples: Sequence[Sequence[float]], weights: Sequence[float]) -> Estimate | None:
    """Σ_i w_i mean(samples_i) with Student's interval, the variance pooled over all samples.

    With one sample and the weight 1 that is the interval of a mean, with two and the weights 1 and
    −1 that of a difference of independent runs (Student, 1908; equal variances).

    Args:
        samples: a metric of each run (seed), method by method.
        weights: one a method.

    Returns:
        None if a method has fewer than two runs.
    """
    if any(len(values) < LEAST_SEEDS for values in samples):
        return None
    from scipy.special import stdtrit

    means, spreads = zip(*(mean_and_std(values) for values in samples), strict=True)
    n = tuple(len(values) for values in samples)
    freedom = sum(n) - len(n)
    squares = math.fsum(
        (count - 1) * (spread or 0.0) ** 2 for count, spread in zip(n, spreads, strict=True)
    )
    scale = math.fsum(w * w / count for w, count in zip(weights, n, strict=True))
    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * math.sqrt(squares / freedom * scale)
    value = math.fsum(w * mean for w, mean in zip(weights, means, strict=True))
    return Estimate(value, value - half, value + half, n)


def with_samples(estimate: Estimate, samples: Interval) -> Estimate:
    """The interval widened by that of a bootstrap over test samples, as independent errors add.

    The seeds say how far a number depends on the training, the bootstrap how far on which samples
    were tested: the halves of both intervals are added as squares, below and above.
    """
    below = math.hypot(estimate.value - estimate.low, samples.value - samples.low)
    above = math.hypot(estimate.high - estimate.value, samples.high - samples.value)
    return replace(
        estimate,
        low=estimate.value - below,
        high=estimate.value + above,
        basis=SEEDS_AND_SAMPLES,
    )


def values(method: MethodRuns, key: Key) -> list[float]:
    """A metric of each run that has it."""
    found = [lookup(entry.metrics or {}, key) for entry in method.done]
    return [float(value) for value in found if value is not None]


def check_same(methods: Iterable[MethodRuns], part: str) -> None:
    """Refuse runs that were tested on different samples, as when a data set came later.

    Args:
        methods: whose runs are compared.
        part: a key of `TESTED`.

    Raises:
        Incomparable: what was tested on differs between two runs.
    """
    found = {_tested_on(entry.metrics or {}, part) for one in methods for entry in one.done}
    if len(found) > 1:
        raise Incomparable(_different(part))


def _different(part: str) -> str:
    return f"the runs were tested on different {TESTED[part]}: remove some and run them again"


def _tested_on(metrics: dict[str, Any], part: str) -> str:
    """What a run's scores in a part of its metrics were measured on, comparable as a text."""
    content = metrics.get(part)
    if content is None:
        return ""
    if part == "shift":
        names = ("corruption", "severity", "samples")
        cells = [[cell.get(name) for name in names] for cell in content.get("cells", ())]
        what: Any = [lookup(metrics, ("task", "shift_origin")), sorted(cells)]
    elif part == "ood":
        sources = content.get("sources", {}).items()
        what = [
            [[name, one.get("distance"), one.get("samples")] for name, one in sorted(sources)],
            [distance in content for distance in ("near", "far")],
        ]
    else:
        what = content.get("samples")
    return json.dumps(what)


class Comparisons:
    """Differences of two methods in accuracy, NLL and ECE; each pair is resampled once."""

    def __init__(self) -> None:
        self._paired: dict[tuple[str, ...], Difference | None] = {}

    def difference(
        self, source: Source, group: Group, a: MethodRuns, b: MethodRuns, metric: str
    ) -> Estimate | None:
        """Seed mean of `a` minus that of `b` on the test split.

        Where every run has its records, the interval counts seeds and test samples (paired), else
        the seeds alone, as the estimate's `basis` says.

        Returns:
            None if either has fewer than two runs.

        Raises:
            Incomparable: not all runs were tested on the same samples.
        """
        key = ("test", metric)
        found = contrast([values(a, key), values(b, key)], [1, -1])
        if found is None:
            return None
        check_same((a, b), "test")
        paired = self._difference(source, group, a, b)
        if paired is None:
            return found
        if paired.trouble:
            raise Incomparable(_different("test"))
        interval = paired.intervals.get(metric)
        return found if interval is None else with_samples(found, interval)

    def _difference(
        self, source: Source, group: Group, a: MethodRuns, b: MethodRuns
    ) -> Difference | None:
        runs = tuple(entry.spec.id for method in (a, b) for entry in method.done)
        if runs not in self._paired:
            self._paired[runs] = _paired(source.collection, group, a, b)
        return self._paired[runs]


def _paired(
    collection: Collection, group: Group, a: MethodRuns, b: MethodRuns
) -> Difference | None:
    """The paired bootstrap of `bench.tables.differences`; None unless all records are there."""
    two = Collection(
        collection.suite.model_copy(update={"reference": b.label}),
        collection.folder,
        (*a.entries, *b.entries),
        collection.asked,
    )
    if two.damages:
        return None
    (found,) = differences(two, Group(group.task, group.backbone, (a, b)))
    return found
