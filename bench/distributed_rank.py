"""One of the processes of `bench.distributed`: its life from start to end."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bench.ranks import Ranks

if TYPE_CHECKING:
    from lightning.fabric import Fabric

Say = Callable[[dict[str, Any]], None]


class FabricRanks(Ranks):
    """The processes of a Fabric.

    Gradients are averaged over processes in the last backward pass of a step, running statistics
    never: `bench.training` does that once, at the end.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rank = fabric.global_rank
        self.world = fabric.world_size
        self._model: nn.Module | None = None
        self._wrapped: nn.Module | None = None

    def forward(self, model: nn.Module) -> nn.Module:
        """The model in DistributedDataParallel."""
        if self._wrapped is None or self._model is not model:
            self._model, self._wrapped = model, self.fabric.setup_module(model)
        return self._wrapped

    def hold(self, forward: nn.Module, on: bool) -> AbstractContextManager[Any]:
        """`no_sync` of DistributedDataParallel, where `on`."""
        return self.fabric.no_backward_sync(forward, enabled=on)  # type: ignore[arg-type]

    def mean(self, values: Tensor) -> Tensor:
        """The mean over processes."""
        result = self.fabric.all_reduce(values.clone(), reduce_op="mean")
        assert isinstance(result, Tensor)
        return result

    def gather(self, values: Tensor) -> Tensor:
        """The values of all processes, ``[world, ...]``."""
        result = self.fabric.all_gather(values)
        assert isinstance(result, Tensor)
        return result


def join(rank: int, world: int, device: torch.device, meeting: Path) -> FabricRanks:
    """Meet the other processes.

    Args:
        rank: of this process.
        world: how many there are.
        device: the first that is used; process `rank` takes the one `rank` further on.
        meeting: a path at which nothing is yet, the same for all.
    """
    # Fabric then knows that it has no processes to start.
    os.environ["LOCAL_RANK"], os.environ["NODE_RANK"] = str(rank), "0"
    from lightning.fabric import Fabric
    from lightning.fabric.plugins.environments.lightning import LightningEnvironment
    from lightning.fabric.strategies.ddp import DDPStrategy

    on_gpu = device.type == "cuda"
    first = device.index or 0
    indices = list(range(first, first + world))
    if on_gpu:
        torch.cuda.set_device(indices[rank])
    backend = "nccl" if on_gpu else "gloo"
    # A file, since a port that is free now may be taken when it is needed.
    torch.distributed.init_process_group(
        backend, init_method=meeting.resolve().as_uri(), rank=rank, world_size=world
    )
    fabric = Fabric(
        accelerator="cuda" if on_gpu else "cpu",
        devices=indices if on_gpu else world,
        strategy=DDPStrategy(
            process_group_backend=backend,
            # A pass through some of the members uses no parameter of the others.
            find_unused_parameters=True,
            # Else the statistics of the first process would overwrite those of the others.
            broadcast_buffers=False,
        ),
        # Named, since Fabric would take over the tasks of a Slurm job.
        plugins=[LightningEnvironment()],
    )
    fabric.launch()
    return FabricRanks(fabric)


def main() -> None:
    """Read a job from the standard input, do it, and report on the standard output."""
    # Ctrl-C reaches all processes of a terminal; the one that started this decides for all.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGUSR2"):
        # Slurm sends its warning to every process of a job; the one that leads decides.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    channel = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    # What libraries print is no message.
    os.dup2(2, 1)
    job = json.loads(_line(0))
    threading.Thread(target=_leave_with_parent, daemon=True).start()

    def say(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")

    try:
        say({"kind": "done", **_perform(job, say)})
    except BaseException as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        trace = traceback.format_exc()
        say({"kind": "failed", "text": text, "traceback": trace, "time": time.time()})
        # The others may never answer again, and an orderly end would wait for them.
        os._exit(1)
    torch.distributed.destroy_process_group()


def _line(descriptor: int) -> bytes:
    """Up to the end of the line; no byte more is taken."""
    content = bytearray()
    while not content.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            os._exit(1)
        content += byte
    return bytes(content)


def _leave_with_parent() -> None:
    """End this process when the one that started it closes the pipe or is gone."""
    while os.read(0, 1):
        pass
    os._exit(1)


def _perform(job: dict[str, Any], say: Say) -> dict[str, Any]:
    """Train the network that the job names."""
    from bench.budget import Plan
    from bench.data.catalogue import load_task
    from bench.device import peak_memory, reset_peak_memory
    from bench.registry import load_plugin, method_class
    from bench.sessions import Hearing, Options, open_session, training_data
    from bench.suite import RunSpec
    from bench.training import train

    ranks = join(job["rank"], job["world"], torch.device(job["device"]), Path(job["meeting"]))
    device = ranks.fabric.device
    reset_peak_memory(device)
    if job["plugin"] is not None:
        load_plugin(Path(job["plugin"]))
    spec = RunSpec.model_validate(job["spec"])
    method = method_class(spec.method)(**spec.parameters)
    data = Path(job["data"])
    task = load_task(spec.task, data, spec.backbone)

    def tell(message: dict[str, Any]) -> None:
        if ranks.rank == 0:
            say(message)

    session = open_session(
        spec,
        method,
        task,
        Plan(**job["plan"]),
        job["network"],
        training_data(task, device),
        Options(data, device, job["checkpoint_seconds"], job["loaders"]),
        Path(job["checkpoint"]),
        Hearing(
            tick=lambda tick: tell({"kind": "tick", "tick": vars(tick)}),
            note=lambda text: tell({"kind": "note", "text": text}),
            resumed=lambda step: tell({"kind": "resumed", "step": step}),
        ),
        ranks,
    )
    seconds = train(session)
    return {"seconds": seconds, "peak_memory": peak_memory(device)}
