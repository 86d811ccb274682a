"""A real Chromium, and the two pages that the command line writes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# The results that the tests of tables and pages are made of.
sys.path.append(str(Path(__file__).parents[1] / "reporting"))

ASKED = "SIGMA_BENCH_BROWSER"
FOLDER = "SIGMA_BENCH_SCREENSHOTS"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
EVIL = "<img src=x onerror=alert(1)> & <script>alert('x')</script>"


@dataclass
class Opened:
    """A page in the browser, and what it did that a page from disk must not do.

    Attributes:
        page: Playwright's page.
        complaints: errors of its console and of its scripts, and dialogs that it opened.
        requests: addresses that it asked for, but for files of the disk.
    """

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Note everything from now on."""

        def console(message: Any) -> None:
            if message.type in ("error", "warning"):
                self.complaints.append(message.text)

        def dialog(opened: Any) -> None:
            self.complaints.append(f"dialog: {opened.message}")
            opened.dismiss()

        def request(asked: Any) -> None:
            if not asked.url.startswith("file://"):
                self.requests.append(asked.url)

        self.page.on("console", console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", dialog)
        self.page.on("request", request)


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A Chromium of the system; skips with the reason where there is none."""
    asked = os.environ.get(ASKED)
    if asked is None:
        pytest.skip(f"needs a browser: `tox -e browser`, or {ASKED}=1 (or the path of a Chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    named = asked if os.sep in asked else next(filter(None, map(shutil.which, NAMES)), None)
    if named is None:
        pytest.skip(f"no Chromium here: none of {', '.join(NAMES)} is on the PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=named, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def show(chromium: Any) -> Iterator[Open]:
    """Opens a file without network: ``show(path, width=…, color_scheme=…)``."""
    contexts = []

    def opened(path: Path, width: int = 1280, height: int = 900, **options: Any) -> Opened:
        viewport = {"width": width, "height": height}
        context = chromium.new_context(viewport=viewport, offline=True, **options)
        # A busy machine may need its time for a page, but not for ever.
        context.set_default_timeout(60_000)
        contexts.append(context)
        found = Opened(context.new_page())
        found.watch()
        found.page.goto(path.as_uri())
        return found

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures of the pages are kept for a person to look at."""
    given = os.environ.get(FOLDER)
    folder = Path(given) if given else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def report(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``report.html`` of a suite with a run that failed, and one that never began.

    The seeds are 2, 9 and 10, which are in another order as words.
    """
    from synthetic_suite import finish, make_suite

    from bench.report import write_report
    from bench.store import SuiteFolder
    from bench.tables import collect

    suite = make_suite(seeds=[2, 9, 10], description="Three methods & one that failed")
    folder = SuiteFolder(tmp_path_factory.mktemp("results"), suite.name)
    failed, _, *others = reversed(suite.runs())
    for spec in others:
        finish(folder, spec)
    folder.run(failed).start({})
    folder.run(failed).fail(f"RuntimeError: {EVIL}", "")
    return write_report(collect(suite, folder))


@pytest.fixture(scope="session")
def paper_page(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``report.html`` of the paper: claims and tables of one set of results, figures of another."""
    import paper_figure_results
    import paper_results

    from bench.paper.collect import collect_paper
    from bench.paper.figures import paper_figures
    from bench.paper.page import write_paper_page
    from bench.paper.writing import build_paper

    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        paper_results.ship(patch, folder / "suites")
        patch.setattr("bench.paper.writing.count_parameters", lambda spec, classes: 24_000_000)
        for name in ("cifar10", "members", "temperature"):
            paper_results.store(folder, name)
        for name in paper_figure_results.SUITES:
            paper_figure_results.store(folder / "drawn", name)
        drawn = paper_figures(paper_figure_results.paper_of(folder / "drawn"))
        paper = collect_paper(folder, None)
        return write_paper_page(paper, build_paper(paper), drawn)


@pytest.fixture(params=["report", "paper_page"])
def any_page(request: pytest.FixtureRequest) -> Path:
    """Each of the two pages in turn."""
    path: Path = request.getfixturevalue(request.param)
    return path
