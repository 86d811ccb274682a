"""Tables as tidy CSV in full precision, in the units of `metrics.json`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from bench.tables.collection import Collection
from bench.tables.differences import Difference
from bench.tables.gaps import fill_command, gaps, state_words
from bench.tables.layout import ScoreTable
from bench.tables.scores import flatten

SCORE_COLUMNS = (
    "task",
    "backbone",
    "method",
    "members",
    "metric",
    "status",
    "mean",
    "std",
    "n",
    "seeds",
)


def scores_csv(tables: Sequence[ScoreTable]) -> str:
    """One row per method and metric: status, mean, std (``ddof = 1``), seeds done and asked."""
    rows = [row for table in tables for row in _score_rows(table)]
    return _text(rows, SCORE_COLUMNS)


def _score_rows(table: ScoreTable) -> Iterable[dict[str, Any]]:
    method, members = table.labels.index("Method"), table.labels.index("M")
    for block in table.blocks:
        for line in block.lines:
            for column, score in zip(block.columns, line.scores, strict=True):
                yield {
                    "task": table.task,
                    "backbone": table.backbone,
                    "method": line.labels[method],
                    "members": line.labels[members],
                    "metric": column.name,
                    "status": score.status,
                    "mean": score.text or score.mean,
                    "std": score.std,
                    "n": score.n,
                    "seeds": score.seeds,
                }


def differences_csv(found: Iterable[tuple[str, str, Difference]]) -> str:
    """One row per method and metric: the difference and its 95 % interval."""
    names = (
        *("task", "backbone", "method", "reference", "metric", "difference", "low", "high"),
        *("samples", "seeds", "reference_seeds"),
    )
    rows = [
        dict(
            zip(
                names,
                (
                    *(task, backbone, one.method.label, one.reference.label, metric),
                    *(interval.value, interval.low, interval.high, one.samples, *one.seeds),
                ),
                strict=True,
            )
        )
        for task, backbone, one in found
        for metric, interval in one.intervals.items()
    ]
    return _text(rows, names)


def gaps_csv(collection: Collection) -> str:
    """One row per run that is not done."""
    names = ("task", "backbone", "method", "seed", "state", "reason", "command", "run")
    rows = [
        {
            "task": task,
            "backbone": backbone,
            "method": label,
            "seed": entry.spec.seed,
            "state": state_words(collection, entry),
            "reason": reason,
            "command": fill_command(collection, entry),
            "run": entry.spec.id,
        }
        for task, backbone, label, entry, reason in gaps(collection)
    ]
    return _text(rows, names)


def runs_csv(collection: Collection) -> str:
    """One row per run: what it is, how it stands, and all its metrics, flattened."""
    names = ("run", "task", "backbone", "method", "name", "members", "seed", "state", "reason")
    rows = []
    for group in collection.groups:
        for method in group.methods:
            for entry in method.entries:
                row = {
                    "run": entry.spec.id,
                    "task": group.task,
                    "backbone": group.backbone,
                    "method": method.label,
                    "name": entry.spec.method,
                    "members": method.members,
                    "seed": entry.spec.seed,
                    "state": entry.state,
                    "reason": entry.reason,
                }
                rows.append(row | _flat_metrics(entry.metrics or {}))
    metrics = dict.fromkeys(name for row in rows for name in row if name not in names)
    return _text(rows, (*names, *metrics))


def _flat_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    """Every number and word of a run's metrics by its dotted path; no lists, no digests."""
    return {
        ".".join(key): value
        for key, value in flatten(metrics)
        if key[0] not in ("files", "run") and not isinstance(value, list)
    }


def _text(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    file = io.StringIO()
    table = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return file.getvalue()
