"""Bootstrap intervals against a plain resampling loop that uses the same draws."""

import numpy as np
import pandas as pd
import pytest
import torch

from bench.metrics import bootstrap as module
from bench.metrics.bootstrap import (
    Draws,
    bootstrap_interval,
    bootstrap_intervals,
    paired_difference,
    paired_differences,
)
from bench.metrics.calibration import ece
from bench.metrics.records import sample_records
from bench.metrics.scores import SAMPLE_SCORES

LABELS = torch.randint(0, 4, (60,), generator=torch.Generator().manual_seed(9))


def run(seed, members=3, skill=1.0, labels=LABELS):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(labels), members, 4, generator=generator)
    logits += skill * torch.nn.functional.one_hot(labels, 4)[:, None]
    return pd.DataFrame(sample_records(2 * logits, labels, temperature=1.5))


def score_of(frame, score):
    """The definition of each score, on a frame of samples."""
    right = frame["label"] == frame["prediction"]
    if score == "accuracy":
        return right.mean()
    if score == "ece":
        return ece(frame["confidence"], right)
    if score == "calibrated_ece":
        return ece(frame["calibrated_confidence"], right)
    column = {"nll": "log_likelihood", "calibrated_nll": "calibrated_log_likelihood"}
    mean = frame[column.get(score, score)].mean()
    return -mean if score in column else mean


def loop(sides, score, resamples, seed, level):
    """Mean score of each side's runs, resampled; the second side is subtracted."""
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(resamples):
        chosen = rng.integers(0, len(LABELS), size=len(LABELS))
        means = [np.mean([score_of(one.iloc[chosen], score) for one in runs]) for runs in sides]
        draws.append(means[0] - sum(means[1:]))
    return np.percentile(draws, [50 * (1 - level), 50 * (1 + level)])


@pytest.mark.parametrize("score", SAMPLE_SCORES)
def test_interval_against_the_loop(score):
    runs = [run(0), run(1)]
    found = bootstrap_interval(runs, score, resamples=40, level=0.8, seed=5)
    low, high = loop([runs], score, 40, 5, 0.8)
    assert found.value == pytest.approx(np.mean([score_of(one, score) for one in runs]))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.low < found.high


@pytest.mark.parametrize("score", ["accuracy", "nll", "brier", "ece", "calibrated_nll"])
def test_difference_against_the_loop(score):
    a, b = [run(0), run(1), run(2)], [run(3, skill=1.5), run(4, members=2, skill=1.5)]
    found = paired_difference(a, b, score, resamples=40, seed=3)
    low, high = loop([a, b], score, 40, 3, 0.95)
    means = [np.mean([score_of(one, score) for one in runs]) for runs in (a, b)]
    assert found.value == pytest.approx(means[0] - means[1])
    assert (found.low, found.high) == pytest.approx((low, high))


def test_a_method_does_not_differ_from_itself():
    runs = [run(0), run(1)]
    for score in SAMPLE_SCORES:
        found = paired_difference(runs, runs[::-1], score, resamples=50)
        assert (found.value, found.low, found.high) == pytest.approx((0, 0, 0), abs=1e-15)


def test_difference_changes_its_sign_with_its_sides():
    a, b = [run(0)], [run(1, skill=2.0)]
    one = paired_difference(a, b, "nll", resamples=100)
    other = paired_difference(b, a, "nll", resamples=100)
    assert (other.value, other.low, other.high) == pytest.approx((-one.value, -one.high, -one.low))
    assert one.low > 0


def test_pairing_narrows_the_interval():
    """The second run is the first but for a small change: most of the variance is shared."""
    first = run(0)
    second = first.assign(brier=first["brier"] + 0.01)
    alone = bootstrap_interval([first], "brier")
    paired = paired_difference([second], [first], "brier")
    assert (paired.low, paired.high) == pytest.approx((0.01, 0.01))
    assert alone.high - alone.low > 0.1


def test_covers_what_the_normal_approximation_covers():
    labels = torch.randint(0, 4, (2000,), generator=torch.Generator().manual_seed(1))
    frame = run(0, labels=labels)
    error = frame["brier"].std() / np.sqrt(len(frame))
    found = bootstrap_interval([frame], "brier", resamples=2000)
    mean = frame["brier"].mean()
    expected = (mean - 1.96 * error, mean + 1.96 * error)
    assert (found.low, found.high) == pytest.approx(expected, abs=0.25 * error)


def test_memory_limit_does_not_change_the_draws(monkeypatch):
    runs = [run(0)]
    whole = bootstrap_intervals(runs, SAMPLE_SCORES, resamples=23)
    monkeypatch.setattr(module, "CHUNK", 5 * len(LABELS) + 1)
    parts = bootstrap_intervals(runs, SAMPLE_SCORES, resamples=23)
    for score, interval in whole.items():
        assert vars(parts[score]) == pytest.approx(vars(interval), rel=1e-12)
    monkeypatch.setattr(module, "CHUNK", 1)
    assert vars(bootstrap_interval(runs, "ece", resamples=23)) == pytest.approx(vars(whole["ece"]))


def test_several_scores_share_their_draws():
    a, b = [run(0)], [run(1)]
    together = paired_differences(a, b, ["ece", "nll"], resamples=30, seed=2)
    assert list(together) == ["ece", "nll"]
    for score, interval in together.items():
        assert vars(paired_difference(a, b, score, resamples=30, seed=2)) == pytest.approx(
            vars(interval)
        )


def test_what_was_resampled_once_serves_every_difference():
    base, others = [run(0), run(1)], [[run(2)], [run(3), run(4)]]
    draws = Draws(len(LABELS), resamples=30, seed=2)
    reference = draws.of(base, ["ece", "nll"])
    for runs in others:
        found = draws.of(runs, ["ece", "nll"]).minus(reference, level=0.9)
        assert found == paired_differences(
            runs, base, ["ece", "nll"], resamples=30, level=0.9, seed=2
        )


def test_draws_that_are_not_kept_are_drawn_again_alike(monkeypatch):
    kept = paired_difference([run(0)], [run(1)], "nll", resamples=30)
    monkeypatch.setattr(module, "KEPT", 30 * len(LABELS) - 1)
    assert paired_difference([run(0)], [run(1)], "nll", resamples=30) == kept


def test_only_the_same_samples_and_scores_have_a_difference():
    draws = Draws(len(LABELS), resamples=5)
    first = draws.of([run(0)], ["nll"])
    with pytest.raises(ValueError, match="same scores of the same samples"):
        first.minus(draws.of([run(1, labels=LABELS.flip(0))], ["nll"]))
    with pytest.raises(ValueError, match="same scores of the same samples"):
        first.minus(draws.of([run(1)], ["brier"]))
    with pytest.raises(ValueError, match="draws of 60 samples, runs of 59"):
        draws.of([run(0, labels=LABELS[1:])], ["nll"])


def test_seeds_of_the_draws():
    first, same, other = (bootstrap_interval([run(0)], "nll", seed=s) for s in (0, 0, 1))
    assert first == same
    assert first.low != other.low


def test_one_sample():
    found = bootstrap_interval([run(0, labels=LABELS[:1])], "nll", resamples=10)
    assert found.low == pytest.approx(found.value)
    assert found.high == pytest.approx(found.value)


def test_runs_on_other_samples_are_refused():
    swapped = LABELS.clone()
    swapped[[3, 4]] = torch.tensor([(LABELS[3] + 1) % 4, (LABELS[4] + 2) % 4])
    with pytest.raises(ValueError, match="row 3 has the label"):
        paired_difference([run(0)], [run(1, labels=swapped)], "nll")
    with pytest.raises(ValueError, match="run 2 has 59 samples, run 0 has 60"):
        paired_difference([run(0)], [run(1), run(2, labels=LABELS[1:])], "nll")
    with pytest.raises(ValueError, match="row 3 has the label"):
        bootstrap_interval([run(0), run(1, labels=swapped)], "nll")


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: bootstrap_interval([], "nll"), "no runs"),
        (lambda: paired_difference([run(0)], [], "nll"), "no runs"),
        (lambda: bootstrap_interval([run(0)], "nll", resamples=0), "resamples"),
        (lambda: bootstrap_interval([run(0)], "nll", level=1.0), "level"),
        (lambda: bootstrap_interval([run(0)], "aurc"), "'aurc' is no mean"),
        (lambda: bootstrap_interval([run(0, members=1)], "disagreement"), "no column 'disagree"),
    ],
)
def test_wrong_inputs(call, match):
    with pytest.raises(ValueError, match=match):
        call()
