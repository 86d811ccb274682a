import json
import sys
from pathlib import Path

import datasets
import pandas as pd
import pytest
from torch.nn import functional
from word_tokenizer import Words

from bench.data.catalogue import Sst2Options
from bench.data.sst2 import load
from bench.data.task import Outlier
from bench.errors import UserError

# GLUE's phrases end in a space; the text of a quotation is not quoted.
TRAIN = [(f'phrase {i} of a "fine" film ', i % 2) for i in range(60)]
DEV = [("it 's a charming and often affecting journey . ", 1), ("unflinchingly bleak ", 0)]
DEV_IDS = [[1, *[Words().token(word) for word in text.split()], 2] for text, _ in DEV]

AG_NEWS = (
    '"3","Fears for T N pension after talks","Unions representing workers at Turner   Newall say '
    "they are 'disappointed'.\"\n"
    '"4","A ""second"" team","SPACE.com - TORONTO, Canada -- A second\\team of rocketeers"\n'
)
TREC = b"NUM:dist How far is it from Denver to Aspen ?\nHUM:ind Who was\xf0Galileo ?\n"


def glue(root: Path) -> Path:
    (root / "SST-2").mkdir(parents=True)
    for name, rows in (("train", TRAIN), ("dev", DEV)):
        lines = ["sentence\tlabel", *(f"{text}\t{label}" for text, label in rows)]
        (root / "SST-2" / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    # GLUE's own test part has no labels, and must not be taken.
    (root / "SST-2/test.tsv").write_text("index\tsentence\n0\tuneasy mishmash .\n")
    return root


def frames():
    names = {"train": TRAIN, "validation": DEV, "test": [("uneasy mishmash . ", -1)]}
    return {
        name: pd.DataFrame(
            {
                "idx": range(len(rows)),
                "sentence": [t for t, _ in rows],
                "label": [n for _, n in rows],
            }
        )
        for name, rows in names.items()
    }


def saved(root: Path) -> Path:
    """Written by `datasets`, with the features of the hub's copy."""
    features = datasets.Features(
        {
            "idx": datasets.Value("int32"),
            "sentence": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["negative", "positive"]),
        }
    )
    parts = {
        name: datasets.Dataset.from_dict(frame.to_dict("list"), features=features)
        for name, frame in frames().items()
    }
    datasets.DatasetDict(parts).save_to_disk(str(root / "sst2"))
    return root


def parquet(root: Path) -> Path:
    """As in the hub's repository; the training part in two files."""
    folder = root / "sst2" / "data"
    folder.mkdir(parents=True)
    for name, frame in frames().items():
        cuts = [frame[:25], frame[25:]] if name == "train" else [frame]
        for number, part in enumerate(cuts):
            part.to_parquet(folder / f"{name}-{number:05d}-of-{len(cuts):05d}.parquet")
    return root


def read(root: Path, **options):
    return load("sst2", Sst2Options(**{"validation_share": 0.1} | options), root, Words())


@pytest.fixture(params=[glue, saved, parquet])
def root(request, tmp_path):
    return request.param(tmp_path)


def test_every_form_gives_the_same_task(root, tmp_path_factory):
    task = read(root)
    assert task.class_names == ("negative", "positive")
    assert task.test.labels.tolist() == [1, 0]
    for row, wanted in zip(task.test.inputs.tolist(), DEV_IDS, strict=True):
        assert row == wanted + [0] * (64 - len(wanted))
    assert (len(task.train), len(task.validation)) == (54, 6)
    assert task.validation.labels.bincount().tolist() == [3, 3]
    numbers = {Words().token(str(i)): i for i in range(60)}
    seen = [numbers[row[2]] for row in task.train.inputs.tolist()]
    held = [numbers[row[2]] for row in task.validation.inputs.tolist()]
    assert sorted(seen + held) == list(range(60))
    assert task.train.labels.tolist() == [i % 2 for i in seen]
    reference = read(glue(tmp_path_factory.mktemp("glue")))
    assert task.train.inputs.equal(reference.train.inputs)
    assert task.validation.inputs.equal(reference.validation.inputs)
    assert task.notes == reference.notes


def test_notes_tell_of_the_division_and_of_what_is_missing(tmp_path):
    notes = " ".join(read(glue(tmp_path)).notes)
    assert "training phrases (6 of 60, seed 0)" in notes
    assert "scores on it are too good" in notes
    assert "Test is GLUE's dev part" in notes
    for name in ("imdb", "yelp_polarity", "ag_news", "trec"):
        assert f"{name} is left out" in notes


def test_glue_goes_first(tmp_path):
    glue(parquet(tmp_path))
    (tmp_path / "SST-2/dev.tsv").write_text("sentence\tlabel\nonly one\t1\n")
    assert len(read(tmp_path).test) == 1


def test_limits(tmp_path):
    task = read(glue(tmp_path), train_per_class=10, test_per_class=1)
    assert (len(task.train), len(task.validation), len(task.test)) == (18, 2, 2)


def test_nothing_there(tmp_path):
    with pytest.raises(UserError) as caught:
        read(tmp_path)
    line = str(caught.value)
    assert f"no {tmp_path}/SST-2/train.tsv and dev.tsv" in line
    assert f"in {tmp_path}/sst2" in line
    assert f"`sigma-bench data sst2 --data {tmp_path} --fetch`" in line
    assert "\n" not in line


def test_outliers_as_they_are_published(tmp_path):
    glue(tmp_path)
    (tmp_path / "ag_news").mkdir()
    (tmp_path / "ag_news/test.csv").write_text(AG_NEWS)
    (tmp_path / "trec").mkdir()
    (tmp_path / "trec/TREC_10.label").write_bytes(TREC)
    task = read(tmp_path, max_length=20)
    assert task.outliers == (Outlier("ag_news", "far"), Outlier("trec", "far"))
    news, questions = (task.load_outlier(outlier) for outlier in task.outliers)
    words = [
        "Fears for T N pension after talks Unions representing workers at Turner Newall say they "
        "are 'disappointed'.",
        'A "second" team SPACE.com - TORONTO, Canada -- A second\\team of rocketeers',
    ]
    assert news.inputs.equal(padded(words, 20))
    assert questions.inputs.equal(
        padded(["How far is it from Denver to Aspen ?", "Who was Galileo ?"], 20)
    )
    assert news.labels.tolist() == [-1, -1]


def padded(texts, length):
    ids = Words().encode(texts, length)
    return functional.pad(ids, (0, length - ids.shape[1]))


def test_outliers_in_other_forms(tmp_path):
    glue(tmp_path)
    reviews = datasets.Dataset.from_dict({"text": ["a long review"], "label": [1]})
    datasets.DatasetDict({"test": reviews, "train": reviews}).save_to_disk(str(tmp_path / "imdb"))
    (tmp_path / "yelp_polarity/plain_text").mkdir(parents=True)
    frame = pd.DataFrame({"text": ["nice food ", "cold"], "label": [1, 0]})
    frame.to_parquet(tmp_path / "yelp_polarity/plain_text/test-00000-of-00001.parquet")
    (tmp_path / "trec").mkdir()
    (tmp_path / "trec/test.tsv").write_text("Who was Galileo ?\t3\n")
    task = read(tmp_path)
    assert task.outliers == (
        Outlier("imdb", "near"),
        Outlier("yelp_polarity", "near"),
        Outlier("trec", "far"),
    )
    texts = [["a long review"], ["nice food", "cold"], ["Who was Galileo ?"]]
    for outlier, wanted in zip(task.outliers, texts, strict=True):
        assert task.load_outlier(outlier).inputs.equal(padded(wanted, 64))
    assert any("shift of domain" in note for note in task.notes)
    assert read(tmp_path, near=(), far=()).outliers == ()
    assert read(tmp_path, near=("imdb",), far=()).outliers == (Outlier("imdb", "near"),)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"far": ("ag_news",)}, ["outliers ag_news: no ", "test.csv", "data ag_news", "--fetch"]),
        ({"near": ("imdb",)}, ["outliers imdb: no ", "imdb/test.tsv", "Hugging Face"]),
    ],
)
def test_outliers_that_were_asked_for_must_be_there(tmp_path, options, words):
    with pytest.raises(UserError) as caught:
        read(glue(tmp_path), **options)
    for word in words:
        assert word in str(caught.value)


def put(path: str, content: str | bytes):
    def damage(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        raw = content if isinstance(content, bytes) else content.encode()
        (root / path).write_bytes(raw)

    return damage


@pytest.mark.parametrize(
    ("start", "damage", "words"),
    [
        (glue, put("SST-2/dev.tsv", "index\tsentence\n0\tbleak\n"), ["dev.tsv, line 1: must be"]),
        (glue, put("SST-2/dev.tsv", "sentence\tlabel\n"), ["dev.tsv: has a header only"]),
        (glue, put("SST-2/dev.tsv", "sentence\tlabel\na\t1\nb\t-1\n"), ["line 3: label '-1'"]),
        (glue, put("ag_news/test.csv", '"3","title only"\n'), ["test.csv, line 1: 2 columns"]),
        (glue, put("ag_news/test.csv", '"3","a","b"c"\n'), ["test.csv, line 1", "fetch it again"]),
        (glue, put("trec/TREC_10.label", "How far is it ?\n"), ["TREC_10.label, line 1: must be"]),
        (saved, put("sst2/train/state.json", "{"), ["sst2: can't be read"]),
        (saved, put("sst2/train/data-00000-of-00001.arrow", b"no"), ["sst2: can't be read"]),
        (parquet, put("sst2/data/train-00001-of-00002.parquet", b"no"), ["train-00001"]),
        (parquet, put("sst2/other/train-00000-of-00001.parquet", b""), ["in several folders"]),
    ],
)
def test_damaged_files_are_named_in_one_line(tmp_path, start, damage, words):
    damage(start(tmp_path))
    with pytest.raises(UserError) as caught:
        read(tmp_path)
    line = str(caught.value)
    assert "\n" not in line
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"sentence": ["a", "b"], "labels": [0, 1]}, ["no column label", "sentence, labels"]),
        ({"phrase": ["a", "b"], "label": [0, 1]}, ["phrase, label", "sentence or text"]),
        ({"sentence": ["a", None], "label": [0, 1]}, ["row 1 has no text"]),
        ({"sentence": ["a", "b"], "label": [0, 2]}, ["line 2: label '2'"]),
    ],
)
def test_tables_with_other_columns(tmp_path, columns, words):
    parquet(tmp_path)
    pd.DataFrame(columns).to_parquet(tmp_path / "sst2/data/validation-00000-of-00001.parquet")
    with pytest.raises(UserError) as caught:
        read(tmp_path)
    for word in words:
        assert word in str(caught.value)


def test_without_the_library_that_wrote_it(tmp_path, monkeypatch):
    saved(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install datasets"):
        read(tmp_path)


def test_a_copy_without_the_validation_part_is_no_copy(tmp_path):
    saved(tmp_path)
    (tmp_path / "sst2/dataset_dict.json").write_text(json.dumps({"splits": ["train"]}))
    with pytest.raises(UserError, match=r"no copy of Hugging Face's data set"):
        read(tmp_path)
