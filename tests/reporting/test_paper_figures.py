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
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from paper_figure_results import LAYERS, TAUS, gates, paper_of, scores, store, suite_of

from bench.figures.styles import KNOWN, RC, shades_of
from bench.paper.collect import Paper
from bench.paper.figures import LIST, paper_figures, write_paper_figures
from bench.suite import RunSpec

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


def test_every_figure_has_its_name_and_one_of_two_widths(
    paper: Paper, figures: dict[str, Figure]
) -> None:
    assert list(figures) == NAMES
    for drawing in paper_figures(paper).drawings:
        inches = 3.25 if drawing.name in COLUMN else 6.75
        assert figures[drawing.name].get_figwidth() == inches
        assert drawing.wide == (inches > 3.25)


def test_files_are_vectors_with_their_captions_and_the_same_each_time(
    finished: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished / "temperature", results / "temperature")
    paper = paper_of(results)
    paths = write_paper_figures(paper)
    names = ["F1-frontier", "F5-gates-resnet18", "F5-gates-resnet18_pretrained"]
    files = [f"{name}.{end}" for name in names for end in ("svg", "pdf")]
    assert [path.name for path in paths] == [*files, LIST]
    first = {path: path.read_bytes() for path in paths}
    for path in paths[:-1]:
        content = path.read_bytes()
        if path.suffix == ".pdf":
            assert content.startswith(b"%PDF")
            continue
        root = ET.fromstring(content)
        assert float(root.attrib["width"].removesuffix("pt")) == pytest.approx(6.75 * 72)
        assert not [one for one in root.iter() if one.tag.endswith("image")], "not vector"
    listed = paths[-1].read_text(encoding="utf-8")
    for drawing in paper_figures(paper).drawings:
        assert f"({drawing.name}.svg)" in listed
        assert drawing.caption in listed
    again = write_paper_figures(paper_of(results))
    assert {path: path.read_bytes() for path in again} == first


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
