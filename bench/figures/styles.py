"""One colour and marker a method, the same in every figure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.tables.collection import Collection

WIDTH = 3.25
"""Inches: a column of a two-column paper."""

# Okabe and Ito, 2008: told apart with any kind of colour vision.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
_MARKERS = "XPh<>pd8Hov^sD*"
_DARKEST, _LIGHTEST = -0.45, 0.5
"""Shares of black and white in the outermost shades of a colour."""
_COLOURS = (SKY, VERMILION, GREEN, PURPLE, BLUE, ORANGE, BLACK, YELLOW)

RC: dict[str, Any] = {
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
"""Matplotlib's settings; the salt makes ids of SVG elements repeatable."""


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    marker: str


KNOWN = {
    "single": Style(BLACK, "o"),
    "deep_ensemble": Style(BLUE, "s"),
    "batch_ensemble": Style(GREEN, "^"),
    "packed_ensemble": Style(ORANGE, "D"),
    "film_ensemble": Style(PURPLE, "v"),
    "sigma_nens": Style(VERMILION, "*"),
}
"""The methods that ship here, the same in every figure."""


def base_styles(methods: Iterable[str]) -> dict[str, Style]:
    """Method -> style: known methods have theirs, others the next free in the order of names."""
    free = iter([style for style in _pairs() if style not in KNOWN.values()])
    return {method: KNOWN.get(method) or next(free) for method in sorted(set(methods))}


def method_styles(
    collection: Collection, base: Mapping[str, Style] | None = None
) -> dict[str, Style]:
    """Label -> style of everything that a suite compares.

    Variants of one method (the points of a grid, say) share its marker and have shades of its
    colour, from light to dark in the order of their labels.

    Args:
        collection: the suite's runs.
        base: the methods' own styles; by default what `base_styles` gives these methods.
    """
    names = {m.label: m.entries[0].spec.method for g in collection.groups for m in g.methods}
    base = base or base_styles(names.values())
    styles: dict[str, Style] = {}
    for method, style in base.items():
        labels = sorted((label for label in names if names[label] == method), key=natural)
        for label, shade in zip(labels, shades_of(style.colour, len(labels)), strict=True):
            styles[label] = Style(shade, style.marker)
    return styles


def _pairs() -> Iterator[Style]:
    """Every colour with every marker, neighbours being different in both."""
    for turn in range(len(_COLOURS)):
        for index, marker in enumerate(_MARKERS):
            yield Style(_COLOURS[(index + turn) % len(_COLOURS)], marker)


def shades_of(colour: str, count: int) -> list[str]:
    """Shades of a colour, evenly from light to dark; the colour itself if one is asked for.

    Args:
        colour: ``#rrggbb``.
        count: how many.
    """
    if count < 2:
        return [colour] * count
    darkest = 0.0 if colour == BLACK else _DARKEST
    steps = [_LIGHTEST + (darkest - _LIGHTEST) * index / (count - 1) for index in range(count)]
    return [_mixed(colour, step) for step in steps]


def _mixed(colour: str, step: float) -> str:
    """The colour with that share of white, or of black where the share is negative."""
    target = 255 if step > 0 else 0
    channels = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(one + (target - one) * abs(step)):02X}" for one in channels)


def natural(label: str) -> list[tuple[float, str]]:
    """A key that sorts the numbers in labels as numbers: τ=0.5 before τ=10."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", label)
    return [(float(part), "") if index % 2 else (-1.0, part) for index, part in enumerate(parts)]


def words(label: str) -> str:
    """A label in which Matplotlib sees no formula and no sign to leave it out."""
    return f" {label}".replace("$", r"\$") if label.startswith("_") else label.replace("$", r"\$")
