import errno
import json
import multiprocessing
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.data import corruption_cache
from bench.data.corruption_cache import GeneratedShifts, cache_name, cached_corruption
from bench.data.corruptions import corrupt
from bench.data.task import Shift, Split
from bench.errors import UserError

LABELS = torch.tensor([3, 0, 2, 1, 3, 1, 2])


def flat_images(channels: int = 3, side: int = 28) -> torch.Tensor:
    """Images of one colour whose brightness tells the label: 40, 80, 120, 160."""
    shade = (40 * (LABELS + 1)).byte().view(-1, 1, 1, 1)
    return shade.expand(-1, channels, side, side).contiguous()


def read_labels(rows: np.ndarray) -> np.ndarray:
    """The labels that corrupted flat images still show."""
    return np.rint(rows.mean(axis=(1, 2, 3)) / 40).astype(int) - 1


def files_of(folder: Path) -> list[str]:
    (inner,) = folder.iterdir()
    return sorted(path.name for path in inner.iterdir() if not path.name.endswith(".lock"))


def never(*args, **options):
    raise AssertionError("made again")


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 28, 40), (1, 32, 32)])
def test_the_file_is_in_the_format_of_cifar_c(tmp_path, channels, height, width):
    images = torch.randint(256, (7, channels, height, width)).byte()
    rows = cached_corruption(tmp_path, images, LABELS, "contrast")
    assert isinstance(rows, np.memmap)
    assert not rows.flags.writeable
    assert files_of(tmp_path) == ["contrast.json", "contrast.npy", "labels.npy"]
    (folder,) = tmp_path.iterdir()
    stored = np.load(folder / "contrast.npy", allow_pickle=False)
    assert (stored.dtype, stored.shape) == (np.uint8, (35, height, width, channels))
    for severity in range(1, 6):
        expected = corrupt(images, "contrast", severity).permute(0, 2, 3, 1).numpy()
        assert np.array_equal(stored[7 * (severity - 1) : 7 * severity], expected)
    labels = np.load(folder / "labels.npy", allow_pickle=False)
    assert labels.dtype == np.uint8
    assert labels.tolist() == LABELS.tolist() * 5


@pytest.mark.parametrize("corruption", ["gaussian_noise", "elastic_transform", "jpeg_compression"])
def test_each_row_shows_the_label_that_stands_for_it(tmp_path, corruption):
    rows = cached_corruption(tmp_path, flat_images(), LABELS, corruption)
    (folder,) = tmp_path.iterdir()
    assert np.array_equal(read_labels(rows), np.load(folder / "labels.npy"))
    shifts = GeneratedShifts(tmp_path, Split(flat_images(), LABELS), (corruption,))
    for severity in range(1, 6):
        split = shifts.load(Shift(corruption, severity))
        assert np.array_equal(read_labels(split.inputs.numpy()), split.labels.numpy())


def test_parts_give_the_same_file(tmp_path, monkeypatch):
    images = torch.randint(256, (7, 3, 28, 28)).byte()
    whole = cached_corruption(tmp_path / "a", images, LABELS, "gaussian_noise")
    monkeypatch.setattr(corruption_cache, "PART", 2 * 3 * 28 * 28)
    assert np.array_equal(
        cached_corruption(tmp_path / "b", images, LABELS, "gaussian_noise"), whole
    )


def test_what_is_there_is_not_made_again(tmp_path, monkeypatch):
    first = cached_corruption(tmp_path, flat_images(), LABELS, "fog")
    monkeypatch.setattr(corruption_cache, "_write_rows", never)
    assert np.array_equal(cached_corruption(tmp_path, flat_images(), LABELS, "fog"), first)
    with pytest.raises(AssertionError, match="made again"):
        cached_corruption(tmp_path, flat_images(), LABELS, "snow")


def test_other_images_labels_and_code_have_other_folders(tmp_path, monkeypatch):
    images, other = flat_images(), flat_images()
    other[3, 0, 0, 0] += 1
    names = {
        cache_name(images, LABELS),
        cache_name(other, LABELS),
        cache_name(images, LABELS.flip(0)),
        cache_name(images[:6], LABELS[:6]),
        cache_name(images.view(7, 3, 14, 56), LABELS),
    }
    monkeypatch.setattr(corruption_cache, "_code", lambda: "another version")
    names.add(cache_name(images, LABELS))
    assert len(names) == 6
    assert all(name.startswith(("7x28x28x3-", "6x28x28x3-", "7x14x56x3-")) for name in names)


def test_the_code_is_all_that_makes_the_images(monkeypatch, tmp_path):
    corruption_cache._code.cache_clear()
    before = corruption_cache._code()
    for module in ("code", "pixels", "pixels_warp", "pixels_weather"):
        source = Path(getattr(corruption_cache, module).__file__)
        edited = tmp_path / source.name
        edited.write_text(source.read_text() + "\n# edited\n")
        with monkeypatch.context() as patch:
            patch.setattr(getattr(corruption_cache, module), "__file__", str(edited))
            corruption_cache._code.cache_clear()
            assert corruption_cache._code() != before
    corruption_cache._code.cache_clear()
    assert corruption_cache._code() == before


def _truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def _altered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def _other_shape(path: Path) -> None:
    np.save(path, np.zeros((35, 28, 28, 1), dtype=np.uint8))


def _record_gone(path: Path) -> None:
    path.with_suffix(".json").unlink()


def _record_broken(path: Path) -> None:
    path.with_suffix(".json").write_text("{")


def _record_of_another(path: Path) -> None:
    record = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps({**record, "size": record["size"] + 1}))


@pytest.mark.parametrize(
    "damage",
    [_truncated, _altered, _other_shape, _record_gone, _record_broken, _record_of_another],
)
def test_a_damaged_file_is_made_again(tmp_path, damage):
    first = np.array(cached_corruption(tmp_path, flat_images(), LABELS, "gaussian_noise"))
    (folder,) = tmp_path.iterdir()
    damage(folder / "gaussian_noise.npy")
    again = cached_corruption(tmp_path, flat_images(), LABELS, "gaussian_noise")
    assert np.array_equal(again, first)
    assert corruption_cache._valid(folder / "gaussian_noise.npy", first.shape) is not None


@pytest.mark.parametrize(
    ("number", "right"), [(errno.ENOSPC, "make room for 0 MB"), (errno.EROFS, "can be written")]
)
def test_a_disk_that_takes_no_more_gives_one_line(tmp_path, monkeypatch, number, right):
    written = []

    def refuse(file, images, corruption):
        file.write(b"half")
        written.append(Path(file.name))
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(corruption_cache, "_write_rows", refuse)
    with pytest.raises(UserError) as caught:
        cached_corruption(tmp_path, flat_images(), LABELS, "fog")
    line = str(caught.value)
    assert "\n" not in line
    assert "fog.npy: can't be written: " + os.strerror(number) in line
    assert line.endswith((right, "or remove it"))
    assert written
    assert files_of(tmp_path) == ["labels.npy"]
    monkeypatch.undo()
    assert len(cached_corruption(tmp_path, flat_images(), LABELS, "fog")) == 35


def test_a_file_in_place_of_the_folder_gives_one_line(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match=r"taken/.*fog\.npy: can't be written"):
        cached_corruption(tmp_path / "taken", flat_images(), LABELS, "fog")


def test_what_a_killed_process_left_is_cleared(tmp_path):
    cached_corruption(tmp_path, flat_images(), LABELS, "contrast")
    (folder,) = tmp_path.iterdir()
    (folder / ".fog.npy.99999.tmp").write_text("half")
    cached_corruption(tmp_path, flat_images(), LABELS, "fog")
    assert not list(folder.glob("*.tmp"))


def _work(folder: Path, made: Path) -> None:
    torch.set_num_threads(1)
    write = corruption_cache._write_rows

    def counted(file, images, corruption):
        (made / str(os.getpid())).touch()
        time.sleep(0.5)
        return write(file, images, corruption)

    corruption_cache._write_rows = counted
    rows = cached_corruption(folder, flat_images(), LABELS, "contrast")
    assert np.array_equal(read_labels(rows[:7]), LABELS.numpy())


def test_of_two_processes_one_makes_the_file(tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=_work, args=(tmp_path / "cache", made)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(list(made.iterdir())) == 1


@pytest.mark.parametrize(
    ("images", "corruption", "message"),
    [
        (flat_images()[:0], "fog", "no images"),
        (flat_images(), "rain", "rain"),
        (flat_images(1), "saturate", "colour"),
        (flat_images(side=27), "fog", "28"),
    ],
)
def test_refusals_come_before_anything_is_written(tmp_path, images, corruption, message):
    with pytest.raises(ValueError, match=message):
        cached_corruption(tmp_path, images, LABELS[: len(images)], corruption)
    assert not list(tmp_path.iterdir())


def test_shifts_lie_below_the_data_folder(tmp_path):
    test = Split(flat_images(), LABELS)
    shifts = GeneratedShifts(tmp_path, test, ("fog", "snow"))
    assert shifts.notes == ()
    split = shifts.load(Shift("snow", 2))
    assert torch.equal(split.inputs, corrupt(test.inputs, "snow", 2))
    assert split.inputs.is_contiguous()
    assert split.labels is test.labels
    found = files_of(tmp_path / ".cache" / "corruptions")
    assert found == ["labels.npy", "snow.json", "snow.npy"]


def test_a_truncated_file_in_a_read_only_folder_counts_as_missing(tmp_path, monkeypatch):
    test = Split(flat_images(), LABELS)
    expected = GeneratedShifts(tmp_path, test, ("fog",)).load(Shift("fog", 5))
    (file,) = tmp_path.rglob("fog.npy")
    _truncated(file)
    monkeypatch.setattr(corruption_cache.os, "access", lambda path, mode: False)
    shifts = GeneratedShifts(tmp_path, test, ("fog",))
    assert "can't be written" in shifts.notes[0]
    assert torch.equal(shifts.load(Shift("fog", 5)).inputs, expected.inputs)


@pytest.mark.parametrize("way", ["no folder", "read-only", "full"])
def test_without_a_disk_the_images_are_the_same_and_it_is_said(tmp_path, monkeypatch, way):
    data = tmp_path / "data"
    if way != "no folder":
        data.mkdir()
    if way == "read-only":
        monkeypatch.setattr(corruption_cache.os, "access", lambda path, mode: False)
    if way == "full":
        usage = shutil.disk_usage(tmp_path)._replace(free=100_000)
        monkeypatch.setattr(corruption_cache.shutil, "disk_usage", lambda path: usage)
    test = Split(flat_images(), LABELS)
    shifts = GeneratedShifts(data, test, ("fog", "snow"))
    (note,) = shifts.notes
    assert note.startswith("Corrupted images are made anew for every run: ")
    assert str(data) in note
    assert torch.equal(shifts.load(Shift("fog", 3)).inputs, corrupt(test.inputs, "fog", 3))
    assert not data.exists() or not list(data.iterdir())


def test_a_read_only_folder_that_has_all_files_is_used(tmp_path, monkeypatch):
    test = Split(flat_images(), LABELS)
    expected = GeneratedShifts(tmp_path, test, ("fog",)).load(Shift("fog", 5))
    monkeypatch.setattr(corruption_cache.os, "access", lambda path, mode: False)
    monkeypatch.setattr(corruption_cache, "corrupt", never)
    shifts = GeneratedShifts(tmp_path, test, ("fog",))
    assert shifts.notes == ()
    assert torch.equal(shifts.load(Shift("fog", 5)).inputs, expected.inputs)


def test_no_corruptions_need_no_disk(tmp_path):
    assert GeneratedShifts(tmp_path / "none", Split(flat_images(), LABELS), ()).notes == ()
