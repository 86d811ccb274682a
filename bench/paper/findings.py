"""What a claim was found to be at one place: figures, criteria, verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench.paper.collect import Source
from bench.paper.estimates import SEEDS_AND_SAMPLES, Estimate
from bench.tables.collection import MethodRuns
from bench.tables.contents import budget_footnotes
from bench.tables.scores import rounded

Verdict = Literal["holds", "does not hold", "not measured"]
FULL_SCALE = "paper"


@dataclass(frozen=True)
class Test:
    """A figure against its bound.

    Attributes:
        name: of the figure.
        estimate: the figure.
        least: the interval must not reach below it.
        most: the interval must not reach above it.
        strict: the interval must not reach the bounds themselves either.
        unit: of the shown figure.
        scale: what the figure is multiplied by to be shown.
        digits: after the decimal point.
        signed: show a plus sign.
    """

    __test__ = False

    name: str
    estimate: Estimate
    least: float | None = None
    most: float | None = None
    unit: str = ""
    scale: float = 1.0
    digits: int = 2
    signed: bool = True
    strict: bool = False

    @property
    def passed(self) -> bool:
        """Whether the whole interval lies within the bounds."""
        low, high = self.estimate.low, self.estimate.high
        if self.strict and (low == self.least or high == self.most):
            return False
        above = self.least is None or low >= self.least
        return above and (self.most is None or high <= self.most)

    @property
    def refuted(self) -> bool:
        """Whether the whole interval lies outside the bounds."""
        below = self.least is not None and self.estimate.high < self.least
        return below or (self.most is not None and self.estimate.low > self.most)

    @property
    def shortcoming(self) -> str:
        """Why the test is not passed, in a few words."""
        least, most = self._bound(self.least), self._bound(self.most)
        bounds = " or ".join(bound for bound in (least, most) if bound)
        if not self.refuted:
            return f"the interval of {self.name} includes {bounds}"
        if least and most:
            return f"{self.name} is not from {least} to {most}"
        return f"{self.name} is {'below' if least else 'above'} {bounds}"

    def _bound(self, bound: float | None) -> str:
        return "" if bound is None else self._show(bound)

    @property
    def words(self) -> str:
        """The figure with its interval."""
        one = self.estimate
        unit = f" {self.unit}" if self.unit else ""
        if one.low == one.high:
            return f"{self.name} {self._show(one.value)}{unit}"
        basis = "" if one.basis == SEEDS_AND_SAMPLES else f", {one.basis}"
        return (
            f"{self.name} {self._show(one.value)}{unit} "
            f"({self._show(one.low)} to {self._show(one.high)}{basis})"
        )

    def _show(self, value: float) -> str:
        return rounded(value * self.scale, self.digits, sign=self.signed)


@dataclass(frozen=True)
class Finding:
    """A claim at one place.

    Attributes:
        where: task and backbone, or what else was compared.
        source: the suite at its scale; None where several are in it.
        verdict: ``holds``, ``does not hold`` or ``not measured``.
        measured: the figures in words.
        reason: why it does not hold or is not measured.
        command: what to type so that it is measured; empty if it is.
        tests: the figures.
        scales: whose results it rests on.
        backbone: that was measured, where it is one.
    """

    where: str
    source: Source | None
    verdict: Verdict
    measured: str = ""
    reason: str = ""
    command: str = ""
    tests: tuple[Test, ...] = ()
    scales: tuple[str, ...] = ()
    backbone: str = ""

    @property
    def seeds(self) -> str:
        """How many seeds of each method are behind the figures."""
        return ", ".join(map(str, self.tests[0].estimate.n)) if self.tests else ""

    @property
    def scale_words(self) -> str:
        """The scales that the verdict is of, or nothing."""
        return ", ".join(dict.fromkeys(self.scales))

    @property
    def verdict_words(self) -> str:
        """The verdict with its reason; below full scale it says so."""
        words: str = self.verdict
        small = [scale for scale in dict.fromkeys(self.scales) if scale != FULL_SCALE]
        if self.verdict != "not measured" and small:
            words += f" at scale {' and '.join(small)}"
        return f"{words} ({self.reason})" if self.reason else words


def judged(where: str, source: Source, tests: Sequence[Test]) -> Finding:
    """A finding that holds if every test is passed."""
    failed = [test.shortcoming for test in tests if not test.passed]
    return Finding(
        where,
        source,
        "does not hold" if failed else "holds",
        "; ".join(test.words for test in tests),
        "; ".join(failed),
        tests=tuple(tests),
        scales=scales_of_source(source),
    )


def with_budgets(finding: Finding, methods: Iterable[MethodRuns]) -> Finding:
    """The finding, naming runs that missed their budget: that may be why it holds."""
    missed = [line.rstrip(".") for one in methods for line in budget_footnotes(one)]
    if finding.verdict == "not measured" or not missed:
        return finding
    return replace(finding, measured="; ".join([finding.measured, *missed]))


def scales_of_source(source: Source) -> tuple[str, ...]:
    """The scale of a source, if it has one."""
    return () if source.scale is None else (source.scale,)


def not_measured(where: str, source: Source, reason: str, command: str = "") -> Finding:
    """A finding without figures, and what to type."""
    scales = scales_of_source(source)
    return Finding(where, source, "not measured", "", reason, command or source.command, (), scales)


def together(found: Iterable[Finding]) -> list[Finding]:
    """Findings of a suite of which nothing is run, joined to one; others as they are."""
    joined: dict[int, Finding] = {}
    kept: list[Finding] = []
    for finding in found:
        source = finding.source
        if source is None or source.done or finding.verdict != "not measured":
            kept.append(finding)
        elif id(source) not in joined:
            joined[id(source)] = replace(finding, where="every task and backbone", reason="not run")
            kept.append(joined[id(source)])
    return kept
