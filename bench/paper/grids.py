"""How claims about the studies are measured: σN-Ens over τ, over λ and over M."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.paper.collect import Source
from bench.paper.estimates import LEAST_SEEDS, Estimate, Incomparable, values
from bench.paper.findings import Finding, Test, judged, not_measured, together, with_budgets
from bench.paper.judges import (
    ACCURACY_MARGIN,
    COLLAPSE,
    NLL_MARGIN,
    OWN,
    PACKED,
    Evidence,
    accuracy_test,
    find_all,
    missing_words,
)
from bench.tables.collection import Group, MethodRuns
from bench.tables.scores import mean_and_std

Points = list[tuple[float, MethodRuns]]


def frontier(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """The largest τ minus the smallest, in accuracy and in ECE: one must be paid with the other."""

    def judge(source: Source, group: Group, points: Points) -> Finding:
        (low, first), (high, last) = points[0], points[-1]
        found = [
            evidence.comparisons.difference(source, group, last, first, name)
            for name in ("accuracy", "ece")
        ]
        accuracy, ece = found
        if accuracy is None or ece is None:
            return _missing(source, group, [first, last])
        # More accurate must mean worse calibrated, whichever end of τ that is.
        sign = 1.0 if accuracy.value >= 0 else -1.0
        tests = [
            _beyond_zero("Δaccuracy", accuracy, sign),
            _beyond_zero("ΔECE", ece, sign),
        ]
        return judged(f"{group.title}: τ = {high:g} minus τ = {low:g}", source, tests)

    return _over(evidence, suites, OWN, "temperature", judge)


def _beyond_zero(name: str, found: Estimate, sign: float) -> Test:
    least, most = (0.0, None) if sign > 0 else (None, 0.0)
    return Test(name, found, least, most, "points", 100.0, strict=True)


def strength(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """The best λ above 0 minus the worst, in accuracy and in NLL."""

    def judge(source: Source, group: Group, points: Points) -> Finding:
        methods = [method for value, method in points if value > 0]
        if missing := _short(methods):
            return _missing(source, group, missing)
        means = {m.label: mean_and_std(values(m, ("test", "accuracy")))[0] for m in methods}
        ranked = sorted(methods, key=lambda method: means[method.label])
        losses = {m.label: mean_and_std(values(m, ("test", "nll")))[0] for m in methods}
        lossy = sorted(methods, key=lambda method: losses[method.label])
        compare = evidence.comparisons.difference
        accuracy = compare(source, group, ranked[-1], ranked[0], "accuracy")
        nll = compare(source, group, lossy[-1], lossy[0], "nll")
        if accuracy is None or nll is None:
            return _missing(source, group, methods)
        tests = [
            Test("range of accuracy", accuracy, most=ACCURACY_MARGIN, unit="points", scale=100.0),
            Test(
                "range of NLL",
                nll.over(losses[lossy[0].label]),
                most=NLL_MARGIN,
                unit="%",
                scale=100.0,
                digits=1,
            ),
        ]
        lambdas = ", ".join(f"{value:g}" for value, _ in points if value > 0)
        return judged(f"{group.title}: λ = {lambdas}", source, tests)

    return _over(evidence, suites, OWN, "strength", judge)


def members(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """Accuracy of σN-Ens with the most members minus that of its best smaller M."""
    return _members(evidence, suites, OWN, accuracy_test)


def members_packed(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """Accuracy of Packed-Ensembles with the most members minus that of its best smaller M."""

    def collapse(found: Estimate) -> Test:
        return Test("Δaccuracy", found, most=COLLAPSE, unit="points", scale=100.0)

    return _members(evidence, suites, PACKED, collapse)


def _members(
    evidence: Evidence, suites: Sequence[str], name: str, test: Callable[[Estimate], Test]
) -> list[Finding]:
    def judge(source: Source, group: Group, points: Points) -> Finding:
        methods = [method for _, method in points]
        if missing := _short(methods):
            return _missing(source, group, missing)
        *fewer, (most, last) = points
        means = [mean_and_std(values(method, ("test", "accuracy")))[0] for _, method in fewer]
        best, other = fewer[means.index(max(means))]
        found = evidence.comparisons.difference(source, group, last, other, "accuracy")
        if found is None:
            return _missing(source, group, [last, other])
        return judged(f"{group.title}: M = {most:g} minus M = {best:g}", source, [test(found)])

    return _over(evidence, suites, name, "members", judge)


def _over(
    evidence: Evidence,
    suites: Sequence[str],
    name: str,
    parameter: str,
    judge: Callable[[Source, Group, Points], Finding],
) -> list[Finding]:
    """A method over the values of one of its hyper-parameters, from small to large."""
    findings = []
    for source in evidence.paper.of(suites):
        for group in source.groups:
            points = sorted(
                ((_value(method, parameter), method) for method in find_all(group, name)),
                key=lambda point: point[0],
            )
            if len({value for value, _ in points}) > 1:
                findings.append(_judged(judge, source, group, points))
    return together(findings)


def _judged(
    judge: Callable[[Source, Group, Points], Finding], source: Source, group: Group, points: Points
) -> Finding:
    try:
        return with_budgets(judge(source, group, points), [method for _, method in points])
    except Incomparable as reason:
        return not_measured(group.title, source, str(reason))


def _value(method: MethodRuns, parameter: str) -> float:
    return float(method.entries[0].spec.parameters[parameter])


def _short(methods: Sequence[MethodRuns]) -> list[MethodRuns]:
    """The methods with too few runs that have the scores of the test split."""
    keys = (("test", "accuracy"), ("test", "nll"))
    return [m for m in methods if any(len(values(m, key)) < LEAST_SEEDS for key in keys)]


def _missing(source: Source, group: Group, methods: Sequence[MethodRuns]) -> Finding:
    return not_measured(group.title, source, missing_words(methods))
