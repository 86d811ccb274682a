"""How each claim is measured: functions from collected suites to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from bench.backbones import architecture, is_pretrained
from bench.paper.collect import Paper, Source
from bench.paper.estimates import (
    LEAST_SEEDS,
    Comparisons,
    Estimate,
    Incomparable,
    check_same,
    contrast,
    values,
)
from bench.paper.findings import Finding, Test, judged, not_measured, together, with_budgets
from bench.suite import RunSpec
from bench.tables.collection import Group, MethodRuns
from bench.tables.scores import lookup, mean_and_std

OWN, ENSEMBLE, SINGLE, PACKED = "sigma_nens", "deep_ensemble", "single", "packed_ensemble"

ACCURACY_MARGIN = 0.01
"""One point of accuracy is «the same»: about what seeds differ by on these data sets."""
NLL_MARGIN = 0.10
"""A tenth of the other's NLL is «the same»."""
PARAMETER_SHARE = 1 / 3
"""«Far fewer» parameters: at most this share of the deep ensemble's."""
COLLAPSE = -0.05
"""A loss of five points of accuracy is a collapse."""
FLAT = 0.01
"""ECE that rises by a point a severity, four from the mildest to the strongest, is still flat."""


@dataclass(frozen=True)
class Evidence:
    """What claims are measured on.

    Attributes:
        paper: the suites.
        comparisons: paired differences, each computed once.
        count: parameters of a run's model by building it, (run, number of classes) -> count; None
            to leave what needs it unmeasured.
    """

    paper: Paper
    count: Callable[[RunSpec, int], int] | None = None
    comparisons: Comparisons = field(default_factory=Comparisons)


Judge = Callable[[Evidence, Sequence[str]], list[Finding]]


def accuracy_level(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """Accuracy of σN-Ens minus the deep ensemble's."""
    return _against(evidence, suites, ENSEMBLE, _accuracy_test)


def nll_level(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """NLL of σN-Ens minus the deep ensemble's, in shares of the latter."""

    def tests(
        evidence: Evidence, source: Source, group: Group, own: MethodRuns, other: MethodRuns
    ) -> list[Test] | None:
        found = evidence.comparisons.difference(source, group, own, other, "nll")
        if found is None:
            return None
        base, _ = mean_and_std(values(other, ("test", "nll")))
        return [Test("ΔNLL", found.over(base), most=NLL_MARGIN, unit="%", scale=100.0, digits=1)]

    return _against(evidence, suites, ENSEMBLE, tests)


def parameters(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """Parameters of σN-Ens as a share of the deep ensemble's, same backbone and M."""

    def tests(
        evidence: Evidence, source: Source, group: Group, own: MethodRuns, other: MethodRuns
    ) -> list[Test] | None:
        key = ("cost", "parameters")
        mine, theirs = values(own, key), values(other, key)
        if not mine or not theirs:
            return None
        share = mine[0] / theirs[0]
        found = Estimate(share, share, share, (len(mine), len(theirs)))
        return [Test("share", found, most=PARAMETER_SHARE, unit="%", scale=100.0, signed=False)]

    return _against(evidence, suites, ENSEMBLE, tests, least=1)


def severity(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """Slope of the ECE of σN-Ens over severities."""

    def tests(group: Group, own: MethodRuns) -> list[Test] | None:
        found = contrast([values(own, ("shift", "ece_slope"))], [1])
        if found is None:
            return None
        check_same([own], "shift")
        unit = "points a severity"
        return [Test("slope of ECE", found, most=FLAT, unit=unit, scale=100.0)]

    findings = []
    for source in evidence.paper.of(suites):
        for group in source.groups:
            own = find(group, OWN)
            if own is None:
                continue
            findings.append(
                _judge(partial(tests, group, own), source, group.title, [own], LEAST_SEEDS)
            )
    return together(findings)


def detection(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """AUROC of σN-Ens minus the deep ensemble's, mean of near and far sources."""

    def tests(
        evidence: Evidence, source: Source, group: Group, own: MethodRuns, other: MethodRuns
    ) -> list[Test] | None:
        found = _detection_contrast([own, other], [1, -1])
        return None if found is None else [_weaker("ΔAUROC", found)]

    return _against(evidence, suites, ENSEMBLE, tests)


def detection_pretrained(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """The gap in AUROC with pretrained weights minus that from scratch, same architecture."""

    def tests(methods: Sequence[MethodRuns]) -> list[Test] | None:
        found = _detection_contrast(methods, [1, -1, -1, 1])
        return None if found is None else [_weaker("gap in ΔAUROC", found)]

    findings = []
    for source in evidence.paper.of(suites):
        for scratch, tuned in _pairs(source):
            methods = [find(group, name) for group in (tuned, scratch) for name in (OWN, ENSEMBLE)]
            present = [method for method in methods if method is not None]
            if len(present) < len(methods):
                continue
            where = f"{tuned.task}, {tuned.backbone} against {scratch.backbone}"
            findings.append(_judge(partial(tests, present), source, where, present, LEAST_SEEDS))
    return together(findings)


def fine_tune(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """ECE and accuracy of σN-Ens minus the single network's, both fine-tuned."""

    def tests(
        evidence: Evidence, source: Source, group: Group, own: MethodRuns, other: MethodRuns
    ) -> list[Test] | None:
        ece = evidence.comparisons.difference(source, group, own, other, "ece")
        accuracy = _accuracy_test(evidence, source, group, own, other)
        if ece is None or accuracy is None:
            return None
        return [Test("ΔECE", ece, most=0.0, unit="points", scale=100.0), *accuracy]

    return _against(evidence, suites, SINGLE, tests, only=lambda g: is_pretrained(g.backbone))


def _weaker(name: str, found: Estimate) -> Test:
    return Test(name, found, most=0.0, unit="points", scale=100.0, strict=True)


Tests = Callable[[Evidence, Source, Group, MethodRuns, MethodRuns], "list[Test] | None"]


def _accuracy_test(
    evidence: Evidence, source: Source, group: Group, own: MethodRuns, other: MethodRuns
) -> list[Test] | None:
    found = evidence.comparisons.difference(source, group, own, other, "accuracy")
    return None if found is None else [accuracy_test(found)]


def accuracy_test(found: Estimate) -> Test:
    """A difference in accuracy that is to be no loss of more than the margin."""
    return Test("Δaccuracy", found, least=-ACCURACY_MARGIN, unit="points", scale=100.0)


def _against(
    evidence: Evidence,
    suites: Sequence[str],
    other: str,
    tests: Tests,
    least: int = LEAST_SEEDS,
    only: Callable[[Group], bool] = lambda _: True,
) -> list[Finding]:
    """σN-Ens against another method, group by group where the suite has both."""
    findings = []
    for source in evidence.paper.of(suites):
        for group in filter(only, source.groups):
            own, reference = find(group, OWN), find(group, other)
            if own is None or reference is None:
                continue
            made = partial(tests, evidence, source, group, own, reference)
            found = _judge(made, source, group.title, [own, reference], least)
            findings.append(replace(found, backbone=group.backbone))
    return together(findings)


def _judge(
    tests: Callable[[], list[Test] | None],
    source: Source,
    where: str,
    methods: Sequence[MethodRuns],
    least: int,
) -> Finding:
    """The verdict of some tests; without them not measured, with how many seeds each method has."""
    try:
        made = tests()
    except Incomparable as reason:
        return not_measured(where, source, str(reason))
    if not made:
        return not_measured(where, source, missing_words(methods, least))
    found = judged(where, source, made)
    # What is counted, and needs one run only, costs no training.
    return found if least < LEAST_SEEDS else with_budgets(found, methods)


def missing_words(methods: Sequence[MethodRuns], least: int = LEAST_SEEDS) -> str:
    """Why these methods can't be compared."""
    refused = [m for m in methods if all(e.state == "not applicable" for e in m.entries)]
    if refused:
        return f"{refused[0].label} does not apply"
    short = [method for method in methods if len(method.done) < least]
    if not short:
        return "the runs have no such score"
    counts = ", ".join(f"{m.label}: n = {len(m.done)}" for m in short)
    return counts if least == 1 else f"{counts}; an interval needs {least} seeds"


def find(group: Group, name: str) -> MethodRuns | None:
    """The first runs of a method, by its name and whatever its label."""
    return next((one for one in group.methods if one.entries[0].spec.method == name), None)


def find_all(group: Group, name: str) -> list[MethodRuns]:
    """All runs of a method, one for each point of its grid."""
    return [one for one in group.methods if one.entries[0].spec.method == name]


def aurocs(method: MethodRuns) -> list[float]:
    """AUROC by the largest softmax probability of each run, mean of near and far."""
    found = []
    for entry in method.done:
        both = [
            lookup(entry.metrics or {}, ("ood", distance, "max_softmax", "auroc"))
            for distance in ("near", "far")
        ]
        present = [value for value in both if value is not None]
        if present:
            found.append(sum(present) / len(present))
    return found


def _detection_contrast(methods: Sequence[MethodRuns], weights: Sequence[float]) -> Estimate | None:
    """A contrast of AUROCs, on the same out-of-distribution samples only."""
    found = contrast([aurocs(method) for method in methods], weights)
    if found is not None:
        check_same(methods, "ood")
    return found


def _pairs(source: Source) -> Iterator[tuple[Group, Group]]:
    """(from scratch, pretrained) groups of one task and architecture."""
    for scratch in source.groups:
        for tuned in source.groups:
            if (
                scratch.task == tuned.task
                and not is_pretrained(scratch.backbone)
                and is_pretrained(tuned.backbone)
                and scratch.backbone == architecture(tuned.backbone)
            ):
                yield scratch, tuned
