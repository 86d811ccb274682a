import colorsys
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bench.data import images
from bench.data.catalogue import ImageFolderOptions, load_task
from bench.data.corruptions import corrupt
from bench.data.image_folder import load
from bench.data.task import UNKNOWN, Outlier, Shift
from bench.errors import UserError
from bench.suite import TaskSpec

CLASSES = ("ant", "bee", "cow")


def picture(label: int, index: int, size: tuple[int, int] = (32, 32)) -> np.ndarray:
    """An RGB image [H, W, 3] whose first pixels tell its label and index."""
    array = np.random.default_rng(100 * label + index).integers(0, 256, (*size, 3), np.uint8)
    array[0, 0] = (label, index, 255)
    return array


def save(path: Path, array: np.ndarray, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


def fill(root: Path, per_class: int = 6, size: tuple[int, int] = (32, 32)) -> Path:
    for split, number in (("train", per_class), ("val", 2), ("test", 3)):
        for label, name in enumerate(CLASSES):
            for index in range(number):
                save(root / split / name / f"{index}.png", picture(label, index, size))
    for index in range(4):
        save(root / "ood" / "flat" / f"{index}.png", picture(7, index, size))
        save(
            root / "ood" / "deep" / f"a{index % 2}" / "b" / f"{index}.png", picture(8, index, size)
        )
    return root


def folder(root: Path, **options: object):
    return load(f"image_folder:{root}", ImageFolderOptions(**options), root)


def refusal(root: Path, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        folder(root, **options)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"task image_folder:{root}: ")
    return line


def test_every_image_is_where_its_label_is(tmp_path):
    task = folder(fill(tmp_path), near=("flat",))
    assert task.class_names == CLASSES
    for split, number in ((task.train, 6), (task.validation, 2), (task.test, 3)):
        assert split.labels.tolist() == [k for k in range(3) for _ in range(number)]
        for position, (image, label) in enumerate(zip(split.inputs, split.labels, strict=True)):
            expected = picture(int(label), position % number)
            assert np.array_equal(image.permute(1, 2, 0).numpy(), expected)
    assert task.outliers == (Outlier("deep", "far"), Outlier("flat", "near"))
    flat = task.load_outlier(task.outliers[1])
    assert flat.inputs[:, :2, 0, 0].tolist() == [[7, index] for index in range(4)]
    deep = task.load_outlier(task.outliers[0])
    assert deep.inputs[:, :2, 0, 0].tolist() == [[8, index] for index in (0, 2, 1, 3)]
    assert set(deep.labels.tolist()) == {UNKNOWN}
    assert task.notes == ()


def test_shifts_are_the_corrupted_test_images(tmp_path):
    task = folder(fill(tmp_path), corruptions=("fog", "contrast"), severities=(2, 5))
    assert task.shift_origin == "generated"
    assert task.shifts == tuple(Shift(c, s) for c in ("fog", "contrast") for s in (2, 5))
    for shift in task.shifts:
        split = task.load_shift(shift)
        expected = corrupt(task.test.inputs, shift.corruption, shift.severity)
        assert torch.equal(split.inputs, expected)
        assert torch.equal(split.labels, task.test.labels)


def test_shifts_are_kept_on_disk_or_it_is_noted(tmp_path):
    fill(tmp_path / "mine")
    options = ImageFolderOptions(corruptions=("fog",))
    task = load("image_folder:mine", options, tmp_path)
    split = task.load_shift(Shift("fog", 4))
    (file,) = (tmp_path / ".cache" / "corruptions").rglob("fog.npy")
    rows = np.load(file, allow_pickle=False)[3 * 9 : 4 * 9]
    assert np.array_equal(rows, split.inputs.permute(0, 2, 3, 1).numpy())
    task = load(f"image_folder:{tmp_path / 'mine'}", options, tmp_path / "none")
    assert task.notes == (
        f"Corrupted images are made anew for every run: there is no folder {tmp_path / 'none'}.",
    )
    assert torch.equal(task.load_shift(Shift("fog", 4)).inputs, split.inputs)


def test_grey_images_have_no_corruption_of_colour(tmp_path):
    fill(tmp_path)
    assert "saturate needs colour" in refusal(tmp_path, channels=1, corruptions=("fog", "saturate"))
    assert folder(tmp_path, channels=1, corruptions=("snow", "frost")).input_shape == (1, 32, 32)
    assert folder(tmp_path, channels=3, corruptions=("saturate",)).shifts[0].severity == 1


def test_a_relative_path_starts_at_the_data_folder(tmp_path):
    fill(tmp_path / "deep" / "mine")
    spec = TaskSpec(name="image_folder:deep/mine")
    assert load_task(spec, tmp_path).class_names == CLASSES
    assert load_task(spec, tmp_path) is load_task(spec, tmp_path)


def test_validation_is_taken_from_train_where_there_is_none(tmp_path):
    root = fill(tmp_path, per_class=20)
    for path in sorted((root / "val").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (root / "val").rmdir()
    task = folder(root, validation_share=0.2)
    assert len(task.train) == 48
    assert torch.bincount(task.validation.labels).tolist() == [4, 4, 4]
    seen = {
        (int(i[0, 0, 0]), int(i[1, 0, 0]))
        for split in (task.train, task.validation)
        for i in split.inputs
    }
    assert seen == {(label, index) for label in range(3) for index in range(20)}
    for split in (task.train, task.validation):
        assert torch.equal(split.inputs[:, 0, 0, 0].long(), split.labels)
    assert "stratified part of train/ (12 images" in task.notes[0]
    assert torch.equal(folder(root, validation_share=0.2).train.inputs, task.train.inputs)


def test_limits_take_the_first_by_name(tmp_path):
    task = folder(fill(tmp_path), train_per_class=2, test_per_class=1)
    assert task.train.inputs[:, :2, 0, 0].tolist() == [[k, i] for k in range(3) for i in range(2)]
    assert task.test.inputs[:, :2, 0, 0].tolist() == [[k, 0] for k in range(3)]


@pytest.mark.parametrize("suffix", ["png", "bmp", "ppm", "tiff", "gif", "jpg", "webp", "JPEG"])
def test_formats(tmp_path, suffix):
    root = fill(tmp_path)
    colour = (200, 40, 120)
    path = root / "test" / "ant" / f"z.{suffix}"
    save(path, np.full((32, 32, 3), colour, dtype=np.uint8))
    image = folder(root).test.inputs[3].flatten(1).double()
    assert image.mean(1).tolist() == pytest.approx(colour, abs=4)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_modes(tmp_path, mode, channels):
    root = fill(tmp_path)
    path = root / "test" / "ant" / ("z.tiff" if mode == "CMYK" else "z.png")
    Image.new("RGB", (32, 32), (255, 255, 255)).convert(mode).save(path)
    image = folder(root, channels=channels).test.inputs[3]
    assert image.shape == (channels, 32, 32)
    assert int(image.min()) == 255


def test_grey_is_the_luma_of_the_colour(tmp_path):
    x = folder(fill(tmp_path)).test.inputs.double()
    grey = folder(tmp_path, channels=1).test.inputs[:, 0].double()
    luma = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
    assert float((grey - luma).abs().max()) <= 1


def hue(degrees: float) -> list[int]:
    return [round(255 * v) for v in colorsys.hsv_to_rgb(degrees / 360, 1, 1)]


@pytest.mark.parametrize(("height", "width"), [(40, 80), (80, 40), (20, 64), (64, 20)])
def test_size_resizes_the_short_side_and_crops_the_centre(tmp_path, height, width):
    root = fill(tmp_path)
    stripes = np.zeros((height, width, 3), dtype=np.uint8)
    long = max(height, width)
    for k in range(long):
        stripes[(k, slice(None)) if height > width else (slice(None), k)] = hue(300 * k / long)
    save(root / "test" / "ant" / "z.png", stripes)
    image = folder(root, size=32).test.inputs[3]
    assert image.shape == (3, 32, 32)
    line = image[:, :, 16] if height > width else image[:, 16, :]
    hues = [
        360 * colorsys.rgb_to_hsv(*(line[:, k].double() / 255).tolist())[0] for k in (1, 16, 30)
    ]
    short = min(height, width)
    shares = [0.5 + short / long * ((k + 0.5) / 32 - 0.5) for k in (1, 16, 30)]
    assert hues == pytest.approx([300 * share for share in shares], abs=8)


def test_images_of_the_size_stay_as_they_are(tmp_path):
    plain, sized = folder(fill(tmp_path)), folder(tmp_path, size=32)
    assert torch.equal(plain.test.inputs, sized.test.inputs)


def test_equal_images_need_not_be_square(tmp_path):
    task = folder(fill(tmp_path, size=(30, 44)))
    assert task.input_shape == (3, 30, 44)


def test_a_class_without_test_images_is_noted(tmp_path):
    root = fill(tmp_path)
    for path in (root / "test" / "bee").iterdir():
        path.unlink()
    (root / "test" / "bee").rmdir()
    task = folder(root)
    assert task.num_classes == 3
    assert sorted(set(task.test.labels.tolist())) == [0, 2]
    assert task.notes == ("test/ has no images of the classes bee.",)


def test_other_files_are_left_out_and_noted(tmp_path):
    root = fill(tmp_path)
    (root / "train" / "ant" / "readme.txt").write_text("x")
    (root / "ood" / "flat" / "list.csv").write_text("x")
    (root / "train" / "ant" / ".hidden.png").write_text("x")
    (root / "train" / ".cache").mkdir()
    (root / "train" / "notes.txt").write_text("x")
    task = folder(root)
    assert len(task.train) == 18
    assert task.notes == (
        "train/: left out 1 files that are no images.",
        "ood/flat/: left out 1 files that are no images.",
    )


def test_no_ood_folder_is_noted(tmp_path):
    root = fill(tmp_path)
    (root / "ood").rename(tmp_path / "elsewhere")
    task = folder(root)
    assert task.outliers == ()
    assert "No out-of-distribution sets" in task.notes[0]


def test_missing_folders(tmp_path):
    assert f"no folder {tmp_path / 'gone'}" in refusal(tmp_path / "gone")
    fill(tmp_path / "a")
    (tmp_path / "a" / "test").rename(tmp_path / "b")
    assert f"no folder {tmp_path / 'a' / 'test'}" in refusal(tmp_path / "a")


def test_classes_must_agree(tmp_path):
    root = fill(tmp_path)
    save(root / "test" / "dog" / "0.png", picture(0, 0))
    line = refusal(root)
    assert "class 'dog' is in test/" in line
    assert "ant, bee, cow" in line


def test_one_class_is_not_enough(tmp_path):
    save(tmp_path / "train" / "ant" / "0.png", picture(0, 0))
    save(tmp_path / "test" / "ant" / "0.png", picture(0, 0))
    assert "must have 2 class folders or more, not 1" in refusal(tmp_path)


@pytest.mark.parametrize(("link", "target"), [("train/ant/back", "."), ("ood/flat/up/up", "../..")])
def test_a_link_to_a_folder_above_is_refused(tmp_path, link, target):
    path = fill(tmp_path) / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)
    assert f"{path} links to a folder that it lies in" in refusal(tmp_path)


def test_links_to_each_other_are_refused(tmp_path):
    root = fill(tmp_path)
    (root / "train" / "ant" / "b").symlink_to(root / "train" / "bee")
    (root / "train" / "bee" / "a").symlink_to(root / "train" / "ant")
    assert "links to a folder that it lies in" in refusal(root)


def test_links_that_lead_elsewhere_are_followed(tmp_path):
    root = fill(tmp_path / "a")
    (root / "train" / "ant").rename(tmp_path / "ants")
    (root / "train" / "ant").symlink_to(tmp_path / "ants")
    (tmp_path / "ants" / "more").symlink_to(root / "ood" / "flat")
    task = folder(root)
    assert torch.bincount(task.train.labels).tolist() == [6 + 4, 6, 6]


def test_a_link_to_nowhere_is_named(tmp_path):
    link = fill(tmp_path) / "train" / "ant" / "lost.png"
    link.symlink_to("nowhere")
    assert f"{link}: not a readable image" in refusal(tmp_path)


def test_a_pipe_is_no_image(tmp_path):
    os.mkfifo(fill(tmp_path) / "train" / "ant" / "pipe.png")
    task = folder(tmp_path)
    assert len(task.train) == 18
    assert "train/: left out 1 files that are no images." in task.notes


@pytest.mark.parametrize("name", ["train/ant", "train", "ood/deep/a1"])
def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch, name):
    closed = fill(tmp_path) / name
    listed = Path.iterdir

    def iterdir(path):
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert f"{closed}: can't be read: Permission denied" in refusal(tmp_path)


@pytest.mark.parametrize("name", [b"caf\xe9", b"two\nlines", b"bell\x07"])
@pytest.mark.parametrize("part", ["train", "ood"])
def test_folder_names_that_cannot_be_written_are_refused(tmp_path, part, name):
    root = fill(tmp_path)
    (root / part / "new").mkdir()
    save(root / part / "new" / "0.png", picture(0, 0))
    try:
        (root / part / "new").rename(root / part / os.fsdecode(name))
    except OSError:
        pytest.skip("this file system takes no such name")
    assert "rename it" in refusal(tmp_path)


def test_too_few_images_to_divide_names_the_way_out(tmp_path):
    for split in ("train", "test"):
        for label, name in enumerate(CLASSES):
            save(tmp_path / split / name / "0.png", picture(label, 0))
    assert "add val/" in refusal(tmp_path)
    for label, name in enumerate(CLASSES):
        save(tmp_path / "train" / name / "1.png", picture(label, 1))
    assert "set `validation_share`" in refusal(tmp_path)
    assert len(folder(tmp_path, validation_share=0.5).validation) == 3


@pytest.mark.parametrize("place", ["train/dog", "test/bee", "ood/empty"])
def test_empty_folders(tmp_path, place):
    root = fill(tmp_path)
    empty = root / place
    empty.mkdir(exist_ok=True)
    for path in empty.iterdir():
        path.unlink()
    assert f"no images in {empty}" in refusal(root)


@pytest.mark.parametrize("content", [b"", b"no image at all", "cut"])
@pytest.mark.parametrize("size", [None, 32])
def test_unreadable_images_are_named(tmp_path, content, size):
    root = fill(tmp_path)
    path = root / "ood" / "flat" / "2.png"
    path.write_bytes(path.read_bytes()[:1500] if content == "cut" else content)
    assert f"{path}: not a readable image" in refusal(root, size=size)


def test_more_than_8_bits_are_refused(tmp_path):
    root = fill(tmp_path)
    path = root / "test" / "bee" / "deep.png"
    save(path, np.full((32, 32), 40000, dtype=np.uint16))
    line = refusal(root)
    assert str(path) in line
    assert "8 bits" in line


def test_images_outside_of_class_folders(tmp_path):
    root = fill(tmp_path)
    save(root / "train" / "stray.png", picture(0, 0))
    assert f"{root / 'train' / 'stray.png'} lies outside" in refusal(root)


def test_sizes_must_be_equal_or_given(tmp_path):
    root = fill(tmp_path)
    path = root / "ood" / "flat" / "9.png"
    save(path, picture(0, 0, (48, 40)))
    line = refusal(root)
    assert f"{path}: 40×48" in line
    assert "size=32" in line
    assert folder(root, size=32).input_shape == (3, 32, 32)


def test_small_images_have_no_corruptions(tmp_path):
    fill(tmp_path, size=(16, 16))
    assert "corruptions: []" in refusal(tmp_path)
    task = folder(tmp_path, corruptions=())
    assert task.shifts == ()
    assert task.input_shape == (3, 16, 16)


def test_near_must_be_a_folder_of_ood(tmp_path):
    with pytest.raises(UserError, match="'flta': did you mean flat"):
        folder(fill(tmp_path), near=("flta",))


def test_too_little_memory_is_noticed_before_decoding(tmp_path, monkeypatch):
    fill(tmp_path)
    monkeypatch.setattr(images, "available_bytes", lambda: 41 * 3 * 32 * 32 - 1)
    line = refusal(tmp_path)
    assert "41 images of 3×32×32" in line
    assert "`size`" in line
    monkeypatch.setattr(images, "available_bytes", lambda: 41 * 3 * 32 * 32)
    assert len(folder(tmp_path).train) == 18


def test_available_memory_is_plausible():
    available = images.available_bytes()
    assert available is not None
    assert 1e7 < available < 1e14
