import importlib.util
import re
from pathlib import Path

import pytest

from bench.data.sources import ALIASES, DataSet, Part, absent, data_set, data_sets, fetch_command
from bench.errors import UserError

NAMES = [
    "cifar10",
    "cifar100",
    "cifar10-c",
    "cifar100-c",
    "svhn",
    "dtd",
    "mnist",
    "tiny-imagenet",
    "places365",
    "imagenet",
    "imagenet-c",
    "imagenet-o",
    "openimage-o",
    "inaturalist",
    "sst2",
    "ag_news",
    "trec",
]

ELSEWHERE = {
    "90528d7ca1a48142e341f4ef8d21d0de",  # Avalanche and many others
    "5be6ea8aa027d7b631916427b32cb335",  # the package detectors
    "9f81648d4199384278b86e315dac217c",  # torchtext
    "d52ea96a97a2d943681189a97654912d",  # torchtext
    "073462e3fcefaae31e00edb1f18d2d02",  # torchtext
    "323a3554401d86e650717e2d2f942589",  # torchtext
}
"""MD5 sums whose source is no package that is installed with this one."""


def parts() -> list[Part]:
    return [part for one in data_sets().values() for part in one.parts]


def test_all_are_there_by_name():
    assert list(data_sets()) == NAMES
    assert data_set("textures") is data_set("dtd")
    assert set(ALIASES) == {"textures"}
    with pytest.raises(UserError, match=r"unknown data set 'cifar': did you mean cifar"):
        data_set("cifar")


def test_md5_sums_are_those_of_the_packages():
    """Compared with their sources as text: importing them would take seconds."""
    text = ""
    for package in ("torchvision", "torch_uncertainty"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        folder = Path(spec.origin).parent / "datasets"
        text += "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    for part in parts():
        assert part.md5 in ELSEWHERE or part.md5 in text, part.url
    steps = " ".join(data_set("imagenet").steps)
    for md5 in re.findall(r"\b[0-9a-f]{32}\b", steps):
        assert md5 in text
    assert len(re.findall(r"md5", steps)) == 3


@pytest.mark.parametrize("one", data_sets().values(), ids=lambda one: one.name)
def test_every_entry_is_complete(one: DataSet):
    for text in (one.title, one.licence, one.cite):
        assert text
        assert "\n" not in text
    assert one.home.startswith("http")
    assert bool(one.parts) != bool(one.steps)
    assert one.leaves
    for path in (one.place, *one.leaves):
        assert not Path(path).is_absolute()
        assert ".." not in path
    # What is looked for lies at the place that is shown.
    assert all(path == one.place or path.startswith(f"{one.place}/") for path in one.leaves)


@pytest.mark.parametrize("part", parts(), ids=lambda part: part.file)
def test_every_part_is_consistent(part: Part):
    assert part.url.startswith(("http://", "https://"))
    assert part.size is None or part.size > 1000
    assert re.fullmatch(r"[0-9a-f]{32}", part.md5 or "")
    assert part.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", part.sha256)
    for path in part.gives:
        assert path == part.into or not part.into or path.startswith(f"{part.into}/")
    if part.gives:
        assert part.file.endswith((".tar", ".tar.gz", ".zip"))


def test_files_have_names_of_their_own():
    files = [part.file for part in parts()]
    assert len(set(files)) == len(files)
    assert not set(files) & {one.place for one in data_sets().values() if one.name != "svhn"}


def test_the_loaders_look_where_the_catalogue_says():
    from torchvision import datasets

    assert data_set("cifar10").place == datasets.CIFAR10.base_folder
    assert data_set("cifar100").place == datasets.CIFAR100.base_folder
    assert data_set("svhn").place == datasets.SVHN.split_list["test"][1]
    for kind, name in ((datasets.CIFAR10, "cifar10"), (datasets.CIFAR100, "cifar100")):
        (part,) = data_set(name).parts
        files = [file for file, _ in (*kind.train_list, *kind.test_list)]
        assert set(part.leaves) == {
            f"{kind.base_folder}/{file}" for file in (*files, kind.meta["filename"])
        }
    places = [part.leaves for part in data_set("places365").parts]
    lists = [datasets.Places365._FILE_LIST_META["val"], datasets.Places365._CATEGORIES_META]
    assert places == [("places365/val_256",), tuple(f"places365/{file}" for file, _ in lists)]


def test_the_corruptions_are_those_that_tasks_know():
    from typing import get_args

    from bench.data.catalogue import PublishedCorruption

    names = set(get_args(PublishedCorruption))
    for name in ("cifar10-c", "cifar100-c"):
        files = {Path(path).name for path in data_set(name).leaves}
        assert files == {f"{corruption}.npy" for corruption in names} | {"labels.npy"}
    assert {Path(path).name for path in data_set("imagenet-c").leaves} == names


def test_what_is_missing(tmp_path):
    one = data_set("mnist")
    assert one.missing(tmp_path) == one.leaves
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / one.leaves[0]).touch()
    assert one.missing(tmp_path) == one.leaves[1:]
    (tmp_path / one.leaves[1]).touch()
    assert one.missing(tmp_path) == ()
    assert one.size == sum(part.size for part in one.parts)
    assert data_set("imagenet-o").size is None


def test_errors_name_the_command():
    line = str(absent("task x", Path("a b/dtd/dtd"), "dtd", Path("a b")))
    assert line == (
        "task x: no folder a b/dtd/dtd: get it with `sigma-bench data dtd --data 'a b' --fetch`"
    )
    assert "no file" in str(absent("x", Path("d/test_32x32.mat"), "svhn", Path("d")))
    assert fetch_command("imagenet", Path("d")) == "sigma-bench data imagenet --data d"


DOCS = Path(__file__).parents[2] / "docs" / "data.md"


def test_the_documentation_has_every_data_set_once():
    """Its table is made from the catalogue; a change here is to be made there too."""
    text = DOCS.read_text(encoding="utf-8").split("## Where data lie", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    found = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0].strip("`") for row in found] == list(data_sets())
    for (_, place, size, licence, *_), one in zip(found, data_sets().values(), strict=True):
        from bench.cli.data import human_size

        assert place.strip("`") == one.place
        assert size == human_size(one.size)
        assert licence == one.licence
