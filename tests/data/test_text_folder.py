import gzip
from pathlib import Path

import pytest
import torch
from word_tokenizer import Words

from bench.data.catalogue import TextFolderOptions, check_task, load_task
from bench.data.task import UNKNOWN, Outlier, Shift
from bench.data.text_folder import load
from bench.data.typos import misspell
from bench.errors import UserError
from bench.suite import TaskSpec

TRAIN = [(f"{word} film number {i}", label) for i in range(10) for word, label in
         (("fine", "good"), ("dull", "bad"))]  # fmt: skip
TEST = [("a dull affair", "bad"), ("what a fine thing it is", "good"), ("dull again", "bad")]


def write(path: Path, rows, ending="\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(row) if isinstance(row, tuple) else row for row in rows]
    content = (ending.join(lines) + ending).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def folder(root: Path, **files) -> Path:
    rows = {"train": TRAIN, "val": TEST[:2], "test": TEST} | files
    for name, content in rows.items():
        if content is not None:
            write(root / "reviews" / f"{name.replace('ood_', 'ood/')}.tsv", content)
    return root


def read(root: Path, **options):
    return load("text_folder:reviews", TextFolderOptions(**options), root, Words())


def ids(text: str, length: int) -> list[int]:
    row = [1, *[Words().token(word) for word in text.split()], 2]
    return row + [0] * (length - len(row))


def test_splits_are_the_files_in_their_order(tmp_path):
    task = read(folder(tmp_path), max_length=9)
    assert task.class_names == ("bad", "good")
    assert (task.mean, task.std, task.pad, task.is_text) == ((), (), 0, True)
    assert task.input_shape == (9,)
    assert task.test.inputs.tolist() == [ids(text, 9) for text, _ in TEST]
    assert task.test.labels.tolist() == [0, 1, 0]
    assert task.validation.labels.tolist() == [0, 1]
    assert task.train.inputs.tolist() == [ids(text, 9) for text, _ in TRAIN]
    assert task.train.labels.tolist() == [1, 0] * 10
    assert task.shift_origin == "generated"
    assert task.notes == ("No out-of-distribution sets: ood/ is missing or empty.",)


def test_a_batch_is_cut_to_its_longest_text(tmp_path):
    task = read(folder(tmp_path))
    assert task.input_shape == (64,)
    assert task.normalise(task.test.inputs[[0, 2]]).tolist() == [
        ids("a dull affair", 5),
        ids("dull again", 5),
    ]


def test_numbers_are_labels_as_they_are(tmp_path):
    rows = [(f"text {i}", str(11 - i % 12)) for i in range(24)]
    task = read(folder(tmp_path, train=rows, val=rows, test=[("some", "10"), ("more", "2")]))
    assert task.class_names == tuple(map(str, range(12)))
    assert task.test.labels.tolist() == [10, 2]
    assert task.train.labels[:3].tolist() == [11, 10, 9]
    assert task.notes[-1].startswith("test has no texts of the classes 0, 1, 3, 4")


def test_packed_files_and_names_with_compression(tmp_path):
    plain, packed = folder(tmp_path / "a", ood_news=["x y"]), tmp_path / "b"
    for name, rows in (("train", TRAIN), ("val", TEST[:2]), ("test", TEST), ("ood/news", ["x y"])):
        write(packed / "reviews" / f"{name}.tsv.gz", rows)
    one, other = read(plain), read(packed)
    for split in ("train", "validation", "test"):
        assert torch.equal(getattr(one, split).inputs, getattr(other, split).inputs)
    assert one.outliers == other.outliers == (Outlier("news", "far"),)


def test_only_line_feeds_end_a_line_and_only_the_last_tab_divides_it(tmp_path):
    rows = [("a film\x85of\u2028two\x0b lines", "1"), ("column\tone", "0"), (" wide  ", " 0 ")]
    write(tmp_path / "reviews/test.tsv", rows, "\r\n")
    content = (tmp_path / "reviews/test.tsv").read_bytes()
    (tmp_path / "reviews/test.tsv").write_bytes(b"\xef\xbb\xbf" + content + b"\r\n\n")
    train = [(text, "1" if label == "good" else "0") for text, label in TRAIN]
    write(tmp_path / "reviews/train.tsv", train)
    task = read(tmp_path, max_length=8)
    assert task.test.labels.tolist() == [1, 0, 0]
    assert task.test.inputs.tolist() == [
        ids("a film of two lines", 8),
        ids("column one", 8),
        ids("wide", 8),
    ]


def test_without_validation_a_stratified_part_of_train_is_taken(tmp_path):
    task = read(folder(tmp_path, val=None), validation_share=0.2)
    assert task.validation.labels.bincount().tolist() == [2, 2]
    assert len(task.train) == 16
    together = torch.cat([task.train.inputs, task.validation.inputs]).tolist()
    assert sorted(together) == sorted(ids(text, 64) for text, _ in TRAIN)
    again = read(folder(tmp_path, val=None), validation_share=0.2)
    assert torch.equal(again.validation.inputs, task.validation.inputs)
    assert any("stratified part of train (4 texts" in note for note in task.notes)


def test_limits_take_the_first_of_each_class(tmp_path):
    root = folder(tmp_path, ood_news=["one", "two", "three"])
    task = read(
        root, train_per_class=2, val_per_class=1, test_per_class=1, outliers_per_set=2, max_length=9
    )
    assert task.train.inputs.tolist() == [ids(text, 9) for text, _ in TRAIN[:4]]
    assert task.test.inputs.tolist() == [ids(text, 9) for text, _ in TEST[:2]]
    assert len(task.validation) == 2
    assert len(task.load_outlier(task.outliers[0])) == 2


def test_outliers_with_and_without_labels(tmp_path):
    root = folder(tmp_path, ood_news=[("stocks fall", "3"), "rain"], ood_tweets=["so dull"])
    (root / "reviews/ood/README.md").write_text("about")
    (root / "reviews/ood/.hidden.tsv").write_text("no")
    task = read(root, near=("tweets",), max_length=6)
    assert task.outliers == (Outlier("news", "far"), Outlier("tweets", "near"))
    news = task.load_outlier(task.outliers[0])
    assert news.inputs.tolist() == [ids("stocks fall", 6), ids("rain", 6)]
    assert news.labels.tolist() == [UNKNOWN, UNKNOWN]
    assert "ood/: left out 1 files that are not .tsv or .tsv.gz." in task.notes


def test_the_shift_is_the_test_split_with_typing_errors(tmp_path):
    task = read(folder(tmp_path), typos=("typo_drop", "typo_swap"), severities=(2, 5))
    assert task.shifts == (
        Shift("typo_drop", 2),
        Shift("typo_drop", 5),
        Shift("typo_swap", 2),
        Shift("typo_swap", 5),
    )
    for shift in task.shifts:
        split = task.load_shift(shift)
        texts = misspell([text for text, _ in TEST], shift.corruption, shift.severity)
        assert split.inputs.tolist() == [ids(text, 64) for text in texts]
        assert torch.equal(split.labels, task.test.labels)
        assert (shift.severity == 2) or not torch.equal(split.inputs, task.test.inputs)
    assert read(folder(tmp_path), typos=()).shifts == ()


def test_texts_that_are_cut_are_counted(tmp_path):
    root = folder(tmp_path, ood_news=["a b c d e", "a b c d", "a b c"])
    task = read(root, max_length=6)
    # With its two marks a text of 4 words fits in; "what a fine thing it is" has 6.
    assert task.notes == ("Cut to 6 tokens: 1 of val, 1 of test, 1 of ood/news.",)
    assert task.test.inputs[1].tolist() == ids("what a fine thing", 6)


def test_test_texts_that_are_in_train_are_counted(tmp_path):
    rows = [*TEST, TRAIN[3], TRAIN[4]]
    task = read(folder(tmp_path, test=rows, ood_x=["y"]))
    assert task.notes == ("2 of 5 of test are also in train, word for word.",)


WRONG = [
    ({"train": None}, {}, ["no file", "train.tsv", ".tsv.gz"]),
    ({"test": None}, {}, ["no file", "test.tsv"]),
    ({"train": [*TRAIN, "no tab here"]}, {}, ["train.tsv, line 21: no tab"]),
    ({"test": [TEST[0], ("  ", "bad")]}, {}, ["test.tsv, line 2: no text"]),
    ({"test": [TEST[0], ("fine", " ")]}, {}, ["test.tsv, line 2: no label"]),
    ({"test": [TEST[0], "", TEST[1]]}, {}, ["test.tsv, line 2: no tab"]),
    ({"test": [TEST[0], ("so so", "mixed")]}, {}, ["line 2: label 'mixed'", "bad, good"]),
    ({"val": [("so so", "Good")]}, {}, ["val.tsv, line 1: label 'Good'"]),
    ({"train": [("a", "x"), ("b", "x")]}, {}, ["2 classes or more", "'x'"]),
    ({"train": [""]}, {}, ["train.tsv: is empty"]),
    ({"train": [("a", "1"), ("b", "2")]}, {}, ["labels 1, 2", "0 to 1"]),
    ({"train": [("a", "0"), ("b", "2")]}, {}, ["labels 0, 2", "without a gap"]),
    ({"train": [("text", "label"), ("a", "0"), ("b", "1")]}, {}, ["line 1", "header"]),
    ({"train": [("0", "a b"), ("1", "c d"), ("0", "e f")]}, {}, ["text must come first"]),
    ({"train": [("a", "x"), ("b", "y\x07")]}, {}, ["'y\\x07'", "printed"]),
    ({"ood_news": ["fine", ("", "1")]}, {}, ["news.tsv, line 2: no text"]),
    ({"ood_news": [""]}, {}, ["news.tsv: is empty"]),
    ({"ood_news": ["fine"]}, {"near": ("mews",)}, ["'mews'", "did you mean news"]),
    ({"val": None}, {"validation_share": 0.05}, ["add val.tsv", "validation_share"]),
]


@pytest.mark.parametrize(("files", "options", "words"), WRONG)
def test_mistakes_are_told_in_one_line(tmp_path, files, options, words):
    with pytest.raises(UserError) as caught:
        read(folder(tmp_path, **files), **options)
    line = str(caught.value)
    assert "task text_folder:reviews" in line
    assert "\n" not in line
    for word in words:
        assert word in line


def test_no_folder(tmp_path):
    with pytest.raises(UserError, match=r"no folder .*reviews: it must have train.tsv"):
        read(tmp_path)


def test_not_utf8(tmp_path):
    root = folder(tmp_path)
    (root / "reviews/test.tsv").write_bytes(b"fine\tgood\nd\xe9j\xe0 vu\tbad\n")
    with pytest.raises(UserError, match=r"test.tsv, line 2: not UTF-8"):
        read(root)


@pytest.mark.parametrize("damage", [lambda b: b[:-12], lambda b: b"text\t0\n", lambda b: b[:20]])
def test_not_a_whole_gzip_file(tmp_path, damage):
    root = folder(tmp_path, test=None)
    path = write(root / "reviews/test.tsv.gz", TEST)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"test.tsv.gz: not a whole gzip file"):
        read(root)


@pytest.mark.parametrize("name", ["test", "ood/news"])
def test_two_files_for_one_part(tmp_path, name):
    root = folder(tmp_path, ood_news=["fine"])
    write(root / "reviews" / f"{name}.tsv.gz", TEST)
    with pytest.raises(UserError, match=r"are both there: remove one"):
        read(root)


def test_by_name(tmp_path, monkeypatch):
    asked = []

    def tokenizer(backbone, data):
        asked.append((backbone, data))
        return Words()

    monkeypatch.setattr("bench.data.catalogue.text_tokenizer", tokenizer)
    spec = TaskSpec(name="text_folder:reviews", options={"max_length": 16})
    task = load_task(spec, folder(tmp_path), "hf:some")
    assert asked == [("hf:some", tmp_path.resolve())]
    assert task.input_shape == (16,)
    assert load_task(spec, tmp_path, "hf:some") is task
    assert load_task(spec, tmp_path, "hf:other") is not task


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"typos": ["typo_swop"]}, ["typos.0", "typo_swap", "got 'typo_swop'"]),
        ({"typos": ["typo_swap"] * 2}, ["stands twice"]),
        ({"max_length": 3}, ["max_length", "greater than or equal to 4"]),
        ({"max_lenght": 32}, ["unknown key 'max_lenght'", "did you mean 'max_length'"]),
        ({"corruptions": []}, ["unknown key 'corruptions'"]),
    ],
)
def test_options_that_it_does_not_have(options, words):
    with pytest.raises(UserError) as caught:
        check_task(TaskSpec(name="text_folder:reviews", options=options))
    for word in words:
        assert word in str(caught.value)
