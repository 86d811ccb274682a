"""The report: one file, nothing from outside, every word escaped."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from synthetic_suite import ENVIRONMENT, fill, make_suite

from bench.metrics.definitions import DEFINITIONS
from bench.report import environment_rows, inline_svg, write_report
from bench.store import SuiteFolder
from bench.suite import Suite
from bench.tables import build_tables, collect

VOID = {"meta", "br", "hr", "img", "input", "link"}
EVIL = "<script>alert('x')</script> & \"quoted\" <!-- --> {{ 7 * 7 }}"


class Page(HTMLParser):
    """Elements, attributes and text of a page; complains when tags don't nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def text(self) -> str:
        return " ".join("".join(data for tag, data in self.texts if tag != "script").split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(suite: Suite, folder: SuiteFolder) -> Page:
    return Page(write_report(collect(suite, folder)).read_text(encoding="utf-8"))


def test_needs_nothing_from_outside(folder: SuiteFolder, suite: Suite) -> None:
    page = page_of(suite, folder)
    for _, attributes in page.elements:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                assert value is not None
                assert value.startswith("#"), f"{name}={value}"
            if name == "style":
                assert "http" not in (value or "")
    assert page.all("link") == page.all("img") == page.all("iframe") == []
    styles = "".join(data for tag, data in page.texts if tag == "style")
    assert "@import" not in styles
    assert "url(" not in styles
    [policy] = [m for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in str(policy["content"])


def test_every_id_is_unique_and_every_link_has_its_target(
    folder: SuiteFolder, suite: Suite
) -> None:
    page = page_of(suite, folder)
    ids = Counter(a["id"] for _, a in page.elements if "id" in a)
    assert [name for name, times in ids.items() if times > 1] == []
    for _, attributes in page.elements:
        for name, value in attributes.items():
            if name in ("href", "xlink:href"):
                assert str(value)[1:] in ids
            for target in re.findall(r"url\(#([^)]+)\)", value or ""):
                assert target in ids


def test_everything_from_outside_is_escaped(folder: SuiteFolder) -> None:
    suite = make_suite(
        methods=[{"name": "single", "label": EVIL}, "deep_ensemble"],
        description=EVIL,
        reference=EVIL,
    )
    fill(folder, suite)
    first, second, *_ = suite.runs()
    for spec in (first, second):
        folder.run(spec).metrics_path.unlink()
    folder.run(first).fail(f"ValueError: {EVIL}", "…")
    folder.run(second).refuse(EVIL)

    page = page_of(suite, folder)

    assert len(page.all("script")) == 1
    words = " ".join(EVIL.split())
    assert page.text.count(words) > 5
    assert f"ValueError: {words}" in page.text
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)


def test_shows_every_table_with_headings_that_sort(folder: SuiteFolder, suite: Suite) -> None:
    collection = collect(suite, folder)
    tables = build_tables(collection)
    page = page_of(suite, folder)
    shown = [table for name in tables.names for table in tables.sections(name)]
    for table in shown:
        assert table.title in page.text
        for row in table.rows:
            for cell in row:
                assert cell.text in page.text
    headings = sum(len(table.headings) for table in shown) + 9
    assert len(page.all("button")) == headings == len(page.all("th"))
    assert all(button["type"] == "button" for button in page.all("button"))
    values = [a["data-value"] for a in page.all("td") if "data-value" in a]
    assert len(values) > 100
    assert all(float(str(value)) == float(str(value)) for value in values)
    assert len(page.all("svg")) == 3
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.all("svg"))


def test_tells_status_budget_notes_and_definitions(folder: SuiteFolder, suite: Suite) -> None:
    lost = suite.runs()[1]
    folder.run(lost).metrics_path.unlink()
    folder.run(lost).fail("RuntimeError: it broke", "…")
    page = page_of(suite, folder)
    assert "8 of 9; 1 failed" in page.text
    assert "as many train FLOPs as 4 single networks trained for 10 epochs" in page.text
    assert "The corruptions are generated & seeded." in page.text
    assert "RuntimeError: it broke" in page.text
    assert "sigma-bench run tiny --method deep_ensemble --seed 0" in page.text
    for one in DEFINITIONS.values():
        assert " ".join(one.text.split()) in page.text


def test_the_specification_is_the_suite(folder: SuiteFolder, suite: Suite) -> None:
    [text] = [data for tag, data in page_of(suite, folder).texts if tag == "pre"]
    assert Suite.model_validate(yaml.safe_load(text)) == suite


def test_environment_says_where_runs_differ(folder: SuiteFolder, suite: Suite) -> None:
    first, second, third, *_ = suite.runs()
    folder.run(first).start({**ENVIRONMENT, "device": "NVIDIA H100"})
    (folder.run(second).path / "environment.json").unlink()
    (folder.run(third).path / "environment.json").write_text("{")

    rows = dict(environment_rows(collect(suite, folder)))

    assert rows["packages.torch"] == [("2.5.0", 7)]
    assert rows["device"] == [("NVIDIA H100", 1), ("cpu", 6)]
    assert rows["environment"] == [("not recorded", 1), ("record damaged", 1)]


def test_the_same_results_give_the_same_bytes(
    folder: SuiteFolder, suite: Suite, tmp_path: Path
) -> None:
    first = write_report(collect(suite, folder), tmp_path / "a.html")
    second = write_report(collect(suite, folder), tmp_path / "b.html")
    assert first.read_bytes() == second.read_bytes()


def test_a_suite_without_results_has_a_report(tmp_path: Path, suite: Suite) -> None:
    page = page_of(suite, SuiteFolder(tmp_path, suite.name))
    assert "0 of 9; 9 not run" in page.text
    assert page.all("svg") == []


def test_inline_svg_prefixes_every_reference() -> None:
    svg = (
        b'<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="http://www.w3.org/2000/svg" '
        b'xmlns:xlink="http://www.w3.org/1999/xlink"><metadata>x</metadata><!-- y -->'
        b'<defs><clipPath id="c"/></defs>'
        b'<g id="a" clip-path="url(#c)"><use xlink:href="#a"/></g></svg>'
    )
    text = inline_svg(svg, "p", 'A "title"')
    assert "metadata" not in text
    assert "<!" not in text
    assert "<?" not in text
    for part in ('id="p-c"', 'id="p-a"', "url(#p-c)", 'xlink:href="#p-a"', "&quot;title&quot;"):
        assert part in text


@pytest.mark.parametrize("name", ["report.html.j2"])
def test_the_template_is_part_of_the_package(name: str) -> None:
    from importlib.resources import files

    assert (files("bench") / "templates" / name).is_file()
