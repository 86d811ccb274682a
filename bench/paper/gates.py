"""F5: where the gates of σN-Ens end, layer by layer, and how many members share a feature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.figures import Drawing
from bench.paper import drawing as own
from bench.paper.collect import Paper, Source
from bench.tables.collection import Entry, Group, MethodRuns
from bench.tables.scores import lookup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

NAME, TITLE = "F5-gates", "Gates and members per feature over layers"
SUITE, METHOD, PARAMETER = "temperature", "sigma_nens", "temperature"
COLUMNS = 7
"""Temperatures side by side."""
LEVELS = 40
"""Shades of the histograms; from 50 on Matplotlib draws the scale beside them as an image."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Gates:
    """The gates of one method, over its seeds.

    Attributes:
        temperature: τ.
        members: M.
        shares: ``[L, bins]``, the share of a layer's gates in each bin of ``[0, 1]``, mean of
            seeds.
        sharing: ``[L]``, members per feature, mean of seeds.
        spread: ``[L]``, its standard deviation over seeds; None for one seed.
        equilibrium: k*, where the diversity term is content.
    """

    temperature: float
    members: int
    shares: Array
    sharing: Array
    spread: Array | None
    equilibrium: float


def gates(paper: Paper, look: own.Look) -> Iterator[Drawing | own.Absent]:
    """A figure for each task and backbone of the temperature suite."""
    source = paper.sources.get(SUITE)
    found = [] if source is None else [(group, gates_of(group)) for group in source.groups]
    if source is None or not any(all_gates for _, all_gates in found):
        yield own.absent(NAME, TITLE, paper, SUITE)
        return
    for (group, each), name in zip(found, own.group_names(source), strict=True):
        if each:
            yield _drawing(source, group, each, f"{NAME}-{name}", look)


def _drawing(
    source: Source, group: Group, each: Sequence[Gates], name: str, look: own.Look
) -> Drawing:
    asked = [method for method in group.methods if own.method_of(method) == METHOD]
    shown = Group(group.task, group.backbone, tuple(asked))
    silent = [m.label for m in asked if m.done and not any(_facts(e) for e in m.done)]
    return Drawing(
        name,
        f"{TITLE}: {own.backbone_name(group.backbone)}",
        own.caption(
            f"{own.data_name(group)}, {own.backbone_name(group.backbone)}; layers from the "
            "input to the output. Above: the share of a layer's gates at each value, the darker "
            "the more. Below: members that share a feature, (Σ s)² / Σ s² over the members' gates "
            "s, and their standard deviation over seeds; dashed: the closed-form k*.",
            f"{source.standing}; {own.seeds_words(asked, bars=False)}.",
            f"No gates were recorded for {', '.join(silent)}." if silent else "",
            own.gaps_words(source, [shown]),
        ),
        group.task,
        group.backbone,
        lambda: draw(each, look),
        wide=True,
    )


def gates_of(group: Group) -> list[Gates]:
    """The gates of every temperature that has some, in the order of τ."""
    found = [_gates(method) for method in group.methods if own.method_of(method) == METHOD]
    return sorted((one for one in found if one is not None), key=lambda one: one.temperature)


def _gates(method: MethodRuns) -> Gates | None:
    runs = [layers for entry in method.done if (layers := _facts(entry))]
    if not runs:
        return None
    sharing = np.array([[layer["members_per_feature"] for layer in run] for run in runs])
    counts = np.array([[layer["histogram"] for layer in run] for run in runs], dtype=float)
    return Gates(
        float(own.parameter(method, PARAMETER) or 0.0),
        method.members,
        (counts / counts.sum(axis=-1, keepdims=True)).mean(axis=0),
        sharing.mean(axis=0),
        sharing.std(axis=0, ddof=1) if len(runs) > 1 else None,
        float(runs[0][0]["equilibrium"]),
    )


def _facts(entry: Entry) -> list[dict[str, Any]]:
    """What a run noted of each gated layer."""
    return list(lookup(entry.metrics or {}, ("method", "gates")) or [])


def draw(each: Sequence[Gates], look: own.Look) -> Figure:
    """A column a temperature: the gates' histograms above, members per feature below."""
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(each))
    bands = -(-len(each) // columns)
    figure = Figure(figsize=(own.FULL, 2.5 * bands), layout="constrained")
    grid = figure.subplots(2 * bands, columns, squeeze=False, sharex="all", sharey="row")
    for axes in grid.flat:
        axes.set_axis_off()
    largest = max(float(one.shares.max()) for one in each)
    histograms = []
    for index, one in enumerate(each):
        band, column = divmod(index, columns)
        above, below = grid[2 * band, column], grid[2 * band + 1, column]
        above.set_title(f"{'τ = ' if column == 0 else ''}{one.temperature:g}")
        histograms.append(_histograms(above, one, largest, look))
        _sharing(below, one, look)
        if column == 0:
            above.set_ylabel("Gate σ(γ)")
            below.set_ylabel("Members\nper feature")
    members = max(one.members for one in each)
    for band in range(bands):
        # No curve rises above M: the words stand over it.
        grid[2 * band + 1, 0].set_ylim(0, 1.3 * members)
        grid[2 * band + 1, 0].set_yticks((0, members / 2, members))
    figure.supxlabel("Gated layer, from input to output", fontsize=8)
    bar = figure.colorbar(histograms[-1], ax=grid[0::2, :], aspect=12, pad=0.01)
    bar.set_label("Share of gates")
    bar.outline.set_linewidth(0.4)
    return figure


def _histograms(axes: Axes, gates: Gates, largest: float, look: own.Look) -> QuadMesh:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    axes.set_axis_on()
    colours = ["#FFFFFF", look.base[METHOD].colour, "#000000"]
    layers, bins = gates.shares.shape
    # Squares, not an image: it stays sharp at any size, and a page may forbid images.
    squares = axes.pcolormesh(
        np.arange(layers + 1) + 0.5,
        np.linspace(0, 1, bins + 1),
        gates.shares.T,
        cmap=LinearSegmentedColormap.from_list("gates", colours, N=LEVELS),
        norm=PowerNorm(0.5, 0, largest),  # so that the few gates between the two ends are seen
        edgecolors="face",
        linewidth=0.1,
    )
    axes.set_yticks((0, 0.5, 1))
    axes.tick_params(labelbottom=False)
    return squares


def _sharing(axes: Axes, gates: Gates, look: own.Look) -> None:
    axes.set_axis_on()
    colour = look.base[METHOD].colour
    layers = np.arange(1, len(gates.sharing) + 1)
    if gates.spread is not None:
        low, high = gates.sharing - gates.spread, gates.sharing + gates.spread
        axes.fill_between(layers, low, high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(layers, gates.sharing, color=colour, marker=".", markersize=3)
    axes.axhline(gates.equilibrium, color="0.2", linewidth=0.8, linestyle=(0, (4, 2)))
    axes.text(
        *(0.97, 0.97),
        f"k* = {gates.equilibrium:.2f}",
        transform=axes.transAxes,
        ha="right",
        va="top",
        fontsize=7,
    )
    axes.set_xticks((1, len(layers)) if len(layers) > 1 else (1,))
