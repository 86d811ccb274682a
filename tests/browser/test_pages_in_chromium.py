"""The report and the paper's page in a real browser, opened from disk, without network.

Playwright drives the Chromium of the system: it is well kept, speaks DevTools itself, and needs
neither a driver beside the browser nor a browser of its own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

NARROW = 400
SHEET = 980
"""Pixels between margins of 1 cm of a US Letter on its side, 96 an inch; A4 has 1047."""

COLOURS = """
selector => {
  const element = document.querySelector(selector);
  let ground = element;
  const opaque = one => !/^rgba\\(.*, 0\\)$/.test(getComputedStyle(one).backgroundColor);
  while (!opaque(ground)) ground = ground.parentElement;
  return [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor];
}
"""
Shown = Callable[..., Any]


def texts(table: Any, heading: str) -> list[str]:
    """What stands in a column, top to bottom."""
    index = [name.strip() for name in table.locator("thead th").all_inner_texts()].index(heading)
    cells = table.locator(f"tbody tr td:nth-child({index + 1})").all_inner_texts()
    return [text.strip() for text in cells]


def numbers(found: list[str]) -> list[float]:
    return [float(text.split()[0].replace("−", "-")) for text in found]


def unfold(page: Any) -> None:
    page.evaluate("() => document.querySelectorAll('details').forEach(one => one.open = true)")


def sort(table: Any, heading: str) -> None:
    name = re.compile(f"^{re.escape(heading)}$")
    table.locator("thead").get_by_role("button", name=name).click()


def luminance(colour: str) -> float:
    """Relative luminance of ``rgb(r, g, b)``, as WCAG 2 defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def colours(picture: bytes) -> int:
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    return len(image.getcolors(maxcolors=image.width * image.height) or [])


def test_what_a_page_must_not_do_is_noticed(show: Shown, tmp_path: Path) -> None:
    """Else the tests below could not fail."""
    path = tmp_path / "bad.html"
    path.write_text(
        "<script>console.error('said'); alert('hello'); fetch('http://127.0.0.1:9/data')</script>"
        "<script>throw new Error('thrown')</script><img src='https://example.org/x.png'>"
    )
    opened = show(path)
    opened.page.wait_for_load_state()
    complaints = "\n".join(opened.complaints)
    for word in ("said", "dialog: hello", "thrown", "ERR_"):
        assert word in complaints
    assert sorted(opened.requests) == ["http://127.0.0.1:9/data", "https://example.org/x.png"]


def test_opens_sorts_and_unfolds_without_a_complaint_or_a_request(
    show: Shown, any_page: Path
) -> None:
    opened = show(any_page)
    page = opened.page
    assert page.locator("h1").is_visible()
    unfold(page)
    for table in page.locator("table.sortable").all():
        table.locator("thead button").last.click()
    page.emulate_media(media="print")
    assert opened.complaints == []
    assert opened.requests == []


def test_words_of_an_error_stay_words(show: Shown, report: Path) -> None:
    opened = show(report)
    gaps = opened.page.locator("#gaps")
    assert "<img src=x onerror=alert(1)> & <script>" in gaps.inner_text()
    assert gaps.locator("img, script").count() == 0
    assert opened.complaints == []


def test_a_column_of_numbers_is_sorted_by_value(show: Shown, report: Path) -> None:
    page = show(report).page
    unfold(page)
    runs = page.locator("#runs table")
    before = texts(runs, "Seed")
    sort(runs, "Seed")
    assert numbers(texts(runs, "Seed")) == [2, 2, 2, 9, 9, 9, 10, 10, 10]
    assert texts(runs, "Seed") != sorted(texts(runs, "Seed")) != before
    sort(runs, "Seed")
    assert numbers(texts(runs, "Seed")) == [10, 10, 10, 9, 9, 9, 2, 2, 2]
    sort(runs, "Seed")
    assert texts(runs, "Seed") == before


def test_scores_are_sorted_and_gaps_stay_at_the_end(show: Shown, report: Path) -> None:
    page = show(report).page
    unfold(page)
    runs = page.locator("#runs table")
    heading = "Accuracy (%) ↑"
    for descending in (False, True):
        sort(runs, heading)
        found = texts(runs, heading)
        assert found[-2:] == ["–", "–"]
        values = numbers(found[:-2])
        assert values == sorted(values, reverse=descending)
        assert values[0] != values[-1]
    state = runs.locator("thead th[aria-sort]")
    assert state.get_attribute("aria-sort") == "descending"


def test_a_whole_row_moves_with_its_score(show: Shown, report: Path) -> None:
    page = show(report).page
    main = page.locator("main table").first
    before = main.locator("tbody tr").all_inner_texts()
    button = main.locator("thead button").nth(2)
    button.focus()
    page.keyboard.press("Enter")
    once = main.locator("tbody tr").all_inner_texts()
    page.keyboard.press("Enter")
    assert once == list(reversed(main.locator("tbody tr").all_inner_texts()))
    assert sorted(once) == sorted(before)


def test_links_lead_to_their_sections(show: Shown, any_page: Path) -> None:
    page = show(any_page).page
    links = page.locator("nav a")
    assert links.count() >= 5
    for link in links.all():
        link.click()
        target = page.locator(link.get_attribute("href"))
        assert target.locator("h2").first.inner_text() == link.inner_text()
        assert page.url.endswith(link.get_attribute("href"))
        box = target.bounding_box()
        bottom = page.evaluate("() => scrollY + innerHeight >= document.body.scrollHeight - 1")
        assert -1 <= box["y"] < 100 or bottom
        assert box["height"] > 20


def test_every_figure_is_drawn(show: Shown, any_page: Path) -> None:
    page = show(any_page).page
    figures = page.locator("figure")
    assert figures.count() >= 3
    for figure in figures.all():
        figure.scroll_into_view_if_needed()
        drawing = figure.locator("svg")
        box = drawing.bounding_box()
        # Three in a row, or alone: none is squeezed.
        assert box["width"] > 350
        assert box["height"] > 100
        assert colours(drawing.screenshot()) > 20
        assert figure.locator("figcaption b").inner_text()


def test_headings_of_a_table_stand_above_their_columns(show: Shown, any_page: Path) -> None:
    page = show(any_page).page
    unfold(page)
    for table in page.locator("table.sortable").all():
        heads = table.locator("thead th").evaluate_all("all => all.map(h => h.offsetWidth)")
        cells = table.locator("tbody tr").first.locator("td")
        assert heads == cells.evaluate_all("all => all.map(c => c.offsetWidth)")


@pytest.mark.parametrize("width", [NARROW, 320, 1280])
def test_only_tables_scroll_sideways(show: Shown, any_page: Path, width: int) -> None:
    page = show(any_page, width=width).page
    unfold(page)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert page.evaluate("() => document.querySelector('h1').getBoundingClientRect().x") >= 0
    scrolls = page.locator(".scroll").evaluate_all(
        "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
    )
    assert scrolls > 0 or width == 1280


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("media", ["screen", "print"])
def test_words_stand_out_from_their_ground(
    show: Shown, any_page: Path, scheme: str, media: str
) -> None:
    page = show(any_page, color_scheme=scheme).page
    page.emulate_media(media=media, color_scheme=scheme)
    unfold(page)
    ground = page.evaluate(COLOURS, "body")[1]
    assert (luminance(ground) < 0.05) == (scheme == "dark" and media == "screen")
    for selector in ("body", "a", "dt", ".bad", ".notes", "tbody tr:nth-child(2) td", "figcaption"):
        ink, paper = page.evaluate(COLOURS, selector)
        assert contrast(ink, paper) >= 4.5, (selector, ink, paper)


def test_paper_takes_everything(show: Shown, any_page: Path, screenshots: Path) -> None:
    opened = show(any_page, width=SHEET)
    page = opened.page
    folds = page.locator("details")
    printed = page.pdf(prefer_css_page_size=True)
    (screenshots / f"{any_page.parent.name}.pdf").write_bytes(printed)
    assert printed.startswith(b"%PDF")
    sheets = re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", printed)
    assert len(sheets) > 1
    assert all(float(across) > float(down) for across, down in sheets)
    assert folds.evaluate_all("all => all.every(one => one.open)")
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= SHEET
    page.screenshot(path=screenshots / f"{any_page.parent.name}-print.png", full_page=True)
    assert opened.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (NARROW, "light")])
def test_pictures_of_the_pages(
    show: Shown, any_page: Path, screenshots: Path, width: int, scheme: str
) -> None:
    """Fonts differ between machines, so a picture is kept to be looked at, and not compared."""
    page = show(any_page, width=width, color_scheme=scheme).page
    picture = page.screenshot(full_page=True)
    name = any_page.parent.name
    (screenshots / f"{name}-{width}-{scheme}.png").write_bytes(picture)
    image = Image.open(io.BytesIO(picture))
    assert image.width == width
    assert image.height > 1500
    top = image.crop((0, 0, width, 900))
    assert colours(picture) > 50
    assert len(top.convert("RGB").getcolors(maxcolors=width * 900) or []) > 50
