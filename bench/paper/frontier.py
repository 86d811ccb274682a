"""F1: accuracy against calibration, one point a temperature τ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bench.backbones import is_pretrained
from bench.figures import Drawing
from bench.figures.labels import Label, along, place_labels
from bench.figures.styles import WIDTH, Style, shades_of
from bench.paper import drawing as own
from bench.paper.collect import Paper, Source
from bench.tables.collection import Group, MethodRuns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME, TITLE = "F1-frontier", "Accuracy against calibration over τ"
SUITE, METHOD, PARAMETER = "temperature", "sigma_nens", "temperature"
MEASURES = (own.ECE, own.NLL)


def frontier(paper: Paper, look: own.Look) -> Iterator[Drawing | own.Absent]:
    """One figure: a column a backbone (from scratch, pretrained), ECE above and NLL below."""
    source = paper.sources.get(SUITE)
    if source is None or not any(_points(group) for group in source.groups):
        yield own.absent(NAME, TITLE, paper, SUITE)
        return
    groups = [group for group in source.groups if group.done]
    methods = [method for group in groups for method in group.methods]
    yield Drawing(
        NAME,
        TITLE,
        own.caption(
            "Test accuracy against ECE (above) and NLL (below); up and to the left is better. A "
            "star is σN-Ens at the temperature τ beside it, light to dark as τ grows; reference "
            "marks as in the legend.",
            f"{source.standing}; {own.seeds_words(methods)}.",
            own.gaps_words(source, source.groups),
        ),
        ", ".join(dict.fromkeys(group.task for group in groups)),
        ", ".join(group.backbone for group in groups),
        lambda: draw(source, groups, look),
        wide=len(groups) > 1,
    )


def _points(group: Group) -> list[MethodRuns]:
    """The finished points of the grid, in the order of τ."""
    found = [m for m in group.methods if own.method_of(m) == METHOD and m.done]
    return sorted(found, key=lambda method: own.parameter(method, PARAMETER) or 0.0)


def _references(groups: Sequence[Group]) -> list[MethodRuns]:
    """One of each label that is no point of the grid."""
    found = {m.label: m for g in groups for m in g.methods if own.method_of(m) != METHOD and m.done}
    return list(found.values())


def draw(source: Source, groups: Sequence[Group], look: own.Look) -> Figure:
    """The figure; its labels are placed when everything else is."""
    from matplotlib.figure import Figure

    references = _references(groups)
    width = WIDTH if len(groups) == 1 else own.FULL
    height = 4.0 + own.legend_height(1 + len(references), 4)
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(len(MEASURES), len(groups), squeeze=False, sharey="col")
    styles = look.of(source)
    for (row, measure), (column, group) in itertools.product(
        enumerate(MEASURES), enumerate(groups)
    ):
        axes = grid[row, column]
        if row == 0:
            axes.set_title(f"{own.data_name(group)}, {_start_words(group)}")
        if column == 0:
            axes.set_ylabel(own.ACCURACY.title)
        axes.set_xlabel(measure.title)
        for method in group.methods:
            if own.method_of(method) != METHOD:
                _mark(axes, method, measure, styles[method.label])
        _path(axes, group, measure, look)
        axes.margins(0.12)
    entries = [(f"{own.title_of(METHOD)}, numbers: τ", own.key_of(look.base[METHOD]))]
    entries += [own.method_entry(one, styles[one.label], "none") for one in references]
    own.legend(figure, entries, 4 if len(groups) > 1 else 3)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for (row, measure), (column, group) in itertools.product(
        enumerate(MEASURES), enumerate(groups)
    ):
        _label(grid[row, column], group, measure, look)
    return figure


def _start_words(group: Group) -> str:
    name = own.backbone_name(group.backbone)
    return name if is_pretrained(group.backbone) else f"{name}, from scratch"


def tau_styles(points: Sequence[MethodRuns], look: own.Look) -> list[Style]:
    """A shade of the method's colour for each temperature, light to dark."""
    base = look.base[METHOD]
    return [Style(shade, base.marker) for shade in shades_of(base.colour, len(points))]


def _path(axes: Axes, group: Group, measure: own.Measure, look: own.Look) -> None:
    points = _points(group)
    places = _places(points, measure)
    axes.plot(*zip(*places, strict=True), color="0.6", linewidth=0.7, zorder=1)
    for method, style in zip(points, tau_styles(points, look), strict=True):
        _mark(axes, method, measure, style)


def _mark(axes: Axes, method: MethodRuns, measure: own.Measure, style: Style) -> None:
    x, y = own.value(method, measure), own.value(method, own.ACCURACY)
    if x is not None and y is not None:
        size = own.marker_size(style, 5)
        own.bars(axes, [x.mean], [y], style, xerr=x.std, markersize=size, capsize=0)


def _places(methods: Sequence[MethodRuns], measure: own.Measure) -> list[tuple[float, float]]:
    pairs = [(own.value(m, measure), own.value(m, own.ACCURACY)) for m in methods]
    return [(x.mean, y.mean) for x, y in pairs if x is not None and y is not None]


def _label(axes: Axes, group: Group, measure: own.Measure, look: own.Look) -> None:
    points = _points(group)
    places = _places(points, measure)
    darkest = shades_of(look.base[METHOD].colour, 2)[-1]
    labels = [
        Label(*place, f"{own.parameter(method, PARAMETER):g}", darkest)
        for place, method in zip(places, points, strict=True)
    ]
    others = [m for m in group.methods if own.method_of(m) != METHOD and m.done]
    occupied = _places(others, measure) + along(axes, places)
    for method in [*points, *others]:
        occupied += _cross(axes, method, measure)
    place_labels(axes, labels, occupied)


def _cross(axes: Axes, method: MethodRuns, measure: own.Measure) -> list[tuple[float, float]]:
    """Points of data along a mark's error bars."""
    x, y = own.value(method, measure), own.value(method, own.ACCURACY)
    if x is None or y is None:
        return []
    wide, high = x.std or 0.0, y.std or 0.0
    level = along(axes, [(x.mean - wide, y.mean), (x.mean + wide, y.mean)])
    return level + along(axes, [(x.mean, y.mean - high), (x.mean, y.mean + high)])
