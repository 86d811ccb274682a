"""The paper's figures: every point where its number is, one colour a method, gaps in words."""

from __future__ import annotations

import itertools
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from paper_figure_results import LAYERS, TAUS, gates, paper_of, scores, store, suite_of

from bench.figures.labels import Label, along, place_labels
from bench.figures.styles import BLACK, KNOWN, RC, method_styles, natural, shades_of
from bench.paper.collect import Paper
from bench.paper.costs import log_ticks
from bench.paper.figures import LIST, paper_figures, write_paper_figures
from bench.store import SuiteFolder
from bench.suite import RunSpec
from bench.tables.collection import collect

NAMES = [
    "F1-frontier",
    *("F2-severity-resnet18", "F2-severity-wrn28_10"),
    "F3-members",
    *(f"F4-reliability-cifar10-{one}" for one in ("resnet18", "wrn28_10", "wrn28_8")),
    "F4-reliability-cifar100-resnet18",
    *("F5-gates-resnet18", "F5-gates-resnet18_pretrained"),
    *("F6-cost-cifar10", "F6-cost-cifar100"),
]
COLUMN = ("F3-members", "F4-reliability-cifar10-wrn28_8")


def packed_eight(spec: RunSpec) -> bool:
    return spec.method == "packed_ensemble" and spec.parameters["members"] == 8


@pytest.fixture(scope="module", autouse=True)
def _any_backbone() -> Iterator[None]:
    """No backbone is built here, so that no file of weights need be there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.suite.check_backbone_name", lambda name: None)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    for name in ("cifar10", "cifar100", "temperature"):
        store(results, name)
    store(results, "members", refused=packed_eight)
    return results


@pytest.fixture(scope="module")
def paper(finished: Path) -> Paper:
    return paper_of(finished)


@pytest.fixture(scope="module")
def figures(paper: Paper) -> dict[str, Figure]:
    with rc_context(RC):
        found = {one.name: one.draw() for one in paper_figures(paper).drawings}
        for figure in found.values():
            figure.draw_without_rendering()
    return found


def specs(suite: str, method: str, **parameters: Any) -> list[RunSpec]:
    """The runs of a method with these parameters, on the first backbone."""
    first = suite_of(suite).backbones[0]
    return [
        spec
        for spec in suite_of(suite).runs()
        if spec.method == method
        and spec.backbone == first
        and all(spec.parameters[name] == value for name, value in parameters.items())
    ]


def expected(runs: list[RunSpec], name: str, severity: int = 0) -> tuple[float, float]:
    """Mean and standard deviation over seeds, as an axis shows them."""
    values = [scores(spec, severity)[name] * (1 if name == "nll" else 100) for spec in runs]
    assert len(values) == 2
    return float(np.mean(values)), float(np.std(values, ddof=1))


def series(axes: Axes) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """(colour, marker, points, half lengths of the bars in y) of everything with error bars."""
    for one in axes.containers:
        assert isinstance(one, ErrorbarContainer)
        line, _, bars = one.lines
        segments = np.array(bars[-1].get_segments())
        half = (segments[:, 1, 1] - segments[:, 0, 1]) / 2
        points = np.stack([line.get_xdata(), line.get_ydata()], axis=1).astype(float)
        yield to_hex(line.get_color()).upper(), str(line.get_marker()), points, half


def by_marker(axes: Axes) -> dict[str, list[np.ndarray]]:
    found: dict[str, list[np.ndarray]] = {}
    for _, marker, points, _ in series(axes):
        found.setdefault(marker, []).append(points)
    return found


def extents(texts: list[Text]) -> list[Any]:
    """Boxes of the words, without the lines that lead to them."""
    return [Text.get_window_extent(text) for text in texts]


def test_every_figure_is_svg_and_pdf_at_one_of_two_widths(
    paper: Paper, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "results")
    paths = write_paper_figures(paper_of(tmp_path / "results"))
    assert [path.name for path in paths] == [
        *(f"{name}.{end}" for name in NAMES for end in ("svg", "pdf")),
        LIST,
    ]
    for path in paths[:-1]:
        content = path.read_bytes()
        if path.suffix == ".pdf":
            assert content.startswith(b"%PDF")
            continue
        root = ET.fromstring(content)
        inches = 3.25 if path.stem in COLUMN else 6.75
        assert float(root.attrib["width"].removesuffix("pt")) == pytest.approx(inches * 72)
        assert not [one for one in root.iter() if one.tag.endswith("image")], "not vector"
    listed = paths[-1].read_text(encoding="utf-8")
    for drawing in paper_figures(paper).drawings:
        assert f"({drawing.name}.svg)" in listed
        assert drawing.caption in listed


def test_the_same_results_give_the_same_bytes(paper: Paper) -> None:
    first, second = (paper_figures(paper).drawings for _ in range(2))
    for one, other in zip(first, second, strict=True):
        if one.name in ("F1-frontier", "F5-gates-resnet18", "F6-cost-cifar10"):
            assert one.render("svg") == other.render("svg")
            assert one.render("pdf") == other.render("pdf")
        assert one.caption == other.caption


def test_f1_has_a_point_a_temperature_and_reference_marks(figures: dict[str, Figure]) -> None:
    axes = figures["F1-frontier"].axes
    assert [one.get_xlabel() for one in axes] == ["ECE (%)"] * 2 + ["NLL (nats)"] * 2
    assert "from scratch" in axes[0].get_title()
    assert "pretrained" in axes[1].get_title()
    for panel, name in ((axes[0], "ece"), (axes[2], "nll")):
        drawn = list(series(panel))
        stars = [one for one in drawn if one[1] == "*"]
        for (_, _, points, half), tau in zip(stars, TAUS, strict=True):
            runs = specs("temperature", "sigma_nens", temperature=tau)
            (x, _), (y, deviation) = expected(runs, name), expected(runs, "accuracy")
            assert points == pytest.approx(np.array([[x, y]]))
            assert half == pytest.approx([deviation])
        [path] = [line for line in panel.lines if len(line.get_xdata()) == len(TAUS)]
        assert path.get_xydata() == pytest.approx(np.concatenate([one[2] for one in stars]))
        for method in ("single", "deep_ensemble"):
            [points] = [one[2] for one in drawn if one[1] == KNOWN[method].marker]
            runs = specs("temperature", method)
            assert points == pytest.approx(
                np.array([[expected(runs, name)[0], expected(runs, "accuracy")[0]]])
            )
        assert [text.get_text() for text in panel.texts] == ["0.1", "1", "5"]
        assert [one[0] for one in stars] == shades_of(KNOWN["sigma_nens"].colour, 3)


def test_f1_labels_keep_clear_of_each_other_and_inside(figures: dict[str, Figure]) -> None:
    for axes in figures["F1-frontier"].axes:
        frame = axes.get_window_extent()
        boxes = extents(axes.texts)
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        assert all(frame.containsx(box.x0) and frame.containsx(box.x1) for box in boxes)


def test_f2_runs_from_the_clean_split_to_severity_five(figures: dict[str, Figure]) -> None:
    axes = figures["F2-severity-resnet18"].axes
    assert [one.get_title() for one in axes] == ["", "CIFAR-10", "", "", "CIFAR-100", ""]
    for place, suite in ((0, "cifar10"), (3, "cifar100")):
        for panel, name in zip(axes[place : place + 3], ("accuracy", "ece", "nll"), strict=True):
            assert len(panel.containers) == 4
            for colour, marker, points, half in series(panel):
                [method] = [m for m, s in KNOWN.items() if (s.colour, s.marker) == (colour, marker)]
                runs = specs(suite, method)
                wanted = [expected(runs, name, severity) for severity in range(6)]
                assert points[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
                assert points[:, 1] == pytest.approx([mean for mean, _ in wanted])
                assert half == pytest.approx([deviation for _, deviation in wanted])


def test_f3_begins_at_the_single_network_and_marks_what_cannot_be(
    figures: dict[str, Figure],
) -> None:
    for panel, name in zip(figures["F3-members"].axes, ("accuracy", "nll"), strict=True):
        assert panel.get_xscale() == "log"
        assert panel.get_xticks().tolist() == [1, 2, 4, 8]
        found = by_marker(panel)
        single = expected(specs("members", "single"), name)[0]
        assert found["o"][0] == pytest.approx(np.array([[1, single]]))
        for method, counts in (("deep_ensemble", (2, 4, 8)), ("packed_ensemble", (2, 4))):
            wanted = [[m, expected(specs("members", method, members=m), name)[0]] for m in counts]
            assert found[KNOWN[method].marker][0] == pytest.approx(np.array(wanted))
        [crosses] = [one for one in panel.collections if isinstance(one, PathCollection)]
        assert crosses.get_offsets()[:, 0].tolist() == [8]
        assert to_hex(crosses.get_edgecolor()[0]).upper() == KNOWN["packed_ensemble"].colour
        low, high = panel.get_ylim()
        foot = low + crosses.get_offsets()[0, 1] * (high - low)
        assert all(foot < points[:, 1].min() for group in found.values() for points in group)


def test_f4_pools_the_seeds(figures: dict[str, Figure]) -> None:
    panel = figures["F4-reliability-cifar10-resnet18"].axes[0]
    assert panel.get_title() == "Single"
    [points] = [one for one in panel.collections if isinstance(one, PathCollection)]
    # Bins (4/15, 5/15], (7/15, 8/15], (8/15, 9/15], (12/15, 13/15], (13/15, 14/15], (14/15, 1].
    wanted = [[0.31, 0], [0.52, 0], [0.55, 1], [0.85, 1], [0.9, 1], [0.95, 1]]
    assert np.asarray(points.get_offsets()) == pytest.approx(np.array(wanted))
    mean = expected(specs("cifar10", "single"), "ece")[0]
    assert [text.get_text() for text in panel.texts] == [f"ECE {mean:.2f} %"]


def test_f5_shows_histograms_sharing_and_the_closed_form(figures: dict[str, Figure]) -> None:
    axes = figures["F5-gates-resnet18"].axes
    for column, tau in enumerate(TAUS):
        above, below = axes[column], axes[column + len(TAUS)]
        assert above.get_title() == f"{'τ = ' if column == 0 else ''}{tau:g}"
        runs = [gates(spec) for spec in specs("temperature", "sigma_nens", temperature=tau)]
        counts = np.array([[layer["histogram"] for layer in run] for run in runs], dtype=float)
        shares = (counts / counts.sum(axis=2, keepdims=True)).mean(axis=0)
        [squares] = [one for one in above.collections if isinstance(one, QuadMesh)]
        assert np.asarray(squares.get_array()).reshape(20, LAYERS) == pytest.approx(shares.T)
        sharing = np.mean([[layer["members_per_feature"] for layer in run] for run in runs], 0)
        measured, dashed = below.lines
        assert measured.get_xydata() == pytest.approx(np.stack([[1, 2, 3], sharing], axis=1))
        assert list(dashed.get_ydata()) == pytest.approx([0.3 * tau] * 2)
        assert [text.get_text() for text in below.texts] == [f"k* = {0.3 * tau:.2f}"]


def test_f6_sets_scores_against_three_costs(figures: dict[str, Figure]) -> None:
    axes = figures["F6-cost-cifar10"].axes
    assert [one.get_xscale() for one in axes] == ["log"] * 6
    ensembles = {(100, 1e6 * 4), (100, 4e6 * 4)}
    for panel, name in ((axes[1], "accuracy"), (axes[4], "nll")):
        squares = by_marker(panel)["s"]
        assert {(100, float(points[0, 0])) for points in squares} == ensembles
        y = expected(specs("cifar10", "deep_ensemble"), name)[0]
        assert all(points[0, 1] == pytest.approx(y) for points in squares)
        fills = [one.lines[0].get_fillstyle() for one in panel.containers]
        assert sorted(set(fills)) == ["full", "left", "none"]
        # σN-Ens alone runs on the third backbone.
        assert [fills.count(fill) for fill in ("full", "none", "left")] == [4, 4, 1]
    assert [text.get_text() for text in axes[4].get_xticklabels()] != []


def test_a_method_has_one_colour_and_marker_in_every_legend(figures: dict[str, Figure]) -> None:
    names = {
        "Single": "single",
        "Deep ensemble": "deep_ensemble",
        "Packed-Ensembles": "packed_ensemble",
        "σN-Ens": "sigma_nens",
    }
    seen = set()
    for figure in figures.values():
        for legend in figure.legends:
            for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True):
                method = names.get(text.get_text().split(",")[0])
                if method is not None and handle is not None:
                    style = KNOWN[method]
                    assert (to_hex(handle.get_color()).upper(), handle.get_marker()) == (  # type: ignore[attr-defined]
                        style.colour,
                        style.marker,
                    )
                    seen.add(method)
    assert seen == set(names.values())


def test_nothing_is_clipped_small_or_covered_by_a_legend(figures: dict[str, Figure]) -> None:
    for name, figure in figures.items():
        page = figure.bbox
        for text in figure.findobj(Text):
            assert isinstance(text, Text)
            if not text.get_visible() or not text.get_text():
                continue
            assert text.get_fontsize() >= 7, (name, text.get_text())
        for legend in figure.legends:
            box = legend.get_window_extent()
            assert page.x0 <= box.x0 < box.x1 <= page.x1, name
            assert page.y0 <= box.y0, name
            assert not any(box.overlaps(axes.get_tightbbox()) for axes in figure.axes), name
        tight = figure.get_tightbbox()
        assert tight.x0 >= -0.02, name
        assert tight.x1 <= figure.get_figwidth() + 0.02, name


def test_nothing_is_drawn_without_results_but_everything_is_named(tmp_path: Path) -> None:
    found = paper_figures(paper_of(tmp_path))
    assert found.drawings == ()
    kinds = [one.name.split("-")[0] for one in found.absent]
    assert list(dict.fromkeys(kinds)) == ["F1", "F2", "F3", "F4", "F5", "F6"]
    commands = {one.name: one.command for one in found.absent}
    assert commands["F1-frontier"] == "sigma-bench run temperature --data DIR"
    assert commands["F3-members"] == "sigma-bench run members --data DIR"
    assert commands["F6-cost-cifar100"] == "sigma-bench run cifar100 --data DIR"
    [missing] = [one for one in found.absent if one.name == "F6-cost-imagenet"]
    assert "imagenet" in missing.reason

    listed = write_paper_figures(paper_of(tmp_path))[0].read_text(encoding="utf-8")
    for one in found.absent:
        assert one.name in listed
        assert one.command in listed


def test_captions_say_what_is_missing_and_how_many_seeds(tmp_path: Path) -> None:
    def some(spec: RunSpec) -> bool:
        if spec.method == "deep_ensemble":
            return False
        return "@" not in spec.backbone and (spec.method != "sigma_nens" or spec.seed == 0)

    store(tmp_path, "temperature", only=some)
    store(tmp_path, "cifar10", only=lambda spec: spec.seed == 0 and spec.backbone == "resnet18")
    captions = {one.name: one.caption for one in paper_figures(paper_of(tmp_path)).drawings}
    first = captions["F1-frontier"]
    assert "deep_ensemble on cifar10, resnet18 (2 of 2 seeds)" in first
    assert "sigma_nens (temperature=5.0) on cifar10, resnet18 (1 of 2 seeds)" in first
    assert "single on cifar10, resnet18" not in first
    assert "all of cifar10, resnet18@weights.safetensors" in first
    assert "to fill it: sigma-bench run temperature --data DIR" in first
    assert "n = 1 to 2 seeds" in first
    second = captions["F2-severity-resnet18"]
    assert "n = 1 seed, no error bars" in second
    assert "all of cifar100, resnet18" in second
    assert "generated" in second
    assert "F5-gates-resnet18_pretrained" not in captions


def test_what_does_not_apply_is_no_gap(paper: Paper) -> None:
    [caption] = [one.caption for one in paper_figures(paper).drawings if one.name == "F3-members"]
    assert "Not applicable: packed_ensemble (members=8) on cifar100, resnet18." in caption
    assert "Not run yet" not in caption


def test_runs_without_gates_or_records_are_named(tmp_path: Path) -> None:
    def without_gates(metrics: dict[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in metrics.items() if name != "method"}

    store(tmp_path, "temperature", only=lambda spec: spec.parameters.get("temperature") != 5)
    store(
        tmp_path,
        "temperature",
        only=lambda spec: spec.parameters.get("temperature") == 5,
        change=without_gates,
    )
    store(tmp_path, "cifar100")
    folder = SuiteFolder(tmp_path, "cifar100")
    for spec in suite_of("cifar100").runs():
        if (spec.method == "single" and spec.seed == 0) or spec.method == "deep_ensemble":
            folder.run(spec).records_path("test").write_bytes(b"PAR1")
    drawn = {one.name: one for one in paper_figures(paper_of(tmp_path)).drawings}
    assert "No gates were recorded for sigma_nens (temperature=5.0)." in (
        drawn["F5-gates-resnet18"].caption
    )
    reliability = drawn["F4-reliability-cifar100-resnet18"]
    assert "single (1 of 2 seeds); deep_ensemble (2 of 2 seeds)" in reliability.caption
    titles = [axes.get_title() for axes in reliability.draw().axes]
    assert titles == ["Single", "Packed-Ensembles", "σN-Ens"]


def test_a_figure_that_can_be_drawn_no_more_is_removed(finished: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished / "members", results / "members")
    folder = paper_of(results).folder.figures
    write_paper_figures(paper_of(results))
    mine = folder / "F7-mine.svg"
    mine.write_text("mine")
    assert (folder / "F3-members.svg").exists()
    shutil.rmtree(results / "members")
    write_paper_figures(paper_of(results))
    assert sorted(path.name for path in folder.iterdir()) == ["F7-mine.svg", LIST]


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
    boxes = extents(axes.texts)
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


def test_variants_of_a_method_have_shades_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    collection = collect(suite_of("temperature"), SuiteFolder(tmp_path, "temperature"))
    styles = method_styles(collection)
    labels = [f"sigma_nens (temperature={tau})" for tau in TAUS]
    assert [styles[label].colour for label in labels] == shades_of("#D55E00", 3)
    assert {styles[label].marker for label in labels} == {"*"}
    assert styles["single"] == KNOWN["single"]
    assert sorted(["τ=10", "τ=2", "τ=0.5", "a"], key=natural) == ["a", "τ=0.5", "τ=2", "τ=10"]
