"""One run, from its specification to `metrics.json`."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from bench.backbones import backbone_digest
from bench.budget import Plan
from bench.combine import IndependentMembers
from bench.data.catalogue import load_task
from bench.data.task import Task
from bench.device import device_name, environment, peak_memory, reset_peak_memory
from bench.distributed import check_devices, train_together
from bench.errors import NotApplicable
from bench.evaluation import Evaluator
from bench.files import Damaged, read_json, stored_value, write_json, write_records
from bench.method import Method
from bench.metrics.summary import summarise
from bench.planning import build_network, check_recipe, make_plan
from bench.registry import method_class
from bench.run_facts import cost_facts, task_facts
from bench.sessions import Hearing, open_session, training_data
from bench.sessions import Options as Options
from bench.store import Progress, RunFolder
from bench.suite import RunSpec
from bench.training import Tick, checkpoint_weights, train
from bench.weights import load_tensors, save_tensors

Outcome = Literal["done", "failed", "not applicable"]


@dataclass(frozen=True)
class Reporter:
    """How a run tells where it is.

    Attributes:
        tick: training progress.
        stage: a line on what is done now.
        note: something a person should know: a damaged file that is redone, say.
    """

    tick: Callable[[Tick], None]
    stage: Callable[[str], None]
    note: Callable[[str], None]


def perform(
    spec: RunSpec, folder: RunFolder, options: Options, report: Reporter
) -> tuple[Outcome, str]:
    """Do a run, or what is left of it; a run that is done and whole is left alone.

    Returns:
        how it ended, and the error or reason when it isn't done.

    Raises:
        UserError: data or devices are missing, the recipe is not for such data, or pretrained
            weights are others than those that the run was begun with; nothing has been written
            then.
        bench.store.Busy: another process works on this run.
    """
    task = load_task(spec.task, options.data, spec.backbone)
    check_recipe(spec, task)
    check_devices(options.device, spec.recipe.devices)
    digest = backbone_digest(spec.backbone, options.data)
    with folder.lock():
        folder.check_backbone(digest)
        try:
            if folder.verify():
                return "done", ""
        except Damaged as damage:
            report.note(f"{damage}: redoing it")
            folder.metrics_path.unlink(missing_ok=True)
        try:
            found = {} if digest is None else {"backbone_digest": digest}
            folder.start(environment(options.device) | found)
            _Run(spec, folder, options, report, task).perform()
        except NotApplicable as reason:
            folder.refuse(str(reason))
            return "not applicable", str(reason)
        except (Exception, SystemExit) as error:
            return "failed", _keep_failure(folder, error)
        return "done", ""


def _keep_failure(folder: RunFolder, error: BaseException) -> str:
    """Store why a run failed; the line that says it, even when the disk takes nothing more."""
    line = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, OSError):
        line += ": mend that, then run again to go on from the last checkpoint"
    try:
        folder.fail(line, traceback.format_exc())
    except OSError as second:
        line += f" (and this could not be stored: {second})"
    return line


@dataclass
class _Run:
    spec: RunSpec
    folder: RunFolder
    options: Options
    report: Reporter
    task: Task

    def __post_init__(self) -> None:
        self.method: Method = method_class(self.spec.method)(**self.spec.parameters)
        self.progress = Progress(self.folder.path / "progress.jsonl")
        self.peak_elsewhere = 0

    def perform(self) -> None:
        fresh = reset_peak_memory(self.options.device)
        plan = self._plan()
        model, seconds = self._trained(plan)
        self._check_answer(model)
        cost = cost_facts(self.spec, self.method, model, self.task, plan, seconds)
        cost["device"] = device_name(self.options.device)
        evaluated = Evaluator(
            model,
            self.task,
            self.spec.evaluation,
            self.options.device,
            self.report.stage,
            _chunks(self.method, self.options.device),
            self.options.loaders,
        ).run()
        for split, records in evaluated.records.items():
            write_records(self.folder.records_path(split), records)
        scores = summarise(
            {
                **evaluated.records,
                "classwise": {"test": evaluated.records["classwise"]},
                "temperature": evaluated.temperature,
            }
        )
        cost["inference_images_per_second"] = evaluated.images_per_second
        if fresh:
            here = peak_memory(self.options.device)
            cost["peak_memory_bytes"] = max(here, self.peak_elsewhere)
        metrics = {
            "task": task_facts(self.task, model),
            **scores,
            "cost": cost,
            "method": self.method.facts(model),
        }
        self.folder.finish(metrics, list(evaluated.records))

    def _network(self, index: int) -> nn.Module:
        return build_network(self.spec, self.method, self.task, index, self.options.data)

    def _assemble(self, networks: list[nn.Module]) -> nn.Module:
        model = IndependentMembers(networks) if self.method.independent else networks[0]
        return model.to(self.options.device)

    @property
    def _count(self) -> int:
        return self.method.members if self.method.independent else 1

    def _plan(self) -> Plan:
        """The stored plan, so that a resumed run does what it set out to do, or a new one."""
        path = self.folder.path / "plan.json"
        try:
            return _stored_plan(path)
        except FileNotFoundError:
            self.report.stage("planning")
        except Damaged as damage:
            self.report.note(f"{damage}: planning anew")
        plan = make_plan(
            self.spec,
            self.method,
            self.task,
            self._network(0),
            self.options.device,
            self.options.data,
        )
        write_json(path, vars(plan))
        return plan

    def _trained(self, plan: Plan) -> tuple[nn.Module, float]:
        """The trained model and its seconds: from the folder when they are there, else trained."""
        try:
            tensors, _ = load_tensors(self.folder.model_path)
            seconds = float(stored_value(self.folder.path / "training.json", "seconds"))
        except FileNotFoundError:
            return self._train(plan)
        except Damaged as damage:
            self.report.note(f"{damage}: training anew")
            return self._train(plan)
        model = self._assemble([self._network(index) for index in range(self._count)])
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            line = str(error).splitlines()[0]
            path = self.folder.model_path
            self.report.note(f"{path}: other weights than the model has ({line}): training anew")
            return self._train(plan)
        return model, seconds

    def _train(self, plan: Plan) -> tuple[nn.Module, float]:
        train_one = self._train_together if self.spec.recipe.devices > 1 else self._train_here()
        networks: list[nn.Module] = []
        seconds = 0.0
        for index in range(plan.networks):
            model, spent = train_one(plan, index)
            seconds += spent
            networks.append(model)
        model = self._assemble(networks)
        write_json(self.folder.path / "training.json", {"seconds": seconds})
        # Its presence means «trained», so it is written last; nothing in it depends on the clock.
        save_tensors(self.folder.model_path, model.state_dict(), {})
        return model, seconds

    def _train_here(self) -> Callable[[Plan, int], tuple[nn.Module, float]]:
        """What trains a network in this process; the data go to the device once."""
        data = training_data(self.task, self.options.device)

        def train_one(plan: Plan, index: int) -> tuple[nn.Module, float]:
            session = open_session(
                self.spec,
                self.method,
                self.task,
                plan,
                index,
                data,
                self.options,
                self._checkpoint(index),
                self._hearing(index),
            )
            return session.model, train(session)

        return train_one

    def _train_together(self, plan: Plan, index: int) -> tuple[nn.Module, float]:
        """Train a network in processes of their own, one a device."""
        path = self._checkpoint(index)
        trained = train_together(self.spec, plan, index, self.options, path, self._hearing(index))
        self.peak_elsewhere = max(self.peak_elsewhere, trained.peak_memory)
        model = self._network(index)
        model.load_state_dict(checkpoint_weights(load_tensors(path)[0]))
        return model.to(self.options.device), trained.seconds

    def _checkpoint(self, index: int) -> Path:
        return self.folder.checkpoints / f"network-{index}.safetensors"

    def _hearing(self, index: int) -> Hearing:
        return Hearing(self._tick, self.report.note, partial(self.progress.rewind, index))

    def _tick(self, tick: Tick) -> None:
        if tick.epoch_end:
            self.progress.append(
                {key: value for key, value in vars(tick).items() if key != "epoch_end"}
            )
        self.report.tick(tick)

    def _check_answer(self, model: nn.Module) -> None:
        """Refuse a model whose answers are of the wrong size: scores of them would look right."""
        inputs = self.task.normalise(self.task.test.inputs[:2].to(self.options.device))
        with torch.inference_mode():
            logits = model.eval()(inputs)
        wanted = [len(inputs), self.method.members, self.task.num_classes]
        found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if found != wanted:
            raise ValueError(f"the model gives {found} at evaluation, not [B, M, K] = {wanted}")


def _chunks(method: Method, device: torch.device) -> tuple[slice, ...]:
    """One member after the other on a CPU, whose caches hold the activations of one; else all.

    With ResNet-8 and 500 images that is twice as fast as all four members of σN-Ens at once.
    """
    if device.type != "cpu" or not method.separable or method.independent:
        return ()
    return tuple(slice(member, member + 1) for member in range(method.members))


def _stored_plan(path: Path) -> Plan:
    """The plan that a run set out with.

    Raises:
        FileNotFoundError: there is none yet.
        Damaged: the file is not what was written, or another version wrote it.
    """
    content = read_json(path)
    try:
        return Plan(**content)
    except TypeError as error:
        raise Damaged(f"{path}: not a plan of this version ({error})") from None
