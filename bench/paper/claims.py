"""What the paper states, and whether the results say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.paper import grids, judges
from bench.paper.collect import Paper
from bench.paper.estimates import LEAST_SEEDS
from bench.paper.findings import Finding
from bench.paper.judges import (
    ACCURACY_MARGIN,
    COLLAPSE,
    FLAT,
    NLL_MARGIN,
    PARAMETER_SHARE,
    Evidence,
    Judge,
)
from bench.paper.overall import (
    ENSEMBLE_PARAMETERS,
    OWN_PARAMETERS,
    ROUNDING,
    architectures,
    wide_parameters,
)

_POINTS = f"{100 * ACCURACY_MARGIN:g} point"
_NLL = f"{100 * NLL_MARGIN:g} %"


@dataclass(frozen=True)
class Claim:
    """A statement of the paper and how it is tested.

    Attributes:
        name: short, for tables.
        statement: what the paper says.
        table: where the figures stand.
        suites: that they are of.
        criterion: when it holds, in words.
        judge: the same as a function.
    """

    name: str
    statement: str
    table: str
    suites: tuple[str, ...]
    criterion: str
    judge: Judge


CLAIMS = (
    Claim(
        "accuracy",
        "σN-Ens is as accurate as a deep ensemble.",
        "T1 to T3",
        ("cifar10", "cifar100", "imagenet", "sst2"),
        f"Accuracy minus that of the deep ensemble: the interval is above −{_POINTS}.",
        judges.accuracy_level,
    ),
    Claim(
        "nll",
        "Its NLL is that of a deep ensemble.",
        "T1 to T3",
        ("cifar10", "cifar100", "imagenet", "sst2"),
        "NLL minus that of the deep ensemble, in percent of the latter: the interval is below "
        f"+{_NLL}.",
        judges.nll_level,
    ),
    Claim(
        "parameters",
        "It needs far fewer parameters than a deep ensemble.",
        "T1 to T3",
        ("cifar10", "cifar100", "imagenet", "sst2"),
        f"Parameters, same backbone and M: at most {100 * PARAMETER_SHARE:.1f} % of the deep "
        "ensemble's (a count, without an interval).",
        judges.parameters,
    ),
    Claim(
        "parameters, wide",
        "About 24 M parameters (WRN-28-8) against 146 M (four WRN-28-10) on CIFAR-100.",
        "T1",
        ("cifar100",),
        f"Counts within {100 * ROUNDING:g} % of {OWN_PARAMETERS / 1e6:g} M and "
        f"{ENSEMBLE_PARAMETERS / 1e6:g} M; of runs, or of the models built without training.",
        wide_parameters,
    ),
    Claim(
        "frontier",
        "The temperature τ traces a frontier of accuracy and calibration.",
        "F1",
        ("temperature",),
        "The largest τ of the grid minus the smallest: accuracy and ECE change in the same "
        "direction, so that one is paid with the other, and neither interval includes 0.",
        grids.frontier,
    ),
    Claim(
        "strength",
        "The strength λ hardly matters once trained to convergence.",
        "T7",
        ("strength",),
        f"Over all λ > 0 of the grid: best minus worst accuracy below {_POINTS}, worst minus "
        f"best NLL below {_NLL} of the best, each with its interval.",
        grids.strength,
    ),
    Claim(
        "members",
        "More members, up to M = 16, improve it or change nothing.",
        "T4",
        ("members",),
        "Accuracy with the largest M minus the best with a smaller one: the interval is above "
        f"−{_POINTS}.",
        grids.members,
    ),
    Claim(
        "members, packed",
        "Packed-Ensembles collapse with as many members.",
        "T4",
        ("members",),
        "Accuracy with the largest M minus the best with a smaller one: the interval is below "
        f"−{-100 * COLLAPSE:g} points.",
        grids.members_packed,
    ),
    Claim(
        "severity",
        "Its ECE stays nearly flat as corruption grows.",
        "T5",
        ("cifar10", "cifar100", "imagenet", "sst2"),
        f"Slope of ECE over severities: the interval is below {100 * FLAT:g} point a severity.",
        judges.severity,
    ),
    Claim(
        "detection",
        "It detects out-of-distribution samples less well than a deep ensemble.",
        "T6",
        ("pretrained", "cifar10", "cifar100", "imagenet"),
        "AUROC of the largest softmax probability, mean of near and far, minus that of the deep "
        "ensemble: the interval is below 0.",
        judges.detection,
    ),
    Claim(
        "detection, pretrained",
        "It does so most of all with pretrained backbones.",
        "T6",
        ("pretrained", "imagenet"),
        "The difference in AUROC with pretrained weights minus that from scratch: the interval is "
        "below 0.",
        judges.detection_pretrained,
    ),
    Claim(
        "fine-tune",
        "A pretrained model becomes a calibrated ensemble after a short fine-tune.",
        "T2, T3, suite pretrained",
        ("pretrained", "imagenet", "sst2"),
        "Against the single network with the same weights, fine-tuned too: the interval of the "
        f"difference in ECE is not above 0, that in accuracy is above −{_POINTS}.",
        judges.fine_tune,
    ),
    Claim(
        "architectures",
        "Convolutional networks and transformers alike.",
        "T1 to T3",
        ("cifar10", "cifar100", "imagenet", "sst2"),
        "The claims «accuracy» and «nll» hold on every network that is measured, and networks of "
        "both kinds are.",
        architectures,
    ),
)
"""Every claim, in the order of the table."""

NOTES = (
    "A claim holds where the whole 95 % interval meets its criterion; an interval that includes "
    "the bound does not show it. Intervals are Student's over seeds, variances pooled; where every "
    "run has its per-sample records, they are widened by a paired bootstrap over test samples. "
    f"Without {LEAST_SEEDS} seeds of each method nothing is measured.",
    "A verdict is one of its scale: small scales have less data, smaller networks and short "
    "training, and say nothing of the paper's own setting.",
)


@dataclass(frozen=True)
class Measured:
    """A claim with what was found, place by place."""

    claim: Claim
    findings: tuple[Finding, ...]


def measure(evidence: Evidence, claims: Sequence[Claim] = CLAIMS) -> list[Measured]:
    """Judge every claim; each has at least one finding."""
    return [
        Measured(
            claim,
            tuple(claim.judge(evidence, claim.suites)) or (_nowhere(evidence.paper, claim),),
        )
        for claim in claims
    ]


def _nowhere(paper: Paper, claim: Claim) -> Finding:
    """The finding of a claim for which no suite at hand has runs."""
    sources = paper.of(claim.suites)
    if not sources:
        reason = f"no scale {paper.scale} in {', '.join(claim.suites)}"
        command = f"sigma-bench run {claim.suites[0]} --data DIR"
        return Finding("", None, "not measured", "", reason, command)
    reason = f"no such runs in {', '.join(source.title for source in sources)}"
    command = f"sigma-bench run {sources[0].name} --scale paper --data DIR"
    return Finding("", None, "not measured", "", reason, command)
