"""What the paper's figures have in common: names, measures, error bars, legends, gaps in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bench.backbones import architecture, is_pretrained
from bench.figures.styles import Style, base_styles, method_styles, words
from bench.paper.collect import Paper, Source
from bench.tables.collection import Entry, Group, MethodRuns
from bench.tables.layout import file_names
from bench.tables.scores import Key, Score, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FULL = 6.75
"""Inches: both columns of a two-column paper, for small multiples."""

BACKBONE_FILLS = ("full", "none", "left", "top", "right", "bottom")
"""How markers are filled where one figure shows several backbones."""

_METHODS = {
    "single": "Single",
    "deep_ensemble": "Deep ensemble",
    "batch_ensemble": "BatchEnsemble",
    "packed_ensemble": "Packed-Ensembles",
    "film_ensemble": "FiLM-Ensemble",
    "sigma_nens": "σN-Ens",
}
_DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet", "sst2": "SST-2"}


@dataclass(frozen=True)
class Absent:
    """A figure that can't be drawn yet.

    Attributes:
        name, title: as those of a drawing.
        reason: what is missing.
        command: what fills it; empty where no command does.
    """

    name: str
    title: str
    reason: str
    command: str


@dataclass(frozen=True)
class Measure:
    """A score as an axis shows it.

    Attributes:
        name: in a split's scores, such as ``nll``.
        title: of the axis, with the unit.
        scale: the axis shows the score times this.
    """

    name: str
    title: str
    scale: float = 1.0


ACCURACY = Measure("accuracy", "Accuracy (%)", 100)
ECE = Measure("ece", "ECE (%)", 100)
NLL = Measure("nll", "NLL (nats)")


@dataclass(frozen=True)
class Value:
    """Mean and standard deviation over seeds, as an axis shows them; no deviation for one seed."""

    mean: float
    std: float | None


def value(method: MethodRuns, measure: Measure, place: Key = ("test",)) -> Value | None:
    """A score of a method on its axis; None where no run has it."""
    found: Score = score(method, (*place, measure.name))
    if found.mean is None:
        return None
    return Value(
        found.mean * measure.scale, None if found.std is None else found.std * measure.scale
    )


@dataclass(frozen=True)
class Look:
    """Styles of every method of the paper, the same in all its figures."""

    paper: Paper

    @cached_property
    def base(self) -> dict[str, Style]:
        """Method -> style."""
        sources = self.paper.sources.values()
        return base_styles(entry.spec.method for s in sources for entry in s.collection.entries)

    def of(self, source: Source) -> dict[str, Style]:
        """Label -> style of what a suite compares: the method's, variants in shades of it."""
        return method_styles(source.collection, self.base)

    def method(self, method: MethodRuns) -> Style:
        """The style of the method itself, whatever its variant."""
        return self.base[method_of(method)]


def method_of(method: MethodRuns) -> str:
    """The registered name of a method, such as ``sigma_nens``."""
    return method.entries[0].spec.method


def shown_name(method: MethodRuns) -> str:
    """What a figure calls a method: as its authors do, unless the suite has words of its own."""
    name = method_of(method)
    label = method.label
    if label == name or label.startswith(f"{name} ("):
        return words(_METHODS.get(name, name) + label.removeprefix(name))
    return words(label)


def method_name(method: MethodRuns) -> str:
    """What a figure calls all variants of a method together."""
    return title_of(method_of(method))


def title_of(name: str) -> str:
    """What a figure calls a registered method."""
    return words(_METHODS.get(name, name))


def data_name(group: Group) -> str:
    """What a figure calls the data of a group: as the field does where it is the whole set."""
    return words(_DATA.get(group.task, group.task))


def group_names(source: Source) -> list[str]:
    """What files call each group of a suite: its backbone, and its task where there are several."""
    task = "" if _one_task(source) else "{}-"
    return file_names(
        [
            Group(task.format(group.task) + backbone_name(group.backbone), "", ())
            for group in source.groups
        ]
    )


def _one_task(source: Source) -> bool:
    return len({group.task for group in source.groups}) == 1


def backbone_name(backbone: str) -> str:
    """A backbone, with the place of its weights cut to the fact that it is pretrained."""
    name = architecture(backbone)
    return words(f"{name}, pretrained" if is_pretrained(backbone) else name)


def parameter(method: MethodRuns, name: str) -> float | None:
    """A hyper-parameter of a method, if it has that one."""
    found = method.entries[0].spec.parameters.get(name)
    return None if found is None else float(found)


def bars(axes: Axes, x: Sequence[float], y: Sequence[Value], style: Style, **more: Any) -> None:
    """A line through means, with bars of one standard deviation where there are several seeds."""
    deviations = [0.0 if one.std is None else one.std for one in y]
    settings: dict[str, Any] = {
        "color": style.colour,
        "marker": style.marker,
        "markersize": marker_size(style),
        "yerr": deviations if any(deviations) else None,
        "elinewidth": 0.6,
        "capsize": 1.5,
        "capthick": 0.6,
    }
    axes.errorbar(x, [one.mean for one in y], **settings | more)


def marker_size(style: Style, size: float = 4.0) -> float:
    """Points; a star, whose arms are thin, gets half as much again."""
    return size * 1.5 if style.marker == "*" else size


def legend(figure: Figure, entries: Sequence[tuple[str, dict[str, Any]]], columns: int) -> None:
    """Words below the figure, each with what it stands for, in rows of about the same length."""
    from matplotlib.lines import Line2D

    rows = -(-len(entries) // columns)
    handles = [Line2D([], [], **look) for _, look in entries]
    figure.legend(
        handles,
        [name for name, _ in entries],
        loc="outside lower center",
        ncols=-(-len(entries) // rows),
        frameon=False,
        columnspacing=1.0,
        handletextpad=0.4,
        handlelength=1.5,
        borderpad=0.2,
    )


def legend_height(entries: int, columns: int) -> float:
    """Inches that a legend takes."""
    return 0.1 + 0.16 * -(-entries // columns)


def method_entry(method: MethodRuns, style: Style, line: str = "-") -> tuple[str, dict[str, Any]]:
    """A method's words and look in a legend."""
    return shown_name(method), key_of(style, line)


def key_of(style: Style, line: str = "-") -> dict[str, Any]:
    """What a legend shows of a style."""
    return {
        "color": style.colour,
        "marker": style.marker,
        "markersize": marker_size(style),
        "linestyle": line,
    }


def seeds_words(methods: Iterable[MethodRuns], bars: bool = True) -> str:
    """How many runs stand behind a point, «n = 3 seeds», and what error bars show if there are."""
    counts = {len(method.done) for method in methods if method.done}
    if not counts:
        return "no runs"
    few, many = min(counts), max(counts)
    if many == 1:
        return "n = 1 seed, no error bars" if bars else "n = 1 seed"
    seeds = f"n = {many} seeds" if few == many else f"n = {few} to {many} seeds"
    return f"{seeds}, error bars: ± 1 standard deviation" if bars else seeds


def gaps_words(source: Source, groups: Iterable[Group]) -> str:
    """What a figure lacks of the runs it should show, and the command that fills it; or nothing."""
    missing, refused = [], []
    for group in groups:
        if not group.done and not _refused(_entries(group)):
            missing.append(f"all of {group.title}")
            continue
        for method in group.methods:
            place = f"{method.label} on {group.title}"
            asked = [entry for entry in method.entries if entry.state != "not applicable"]
            lacking = len(asked) - len(method.done)
            if not asked:
                refused.append(place)
            elif lacking:
                missing.append(f"{place} ({lacking} of {len(method.entries)} seeds)")
    parts = []
    if refused:
        parts.append(f"Not applicable: {'; '.join(refused)}.")
    if missing:
        parts.append(f"Not run yet: {'; '.join(missing)}; to fill it: {source.command}.")
    return " ".join(parts)


def _entries(group: Group) -> list[Entry]:
    return [entry for method in group.methods for entry in method.entries]


def _refused(entries: Iterable[Entry]) -> bool:
    return all(entry.state == "not applicable" for entry in entries)


def caption(*parts: str) -> str:
    """Sentences joined, empty ones left out."""
    return " ".join(part for part in parts if part)


def absent(name: str, title: str, paper: Paper, suite: str) -> Absent:
    """A figure that lacks all of a suite's runs, or what it shows of them."""
    source = paper.sources.get(suite)
    if source is None:
        return Absent(name, title, f"suite {suite} has no scale {paper.scale}", "")
    if all(entry.state == "not applicable" for entry in source.collection.entries):
        return Absent(name, title, f"no run of {source.title} is applicable", "")
    lack = "has what it shows" if source.done else "is done"
    return Absent(name, title, f"no run of {source.title} {lack}", source.command)
