"""Markdown, LaTeX, CSV and the terminal: structure, escaping, round trips, repeatability."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from synthetic_suite import fill, finish, make_suite

from bench.store import SuiteFolder
from bench.suite import Suite
from bench.tables import Cell, Table, collect, main_table_text, write_tables
from bench.tables.latex import latex
from bench.tables.markdown import markdown

TABLES = (
    *("main", "calibration", "severity", "corruption", "ood", "uncertainty", "cost"),
    *("difference", "gaps"),
)
WORDS = st.text(st.characters(codec="utf-8"), max_size=30)
LATEX_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|.", re.DOTALL)


def read(folder: SuiteFolder, name: str) -> str:
    return (folder.tables / name).read_text(encoding="utf-8")


def csv_rows(folder: SuiteFolder, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(read(folder, name), newline="")))


def table_of(*texts: str, code: bool = False) -> Table:
    row = tuple(Cell(text, code=code) for text in texts)
    return Table("t", "Title", tuple("abcdefgh"[: len(texts)]), 1, ((row,),))


def test_files_are_as_announced(folder: SuiteFolder, suite: Suite) -> None:
    paths = write_tables(collect(suite, folder))
    expected = {f"{name}.{ending}" for name in TABLES for ending in ("md", "tex", "csv")}
    assert {path.name for path in paths} == expected | {"runs.csv"}
    assert sorted(paths) == sorted(p for p in folder.tables.rglob("*") if p.is_file())


def test_the_same_results_give_the_same_bytes(
    folder: SuiteFolder, suite: Suite, tmp_path: Path
) -> None:
    first = write_tables(collect(suite, folder), tmp_path / "first")
    second = write_tables(collect(suite, folder), tmp_path / "second")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_every_markdown_file_begins_with_where_it_comes_from(
    folder: SuiteFolder, suite: Suite
) -> None:
    for path in write_tables(collect(suite, folder)):
        first = path.read_text(encoding="utf-8").splitlines()[0]
        if path.suffix in (".md", ".tex"):
            assert "Suite tiny: 9 of 9 runs done" in first
            assert "sigma-bench tables tiny" in first


def test_markdown_grid_marks_and_spread(folder: SuiteFolder, suite: Suite) -> None:
    write_tables(collect(suite, folder))
    lines = [line for line in read(folder, "main.md").splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 3
    assert len({line.count("|") for line in lines}) == 1
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in lines]
    column = rows[0].index("Accuracy (%) ↑")
    found = [row[column] for row in rows[2:]]
    assert sum(text.startswith("**") for text in found) >= 1
    assert sum(text.startswith("<u>") for text in found) >= 1
    assert all(re.search(r"\d(\*\*|</u>)? ± \d+\.\d\d$", text) for text in found)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("<script>", "&lt;script&gt;"),
        ("*x* `y`", r"\*x\* \`y\`"),
        ("deep_ensemble", "deep_ensemble"),
        ("_em_", r"\_em\_"),
        ("two\nlines\tand\x1b", "two lines and�"),
        ("[x](javascript:1)", r"\[x\](javascript:1)"),
        ("a & b", "a &amp; b"),
        (r"back\slash", r"back\\slash"),
    ],
)
def test_markdown_escapes(text: str, shown: str) -> None:
    assert shown in markdown("h", [table_of(text, "1")])


@given(st.lists(WORDS, min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_no_word_breaks_a_markdown_row(words: list[str]) -> None:
    text = markdown("h", [table_of(*words)])
    row = text.splitlines()[6]
    assert len(text.splitlines()) == 7
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 4
    assert "<" not in row


def check_latex(text: str) -> None:
    """Braces balance, environments nest, every row of a tabular has its columns."""
    depth = 0
    open_environments: list[str] = []
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    for token in LATEX_TOKEN.findall(body):
        depth += {"{": 1, "}": -1}.get(token, 0)
        assert depth >= 0
    assert depth == 0
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", body):
        if kind == "begin":
            open_environments.append(name)
        else:
            assert open_environments.pop() == name
    assert not open_environments
    for layout, content in re.findall(
        r"\\begin\{tabular\}\{([^\n]*)\}\n(.*?)\\end\{tabular\}", body, re.DOTALL
    ):
        columns = len(re.sub(r"p\{[^}]*\}", "p", layout))
        rows = [line for line in content.splitlines() if not re.match(r"\\\w+rule$", line)]
        assert rows
        for row in rows:
            assert row.endswith(r" \\")
            tokens = LATEX_TOKEN.findall(row)
            assert tokens.count("&") == columns - 1
            assert "#" not in tokens
            assert "%" not in tokens
            assert "_" not in tokens
            assert tokens.count("$") % 2 == 0


def test_latex_is_well_formed(folder: SuiteFolder) -> None:
    label = r"50% & $x_1^2$ #{\input} ~σ"
    suite = make_suite(methods=[{"name": "single", "label": label}, "deep_ensemble"])
    fill(folder, suite)
    lost = suite.runs()[0]
    folder.run(lost).metrics_path.unlink()
    folder.run(lost).fail("KeyError: 'a_b' & {…} 100% \\ $", "…")
    for path in write_tables(collect(suite, folder)):
        if path.suffix == ".tex":
            text = path.read_text(encoding="utf-8")
            check_latex(text)
            if path.stem != "difference":
                assert r"50\% \& \$x\_1\textasciicircum{}2\$ \#\{\textbackslash{}input\}" in text
    main = read(folder, "main.tex")
    assert r"\textbf{" in main
    assert r"\underline{" in main
    assert r"\toprule" in main
    assert r"$\sigma$" in main
    assert "-{}-seed 0" in read(folder, "gaps.tex")


@given(st.lists(WORDS, min_size=3, max_size=3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_word_breaks_latex(words: list[str], code: bool) -> None:
    check_latex(latex(words[0], [table_of(*words, code=code)]))


@pytest.mark.parametrize("first", ["[red]", "*", "[2ex] x", "* [x]"])
def test_no_first_word_becomes_an_argument(first: str) -> None:
    """After ``\\\\`` and rules LaTeX looks for ``[`` and ``*``, across blanks and line ends."""
    text = latex("header", [table_of(first, "x")])
    for row in re.findall(r"(?:rule|\\\\)\n(.*)", text):
        assert not row.lstrip().startswith(("[", "*"))
    check_latex(text)


def test_no_reference_is_told_apart_from_no_other_method(folder: SuiteFolder) -> None:
    alone = make_suite(methods=["single"], reference=None)
    both = make_suite(methods=["single", {"name": "single", "label": "b"}], reference=None)
    write_tables(collect(alone, folder))
    assert "There is no other method" in read(folder, "difference.md")
    both = make_suite(methods=["single", {"name": "sigma_nens", "members": 1}], reference=None)
    write_tables(collect(both, folder))
    assert "set \\`reference\\`" in read(folder, "difference.md")


def test_score_csv_is_tidy_and_exact(folder: SuiteFolder, suite: Suite) -> None:
    write_tables(collect(suite, folder))
    rows = csv_rows(folder, "main.csv")
    keys = [(row["task"], row["backbone"], row["method"], row["metric"]) for row in rows]
    assert len(set(keys)) == len(keys)
    for label in ("single", "deep_ensemble", "σN-Ens (τ=0.2)"):
        nll = [
            folder.run(s).metrics()["test"]["nll"]  # type: ignore[index]
            for s in suite.runs()
            if s.label == label
        ]
        [row] = [row for row in rows if (row["method"], row["metric"]) == (label, "test.nll")]
        assert float(row["mean"]) == pytest.approx(pd.Series(nll).mean(), rel=1e-15)
        assert float(row["std"]) == pytest.approx(pd.Series(nll).std(), rel=1e-12)
        assert (row["n"], row["seeds"], row["status"]) == ("3", "3", "value")

    uncertainty = pd.read_csv(folder.tables / "uncertainty.csv", keep_default_na=False)
    [row] = uncertainty[
        (uncertainty["method"] == "single") & (uncertainty["metric"] == "test.mutual_information")
    ].to_dict("records")
    assert (row["status"], row["mean"], row["n"]) == ("n/a", "", 0)


def test_runs_csv_has_every_number_of_every_run(folder: SuiteFolder, suite: Suite) -> None:
    lost = suite.runs()[4]
    folder.run(lost).metrics_path.unlink()
    folder.run(lost).fail('ValueError: "quoted", with\nlines', "…")
    write_tables(collect(suite, folder))
    table = {row["run"]: row for row in csv_rows(folder, "runs.csv")}
    labels = dict.fromkeys(spec.label for spec in suite.runs())
    assert list(table) == [s.id for label in labels for s in suite.runs() if s.label == label]
    assert table[lost.id]["state"] == "failed"
    assert table[lost.id]["reason"] == 'ValueError: "quoted", with\nlines'
    assert table[lost.id]["test.accuracy"] == ""
    spec = suite.runs()[0]
    metrics = folder.run(spec).metrics()
    assert metrics is not None
    row = table[spec.id]
    assert float(row["test.nll"]) == metrics["test"]["nll"]
    assert int(row["cost.parameters"]) == metrics["cost"]["parameters"]
    for cell in metrics["shift"]["cells"]:
        assert float(row[f"shift.{cell['corruption']}.{cell['severity']}.ece"]) == cell["ece"]
    source = metrics["ood"]["sources"]["faces"]["scores"]["entropy"]["fpr95"]
    assert float(row["ood.sources.faces.scores.entropy.fpr95"]) == source


def test_difference_and_gap_csv(folder: SuiteFolder, suite: Suite) -> None:
    folder.run(suite.runs()[0]).metrics_path.unlink()
    write_tables(collect(suite, folder))
    difference = pd.read_csv(folder.tables / "difference.csv")
    assert set(difference["reference"]) == {"deep_ensemble"}
    assert set(difference["metric"]) == {"accuracy", "nll", "ece"}
    assert (difference["low"] <= difference["difference"]).all()
    assert (difference["difference"] <= difference["high"]).all()
    gaps = pd.read_csv(folder.tables / "gaps.csv")
    assert list(gaps["run"]) == [suite.runs()[0].id]
    assert list(gaps["command"]) == ["sigma-bench run tiny --method single --seed 0"]


def test_several_groups_have_files_together_and_apart(tmp_path: Path) -> None:
    suite = make_suite(
        backbones=["resnet8", "resnet20"], seeds=[0], methods=["single"], reference=None
    )
    folder = SuiteFolder(tmp_path, suite.name)
    fill(folder, suite)
    write_tables(collect(suite, folder))
    together = read(folder, "main.md")
    assert together.count("## Comparison") == 2
    assert read(folder, "digits-resnet20/main.md").count("## Comparison") == 1
    check_latex(read(folder, "main.tex"))
    assert set(pd.read_csv(folder.tables / "main.csv")["backbone"]) == {"resnet8", "resnet20"}


@pytest.mark.parametrize("width", [60, 80, 100, 160, 400])
def test_terminal_table_fits_and_is_whole(folder: SuiteFolder, suite: Suite, width: int) -> None:
    finish(folder, suite.runs()[0], lambda m: m["cost"].update(budget_deviation=0.5))
    folder.run(suite.runs()[4]).metrics_path.unlink()
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None)
    console.print(main_table_text(collect(suite, folder)))
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for number in re.findall(r"\*?(\d+\.\d\d) ±", read_main(folder, suite)):
        assert number in text
    assert "deep_ensemble n=2/3" in text
    assert "[1] single: off the budget of train FLOPs" in " ".join(text.split())


@pytest.mark.parametrize("width", [30, 40])
def test_a_long_label_leaves_room_for_numbers(folder: SuiteFolder, width: int) -> None:
    label = "a label of many words that is wider than the terminal itself"
    suite = make_suite(methods=["single", {"name": "deep_ensemble", "label": label}])
    suite = suite.model_copy(update={"reference": None})
    fill(folder, suite)
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(
        main_table_text(collect(suite, folder))
    )
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for number in re.findall(r"\*?(\d+\.\d\d) ±", read_main(folder, suite)):
        assert number in text


def read_main(folder: SuiteFolder, suite: Suite) -> str:
    write_tables(collect(suite, folder))
    return read(folder, "main.md").replace("**", "").replace("</u>", "")


def test_terminal_takes_labels_for_words(folder: SuiteFolder) -> None:
    suite = make_suite(methods=[{"name": "single", "label": "[red]x[/red] [/]"}], reference=None)
    stream = io.StringIO()
    Console(file=stream, width=120, color_system=None).print(
        main_table_text(collect(suite, folder))
    )
    assert "[red]x[/red] [/]" in stream.getvalue()
