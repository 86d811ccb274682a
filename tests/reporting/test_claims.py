"""The claims: verdicts follow the numbers, intervals are right, what is not run is not judged."""

from __future__ import annotations

import copy
import csv
import io
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from paper_results import SAMPLES, by_method, metrics_of, records, ship, store
from scipy import stats

from bench.metrics.bootstrap import paired_differences
from bench.paper.claims import CLAIMS, Measured, measure
from bench.paper.claims_table import claims_rows, claims_tables, claims_text
from bench.paper.collect import collect_paper
from bench.paper.estimates import Estimate, contrast
from bench.paper.findings import Finding, Test
from bench.paper.judges import Evidence
from bench.paper.overall import count_parameters
from bench.paper.writing import PaperTables, write_paper
from bench.suite import RunSpec


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ship(monkeypatch, tmp_path / "suites")
    return tmp_path / "results"


def judged(results: Path, name: str, scale: str | None = None, **evidence: Any) -> list[Finding]:
    (claim,) = [claim for claim in CLAIMS if claim.name == name]
    (measured,) = measure(Evidence(collect_paper(results, scale), **evidence), [claim])
    return list(measured.findings)


def one(results: Path, name: str, suite: str, **more: Any) -> Finding:
    """The only finding of a suite that is measured."""
    found = [
        f
        for f in judged(results, name, **more)
        if f.source is not None and f.source.name == suite and f.verdict != "not measured"
    ]
    assert len(found) == 1, found
    return found[0]


def settled(spec: RunSpec, middle: float, spread: float = 0.0) -> float:
    """Seeds around a middle: with seeds 0 and 1, a deviation of `spread` · √2."""
    return middle + spread * (1 if spec.seed else -1)


# --- estimates -------------------------------------------------------------------------------


def test_interval_of_a_difference_is_that_of_students_test() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(1, 1, 5).tolist(), rng.normal(0, 1, 3).tolist()
    found = contrast([a, b], [1, -1])
    interval = stats.ttest_ind(a, b).confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.n == (5, 3)


def test_interval_of_a_mean_is_that_of_students_test() -> None:
    values = [0.3, 0.5, 0.1]
    found = contrast([values], [1])
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_interval_of_a_difference_of_differences_by_plain_arithmetic() -> None:
    samples = [[1.0, 3.0], [2.0, 2.5], [0.0, 1.0, 2.0], [5.0, 5.5]]
    weights = [1, -1, -1, 1]
    found = contrast(samples, weights)
    squares = sum(sum((x - sum(s) / len(s)) ** 2 for x in s) for s in samples)
    freedom = sum(len(s) for s in samples) - 4
    error = math.sqrt(squares / freedom * sum(1 / len(s) for s in samples))
    assert found is not None
    assert found.value == pytest.approx(2.0 - 2.25 - 1.0 + 5.25)
    assert found.high - found.value == pytest.approx(stats.t.ppf(0.975, freedom) * error)


def test_one_seed_makes_no_interval() -> None:
    assert contrast([[1.0], [1.0, 2.0]], [1, -1]) is None


@pytest.mark.parametrize(
    ("interval", "bounds", "passed", "refuted"),
    [
        ((-1.0, 1.0), {"least": -1.0}, True, False),
        ((-1.0, 1.0), {"least": -1.0, "strict": True}, False, False),
        ((-1.1, 1.0), {"least": -1.0}, False, False),
        ((-3.0, -2.0), {"least": -1.0}, False, True),
        ((-1.0, 0.0), {"most": 0.0}, True, False),
        ((-1.0, 0.0), {"most": 0.0, "strict": True}, False, False),
        ((0.5, 1.0), {"most": 0.0}, False, True),
        ((1.0, 2.0), {"least": 1.0, "most": 2.0}, True, False),
        ((1.0, 2.1), {"least": 1.0, "most": 2.0}, False, False),
        ((2.5, 3.0), {"least": 1.0, "most": 2.0}, False, True),
    ],
)
def test_bounds(
    interval: tuple[float, float], bounds: Mapping[str, Any], passed: bool, refuted: bool
) -> None:
    test = Test("it", Estimate(sum(interval) / 2, *interval, (2,)), **bounds)
    assert (test.passed, test.refuted) == (passed, refuted)


# --- verdicts that flip with the numbers -----------------------------------------------------

LEVEL = {"accuracy": 0.90, "nll": 0.40}


@pytest.mark.parametrize(
    ("own", "accuracy", "nll"),
    [
        ({"accuracy": 0.90, "nll": 0.40}, "holds", "holds"),
        ({"accuracy": 0.95, "nll": 0.30}, "holds", "holds"),
        ({"accuracy": 0.80, "nll": 0.40}, "does not hold", "holds"),
        ({"accuracy": 0.90, "nll": 0.43}, "holds", "holds"),
        ({"accuracy": 0.90, "nll": 0.45}, "holds", "does not hold"),
    ],
)
def test_level_of_a_deep_ensemble(
    results: Path, own: Mapping[str, float], accuracy: str, nll: str
) -> None:
    store(results, "cifar10", scores=by_method(sigma_nens=own, deep_ensemble=LEVEL))
    assert one(results, "accuracy", "cifar10").verdict == accuracy
    assert one(results, "nll", "cifar10").verdict == nll


def test_an_interval_that_includes_the_margin_shows_nothing(results: Path) -> None:
    def scores(spec: RunSpec) -> Mapping[str, float]:
        return {"accuracy": settled(spec, 0.9, 0.05 if spec.method == "sigma_nens" else 0.0)}

    store(results, "cifar10", scores=scores)
    found = one(results, "accuracy", "cifar10")
    assert found.verdict == "does not hold"
    assert found.reason == "the interval of Δaccuracy includes −1.00"
    assert found.verdict_words.startswith("does not hold at scale tiny (")


def test_interval_adds_seeds_and_samples_as_independent_errors(results: Path) -> None:
    def scores(spec: RunSpec) -> Mapping[str, float]:
        middle = {"sigma_nens": 0.85, "deep_ensemble": 0.9}.get(spec.method, 0.5)
        return {"accuracy": settled(spec, middle, 0.01)}

    store(results, "cifar10", scores=scores)
    (test,) = one(results, "accuracy", "cifar10").tests
    runs = {
        m: [records(x + d, seed, 0.4) for seed, d in ((0, -0.01), (1, 0.01))]
        for m, x in (("own", 0.85), ("other", 0.9))
    }
    sampled = paired_differences(runs["own"], runs["other"], ["accuracy"])["accuracy"]
    seeded = stats.ttest_ind([0.84, 0.86], [0.89, 0.91]).confidence_interval(0.95)
    half = math.hypot(-0.05 - seeded.low, sampled.value - sampled.low)
    assert sampled.low < sampled.value - 1e-6
    assert test.estimate.value == pytest.approx(-0.05)
    assert test.estimate.low == pytest.approx(-0.05 - half)
    assert test.estimate.basis == "seeds and test samples"


def test_without_records_the_interval_is_of_the_seeds_and_says_so(results: Path) -> None:
    store(
        results,
        "cifar10",
        scores=lambda spec: {"records": False, "accuracy": settled(spec, 0.9, 0.001)},
    )
    found = one(results, "accuracy", "cifar10")
    assert found.tests[0].estimate.basis == "seeds"
    assert ", seeds)" in found.measured
    assert found.verdict == "holds"


@pytest.mark.parametrize(("own", "verdict"), [(300, "holds"), (400, "does not hold")])
def test_far_fewer_parameters(results: Path, own: int, verdict: str) -> None:
    scores = by_method(sigma_nens={"parameters": own}, deep_ensemble={"parameters": 1000})
    store(results, "cifar10", scores=scores, only=lambda spec: spec.seed == 0)
    assert one(results, "parameters", "cifar10").verdict == verdict


@pytest.mark.parametrize(
    ("own", "ensemble", "verdict"),
    [
        (23_600_000, 146_100_000, "holds"),
        (36_500_000, 146_100_000, "does not hold"),
        (23_600_000, 36_500_000, "does not hold"),
    ],
)
@pytest.mark.parametrize("run", [True, False])
def test_parameters_of_the_wide_networks(
    results: Path, own: int, ensemble: int, verdict: str, run: bool
) -> None:
    def count(spec: RunSpec, num_classes: int) -> int:
        assert num_classes == 100
        assert not run, "counted although runs say it"
        return {("wrn28_8", "sigma_nens"): own, ("wrn28_10", "deep_ensemble"): ensemble}[
            spec.backbone, spec.method
        ]

    if run:
        store(
            results,
            "cifar100",
            scores=lambda spec: {"parameters": own if spec.backbone == "wrn28_8" else ensemble},
        )
    (found,) = judged(results, "parameters, wide", count=count)
    assert found.verdict == verdict
    assert ("at scale tiny" in found.verdict_words) == run


def test_parameters_of_the_wide_networks_without_a_count(results: Path) -> None:
    (found,) = judged(results, "parameters, wide", count=None)
    assert found.verdict == "not measured"
    assert found.command.startswith("sigma-bench run cifar100")


def test_a_count_is_that_of_the_model_that_would_be_trained() -> None:
    from bench.suite_files import load_suite

    specs = {spec.method: spec for spec in load_suite("digits").runs()}
    single = count_parameters(specs["single"], 10)
    assert count_parameters(specs["deep_ensemble"], 10) == 4 * single
    assert single < count_parameters(specs["sigma_nens"], 10) < 2 * single


@pytest.mark.parametrize(
    ("high", "verdict"),
    [
        ({"accuracy": 0.95, "ece": 0.10}, "holds"),
        ({"accuracy": 0.80, "ece": 0.01}, "holds"),
        ({"accuracy": 0.95, "ece": 0.01}, "does not hold"),
        ({"accuracy": 0.90, "ece": 0.05}, "does not hold"),
    ],
)
def test_frontier_over_temperature(results: Path, high: Mapping[str, float], verdict: str) -> None:
    # The middle τ has no say, and records would have another ECE than the one chosen here.
    store(
        results,
        "temperature",
        scores=lambda spec: {
            "records": False,
            **(high if spec.parameters.get("temperature") == 5 else {}),
        },
    )
    found = one(results, "frontier", "temperature")
    assert found.verdict == verdict
    assert "τ = 5 minus τ = 0.1" in found.where


@pytest.mark.parametrize(
    ("last", "off", "verdict"),
    [
        ({"accuracy": 0.90}, {}, "holds"),
        ({"accuracy": 0.80}, {}, "does not hold"),
        ({"nll": 0.50}, {}, "does not hold"),
        # Without the term it is another method.
        ({"accuracy": 0.90}, {"accuracy": 0.2, "nll": 3.0}, "holds"),
    ],
)
def test_strength_hardly_matters(
    results: Path, last: Mapping[str, float], off: Mapping[str, float], verdict: str
) -> None:
    chosen = {0.1: last, 0.0: off}
    store(
        results,
        "strength",
        scores=lambda spec: chosen.get(spec.parameters.get("strength", 1.0), {}),
    )
    assert one(results, "strength", "strength").verdict == verdict


@pytest.mark.parametrize(
    ("own", "packed", "verdicts"),
    [
        ({2: 0.80, 4: 0.85, 16: 0.85}, {2: 0.8, 4: 0.8, 16: 0.5}, ("holds", "holds")),
        ({2: 0.80, 4: 0.90, 16: 0.85}, {2: 0.8, 4: 0.8, 16: 0.8}, ("does not hold",) * 2),
        ({2: 0.90, 4: 0.80, 16: 0.85}, {2: 0.5, 4: 0.8, 16: 0.6}, ("does not hold", "holds")),
    ],
)
def test_members(
    results: Path,
    own: Mapping[int, float],
    packed: Mapping[int, float],
    verdicts: tuple[str, str],
) -> None:
    chosen = {"sigma_nens": own, "packed_ensemble": packed}

    def scores(spec: RunSpec) -> Mapping[str, float]:
        found = chosen.get(spec.method)
        return {"accuracy": found[spec.parameters["members"]]} if found else {}

    store(results, "members", scores=scores)
    found = tuple(one(results, name, "members").verdict for name in ("members", "members, packed"))
    assert found == verdicts


@pytest.mark.parametrize(
    ("slope", "spread", "verdict"),
    [(0.002, 0.0, "holds"), (0.03, 0.0, "does not hold"), (0.002, 0.005, "does not hold")],
)
def test_ece_over_severity(results: Path, slope: float, spread: float, verdict: str) -> None:
    store(
        results,
        "cifar10",
        scores=lambda spec: (
            {"slope": settled(spec, slope, spread)} if spec.method == "sigma_nens" else {"slope": 9}
        ),
    )
    assert one(results, "severity", "cifar10").verdict == verdict


@pytest.mark.parametrize(("own", "verdict"), [(0.7, "holds"), (0.8, "does not hold")])
def test_detection(results: Path, own: float, verdict: str) -> None:
    store(results, "cifar10", scores=by_method(sigma_nens={"auroc": own}))
    assert one(results, "detection", "cifar10").verdict == verdict


@pytest.mark.parametrize(
    ("scratch", "pretrained", "verdict"),
    [(0.78, 0.6, "holds"), (0.6, 0.78, "does not hold"), (0.7, 0.7, "does not hold")],
)
def test_detection_with_pretrained_weights(
    results: Path, scratch: float, pretrained: float, verdict: str
) -> None:
    def scores(spec: RunSpec) -> Mapping[str, float]:
        if spec.method != "sigma_nens":
            return {}
        return {"auroc": pretrained if "@" in spec.backbone else scratch}

    store(results, "pretrained", scores=scores)
    found = one(results, "detection, pretrained", "pretrained")
    assert found.verdict == verdict
    assert found.tests[0].estimate.value == pytest.approx(pretrained - scratch)


@pytest.mark.parametrize(
    ("own", "verdict"),
    [
        ({"ece": 0.02}, "holds"),
        ({"ece": 0.08}, "does not hold"),
        ({"ece": 0.02, "accuracy": 0.7}, "does not hold"),
    ],
)
def test_fine_tuned_ensembles(results: Path, own: Mapping[str, float], verdict: str) -> None:
    def scores(spec: RunSpec) -> Mapping[str, Any]:
        # From scratch nothing of this is claimed.
        if spec.method != "sigma_nens":
            return {"records": False}
        return {"records": False, **(own if "@" in spec.backbone else {"ece": 0.5})}

    store(results, "pretrained", scores=scores)
    found = one(results, "fine-tune", "pretrained")
    assert found.verdict == verdict
    assert found.where.endswith("resnet20@weights.safetensors")


def test_networks_of_both_kinds(results: Path) -> None:
    store(results, "cifar10")
    (found,) = judged(results, "architectures")
    assert found.verdict == "not measured"
    assert found.reason == "no transformer network is measured"
    assert found.command == f"sigma-bench run imagenet --scale paper --results {results} --data DIR"
    store(results, "sst2")
    (found,) = judged(results, "architectures")
    assert found.verdict_words == "holds at scale tiny"
    assert "transformer: 2 of 2 cases hold (hf:bert@pretrained)" in found.measured
    store(results, "imagenet", scores=lambda s: {"nll": 0.9} if s.method == "sigma_nens" else {})
    (found,) = judged(results, "architectures")
    assert found.verdict == "does not hold"
    assert found.reason == "accuracy or NLL does not hold in 3 of 10 cases"


# --- what is not measured, and which scale a verdict is of -----------------------------------


def test_nothing_is_judged_where_nothing_is_run(results: Path) -> None:
    store(results, "cifar10", only=lambda spec: spec.method == "single")
    measured = measure(Evidence(collect_paper(results)))
    assert [one.claim for one in measured] == list(CLAIMS)
    for claim in measured:
        for finding in claim.findings:
            assert finding.verdict == "not measured"
            assert finding.command.startswith("sigma-bench run ")
            assert not finding.tests
    places = {f.where: f for f in measured[0].findings if f.source and f.source.name == "cifar10"}
    assert places["digits, resnet8"].reason == (
        "sigma_nens: n = 0, deep_ensemble: n = 0; an interval needs 2 seeds"
    )
    others = [f for f in measured[0].findings if f.source and f.source.name == "cifar100"]
    assert [f.reason for f in others] == ["not run"]


def test_one_seed_is_not_enough(results: Path) -> None:
    store(results, "cifar10", only=lambda spec: spec.seed == 0)
    (found,) = [f for f in judged(results, "accuracy") if f.source and f.source.name == "cifar10"]
    assert found.verdict == "not measured"
    assert "n = 1" in found.reason


def test_a_grid_with_a_hole_is_not_judged(results: Path) -> None:
    store(results, "members", only=lambda spec: spec.parameters.get("members") != 16)
    (found,) = judged(results, "members")
    assert found.verdict == "not measured"
    assert "sigma_nens (members=16): n = 0" in found.reason


def test_a_verdict_names_its_scale_below_the_papers(results: Path) -> None:
    store(results, "cifar10", "paper")
    store(results, "cifar100", "tiny", only=lambda spec: spec.backbone == "resnet8")
    assert one(results, "accuracy", "cifar10").verdict_words == "holds"
    assert one(results, "accuracy", "cifar100").verdict_words == "holds at scale tiny"
    table, criteria = claims_tables(measure(Evidence(collect_paper(results))))
    shown = {r[2].text: (r[3].text, r[6].text) for r in table.blocks[0]}
    assert shown["cifar10: digits, resnet8"] == ("paper", "holds")
    assert shown["cifar100: digits, resnet8"] == ("tiny", "holds at scale tiny")
    assert [r[0].text for r in criteria.rows] == [claim.name for claim in CLAIMS]


def test_a_scale_that_a_suite_lacks_leaves_its_claims_unmeasured(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench import suite_files

    path = suite_files.shipped_suites()["temperature"]
    path.write_text(path.read_text(encoding="utf-8").replace("tiny", "small"), encoding="utf-8")
    store(results, "cifar10", "tiny")
    (found,) = judged(results, "frontier", "tiny")
    assert found.verdict == "not measured"
    assert found.reason == "no scale tiny in temperature"


def _everything(results: Path) -> list[Measured]:
    for name in ("cifar10", "pretrained", "members"):
        store(results, name)
    return measure(Evidence(collect_paper(results)))


def test_files_of_claims(results: Path) -> None:
    measured = _everything(results)
    paper = collect_paper(results)

    def texts() -> dict[str, str]:
        paths = write_paper(paper, PaperTables((), tuple(measured)))
        return {path.name: path.read_text(encoding="utf-8") for path in paths}

    first = texts()
    assert texts() == first
    rows = list(csv.DictReader(io.StringIO(first["claims.csv"])))
    assert [row["claim"] for row in rows] == [row["claim"] for row in claims_rows(measured)]
    (row,) = [r for r in rows if r["claim"] == "accuracy" and r["suite"] == "cifar10"]
    assert (float(row["value"]), row["least"], row["seeds"]) == (0.0, "-0.01", "2 2")
    assert (row["verdict"], row["scale"]) == ("holds", "tiny")
    assert "holds at scale tiny" in first["claims.md"]
    assert "sigma-bench run cifar100" in first["claims.md"]
    assert r"$\Delta$accuracy" in first["claims.tex"]


def test_a_terminal_shows_every_claim_and_no_command_twice(results: Path) -> None:
    measured = _everything(results)
    lines = [line.plain for line in claims_text(measured)]
    for claim in CLAIMS:
        assert f"{claim.name}: {claim.statement}" in lines
    assert any(
        line.startswith("  holds at scale tiny; cifar10: digits, resnet8; Δ") for line in lines
    )
    assert "  not measured (not run); cifar100, imagenet, sst2" in lines


def test_samples_of_the_fixture_are_enough_for_the_margin() -> None:
    """A point of accuracy must be whole samples, or the tests above test rounding."""
    assert SAMPLES % 100 == 0


def test_the_documentation_has_every_claim_with_its_bounds() -> None:
    text = (Path(__file__).parents[2] / "docs" / "paper.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.count("|") == 4}
    for claim in CLAIMS:
        assert claim.name in rows
        bounds = re.findall(r"[−+]?\d+(?:\.\d+)? (?:points?|%)", claim.criterion)
        missing = [bound for bound in bounds if bound.split()[0] not in rows[claim.name]]
        assert claim.name == "parameters" or not missing, (claim.name, missing)


# --- runs that must not be compared ----------------------------------------------------------


def stored_with(
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    change: Callable[[RunSpec, dict[str, Any]], None],
) -> None:
    """Store a suite's runs with metrics that a test has changed."""

    def changed(spec: RunSpec, chosen: Mapping[str, Any]) -> dict[str, Any]:
        metrics = copy.deepcopy(metrics_of(spec, chosen))
        change(spec, metrics)
        return metrics

    with monkeypatch.context() as patch:
        patch.setattr("paper_results.metrics_of", changed)
        store(results, name)


def unmeasured(results: Path, claim: str, suite: str) -> list[str]:
    """Why a claim is not measured on a suite; it must not be anywhere."""
    found = [f for f in judged(results, claim) if f.source is not None and f.source.name == suite]
    assert {f.verdict for f in found} == {"not measured"}
    return [f.reason for f in found]


def test_detection_of_other_sources_is_not_compared(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A near set that came later would make the method that has it look worse."""

    def change(spec: RunSpec, metrics: dict[str, Any]) -> None:
        metrics["ood"]["far"] = {"max_softmax": {"auroc": 0.95}}
        if spec.method == "deep_ensemble":
            del metrics["ood"]["near"]

    stored_with(results, monkeypatch, "pretrained", change)
    reasons = unmeasured(results, "detection", "pretrained")
    reasons += unmeasured(results, "detection, pretrained", "pretrained")
    assert len(reasons) == 3
    assert all("different out-of-distribution samples" in reason for reason in reasons)


def test_detection_of_sources_of_another_size_is_not_compared(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(spec: RunSpec, metrics: dict[str, Any]) -> None:
        size = 10 + spec.seed
        metrics["ood"]["sources"] = {"a": {"distance": "near", "samples": size, "scores": {}}}

    stored_with(results, monkeypatch, "cifar10", change)
    (reason,) = unmeasured(results, "detection", "cifar10")
    assert "different out-of-distribution samples" in reason


@pytest.mark.parametrize("what", ["origin", "cells"])
def test_slopes_over_other_corruptions_are_not_averaged(
    results: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def change(spec: RunSpec, metrics: dict[str, Any]) -> None:
        if spec.seed == 0:
            return
        if what == "origin":
            metrics["task"]["shift_origin"] = "official"
        else:
            metrics["shift"]["cells"] = [{"corruption": "fog", "severity": 1, "samples": 5}]

    stored_with(results, monkeypatch, "cifar10", change)
    (reason,) = unmeasured(results, "severity", "cifar10")
    assert "different corrupted samples" in reason


@pytest.mark.parametrize("what", ["records", "metrics"])
def test_runs_on_other_test_samples_are_not_compared(
    results: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def change(spec: RunSpec, metrics: dict[str, Any]) -> None:
        if what == "metrics" and spec.method == "sigma_nens":
            metrics["test"]["samples"] -= 1

    def other(accuracy: float, seed: int, nll: float) -> pd.DataFrame:
        found = records(accuracy, seed, nll)
        return found.assign(index=found["index"] + seed) if what == "records" else found

    monkeypatch.setattr("paper_results.records", other)
    stored_with(results, monkeypatch, "cifar10", change)
    for claim in ("accuracy", "nll"):
        (reason,) = unmeasured(results, claim, "cifar10")
        assert "different test samples" in reason


def test_studies_without_scores_are_not_measured(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(spec: RunSpec, metrics: dict[str, Any]) -> None:
        if spec.method in ("sigma_nens", "packed_ensemble"):
            del metrics["test"]["nll"], metrics["test"]["accuracy"]

    claims = {
        "strength": "strength",
        "members": "members",
        "members, packed": "members",
        "frontier": "temperature",
    }
    for claim, suite in claims.items():
        stored_with(results, monkeypatch, suite, change)
        assert unmeasured(results, claim, suite) == ["the runs have no such score"]


def test_nothing_is_a_share_of_an_nll_of_zero(results: Path) -> None:
    for claim, suite in (("nll", "cifar10"), ("strength", "strength")):
        store(results, suite, scores=lambda spec: {"nll": 0.0})
        assert unmeasured(results, claim, suite) == ["nothing is a share of 0"]


def test_a_run_that_missed_its_budget_is_named_beside_the_figure(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(spec: RunSpec, metrics: dict[str, Any]) -> None:
        if spec.method == "sigma_nens" and spec.seed == 1:
            metrics["cost"]["budget_deviation"] = 0.5

    words = "sigma_nens: off the budget of train FLOPs by more than 2 %: +50.0 % (seed 1)"
    stored_with(results, monkeypatch, "cifar10", change)
    stored_with(results, monkeypatch, "members", change)
    assert words in one(results, "accuracy", "cifar10").measured
    assert "+50.0 % (seed 1)" in one(results, "members", "members").measured
    assert "off the budget" not in one(results, "parameters", "cifar10").measured
    assert "off the budget" not in one(results, "members, packed", "members").measured
