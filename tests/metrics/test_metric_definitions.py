"""The table of definitions and the page that is written from it."""

from pathlib import Path

import pytest

from bench.metrics.definitions import COLUMNS, DEFINITIONS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ARROWS = {"higher": "↑", "lower": "↓", None: ""}


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("key", DEFINITIONS)
def test_every_metric_is_documented(page, key):
    found = DEFINITIONS[key]
    text = found.text.replace("|", r"\|")
    row = f"| `{key}` | {found.title} | {ARROWS[found.direction]} | {found.unit} | {text} |"
    assert row in page.splitlines()


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_is_documented(page, name):
    assert f"| `{name}` | {COLUMNS[name]} |" in page.splitlines()


def test_no_row_of_the_page_is_about_nothing(page):
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == len(DEFINITIONS) + len(COLUMNS)


def test_titles_are_unique():
    titles = [found.title for found in DEFINITIONS.values()]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("accuracy", 0.87654, "87.65"),
        ("nll", 0.54321, "0.543"),
        ("samples", 10000, "10000"),
        ("ece", 0.0123, "1.23"),
        ("ece_slope", -0.0312, "-3.12"),
        ("temperature", 1.234, "1.23"),
    ],
)
def test_shown_values(key, value, shown):
    assert DEFINITIONS[key].show(value) == shown


def test_every_format_shows_a_number():
    for found in DEFINITIONS.values():
        assert float(found.show(1)) == found.scale


def test_lines_are_one_line():
    for text in [*COLUMNS.values(), *(found.text for found in DEFINITIONS.values())]:
        assert "\n" not in text
        assert len(text) <= 140
