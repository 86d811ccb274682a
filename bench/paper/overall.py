"""Claims about the whole: parameters of the Wide ResNets, and networks of both kinds alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bench.paper.estimates import Estimate, values
from bench.paper.findings import FULL_SCALE, Finding, Test, Verdict, scales_of_source
from bench.paper.judges import (
    ENSEMBLE,
    OWN,
    PARAMETER_SHARE,
    Evidence,
    accuracy_level,
    find,
    nll_level,
)
from bench.suite import RunSpec
from bench.suite_files import load_suite, scales_of

OWN_BACKBONE, ENSEMBLE_BACKBONE = "wrn28_8", "wrn28_10"
OWN_PARAMETERS, ENSEMBLE_PARAMETERS = 24e6, 146e6
"""What the paper states, rounded to a million."""
ROUNDING = 0.05
"""A count within this share of the stated one is the stated one."""
CLASSES = {"cifar10": 10, "cifar100": 100}
"""Classes of the suites whose networks may be counted without their data."""

TRANSFORMERS = re.compile(r"^hf:|vit|deit|swin|bert", re.IGNORECASE)
"""Backbones whose name this finds are transformers, all others convolutional."""


def count_parameters(spec: RunSpec, num_classes: int) -> int:
    """Parameters of all networks of a run, by building its model for 32×32 colour images.

    Args:
        spec: the run; its backbone needs no file.
        num_classes: K.

    Returns:
        the number of trainable parameters, as ``cost.parameters`` of a run that is done.
    """
    import torch

    from bench.backbones import create_backbone
    from bench.registry import method_class

    method = method_class(spec.method)(**spec.parameters)
    with torch.random.fork_rng(devices=[]):
        network = create_backbone(spec.backbone, num_classes, (3, 32, 32))
        model = method.build(network, num_classes)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return parameters * (method.members if method.independent else 1)


def wide_parameters(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """Parameters of σN-Ens on the narrower Wide ResNet and of the deep ensemble on the wider one.

    From runs, if both are done; else from the models that the suite would train, built here.
    """
    where = f"{OWN} on {OWN_BACKBONE}, {ENSEMBLE} on {ENSEMBLE_BACKBONE}"
    (name,) = suites
    if name not in evidence.paper.sources:
        return []
    source = evidence.paper.sources[name]
    counts = [
        _of_runs(evidence, name, OWN_BACKBONE, OWN),
        _of_runs(evidence, name, ENSEMBLE_BACKBONE, ENSEMBLE),
    ]
    scales = scales_of_source(source)
    if None in counts:
        where, scales = f"{where}, built for {CLASSES[name]} classes", ()
        counts = [
            _built(evidence, name, OWN_BACKBONE, OWN),
            _built(evidence, name, ENSEMBLE_BACKBONE, ENSEMBLE),
        ]
    own, ensemble = counts
    if own is None or ensemble is None:
        reason = f"{name} has no such runs"
        return [Finding(where, source, "not measured", "", reason, source.command, (), scales)]
    tests = (
        _count("σN-Ens", own, OWN_PARAMETERS),
        _count("deep ensemble", ensemble, ENSEMBLE_PARAMETERS),
        Test(
            "share",
            _exact(own / ensemble),
            most=PARAMETER_SHARE,
            unit="%",
            scale=100.0,
            digits=1,
            signed=False,
        ),
    )
    failed = "; ".join(test.shortcoming for test in tests if not test.passed)
    measured = "; ".join(test.words for test in tests)
    verdict: Verdict = "does not hold" if failed else "holds"
    return [Finding(where, source, verdict, measured, failed, "", tests, scales)]


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value, (), "count")


def _count(name: str, found: float, stated: float) -> Test:
    return Test(
        name,
        _exact(found),
        stated * (1 - ROUNDING),
        stated * (1 + ROUNDING),
        "M",
        1e-6,
        digits=1,
        signed=False,
    )


def _of_runs(evidence: Evidence, suite: str, backbone: str, method: str) -> float | None:
    """What runs of a suite counted."""
    for group in evidence.paper.sources[suite].groups:
        runs = find(group, method) if group.backbone == backbone else None
        if runs is not None and (found := values(runs, ("cost", "parameters"))):
            return found[0]
    return None


def _built(evidence: Evidence, suite: str, backbone: str, method: str) -> float | None:
    """What the model of the suite in full has, or None if it has no such run."""
    if evidence.count is None:
        return None
    scale = FULL_SCALE if FULL_SCALE in scales_of(suite) else None
    for spec in load_suite(suite, (), scale).runs():
        if spec.backbone == backbone and spec.method == method:
            return float(evidence.count(spec, CLASSES[suite]))
    return None


def architectures(evidence: Evidence, suites: Sequence[str]) -> list[Finding]:
    """Whether accuracy and NLL hold on every convolutional network and transformer measured."""
    found = [
        finding
        for judge in (accuracy_level, nll_level)
        for finding in judge(evidence, suites)
        if finding.verdict != "not measured"
    ]
    kinds = {
        "convolutional": [f for f in found if not TRANSFORMERS.search(f.backbone)],
        "transformer": [f for f in found if TRANSFORMERS.search(f.backbone)],
    }
    measured = "; ".join(_kind_words(kind, findings) for kind, findings in kinds.items())
    scales = tuple(f.source.scale for f in found if f.source and f.source.scale)
    where = "every network measured"
    lacking = [kind for kind, findings in kinds.items() if not findings]
    if lacking:
        reason = f"no {' and no '.join(lacking)} network is measured"
        command = _command(evidence, suites, lacking)
        return [Finding(where, None, "not measured", measured, reason, command, (), scales)]
    failed = sum(finding.verdict != "holds" for finding in found)
    reason = f"accuracy or NLL does not hold in {failed} of {len(found)} cases" if failed else ""
    verdict: Verdict = "does not hold" if failed else "holds"
    return [Finding(where, None, verdict, measured, reason, "", (), scales)]


def _kind_words(kind: str, findings: Sequence[Finding]) -> str:
    backbones = list(dict.fromkeys(finding.backbone for finding in findings))
    holds = sum(finding.verdict == "holds" for finding in findings)
    which = f" ({', '.join(backbones)})" if backbones else ""
    return f"{kind}: {holds} of {len(findings)} cases hold{which}"


def _command(evidence: Evidence, suites: Sequence[str], lacking: Sequence[str]) -> str:
    """The first suite that has a network of a kind that lacks."""
    for source in evidence.paper.of(suites):
        for group in source.groups:
            kind = "transformer" if TRANSFORMERS.search(group.backbone) else "convolutional"
            if kind in lacking:
                return source.command
    return ""
