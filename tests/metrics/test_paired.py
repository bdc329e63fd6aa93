from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from curate.metrics import aurra, bootstrap_interval, calibration_error, mcnemar, paired_difference

RIGHT = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


def accuracy(confidence: Any, correct: Any) -> float:
    return float(np.mean(correct))


@given(RIGHT)
def test_the_test_is_the_exact_binomial_one(items: list[tuple[bool, bool]]) -> None:
    first, second = [a for a, _ in items], [b for _, b in items]
    found = mcnemar(first, second)
    alone = sum(a and not b for a, b in items)
    other = sum(b and not a for a, b in items)
    assert (found.first_only, found.second_only) == (alone, other)
    assert found.both + alone + other + found.neither == len(items)
    assert found.both == sum(a and b for a, b in items)
    expected = binomtest(alone, alone + other).pvalue if alone + other else 1.0
    assert found.p_value == pytest.approx(expected, abs=1e-12)
    assert mcnemar(second, first).p_value == found.p_value


def test_a_known_table() -> None:
    # 2 · P(X ≤ 2) of 12 throws of a coin: 2 · (1 + 12 + 66) / 4096.
    found = mcnemar([1] * 10 + [0] * 2 + [1] * 50, [0] * 10 + [1] * 2 + [1] * 50)
    assert (found.both, found.first_only, found.second_only, found.neither) == (50, 10, 2, 0)
    assert found.p_value == pytest.approx(158 / 4096, abs=1e-12)


def test_tens_of_thousands_of_images_have_a_p_value() -> None:
    first = np.arange(50_000) < 26_000
    assert 0.0 < mcnemar(first, np.arange(50_000) < 25_990).p_value < 0.01
    assert mcnemar(first, ~first).p_value == pytest.approx(
        binomtest(26_000, 50_000).pvalue, rel=1e-9
    )


def test_the_difference_is_that_of_the_measures_and_swapping_turns_it_round() -> None:
    random = np.random.default_rng(1)
    confidence = random.random((2, 400))
    correct = random.random((2, 400)) < [[0.6], [0.5]]
    sides = list(zip(confidence, correct, strict=True))
    for statistic in (accuracy, aurra, calibration_error):
        there = paired_difference(statistic, *sides, resamples=200, seed=3)
        back = paired_difference(statistic, *sides[::-1], resamples=200, seed=3)
        assert there.value == pytest.approx(statistic(*sides[0]) - statistic(*sides[1]))
        assert there.low <= there.value <= there.high
        assert back.value == -there.value
        # The quantiles round outwards on either side, which may take the neighbouring resample.
        assert (-back.high, -back.low) == pytest.approx((there.low, there.high), abs=0.02)


def test_pairing_makes_the_interval_narrow_where_models_agree() -> None:
    random = np.random.default_rng(2)
    first = random.random(1000) < 0.5
    second = first ^ (random.random(1000) < 0.02)
    confidence = random.random(1000)
    paired = paired_difference(accuracy, (confidence, first), (confidence, second))
    alone = bootstrap_interval(accuracy, confidence, first)
    assert paired.high - paired.low < 0.5 * (alone[1] - alone[0])


def test_its_width_is_that_of_theory() -> None:
    # The variance of a paired difference of shares: (b + c - (b - c)²/n) / n².
    b, c, n = 120, 60, 1000
    first = np.array([True] * b + [False] * c + [True] * (n - b - c))
    second = np.array([False] * b + [True] * c + [True] * (n - b - c))
    found = paired_difference(accuracy, (np.zeros(n), first), (np.zeros(n), second), resamples=4000)
    expected = 2 * 1.96 * math.sqrt((b + c - (b - c) ** 2 / n) / n**2)
    assert found.value == pytest.approx(0.06)
    assert found.high - found.low == pytest.approx(expected, rel=0.08)


def test_the_same_model_twice_differs_by_nothing() -> None:
    side = ([0.2, 0.9, 0.4], [1, 0, 1])
    found = paired_difference(aurra, side, side, resamples=20)
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)
    assert mcnemar(side[1], side[1]).p_value == 1.0


@pytest.mark.parametrize(
    ("first", "second", "fault"),
    [
        ([], [], "is empty"),
        ([1], [1, 0], "differ in length: 1 and 2"),
        ([2], [0], r"first_correct\[0\] is 2"),
        ([1], [math.nan], r"second_correct\[0\] is nan"),
    ],
)
def test_bad_input_is_named(first: Any, second: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        mcnemar(first, second)


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        (([0.5, math.nan], [1, 1]), r"second model: confidence\[1\] is nan"),
        (([0.5, 0.5], [1, 3]), r"second model: correct\[1\] is 3"),
        (([0.5], [1]), "first and second differ in length: 2 and 1"),
    ],
)
def test_a_bad_side_is_named(second: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        paired_difference(aurra, ([0.5, 0.6], [1, 0]), second)
