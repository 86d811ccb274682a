import itertools

import pytest
import torch
from torch import nn

from bench.budget import Plan
from bench.data.batches import DataOrder
from bench.data.task import Split, Task
from bench.method import Method
from bench.optimise import (
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    schedule_factor,
    set_learning_rate,
)
from bench.recipe import Recipe
from bench.step import train_step
from bench.training import NonFiniteLoss, Session, train

SAMPLES = 70


class Heads(nn.Module):
    """M small networks that share nothing but their input; separable."""

    def __init__(self, members, classes=3):
        super().__init__()
        self.bodies = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(1, 4, 3),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(16, classes),
            )
            for _ in range(members)
        )

    def forward(self, x, members=None):
        chosen = self.bodies if members is None else self.bodies[members]
        return torch.stack([body(x) for body in chosen], dim=1)


class Separate(Method):
    name = "separate"
    separable = True
    members: int = 3

    def build(self, backbone, num_classes):
        return Heads(self.members, num_classes)

    def penalty(self, model):
        return 1e-3 * sum(parameter.square().sum() for parameter in model.parameters())


def make_task():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (SAMPLES, 1, 4, 4), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(0, 3, (SAMPLES,), generator=generator))
    return Task(
        name="noise",
        class_names=("a", "b", "c"),
        train=split,
        validation=split,
        test=split,
        mean=(0.5,),
        std=(0.3,),
        shifts=(),
        shift_origin="generated",
        outliers=(),
        load_shift=lambda shift: split,
        load_outlier=lambda outlier: split,
    )


def session(folder, report=lambda tick: None, *, chunk=3, steps=40, seconds=1e9, **recipe):
    torch.manual_seed(1)
    task = make_task()
    values = {"batch_size": 16, "learning_rate": 0.05, "augment": ("shift", "flip"), **recipe}
    return Session(
        model=Heads(3),
        method=Separate(),
        task=task,
        recipe=Recipe(**values),
        plan=Plan(1, steps, 1, 1.0, 1.0, chunk),
        seed=0,
        network=0,
        inputs=task.train.inputs,
        labels=task.train.labels,
        checkpoint=folder / "network-0.safetensors",
        checkpoint_seconds=seconds,
        report=report,
        note=lambda text: None,
        resumed=lambda step: None,
    )


class Killed(BaseException):
    pass


def kill_at(step):
    def report(tick):
        if tick.step == step:
            raise Killed

    return report


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_resumed_training_ends_with_the_same_bits(tmp_path, optimizer):
    whole = session(tmp_path / "whole", optimizer=optimizer)
    train(whole)
    # A checkpoint after every step, then deaths at many moments.
    for step in (1, 2, 3, 17, 18, 31, 39):
        job = session(tmp_path / "cut", kill_at(step), seconds=0, optimizer=optimizer)
        with pytest.raises(Killed):
            train(job)
    last = session(tmp_path / "cut", seconds=0, optimizer=optimizer)
    started = []
    last.resumed = started.append
    train(last)
    assert started == [38]
    expected = state_of(whole.model)
    assert all(torch.equal(expected[name], value) for name, value in state_of(last.model).items())


def test_a_damaged_checkpoint_is_named_and_the_network_starts_anew(tmp_path):
    with pytest.raises(Killed):
        train(session(tmp_path, kill_at(20), seconds=0))
    path = tmp_path / "network-0.safetensors"
    path.write_bytes(path.read_bytes()[:-7])
    job = session(tmp_path)
    notes = []
    job.note = notes.append
    train(job)
    assert len(notes) == 1
    assert "network-0.safetensors" in notes[0]
    whole = session(tmp_path / "whole")
    train(whole)
    expected = state_of(whole.model)
    assert all(torch.equal(expected[name], value) for name, value in state_of(job.model).items())


def test_a_finished_network_is_not_trained_again(tmp_path):
    job = session(tmp_path)
    seconds = train(job)
    again = session(tmp_path, kill_at(1))
    assert train(again) == seconds
    first, second = state_of(job.model), state_of(again.model)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_member_chunks_give_the_same_gradients(chunk):
    torch.manual_seed(0)
    whole, parts = Heads(3).double(), Heads(3).double()
    parts.load_state_dict(whole.state_dict())
    inputs, target = torch.randn(9, 1, 4, 4).double(), torch.arange(9) % 3
    recipe = Recipe(momentum=0, weight_decay=0)
    losses = []
    for model, size in ((whole, 0), (parts, chunk)):
        optimizer = make_optimizer(Separate(), model, recipe)
        losses.append(train_step(model, Separate(), optimizer, inputs, target, recipe, size))
    torch.testing.assert_close(losses[0], losses[1])
    for first, second in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(first.grad, second.grad)
    for first, second in zip(whole.buffers(), parts.buffers(), strict=True):
        torch.testing.assert_close(first, second)


class Normless(Separate):
    name = "normless"

    def build(self, backbone, num_classes):
        model = Heads(self.members, num_classes)
        for body in model.bodies:
            body[1] = nn.GroupNorm(2, 4)
        return model


@pytest.mark.parametrize("clip", [None, 1e-2])
@pytest.mark.parametrize("chunk", [0, 1, 2])
@pytest.mark.parametrize("parts", [2, 3, 4, 9])
def test_accumulated_gradients_are_those_of_the_whole_batch(parts, chunk, clip):
    torch.manual_seed(0)
    method = Normless()
    whole, divided = method.build(None, 3).double(), method.build(None, 3).double()
    divided.load_state_dict(whole.state_dict())
    inputs, target = torch.randn(9, 1, 4, 4).double(), torch.arange(9) % 3
    losses = []
    for model, accumulate, size in ((whole, 1, 0), (divided, parts, chunk)):
        recipe = Recipe(momentum=0, weight_decay=0, accumulate=accumulate, gradient_clip=clip)
        optimizer = make_optimizer(method, model, recipe)
        losses.append(train_step(model, method, optimizer, inputs, target, recipe, size))
    torch.testing.assert_close(losses[0], losses[1])
    for first, second in zip(whole.parameters(), divided.parameters(), strict=True):
        assert first.grad.abs().max() > 0
        torch.testing.assert_close(first.grad, second.grad)


def test_accumulation_holds_one_part_at_a_time():
    """Batch norm sees the parts, and the sizes of parts differ by one at most."""
    sizes = []
    model = Heads(1)
    model.bodies[0][1].register_forward_hook(lambda layer, args, out: sizes.append(len(out)))
    recipe = Recipe(accumulate=4)
    method = Separate(members=1)
    optimizer = make_optimizer(method, model, recipe)
    inputs, target = torch.randn(10, 1, 4, 4), torch.arange(10) % 3
    train_step(model, method, optimizer, inputs, target, recipe, 0)
    assert sizes == [3, 3, 2, 2]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"batch_size": 10, "devices": 4}, "batch_size=10 can't be shared evenly by devices=4: 8"),
        ({"batch_size": 2, "devices": 4}, "batch_size=2 can't be shared evenly by devices=4: 4"),
        ({"batch_size": 8, "accumulate": 9}, "accumulate=9: a device has only 8 samples"),
        ({"batch_size": 8, "devices": 4, "accumulate": 3}, "accumulate=3: a device has only 2"),
    ],
)
def test_batches_that_cannot_be_divided_are_refused(values, line):
    with pytest.raises(ValueError, match=line):
        Recipe(**values)


def test_the_default_loss_is_the_sum_over_members():
    logits, target = torch.randn(6, 3, 4).double(), torch.tensor([0, 1, 2, 3, 0, 1])
    expected = sum(nn.functional.cross_entropy(logits[:, m], target) for m in range(3))
    torch.testing.assert_close(Separate().loss(nn.Identity(), logits, target), expected)


def test_a_loss_that_is_no_number_stops_with_step_and_rate(tmp_path):
    job = session(tmp_path, learning_rate=1e30, gradient_clip=None)
    with pytest.raises(NonFiniteLoss, match=r"step \d+, learning rate .*gradient_clip"):
        train(job)


class Copies(nn.Module):
    """One linear map whose logits count as those of M members."""

    def __init__(self, members):
        super().__init__()
        self.members = members
        self.linear = nn.Linear(16, 3)

    def forward(self, x, members=None):
        count = len(range(self.members)[members or slice(None)])
        return self.linear(x.flatten(1)).unsqueeze(1).expand(-1, count, -1)


class Agreeing(Method):
    name = "agreeing"
    separable = True

    def build(self, backbone, num_classes):
        return Copies(self.members)


@pytest.mark.parametrize(("members", "chunk"), [(4, 0), (4, 1), (4, 3)])
def test_clipping_is_as_lax_for_members_as_for_one_network(members, chunk):
    recipe = Recipe(gradient_clip=0.01, momentum=0, weight_decay=0, learning_rate=1.0)
    inputs, target = torch.randn(8, 1, 4, 4), torch.arange(8) % 3

    def moved(count, size):
        torch.manual_seed(0)
        method, model = Agreeing(members=count), Copies(count)
        before = model.linear.weight.detach().clone()
        train_step(
            model, method, make_optimizer(method, model, recipe), inputs, target, recipe, size
        )
        return model.linear.weight.detach() - before

    alone = moved(1, 0)
    assert 0 < alone.norm() <= 0.01
    # As without clipping, the sum over members steps as far as its members one after the other.
    torch.testing.assert_close(moved(members, chunk), members * alone)


def test_every_sample_is_seen_equally_often():
    order = DataOrder(10, 4, seed=3)
    seen = torch.cat([order.batch(step) for step in range(5)])
    for epoch in range(2):
        assert sorted(seen[epoch * 10 : (epoch + 1) * 10].tolist()) == list(range(10))
    assert not torch.equal(seen[:10], seen[10:])


@pytest.mark.parametrize(("samples", "batch_size"), [(10, 4), (3, 8), (7, 7), (1, 5)])
def test_a_batch_depends_on_seed_and_step_alone(samples, batch_size):
    order = DataOrder(samples, batch_size, seed=3)
    forwards = [order.batch(step) for step in range(6)]
    fresh = [DataOrder(samples, batch_size, seed=3).batch(step) for step in range(6)]
    assert all(torch.equal(a, b) for a, b in zip(forwards, fresh, strict=True))
    assert all(len(batch) == batch_size for batch in forwards)
    if samples > 3:
        other = [DataOrder(samples, batch_size, seed=4).batch(step) for step in range(6)]
        assert not all(torch.equal(a, b) for a, b in zip(forwards, other, strict=True))


def test_epoch_ends_are_reported_once_each(tmp_path):
    ticks = []
    train(session(tmp_path, ticks.append, steps=18))
    ends = [tick.step for tick in ticks if tick.epoch_end]
    # 70 samples, 16 a step: epochs end within steps 5, 9, 14 and 18.
    assert ends == [5, 9, 14, 18]
    assert [tick.step for tick in ticks] == list(range(1, 19))
    assert ticks[-1].epoch == pytest.approx(18 * 16 / 70)


def test_schedule():
    recipe = Recipe(warmup=0.1)
    rates = [schedule_factor(recipe, step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert rates[10] == 1
    assert all(a > b > 0 for a, b in itertools.pairwise(rates[10:]))
    assert rates[55] == pytest.approx(0.5)
    assert schedule_factor(Recipe(schedule="constant", warmup=0), 99, 100) == 1
    assert schedule_factor(Recipe(), 0, 1) == 1


class Forgetful(Separate):
    name = "forgetful"

    def parameter_groups(self, model, recipe):
        return [{"params": list(model.bodies[0].parameters())}]


class Doubled(Separate):
    name = "doubled"

    def parameter_groups(self, model, recipe):
        return [{"params": model.parameters()}, {"params": [model.bodies[0][0].weight]}]


def test_parameter_groups_are_checked():
    with pytest.raises(ValueError, match=r"bodies\.1\.0\.weight"):
        make_optimizer(Forgetful(), Heads(3), Recipe())
    with pytest.raises(ValueError, match=r"more than one|two groups"):
        make_optimizer(Doubled(), Heads(3), Recipe())


def test_groups_keep_their_own_peak_rate():
    class Split(Separate):
        name = "split"

        def parameter_groups(self, model, recipe):
            first, *rest = model.parameters()
            return [{"params": [first], "lr": 1.0, "weight_decay": 0.0}, {"params": rest}]

    optimizer = make_optimizer(Split(), Heads(3), Recipe(learning_rate=0.1))
    set_learning_rate(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.05]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.0, 5e-4]


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_optimizer_state_round_trip(name):
    def make():
        torch.manual_seed(0)
        model = Heads(2)
        return model, make_optimizer(Separate(members=2), model, Recipe(optimizer=name))

    def step(model, optimizer, seed):
        torch.manual_seed(seed)
        model(torch.randn(8, 1, 4, 4)).square().sum().backward()
        optimizer.step()

    first, first_optimizer = make()
    step(first, first_optimizer, 1)
    second, second_optimizer = make()
    second.load_state_dict(first.state_dict())
    restore_optimizer(second_optimizer, optimizer_tensors(first_optimizer))
    for model, optimizer in ((first, first_optimizer), (second, second_optimizer)):
        optimizer.zero_grad()
        step(model, optimizer, 2)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_of_another_model_is_named_and_the_network_starts_anew(tmp_path):
    with pytest.raises(Killed):
        train(session(tmp_path, kill_at(20), seconds=0))
    job = session(tmp_path)
    job.model = nn.Sequential(job.model, nn.Identity())
    notes, started = [], []
    job.note, job.resumed = notes.append, started.append
    train(job)
    assert started == [0]
    assert "network-0.safetensors: of another model" in notes[0]
