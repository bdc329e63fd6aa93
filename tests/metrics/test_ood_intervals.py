from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from curate.metrics.draws import Urn
from curate.metrics.ood import ood_detection
from curate.metrics.ood_intervals import (
    _Sides,
    aupr_at_base_rate,
    ood_detection_estimates,
    ood_detections_estimates,
)

SCORES = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.floats(-1e3, 1e3)), min_size=1, max_size=40
)


def plain(inside: np.ndarray, outside: np.ndarray, base_rate: float) -> dict[str, float]:
    """The measures by `ood_detection` and scikit-learn."""
    found = ood_detection(inside, outside)
    truth = np.r_[np.zeros(len(inside)), np.ones(len(outside))]
    scores = np.r_[inside, outside]
    weight = len(outside) * (1 - base_rate) / (base_rate * len(inside))
    return {
        "aupr": found.aupr,
        "aupr_reweighted": average_precision_score(
            truth, scores, sample_weight=np.where(truth == 1, 1.0, weight)
        ),
        "aupr_in": average_precision_score(1 - truth, -scores),
        "auroc": found.auroc,
        "fpr95": found.fpr95,
        "fpr95_published": found.fpr95_published,
    }


@given(SCORES, SCORES, st.floats(0.01, 0.99))
def test_agrees_with_ood_detection_and_scikit_learn(
    inside: list[float], outside: list[float], base_rate: float
) -> None:
    found = ood_detection_estimates(inside, outside, base_rate=base_rate, resamples=1)
    expected = plain(np.array(inside), np.array(outside), base_rate)
    assert {name: one.value for name, one in found.items()} == pytest.approx(expected, abs=1e-12)
    assert aupr_at_base_rate(inside, outside, base_rate) == found["aupr_reweighted"].value


@given(SCORES, SCORES)
def test_at_its_own_base_rate_it_is_the_raw_one(inside: list[float], outside: list[float]) -> None:
    raw = ood_detection(inside, outside)
    value = aupr_at_base_rate(inside, outside, raw.base_rate)
    assert value == pytest.approx(raw.aupr, abs=1e-12)


@given(SCORES, SCORES, st.floats(0.01, 0.98))
def test_it_grows_with_the_base_rate_and_with_copies_not_at_all(
    inside: list[float], outside: list[float], base_rate: float
) -> None:
    value = aupr_at_base_rate(inside, outside, base_rate)
    assert value <= aupr_at_base_rate(inside, outside, base_rate + 0.01) + 1e-12
    copied = aupr_at_base_rate(inside * 3, outside, base_rate)
    assert copied == pytest.approx(value, abs=1e-12)


def test_a_score_that_says_nothing_gives_the_base_rate() -> None:
    assert aupr_at_base_rate(np.zeros(60), np.zeros(230)) == pytest.approx(1 / 6, abs=1e-15)


def test_each_resample_is_what_the_plain_measures_say_of_the_drawn_items() -> None:
    random = np.random.RandomState(3)
    inside = random.randn(60).round(1)
    outside = random.randn(25).round(1) + 0.5
    found = ood_detection_estimates(inside, outside, resamples=40, confidence=0.9, seed=7)
    random = np.random.RandomState(7)
    drawn = []
    for _ in range(40):
        first = inside[random.randint(0, 60, 60)]
        drawn.append(plain(first, outside[random.randint(0, 25, 25)], 1 / 6))
    whole = plain(inside, outside, 1 / 6)
    for name, one in found.items():
        values = np.array([each[name] for each in drawn])
        bias = values.mean() - whole[name]
        low = np.quantile(values, 0.05, method="lower") - bias
        high = np.quantile(values, 0.95, method="higher") - bias
        ends = (max(0.0, min(low, whole[name])), min(1.0, max(high, whole[name])))
        assert one.interval == pytest.approx(ends, abs=1e-12)


@pytest.mark.parametrize("digits", [9, 4, 2])
def test_sums_over_tens_of_thousands_of_scores_lose_nothing_between_their_parts(
    digits: int,
) -> None:
    random = np.random.RandomState(digits)
    inside, outside = random.randn(70_000).round(digits), random.randn(40_000).round(digits) + 0.5
    (found,) = ood_detections_estimates([(inside, outside)], resamples=1, seed=4)
    random = np.random.RandomState(4)
    first = inside[random.choice(70_000, 70_000)]
    drawn = plain(first, outside[random.choice(40_000, 40_000)], 1 / 6)
    whole = plain(inside, outside, 1 / 6)
    for name, one in found.items():
        assert one.value == pytest.approx(whole[name], abs=1e-12)
        assert one.value == one.interval[0] == one.interval[1]  # type: ignore[index]
    random = np.random.RandomState(4)
    copies = np.concatenate([Urn(n).draw(random) for n in (70_000, 40_000)])
    assert _Sides(inside, outside, 1 / 6).measures(copies) == pytest.approx(drawn, abs=1e-12)


@given(SCORES, SCORES, st.integers(0, 2**32 - 1))
def test_scores_of_the_same_items_are_drawn_alike_and_each_is_as_if_alone(
    inside: list[float], outside: list[float], seed: int
) -> None:
    first, second = (
        (np.array(inside), np.array(outside)),
        (-np.array(inside), np.ones(len(outside))),
    )
    calls: list[int] = []
    both = ood_detections_estimates([first, second], resamples=3, seed=seed, done=calls.append)
    assert both == [
        ood_detection_estimates(*one, resamples=3, seed=seed) for one in (first, second)
    ]
    assert calls == ([0, 1, 2] if min(len(inside), len(outside)) > 1 else [])


def test_no_scores_give_nothing_and_scores_of_other_items_are_refused() -> None:
    assert ood_detections_estimates([]) == []
    with pytest.raises(ValueError, match=r"different numbers of items: \[\(1, 2\), \(2, 1\)\]"):
        ood_detections_estimates([([0.0], [1.0, 2.0]), ([0.0, 1.0], [1.0])])


def test_the_same_seed_gives_the_same_interval_and_another_one_another() -> None:
    random = np.random.RandomState(0)
    inside, outside = random.randn(50), random.randn(20)
    one, same, other = (
        ood_detection_estimates(inside, outside, resamples=20, seed=seed) for seed in (1, 1, 2)
    )
    assert one == same != other


@given(SCORES, SCORES)
def test_an_interval_holds_its_value_within_zero_and_one(
    inside: list[float], outside: list[float]
) -> None:
    for one in ood_detection_estimates(inside, outside, resamples=3).values():
        if min(len(inside), len(outside)) < 2:
            assert one.interval is None
        else:
            assert one.interval is not None
            low, high = one.interval
            assert 0.0 <= low <= one.value <= high <= 1.0 + 1e-12


@pytest.mark.parametrize(
    ("inside", "outside", "options", "fault"),
    [
        ([0, 1], [], {}, "scores_out is empty"),
        ([0, math.nan], [1], {}, r"scores_in\[1\] is nan"),
        ([0], [1], {"base_rate": 1.0}, "base_rate is 1.0"),
        ([0], [1], {"base_rate": math.nan}, "base_rate is nan"),
        ([0], [1], {"resamples": 0}, "resamples is 0"),
        ([0], [1], {"seed": -1}, "seed is -1"),
    ],
)
def test_bad_input_is_named(inside: Any, outside: Any, options: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ood_detection_estimates(inside, outside, **options)
