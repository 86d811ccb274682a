"""``sigma-bench data``: what is there, what is missing, and fetching it."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from file_server import Files, serving

from bench.cli import run
from bench.cli.data import human_size
from bench.data import sources
from bench.data.sources import data_set, data_sets

CONTENT = b"digits" * 1000


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bench.data.fetch.PAUSE", 0.0)


@pytest.fixture
def server(monkeypatch):
    """MNIST's files are served here: small ones, with sums of their own; TREC's are not."""
    known = dict(data_sets())

    def served(one, files: Files, content: bytes):
        parts = []
        for part in one.parts:
            files.contents[f"/{part.file}"] = content
            md5, sha = hashlib.md5(content).hexdigest(), hashlib.sha256(content).hexdigest()
            url = f"{files.url}/{part.file}"
            parts.append(replace(part, url=url, size=len(content), md5=md5, sha256=sha))
        return replace(one, parts=tuple(parts))

    with serving(Files()) as files:
        known["mnist"] = served(known["mnist"], files, CONTENT)
        known["trec"] = served(known["trec"], files, CONTENT)
        known["imagenet-o"] = served(known["imagenet-o"], files, archive())
        for part in known["trec"].parts:
            files.contents.pop(f"/{part.file}")
        monkeypatch.setattr(sources, "data_sets", lambda: known)
        monkeypatch.setattr("bench.cli.data.data_sets", lambda: known)
        yield files


def archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        info = tarfile.TarInfo("imagenet-o/n01/1.JPEG")
        tar.addfile(info, io.BytesIO())
    return file.getvalue()


def test_all_of_them(capsys):
    assert run(["data"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(data_sets())
    assert all(" missing " in line for line in lines[:-1])
    assert not Path("data").exists()


@pytest.mark.parametrize("name", [*data_sets(), "textures"])
def test_one_of_them(name, capsys):
    assert run(["data", name, "--data", "my data"]) == 1
    text = capsys.readouterr().out
    one = data_set(name)
    for fact in (one.title, str(Path("my data", one.place)), one.licence, one.cite, one.home):
        assert fact in text
    assert re.search(r"state +missing", text)
    for part in one.parts:
        assert part.url in text
        assert part.checksum in text
        assert human_size(part.size) in text
    if one.parts:
        assert f"sigma-bench data {one.name} --data 'my data' --fetch" in text
    else:
        assert "get an account" in text
        assert "my data/imagenet" in text
        assert "--fetch" not in text


def test_what_is_there(capsys):
    for path in data_set("mnist").leaves[:1]:
        Path("data", path).parent.mkdir(parents=True)
        Path("data", path).touch()
    assert run(["data", "mnist"]) == 1
    text = capsys.readouterr().out
    assert re.search(r"state +1 of 2 there", text)
    assert re.search(r"missing +MNIST/raw/t10k-labels-idx1-ubyte.gz", text)
    Path("data", data_set("mnist").leaves[1]).touch()
    assert run(["data", "mnist"]) == 0
    assert re.search(r"state +there", capsys.readouterr().out)
    assert run(["data", "mnist", "svhn"]) == 1
    assert run(["data"]) == 0
    assert re.search(r"mnist +there", capsys.readouterr().out)


def test_many_missing_files_are_counted(capsys):
    run(["data", "cifar10-c"])
    assert "defocus_blur.npy, CIFAR-10-C/elastic_transform.npy and 16 more" in (
        capsys.readouterr().out
    )


def test_fetching(server, capsys):
    assert run(["data", "mnist", "imagenet-o", "--fetch"]) == 0
    text = capsys.readouterr().out
    assert "checksum right" in text
    assert "mnist: there, at data/MNIST/raw" in text
    for path in data_set("mnist").leaves:
        assert Path("data", path).read_bytes() == CONTENT
    assert Path("data/imagenet-o/n01/1.JPEG").is_file()
    assert run(["data", "mnist", "imagenet-o"]) == 0
    asked = len(server.asked)
    assert run(["data", "mnist", "--fetch"]) == 0
    assert len(server.asked) == asked


def test_one_that_fails_does_not_stop_the_others(server, capsys):
    assert run(["data", "trec", "mnist", "--fetch"]) == 1
    out, err = capsys.readouterr()
    assert re.fullmatch(r"error: trec: http://\S+: HTTP 404 Not Found\n", err)
    assert "mnist: there" in out
    assert run(["data", "mnist"]) == 0
    assert run(["data", "trec"]) == 1


def test_ctrl_c(server, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.data.fetch._receive", stopped)
    assert run(["data", "mnist", "--fetch"]) == 130
    assert not any(path.is_file() for path in Path("data").rglob("*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("data cifar", "unknown data set 'cifar': did you mean cifar10 or cifar100"),
        ("data --fetch", "--fetch: which data sets"),
        ("data imagenet --fetch", "imagenet can't be fetched.*account"),
        ("data mnist --data afile", "--data afile: afile is a file"),
        ("data mnist --fetc", "unknown option '--fetc': did you mean --fetch"),
    ],
)
def test_mistakes_get_one_line(words, message, capsys):
    Path("afile").touch()
    assert run(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.match(f"error: {message}", err)
    assert err.count("\n") == 1
    assert not Path("data").exists()


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (None, "size unknown"),
        (0, "0 bytes"),
        (999, "999 bytes"),
        (4_542, "4.54 kB"),
        (999_600, "1 MB"),
        (170_498_071, "170 MB"),
        (2_918_471_680, "2.92 GB"),
        (154_642_401_280, "155 GB"),
        (1_500_000_000_000, "1.5 TB"),
    ],
)
def test_sizes_for_people(size, words):
    assert human_size(size) == words
