"""From a trained model to per-sample records of every split."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor, nn

from bench.data.batches import evaluation_batches
from bench.data.task import Inputs, Split, Task
from bench.device import now
from bench.metrics.calibration import add_classwise_bins, classwise_bins
from bench.metrics.records import log_mean_probabilities, sample_records
from bench.metrics.temperature import fit_temperature
from bench.recipe import Evaluation


@dataclass(frozen=True)
class Evaluated:
    """What evaluation gives.

    Attributes:
        records: per-sample records of ``validation``, ``test`` and, where the task has them,
            ``shift`` (with the columns corruption, severity) and ``ood`` (source, distance); and
            ``classwise``, the bins of the test split's probabilities, a row a class and bin.
        temperature: fitted on the validation split.
        images_per_second: of forward passes over the test split, measured.
    """

    records: dict[str, pd.DataFrame]
    temperature: float
    images_per_second: float


@dataclass
class Evaluator:
    """Asks a model about every split of a task, each sample once.

    Attributes:
        model: ``[B, C, H, W] -> [B, M, K]``, on the device.
        task: the splits.
        options: batch size and what to leave out.
        device: where the model is.
        report: called with a line that says what is evaluated now.
        chunks: parts of the members, asked one after the other, where the model takes
            ``members=slice``; none for all at once.
        loaders: processes that read images on disk ahead; None chooses.
    """

    model: nn.Module
    task: Task
    options: Evaluation
    device: torch.device
    report: Callable[[str], None]
    chunks: tuple[slice, ...] = ()
    loaders: int | None = None
    _seconds: float = field(default=0.0, init=False)

    def run(self) -> Evaluated:
        """Evaluate everything, the validation split first: it sets the temperature."""
        self.model.eval()
        self.report("validation")
        validation = list(self._logits(self.task.validation))
        temperature = self._temperature(validation)
        records = {"validation": _frame(sample_records(*part, temperature) for part in validation)}
        self.report("test")
        self._seconds = 0.0
        records |= self._test(temperature)
        speed = len(self.task.test) / max(self._seconds, 1e-9)
        if self.options.shifts and self.task.shifts:
            records["shift"] = pd.concat(list(self._shifts(temperature)), ignore_index=True)
        if self.options.outliers and self.task.outliers:
            records["ood"] = pd.concat(list(self._outliers(temperature)), ignore_index=True)
        return Evaluated(records, temperature, speed)

    def _temperature(self, validation: list[tuple[Tensor, Tensor]]) -> float:
        means = torch.cat([log_mean_probabilities(logits) for logits, _ in validation])
        return fit_temperature(means.cpu().numpy(), self.task.validation.labels.numpy())

    def _test(self, temperature: float) -> dict[str, pd.DataFrame]:
        """Records of the test split, and what classwise calibration needs, in one pass."""
        parts, bins = [], []
        for logits, labels in self._logits(self.task.test):
            parts.append(sample_records(logits, labels, temperature))
            mean = log_mean_probabilities(logits).exp()
            bins.append(classwise_bins(mean.cpu().numpy(), labels.cpu().numpy()))
        classwise = pd.DataFrame(functools.reduce(add_classwise_bins, bins))
        return {"test": _frame(parts), "classwise": classwise}

    def _shifts(self, temperature: float) -> Iterator[pd.DataFrame]:
        for shift in self.task.shifts:
            self.report(f"{shift.corruption}, severity {shift.severity}")
            frame = self._records(self.task.load_shift(shift), temperature)
            yield frame.assign(corruption=shift.corruption, severity=shift.severity)

    def _outliers(self, temperature: float) -> Iterator[pd.DataFrame]:
        for outlier in self.task.outliers:
            self.report(f"out of distribution: {outlier.name}")
            frame = self._records(self.task.load_outlier(outlier), temperature)
            yield frame.assign(source=outlier.name, distance=outlier.distance)

    def _records(self, split: Split[Inputs], temperature: float) -> pd.DataFrame:
        return _frame(sample_records(*part, temperature) for part in self._logits(split))

    @torch.inference_mode()
    def _logits(self, split: Split[Inputs]) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of logits ``[B, M, K]`` and labels ``[B]``, in order; the last may be small."""
        size = self.options.batch_size
        for inputs, labels in evaluation_batches(split, size, self.device, self.loaders):
            start = now(self.device)
            try:
                logits = self._predict(self.task.normalise(inputs)).float()
            except torch.OutOfMemoryError as error:
                raise RuntimeError(
                    f"out of device memory with evaluation.batch_size={size}: lower it"
                ) from error
            self._seconds += now(self.device) - start
            yield logits, labels

    def _predict(self, inputs: Tensor) -> Tensor:
        if self.chunks:
            return torch.cat([self.model(inputs, members=part) for part in self.chunks], dim=1)
        logits: Tensor = self.model(inputs)
        return logits


def _frame(parts: Iterable[dict[str, Tensor]]) -> pd.DataFrame:
    """Batches of records, one below the other, with the sample's index."""
    parts = list(parts)
    columns = {name: torch.cat([part[name] for part in parts]).cpu().numpy() for name in parts[0]}
    samples = len(next(iter(columns.values())))
    return pd.DataFrame({"index": range(samples), **columns})
