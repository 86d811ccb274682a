import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import two_ranks
from torch.nn import functional

from bench import distributed
from bench.data.batches import DataOrder
from bench.distributed import RankFailed, check_devices, train_together
from bench.errors import UserError
from bench.files import read_json
from bench.recipe import Recipe
from bench.registry import load_plugin
from bench.runner import Options, Reporter, perform
from bench.seeding import derive_seed
from bench.sessions import Hearing
from bench.store import SuiteFolder
from bench.suite_files import load_suite
from bench.weights import load_tensors

HERE = Path(__file__).parent
CPU = torch.device("cpu")


def environment():
    paths = [str(HERE.parent.parent), *sys.path]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder with what two processes made of every scenario."""
    folder = tmp_path_factory.mktemp("ranks")
    script = str(HERE / "two_ranks.py")
    ranks = [
        subprocess.Popen([sys.executable, script, str(rank), str(folder)], env=environment())
        for rank in range(2)
    ]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    return folder


def of_rank(two, name, rank):
    return load_tensors(two / f"{name}-{rank}.safetensors")[0]


@pytest.mark.parametrize("name", two_ranks.SCENARIOS)
def test_both_processes_end_with_the_same_model(two, name):
    first, second = of_rank(two, name, 0), of_rank(two, name, 1)
    assert all(torch.equal(value, second[key]) for key, value in first.items())
    stored = load_tensors(two / "checkpoints" / f"{name}.safetensors")[0]
    weights = {key[6:]: value for key, value in stored.items() if key.startswith("model.")}
    assert weights.keys() | {"losses"} == first.keys()
    assert all(torch.equal(first[key], value) for key, value in weights.items())


@pytest.mark.parametrize("name", [name for name in two_ranks.SCENARIOS if name != "batch"])
def test_two_processes_do_as_one_where_norms_see_single_samples(two, name, tmp_path):
    # In one process, whole batches and all members at once: neither may matter.
    alone = two_ranks.run(name, tmp_path, accumulate=1)
    job = two_ranks.make_session(name, tmp_path / "start", two_ranks.ALONE)
    start = job.model.state_dict()
    assert any((alone[key] - value).abs().max() > 1e-3 for key, value in start.items())
    together = of_rank(two, name, 0)
    assert together.keys() == alone.keys()
    # Losses are sums over members, and of the size of ten.
    torch.testing.assert_close(together.pop("losses"), alone.pop("losses"), rtol=1e-6, atol=1e-6)
    for key, value in alone.items():
        torch.testing.assert_close(together[key], value, rtol=0, atol=1e-6)


def test_batch_norm_by_a_plain_loop_over_two_halves(two):
    """Each half has batch statistics of its own; gradients and running statistics are means."""
    task = two_ranks.make_task()
    torch.manual_seed(1)
    halves = [two_ranks.network("batch")]
    halves.append(two_ranks.network("batch"))
    halves[1].load_state_dict(halves[0].state_dict())
    momentum = [torch.zeros_like(parameter) for parameter in halves[0].parameters()]
    order = DataOrder(two_ranks.SAMPLES, 8, derive_seed(0, "order", 0))
    recipe = Recipe()
    for step in range(two_ranks.STEPS):
        index = order.batch(step)
        rate = 0.05 * 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / two_ranks.STEPS)))
        for half, part in zip(halves, index.split(4), strict=True):
            half.zero_grad()
            images = (task.train.inputs[part].float() / 255 - 0.5) / 0.3
            functional.cross_entropy(half(images), task.train.labels[part]).backward()
        pairs = zip(halves[0].parameters(), halves[1].parameters(), strict=True)
        with torch.no_grad():
            for velocity, (first, second) in zip(momentum, pairs, strict=True):
                gradient = (first.grad + second.grad) / 2 + recipe.weight_decay * first
                velocity.mul_(0.9).add_(gradient)
                first -= rate * (gradient + 0.9 * velocity)
                second.copy_(first)
    found = of_rank(two, "batch", 0)
    states = [half.state_dict() for half in halves]
    assert len(found) == len(states[0]) + 1
    for key in states[0]:
        (name,) = [name for name in found if name.endswith(f".{key}")]
        expected = (states[0][key] + states[1][key]) / 2
        torch.testing.assert_close(found[name].float(), expected.float(), rtol=0, atol=1e-6)
    assert not torch.allclose(states[0]["1.running_mean"], states[1]["1.running_mean"], atol=1e-3)


def test_an_interrupted_training_ends_with_the_same_bits(two):
    """Each process goes on with running statistics of its own."""
    whole = of_rank(two, "batch", 0)
    for rank in range(2):
        again = of_rank(two, "resumed", rank)
        assert again.pop("started").tolist() == [0, 2]
        assert again.keys() == whole.keys() - {"losses"}
        assert all(torch.equal(value, whole[key]) for key, value in again.items())


SUITE = """
name: small
tasks: [{name: digits, corruptions: [], severities: [1]}]
backbones: [resnet8]
methods: [METHOD]
seeds: [0]
budget: {match: epochs, epochs: 1}
recipe: {batch_size: 16, augment: [shift], devices: 2, accumulate: 2}
evaluation: {outliers: false}
"""

UNLUCKY = '''
import os
from pathlib import Path
from baselines.single import Single

CALLS = []

class Unlucky(Single):
    """Fails in the sixth step, on the second device alone, while a file is there."""
    name = "unlucky"

    def penalty(self, model):
        CALLS.append(1)
        if os.environ["LOCAL_RANK"] == "1" and len(CALLS) == 6 and Path("MARK").exists():
            raise ValueError("bad luck")
        return None
'''


def write_suite(folder, method):
    path = folder / "small.yaml"
    path.write_text(SUITE.replace("METHOD", method))
    return load_suite(str(path))


def test_a_run_fails_with_its_process_and_goes_on_where_it_was(tmp_path):
    plugin, mark = tmp_path / "unlucky.py", tmp_path / "mark"
    plugin.write_text(UNLUCKY.replace("MARK", str(mark)))
    load_plugin(plugin)
    (spec,) = write_suite(tmp_path, "unlucky").runs()
    folder = SuiteFolder(tmp_path, "small").run(spec)
    ticks = []
    report = Reporter(tick=ticks.append, stage=lambda text: None, note=lambda text: None)
    options = Options(Path("nowhere"), CPU, 0.0)
    mark.touch()
    line = "RankFailed: device 2 of 2: ValueError: bad luck"
    assert perform(spec, folder, options, report) == ("failed", line)
    assert folder.state() == ("failed", line)
    assert "in penalty" in read_json(folder.path / "failure.json")["traceback"]
    assert [tick.step for tick in ticks] == [1, 2, 3, 4, 5]
    mark.unlink()
    ticks.clear()
    assert perform(spec, folder, options, report) == ("done", "")
    assert ticks[0].step in (5, 6)
    metrics = folder.metrics()
    assert metrics["cost"]["devices"] == 2
    assert metrics["cost"]["device_seconds"] == pytest.approx(2 * ticks[-1].seconds)
    assert metrics["cost"]["peak_memory_bytes"] > 1e6


# The processes of `train_together`, with other lives than training.
LIVES = """
import json, os, signal, sys, time
job = json.loads(sys.stdin.readline())
def say(**message):
    print(json.dumps(message), flush=True)
{life}
"""
DONE = 'say(kind="done", seconds=2.5, peak_memory=job["rank"] + 7)'
FAILED = 'say(kind="failed", text="E: lost {0}", traceback="t", time={0})'
STUCK = "time.sleep(600)"


def live(monkeypatch, tmp_path, first, second, hearing=None):
    body = "\n".join(f"    {line}" for line in first.splitlines())
    life = f"if job['rank'] == 0:\n{body}\nelse:\n"
    life += "\n".join(f"    {line}" for line in second.splitlines())
    monkeypatch.setattr(distributed, "_START", LIVES.format(life=life))
    monkeypatch.setattr(distributed, "GRACE_SECONDS", 0.5)
    (spec,) = write_suite(tmp_path, "single").runs()
    plan = two_ranks.Plan(1, 1, 1, 1.0, 1.0, 0)
    options = Options(Path("nowhere"), CPU)
    quiet = Hearing(lambda tick: None, lambda text: None, lambda step: None)
    start = time.monotonic()
    try:
        return train_together(spec, plan, 0, options, tmp_path / "c", hearing or quiet)
    finally:
        assert time.monotonic() - start < 20


def test_messages_are_passed_on(monkeypatch, tmp_path):
    heard = []
    hearing = Hearing(heard.append, heard.append, heard.append)
    talk = f'say(kind="resumed", step=3)\nsay(kind="note", text="hm")\n{DONE}'
    trained = live(monkeypatch, tmp_path, talk, DONE, hearing)
    assert heard == [3, "hm"]
    assert (trained.seconds, trained.peak_memory) == (2.5, 8)


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        (STUCK, FAILED.format(2), "device 2 of 2: E: lost 2"),
        (FAILED.format(1), FAILED.format(2), "device 1 of 2: E: lost 1"),
        (FAILED.format(2), FAILED.format(1), "device 2 of 2: E: lost 1"),
        (
            STUCK,
            "os.kill(os.getpid(), signal.SIGKILL)",
            r"device 2 of 2: the process died \(SIGKILL\)",
        ),
        (
            # A process that misses the other says so; the other's death is the cause.
            FAILED.format(1),
            "os.kill(os.getpid(), signal.SIGKILL)",
            r"device 2 of 2: the process died \(SIGKILL\)",
        ),
        (DONE, 'sys.exit("no room")', r"device 2 of 2: the process died \(exit code 1\): no room"),
    ],
)
def test_the_first_failure_is_told_and_nobody_hangs(monkeypatch, tmp_path, first, second, line):
    with pytest.raises(RankFailed, match=line):
        live(monkeypatch, tmp_path, first, second)


def test_processes_leave_with_the_one_that_started_them(tmp_path):
    script = "from bench.distributed_rank import _leave_with_parent as leave; leave()"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, env=environment()
    )
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(timeout=60) == 1


def test_more_devices_than_there_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    check_devices(torch.device("cuda:0"), 4)
    check_devices(torch.device("cpu"), 4)
    with pytest.raises(UserError, match=r"recipe\.devices=4: from cuda:1 on there are 3 GPUs"):
        check_devices(torch.device("cuda:1"), 4)
