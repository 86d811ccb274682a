"""Labels, ticks and shades: helpers that every figure of the paper relies on."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.text import Text
from paper_figure_results import TAUS, suite_of

from bench.figures.labels import Label, along, place_labels
from bench.figures.styles import BLACK, KNOWN, RC, method_styles, natural, shades_of
from bench.paper.costs import log_ticks
from bench.store import SuiteFolder
from bench.tables.collection import collect


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=7),
    st.booleans(),
)
def test_labels_never_cover_each_other(points: list[tuple[float, float]], same: bool) -> None:
    places = [points[0]] * len(points) if same else points
    with rc_context(RC):
        figure = Figure(figsize=(3.25, 2))
        axes = figure.subplots()
        axes.set(xlim=(-0.2, 1.2), ylim=(-0.2, 1.2))
        labels = [Label(*place, f"{index}.25", "#000000") for index, place in enumerate(places)]
        place_labels(axes, labels, along(axes, places))
        figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == [label.text for label in labels]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


@settings(max_examples=50, deadline=None)
@given(st.floats(-3, 20), st.floats(0.05, 8), st.integers(2, 6))
def test_cost_axes_have_a_few_ticks_inside(start: float, decades: float, most: int) -> None:
    low, high = 10.0**start, 10.0 ** (start + decades)
    ticks = log_ticks(low, high, most)
    assert 2 <= len(ticks) <= most
    assert ticks == sorted(set(ticks))
    assert all(low <= tick <= high for tick in ticks)


@pytest.mark.parametrize("colour", [BLACK, "#D55E00", "#F0E442"])
def test_shades_are_distinct_and_darken(colour: str) -> None:
    assert shades_of(colour, 1) == [colour]
    shades = shades_of(colour, 40)
    assert len(set(shades)) == 40
    light = [sum(int(one[place : place + 2], 16) for place in (1, 3, 5)) for one in shades]
    assert light == sorted(light, reverse=True)


def test_variants_of_a_method_have_shades_in_the_order_of_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.suite.check_backbone_name", lambda name: None)
    collection = collect(suite_of("temperature"), SuiteFolder(tmp_path, "temperature"))
    styles = method_styles(collection)
    labels = [f"sigma_nens (temperature={tau})" for tau in TAUS]
    assert [styles[label].colour for label in labels] == shades_of("#D55E00", 3)
    assert {styles[label].marker for label in labels} == {"*"}
    assert styles["single"] == KNOWN["single"]
    assert sorted(["τ=10", "τ=2", "τ=0.5", "a"], key=natural) == ["a", "τ=0.5", "τ=2", "τ=10"]
