"""The paper's tables T1 to T8: which suites, rows and columns stand in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.backbones import architecture
from bench.paper.collect import Paper, Source
from bench.paper.decomposition import PARTS, OutlierRecords
from bench.paper.sections import (
    Layout,
    Row,
    Section,
    group_section,
    plain_label,
    task_sections,
)
from bench.tables.collection import Group, MethodRuns
from bench.tables.columns import PARAMETERS, TRAIN_FLOPS, cost_column, metric
from bench.tables.contents import severity_table
from bench.tables.scores import GAP, Column

DEVICE_HOURS = cost_column("device_seconds", "Device time", unit="h", scale=1 / 3600, digits=3)
_SCORES = tuple(metric(("test", name)) for name in ("accuracy", "nll", "ece", "calibrated_nll"))
_COST = (PARAMETERS, TRAIN_FLOPS, DEVICE_HOURS)


def _detection(distances: Sequence[str], names: Sequence[str]) -> tuple[Column, ...]:
    return tuple(
        metric(("ood", distance, "max_softmax", name), f"{_TITLES[name]} {distance}")
        for name in names
        for distance in distances
    )


_TITLES = {"auroc": "AUROC", "aupr_out": "AUPR", "fpr95": "FPR95"}
_DETECTION = _detection(("near", "far"), tuple(_TITLES))
_OOD_NOTE = (
    "AUROC, AUPR and FPR95: detection of out-of-distribution samples, the positive class, by the "
    "largest softmax probability; mean over the near and over the far sources."
)

CIFAR = Layout(
    "t1-cifar",
    "T1 CIFAR",
    ("cifar10", "cifar100"),
    columns=(*_SCORES, *_DETECTION, *_COST),
    notes=(_OOD_NOTE,),
)
_SHIFTED = (
    metric(("shift", "mean", "accuracy"), "Shifted accuracy"),
    metric(("shift", "mean", "ece"), "Shifted ECE"),
)
IMAGENET = Layout(
    "t2-imagenet",
    "T2 ImageNet",
    ("imagenet",),
    columns=(*_SCORES, *_SHIFTED, *_DETECTION, *_COST),
    notes=(_OOD_NOTE, "Shifted: mean over all corruptions and severities."),
)
SST2 = Layout(
    "t3-sst2",
    "T3 SST-2",
    ("sst2",),
    columns=(*_SCORES, *_SHIFTED, *_DETECTION, *_COST),
    notes=(_OOD_NOTE, "Shifted: mean over all kinds of typing errors and severities."),
)
MEMBERS = Layout(
    "t4-members",
    "T4 Members",
    ("members",),
    columns=(*_SCORES, *_detection(("near", "far"), ("auroc",)), *_COST),
    notes=(_OOD_NOTE, "Best and second: among the M of one method."),
)
SEVERITY = Layout("t5-severity", "T5 Severity", ("cifar10", "cifar100", "imagenet", "sst2"))
OOD = Layout(
    "t6-ood",
    "T6 Out-of-distribution detection",
    ("pretrained", "cifar10", "cifar100", "imagenet"),
    labels=("Backbone", "Weights", "Method", "M"),
    columns=(
        *_DETECTION,
        metric(("ood", "near", "mutual_information", "auroc"), "AUROC near, by MI"),
        metric(("ood", "far", "mutual_information", "auroc"), "AUROC far, by MI"),
    ),
    notes=(_OOD_NOTE, "By MI: by the members' mutual information instead."),
)
STRENGTH = Layout(
    "t7-strength",
    "T7 Strength λ of the diversity term",
    ("strength",),
    labels=("Backbone", "Method", "M", "λ"),
    columns=(
        *_SCORES,
        metric(("test", "mutual_information")),
        metric(("test", "disagreement")),
        *_detection(("near", "far"), ("auroc",)),
    ),
    notes=(_OOD_NOTE,),
)
UNCERTAINTY = Layout(
    "t8-uncertainty",
    "T8 Uncertainty decomposition",
    ("cifar10", "cifar100"),
    columns=(
        *(
            metric((place, name), f"{title}, {words}", name)
            for place, words in (("test", "test"), ("near", "near OOD"), ("far", "far OOD"))
            for name, title in PARTS.items()
        ),
        metric(("test", "error_auroc")),
        metric(("ood", "near", "mutual_information", "auroc"), "AUROC near, by MI"),
        metric(("ood", "far", "mutual_information", "auroc"), "AUROC far, by MI"),
    ),
    notes=(
        "Total is the entropy of the mean prediction, aleatoric the mean entropy of the members, "
        "modulation their difference, the mutual information (MI) of prediction and member; means "
        "over samples.",
    ),
)


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        layout: name, title and columns.
        sections: one for each suite and task that feeds it.
    """

    layout: Layout
    sections: tuple[Section, ...]


def paper_tables(paper: Paper) -> list[PaperTable]:
    """T1 to T8, in order; a suite without results has its rows, and no numbers."""
    return [
        PaperTable(
            layout, tuple(part for source in paper.of(layout.suites) for part in build(source))
        )
        for layout, build in BUILDERS
    ]


def _comparison(layout: Layout) -> Callable[[Source], list[Section]]:
    """All methods, a block a backbone."""
    return lambda source: task_sections(source, layout, _by_backbone)


def _by_backbone(groups: Sequence[Group]) -> list[list[Row]]:
    return [
        [
            Row((group.backbone, method.label, str(method.members)), method)
            for method in group.methods
        ]
        for group in groups
    ]


def _members(source: Source) -> list[Section]:
    """Every method over M, a block a method."""

    def blocks(groups: Sequence[Group]) -> list[list[Row]]:
        found: dict[tuple[str, str], list[MethodRuns]] = {}
        for group in groups:
            for method in group.methods:
                key = (group.backbone, plain_label(method.label))
                found.setdefault(key, []).append(method)
        return [
            [
                Row((backbone, label, str(method.members)), method)
                for method in sorted(methods, key=lambda one: one.members)
            ]
            for (backbone, label), methods in found.items()
        ]

    return task_sections(source, MEMBERS, blocks)


def _severity(source: Source) -> list[Section]:
    return [
        group_section(source, SEVERITY, group, severity_table(group)) for group in source.groups
    ]


def _ood(source: Source) -> list[Section]:
    """All methods, a block for each backbone and each of its weights."""

    def blocks(groups: Sequence[Group]) -> list[list[Row]]:
        return [
            [
                Row((*_backbone_and_weights(group), method.label, str(method.members)), method)
                for method in group.methods
            ]
            for group in groups
        ]

    return task_sections(source, OOD, blocks)


def _backbone_and_weights(group: Group) -> tuple[str, str]:
    """The architecture, and where its weights come from."""
    return architecture(group.backbone), group.backbone.partition("@")[2] or "scratch"


def _strength(source: Source) -> list[Section]:
    """σN-Ens by λ, with what the suite sets beside it."""

    def blocks(groups: Sequence[Group]) -> list[list[Row]]:
        return [
            [
                Row(
                    (
                        group.backbone,
                        plain_label(method.label),
                        str(method.members),
                        _lambda(method),
                    ),
                    method,
                )
                for method in group.methods
            ]
            for group in groups
        ]

    return task_sections(source, STRENGTH, blocks)


def _lambda(method: MethodRuns) -> str:
    found = method.entries[0].spec.parameters.get("strength")
    return GAP if found is None else f"{found:g}"


def _uncertainty(source: Source) -> list[Section]:
    records = OutlierRecords()
    return task_sections(source, UNCERTAINTY, _by_backbone, records.value, records.notes)


BUILDERS: tuple[tuple[Layout, Callable[[Source], list[Section]]], ...] = (
    (CIFAR, _comparison(CIFAR)),
    (IMAGENET, _comparison(IMAGENET)),
    (SST2, _comparison(SST2)),
    (MEMBERS, _members),
    (SEVERITY, _severity),
    (OOD, _ood),
    (STRENGTH, _strength),
    (UNCERTAINTY, _uncertainty),
)
"""Every table, in the paper's order."""
