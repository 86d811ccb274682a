"""One colour and marker a method, the same in every figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.tables.collection import Collection

WIDTH = 3.25
"""Inches: a column of a two-column paper."""

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
# Okabe and Ito, 2008: told apart with any kind of colour vision.
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


def words(label: str) -> str:
    """A label in which Matplotlib sees no formula and no sign to leave it out."""
    return f" {label}".replace("$", r"\$") if label.startswith("_") else label.replace("$", r"\$")
