"""The page of the paper: claims, tables and figures in one file that needs nothing else."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import paper_results
import pytest
from paper_figure_results import paper_of, store
from test_report import Page

from bench.cli.writing import report
from bench.metrics.definitions import DEFINITIONS
from bench.paper.figures import paper_figures
from bench.paper.page import write_paper_page
from bench.paper.writing import PaperTables, paper_tables


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Page, Path]:
    monkeypatch.setattr("bench.suite.check_backbone_name", lambda name: None)
    store(tmp_path, "members", only=lambda spec: spec.seed == 0)
    paper = paper_of(tmp_path)
    path = write_paper_page(paper, PaperTables(tuple(paper_tables(paper)), ()))
    assert path == tmp_path / "paper" / "report.html"
    return Page(path.read_text(encoding="utf-8")), tmp_path


def test_has_every_table_figure_and_gap(page: tuple[Page, Path]) -> None:
    shown, results = page
    paper = paper_of(results)
    for table in paper_tables(paper):
        assert table.layout.title in shown.text
        for section in table.sections:
            for row in section.presented.rows:
                for cell in row:
                    assert " ".join(cell.text.split()) in shown.text
    figures = paper_figures(paper)
    assert len(shown.all("svg")) == len(figures.drawings) == 1
    assert figures.drawings[0].caption in shown.text
    for one in figures.absent:
        assert one.name in shown.text
        assert f"{one.reason}" in shown.text
        assert one.command in shown.text
    assert all(" ".join(one.text.split()) in shown.text for one in DEFINITIONS.values())
    assert "10 of 20 runs done" in shown.text


def test_needs_nothing_from_outside_and_every_link_has_its_target(
    page: tuple[Page, Path],
) -> None:
    shown, _ = page
    ids = Counter(a["id"] for _, a in shown.elements if "id" in a)
    assert [name for name, times in ids.items() if times > 1] == []
    for tag, attributes in shown.elements:
        assert tag not in ("link", "img", "image", "iframe")
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href"):
                assert str(value).startswith("#"), value
                assert str(value)[1:] in ids, value
            for target in re.findall(r"url\(#([^)]+)\)", value or ""):
                assert target in ids
    [policy] = [m for m in shown.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in str(policy["content"])
    assert len(shown.all("button")) == len(shown.all("th")) > 50


def test_report_paper_writes_figures_and_the_page_and_names_what_is_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paper_results.ship(monkeypatch, tmp_path / "suites")
    monkeypatch.setattr("bench.paper.writing.count_parameters", None)
    paper_results.store(tmp_path / "results", "members")

    report("paper", results=tmp_path / "results")

    printed = " ".join(capsys.readouterr().out.split())
    folder = tmp_path / "results" / "paper"
    assert {path.name for path in (folder / "figures").iterdir()} == {
        *("F3-members.svg", "F3-members.pdf"),
        "figures.md",
    }
    assert (folder / "report.html").is_file()
    assert "F1-frontier is not drawn: no run of temperature at scale paper is done" in printed
    assert "sigma-bench run temperature --scale paper" in printed
