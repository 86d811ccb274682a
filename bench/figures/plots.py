"""How each figure is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bench.figures.styles import WIDTH, Style, words
from bench.files import read_records
from bench.metrics.calibration import Bins, reliability_bins
from bench.tables.collection import Collection, Group, MethodRuns
from bench.tables.scores import PREFIXES, Score, lookup, mean_and_std, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def reliability(
    collection: Collection,
    methods: Sequence[MethodRuns],
    styles: Mapping[str, Style],
    *,
    columns: int = 2,
    width: float = WIDTH,
    name: Callable[[MethodRuns], str] = lambda method: words(method.label),
) -> Figure:
    """Reliability diagrams, one a method, over the test samples of all its sound runs.

    Args:
        collection: the suite's runs.
        methods: each with a sound run.
        styles: by label.
        columns: how many diagrams stand side by side, at most.
        width: of the figure in inches.
        name: what a diagram is called.
    """
    from matplotlib.figure import Figure

    columns = min(columns, len(methods))
    rows = -(-len(methods) // columns)
    side = min(1.55, 0.96 * width / columns)
    figure = Figure(figsize=(width, 0.2 + side * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(methods) :]:
        axes.set_axis_off()
    for axes, method in zip(grid.flat, methods, strict=False):
        axes.set_title(name(method), fontsize=7)
        _reliability_panel(axes, method, _pooled_bins(collection, method), styles[method.label])
    for axes in grid.flat[max(0, len(methods) - columns) : len(methods)]:
        axes.set_xlabel("Confidence")
        axes.tick_params(labelbottom=True)
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
    axes.scatter(
        confidence,
        accuracy,
        s=6 + 60 * share,
        color=style.colour,
        zorder=3,
        linewidth=0,
        clip_on=False,
    )
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1), aspect="equal")
    mean = score(method, ("test", "ece")).mean
    if mean is not None:
        axes.text(0.97, 0.04, f"ECE {100 * mean:.2f} %", ha="right", fontsize=7)


def _pooled_bins(collection: Collection, method: MethodRuns) -> Bins:
    confidence, correct = [], []
    for entry in collection.sound(method):
        path = entry.folder.records_path("test")
        records = read_records(path, ["confidence", "label", "prediction"])
        confidence.append(records["confidence"].to_numpy())
        correct.append((records["prediction"] == records["label"]).to_numpy())
    return reliability_bins(np.concatenate(confidence), np.concatenate(correct))


def severity(group: Group, styles: dict[str, Style]) -> Figure:
    """ECE and accuracy over severity, 0 being the clean test split."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 2.9 + _legend_height(group)), layout="constrained")
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


def cost_shown(group: Group) -> tuple[str, str]:
    """Which cost tells methods apart, as the budget does not make it equal: its name and words."""
    if group.methods[0].entries[0].spec.budget.match == "train_flops":
        return "parameters", "number of parameters"
    return "train_flops", "training FLOPs"


def accuracy_against_nll(group: Group, styles: dict[str, Style], cost: str, unit: str) -> Figure:
    """Accuracy against NLL; the area of a marker is the cost named `cost` in `metrics.json`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 2.5 + _legend_height(group)), layout="constrained")
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
    axes.set_title(f"Area: {unit}, at most {short(largest)}", fontsize=7)
    _legend(figure, group, styles, linestyle="none")
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


def _legend_height(group: Group) -> float:
    """Inches that the legend takes, two methods a row."""
    return 0.15 + 0.15 * -(-len(group.methods) // 2)


def _legend(figure: Figure, group: Group, styles: dict[str, Style], linestyle: str = "-") -> None:
    from matplotlib.lines import Line2D

    methods = [method for method in group.methods if method.done]
    handles = [
        Line2D([], [], color=one.colour, marker=one.marker, linestyle=linestyle)
        for one in (styles[method.label] for method in methods)
    ]
    labels = [words(method.label) for method in methods]
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)


def short(value: float) -> str:
    """A number with three digits and a prefix: 1500000 is «1.5 M»."""
    power = 0
    while value >= 999.5 and power < len(PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {PREFIXES[power]}".strip()
