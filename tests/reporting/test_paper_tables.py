"""The paper's tables: the right cells, visible gaps with commands, scales that are never mixed."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from paper_results import METHODS, by_method, ship, store

from bench.errors import UserError
from bench.files import read_json
from bench.paper.collect import SUITES, collect_paper
from bench.paper.judges import Evidence
from bench.paper.tables import paper_tables
from bench.paper.writing import PaperTables, write_paper
from bench.store import RunFolder, SuiteFolder
from bench.suite_files import load_suite
from bench.tables.layout import Table

TABLES = ["t1-cifar", "t2-imagenet", "t3-sst2", "t4-members", "t5-severity", "t6-ood"]
TABLES += ["t7-strength", "t8-uncertainty"]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ship(monkeypatch, tmp_path / "suites")
    return tmp_path / "results"


def sections(results: Path, name: str, scale: str | None = None) -> list[Table]:
    for table in paper_tables(collect_paper(results, scale)):
        if table.layout.name == name:
            return [section.presented for section in table.sections]
    raise AssertionError(name)


def row(table: Table, *labels: str) -> dict[str, str]:
    found = [r for r in table.rows if tuple(cell.text for cell in r[: len(labels)]) == labels]
    assert len(found) == 1, (labels, [[c.text for c in r] for r in table.rows])
    return dict(zip(table.headings, (cell.text for cell in found[0]), strict=True))


def written(results: Path, scale: str | None = None) -> dict[str, str]:
    paper = collect_paper(results, scale)
    files = write_paper(paper, PaperTables(tuple(paper_tables(paper)), ()))
    return {path.name: path.read_text(encoding="utf-8") for path in files}


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_cells_of_the_main_table(results: Path) -> None:
    accuracies = {0: 0.90, 1: 0.92}
    store(
        results,
        "cifar10",
        scores=lambda spec: (
            {"accuracy": accuracies[spec.seed], "parameters": 24_000_000}
            if spec.method == "sigma_nens"
            else {"accuracy": 0.5, "parameters": 146_000_000}
        ),
    )
    table = sections(results, "t1-cifar")[0]
    assert table.title == "T1 CIFAR: digits (cifar10 at scale tiny)"
    own = row(table, "resnet8", "sigma_nens", "4")
    assert own["Accuracy (%) ↑"] == "91.00"
    assert own["NLL (T) (nats) ↓"] == "0.390"
    assert own["AUPR far (%) ↑"] == "60.00"
    assert own["FPR95 near (%) ↓"] == "50.00"
    assert own["Parameters (M)"] == "24.00"
    assert own["Device time (h)"] == "2.000"
    assert own["Train cost (M FLOPs)"] == "2.00"
    (cell,) = [r[3] for r in table.rows if r[1].text == "sigma_nens"]
    # The sample deviation of 90 and 92.
    assert (cell.spread, cell.mark) == ("1.41", "best")


def test_units_are_one_for_a_whole_table(results: Path) -> None:
    store(
        results,
        "cifar100",
        scores=lambda spec: {"parameters": 1_000 if spec.backbone == "resnet8" else 5_000_000},
    )
    table = next(t for t in sections(results, "t1-cifar") if "cifar100" in t.title)
    assert row(table, "resnet8", "single", "1")["Parameters (M)"] == "0.00"
    assert row(table, "wrn28_8", "single", "1")["Parameters (M)"] == "5.00"


def test_what_is_not_run_is_a_gap_with_the_command_that_fills_it(results: Path) -> None:
    store(
        results,
        "cifar10",
        only=lambda spec: spec.method != "sigma_nens" and (spec.method, spec.seed) != ("single", 1),
    )
    table, empty, *_ = sections(results, "t1-cifar")
    assert row(table, "resnet8", "sigma_nens", "4")["Accuracy (%) ↑"] == "–"
    command = f"sigma-bench run cifar10 --scale tiny --results {results}"
    assert (
        f"sigma_nens, seeds 0, 1: not run; {command} --method sigma_nens --data DIR fills it"
        in table.footnotes
    )
    assert (
        f"single, seed 1: not run; {command} --method single --data DIR fills it" in table.footnotes
    )
    (single,) = [r for r in table.rows if r[1].text == "single"]
    assert single[3].remark == "n=1/2"
    assert single[1].footnotes
    assert (
        f"cifar10 at scale tiny: 5 of 8 runs done. Runs that are missing: 3; {command} --data DIR"
        in (" ".join(table.notes))
    )
    # Nothing of cifar100 is run: its rows are there, at its default scale.
    assert "cifar100 at scale paper" in empty.title
    assert {r[3].text for r in empty.rows} == {"–"}
    assert f"sigma-bench run cifar100 --scale paper --results {results} --data DIR" in (
        " ".join(empty.notes)
    )
    gaps = rows_of(written(results)["gaps.csv"])
    assert {(r["method"], r["seeds"], r["state"]) for r in gaps if r["suite"] == "cifar10"} == {
        ("sigma_nens", "0, 1", "not run"),
        ("single", "1", "not run"),
    }
    assert {r["suite"] for r in gaps} == set(SUITES)


def test_a_method_that_does_not_apply_says_why_and_is_no_gap(results: Path) -> None:
    store(results, "sst2", only=lambda spec: spec.method != "packed_ensemble")
    suite = load_suite("sst2", (), "tiny")
    for spec in suite.runs():
        if spec.method == "packed_ensemble":
            run = SuiteFolder(results, suite.name).run(spec)
            run.start({})
            run.refuse("packing changes the architecture")
    (table,) = sections(results, "t3-sst2")
    shown = row(table, "hf:bert@pretrained", "packed_ensemble", "4")
    assert shown["Accuracy (%) ↑"] == "n/a"
    assert "packed_ensemble: not applicable: packing changes the architecture." in table.footnotes
    assert not any("that are missing" in note for note in table.notes)
    assert not any("fills it" in note for note in table.footnotes)


def test_a_failed_run_says_its_error(results: Path) -> None:
    store(results, "strength", only=lambda spec: spec.method != "deep_ensemble")
    suite = load_suite("strength", (), "tiny")
    for spec in suite.runs():
        if spec.method == "deep_ensemble":
            run = SuiteFolder(results, suite.name).run(spec)
            run.start({})
            run.fail("loss is nan", "...")
    (table,) = sections(results, "t7-strength")
    (note,) = [note for note in table.footnotes if note.startswith("deep_ensemble")]
    assert "seeds 0, 1: failed (loss is nan)" in note


def test_the_largest_scale_with_results_is_shown_and_named(results: Path) -> None:
    store(results, "cifar10", "tiny")
    store(results, "cifar100", "tiny")
    store(results, "cifar100", "paper", only=lambda spec: spec.seed == 0)
    ten, hundred = sections(results, "t1-cifar")
    assert "cifar10 at scale tiny" in ten.title
    assert "cifar100 at scale paper" in hundred.title
    assert any("scale tiny are there too and not shown" in note for note in hundred.notes)
    texts = written(results)
    for name in ("t1-cifar.md", "t1-cifar.tex"):
        line = texts[name].splitlines()[0]
        assert "cifar10 at scale tiny: 8 of 8 runs done" in line
        assert "cifar100 at scale paper: 12 of 36 runs done" in line
        assert "4 single networks trained for 1 epoch" in line
        assert "sigma-bench tables paper" in line
    scales = {(r["suite"], r["scale"]) for r in rows_of(texts["t1-cifar.csv"])}
    assert scales == {("cifar10", "tiny"), ("cifar100", "paper")}
    tiny = sections(results, "t1-cifar", "tiny")
    assert [("tiny" in table.title) for table in tiny] == [True, True]


def test_a_scale_of_which_every_run_failed_has_no_results(results: Path) -> None:
    store(results, "cifar10", "tiny")
    suite = load_suite("cifar10", (), "paper")
    run = SuiteFolder(results, suite.name).run(suite.runs()[0])
    run.start({})
    run.fail("out of memory", "...")
    assert collect_paper(results).sources["cifar10"].scale == "tiny"


def test_a_scale_that_no_suite_has_is_refused(results: Path) -> None:
    with pytest.raises(UserError, match=r"--scale.*'tinny'.*did you mean tiny"):
        collect_paper(results, "tinny")


def test_runs_with_other_settings_are_not_counted_and_named(results: Path) -> None:
    store(results, "cifar10", only=lambda spec: spec.seed == 0)
    other = results / "cifar10-tiny" / "runs" / "an-old-run"
    other.mkdir()
    (other.parent / ".DS_Store").touch()
    table = sections(results, "t1-cifar")[0]
    assert any(note.endswith("other settings, which are not counted: 1.") for note in table.notes)


def test_members_are_ranked_within_a_method(results: Path) -> None:
    own = {2: 0.7, 4: 0.8, 16: 0.75}
    store(
        results,
        "members",
        scores=lambda spec: {
            "accuracy": own[spec.parameters["members"]] - (spec.method == "packed_ensemble") * 0.3
            if spec.method != "single"
            else 0.6
        },
    )
    (table,) = sections(results, "t4-members")
    best = {(r[1].text, r[2].text) for r in table.rows if r[3].mark == "best"}
    assert best == {("sigma_nens", "4"), ("packed_ensemble", "4")}
    assert [r[2].text for r in table.blocks[-1]] == ["2", "4", "16"]


def test_strength_and_weights_have_columns_of_their_own(results: Path) -> None:
    store(results, "strength")
    store(results, "pretrained")
    (table,) = sections(results, "t7-strength")
    assert table.headings[:4] == ("Backbone", "Method", "M", "λ")
    assert [tuple(c.text for c in r[1:4]) for r in table.rows] == [
        ("deep_ensemble", "4", "–"),
        ("sigma_nens", "4", "0"),
        ("sigma_nens", "4", "0.001"),
        ("sigma_nens", "4", "0.1"),
    ]
    detection = sections(results, "t6-ood")[0]
    assert {tuple(c.text for c in r[:2]) for r in detection.rows} == {
        ("resnet20", "scratch"),
        ("resnet20", "weights.safetensors"),
    }
    found = rows_of(written(results)["t7-strength.csv"])
    assert {r["λ"] for r in found} == {"–", "0", "0.001", "0.1"}


def test_severity_table_of_each_backbone(results: Path) -> None:
    store(results, "cifar100", only=lambda spec: spec.backbone == "resnet8")
    tables = [t for t in sections(results, "t5-severity") if "cifar100" in t.title]
    assert len(tables) == 3
    shown = row(tables[0], "ECE (%) ↓", "sigma_nens", "4")
    assert (shown["Clean"], shown["1"], shown["5"], shown["Slope"]) == (
        "5.00",
        "10.00",
        "10.00",
        "0.20",
    )
    assert "(generated)" in tables[0].title
    # The others are of the same suite but not run: their methods carry the command.
    assert all("--method" in note for note in tables[1].footnotes)


def test_decomposition_counts_sources_alike_and_says_what_records_it_lacks(results: Path) -> None:
    store(results, "cifar10")
    (table, _) = sections(results, "t8-uncertainty")
    own = row(table, "resnet8", "sigma_nens", "4")
    # Sources of 3 and 9 samples at 1 and 2: their mean is 1.5, that over samples 1.75.
    assert own["Total, near OOD (nats)"] == "1.500"
    assert own["Total, far OOD (nats)"] == "3.000"
    assert own["Aleatoric, near OOD (nats)"] == "0.500"
    assert own["Modulation, test (nats)"] == "0.250"
    assert row(table, "resnet8", "single", "1")["Modulation, far OOD (nats)"] == "n/a"
    assert not any("missing or damaged" in note for note in table.notes)
    for run in sorted((results / "cifar10-tiny" / "runs").glob("sigma_nens*")):
        (run / "records" / "ood.parquet").write_bytes(b"broken")
    (table, _) = sections(results, "t8-uncertainty")
    assert row(table, "resnet8", "sigma_nens", "4")["Total, near OOD (nats)"] == "n/a"
    assert row(table, "resnet8", "deep_ensemble", "4")["Total, near OOD (nats)"] == "1.500"
    assert any("of 2 runs are missing or damaged" in note for note in table.notes)


def test_the_same_results_give_the_same_bytes_in_every_format(results: Path) -> None:
    for name in SUITES:
        store(results, name, only=lambda spec: spec.seed == 0)
    first = written(results)
    assert written(results) == first
    expected = {
        f"{name}.{end}" for name in [*TABLES, "claims", "gaps"] for end in ("md", "tex", "csv")
    }
    assert set(first) == expected
    for name in TABLES:
        assert "sigma-bench tables paper" in first[f"{name}.csv"].splitlines()[1]


def test_latex_escapes_what_tex_would_read(results: Path) -> None:
    store(results, "cifar10", only=lambda spec: spec.seed == 0)
    text = written(results)["t1-cifar.tex"]
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert any(r"100 \% \& generated\_x." in line for line in body)
    assert any(r"sigma\_nens" in line for line in body)
    assert not any("sigma_nens" in line for line in body)
    assert any("-{}-scale" in line for line in body)


def test_csv_holds_full_precision_in_stored_units(results: Path) -> None:
    store(results, "cifar10", scores=by_method(sigma_nens={"accuracy": 1 / 3, "seconds": 5.0}))
    found = {
        (r["method"], r["metric"]): r
        for r in rows_of(written(results)["t1-cifar.csv"])
        if r["suite"] == "cifar10"
    }
    assert float(found["sigma_nens", "test.accuracy"]["mean"]) == 1 / 3
    assert float(found["sigma_nens", "cost.device_seconds"]["mean"]) == 5.0
    assert {method for method, _ in found} == set(METHODS)
    assert found["single", "test.nll"]["n"] == "2"
    assert found["single", "test.nll"]["backbone"] == "resnet8"


def test_scores_are_read_once_for_all_tables_and_claims(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.paper.claims import measure

    store(results, "cifar10")
    store(results, "cifar100", only=lambda spec: spec.backbone == "resnet8")
    reads: list[Path] = []

    def counted(path: Path) -> dict[str, object]:
        reads.append(path)
        return read_json(path)

    monkeypatch.setattr("bench.store.read_json", counted)
    paper = collect_paper(results)
    paper_tables(paper)
    measure(Evidence(paper))
    done = [path for path in reads if path.exists()]
    assert len(done) == 16
    assert len(set(done)) == 16
    assert all(path.name == RunFolder(path.parent, None).metrics_path.name for path in done)  # type: ignore[arg-type]
