from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from curate.metrics import aurra, bootstrap_interval, calibration_error, clopper_pearson


@pytest.mark.parametrize(
    ("k", "n", "confidence", "low", "high"),
    [
        (0, 7500, 0.995, 0.0, 0.000798542934367823),
        (7500, 7500, 0.995, 0.9992014570656321, 1.0),
        (38065, 50000, 0.995, 0.7559095334825, 0.7666319282332663),
        (37, 200, 0.95, 0.13372866017976162, 0.24586346244867838),
        (1, 1, 0.995, 0.0025, 1.0),
        (0, 1, 0.995, 0.0, 0.9975),
    ],
)
def test_true_values(k: int, n: int, confidence: float, low: float, high: float) -> None:
    assert clopper_pearson(k, n, confidence) == pytest.approx((low, high), rel=0, abs=1e-12)


@given(st.integers(1, 3000), st.floats(0.0, 1.0), st.sampled_from([0.5, 0.95, 0.995, 0.9999]))
def test_agrees_with_the_exact_binomial_test(n: int, share: float, confidence: float) -> None:
    k = round(share * n)
    low, high = clopper_pearson(k, n, confidence)
    exact = binomtest(k, n).proportion_ci(confidence, method="exact")
    assert (low, high) == pytest.approx((exact.low, exact.high), rel=0, abs=1e-9)
    assert 0.0 <= low <= k / n <= high <= 1.0
    mirrored = clopper_pearson(n - k, n, confidence)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high), rel=0, abs=1e-9)


def test_numpy_integers_are_counts_too() -> None:
    assert clopper_pearson(np.int64(3), np.int32(9)) == clopper_pearson(3, 9)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("k", "n", "confidence", "fault"),
    [
        (0, 0, 0.995, "n is 0: it must be at least 1"),
        (5, 4, 0.995, "k is 5: it must be in 0 … 4"),
        (-1, 4, 0.995, "k is -1"),
        (0.5, 4, 0.995, "k must be a whole number"),
        (True, 4, 0.995, "k must be a whole number"),
        (1, 4, 99.5, "confidence is 99.5: expected a level between 0 and 1"),
        (1, 4, 1.0, "confidence is 1.0"),
        (1, 4, math.nan, "confidence is nan"),
    ],
)
def test_bad_counts_are_named(k: Any, n: Any, confidence: float, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        clopper_pearson(k, n, confidence)


def scored(n: int, seed: int, power: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(seed)
    confidence = random.random_sample(n)
    return confidence, random.random_sample(n) < confidence**power


def test_an_interval_of_a_mean_is_that_of_normal_theory() -> None:
    values = np.random.RandomState(0).randn(2000)
    low, high = bootstrap_interval(np.mean, values, resamples=2000)
    half = 1.96 * values.std() / math.sqrt(2000)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.004)


def test_items_are_drawn_together_from_every_array() -> None:
    values = np.arange(50.0)
    difference = lambda a, b: float(np.abs(a - b).max())  # noqa: E731
    assert bootstrap_interval(difference, values, values, resamples=20) == (0.0, 0.0)


def test_the_same_seed_gives_the_same_interval_and_another_one_another() -> None:
    confidence, correct = scored(300, 0)
    first = bootstrap_interval(aurra, confidence, correct, resamples=100)
    assert bootstrap_interval(aurra, confidence, correct, resamples=100) == first
    assert bootstrap_interval(aurra, confidence, correct, resamples=100, seed=1) != first


def test_a_wider_level_gives_a_wider_interval() -> None:
    confidence, correct = scored(300, 0)
    narrow = bootstrap_interval(aurra, confidence, correct, confidence=0.5)
    wide = bootstrap_interval(aurra, confidence, correct, confidence=0.99)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_the_interval_of_a_calibrated_models_error_holds_that_error() -> None:
    confidence, correct = scored(3000, 0)
    value = calibration_error(confidence, correct)
    low, high = bootstrap_interval(calibration_error, confidence, correct, resamples=300)
    assert low < value < high
    # Plain percentiles lie above it, because resampling adds noise to every bin.
    random = np.random.RandomState(0)
    drawn = [random.randint(0, 3000, 3000) for _ in range(300)]
    resampled = [calibration_error(confidence[i], correct[i]) for i in drawn]
    assert np.percentile(resampled, 2.5) > value


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(("measure", "power"), [(aurra, 1.0), (calibration_error, 1.0)])
def test_nineteen_of_twenty_intervals_hold_what_new_samples_average(
    measure: Any, power: float
) -> None:
    n = 1000
    centre = np.mean([measure(*scored(n, seed, power)) for seed in range(1000, 3000)])
    held = 0
    for seed in range(200):
        low, high = bootstrap_interval(measure, *scored(n, seed, power), resamples=200)
        held += low <= centre <= high
    assert 0.88 <= held / 200 <= 1.0


def test_what_is_the_same_in_every_resample_has_no_width() -> None:
    confidence, _ = scored(20, 0)
    assert bootstrap_interval(aurra, confidence, np.ones(20), resamples=50) == (1.0, 1.0)
    assert bootstrap_interval(aurra, confidence, np.zeros(20), resamples=50) == (0.0, 0.0)


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12), st.integers(0, 2**32 - 1))
def test_the_interval_always_holds_the_statistic(values: list[float], seed: int) -> None:
    low, high = bootstrap_interval(np.max, values, resamples=20, seed=seed)
    assert low <= max(values) <= high


def test_ends_are_cut_off_at_the_bounds_of_the_statistic() -> None:
    values = np.array([1.0] * 8 + [0.0] * 2)
    free = bootstrap_interval(np.mean, values)
    assert bootstrap_interval(np.mean, values, bounds=(0.7, 0.9)) == (0.7, 0.9)
    assert bootstrap_interval(np.mean, values, bounds=(-9.0, 9.0)) == free


def test_a_statistic_of_whole_rows_is_resampled_by_row() -> None:
    rows = np.random.RandomState(0).randn(40, 3)
    low, high = bootstrap_interval(lambda table: float(table[:, 0].mean()), rows, resamples=50)
    assert low < rows[:, 0].mean() < high


@pytest.mark.parametrize(
    ("arrays", "options", "fault"),
    [
        ([], {}, "at least one array"),
        ([[]], {}, "at least two items, not 0"),
        ([[1.0]], {}, "at least two items, not 1"),
        ([1.0], {}, "not single numbers"),
        ([[1.0, 2.0], [1.0]], {}, "array 0 and array 1 differ in length: 2 and 1"),
        ([[1.0, 2.0]], {"resamples": 0}, "resamples is 0"),
        ([[1.0, 2.0]], {"confidence": 95}, "confidence is 95"),
        ([[1.0, 2.0]], {"seed": -1}, "seed is -1"),
        ([[1.0, math.nan]], {}, r"array 0\[1\] is nan"),
    ],
)
def test_bad_input_is_named(arrays: list[Any], options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        bootstrap_interval(lambda *given: float(np.mean(given[0])), *arrays, **options)


def test_a_statistic_that_fails_on_a_resample_is_named() -> None:
    values = np.arange(2.0)
    spread = lambda a: float(1.0 / np.ptp(a)) if np.ptp(a) else math.inf  # noqa: E731
    with pytest.raises(ValueError, match=r"resample \d+ is inf"):
        bootstrap_interval(spread, values)


def test_a_statistic_without_a_value_is_named() -> None:
    with pytest.raises(ValueError, match="the statistic is nan"):
        bootstrap_interval(lambda values: math.nan, [1.0, 2.0])
