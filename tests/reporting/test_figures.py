"""Figures: which there are, repeatable bytes, styles, labels that could be mistaken for markup."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from synthetic_suite import fill, finish, make_suite

from bench.figures import drawings, method_styles, write_figures
from bench.figures.plots import cost_shown
from bench.figures.styles import RC
from bench.store import SuiteFolder
from bench.suite import Suite
from bench.tables import collect

KINDS = ("reliability", "severity", "cost")


def drawn(suite: Suite, folder: SuiteFolder, kind: str) -> Figure:
    return next(d for d in drawings(collect(suite, folder)) if d.name.startswith(kind)).draw()


def test_each_figure_is_svg_and_pdf_at_column_width(folder: SuiteFolder, suite: Suite) -> None:
    paths = write_figures(collect(suite, folder))
    expected = {f"{kind}-digits-resnet8.{end}" for kind in KINDS for end in ("svg", "pdf")}
    assert {path.name for path in paths} == expected
    for path in paths:
        content = path.read_bytes()
        if path.suffix == ".svg":
            root = ET.fromstring(content)
            assert float(root.attrib["width"].removesuffix("pt")) == pytest.approx(3.25 * 72)
        else:
            assert content.startswith(b"%PDF")
            assert b"CreationDate" not in content


def test_the_same_results_give_the_same_bytes(
    folder: SuiteFolder, suite: Suite, tmp_path: Path
) -> None:
    first = write_figures(collect(suite, folder), tmp_path / "first")
    second = write_figures(collect(suite, folder), tmp_path / "second")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_no_results_no_figures(tmp_path: Path, suite: Suite) -> None:
    assert write_figures(collect(suite, SuiteFolder(tmp_path, suite.name))) == []


def test_reliability_pools_the_seeds(folder: SuiteFolder, suite: Suite) -> None:
    figure = drawn(suite, folder, "reliability")
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["single", "deep_ensemble", "σN-Ens (τ=0.2)"]
    records = pd.concat(
        pd.read_parquet(folder.run(s).records_path("test"))
        for s in suite.runs()
        if s.label == "single"
    )
    bins = np.ceil(records["confidence"] * 15).clip(1, 15)
    hits = records["label"] == records["prediction"]
    [points] = [c for c in panels[0].collections if len(c.get_offsets()) > 1]
    expected = np.stack([records["confidence"].groupby(bins).mean(), hits.groupby(bins).mean()], 1)
    assert np.asarray(points.get_offsets()) == pytest.approx(expected)


def test_reliability_leaves_damaged_records_out(folder: SuiteFolder, suite: Suite) -> None:
    for spec in suite.runs():
        if spec.label == "single":
            folder.run(spec).records_path("test").write_bytes(b"PAR1")
    figure = drawn(suite, folder, "reliability")
    assert [axes.get_title() for axes in figure.axes] == ["deep_ensemble", "σN-Ens (τ=0.2)"]


def test_severity_begins_at_the_clean_split(folder: SuiteFolder, suite: Suite) -> None:
    ece, accuracy = drawn(suite, folder, "severity").axes
    assert (ece.get_ylabel(), accuracy.get_ylabel()) == ("ECE (%)", "Accuracy (%)")
    assert "generated" in accuracy.get_xlabel()
    metrics = [folder.run(s).metrics() for s in suite.runs() if s.label == "single"]
    expected = [np.mean([m["test"]["accuracy"] for m in metrics])]  # type: ignore[index]
    for level in "12345":
        expected.append(
            np.mean([m["shift"]["severity"][level]["accuracy"] for m in metrics])  # type: ignore[index]
        )
    line = accuracy.containers[0].lines[0]
    assert list(line.get_xdata()) == [0, 1, 2, 3, 4, 5]
    assert line.get_ydata() == pytest.approx(100 * np.array(expected))


def test_marker_area_is_the_cost_that_the_budget_leaves_free(
    folder: SuiteFolder, suite: Suite
) -> None:
    matched = collect(suite, folder).groups[0]
    assert cost_shown(matched)[0] == "parameters"
    epochs = make_suite(budget={"match": "epochs", "epochs": 2})
    assert cost_shown(collect(epochs, folder).groups[0])[0] == "train_flops"

    for spec in suite.runs():
        if spec.label == "deep_ensemble":
            finish(folder, spec, lambda m: m["cost"].update(parameters=60_000))
    [axes] = drawn(suite, folder, "cost").axes
    points = [c for c in axes.collections if isinstance(c, PathCollection)]
    areas = [float(point.get_sizes()[0]) for point in points]
    assert areas[1] > areas[0] == areas[2]
    assert "60 k" in axes.get_title()


def test_styles_are_distinct_stable_and_fixed_for_known_methods(tmp_path: Path) -> None:
    folder = SuiteFolder(tmp_path, "tiny")
    few = make_suite(methods=["single", "deep_ensemble"], reference=None)
    many = make_suite(methods=["deep_ensemble", "single", "batch_ensemble"], reference=None)
    first, second = (method_styles(collect(suite, folder)) for suite in (few, many))
    assert first["single"] == second["single"]
    assert first["deep_ensemble"] == second["deep_ensemble"]

    grid = make_suite(
        methods=[{"name": "deep_ensemble", "grid": {"members": list(range(2, 42))}}], reference=None
    )
    styles = method_styles(collect(grid, folder))
    assert len(styles) == 40
    assert all(a != b for a, b in combinations(styles.values(), 2))


@pytest.mark.filterwarnings("error")
def test_many_methods_leave_room_for_the_axes(tmp_path: Path) -> None:
    methods = [{"name": "deep_ensemble", "grid": {"members": list(range(2, 32))}}]
    suite = make_suite(methods=methods, reference=None, seeds=[0])
    folder = SuiteFolder(tmp_path, suite.name)
    done = finish(folder, suite.runs()[0])
    for spec in suite.runs()[1:]:
        folder.run(spec).records_path("test").parent.mkdir(parents=True)
        shutil.copy(
            folder.run(suite.runs()[0]).records_path("test"), folder.run(spec).records_path("test")
        )
        folder.run(spec).finish(done, ["test"])
    with rc_context(RC):
        figure = drawn(suite, folder, "cost")
        figure.draw_without_rendering()
    [axes] = figure.axes
    assert axes.get_position().height * figure.get_figheight() > 1.5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "label", [r"$x", r"$\frac$", "_hidden", "a & <b>", "100 % #1", "中文 😀", "--x-->"]
)
def test_labels_are_words(folder: SuiteFolder, label: str, tmp_path: Path) -> None:
    suite = make_suite(methods=[{"name": "single", "label": label}], reference=None, seeds=[0])
    fill(folder, suite)
    paths = write_figures(collect(suite, folder), tmp_path)
    assert len(paths) == 6
    legend = drawn(suite, folder, "cost").legends[0]
    assert [text.get_text().strip().replace(r"\$", "$") for text in legend.get_texts()] == [label]
