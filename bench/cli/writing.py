"""``sigma-bench tables`` and ``report``: everything that follows from stored results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.cli.options import (
    DEFAULT_RESULTS,
    Plugins,
    Request,
    Results,
    Settings,
    SuiteName,
    request,
)

if TYPE_CHECKING:
    from rich.console import Console


def tables(
    suite: SuiteName,
    settings: Settings = None,
    results: Results = DEFAULT_RESULTS,
    plugins: Plugins = None,
) -> None:
    """Write every table again from stored results and print the main one; nothing is trained.

    Example: sigma-bench tables digits
    """
