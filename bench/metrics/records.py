"""Member logits to per-sample records: the one place where members are combined.

All in float64 and from log-softmax, so that no likelihood is lost to rounding before its logarithm
is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK = 2**21
"""Logits treated at a time; one float64 copy of them takes 16 MiB."""


def log_mean_probabilities(logits: Tensor) -> Tensor:
    """The ensemble's prediction: log of the members' mean probability.

    ``log p̄(k) = log (1/M) Σ_m softmax(logits_m)_k``, as a log-mean-exp over members
    (Lakshminarayanan et al., 2017).

    Args:
        logits: ``[B, M, K]``, floating point, finite.

    Returns:
        float64 ``[B, K]`` ≤ 0, on the logits' device (on the CPU where that has no float64).

    Raises:
        TypeError: the logits are not floating point.
        ValueError: the shape is wrong or a sample's logits are not finite (with its index).
    """
    chunks = _chunks(logits)
    return torch.cat([_log_mean_exp(_log_softmax(chunk, start)) for start, chunk in chunks])


def sample_records(
    logits: Tensor, labels: Tensor, temperature: float | None = None
) -> dict[str, Tensor]:
    """Everything that is stored of each sample.

    Args:
        logits: member logits ``[B, M, K]``, floating point, finite.
        labels: integers ``[B]`` in ``[0, K)``, or −1 for all samples where no label is known (OOD).
        temperature: fitted on the validation split; adds the calibrated columns.

    Returns:
        columns ``[B]`` (see `bench.metrics.definitions.COLUMNS`): int64 `label` and `prediction`,
        float64 all others. Columns that need a label are absent where none is known; those that
        compare members are absent for M = 1. On the logits' device (on the CPU where that has no
        float64).

    Raises:
        TypeError: the logits are not floating point or the labels not integers.
        ValueError: a shape is wrong, a sample's logits are not finite, a label is no class, or only
            some labels are known (with the sample's index); the temperature is not positive.
    """
    if temperature is not None and not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive, not {temperature}")
    chunks = _chunks(logits)
    labels = _checked_labels(labels, logits)
    parts = []
    for start, chunk in chunks:
        own = labels[start : start + len(chunk)].to(chunk.device)
        parts.append(_chunk_records(chunk, own, start, temperature))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _chunk_records(
    logits: Tensor, labels: Tensor, start: int, temperature: float | None
) -> dict[str, Tensor]:
    """`sample_records` of float64 logits ``[b, M, K]`` that fit in memory."""
    members = _log_softmax(logits, start)
    mean = _log_mean_exp(members)
    confidence, prediction = mean.max(dim=1)
    columns = {
        "label": labels,
        "prediction": prediction,
        "confidence": confidence.exp(),
        "entropy": _entropy(mean),
        "expected_entropy": _entropy(members).mean(dim=1),
        "max_logit": logits.mean(dim=1).amax(dim=1),
        "energy": -logits.logsumexp(dim=2).mean(dim=1),
    }
    known = bool(labels[0] >= 0)
    if known:
        columns |= _label_columns(mean, labels)
    if members.shape[1] > 1:
        columns |= _member_columns(members, columns)
    if temperature is not None:
        tempered = (mean / temperature).log_softmax(dim=1)
        columns["calibrated_confidence"] = tempered.amax(dim=1).clamp(max=0).exp()
        if known:
            columns["calibrated_log_likelihood"] = _at(tempered, labels)
    return columns


def _label_columns(mean: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """What needs the label, of log-probabilities ``[b, K]``."""
    error = mean.exp().scatter_add(1, labels[:, None], -torch.ones_like(mean[:, :1]))
    return {"log_likelihood": _at(mean, labels), "brier": error.square().sum(dim=1)}


def _member_columns(members: Tensor, columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """What compares members, of their log-probabilities ``[b, M, K]``, M > 1."""
    count = members.shape[1]
    pairs = count * (count - 1)
    votes = members.argmax(dim=2)
    differ = votes[:, :, None] != votes[:, None, :]
    found = {
        "mutual_information": (columns["entropy"] - columns["expected_entropy"]).clamp(min=0),
        "agreement": (votes == columns["prediction"][:, None]).double().mean(dim=1),
        "disagreement": differ.sum(dim=(1, 2)).double() / pairs,
        "pairwise_kl": _pairwise_kl(members),
    }
    if "log_likelihood" in columns:
        found["member_accuracy"] = (votes == columns["label"][:, None]).double().mean(dim=1)
    return found


def _pairwise_kl(members: Tensor) -> Tensor:
    """Mean of KL(p_i ‖ p_j) over ordered pairs, in sums over single members.

    Σ_ij KL(p_i ‖ p_j) = M Σ_i Σ_k p_i log p_i − Σ_k (Σ_i p_i)(Σ_j log p_j).
    """
    count = members.shape[1]
    probabilities = members.exp()
    own = count * (probabilities * members).sum(dim=(1, 2))
    cross = (probabilities.sum(dim=1) * members.sum(dim=1)).sum(dim=1)
    # Rounding may leave −1e-16 where members are equal.
    return ((own - cross) / (count * (count - 1))).clamp(min=0)


def _log_mean_exp(members: Tensor) -> Tensor:
    """Log-probabilities ``[b, M, K]`` to those of their mean ``[b, K]``."""
    # Rounding may leave 1e-16 where all members are certain.
    return (members.logsumexp(dim=1) - math.log(members.shape[1])).clamp(max=0)


def _entropy(log_probabilities: Tensor) -> Tensor:
    """Entropy in nats over the last dimension; a class of probability 0 adds nothing."""
    return -(log_probabilities.exp() * log_probabilities).sum(dim=-1)


def _at(values: Tensor, labels: Tensor) -> Tensor:
    """The value ``[b]`` of each row of ``[b, K]`` at its label."""
    return values.gather(1, labels[:, None])[:, 0]


def _log_softmax(logits: Tensor, start: int) -> Tensor:
    """Log-probabilities of each member; `start` is the index of the first sample."""
    members = logits.log_softmax(dim=2)
    bad = ~members.isfinite().all(dim=2).all(dim=1)
    if bad.any():
        sample = start + int(bad.int().argmax())
        raise ValueError(f"logits: sample {sample} is not finite")
    return members


def _chunks(logits: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Checked float64 logits in parts of about `CHUNK`, each with its first sample's index."""
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating point, not {logits.dtype}")
    if logits.ndim != 3 or logits.numel() == 0:
        raise ValueError(f"logits must be [B, M, K] with B, M, K >= 1, not {list(logits.shape)}")
    logits = logits.detach()
    if logits.device.type == "mps":  # it has no float64
        logits = logits.cpu()
    return _split(logits)


def _split(logits: Tensor) -> Iterator[tuple[int, Tensor]]:
    step = max(1, CHUNK // logits[0].numel())
    for start in range(0, len(logits), step):
        yield start, logits[start : start + step].double()


def _checked_labels(labels: Tensor, logits: Tensor) -> Tensor:
    """int64 labels that are all known classes or all −1."""
    samples, _, classes = logits.shape
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers, not {labels.dtype}")
    if labels.shape != (samples,):
        raise ValueError(f"labels must be [{samples}], not {list(labels.shape)}")
    bad = (labels < -1) | (labels >= classes)
    if bad.any():
        sample = int(bad.int().argmax())
        raise ValueError(
            f"labels: sample {sample} is {int(labels[sample])}, must be in [0, {classes}), or -1"
        )
    mixed = (labels < 0) != (labels[0] < 0)
    if mixed.any():
        sample = int(mixed.int().argmax())
        raise ValueError(f"labels: samples 0 and {sample} differ in whether their label is known")
    return labels.long()
