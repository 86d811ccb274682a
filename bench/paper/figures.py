"""Every figure of the paper, F1 to F6, from stored results; and those that lack theirs.

All are vector files at the width of a column (3.25 inches) or of a page (6.75 inches, where there
are small multiples), with one colour and marker a method everywhere. The same results give the
same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Drawing, plots, write_drawings
from bench.figures.styles import WIDTH
from bench.files import write_text
from bench.paper import drawing as own
from bench.paper.collect import Paper, Source
from bench.paper.costs import cost
from bench.paper.curves import members, severity
from bench.paper.frontier import frontier
from bench.paper.gates import gates
from bench.tables.collection import Group

F4, F4_TITLE = "F4-reliability", "Reliability"
RELIABILITY_SUITES = ("cifar10", "cifar100", "imagenet", "sst2")
LIST = "figures.md"
"""The captions, and what is missing, beside the figures."""


@dataclass(frozen=True)
class Figures:
    """The paper's figures.

    Attributes:
        drawings: those that have something to show, F1 to F6.
        absent: those that have not.
    """

    drawings: tuple[Drawing, ...]
    absent: tuple[own.Absent, ...]


Maker = Callable[[Paper, own.Look], Iterator[Drawing | own.Absent]]


def paper_figures(paper: Paper) -> Figures:
    """Every figure that the results allow, and what the others wait for."""
    look = own.Look(paper)
    makers: Sequence[Maker] = (frontier, severity, members, reliability, gates, cost)
    found = [one for make in makers for one in make(paper, look)]
    return Figures(
        tuple(one for one in found if isinstance(one, Drawing)),
        tuple(one for one in found if isinstance(one, own.Absent)),
    )


def write_paper_figures(paper: Paper, figures: Figures | None = None) -> list[Path]:
    """Write every figure as SVG and PDF, and `figures.md` with captions and gaps.

    Figures of an earlier call that can't be drawn any more are removed, so that none is shown
    beside results that it is not made of.

    Args:
        paper: the suites' runs.
        figures: what `paper_figures` made of them, if it is at hand.

    Returns:
        the files, the list last.
    """
    figures = figures or paper_figures(paper)
    folder = paper.folder.figures
    paths = write_drawings(figures.drawings, folder)
    for old in sorted(folder.glob("F[1-6]-*")):
        if old.suffix in (".svg", ".pdf") and old not in paths:
            old.unlink()
    write_text(folder / LIST, figures_list(paper, figures))
    return [*paths, folder / LIST]


def figures_list(paper: Paper, figures: Figures) -> str:
    """Markdown: each figure with its caption, and what is not drawn with what fills it."""
    lines = ["# Figures", "", f"Made with `sigma-bench report {paper.asked}`.", ""]
    for one in figures.drawings:
        lines += [f"## {one.title}", "", f"![{one.title}]({one.name}.svg)", "", one.caption, ""]
    if figures.absent:
        lines += ["## Not drawn yet", ""]
        for lacking in figures.absent:
            fill = f": `{lacking.command}`" if lacking.command else ""
            lines.append(f"- **{lacking.name}** ({lacking.title}): {lacking.reason}{fill}")
        lines.append("")
    return "\n".join(lines)


def reliability(paper: Paper, look: own.Look) -> Iterator[Drawing | own.Absent]:
    """F4: a figure for each task and backbone, one diagram a method."""
    for name in RELIABILITY_SUITES:
        source = paper.sources.get(name)
        if source is None or not source.done:
            yield own.absent(f"{F4}-{name}", F4_TITLE, paper, name)
            continue
        for group, file in zip(source.groups, own.group_names(source), strict=True):
            if group.done:
                yield _reliability(source, group, f"{F4}-{name}-{file}", look)


def _reliability(source: Source, group: Group, name: str, look: own.Look) -> Drawing | own.Absent:
    collection = source.collection
    sound = [method for method in group.methods if collection.sound(method)]
    place = f"{own.data_name(group)}, {own.backbone_name(group.backbone)}"
    if not sound:
        reason = f"no per-sample records of {group.title} in {source.title}"
        return own.Absent(name, f"{F4_TITLE}: {place}", reason, source.command)
    damaged = [
        f"{method.label} ({lost} of {len(method.entries)} seeds)"
        for method in group.methods
        if (lost := len(method.done) - len(collection.sound(method)))
    ]
    width = WIDTH if len(sound) <= 2 else own.FULL
    return Drawing(
        name,
        f"{F4_TITLE}: {place}",
        own.caption(
            f"{place}: accuracy over mean confidence in 15 equal-width bins, test samples of all "
            "seeds together; the area of a point is the share of samples in its bin, ECE is the "
            "mean over seeds.",
            f"{source.standing}; {own.seeds_words(sound, bars=False)}.",
            f"Without sound per-sample records: {'; '.join(damaged)}." if damaged else "",
            own.gaps_words(source, [group]),
        ),
        group.task,
        group.backbone,
        lambda: plots.reliability(
            collection,
            sound,
            look.of(source),
            columns=2 if width == WIDTH else 6,
            width=width,
            name=own.shown_name,
        ),
        wide=width != WIDTH,
    )
