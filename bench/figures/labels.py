"""Labels beside points, put where they cover least."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in pixels."""

_RINGS = (5.0, 10.0, 16.0, 24.0)
"""Distances in points from a point to its label; farther ones get a line that leads there."""
_DIRECTIONS = ((1, 1), (1, 0), (0, 1), (-1, 0), (0, -1), (1, -1), (-1, 1), (-1, -1))
_PADDING = 1.0


@dataclass(frozen=True)
class Label:
    """Words that belong to a point.

    Attributes:
        x, y: the point, in data.
        text: the words.
        colour: of the words.
    """

    x: float
    y: float
    text: str
    colour: str


def place_labels(
    axes: Axes,
    labels: Sequence[Label],
    obstacles: Sequence[tuple[float, float]],
    size: float = 7.0,
) -> None:
    """Write each label near its point, clear of other labels and of what is drawn.

    Places are tried around the point, near ones first; the one that covers least is taken, label
    after label. The figure's layout must be final, as places depend on it.

    Args:
        axes: where.
        labels: what to write.
        obstacles: points in data that should stay free; the labels' own are added.
        size: of the font, in points.
    """
    points = [*obstacles, *((label.x, label.y) for label in labels)]
    marks = axes.transData.transform(np.asarray(points)) if points else np.empty((0, 2))
    pixel = axes.figure.dpi / 72
    left, bottom, right, top = map(float, axes.get_window_extent().extents)
    taken: list[Box] = []
    for label in labels:
        centre = axes.transData.transform((label.x, label.y))
        width, height = _extent(axes, label.text, size)
        best: tuple[float, Box, tuple[float, float]] | None = None
        for ring, (aside, up) in itertools.product(_RINGS, _DIRECTIONS):
            # Corners of a ring lie on the circle as its sides do.
            reach = ring * pixel / np.hypot(aside, up)
            middle = (
                centre[0] + aside * (reach + width / 2),
                centre[1] + up * (reach + height / 2),
            )
            box = _box(middle, width, height)
            cost = _cost(box, taken, marks, (left, bottom, right, top), pixel) + 0.02 * ring
            if best is None or cost < best[0] - 1e-9:
                shift = ((middle[0] - centre[0]) / pixel, (middle[1] - centre[1]) / pixel)
                best = (cost, box, shift)
        assert best is not None
        taken.append(best[1])
        _write(axes, label, best[2], size)


def _write(axes: Axes, label: Label, shift: tuple[float, float], size: float) -> None:
    far = max(abs(shift[0]), abs(shift[1])) > _RINGS[1] + size
    line: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.4, "color": "0.5", "shrinkB": 2}
    axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=shift,
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=size,
        color=label.colour,
        arrowprops=line if far else None,
        zorder=5,
        annotation_clip=False,
    )


def _extent(axes: Axes, text: str, size: float) -> tuple[float, float]:
    """Width and height of the words in pixels, with some air around them."""
    probe = axes.text(0, 0, text, fontsize=size)
    box = probe.get_window_extent()
    probe.remove()
    return float(box.width) + 2 * _PADDING, float(box.height) + 2 * _PADDING


def _box(middle: tuple[float, float], width: float, height: float) -> Box:
    x, y = middle
    return (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _cost(
    box: Box, taken: Sequence[Box], marks: npt.NDArray[np.float64], frame: Box, pixel: float
) -> float:
    """How bad a place is: labels covered, points covered, parts outside the axes."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    covered = [part for other in taken if (part := _overlap(box, other) / area)]
    margin = 2.5 * pixel
    inside = (
        (marks[:, 0] > box[0] - margin)
        & (marks[:, 0] < box[2] + margin)
        & (marks[:, 1] > box[1] - margin)
        & (marks[:, 1] < box[3] + margin)
    )
    outside = 1 - _overlap(box, frame) / area
    # Any overlap at all is worse than the farthest place.
    return 2 * len(covered) + 10 * sum(covered) + 0.5 * float(inside.sum()) + 20 * outside


def _overlap(first: Box, second: Box) -> float:
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(width, 0.0) * max(height, 0.0)


def along(
    axes: Axes, points: Sequence[tuple[float, float]], step: float = 4.0
) -> list[tuple[float, float]]:
    """Points of data along a line through some points, about `step` points of print apart."""
    pixels = axes.transData.transform(np.asarray(points, dtype=float))
    found = []
    for first, second in itertools.pairwise(pixels):
        parts = max(1, int(np.hypot(*(second - first)) / (step * axes.figure.dpi / 72)))
        found += [first + (second - first) * part / parts for part in range(parts)]
    if not found:
        return []
    return [(float(x), float(y)) for x, y in axes.transData.inverted().transform(np.array(found))]
