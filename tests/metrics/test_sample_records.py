"""Member logits to per-sample records, against plain float64 loops."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, rel_entr, softmax
from sklearn.metrics import accuracy_score, log_loss

from bench.metrics import records as module
from bench.metrics.definitions import COLUMNS
from bench.metrics.records import log_mean_probabilities, sample_records

MEMBERS_ONLY = {
    "mutual_information",
    "agreement",
    "disagreement",
    "pairwise_kl",
    "member_accuracy",
}
NEED_LABEL = {"log_likelihood", "brier", "member_accuracy", "calibrated_log_likelihood"}
NEED_TEMPERATURE = {"calibrated_log_likelihood", "calibrated_confidence"}


def draw(samples=10, members=4, classes=5, scale=3.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(samples, members, classes, generator=generator)
    return logits, torch.randint(0, classes, (samples,), generator=generator)


def entropy(probabilities):
    return -sum(p * math.log(p) for p in probabilities if p > 0)


def loop(logits, labels, temperature):
    """The definitions, one sample and one member at a time."""
    rows = []
    for sample, label in zip(logits.double().numpy(), labels.tolist(), strict=True):
        members = [softmax(one) for one in sample]
        mean = sum(members) / len(members)
        votes = [int(p.argmax()) for p in members]
        pairs = list(itertools.permutations(range(len(members)), 2))
        tempered = softmax(np.log(mean) / temperature)
        row = {
            "label": label,
            "prediction": int(mean.argmax()),
            "confidence": mean.max(),
            "log_likelihood": math.log(mean[label]),
            "entropy": entropy(mean),
            "expected_entropy": sum(map(entropy, members)) / len(members),
            "brier": sum((p - (k == label)) ** 2 for k, p in enumerate(mean)),
            "max_logit": (sum(sample) / len(sample)).max(),
            "energy": -sum(math.log(np.exp(one).sum()) for one in sample) / len(sample),
            "calibrated_log_likelihood": math.log(tempered[label]),
            "calibrated_confidence": tempered.max(),
        }
        if pairs:
            row |= {
                "mutual_information": row["entropy"] - row["expected_entropy"],
                "agreement": votes.count(row["prediction"]) / len(votes),
                "member_accuracy": votes.count(label) / len(votes),
                "disagreement": sum(votes[i] != votes[j] for i, j in pairs) / len(pairs),
                "pairwise_kl": sum(rel_entr(members[i], members[j]).sum() for i, j in pairs)
                / len(pairs),
            }
        rows.append(row)
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@pytest.mark.parametrize("members", [1, 2, 5])
@pytest.mark.parametrize("classes", [1, 2, 7])
def test_every_column_against_the_loop(members, classes):
    logits, labels = draw(12, members, classes)
    found = sample_records(logits, labels, temperature=1.7)
    expected = loop(logits, labels, 1.7)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(
            found[name].numpy(), values, rtol=1e-10, atol=1e-12, err_msg=name
        )


def test_dtypes_and_documented_names():
    found = sample_records(*draw(), temperature=2.0)
    assert found.keys() == COLUMNS.keys()
    for name, values in found.items():
        whole = name in {"label", "prediction"}
        assert values.dtype == (torch.int64 if whole else torch.float64), name
        assert values.shape == (10,)


@pytest.mark.parametrize(
    ("members", "known", "temperature"),
    list(itertools.product([1, 3], [True, False], [None, 1.5])),
)
def test_what_does_not_apply_is_absent(members, known, temperature):
    logits, labels = draw(4, members)
    labels = labels if known else torch.full_like(labels, -1)
    absent = set()
    if members == 1:
        absent |= MEMBERS_ONLY
    if not known:
        absent |= NEED_LABEL
    if temperature is None:
        absent |= NEED_TEMPERATURE
    found = sample_records(logits, labels, temperature)
    assert set(found) == set(COLUMNS) - absent


def test_columns_without_label_are_those_with_one():
    logits, labels = draw()
    known = sample_records(logits, labels, 1.5)
    unknown = sample_records(logits, torch.full_like(labels, -1), 1.5)
    for name in set(unknown) - {"label"}:
        assert torch.equal(known[name], unknown[name]), name


@pytest.mark.parametrize("members", [1, 4])
def test_batch_size_does_not_matter(members):
    logits, labels = draw(10, members, classes=19)
    whole = sample_records(logits, labels, 0.7)
    for size in (1, 3, 10):
        batches = zip(logits.split(size), labels.split(size), strict=True)
        parts = [sample_records(*batch, 0.7) for batch in batches]
        for name, values in whole.items():
            joined = torch.cat([part[name] for part in parts])
            torch.testing.assert_close(joined, values, rtol=1e-13, atol=1e-15, msg=name)


def test_chunks_do_not_matter(monkeypatch):
    logits, labels = draw(11, 3, 4)
    whole = sample_records(logits, labels, 1.2)
    combined = log_mean_probabilities(logits)
    monkeypatch.setattr(module, "CHUNK", 36)  # three samples, then two at the end
    for name, values in sample_records(logits, labels, 1.2).items():
        torch.testing.assert_close(values, whole[name], rtol=1e-13, atol=1e-15, msg=name)
    torch.testing.assert_close(log_mean_probabilities(logits), combined, rtol=1e-13, atol=1e-15)


def test_order_of_members_does_not_matter():
    logits, labels = draw(20, 4)
    first = sample_records(logits, labels, 1.3)
    second = sample_records(logits[:, [2, 0, 3, 1]], labels, 1.3)
    for name, values in first.items():
        torch.testing.assert_close(second[name], values, rtol=1e-12, atol=1e-13, msg=name)


def test_combiner_is_the_mean_of_probabilities():
    logits, _ = draw(9, 4, 6)
    expected = np.log(softmax(logits.double().numpy(), axis=2).mean(axis=1))
    np.testing.assert_allclose(log_mean_probabilities(logits).numpy(), expected, rtol=1e-12)
    one = logits[:, :1]
    np.testing.assert_allclose(
        log_mean_probabilities(one).numpy(), log_softmax(one[:, 0].double().numpy(), axis=1)
    )


def test_means_against_scikit_learn():
    logits, labels = draw(200, 3, 4)
    found = sample_records(logits, labels)
    probabilities = log_mean_probabilities(logits).exp().numpy()
    nll = log_loss(labels.numpy(), probabilities, labels=range(4))
    assert -found["log_likelihood"].mean().item() == pytest.approx(nll, rel=1e-12)
    right = (found["prediction"] == found["label"]).double().mean().item()
    assert right == accuracy_score(labels.numpy(), probabilities.argmax(axis=1))


@settings(max_examples=40, deadline=None)
@given(
    samples=st.integers(1, 4),
    members=st.integers(1, 4),
    classes=st.integers(1, 5),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 50.0, 1e4, 1e30]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    seed=st.integers(0, 10**6),
)
def test_ranges(samples, members, classes, scale, dtype, seed):
    logits, labels = draw(
        samples, members, classes, min(scale, 6e3) if dtype is torch.float16 else scale, seed
    )
    found = sample_records(logits.to(dtype), labels, 1.5)
    assert all(values.isfinite().all() for values in found.values())
    for name in ("confidence", "calibrated_confidence"):
        assert (found[name] >= (1 - 1e-12) / classes).all()
        assert (found[name] <= 1).all()
    assert (found["log_likelihood"] <= 0).all()
    assert ((found["brier"] >= 0) & (found["brier"] <= 2)).all()
    assert (found["entropy"] >= 0).all()
    assert (found["entropy"] <= math.log(classes) + 1e-12).all()
    assert (found["expected_entropy"] <= found["entropy"] + 1e-12).all()
    if members > 1:
        assert (found["mutual_information"] >= 0).all()
        assert (found["mutual_information"] <= math.log(members) + 1e-12).all()
        assert (found["pairwise_kl"] >= 0).all()
        assert ((found["agreement"] >= 0) & (found["agreement"] <= 1)).all()
        assert ((found["disagreement"] >= 0) & (found["disagreement"] <= 1)).all()


def test_identical_members_do_not_differ():
    one, labels = draw(50, 1, 10)
    found = sample_records(one.expand(-1, 4, -1), labels)
    alone = sample_records(one, labels)
    for name, values in alone.items():
        torch.testing.assert_close(found[name], values, rtol=1e-12, atol=1e-14, msg=name)
    assert (found["agreement"] == 1).all()
    assert (found["disagreement"] == 0).all()
    assert found["mutual_information"].max() < 1e-14
    assert found["pairwise_kl"].max() < 1e-14


def test_members_are_not_folded_into_classes():
    """Each member has its own softmax: shifting one member's logits changes energies alone."""
    logits, labels = draw(6, 3)
    shifted = logits.clone()
    shifted[:, 1] += 7.0
    first, second = sample_records(logits, labels), sample_records(shifted, labels)
    for name in set(first) - {"energy", "max_logit"}:
        torch.testing.assert_close(second[name], first[name], rtol=1e-5, atol=1e-6, msg=name)
    torch.testing.assert_close(second["energy"], first["energy"] - 7 / 3, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_refused_by_sample(value, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 16)
    logits, labels = draw(7, 2, 4)
    logits[5, 1, 2] = value
    with pytest.raises(ValueError, match="sample 5 is not finite"):
        sample_records(logits, labels)
    with pytest.raises(ValueError, match="sample 5 is not finite"):
        log_mean_probabilities(logits)


@pytest.mark.parametrize(
    ("logits", "labels", "error", "match"),
    [
        (torch.zeros(2, 1, 3, dtype=torch.int64), torch.zeros(2).long(), TypeError, "floating"),
        (torch.zeros(2, 3), torch.zeros(2).long(), ValueError, r"\[B, M, K\]"),
        (torch.zeros(0, 1, 3), torch.zeros(0).long(), ValueError, r"\[0, 1, 3\]"),
        (torch.zeros(2, 1, 3), torch.zeros(2), TypeError, "labels must be integers"),
        (torch.zeros(2, 1, 3), torch.zeros(3).long(), ValueError, r"labels must be \[2\]"),
        (torch.zeros(2, 1, 3), torch.tensor([0, 3]), ValueError, "sample 1 is 3"),
        (torch.zeros(2, 1, 3), torch.tensor([0, -2]), ValueError, "sample 1 is -2"),
        (torch.zeros(3, 1, 3), torch.tensor([0, 1, -1]), ValueError, "samples 0 and 2"),
    ],
)
def test_wrong_inputs(logits, labels, error, match):
    with pytest.raises(error, match=match):
        sample_records(logits, labels)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_wrong_temperature(temperature):
    with pytest.raises(ValueError, match="temperature must be positive"):
        sample_records(*draw(), temperature=temperature)


def test_gradients_are_not_kept():
    logits, labels = draw()
    assert not sample_records(logits.requires_grad_(), labels)["brier"].requires_grad
