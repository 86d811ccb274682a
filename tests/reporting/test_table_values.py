"""What stands in the cells, against numbers computed another way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_suite import finish, make_suite

from bench.files import write_records
from bench.store import SuiteFolder
from bench.suite import RunSpec, Suite
from bench.tables import Cell, Table, build_tables, collect
from bench.tables.columns import metric
from bench.tables.scores import Column, Score, marks, mean_and_std, rounded


def tables_of(suite: Suite, folder: SuiteFolder, name: str) -> Table:
    return build_tables(collect(suite, folder)).sections(name)[0]


def cells(table: Table, heading: str, **labels: str) -> list[Cell]:
    """The cells of a column (the first whose heading starts so) in rows with these labels."""
    column = next(i for i, text in enumerate(table.headings) if text.startswith(heading))
    places = {table.headings.index(name): value for name, value in labels.items()}
    return [
        row[column]
        for row in table.rows
        if all(row[place].text == value for place, value in places.items())
    ]


def frame(suite: Suite, folder: SuiteFolder, value: Callable[[RunSpec], Any]) -> pd.DataFrame:
    """Seed mean and deviation by label, by pandas."""
    rows = [{"label": spec.label, "value": value(spec)} for spec in suite.runs()]
    grouped = pd.DataFrame(rows).groupby("label", sort=False)["value"]
    return grouped.agg(["mean", "std"])


def test_accuracy_and_nll_follow_from_the_records(folder: SuiteFolder, suite: Suite) -> None:
    def records(spec: RunSpec) -> pd.DataFrame:
        return pd.read_parquet(folder.run(spec).records_path("test"))

    table = tables_of(suite, folder, "main")
    accuracy = frame(
        suite, folder, lambda s: 100 * (records(s)["label"] == records(s)["prediction"]).mean()
    )
    nll = frame(suite, folder, lambda s: -records(s)["log_likelihood"].mean())
    for expected, heading, digits in ((accuracy, "Accuracy", 2), (nll, "NLL", 3)):
        found = cells(table, heading)
        assert [c.text for c in found] == [f"{v:.{digits}f}" for v in expected["mean"]]
        assert [c.spread for c in found] == [f"{v:.{digits}f}" for v in expected["std"]]


@pytest.mark.parametrize(
    ("heading", "path", "scale"),
    [
        ("ECE", ("test", "ece"), 100),
        ("NLL (T)", ("test", "calibrated_nll"), 1),
        ("Brier", ("test", "brier"), 1),
        ("Shifted (generated) accuracy", ("shift", "mean", "accuracy"), 100),
        ("Shifted (generated) ECE", ("shift", "mean", "ece"), 100),
        ("Shifted (generated) NLL", ("shift", "mean", "nll"), 1),
        ("AUROC near", ("ood", "near", "max_softmax", "auroc"), 100),
        ("AUROC far", ("ood", "far", "max_softmax", "auroc"), 100),
        ("Train time", ("cost", "device_seconds"), 1),
        ("Parameters (k)", ("cost", "parameters"), 1e-3),
        ("Train cost (M FLOPs)", ("cost", "train_flops"), 1e-6),
        ("Inference speed (images/s)", ("cost", "inference_images_per_second"), 1),
    ],
)
def test_main_cells_are_seed_means(
    folder: SuiteFolder, suite: Suite, heading: str, path: tuple[str, ...], scale: float
) -> None:
    def value(spec: RunSpec) -> float:
        found: Any = folder.run(spec).metrics()
        for part in path:
            found = found[part]
        return scale * found

    expected = frame(suite, folder, value)
    found = cells(tables_of(suite, folder, "main"), heading)
    assert [cell.value for cell in found] == pytest.approx(list(expected["mean"]), rel=1e-12)
    for cell, mean in zip(found, expected["mean"], strict=True):
        digits = len(cell.text.partition(".")[2])
        assert abs(float(cell.text) - mean) <= 0.5 * 10**-digits + 1e-9


def test_main_has_no_mark_where_nothing_is_better(folder: SuiteFolder, suite: Suite) -> None:
    table = tables_of(suite, folder, "main")
    for heading in ("Parameters", "Train cost", "Train time", "Inference speed"):
        assert {cell.mark for cell in cells(table, heading)} == {""}
    for heading, best in (("Accuracy", max), ("NLL", min), ("AUROC near", max), ("Brier", min)):
        found = cells(table, heading)
        values = [float(cell.text) for cell in found]
        assert [c.mark == "best" for c in found] == [v == best(values) for v in values]
        assert sum(cell.mark == "second" for cell in found) >= 1


@pytest.mark.parametrize(
    ("direction", "means", "expected"),
    [
        ("higher", [0.5, 0.7, 0.6], ["", "best", "second"]),
        ("lower", [0.5, 0.7, 0.6], ["best", "", "second"]),
        ("higher", [0.70001, 0.70004, 0.6], ["best", "best", "second"]),
        ("lower", [0.7, 0.6, 0.6, 0.5], ["", "second", "second", "best"]),
        ("higher", [0.5], [""]),
        ("higher", [0.5, None], ["", ""]),
        ("higher", [0.5, None, 0.4], ["best", "", "second"]),
        ("", [0.5, 0.7], ["", ""]),
    ],
)
def test_marks(direction: Any, means: list[float | None], expected: list[str]) -> None:
    column = Column(("x",), "X", direction, scale=100.0, digits=2)
    scores = [Score("n/a") if mean is None else Score("value", mean) for mean in means]
    assert marks(column, scores) == expected


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_mean_and_std_are_numpys(values: list[float]) -> None:
    mean, std = mean_and_std(values)
    assert mean == pytest.approx(np.mean(values), abs=1e-9)
    if len(values) == 1:
        assert std is None
    else:
        assert std == pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=1e-6)


def test_rounding_has_true_minus_and_no_negative_zero() -> None:
    assert rounded(-0.004, 2) == "0.00"
    assert rounded(-0.006, 2) == "−0.01"
    assert rounded(0.004, 2, sign=True) == "0.00"
    assert rounded(1.5, 1, sign=True) == "+1.5"


@pytest.mark.parametrize(
    ("largest", "shown", "unit"),
    [(999, "999", ""), (1000, "1.00", "k"), (11_173_962, "11.17", "M"), (2.5e15, "2.50", "P")],
)
def test_big_numbers_take_the_prefix_of_the_largest(largest: float, shown: str, unit: str) -> None:
    column = Column(("x",), "Cost", prefix=True, digits=2).scaled(largest)
    assert column.number(largest) == shown
    assert column.unit == unit


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    suite = make_suite(seeds=[0])
    folder = SuiteFolder(tmp_path, suite.name)
    for spec in suite.runs():
        finish(folder, spec)
    table = tables_of(suite, folder, "main")
    assert all(cell.spread == "" and cell.remark == "" for row in table.rows for cell in row)
    assert "One seed." in table.notes


def test_missing_seeds_are_said_in_the_cell_and_listed(folder: SuiteFolder, suite: Suite) -> None:
    lost = next(s for s in suite.runs() if s.label == "deep_ensemble" and s.seed == 1)
    folder.run(lost).metrics_path.unlink()
    folder.run(lost).fail("FloatingPointError: loss is not finite at step 7", "…")
    tables = build_tables(collect(suite, folder))
    [main] = tables.sections("main")

    found = cells(main, "NLL (nats)", Method="deep_ensemble")
    rest = [
        folder.run(s).metrics()["test"]["nll"]  # type: ignore[index]
        for s in suite.runs()
        if s.label == "deep_ensemble" and s is not lost and s != lost
    ]
    assert [c.remark for c in found] == ["n=2/3"]
    assert found[0].value == pytest.approx(sum(rest) / 2)
    assert [c.remark for c in cells(main, "NLL (nats)", Method="single")] == [""]

    [gap] = tables.gaps.rows
    texts = [cell.text for cell in gap]
    assert texts[2:6] == [
        "deep_ensemble",
        "1",
        "failed",
        "FloatingPointError: loss is not finite at step 7",
    ]
    assert texts[6] == "sigma-bench run tiny --method deep_ensemble --seed 1"


def test_methods_without_any_run_or_that_do_not_apply(folder: SuiteFolder, suite: Suite) -> None:
    for spec in suite.runs():
        if spec.label != "single":
            folder.run(spec).metrics_path.unlink()
        if spec.label == "deep_ensemble":
            folder.run(spec).refuse("needs convolutions")
    tables = build_tables(collect(suite, folder))
    [main] = tables.sections("main")
    assert cells(main, "Accuracy", Method="deep_ensemble")[0].text == "n/a"
    assert cells(main, "Accuracy", Method="σN-Ens (τ=0.2)")[0].text == "–"
    assert cells(main, "Accuracy", Method="single")[0].mark == ""
    states = [(row[2].text, row[4].text, row[6].text) for row in tables.gaps.rows]
    assert states.count(("deep_ensemble", "not applicable", "–")) == 3
    assert len(states) == 6


def test_what_compares_members_is_not_applicable_to_one(folder: SuiteFolder, suite: Suite) -> None:
    table = tables_of(suite, folder, "uncertainty")
    for heading in ("MI", "Disagreement", "Pairwise KL", "Member accuracy"):
        assert cells(table, heading, Method="single")[0].text == "n/a"
        assert cells(table, heading, Method="deep_ensemble")[0].value is not None
    assert cells(table, "Entropy", Method="single")[0].value is not None

    ood = tables_of(suite, folder, "ood")
    assert {c.text for c in cells(ood, "AUROC", Method="single", Score="mutual information")} == {
        "n/a"
    }


def test_severity_table(folder: SuiteFolder, suite: Suite) -> None:
    table = tables_of(suite, folder, "severity")
    assert "generated" in table.title
    metrics = [folder.run(s).metrics() for s in suite.runs() if s.label == "single"]
    for heading, path in (
        ("Clean", ("test", "accuracy")),
        ("4", ("shift", "severity", "4", "accuracy")),
        ("Slope", ("shift", "accuracy_slope")),
    ):
        values: list[Any] = metrics
        for part in path:
            values = [value[part] for value in values]
        [cell] = cells(table, heading, Method="single", Metric="Accuracy (%) ↑")
        assert cell.value == pytest.approx(100 * np.mean(values))
    [slope] = cells(table, "Slope", Method="single", Metric="NLL (nats) ↓")
    assert slope.text == "n/a"


def test_corruption_table_is_the_mean_over_severities(folder: SuiteFolder, suite: Suite) -> None:
    table = tables_of(suite, folder, "corruption")
    by_seed = []
    for spec in suite.runs():
        if spec.label == "single":
            records = pd.read_parquet(folder.run(spec).records_path("shift"))
            blur = records[records["corruption"] == "blur"]
            hits = blur["label"] == blur["prediction"]
            by_seed.append(hits.groupby(blur["severity"]).mean().mean())
    [cell] = cells(table, "Accuracy", Method="single", Corruption="blur")
    assert cell.value == pytest.approx(100 * np.mean(by_seed))
    assert len(table.blocks) == 2


def test_ood_table_has_every_source_score_and_mean(folder: SuiteFolder, suite: Suite) -> None:
    table = tables_of(suite, folder, "ood")
    places = {tuple(cell.text for cell in row[:3]) for row in table.rows}
    scores = ("max softmax", "entropy", "mutual information", "energy")
    sources = (
        ("held_out", "near"),
        ("faces", "far"),
        ("mean of near", "near"),
        ("mean of far", "far"),
    )
    assert places == {(*source, score) for source in sources for score in scores}
    for block in table.blocks:
        assert len(block) == 3
    fpr = [
        folder.run(s).metrics()["ood"]["sources"]["faces"]["scores"]["energy"]["fpr95"]  # type: ignore[index]
        for s in suite.runs()
        if s.label == "deep_ensemble"
    ]
    [cell] = cells(table, "FPR95", Method="deep_ensemble", Source="faces", Score="energy")
    assert cell.value == pytest.approx(100 * np.mean(fpr))


def test_a_missed_budget_is_flagged_with_how_much(folder: SuiteFolder, suite: Suite) -> None:
    spec = next(s for s in suite.runs() if s.label == "σN-Ens (τ=0.2)" and s.seed == 2)
    near = next(s for s in suite.runs() if s.label == "single" and s.seed == 0)
    finish(folder, spec, lambda m: m["cost"].update(budget_deviation=-0.0314))
    finish(folder, near, lambda m: m["cost"].update(budget_deviation=0.0199))
    for name in ("main", "cost"):
        table = tables_of(suite, folder, name)
        [note] = table.footnotes
        assert "−3.1 %" in note
        assert "seed 2" in note
        flagged = [row[0].text for row in table.rows if row[0].footnotes]
        assert flagged == ["σN-Ens (τ=0.2)"]


def test_the_heading_says_where_the_shift_comes_from(folder: SuiteFolder, suite: Suite) -> None:
    def official(metrics: dict[str, Any]) -> None:
        metrics["task"]["shift_origin"] = "official"

    first, *rest = suite.runs()
    finish(folder, first, official)
    assert any(
        h.startswith("Shifted (mixed origin)") for h in tables_of(suite, folder, "main").headings
    )
    for spec in rest:
        finish(folder, spec, official)
    assert any(h.startswith("Shifted accuracy") for h in tables_of(suite, folder, "main").headings)


def test_differences_are_paired_on_the_same_samples(folder: SuiteFolder, suite: Suite) -> None:
    tables = build_tables(collect(suite, folder))
    [(_, found)] = tables.compared
    assert [d.method.label for d in found] == ["single", "σN-Ens (τ=0.2)"]

    def hits(label: str) -> np.ndarray:
        frames = [
            pd.read_parquet(folder.run(s).records_path("test"))
            for s in suite.runs()
            if s.label == label
        ]
        return np.mean([(f["label"] == f["prediction"]).to_numpy() for f in frames], axis=0)

    gap = hits("single") - hits("deep_ensemble")
    interval = found[0].intervals["accuracy"]
    assert interval.value == pytest.approx(gap.mean())
    # The normal approximation of the same interval: N = 80 and 1000 resamples agree to about 10 %.
    half = 1.96 * gap.std() / np.sqrt(gap.size)
    assert interval.low == pytest.approx(gap.mean() - half, abs=0.2 * half)
    assert interval.high == pytest.approx(gap.mean() + half, abs=0.2 * half)

    [table] = tables.sections("difference")
    assert [row[0].text for row in table.rows] == ["single", "σN-Ens (τ=0.2)"]
    assert cells(table, "Test samples")[0].text == "80"
    assert cells(table, "Seeds")[0].text == "3, 3"
    shown = cells(table, "Δ Accuracy")[0].text
    assert shown.startswith(rounded(100 * gap.mean(), 2, sign=True))
    assert " to " in shown


def test_differences_leave_damaged_records_out(folder: SuiteFolder, suite: Suite) -> None:
    spec = next(s for s in suite.runs() if s.label == "single" and s.seed == 0)
    path = folder.run(spec).records_path("test")
    path.write_bytes(path.read_bytes()[:100])
    tables = build_tables(collect(suite, folder))
    [table] = tables.sections("difference")
    assert cells(table, "Seeds", Method="single")[0].text == "2, 3"
    [gap] = tables.gaps.rows
    assert gap[4].text == "damaged"
    assert "test.parquet" in gap[5].text
    assert cells(tables.sections("main")[0], "Accuracy", Method="single")[0].remark == ""


def test_other_test_samples_are_not_compared(folder: SuiteFolder, suite: Suite) -> None:
    spec = next(s for s in suite.runs() if s.label == "single" and s.seed == 0)
    run = folder.run(spec)
    records = pd.read_parquet(run.records_path("test"))
    records["index"] = records["index"].to_numpy()[::-1]
    write_records(run.records_path("test"), records)
    metrics = run.metrics()
    assert metrics is not None
    run.finish({k: v for k, v in metrics.items() if k not in ("run", "files")}, ["test"])

    [table] = build_tables(collect(suite, folder)).sections("difference")

    assert cells(table, "Δ Accuracy", Method="single")[0].text == "–"
    assert any("single" in note and "index" in note for note in table.notes)
    assert cells(table, "Δ Accuracy", Method="σN-Ens (τ=0.2)")[0].text != "–"


def test_nothing_done_is_a_table_of_gaps(tmp_path: Path, suite: Suite) -> None:
    tables = build_tables(collect(suite, SuiteFolder(tmp_path, suite.name)))
    [main] = tables.sections("main")
    assert {cell.text for row in main.rows for cell in row[2:]} == {"–"}
    assert len(tables.gaps.rows) == 9
    assert tables.sections("ood")[0].rows == []
    [difference] = tables.sections("difference")
    assert {row[2].text for row in difference.rows} == {"–"}


def test_metric_columns_follow_the_definitions() -> None:
    assert metric(("test", "accuracy")).heading == "Accuracy (%) ↑"
    assert metric(("test", "nll")).direction == "lower"
    assert metric(("test", "entropy")).direction == ""
