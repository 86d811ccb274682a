import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from bench.data.augment import augment
from bench.data.batches import (
    DataOrder,
    Drawing,
    default_loaders,
    evaluation_batches,
    training_batches,
)
from bench.data.lazy import Corrupted, ImageFiles
from bench.data.task import Split
from bench.errors import UserError
from bench.seeding import derive_seed

COUNT, SIZE = 11, 24
CPU = torch.device("cpu")
ALL = slice(None)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    paths = []
    for i in range(COUNT):
        generator = np.random.default_rng(i)
        pixels = generator.integers(0, 256, (30 + i, 50 - 2 * i, 3), dtype=np.uint8)
        paths.append(folder / f"{i}.png")
        Image.fromarray(pixels).save(paths[-1])
    return ImageFiles.of(folder, paths, SIZE, 28, "task x")


@pytest.fixture(scope="module")
def split(files):
    return Split(files, torch.arange(COUNT))


def drawing(names=("resized_crop", "flip"), share=ALL, seed=0, network=0, size=4):
    return Drawing(seed, network, size, names, share)


def collect(split, plan, steps, loaders=0):
    source = training_batches(split.inputs, split.labels, plan, steps, loaders)
    return [source.batch(step) for step in steps]


def same(first, second):
    return all(
        torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])
        for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("loaders", [1, 2])
def test_loaders_change_no_byte(split, loaders):
    steps = range(7)
    here = collect(split, drawing(), steps)
    assert same(here, collect(split, drawing(), steps, loaders))
    # Samples are seen twice and more often: each time in another view.
    views = [image for images, labels in here for image in images[labels == 3]]
    assert len(views) > 1
    assert not torch.equal(views[0], views[1])


def test_a_training_goes_on_at_any_step(split):
    whole = collect(split, drawing(), range(6))
    assert same(whole[4:], collect(split, drawing(), range(4, 6), 2))


def test_batches_follow_the_order_of_resident_data(split):
    order = DataOrder(COUNT, 4, derive_seed(0, "order", 0))
    for step, (images, labels) in enumerate(collect(split, drawing(()), range(5))):
        assert torch.equal(labels, order.batch(step))
        # Without augmentation, the view is the evaluated one.
        assert torch.equal(images, split.inputs[labels])


def test_shares_make_the_whole(split):
    steps = range(3)
    whole = collect(split, drawing(), steps)
    parts = [collect(split, drawing(share=share), steps) for share in (slice(0, 2), slice(2, 4))]
    for (images, labels), first, second in zip(whole, *parts, strict=True):
        assert torch.equal(images, torch.cat([first[0], second[0]]))
        assert torch.equal(labels, torch.cat([first[1], second[1]]))


def test_shares_of_resident_data_make_the_whole(split):
    resident = Split(split.inputs[:], split.labels)
    names = ("crop", "flip")
    whole = collect(resident, drawing(names), range(3))
    parts = [
        collect(resident, drawing(names, share), range(3)) for share in (slice(0, 2), slice(2, 4))
    ]
    for (images, _), first, second in zip(whole, *parts, strict=True):
        assert torch.equal(images, torch.cat([first[0], second[0]]))


@pytest.mark.parametrize("change", [{"seed": 1}, {"network": 1}])
def test_seed_and_network_change_order_and_views(split, change):
    first, second = (
        torch.cat([images for images, _ in collect(split, plan, range(3))])
        for plan in (drawing(), drawing(**change))
    )
    assert not torch.equal(first, second)


def test_views_are_torchvisions_with_a_seed_of_their_own(files):
    index, draws = torch.tensor([5, 0, 5]), [11, 12, 13]
    crop = v2.RandomResizedCrop(SIZE, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
    expected = []
    for row, draw in zip(index.tolist(), draws, strict=True):
        with Image.open(files.path(row)) as image:
            torch.manual_seed(draw)
            pixels = v2.functional.pil_to_tensor(crop(image.convert("RGB")))
        expected.append(augment(pixels[None], ["flip"])[0])
    state = torch.get_rng_state()
    assert torch.equal(files.views(index, draws, ("resized_crop", "flip")), torch.stack(expected))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_generator_of_a_step_is_the_same_for_all_sources(split):
    resident = Split(split.inputs[:], split.labels)
    numbers = []
    for source, loaders in ((split, 0), (split, 2), (resident, 0)):
        collect(source, drawing(()), range(2), loaders)
        numbers.append(torch.rand(3))
    assert torch.equal(numbers[0], numbers[1])
    assert torch.equal(numbers[0], numbers[2])


def test_steps_out_of_order_are_refused(split):
    source = training_batches(split.inputs, split.labels, drawing(), range(3), 0)
    with pytest.raises(ValueError, match="step 0 is next, not 1"):
        source.batch(1)


def test_inputs_without_views_are_refused(split):
    spoilt = Corrupted(split.inputs, "contrast", 1)
    with pytest.raises(TypeError, match="no views"):
        training_batches(spoilt, split.labels, drawing(), range(3), 0)


@pytest.mark.parametrize("loaders", [0, 2])
@pytest.mark.parametrize("size", [1, 4, 11, 50])
def test_evaluation_sees_every_sample_once_in_order(split, size, loaders):
    batches = list(evaluation_batches(split, size, CPU, loaders))
    assert torch.equal(torch.cat([labels for _, labels in batches]), split.labels)
    assert torch.equal(torch.cat([images for images, _ in batches]), split.inputs[:])
    assert all(len(labels) == size for _, labels in batches[:-1])


def test_evaluation_of_resident_data(split):
    resident = Split(split.inputs[:], split.labels)
    batches = list(evaluation_batches(resident, 4, CPU, None))
    assert torch.equal(torch.cat([images for images, _ in batches]), resident.inputs)


@pytest.mark.parametrize("loaders", [0, 2])
def test_an_unreadable_file_is_one_line_from_any_process(tmp_path, files, loaders):
    good = files.path(0)
    bad = tmp_path / "bad.png"
    bad.write_bytes(good.read_bytes()[:900])
    (tmp_path / "good.png").write_bytes(good.read_bytes())
    inputs = ImageFiles.of(tmp_path, [tmp_path / "good.png", bad], SIZE, 28, "task x")
    split = Split(inputs, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(UserError) as caught:
        list(evaluation_batches(split, 1, CPU, loaders))
    assert str(caught.value).startswith(f"task x: {bad}: not a readable image")
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"bad\.png"):
        collect(split, drawing(size=2), range(1), loaders)


def test_indices_outside_are_refused(files):
    with pytest.raises(IndexError):
        files[torch.tensor([COUNT])]
    assert files[3:3].shape == (0, 3, SIZE, SIZE)


def test_a_cpu_reads_by_itself_unless_told():
    assert default_loaders(CPU) == 0
