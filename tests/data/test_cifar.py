import gzip
import pickle
import struct
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from bench.data.catalogue import CifarOptions, PublishedCorruption
from bench.data.cifar import load
from bench.data.corruptions import corrupt
from bench.data.task import UNKNOWN, Outlier, Shift
from bench.errors import UserError

BATCH = 40
TEST = 60


def noise(number: int, seed: int) -> np.ndarray:
    """Images [N, 32, 32, 3] whose first pixel tells their index and `seed`."""
    array = np.random.default_rng(seed).integers(0, 256, (number, 32, 32, 3), np.uint8)
    array[:, 0, 0, 0] = np.arange(number)
    array[:, 0, 0, 1] = seed
    return array


def rows(array: np.ndarray) -> np.ndarray:
    """In the files an image is a row: 1,024 red values, then green, then blue."""
    return array.transpose(0, 3, 1, 2).reshape(len(array), -1)


def labels_of(number: int, classes: int) -> list[int]:
    return [(7 * i) % classes for i in range(number)]


def dump(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))


def write_cifar10(data: Path) -> None:
    folder = data / "cifar-10-batches-py"
    parts = [(f"data_batch_{i}", BATCH, i) for i in range(1, 6)] + [("test_batch", TEST, 9)]
    for name, number, seed in parts:
        content = {
            "batch_label": name,
            "labels": labels_of(number, 10),
            "data": rows(noise(number, seed)),
            "filenames": [f"{i}.png" for i in range(number)],
        }
        dump(folder / name, content)
    dump(folder / "batches.meta", {"label_names": [f"class{i}" for i in range(10)]})


def write_cifar100(data: Path) -> None:
    folder = data / "cifar-100-python"
    for name, number, seed in (("train", 400, 20), ("test", 100, 21)):
        fine = labels_of(number, 100)
        content = {
            "fine_labels": fine,
            "coarse_labels": [label // 5 for label in fine],
            "data": rows(noise(number, seed)),
            "filenames": [f"{i}.png" for i in range(number)],
            "batch_label": name,
        }
        dump(folder / name, content)
    fine_names = [f"fine{i}" for i in range(100)]
    dump(folder / "meta", {"fine_label_names": fine_names, "coarse_label_names": []})


def write_svhn(data: Path, number: int = 12) -> None:
    images = noise(number, 30).transpose(1, 2, 3, 0)
    digits = (np.arange(number, dtype=np.uint8) % 10 + 1)[:, None]
    scipy.io.savemat(data / "test_32x32.mat", {"X": images, "y": digits})


def write_dtd(data: Path) -> None:
    folder = data / "dtd" / "dtd"
    (folder / "labels").mkdir(parents=True)
    listed = []
    for name, size in (("woven", (64, 48)), ("dotted", (40, 90))):
        (folder / "images" / name).mkdir(parents=True)
        colour = (250, 10, 10) if name == "woven" else (10, 10, 250)
        listed.append(f"{name}/{name}_0001.jpg")
        Image.new("RGB", size, colour).save(folder / "images" / listed[-1])
    (folder / "labels" / "test1.txt").write_text("\n".join(listed) + "\n")


def write_mnist(data: Path, number: int = 5) -> np.ndarray:
    """Digits whose left half is 0 and whose right half is 255, but for one pixel: their index."""
    digits = np.zeros((number, 28, 28), np.uint8)
    digits[:, :, 14:] = 255
    digits[:, 27, 0] = np.arange(number)
    folder = data / "MNIST" / "raw"
    folder.mkdir(parents=True)
    header = struct.pack(">IIII", 2051, number, 28, 28)
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + digits.tobytes()))
    return digits


COLOURS = ((250, 10, 10), (10, 250, 10), (10, 10, 250))


def write_tiny_imagenet(data: Path) -> None:
    """Listed in another order than that of their names; one is grey, as some there are."""
    folder = data / "tiny-imagenet-200" / "val"
    (folder / "images").mkdir(parents=True)
    lines = []
    for index, name in enumerate(("val_2.JPEG", "val_0.JPEG", "val_1.JPEG")):
        Image.new("RGB", (64, 64), COLOURS[index]).save(folder / "images" / name)
        lines.append(f"{name}\tn0344411{index}\t0\t32\t44\t62\n")
    Image.new("L", (64, 64), 90).save(folder / "images" / "val_3.JPEG")
    lines.append("val_3.JPEG\tn03444119\t0\t32\t44\t62\n")
    (folder / "val_annotations.txt").write_text("".join(lines))


def write_places365(data: Path) -> None:
    folder = data / "places365"
    (folder / "val_256").mkdir(parents=True)
    names = [f"Places365_val_0000000{i}.jpg" for i in (2, 1, 3)]
    for name, colour in zip(names, COLOURS, strict=True):
        Image.new("RGB", (256, 256), colour).save(folder / "val_256" / name)
    (folder / "places365_val.txt").write_text("".join(f"{name} 165\n" for name in names))
    (folder / "categories_places365.txt").write_text("/a/airfield 0\n/y/youth_hostel 364\n")


def is_file(path: str | Path, md5: str | None = None) -> bool:
    return Path(path).is_file()


def corrupted(severity: int) -> np.ndarray:
    array = noise(TEST, 9)
    array[:, 0, 0, 2] = severity
    return array


def write_published(data: Path, names: tuple[str, ...] = ("fog", "snow")) -> None:
    folder = data / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.array(labels_of(TEST, 10) * 5, dtype=np.uint8))
    for name in names:
        np.save(folder / f"{name}.npy", np.concatenate([corrupted(s) for s in range(1, 6)]))


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """A data folder with small sets in the original formats; MD5 sums are not compared."""
    for module in ("torchvision.datasets." + name for name in ("cifar", "svhn", "places365")):
        monkeypatch.setattr(f"{module}.check_integrity", is_file)
    monkeypatch.setattr("bench.data.outliers.check_integrity", is_file)
    write_cifar10(tmp_path)
    return tmp_path


def cifar10(data: Path, **options: object):
    return load("cifar10", CifarOptions(validation=20, **options), data)


def refusal(data: Path, name: str = "cifar10", **options: object) -> str:
    with pytest.raises(UserError) as caught:
        load(name, CifarOptions(**{"validation": 20, **options}), data)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"task {name}")
    return line


def test_images_and_labels_are_those_of_the_files(data):
    task = cifar10(data)
    assert task.class_names == tuple(f"class{i}" for i in range(10))
    assert task.input_shape == (3, 32, 32)
    assert np.array_equal(task.test.inputs.permute(0, 2, 3, 1).numpy(), noise(TEST, 9))
    assert task.test.labels.tolist() == labels_of(TEST, 10)
    original = {
        (seed, i): (noise(BATCH, seed)[i], label)
        for seed in range(1, 6)
        for i, label in enumerate(labels_of(BATCH, 10))
    }
    places = []
    for split in (task.train, task.validation):
        for image, label in zip(split.inputs, split.labels, strict=True):
            place = int(image[1, 0, 0]), int(image[0, 0, 0])
            assert np.array_equal(image.permute(1, 2, 0).numpy(), original[place][0])
            assert int(label) == original[place][1]
            places.append(place)
    assert sorted(places) == sorted(original)
    assert places[: len(task.train)] == sorted(places[: len(task.train)])


def test_validation_is_stratified_and_fixed(data):
    task = cifar10(data)
    assert torch.bincount(task.validation.labels).tolist() == [2] * 10
    assert torch.bincount(task.train.labels).tolist() == [18] * 10
    assert torch.equal(cifar10(data).validation.inputs, task.validation.inputs)


def test_statistics_are_of_the_training_part_alone(data):
    task = cifar10(data)
    x = task.train.inputs.double() / 255
    assert task.mean == pytest.approx(x.mean((0, 2, 3)).tolist(), abs=1e-12)


def test_too_large_a_validation_part(data):
    assert "must be 10 to 190" in refusal(data, validation=195)


def test_cifar100_has_fine_labels(data):
    write_cifar100(data)
    task = load("cifar100", CifarOptions(validation=100), data)
    assert task.class_names[99] == "fine99"
    assert task.num_classes == 100
    assert task.test.labels.tolist() == labels_of(100, 100)
    assert torch.bincount(task.validation.labels).tolist() == [1] * 100
    assert Outlier("cifar10", "near") in task.outliers
    near = task.load_outlier(Outlier("cifar10", "near"))
    assert np.array_equal(near.inputs.permute(0, 2, 3, 1).numpy(), noise(TEST, 9))


def write_outliers(data: Path) -> None:
    write_cifar100(data)
    write_tiny_imagenet(data)
    write_svhn(data)
    write_dtd(data)
    write_mnist(data)
    write_places365(data)


ALL = (
    Outlier("cifar100", "near"),
    Outlier("tiny_imagenet", "near"),
    Outlier("svhn", "far"),
    Outlier("dtd", "far"),
    Outlier("mnist", "far"),
    Outlier("places365", "far"),
)


def test_outlier_sets(data):
    write_outliers(data)
    task = cifar10(data)
    assert task.outliers == ALL
    near, tiny, svhn, dtd, mnist, places = task.outliers
    assert not any("left out" in note for note in task.notes)
    for outlier in (tiny, places):
        split = task.load_outlier(outlier)
        assert split.inputs.shape == (4 if outlier is tiny else 3, 3, 32, 32)
        for image, colour in zip(split.inputs, COLOURS, strict=False):
            assert image.double().mean((1, 2)).tolist() == pytest.approx(colour, abs=4)
    assert torch.equal(
        task.load_outlier(tiny).inputs[3], torch.full((3, 32, 32), 90, dtype=torch.uint8)
    )
    assert task.load_outlier(mnist).inputs.shape == (5, 3, 32, 32)
    split = task.load_outlier(near)
    assert np.array_equal(split.inputs.permute(0, 2, 3, 1).numpy(), noise(100, 21))
    split = task.load_outlier(svhn)
    assert np.array_equal(split.inputs.permute(0, 2, 3, 1).numpy(), noise(12, 30))
    split = task.load_outlier(dtd)
    assert split.inputs.shape == (2, 3, 32, 32)
    means = split.inputs.double().mean((2, 3))
    assert means[0].tolist() == pytest.approx([250, 10, 10], abs=4)
    assert means[1].tolist() == pytest.approx([10, 10, 250], abs=4)
    for outlier in task.outliers:
        assert set(task.load_outlier(outlier).labels.tolist()) == {UNKNOWN}


def test_mnist_is_resized_and_grey(data):
    digits = write_mnist(data)
    task = cifar10(data)
    images = task.load_outlier(Outlier("mnist", "far")).inputs
    assert torch.equal(images[:, 0], images[:, 1])
    assert torch.equal(images[:, 0], images[:, 2])
    # torch's bilinear interpolation is another one's than Pillow's, and the same when enlarging.
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(digits)[:, None].double(), (32, 32), mode="bilinear", align_corners=False
    )[:, 0]
    assert (images[:, 0].double() - expected).abs().max() <= 1


def test_missing_outlier_sets_are_left_out_and_named(data):
    task = cifar10(data)
    assert task.outliers == ()
    left_out = [outlier.name for outlier in ALL]
    assert [note.split()[2] for note in task.notes] == left_out


def test_outlier_sets_can_be_chosen(data):
    write_outliers(data)
    task = cifar10(data, near=("tiny_imagenet",), far=("mnist", "svhn"))
    assert [outlier.name for outlier in task.outliers] == ["tiny_imagenet", "svhn", "mnist"]
    assert task.notes == ()
    task = cifar10(data, near=(), far=())
    assert task.outliers == ()
    assert task.notes == ()
    task = cifar10(data, far=())
    assert [outlier.name for outlier in task.outliers] == ["cifar100", "tiny_imagenet"]


@pytest.mark.parametrize("outlier", ALL, ids=lambda outlier: outlier.name)
def test_a_set_that_was_asked_for_must_be_there(data, outlier):
    line = refusal(data, **{outlier.distance: (outlier.name,)})
    assert f"outliers {outlier.name}: no f" in line
    name = outlier.name.replace("_", "-")
    assert f"`sigma-bench data {name} --data {data} --fetch`" in line


def test_the_own_set_is_no_outlier(data):
    assert "near: cifar10 is the task's own set" in refusal(data, near=("cifar10",))


def test_images_of_the_task_are_no_outliers(data):
    """As two of CIFAR-100's test images are CIFAR-10's: one of training, one of test here."""
    write_cifar100(data)
    path = data / "cifar-100-python" / "test"
    content = pickle.loads(path.read_bytes())
    images = noise(100, 21)
    images[7], images[93] = noise(BATCH, 3)[5], noise(TEST, 9)[59]
    dump(path, {**content, "data": rows(images)})
    task = cifar10(data)
    assert "2 images are left out of cifar100: this task has the same, pixel by pixel." in (
        task.notes
    )
    found = task.load_outlier(Outlier("cifar100", "near")).inputs.permute(0, 2, 3, 1).numpy()
    kept = np.delete(images, [7, 93], axis=0)
    assert np.array_equal(found, kept)


def test_one_changed_value_makes_another_image(data):
    write_svhn(data)
    images = noise(12, 30)
    images[4] = noise(BATCH, 1)[0]
    images[5] = noise(BATCH, 1)[1]
    images[5, 31, 31, 2] ^= 1
    content = {"X": images.transpose(1, 2, 3, 0), "y": np.ones((12, 1), np.uint8)}
    scipy.io.savemat(data / "test_32x32.mat", content)
    task = cifar10(data)
    assert "1 image is left out of svhn: this task has the same, pixel by pixel." in task.notes
    assert len(task.load_outlier(Outlier("svhn", "far"))) == 11


def test_generated_shifts(data):
    task = cifar10(data, severities=(1, 4))
    assert task.shift_origin == "generated"
    assert task.shifts == tuple(Shift(c, s) for c in get_args(PublishedCorruption) for s in (1, 4))
    split = task.load_shift(Shift("contrast", 4))
    assert torch.equal(split.inputs, corrupt(task.test.inputs, "contrast", 4))
    assert torch.equal(split.labels, task.test.labels)


def test_published_shifts_are_read_at_the_severity_asked_for(data):
    write_published(data)
    task = cifar10(data)
    assert task.shift_origin == "official"
    assert task.shifts == tuple(Shift(c, s) for c in ("snow", "fog") for s in range(1, 6))
    assert any("no files for gaussian_noise" in note for note in task.notes)
    for shift in task.shifts:
        split = task.load_shift(shift)
        assert np.array_equal(split.inputs.permute(0, 2, 3, 1).numpy(), corrupted(shift.severity))
        assert torch.equal(split.labels, task.test.labels)


def test_the_source_of_shifts_can_be_chosen(data):
    assert "CIFAR-10-C" in refusal(data, shift="official")
    assert "`sigma-bench data cifar10-c --data" in refusal(data, shift="official")
    write_published(data)
    assert cifar10(data, shift="generated").shift_origin == "generated"
    assert cifar10(data, shift="official", corruptions=("fog",)).shifts[0] == Shift("fog", 1)
    assert cifar10(data, corruptions=()).shifts == ()
    assert "no file" in refusal(data, corruptions=("contrast",))


def test_published_files_of_another_shape(data):
    write_published(data)
    path = data / "CIFAR-10-C" / "fog.npy"
    np.save(path, corrupted(1))
    line = refusal(data)
    assert str(path) in line
    assert f"not uint8 [{5 * TEST}, 32, 32, 3]" in line


def test_published_labels_of_another_order(data):
    write_published(data)
    path = data / "CIFAR-10-C" / "labels.npy"
    np.save(path, np.repeat(labels_of(TEST, 10), 5).astype(np.uint8))
    line = refusal(data)
    assert str(path) in line
    assert "not five times" in line


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", "cut", "objects"])
def test_damaged_published_files(data, content):
    write_published(data)
    path = data / "CIFAR-10-C" / "fog.npy"
    if content == "objects":
        np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    else:
        path.write_bytes(path.read_bytes()[:5000] if content == "cut" else content)
    assert str(path) in refusal(data)


def test_missing_labels_of_the_published_set(data):
    write_published(data)
    (data / "CIFAR-10-C" / "labels.npy").unlink()
    assert "labels.npy" in refusal(data)


def test_a_missing_main_set_says_how_to_get_it(tmp_path):
    for name, folder in (("cifar10", "cifar-10-batches-py"), ("cifar100", "cifar-100-python")):
        line = refusal(tmp_path, name)
        assert f"no folder {tmp_path / folder}" in line
        assert f"`sigma-bench data {name} --data {tmp_path} --fetch`" in line


def test_files_with_another_md5_sum_are_not_opened(tmp_path):
    write_cifar10(tmp_path)
    line = refusal(tmp_path)
    assert "MD5" in line
    assert str(tmp_path / "cifar-10-batches-py") in line


def test_damaged_outlier_sets_are_refused(data, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5: True)
    write_svhn(data)
    assert "svhn" in refusal(data)
    assert "test_32x32.mat" in refusal(data)


def test_a_missing_file_of_dtd_is_named(data):
    write_dtd(data)
    path = data / "dtd" / "dtd" / "images" / "dotted" / "dotted_0001.jpg"
    path.unlink()
    assert f"no file {path}" in refusal(data)
    (data / "dtd" / "dtd" / "labels" / "test1.txt").unlink()
    assert "test1.txt" in refusal(data)


def test_damaged_mnist(data, monkeypatch):
    path = data / "MNIST" / "raw" / "t10k-images-idx3-ubyte.gz"
    outlier = Outlier("mnist", "far")
    write_mnist(data)
    good = path.read_bytes()
    header = struct.pack(">IIII", 2049, 1, 28, 28)
    for content in (b"", b"no gzip", good[:-30], gzip.compress(b"abc"), gzip.compress(header)):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"task cifar10: outliers mnist: .*IDX file") as caught:
            cifar10(data).load_outlier(outlier)
        assert str(path) in str(caught.value)
    monkeypatch.undo()
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", is_file)
    path.write_bytes(good)
    line = refusal(data)
    assert f"{path}: missing, or its MD5 sum is wrong" in line
    assert "sigma-bench data mnist" in line


def test_damaged_tiny_imagenet(data):
    write_tiny_imagenet(data)
    folder = data / "tiny-imagenet-200" / "val"
    (folder / "images" / "val_1.JPEG").unlink()
    assert f"no file {folder / 'images' / 'val_1.JPEG'}" in refusal(data)
    (folder / "val_annotations.txt").write_bytes(b"")
    assert "val_annotations.txt: is empty" in refusal(data)
    (folder / "val_annotations.txt").write_bytes(b"\xff\xfe")
    assert "no text" in refusal(data)
    (folder / "val_annotations.txt").unlink()
    assert "no file" in refusal(data)
    assert "sigma-bench data tiny-imagenet" in refusal(data)


def test_an_image_that_cannot_be_decoded_is_named(data):
    write_places365(data)
    path = data / "places365" / "val_256" / "Places365_val_00000001.jpg"
    path.write_bytes(b"no image")
    task = cifar10(data)
    with pytest.raises(UserError, match=r"outliers places365: .*00000001\.jpg: not a readable"):
        task.load_outlier(Outlier("places365", "far"))


def test_damaged_places365(data, monkeypatch):
    write_places365(data)
    path = data / "places365" / "val_256" / "Places365_val_00000001.jpg"
    path.unlink()
    assert f"no file {path}" in refusal(data)
    (data / "places365" / "places365_val.txt").unlink()
    line = refusal(data)
    assert "places365_val.txt does not exist or is corrupted" in line
    assert "sigma-bench data places365" in line


def test_svhn_that_is_no_mat_file(data):
    (data / "test_32x32.mat").write_bytes(b"x" * 500)
    assert "test_32x32.mat: not a readable .mat file" in refusal(data)
