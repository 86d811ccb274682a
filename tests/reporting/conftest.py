"""A suite whose runs are all done, fresh for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from synthetic_suite import fill, make_suite

from bench.store import SuiteFolder
from bench.suite import Suite


@pytest.fixture(scope="session")
def suite() -> Suite:
    return make_suite()


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory, suite: Suite) -> Path:
    results = tmp_path_factory.mktemp("finished")
    fill(SuiteFolder(results, suite.name), suite)
    return results


@pytest.fixture
def folder(_finished: Path, tmp_path: Path, suite: Suite) -> SuiteFolder:
    """A folder of its own in which every run of `suite` is done."""
    shutil.copytree(_finished, tmp_path / "results")
    return SuiteFolder(tmp_path / "results", suite.name)
