"""F6: how good predictions are against what they cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.figures import Drawing
from bench.figures.plots import short
from bench.figures.styles import Style
from bench.paper import drawing as own
from bench.paper.collect import Paper, Source
from bench.tables.collection import Group, MethodRuns
from bench.tables.layout import file_names
from bench.tables.scores import score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME, TITLE = "F6-cost", "Accuracy and likelihood against cost"
SUITES = ("cifar10", "cifar100", "imagenet", "sst2")
COSTS = (
    ("train_flops", "Training FLOPs"),
    ("parameters", "Parameters"),
    ("inference_flops", "Inference FLOPs per sample"),
)
LEGEND_COLUMNS = 6


@dataclass(frozen=True)
class Place:
    """The groups of one task: what one figure shows."""

    source: Source
    groups: tuple[Group, ...]

    @property
    def done(self) -> list[Group]:
        """The groups that have results."""
        return [group for group in self.groups if group.done]


def cost(paper: Paper, look: own.Look) -> Iterator[Drawing | own.Absent]:
    """A figure for each task: all its backbones together."""
    for name in SUITES:
        source = paper.sources.get(name)
        if source is None or not source.done:
            yield own.absent(f"{NAME}-{name}", TITLE, paper, name)
            continue
        tasks = dict.fromkeys(group.task for group in source.groups)
        for task in tasks:
            groups = tuple(group for group in source.groups if group.task == task)
            place = Place(source, groups)
            if place.done:
                file = file_names([Group(task, "", ())])[0]
                yield _drawing(place, f"{NAME}-{name}{f'-{file}' if len(tasks) > 1 else ''}", look)


def _drawing(place: Place, name: str, look: own.Look) -> Drawing:
    source, group = place.source, place.done[0]
    methods = [method for one in place.done for method in one.methods]
    fills = "; how a marker is filled tells the backbone" if len(place.done) > 1 else ""
    return Drawing(
        name,
        f"{TITLE}: {own.data_name(group)}",
        own.caption(
            "Test accuracy (above) and NLL (below) against the FLOPs of the whole training, the "
            f"number of parameters and the FLOPs of one prediction, all logarithmic{fills}.",
            f"{source.standing}; {own.seeds_words(methods)}.",
            own.gaps_words(source, place.groups),
        ),
        group.task,
        ", ".join(one.backbone for one in place.done),
        lambda: draw(place, look),
        wide=True,
    )


def draw(place: Place, look: own.Look) -> Figure:
    """Accuracy above, NLL below; a column a cost."""
    from matplotlib.figure import Figure

    groups = place.done
    styles = look.of(place.source)
    shown = {method.label: method for group in groups for method in group.methods if method.done}
    entries = [own.method_entry(one, styles[one.label], "none") for one in shown.values()]
    fills = dict(zip(_backbones(groups), itertools.cycle(own.BACKBONE_FILLS), strict=False))
    if len(fills) > 1:
        for backbone, fill in fills.items():
            look_of = {"color": "0.35", "marker": "o", "linestyle": "none", "fillstyle": fill}
            entries.append((own.backbone_name(backbone), look_of))
    height = 3.5 + own.legend_height(len(entries), LEGEND_COLUMNS)
    figure = Figure(figsize=(own.FULL, height), layout="constrained")
    grid = figure.subplots(2, len(COSTS), sharex="col", sharey="row")
    for axes, (name, title) in zip(grid[-1], COSTS, strict=True):
        axes.set_xlabel(title)
        _cost_axis(axes, [_cost(m, name) for group in groups for m in group.methods])
    for panels, measure in zip(grid, (own.ACCURACY, own.NLL), strict=True):
        panels[0].set_ylabel(measure.title)
        for axes, (name, _) in zip(panels, COSTS, strict=True):
            for group in groups:
                _points(axes, group, (name, measure), styles, fills[group.backbone])
    own.legend(figure, entries, LEGEND_COLUMNS)
    return figure


def _backbones(groups: Sequence[Group]) -> list[str]:
    return list(dict.fromkeys(group.backbone for group in groups))


def _cost(method: MethodRuns, name: str) -> float | None:
    return score(method, ("cost", name)).mean


def _points(
    axes: Axes,
    group: Group,
    shown: tuple[str, own.Measure],
    styles: Mapping[str, Style],
    fill: str,
) -> None:
    name, measure = shown
    for method in group.methods:
        x, y = _cost(method, name), own.value(method, measure)
        if x is not None and y is not None:
            own.bars(
                axes,
                [x],
                [y],
                styles[method.label],
                linestyle="none",
                fillstyle=fill,
                markerfacecoloralt="white",
                markeredgewidth=0.8,
                markersize=own.marker_size(styles[method.label], 4.5),
                capsize=0,
            )


def _cost_axis(axes: Axes, costs: Sequence[float | None]) -> None:
    """A logarithmic axis with few ticks, also where all costs are about the same."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    found = [one for one in costs if one]
    axes.set_xscale("log")
    low, high = min(found, default=1.0), max(found, default=1.0)
    room = max((high / low) ** 0.12, 1.15)
    low, high = low / room, high * room
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: short(number)))


def log_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """At most `most` round numbers between two positive ones; at least two where there are any.

    Args:
        low: greater than 0.
        high: greater than `low`.
        most: how many at most.
    """
    import numpy as np

    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = [(np.arange(10, 100, step) / 10).tolist() for step in (10, 5, 1)]
    for digits in ((1,), (1, 3), (1, 2, 5), *steps):
        found = [float(d) * 10.0**power for power in decades for d in digits]
        inside = [one for one in found if low <= one <= high]
        if len(inside) >= 2:
            return inside[:: -(-len(inside) // most)]
    return [low, high]
