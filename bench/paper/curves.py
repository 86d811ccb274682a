"""F2: scores over the severity of corruption. F3: scores over the number of members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bench.figures import Drawing
from bench.figures.styles import WIDTH, Style
from bench.paper import drawing as own
from bench.paper.collect import Paper, Source
from bench.tables.collection import Group, MethodRuns
from bench.tables.layout import file_names
from bench.tables.scores import Key, lookup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

F2, F2_TITLE = "F2-severity", "Accuracy, calibration and likelihood under corruption"
F3, F3_TITLE = "F3-members", "Accuracy and likelihood over the number of members"
SEVERITY_SUITES = ("cifar10", "cifar100")
MEMBERS_SUITE = "members"
LEGEND_COLUMNS = 6


def severity(paper: Paper, look: own.Look) -> Iterator[Drawing | own.Absent]:
    """A figure for each backbone that several methods run on: a row a data set."""
    sources = paper.of(SEVERITY_SUITES)
    groups = [(source, group) for source in sources for group in source.groups]
    backbones = list(dict.fromkeys(g.backbone for _, g in groups if len(g.methods) > 1))
    names = file_names([Group(backbone, "", ()) for backbone in backbones])
    drawn = []
    for backbone, name in zip(backbones, names, strict=True):
        mine = [(source, group) for source, group in groups if group.backbone == backbone]
        if any(group.shift_origin for _, group in mine):
            drawn += [source.name for source, group in mine if group.shift_origin]
            yield _severity_drawing(f"{F2}-{name}", mine, look)
    for suite in SEVERITY_SUITES:
        if suite not in drawn:
            yield own.absent(f"{F2}-{suite}" if drawn else F2, F2_TITLE, paper, suite)
            if not drawn:
                return


def _severity_drawing(name: str, mine: Sequence[tuple[Source, Group]], look: own.Look) -> Drawing:
    rows = [(source, group) for source, group in mine if group.shift_origin]
    methods = [method for _, group in rows for method in group.methods]
    origins = " and ".join(dict.fromkeys(group.shift_origin for _, group in rows))
    backbone = rows[0][1].backbone
    return Drawing(
        name,
        f"{F2_TITLE}: {own.backbone_name(backbone)}",
        own.caption(
            f"Accuracy, ECE and NLL by severity, mean over the {origins} corruptions; severity 0 "
            "is the clean test split.",
            f"{'; '.join(source.standing for source, _ in rows)}; {own.seeds_words(methods)}.",
            *(own.gaps_words(source, [group]) for source, group in mine),
        ),
        ", ".join(group.task for _, group in rows),
        backbone,
        lambda: draw_severity(rows, look),
        wide=True,
    )


def draw_severity(rows: Sequence[tuple[Source, Group]], look: own.Look) -> Figure:
    """A row a data set; accuracy, ECE and NLL from left to right."""
    from matplotlib.figure import Figure

    shown = {m.label: (s, m) for s, group in rows for m in group.methods if m.done}
    height = 1.75 * len(rows) + own.legend_height(len(shown), LEGEND_COLUMNS)
    figure = Figure(figsize=(own.FULL, height), layout="constrained")
    grid = figure.subplots(len(rows), 3, squeeze=False, sharex=True)
    for panels, (source, group) in zip(grid, rows, strict=True):
        styles = look.of(source)
        panels[1].set_title(own.data_name(group))
        for axes, measure in zip(panels, (own.ACCURACY, own.ECE, own.NLL), strict=True):
            axes.set_ylabel(measure.title)
            for method in group.methods:
                _over_severity(axes, method, measure, styles[method.label])
    for axes in grid[-1]:
        axes.set_xlabel("Severity of corruption")
    entries = [own.method_entry(m, look.of(s)[m.label]) for s, m in shown.values()]
    own.legend(figure, entries, LEGEND_COLUMNS)
    return figure


def _over_severity(axes: Axes, method: MethodRuns, measure: own.Measure, style: Style) -> None:
    levels = sorted(
        {
            int(level)
            for entry in method.done
            for level in lookup(entry.metrics or {}, ("shift", "severity")) or {}
        }
    )
    places: list[tuple[int, Key]] = [(0, ("test",))]
    places += [(level, ("shift", "severity", str(level))) for level in levels]
    found = [(level, own.value(method, measure, place)) for level, place in places]
    shown = [(level, one) for level, one in found if one is not None]
    if shown:
        own.bars(axes, [x for x, _ in shown], [y for _, y in shown], style)
        axes.set_xticks(range(max(levels, default=0) + 1))


def members(paper: Paper, look: own.Look) -> Iterator[Drawing | own.Absent]:
    """A figure for each task and backbone of the members suite."""
    source = paper.sources.get(MEMBERS_SUITE)
    if source is None or not source.done:
        yield own.absent(F3, F3_TITLE, paper, MEMBERS_SUITE)
        return
    many = len(source.groups) > 1
    for group, name in zip(source.groups, own.group_names(source), strict=True):
        if group.done:
            yield _members_drawing(f"{F3}-{name}" if many else F3, source, group, look)


def _members_drawing(name: str, source: Source, group: Group, look: own.Look) -> Drawing:
    return Drawing(
        name,
        F3_TITLE,
        own.caption(
            f"{own.data_name(group)}, {own.backbone_name(group.backbone)}: test accuracy "
            "and NLL over the number of members M; M = 1 is the single network (dotted line). A "
            "cross at the foot marks an M that a method can't have here.",
            f"{source.standing}; {own.seeds_words(group.methods)}.",
            own.gaps_words(source, [group]),
        ),
        group.task,
        group.backbone,
        lambda: draw_members(group, look),
    )


def draw_members(group: Group, look: own.Look) -> Figure:
    """Accuracy above, NLL below; one curve a method, joined to the single network at M = 1."""
    from matplotlib.figure import Figure

    curves = _curves(group)
    refused = any(_refused(method) for curve in curves.values() for method in curve)
    entries = [
        (own.method_name(curve[0]), own.key_of(look.method(curve[0])))
        for curve in curves.values()
        if any(method.done or _refused(method) for method in curve)
    ]
    if refused:
        entries.append(("not applicable", {"color": "0.3", "marker": "x", "linestyle": "none"}))
    figure = Figure(figsize=(WIDTH, 3.6 + own.legend_height(len(entries), 3)), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for axes, measure in zip(panels, (own.ACCURACY, own.NLL), strict=True):
        _members_panel(axes, curves, measure, look)
    panels[-1].set_xlabel("Members M")
    own.legend(figure, entries, 3)
    return figure


def _curves(group: Group) -> dict[str, list[MethodRuns]]:
    """Method -> its runs in the order of M."""
    curves: dict[str, list[MethodRuns]] = {}
    for method in group.methods:
        curves.setdefault(own.method_of(method), []).append(method)
    return {
        name: sorted(methods, key=lambda method: method.members) for name, methods in curves.items()
    }


def _refused(method: MethodRuns) -> bool:
    return all(entry.state == "not applicable" for entry in method.entries)


def _members_panel(
    axes: Axes, curves: Mapping[str, Sequence[MethodRuns]], measure: own.Measure, look: own.Look
) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_ylabel(measure.title)
    single = next((own.value(m, measure) for m in curves.get("single", ()) if m.done), None)
    if single is not None:
        axes.axhline(single.mean, color="0.6", linewidth=0.7, linestyle=(0, (1, 2)), zorder=0)
    foot = 0
    for name, curve in curves.items():
        style = look.method(curve[0])
        found = [(method.members, own.value(method, measure)) for method in curve]
        shown = [(m, one) for m, one in found if one is not None]
        if shown:
            own.bars(axes, [m for m, _ in shown], [one for _, one in shown], style)
        if shown and single is not None and name != "single" and shown[0][0] > 1:
            start, end = (1, single.mean), (shown[0][0], shown[0][1].mean)
            axes.plot(*zip(start, end, strict=True), color=style.colour, linewidth=0.6, alpha=0.5)
        crosses = [method.members for method in curve if _refused(method)]
        if crosses:
            height = [0.03 + 0.06 * foot] * len(crosses)
            foot += 1
            axes.scatter(
                *(crosses, height),
                transform=axes.get_xaxis_transform(),
                color=style.colour,
                marker="x",
                s=16,
                linewidth=1,
            )
    if foot:
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.07 * foot * (high - low), high)
    asked = sorted({method.members for curve in curves.values() for method in curve})
    axes.xaxis.set_major_locator(FixedLocator(asked))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlim(min(asked) / 1.25, max(asked) * 1.25)
