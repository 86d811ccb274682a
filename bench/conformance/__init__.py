"""Checks that any method must pass before its numbers mean something.

They ask the method's own model, built as the harness builds it, about random images.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bench.conformance.checks import CHECKS
from bench.conformance.measures import Wrong
from bench.conformance.specimen import BACKBONE, Specimen
from bench.method import Method

__all__ = ["CheckResult", "check_method"]


@dataclass(frozen=True)
class CheckResult:
    """What a check found.

    Attributes:
        name: of the check.
        passed: None if it could not be tried, because a check that it builds on failed.
        detail: what was measured, or what is wrong and what would be right.
    """

    name: str
    passed: bool | None
    detail: str


def check_method(
    cls: type[Method], parameters: Mapping[str, Any] | None = None, backbone: str = BACKBONE
) -> list[CheckResult]:
    """Try a method on a small network with random images.

    Args:
        cls: the method.
        parameters: its hyper-parameters, where they are not the defaults.
        backbone: the name of the network that the method gets.

    Returns:
        one result a check, in the order of `bench.conformance.checks.CHECKS`. The method passes if
        every result has.

    Raises:
        UserError: the parameters are not the method's, or there is no such backbone.
    """
    specimen = Specimen.of(cls, parameters or {}, backbone)
    results: list[CheckResult] = []
    failed: set[str] = set()
    with torch.random.fork_rng(devices=[]):
        for check in CHECKS:
            missing = [name for name in check.needs if name in failed]
            if missing:
                result = CheckResult(check.name, None, f"not tried: needs {missing[0]!r}")
            else:
                result = _tried(check.name, check.look, specimen)
            if not result.passed:
                failed.add(check.name)
            results.append(result)
    return results


def _tried(name: str, look: Any, specimen: Specimen) -> CheckResult:
    try:
        return CheckResult(name, True, look(specimen))
    except Wrong as wrong:
        return CheckResult(name, False, str(wrong))
    except Exception as error:
        line = " ".join(str(error).split())
        place = _place(error, type(specimen.method))
        return CheckResult(name, False, f"{type(error).__name__}: {line}{place}")


def _place(error: Exception, cls: type[Method]) -> str:
    """Where in the method's own file an error came up, if it did."""
    try:
        source = inspect.getsourcefile(cls)
    except TypeError:
        return ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == source]
    return f" ({frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
