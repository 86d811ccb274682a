"""The table of claims for a file and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bench.paper.claims import NOTES, Measured
from bench.paper.findings import Finding
from bench.tables.layout import Cell, Table
from bench.tables.scores import GAP

if TYPE_CHECKING:
    from rich.text import Text

NAME = "claims"
CSV_COLUMNS = (
    *("claim", "statement", "table", "suite", "scale", "where", "seeds", "figure", "value"),
    *("low", "high", "basis", "least", "most", "strict", "verdict", "reason", "command"),
)
_STYLES = {"holds": "green", "does not hold": "red", "not measured": "yellow"}


def claims_tables(measured: Sequence[Measured]) -> list[Table]:
    """The verdicts, one line a claim and place; and the criteria, one line a claim."""
    headings = (
        *("Claim", "What the paper states", "Where", "Scale", "Seeds"),
        *("Measured (95 % interval)", "Verdict", "To measure it"),
    )
    blocks = tuple(tuple(_row(one, finding) for finding in one.findings) for one in measured)
    criteria = tuple(
        (Cell(one.claim.name), Cell(one.claim.table), Cell(one.claim.criterion)) for one in measured
    )
    return [
        Table(NAME, "Claims", headings, len(headings), blocks, (), NOTES, (1, 2, 5, 6, 7)),
        Table(
            "criteria",
            "When a claim holds",
            ("Claim", "Table or figure", "It holds if"),
            3,
            (criteria,),
            wrapped=(2,),
        ),
    ]


def _row(one: Measured, finding: Finding) -> tuple[Cell, ...]:
    command = finding.command
    return (
        Cell(one.claim.name),
        Cell(one.claim.statement),
        Cell(place(finding) or GAP),
        Cell(finding.scale_words or GAP),
        Cell(finding.seeds or GAP),
        Cell(finding.measured or GAP),
        Cell(finding.verdict_words),
        Cell(command, code=True) if command else Cell(GAP),
    )


def place(finding: Finding) -> str:
    """Suite, task and backbone."""
    if finding.source is None:
        return finding.where
    return f"{finding.source.name}: {finding.where}"


def claims_rows(measured: Sequence[Measured]) -> Iterator[dict[str, Any]]:
    """One row a figure, in the units of `metrics.json`; one without numbers where none is."""
    for one in measured:
        for finding in one.findings:
            common = {
                "claim": one.claim.name,
                "statement": one.claim.statement,
                "table": one.claim.table,
                "suite": finding.source.name if finding.source else "",
                "scale": finding.scale_words,
                "where": finding.where,
                "verdict": finding.verdict,
                "reason": finding.reason,
                "command": finding.command,
            }
            for test in finding.tests or (None,):
                if test is None:
                    yield common
                    continue
                yield common | {
                    "seeds": " ".join(map(str, test.estimate.n)),
                    "figure": test.name,
                    "value": test.estimate.value,
                    "low": test.estimate.low,
                    "high": test.estimate.high,
                    "basis": test.estimate.basis,
                    "least": test.least,
                    "most": test.most,
                    "strict": test.strict,
                }


def claims_text(measured: Sequence[Measured]) -> Iterator[Text]:
    """For a terminal: each claim, and below it every place with verdict and figures.

    Places without figures for the same reason share a line.
    """
    from rich.text import Text

    for one in measured:
        yield Text(f"{one.claim.name}: {one.claim.statement}", style="bold")
        unmeasured: dict[str, list[str]] = {}
        for finding in one.findings:
            if finding.verdict == "not measured":
                name = place(finding)
                if finding.source is not None and not finding.source.done:
                    name = finding.source.name
                unmeasured.setdefault(finding.verdict_words, []).append(name)
                continue
            details = [word for word in (place(finding), finding.measured) if word]
            yield _line(finding.verdict, finding.verdict_words, details)
        for words, places in unmeasured.items():
            yield _line("not measured", words, [", ".join(filter(None, places))])


def _line(verdict: str, words: str, details: Sequence[str]) -> Text:
    from rich.text import Text

    line = Text("  ")
    line.append(words, style=_STYLES[verdict])
    line.append("".join(f"; {detail}" for detail in details if detail))
    return line
