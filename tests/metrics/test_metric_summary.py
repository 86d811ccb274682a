"""The summary of a run: its shape, its values and what is absent."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from bench.errors import UserError
from bench.metrics.calibration import adaptive_ece, classwise_bins, classwise_ece, ece, mce
from bench.metrics.definitions import DEFINITIONS
from bench.metrics.detection import auroc, fpr95
from bench.metrics.records import log_mean_probabilities, sample_records
from bench.metrics.selective import aurc
from bench.metrics.summary import summarise
from bench.metrics.temperature import fit_temperature

ALWAYS = [
    "samples",
    "accuracy",
    "nll",
    "brier",
    "ece",
    "adaptive_ece",
    "classwise_ece",
    "smooth_ece",
    "mce",
    "calibrated_nll",
    "calibrated_ece",
    "aurc",
    "excess_aurc",
    "error_auroc",
    "entropy",
    "expected_entropy",
]
MEMBERS = ["mutual_information", "disagreement", "pairwise_kl", "member_accuracy"]
NAMES = {"corruption", "severity", "distance"}


def draw(samples, members, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (samples,), generator=generator)
    logits = torch.randn(samples, members, 5, generator=generator)
    return logits + torch.nn.functional.one_hot(labels, 5)[:, None], labels


def records(members=3, batch=10, seed=0):
    """A small run's records as the harness would store them, evaluated in batches."""
    validation, test = draw(30, members, seed), draw(10, members, seed + 1)
    log_probabilities = log_mean_probabilities(validation[0]).numpy()
    temperature = fit_temperature(log_probabilities, validation[1].numpy())

    def frame(logits, labels):
        parts = zip(logits.split(batch), labels.split(batch), strict=True)
        tables = [pd.DataFrame(sample_records(*part, temperature)) for part in parts]
        return pd.concat(tables, ignore_index=True)

    def bins(logits, labels):
        return classwise_bins(log_mean_probabilities(logits).exp().numpy(), labels.numpy())

    shift = [
        frame(*draw(10, members, seed + 10 * severity)).assign(corruption=name, severity=severity)
        for name in ("blur", "noise")
        for severity in (1, 2)
    ]
    ood = []
    for number, (source, distance) in enumerate([("a", "near"), ("b", "far"), ("c", "near")]):
        logits, labels = draw(12 + number, members, 100 + number)
        unknown = frame(0.3 * logits, torch.full_like(labels, -1))
        ood.append(unknown.assign(source=source, distance=distance))
    return {
        "validation": frame(*validation),
        "test": frame(*test),
        "shift": pd.concat(shift, ignore_index=True),
        "ood": pd.concat(ood, ignore_index=True),
        "classwise": {"validation": bins(*validation), "test": bins(*test)},
        "temperature": temperature,
    }


def leaves(value, key=""):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield key, value


@pytest.mark.parametrize("members", [1, 3])
def test_shape(members):
    found = summarise(records(members))
    assert list(found) == ["temperature", "validation", "test", "shift", "ood"]
    expected = ALWAYS + (MEMBERS if members > 1 else [])
    assert list(found["validation"]) == expected
    assert list(found["test"]) == expected
    assert set(found["shift"]) == {
        "cells",
        "severity",
        "mean",
        "mean_corruption_error",
        "ece_slope",
        "accuracy_slope",
    }
    assert set(found["ood"]) == {"sources", "near", "far"}
    scores = {"max_softmax", "entropy", "energy"} | (
        {"mutual_information"} if members > 1 else set()
    )
    metrics = {"auroc", "aupr_in", "aupr_out", "fpr95"}
    for source in found["ood"]["sources"].values():
        assert set(source) == {"distance", "samples", "scores"}
        assert set(source["scores"]) == scores
        assert all(set(values) == metrics for values in source["scores"].values())
    assert set(found["ood"]["near"]) == set(found["ood"]["far"]) == scores


@pytest.mark.parametrize("members", [1, 3])
def test_plain_json_in_which_every_number_is_defined(members):
    found = summarise(records(members))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    for key, value in leaves(found):
        if key not in NAMES:
            assert key in DEFINITIONS
            assert type(value) is (int if key == "samples" else float), key


def test_values():
    given = records()
    found = summarise(given)
    test = given["test"]
    right = test["label"] == test["prediction"]
    expected = {
        "samples": 10,
        "accuracy": right.mean(),
        "nll": -test["log_likelihood"].mean(),
        "brier": test["brier"].mean(),
        "ece": ece(test["confidence"], right),
        "adaptive_ece": adaptive_ece(test["confidence"], right),
        "mce": mce(test["confidence"], right),
        "calibrated_nll": -test["calibrated_log_likelihood"].mean(),
        "calibrated_ece": ece(test["calibrated_confidence"], right),
        "aurc": aurc(test["confidence"], right),
        "entropy": test["entropy"].mean(),
        "expected_entropy": test["expected_entropy"].mean(),
        "mutual_information": test["mutual_information"].mean(),
        "disagreement": test["disagreement"].mean(),
        "pairwise_kl": test["pairwise_kl"].mean(),
        "member_accuracy": test["member_accuracy"].mean(),
    }
    assert {key: found["test"][key] for key in expected} == pytest.approx(expected)
    logits, labels = draw(10, 3, 1)
    probabilities = log_mean_probabilities(logits).exp().numpy()
    assert found["test"]["classwise_ece"] == pytest.approx(
        classwise_ece(probabilities, labels.numpy())
    )
    assert found["temperature"] == given["temperature"]
    assert found["validation"]["samples"] == 30
    assert found["validation"]["calibrated_nll"] <= found["validation"]["nll"]


def test_ood_values():
    given = records()
    found = summarise(given)["ood"]
    for source, part in given["ood"].groupby("source"):
        own = found["sources"][source]
        assert (own["distance"], own["samples"]) == (part["distance"].iloc[0], len(part))
        for score, sign, column in [
            ("max_softmax", -1, "confidence"),
            ("entropy", 1, "entropy"),
            ("mutual_information", 1, "mutual_information"),
            ("energy", 1, "energy"),
        ]:
            inside, outside = sign * given["test"][column], sign * part[column]
            assert own["scores"][score]["auroc"] == pytest.approx(auroc(inside, outside))
            assert own["scores"][score]["fpr95"] == pytest.approx(fpr95(inside, outside))
    near = [found["sources"][name]["scores"]["energy"]["aupr_in"] for name in ("a", "c")]
    assert found["near"]["energy"]["aupr_in"] == pytest.approx(sum(near) / 2)
    assert found["far"] == found["sources"]["b"]["scores"]


@pytest.mark.parametrize("members", [1, 3])
def test_batch_size_does_not_matter(members):
    whole = summarise(records(members))
    for size in (1, 3):
        parts = summarise(records(members, batch=size))
        for (key, value), (other, expected) in zip(leaves(parts), leaves(whole), strict=True):
            assert key == other
            assert value == (expected if isinstance(value, str) else pytest.approx(expected))


def test_what_was_not_given_is_absent():
    given = records()
    found = summarise({name: given[name] for name in ("validation", "test")})
    assert set(found) == {"validation", "test"}
    assert "classwise_ece" not in found["test"]
    without = {"calibrated_log_likelihood", "calibrated_confidence"}
    plain = given["test"].drop(columns=list(without))
    found = summarise({"validation": plain, "test": plain, "shift": None, "temperature": None})
    assert not {"calibrated_nll", "calibrated_ece"} & set(found["test"])
    assert set(found) == {"validation", "test"}


@pytest.mark.parametrize("right", [True, False])
def test_no_errors_or_nothing_but_errors(right):
    given = records()
    test = given["test"]
    test["label"] = test["prediction"] if right else (test["prediction"] + 1) % 5
    found = summarise({"validation": given["validation"], "test": test})["test"]
    assert "error_auroc" not in found
    assert found["accuracy"] == right
    assert found["aurc"] == (not right)
    json.dumps(found, allow_nan=False)


def test_only_far_sources():
    given = records()
    given["ood"] = given["ood"].query("distance == 'far'")
    assert set(summarise(given)["ood"]) == {"sources", "far"}


def test_arrays_and_tensors_instead_of_frames():
    given = records()
    arrays = {name: given["test"][name].to_numpy() for name in given["test"]}
    tensors = {name: torch.from_numpy(values.copy()) for name, values in arrays.items()}
    expected = summarise({"validation": given["test"], "test": given["test"]})
    assert summarise({"validation": arrays, "test": tensors}) == expected


def test_wrong_inputs():
    given = records()
    with pytest.raises(UserError, match=r"unknown split 'tset': did you mean test\?"):
        summarise({**given, "tset": given["test"]})
    with pytest.raises(ValueError, match="no split 'test'"):
        summarise({"validation": given["validation"]})
    with pytest.raises(ValueError, match="no column 'brier'"):
        summarise({**given, "test": given["test"].drop(columns="brier")})
    with pytest.raises(ValueError, match="no column 'source'"):
        summarise({**given, "ood": given["ood"].drop(columns="source")})
    with pytest.raises(ValueError, match="source 'a': distance must be near or far, not middle"):
        summarise({**given, "ood": given["ood"].assign(distance="middle")})
    mixed = given["ood"].copy()
    mixed.loc[0, "distance"] = "far"
    with pytest.raises(ValueError, match="source 'a': distance must be near or far, not far, near"):
        summarise({**given, "ood": mixed})
    broken = given["test"].copy()
    broken.loc[4, "log_likelihood"] = np.nan
    with pytest.raises(ValueError, match="log_likelihood: row 4 is nan"):
        summarise({**given, "test": broken})


def test_numbers_from_records_need_no_torch():
    """Tables are made where torch is not installed."""
    modules = "bootstrap calibration columns definitions detection scores selective shift summary"
    imports = "; ".join(f"import bench.metrics.{name}" for name in f"{modules} temperature".split())
    check = f"{imports}; import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
