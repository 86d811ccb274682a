"""Scores under corruption against plain loops."""

import json

import numpy as np
import pandas as pd
import pytest

from bench.metrics.calibration import ece
from bench.metrics.shift import shift_metrics, slope

SCORES = ("accuracy", "nll", "brier", "ece")


def draw(corruptions=("blur", "noise"), severities=(1, 3, 5), samples=40, seed=0):
    rng = np.random.default_rng(seed)
    frames = []
    for corruption in corruptions:
        for severity in severities:
            size = samples + severity  # cells of different size must count alike
            confidence = rng.uniform(0.3, 1, size)
            frames.append(
                pd.DataFrame(
                    {
                        "corruption": corruption,
                        "severity": severity,
                        "label": rng.integers(0, 3, size),
                        "prediction": rng.integers(0, 3, size),
                        "confidence": confidence,
                        "log_likelihood": np.log(rng.uniform(0.1, 1, size)),
                        "brier": rng.uniform(0, 2, size),
                    }
                )
            )
    return pd.concat(frames).sample(frac=1, random_state=seed)


def cells(frame):
    found = {}
    for key, part in frame.groupby(["corruption", "severity"]):
        right = part["label"] == part["prediction"]
        found[key] = {
            "accuracy": right.mean(),
            "nll": -part["log_likelihood"].mean(),
            "brier": part["brier"].mean(),
            "ece": ece(part["confidence"], right),
            "samples": len(part),
        }
    return found


def test_cells():
    frame = draw()
    expected = cells(frame)
    found = shift_metrics(frame)["cells"]
    assert [(cell["corruption"], cell["severity"]) for cell in found] == sorted(expected)
    for cell in found:
        own = expected[cell["corruption"], cell["severity"]]
        assert {key: cell[key] for key in own} == pytest.approx(own)


def test_means_over_corruptions_and_over_all_cells():
    frame = draw()
    expected = cells(frame)
    found = shift_metrics(frame)
    assert list(found["severity"]) == ["1", "3", "5"]
    for level, means in found["severity"].items():
        for score in SCORES:
            values = [
                own[score] for (_, severity), own in expected.items() if str(severity) == level
            ]
            assert means[score] == pytest.approx(sum(values) / len(values))
    for score in SCORES:
        values = [own[score] for own in expected.values()]
        assert found["mean"][score] == pytest.approx(sum(values) / len(values))
    assert found["mean_corruption_error"] == pytest.approx(1 - found["mean"]["accuracy"])


def test_slopes_are_least_squares_of_the_severity_means():
    found = shift_metrics(draw())
    for score in ("ece", "accuracy"):
        means = [found["severity"][level][score] for level in ("1", "3", "5")]
        expected = np.polyfit([1, 3, 5], means, 1)[0]
        assert found[f"{score}_slope"] == pytest.approx(expected)


def test_slope_of_a_line():
    assert slope([1, 2, 3, 4, 5], [0.02, 0.05, 0.08, 0.11, 0.14]) == pytest.approx(0.03)


def test_each_corruption_counts_once_where_severities_are_missing():
    frame = draw(severities=(1, 2))
    frame = frame[(frame["corruption"] == "blur") | (frame["severity"] == 2)]
    expected = {key: 1 - own["accuracy"] for key, own in cells(frame).items()}
    blur = (expected["blur", 1] + expected["blur", 2]) / 2
    found = shift_metrics(frame)
    assert found["mean_corruption_error"] == pytest.approx((blur + expected["noise", 2]) / 2)
    assert len(found["cells"]) == 3


def test_one_severity_has_no_slope():
    found = shift_metrics(draw(severities=(5,)))
    assert not {"ece_slope", "accuracy_slope"} & set(found)
    assert list(found["severity"]) == ["5"]


def test_plain_json_from_any_kind_of_columns():
    frame = draw()
    expected = json.dumps(shift_metrics(frame), allow_nan=False)
    arrays = {name: frame[name].to_numpy() for name in frame}
    assert json.dumps(shift_metrics(arrays)) == expected
    categories = frame.astype({"corruption": "category", "severity": "int8"})
    assert json.dumps(shift_metrics(categories)) == expected


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"severity": None}, "no column 'severity'"),
        ({"corruption": None}, "no column 'corruption'"),
        ({"severity": 1.5}, "whole numbers"),
        ({"corruption": np.nan}, "no corruption"),
        ({"log_likelihood": -np.inf}, "log_likelihood: row 0 is -inf"),
        ({"label": -1}, "row 0 has no known label"),
    ],
)
def test_wrong_inputs(change, match):
    frame = draw()
    for name, value in change.items():
        frame = frame.drop(columns=name) if value is None else frame.assign(**{name: value})
    with pytest.raises(ValueError, match=match):
        shift_metrics(frame)
