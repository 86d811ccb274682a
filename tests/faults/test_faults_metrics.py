"""Any records at all: every metric is finite, or refuses them as it is documented to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.metrics.calibration import adaptive_ece, classwise_bins, classwise_ece, ece, mce
from bench.metrics.detection import detection_metrics
from bench.metrics.records import log_mean_probabilities, sample_records
from bench.metrics.selective import aurc, error_auroc, excess_aurc
from bench.metrics.smooth import smooth_ece
from bench.metrics.summary import summarise
from bench.metrics.temperature import fit_temperature

SCORES = (ece, mce, adaptive_ece, smooth_ece, aurc, excess_aurc, error_auroc)
REFUSALS = (ValueError, TypeError)

extremes = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e30, -1e30, 88.0, 1e5, 65504.0])
unusable = st.sampled_from([math.nan, math.inf, -math.inf])
dtypes = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])
sizes = st.integers(1, 4)


@st.composite
def logits(draw: st.DrawFn, good: bool) -> torch.Tensor:
    """``[B, M, K]`` of any type, often with ties; not all finite unless `good`."""
    shape = draw(st.tuples(st.integers(1, 6), sizes, sizes))
    kinds = [extremes, st.integers(-2, 2).map(float), st.floats(-50, 50)]
    kind = st.one_of(*kinds, *([] if good else [unusable]))
    count = math.prod(shape)
    values = draw(st.lists(kind, min_size=count, max_size=count))
    found = torch.tensor(values, dtype=torch.float64).reshape(shape).to(draw(dtypes))
    return found.nan_to_num() if good else found


def numbers(content: Any) -> Iterator[float]:
    """Every number in nested mappings and lists."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        for one in content:
            yield from numbers(one)
    elif isinstance(content, int | float):
        yield content


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_finite_logits_have_finite_scores(data: st.DataObject) -> None:
    """From logits to the content of `metrics.json`, the splits alike."""
    given_logits = data.draw(logits(good=True))
    samples, _, classes = given_logits.shape
    one = st.integers(0, classes - 1)
    labels = torch.tensor(data.draw(st.lists(one, min_size=samples, max_size=samples)))
    mean = log_mean_probabilities(given_logits)
    temperature = fit_temperature(mean.numpy(), labels.numpy())
    known = sample_records(given_logits, labels, temperature)
    unknown = sample_records(given_logits, torch.full_like(labels, -1), temperature)
    split = {name: column.numpy() for name, column in known.items()}
    outside = {name: column.numpy() for name, column in unknown.items()}
    names = np.array(["far"] * samples, dtype=object)
    found = summarise(
        {
            "validation": split,
            "test": split,
            "shift": {**split, "corruption": names, "severity": np.ones(samples)},
            "ood": {**outside, "source": names, "distance": names},
            "classwise": {"test": classwise_bins(mean.exp().numpy(), labels.numpy())},
            "temperature": temperature,
        }
    )
    assert all(math.isfinite(number) for number in numbers(found))
    for name in ("accuracy", "ece", "adaptive_ece", "smooth_ece", "mce", "classwise_ece", "aurc"):
        assert -1e-12 <= found["test"][name] <= 1 + 1e-12, name


@given(given_logits=logits(good=False), label=st.integers(-3, 5), data=st.data())
@settings(max_examples=80, deadline=None)
def test_other_logits_are_refused_or_recorded_as_they_are(
    given_logits: torch.Tensor, label: int, data: st.DataObject
) -> None:
    labels = torch.full((data.draw(st.integers(0, 6)),), label)
    try:
        found = sample_records(given_logits, labels)
    except REFUSALS as refusal:
        said = str(refusal)
        assert said.startswith(("logits", "labels"))
        return
    assert len(labels) == len(given_logits)
    assert -1 <= label < given_logits.shape[2]
    assert all(column.isfinite().all() for column in found.values())


shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
entries = st.one_of(
    st.floats(0, 1), extremes, unusable, st.integers(-1, 2), st.booleans(), st.none(), st.text()
)


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """An array of any shape and type, or a list of anything."""
    if draw(st.booleans()):
        return draw(st.lists(entries, max_size=5))
    shape = draw(shapes)
    count = math.prod(shape)
    values = draw(st.lists(st.floats(0, 1) | extremes | unusable, min_size=count, max_size=count))
    kind = draw(st.sampled_from([np.float64, np.float32, np.float16, object]))
    with np.errstate(over="ignore"):
        return np.array(values, dtype=np.float64).reshape(shape).astype(kind)


@given(first=arrays(), second=arrays(), rights=st.lists(st.booleans(), max_size=5))
@settings(max_examples=150, deadline=None)
def test_any_arrays_are_scored_or_refused(first: Any, second: Any, rights: list[bool]) -> None:
    pairs = ((first, second), (first, rights), (first, np.zeros(np.shape(first)[:1] or 1)))
    for score in (*SCORES, classwise_ece, fit_temperature, detection_metrics):
        for pair in pairs:
            try:
                found = score(*pair)  # type: ignore[operator]
            except REFUSALS:
                continue
            assert all(math.isfinite(number) for number in numbers(found)), score
