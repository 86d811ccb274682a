import os

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from bench.data.catalogue import load_task
from bench.data.corruptions import corrupt
from bench.data.task import Outlier, Shift
from bench.errors import UserError
from bench.suite import TaskSpec

WNIDS = ("n01440764", "n01443537", "n02105855", "n03445777", "n09428293")
TRAIN, VAL = 12, 4
CORRUPTIONS = ("gaussian_noise", "fog")


def picture(seed, shape=(48, 40)):
    """Smooth colours and some noise, so that JPEG keeps it about as it is: ``[H, W, 3]``."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[0 : shape[0], 0 : shape[1]] / 40
    phases = generator.uniform(0, 6, 3)
    waves = np.stack([np.sin(3 * x + 2 * y + phase) for phase in phases], axis=-1)
    return np.clip(128 + 80 * waves + generator.normal(0, 5, (*shape, 3)), 0, 255).astype(np.uint8)


def save(path, pixels, mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path, format="JPEG", **options)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A hundred files in ImageNet's layout; some grey, some CMYK, one PNG that is called JPEG."""
    data = tmp_path_factory.mktemp("data")
    root = data / "imagenet"
    for label, wnid in enumerate(WNIDS):
        for i in range(TRAIN):
            mode = {0: "L", 1: "CMYK"}.get(i, "RGB")
            shape = (40 + 3 * i, 64 - 2 * i)
            save(
                root / "train" / wnid / f"{wnid}_{i:03}.JPEG", picture(100 * label + i, shape), mode
            )
        for i in range(VAL):
            pixels = picture(1000 + 10 * label + i, (50, 60))
            save(root / "val" / wnid / f"ILSVRC2012_val_{label}{i}.JPEG", pixels)
            for corruption in CORRUPTIONS:
                for severity in (1, 5):
                    spoilt = np.full((224, 224, 3), 40 * severity + label, dtype=np.uint8)
                    name = f"ILSVRC2012_val_{label}{i}.JPEG"
                    save(data / "imagenet-c" / corruption / str(severity) / wnid / name, spoilt)
    wrong = root / "train" / WNIDS[2] / f"{WNIDS[2]}_005.JPEG"
    Image.fromarray(picture(7)).save(wrong, format="PNG")
    save(data / "imagenet-o" / "n01531178" / "a.JPEG", picture(1))
    save(data / "inaturalist" / "images" / "b.jpg", picture(2))
    save(data / "dtd" / "images" / "banded" / "c.jpg", picture(3))
    save(data / "dtd" / "images" / "woven" / "d.jpg", picture(4))
    return data


def imagenet(data, **options):
    values = {"size": 32, "validation": 2, "severities": (1, 5), **options}
    return load_task(TaskSpec(name="imagenet", options=values), data)


def refusal(data, **options):
    with pytest.raises(UserError) as caught:
        imagenet(data, **options)
    line = str(caught.value)
    assert "\n" not in line
    return line


def copy_of(data, folder):
    """The same files, linked, so that a test may change what lies where."""
    for path in data.rglob("*"):
        target = folder / path.relative_to(data)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)
    return folder


def view(image, size, resize):
    """torchvision's evaluation view."""
    return v2.Compose([v2.Resize(resize), v2.CenterCrop(size), v2.PILToTensor()])(image)


def reference(path, size, resize):
    with Image.open(path) as image:
        return view(image.convert("RGB"), size, resize)


def test_splits_and_classes(data):
    task = imagenet(data)
    assert task.class_names == WNIDS
    assert task.input_shape == (3, 32, 32)
    assert len(task.train) == 5 * (TRAIN - 2)
    assert torch.equal(torch.bincount(task.validation.labels), torch.full((5,), 2))
    assert torch.equal(torch.bincount(task.test.labels), torch.full((5,), VAL))
    trained, held = (set(split.inputs.names) for split in (task.train, task.validation))
    assert not trained & held
    assert len(trained | held) == 5 * TRAIN
    for split in (task.train, task.validation, task.test):
        for row, label in enumerate(split.labels.tolist()):
            assert split.inputs.path(row).parent.name == WNIDS[label]
    assert task.mean == (0.485, 0.456, 0.406)
    assert task.std == (0.229, 0.224, 0.225)


def test_which_images_are_held_out_depends_on_the_class_alone(data, tmp_path):
    whole = imagenet(data)
    fewer = copy_of(data, tmp_path)
    for part in ("imagenet/train", "imagenet/val"):
        for path in (fewer / part / WNIDS[1]).iterdir():
            path.unlink()
        (fewer / part / WNIDS[1]).rmdir()
    task = imagenet(fewer, shift="generated", corruptions=())
    assert len(task.class_names) == 4
    kept = [name for name in whole.validation.inputs.names if WNIDS[1].encode() not in name]
    assert task.validation.inputs.names.tolist() == kept


@pytest.mark.parametrize("size", [32, 40])
def test_evaluated_images_are_torchvisions(data, size):
    task = imagenet(data, size=size)
    for split in (task.test, task.train):
        images = split.inputs[:]
        assert images.dtype == torch.uint8
        for row in range(len(split)):
            expected = reference(split.inputs.path(row), size, round(size / 0.875))
            assert torch.equal(images[row], expected)


def test_grey_and_cmyk_become_rgb(data):
    task = imagenet(data)
    everything = [
        (split.inputs.path(row).name, split.inputs[row : row + 1][0])
        for split in (task.train, task.validation)
        for row in range(len(split))
    ]
    grey = [image for name, image in everything if name.endswith("_000.JPEG")]
    assert len(grey) == 5
    assert all(torch.equal(image[0], image[1]) for image in grey)
    for name, image in everything:
        if name.endswith("_001.JPEG"):
            label = WNIDS.index(name.partition("_")[0])
            original = Image.fromarray(picture(100 * label + 1, (43, 62)))
            error = (image.double() - view(original, 32, 37).double()).abs().mean()
            assert error < 5


def test_orientation_tags_are_not_applied(data, tmp_path):
    folder = copy_of(data, tmp_path)
    path = folder / "imagenet" / "val" / WNIDS[0] / "ILSVRC2012_val_00.JPEG"
    path.unlink()
    tags = Image.Exif()
    tags[0x0112] = 6
    save(path, picture(1000, (50, 60)), exif=tags)
    assert torch.equal(imagenet(folder).test.inputs[:], imagenet(data).test.inputs[:])


def test_published_corruptions_keep_order_and_pixels(data):
    task = imagenet(data, size=224)
    assert task.shift_origin == "official"
    assert {shift.corruption for shift in task.shifts} == set(CORRUPTIONS)
    assert any("imagenet-c has no folders for shot_noise" in note for note in task.notes)
    for shift in task.shifts:
        split = task.load_shift(shift)
        assert torch.equal(split.labels, task.test.labels)
        assert split.inputs.names.tolist() == task.test.inputs.names.tolist()
        colours = 40 * shift.severity + split.labels
        assert (split.inputs[:].long() - colours.view(-1, 1, 1, 1)).abs().max() <= 2
    path = split.inputs.path(0)
    with Image.open(path) as image:
        assert torch.equal(split.inputs[:1][0], v2.functional.pil_to_tensor(image))


@pytest.mark.parametrize("corruption", ["gaussian_noise", "glass_blur"])
def test_generated_corruptions_are_those_of_the_whole_split(data, corruption):
    task = imagenet(data, shift="generated", corruptions=(corruption,))
    assert task.shift_origin == "generated"
    split = task.load_shift(Shift(corruption, 5))
    expected = corrupt(task.test.inputs[:], corruption, 5)
    assert not torch.equal(expected, task.test.inputs[:])
    assert torch.equal(split.inputs[:], expected)
    assert torch.equal(split.inputs[7:13], expected[7:13])
    index = torch.tensor([3, 18, 4, 3])
    assert torch.equal(split.inputs[index], expected[index])


def test_outliers_that_are_there_and_notes_for_others(data):
    task = imagenet(data)
    assert task.outliers == (
        Outlier("imagenet_o", "near"),
        Outlier("inaturalist", "far"),
        Outlier("textures", "far"),
    )
    assert [note for note in task.notes if "openimage_o is left out" in note]
    split = task.load_outlier(Outlier("textures", "far"))
    assert split.labels.tolist() == [-1, -1]
    expected = reference(data / "dtd" / "images" / "banded" / "c.jpg", 32, 37)
    assert torch.equal(split.inputs[:1][0], expected)


def test_limits(data):
    task = imagenet(data, train_per_class=5, test_per_class=1)
    assert len(task.train) == 15
    assert len(task.test) == 5
    assert {name[-8:-5] for name in task.train.inputs.names} <= {b"%03d" % i for i in range(5)}
    assert len(task.load_shift(task.shifts[0])) == 5


def test_images_that_are_cut_off_are_named(data, tmp_path):
    folder = copy_of(data, tmp_path)
    path = folder / "imagenet" / "val" / WNIDS[1] / "ILSVRC2012_val_12.JPEG"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[: len(content) // 2])
    task = imagenet(folder)
    with pytest.raises(UserError, match=r"not a readable image: .*[Tt]runcated") as caught:
        task.test.inputs[:]
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["imagenet/val", "imagenet-c/fog/5"])
def test_classes_that_train_lacks_are_refused(data, tmp_path, place):
    folder = copy_of(data, tmp_path)
    save(folder / place / "n99999999" / "x.JPEG", picture(0))
    line = refusal(folder)
    assert "'n99999999'" in line
    assert str(folder / place) in line


def test_missing_folders_are_named(data, tmp_path):
    assert f"no folder {tmp_path / 'imagenet' / 'train'}" in refusal(tmp_path)
    folder = copy_of(data, tmp_path / "a")
    (folder / "imagenet-c" / "fog" / "5").rename(folder / "imagenet-c" / "fog" / "4")
    assert f"no folder {folder / 'imagenet-c' / 'fog' / '5'}" in refusal(folder)
    assert "no folder" in refusal(folder, shift="official", corruptions=("snow",))
    folder = copy_of(data, tmp_path / "b")
    (folder / "imagenet-c" / "fog" / "1" / WNIDS[3] / "ILSVRC2012_val_32.JPEG").unlink()
    task = imagenet(folder)
    with pytest.raises(UserError, match=r"no file .*ILSVRC2012_val_32\.JPEG"):
        task.load_shift(Shift("fog", 1))


def test_a_flat_validation_folder_is_refused(data, tmp_path):
    folder = copy_of(data, tmp_path)
    save(folder / "imagenet" / "val" / "ILSVRC2012_val_00000001.JPEG", picture(0))
    assert "torchvision.datasets.ImageNet" in refusal(folder)


def test_too_much_validation_is_refused(data):
    assert "validation=12" in refusal(data, validation=12)
    assert len(imagenet(data, validation=11).train) == 5


def test_empty_class_folders_are_refused(data, tmp_path):
    folder = copy_of(data, tmp_path)
    (folder / "imagenet" / "train" / "n00000001").mkdir()
    assert "no images in" in refusal(folder)
