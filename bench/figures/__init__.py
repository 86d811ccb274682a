"""Figures from stored results: reliability, shift by severity, and accuracy against NLL.

Each is drawn at the width of a column, with colours that colour-blind readers can tell apart
(Okabe and Ito, 2008) and one colour and marker a method everywhere. The same results give the same
bytes.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import plots
from bench.figures.styles import RC, Style, method_styles
from bench.files import write_bytes
from bench.tables.collection import Collection, Group
from bench.tables.layout import file_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Drawing", "Style", "drawings", "method_styles", "write_drawings", "write_figures"]


@dataclass(frozen=True)
class Drawing:
    """A figure, drawn when it is asked for.

    Attributes:
        name: of its file, without ending.
        title, caption: what it shows, in words.
        task, backbone: of which runs.
        draw: makes it.
        wide: whether it takes both columns of a page.
    """

    name: str
    title: str
    caption: str
    task: str
    backbone: str
    draw: Callable[[], Figure]
    wide: bool = False

    def render(self, kind: str) -> bytes:
        """The file's bytes, ``svg`` or ``pdf``."""
        import matplotlib

        stream = io.BytesIO()
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
        with matplotlib.rc_context(RC), warnings.catch_warnings():
            # A box stands for a letter that the font lacks; the tables have the label as it is.
            warnings.filterwarnings("ignore", "Glyph .* missing from")
            self.draw().savefig(stream, format=kind, metadata=metadata)
        return stream.getvalue()


def write_figures(collection: Collection, folder: Path | None = None) -> list[Path]:
    """Write every figure as SVG and PDF.

    Args:
        collection: the suite's runs.
        folder: where to write; by default the suite's ``figures``.

    Returns:
        the files; none for a (task, backbone) without results.
    """
    return write_drawings(drawings(collection), folder or collection.folder.figures)


def write_drawings(found: Iterable[Drawing], folder: Path) -> list[Path]:
    """Write each as SVG and PDF in a folder; the files."""
    paths = []
    for drawing in found:
        for kind in ("svg", "pdf"):
            path = folder / f"{drawing.name}.{kind}"
            write_bytes(path, drawing.render(kind))
            paths.append(path)
    return paths


def drawings(collection: Collection) -> list[Drawing]:
    """Every figure that the results allow, in the order of a report."""
    styles = method_styles(collection)
    found: list[Drawing] = []
    for group, name in zip(collection.groups, file_names(collection.groups), strict=True):
        if group.done:
            found += _group_drawings(collection, group, name, styles)
    return found


def _group_drawings(
    collection: Collection, group: Group, name: str, styles: dict[str, Style]
) -> Iterable[Drawing]:
    sound = [method for method in group.methods if collection.sound(method)]
    place = (group.task, group.backbone)
    if sound:
        yield Drawing(
            f"reliability-{name}",
            "Reliability",
            "Accuracy over mean confidence in 15 equal-width bins, test samples of all seeds "
            "together; the area of a point is the share of samples in its bin.",
            *place,
            lambda: plots.reliability(collection, sound, styles),
        )
    if group.shift_origin:
        yield Drawing(
            f"severity-{name}",
            "Calibration and accuracy under corruption",
            f"ECE and accuracy by severity ({group.shift_origin} corruptions; 0: clean), mean and "
            "standard deviation over seeds.",
            *place,
            lambda: plots.severity(group, styles),
        )
    cost, unit = plots.cost_shown(group)
    yield Drawing(
        f"cost-{name}",
        "Accuracy, likelihood and cost",
        f"Accuracy against NLL on the test split, mean and standard deviation over seeds; the "
        f"area of a marker is its {unit}.",
        *place,
        lambda: plots.accuracy_against_nll(group, styles, cost, unit),
    )
