"""One HTML file with everything: tables that sort, figures, specification, environment, gaps."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.figures import Drawing, drawings
from bench.files import Damaged, read_json, write_text
from bench.metrics.definitions import DEFINITIONS
from bench.tables import Cell, Collection, Table, Tables, build_tables
from bench.tables.collection import budgets_words
from bench.tables.columns import metric
from bench.tables.contents import task_notes
from bench.tables.layout import score_cell
from bench.tables.scores import Score, flatten, lookup

TEMPLATE = "report.html.j2"
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_OPEN = ("main", "difference")
"""Tables that are shown at once; the others unfold."""


@dataclass(frozen=True)
class Section:
    """What is shown of one (task, backbone)."""

    title: str
    notes: list[str]
    open_tables: list[Table]
    folded_tables: list[Table]
    figures: list[dict[str, Any]]


def write_report(
    collection: Collection, path: Path | None = None, tables: Tables | None = None
) -> Path:
    """Write the report of a suite, one file that needs nothing else and no network.

    Args:
        collection: the suite's runs.
        path: where to write; by default the suite's ``report.html``.
        tables: what `build_tables` made of the collection, if it is at hand.

    Returns:
        the file.
    """
    path = path or collection.folder.report
    write_text(path, report_html(collection, tables or build_tables(collection)))
    return path


def report_html(collection: Collection, tables: Tables) -> str:
    """The report as text; the same results give the same text."""
    return rendered(
        TEMPLATE,
        suite=collection.suite,
        asked=collection.asked,
        budget=budgets_words(entry.spec for entry in collection.entries),
        reference=collection.reference,
        total=len(collection.entries),
        counts=collection.counts,
        sections=list(_sections(collection, tables)),
        gaps=tables.gaps,
        runs=_runs_table(collection),
        specification=_specification(collection),
        environment=environment_rows(collection),
        definitions=DEFINITIONS,
    )


def rendered(template: str, **content: Any) -> str:
    """A page from one of the package's templates; every word of its content is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("bench", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**content)


def _sections(collection: Collection, tables: Tables) -> Iterator[Section]:
    ready = {name: tables.sections(name) for name in tables.names}
    figures = drawings(collection)
    for index, group in enumerate(collection.groups):
        place = (group.task, group.backbone)
        own = [drawing for drawing in figures if (drawing.task, drawing.backbone) == place]
        yield Section(
            title=group.title,
            notes=task_notes(group),
            open_tables=[ready[name][index] for name in _OPEN],
            folded_tables=[ready[name][index] for name in tables.names if name not in _OPEN],
            figures=[shown_figure(drawing) for drawing in own],
        )


def shown_figure(drawing: Drawing) -> dict[str, Any]:
    """What a page shows of a figure."""
    return {
        "title": drawing.title,
        "caption": drawing.caption,
        "wide": drawing.wide,
        "svg": inline_svg(drawing.render("svg"), drawing.name, drawing.title),
    }


def inline_svg(svg: bytes, prefix: str, title: str) -> str:
    """An SVG file as an element of an HTML page.

    Prolog, metadata and comments are left out, every id gets the prefix so that two figures
    share none, and the element is an image with a name for screen readers.
    """
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _XLINK)
    root = ET.fromstring(svg)
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "id":
                element.set(name, f"{prefix}-{value}")
            elif name == f"{{{_XLINK}}}href" and value.startswith("#"):
                element.set(name, f"#{prefix}-{value[1:]}")
            elif "url(#" in value:
                element.set(name, value.replace("url(#", f"url(#{prefix}-"))
    root.set("role", "img")
    root.set("aria-label", title)
    return ET.tostring(root, encoding="unicode")


def environment_rows(collection: Collection) -> list[tuple[str, list[tuple[str, int]]]]:
    """(name, [(value, number of runs)]) of what finished runs noted of where they ran."""
    found: dict[str, Counter[str]] = {}
    for entry in collection.entries:
        if entry.metrics is None:
            continue
        for name, value in _environment(entry.folder.path / "environment.json"):
            found.setdefault(name, Counter())[value] += 1
    return [(name, sorted(values.items())) for name, values in found.items()]


def _environment(path: Path) -> Iterable[tuple[str, str]]:
    try:
        content = read_json(path)
    except FileNotFoundError:
        return [("environment", "not recorded")]
    except Damaged:
        return [("environment", "record damaged")]
    return [(".".join(key), str(value)) for key, value in flatten(content)]


def _specification(collection: Collection) -> str:
    content: dict[str, Any] = collection.suite.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)


def _runs_table(collection: Collection) -> Table:
    """One line a run: what it is, how it stands, its first scores, and its folder."""
    columns = [metric(("test", name)) for name in ("accuracy", "nll", "ece")]
    rows = []
    for group in collection.groups:
        for method in group.methods:
            for entry in method.entries:
                values = [lookup(entry.metrics or {}, column.key) for column in columns]
                scores = [
                    score_cell(column, Score("missing") if value is None else Score("value", value))
                    for column, value in zip(columns, values, strict=True)
                ]
                rows.append(
                    (
                        *(Cell(group.task), Cell(group.backbone), Cell(method.label)),
                        Cell(str(entry.spec.seed), value=entry.spec.seed),
                        Cell(entry.state),
                        Cell(f"runs/{entry.spec.id}", code=True),
                        *scores,
                    )
                )
    headings = ("Task", "Backbone", "Method", "Seed", "State", "Folder")
    blocks = (tuple(rows),) if rows else ()
    return Table("runs", "Runs", (*headings, *(c.heading for c in columns)), len(headings), blocks)
