"""Figures from stored results: reliability, shift by severity, and accuracy against NLL.

Each is drawn at the width of a paper's column, with colours that colour-blind readers can tell apart
(Okabe and Ito, 2008) and one colour and marker a method everywhere. The same results give the same
bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.metrics.calibration import Bins, reliability_bins
from bench.store import read_records, write_bytes
from bench.tables import Collection, Group, MethodRuns

from bench.tables.layout import file_names
from bench.tables.scores import PREFIXES, Score, lookup, mean_and_std, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 3.25
"""Inches: a column of a two-column paper."""

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
_KNOWN = {
    "single": (BLACK, "o"),
    "deep_ensemble": (BLUE, "s"),
    "batch_ensemble": (GREEN, "^"),
    "packed_ensemble": (ORANGE, "D"),
    "film_ensemble": (PURPLE, "v"),
    "sigma_nens": (VERMILION, "*"),
}
_MARKERS = "XPh<>pd8Hov^sD*"
_COLOURS = (SKY, VERMILION, GREEN, PURPLE, BLUE, ORANGE, BLACK, YELLOW)

_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.0,
    "lines.markersize": 4,
    "svg.hashsalt": "sigma-bench",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "savefig.dpi": 150,
}


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    marker: str


@dataclass(frozen=True)
class Drawing:
    """A figure, drawn when it is asked for.

    Attributes:
        name: of its file, without ending.
        title, caption: what it shows, in words.
        task, backbone: of which runs.
        draw: makes it.
    """

    name: str
    title: str
    caption: str
    task: str
    backbone: str
    draw: Callable[[], Figure]

    def render(self, kind: str) -> bytes:
        """The file's bytes, ``svg`` or ``pdf``."""
        import matplotlib

        stream = io.BytesIO()
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
        with matplotlib.rc_context(_RC):
            self.draw().savefig(stream, format=kind, metadata=metadata)
        return stream.getvalue()


def write_figures(collection: Collection, folder: Path | None = None) -> list[Path]:
    """Write every figure as SVG and PDF.

    Args:
        collection: the suite's runs.
        folder: where to write; by default the suite's ``figures``.

    Returns:
        the files; none for a (task, backbone) without results.
    """
    folder = folder or collection.folder.figures
    paths = []
    for drawing in drawings(collection):
        for kind in ("svg", "pdf"):
            path = folder / f"{drawing.name}.{kind}"
            write_bytes(path, drawing.render(kind))
            paths.append(path)
    return paths


def drawings(collection: Collection) -> list[Drawing]:
    """Every figure that the results allow, in the order of a report."""
    styles = method_styles(collection)
    found = []
    for group, name in zip(collection.groups, file_names(collection.groups), strict=True):
        if group.done:
            found += _group_drawings(collection, group, name, styles)
    return found


def method_styles(collection: Collection) -> dict[str, Style]:
    """Label -> style: known methods have theirs, others the next free one in the order of names."""
    names = {m.label: m.entries[0].spec.method for g in collection.groups for m in g.methods}
    fixed: dict[str, Style] = {}
    for label in sorted(names):
        known = _KNOWN.get(names[label])
        if known is not None and Style(*known) not in fixed.values():
            fixed[label] = Style(*known)
    pairs = (
        (_COLOURS[(index + turn) % len(_COLOURS)], marker)
        for turn in range(len(_COLOURS))
        for index, marker in enumerate(_MARKERS)
    )
    free = (Style(*pair) for pair in pairs if pair not in _KNOWN.values())
    for label in sorted(names):
        if label not in fixed:
            fixed[label] = next(free)
    return fixed


def _group_drawings(
    collection: Collection, group: Group, name: str, styles: dict[str, Style]
) -> Iterable[Drawing]:
    sound = [method for method in group.methods if collection.sound(method)]
    place = (group.task, group.backbone)
    if sound:
        yield Drawing(
            f"reliability-{name}",
            "Reliability",
            "Accuracy over mean confidence in 15 equal-width bins, test samples of all seeds "
            "together; the area of a point is the share of samples in its bin.",
            *place,
            lambda: _reliability(collection, sound, styles),
        )
    if group.shift_origin:
        yield Drawing(
            f"severity-{name}",
            "Calibration and accuracy under corruption",
            f"ECE and accuracy by severity ({group.shift_origin} corruptions; 0: clean), mean and "
            "standard deviation over seeds.",
            *place,
            lambda: _severity(group, styles),
        )
    cost, unit = _cost_of(group)
    yield Drawing(
        f"cost-{name}",
        "Accuracy, likelihood and cost",
        f"Accuracy against NLL on the test split, mean and standard deviation over seeds; the "
        f"area of a marker is its {unit}.",
        *place,
        lambda: _cost(group, styles, cost, unit),
    )


def _reliability(
    collection: Collection, methods: Sequence[MethodRuns], styles: dict[str, Style]
) -> Figure:
    from matplotlib.figure import Figure

    columns = min(2, len(methods))
    rows = -(-len(methods) // columns)
    figure = Figure(figsize=(WIDTH, 0.2 + 1.55 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(methods) :]:
        axes.set_axis_off()
    for axes, method in zip(grid.flat, methods, strict=False):
        _reliability_panel(axes, method, _pooled_bins(collection, method), styles[method.label])
    for axes in grid[-1]:
        axes.set_xlabel("Confidence")
    for axes in grid[:, 0]:
        axes.set_ylabel("Accuracy")
    return figure


def _reliability_panel(axes: Axes, method: MethodRuns, bins: Bins, style: Style) -> None:
    filled = bins.count > 0
    confidence, accuracy = bins.confidence[filled], bins.accuracy[filled]
    share = bins.count[filled] / bins.count.sum()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=(0, (3, 2)))
    axes.vlines(confidence, confidence, accuracy, color=style.colour, alpha=0.35, linewidth=2)
    axes.plot(confidence, accuracy, color=style.colour, linewidth=0.8)
    axes.scatter(confidence, accuracy, s=6 + 60 * share, color=style.colour, zorder=3, linewidth=0)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1), aspect="equal")
    axes.set_title(words(method.label), fontsize=7)
    mean = score(method, ("test", "ece")).mean
    if mean is not None:
        axes.text(0.04, 0.96, f"ECE {100 * mean:.2f} %", va="top", fontsize=7)


def _pooled_bins(collection: Collection, method: MethodRuns) -> Bins:
    confidence, correct = [], []
    for entry in collection.sound(method):
        path = entry.folder.records_path("test")
        records = read_records(path, ["confidence", "label", "prediction"])
        confidence.append(records["confidence"].to_numpy())
        correct.append((records["prediction"] == records["label"]).to_numpy())
    return reliability_bins(np.concatenate(confidence), np.concatenate(correct))


def _severity(group: Group, styles: dict[str, Style]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for axes, name, title in zip(panels, ("ece", "accuracy"), ("ECE", "Accuracy"), strict=True):
        for method in group.methods:
            _severity_line(axes, method, name, styles[method.label])
        axes.set_ylabel(f"{title} (%)")
    panels[-1].set_xlabel(f"Severity ({group.shift_origin} corruptions)")
    _legend(figure, group, styles)
    return figure


def _severity_line(axes: Axes, method: MethodRuns, name: str, style: Style) -> None:
    levels = sorted(
        {
            int(level)
            for entry in method.done
            for level in lookup(entry.metrics or {}, ("shift", "severity")) or {}
        }
    )
    keys = [("test", name), *(("shift", "severity", str(level), name) for level in levels)]
    scores = [score(method, key) for key in keys]
    shown = [(x, s) for x, s in zip([0, *levels], scores, strict=True) if s.mean is not None]
    if shown:
        _error_bars(axes, [x for x, _ in shown], [s for _, s in shown], style)
        axes.set_xticks([0, *levels])


def _error_bars(axes: Axes, x: Sequence[int], scores: Sequence[Score], style: Style) -> None:
    axes.errorbar(
        x,
        [100 * (s.mean or 0.0) for s in scores],
        yerr=[100 * (s.std or 0.0) for s in scores],
        color=style.colour,
        marker=style.marker,
        elinewidth=0.6,
        capsize=1.5,
        capthick=0.6,
    )


def _cost_of(group: Group) -> tuple[str, str]:
    """Which cost tells methods apart: what the budget does not already make equal."""
    if group.methods[0].entries[0].spec.budget.match == "train_flops":
        return "parameters", "number of parameters"
    return "train_flops", "training FLOPs"


def _cost(group: Group, styles: dict[str, Style], cost: str, unit: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
    axes = figure.subplots()
    found = {
        method.label: float(np.mean([lookup(e.metrics or {}, ("cost", cost)) for e in method.done]))
        for method in group.methods
        if method.done
    }
    largest = max(found.values())
    for method in group.methods:
        if method.label in found:
            _cost_point(axes, method, styles[method.label], found[method.label] / largest)
    axes.set_xlabel("NLL (nats), lower is better")
    axes.set_ylabel("Accuracy (%)")
    axes.margins(0.15)
    axes.set_title(f"Area: {unit}, at most {_short(largest)}", fontsize=7)
    _legend(figure, group, styles)
    return figure


def _cost_point(axes: Axes, method: MethodRuns, style: Style, share: float) -> None:
    pairs = [
        (float(entry.metrics["test"]["nll"]), 100 * float(entry.metrics["test"]["accuracy"]))
        for entry in method.done
        if entry.metrics
    ]
    (x, x_std), (y, y_std) = (mean_and_std(values) for values in zip(*pairs, strict=True))
    axes.errorbar(
        x, y, xerr=x_std or 0, yerr=y_std or 0, color=style.colour, elinewidth=0.6, fmt="none"
    )
    axes.scatter(
        x,
        y,
        s=12 + 168 * share,
        color=style.colour,
        marker=style.marker,
        alpha=0.85,
        edgecolor="white",
        linewidth=0.5,
        zorder=3,
    )


def _legend(figure: Figure, group: Group, styles: dict[str, Style]) -> None:
    from matplotlib.lines import Line2D

    methods = [method for method in group.methods if method.done]
    handles = [
        Line2D([], [], color=styles[m.label].colour, marker=styles[m.label].marker) for m in methods
    ]
    labels = [words(method.label) for method in methods]
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)


def words(label: str) -> str:
    """A label in which Matplotlib sees no formula and no sign to leave it out."""
    return f" {label}".replace("$", r"\$") if label.startswith("_") else label.replace("$", r"\$")


def _short(value: float) -> str:
    """A number with three digits and a prefix."""
    power = 0
    while value >= 999.5 and power < len(PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {PREFIXES[power]}".strip()
