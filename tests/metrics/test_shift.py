from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import linregress

from curate.metrics import (
    bootstrap_band,
    effective_robustness,
    fit_logit_line,
    fit_piecewise,
    relative_robustness,
)
from curate.metrics.shift import LogitLine

PERCENT = st.floats(0.5, 99.5)
MODELS = st.lists(st.tuples(PERCENT, PERCENT), min_size=2, max_size=30).filter(
    lambda models: max(x for x, _ in models) - min(x for x, _ in models) > 0.1
)


def models(n: int, seed: int = 0, noise: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(seed)
    x = 100 * expit(random.uniform(0.3, 2.2, n))
    return x, 100 * expit(0.92 * logit(x / 100) - 0.49 + noise * random.randn(n))


@given(MODELS)
def test_the_line_agrees_with_scipy(pairs: list[tuple[float, float]]) -> None:
    x, y = map(np.array, zip(*pairs, strict=True))
    line = fit_logit_line(x, y)
    oracle = linregress(logit(x / 100), logit(y / 100))
    assert line.slope == pytest.approx(oracle.slope, rel=1e-6, abs=1e-9)
    assert line.intercept == pytest.approx(oracle.intercept, rel=1e-6, abs=1e-6)
    assert line.n == len(pairs)
    if np.ptp(y) > 0.1:
        assert line.r2 == pytest.approx(oracle.rvalue**2, abs=1e-6)


@given(st.floats(-2, 2), st.floats(-2, 2), st.lists(PERCENT, min_size=2, max_size=9, unique=True))
def test_a_model_on_the_line_has_no_effective_robustness(
    slope: float, intercept: float, x: list[float]
) -> None:
    line = LogitLine(slope=slope, intercept=intercept, r2=1.0, n=2)
    on_it = line.predict(x)
    np.testing.assert_allclose(on_it, 100 * expit(slope * logit(np.array(x) / 100) + intercept))
    np.testing.assert_array_equal(effective_robustness(x, on_it, line), 0.0)


@given(MODELS, st.randoms(use_true_random=False))
def test_the_order_of_models_changes_nothing(
    pairs: list[tuple[float, float]], shuffle: Random
) -> None:
    before = fit_logit_line(*zip(*pairs, strict=True))
    shuffle.shuffle(pairs)
    after = fit_logit_line(*zip(*pairs, strict=True))
    assert after.slope == pytest.approx(before.slope, rel=1e-6, abs=1e-9)
    assert after.intercept == pytest.approx(before.intercept, rel=1e-6, abs=1e-6)


def test_true_values_of_a_fit() -> None:
    x, y = models(78, seed=1090, noise=0.03)
    line = fit_logit_line(x, y)
    assert line.slope == pytest.approx(0.9236826944927232, abs=1e-9)
    assert line.intercept == pytest.approx(-0.4931943713093039, abs=1e-9)
    assert line.r2 == pytest.approx(0.9976217939643451, abs=1e-9)
    np.testing.assert_allclose(
        line.predict([60, 75, 90]),
        [47.0366453194503, 62.751593055094126, 82.29326139773542],
        rtol=0,
        atol=1e-9,
    )
    assert effective_robustness(x, y, line)[0] == pytest.approx(0.2432612812396684, abs=1e-9)


def test_equal_shifted_accuracies_lie_on_a_flat_line() -> None:
    line = fit_logit_line([50.0, 60.0, 70.0], [10.0, 10.0, 10.0])
    assert (line.slope, line.r2) == (0.0, 1.0)
    assert line.predict(99.0) == pytest.approx(10.0)


def test_single_models_give_floats_and_lists_give_arrays() -> None:
    line = fit_logit_line([50.0, 80.0], [40.0, 70.0])
    assert isinstance(line.predict(60.0), float)
    assert isinstance(effective_robustness(60.0, 50.0, line), float)
    assert isinstance(relative_robustness(60.0, 50.0), float)
    assert line.predict([[60.0, 70.0]]).shape == (1, 2)
    np.testing.assert_array_equal(relative_robustness([60.0, 0.0], 50.0), [10.0, -50.0])
    piecewise = fit_piecewise([50.0, 60.0, 80.0, 90.0], [1.0, 2.0, 10.0, 50.0], 70.0)
    assert isinstance(piecewise.predict(60.0), float)


@pytest.mark.parametrize(
    ("x", "y", "fault"),
    [
        ([], [], "x is empty"),
        ([70.0], [60.0], "two different x: it is 70.0 for all 1 models"),
        ([70.0, 70.0], [60.0, 61.0], "two different x: it is 70.0 for all 2 models"),
        ([70.0, 80.0], [0.0, 61.0], r"y\[0\] is 0.0: 0 and 100 percent have no logit"),
        ([70.0, 100.0], [10.0, 61.0], r"x\[1\] is 100.0: 0 and 100 percent have no logit"),
        ([70.0, 80.0], [math.nan, 61.0], r"y\[0\] is nan"),
        ([70.0, 180.0], [1.0, 61.0], r"x\[1\] is 180.0: outside \[0, 100\], in percent"),
        ([70.0, 80.0], [1.0], "x and y differ in length: 2 and 1"),
        (70.0, 80.0, "one dimension"),
    ],
)
def test_a_fit_names_the_fault(x: Any, y: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        fit_logit_line(x, y)
    with pytest.raises(ValueError, match=fault):
        bootstrap_band(x, y, [50.0])


def knee(pivot: float = 91.86) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(0)
    x = 100 * expit(random.uniform(1.2, 4.2, 60))
    over = logit(x / 100) - logit(pivot / 100)
    return x, 100 * expit(-3.4 + 0.5 * over + 2.4 * np.maximum(over, 0) + 0.08 * random.randn(60))


def test_each_side_of_the_pivot_has_its_own_line() -> None:
    x, y = knee()
    fit = fit_piecewise(x, y, 91.86)
    assert fit.low == fit_logit_line(x[x < 91.86], y[x < 91.86])
    assert fit.high == fit_logit_line(x[x > 91.86], y[x > 91.86])
    assert fit.predict(91.0) == fit.low.predict(91.0)
    assert fit.predict(92.0) == fit.high.predict(92.0)
    assert fit.low.predict(91.86) != fit.high.predict(91.86)


@pytest.mark.parametrize("stored", [91.86, 91.86000061, 91.8599])
def test_the_pivot_model_is_in_neither_fit_however_it_is_stored(stored: float) -> None:
    x, y = knee()
    fit = fit_piecewise(np.append(x, stored), np.append(y, 0.0), 91.86)
    assert fit == fit_piecewise(x, y, 91.86)
    assert fit.predict(stored) == fit.low.predict(stored)


@pytest.mark.parametrize(
    ("x", "y", "pivot", "fault"),
    [
        ([70.0, 80.0], [1.0, 2.0], 91.86, "no model is above the pivot 91.86"),
        ([70.0, 80.0], [1.0, 2.0], 60.0, "no model is below the pivot 60"),
        ([70.0, 80.0, 95.0], [1.0, 2.0, 3.0], 91.86, "above the pivot 91.86: .*two different x"),
        ([70.0, 80.0, 95.0, 96.0], [1.0, 2.0, 3.0, 0.0], 91.86, r"y\[3\] is 0.0"),
        ([70.0, 80.0], [1.0, 2.0], math.nan, "pivot is nan"),
        ([70.0, 80.0], [1.0, 2.0], 0.0, "pivot is 0.0"),
        ([70.0, 80.0], [1.0], 75.0, "two lists of one length"),
    ],
)
def test_a_piecewise_fit_names_the_fault(x: Any, y: Any, pivot: float, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        fit_piecewise(x, y, pivot)


def test_robustness_refuses_what_is_no_percentage() -> None:
    line = fit_logit_line([50.0, 80.0], [40.0, 70.0])
    with pytest.raises(ValueError, match=r"x is 0\.0: 0 and 100 percent have no logit"):
        effective_robustness(0.0, 50.0, line)
    with pytest.raises(ValueError, match=r"y is 101.0: outside \[0, 100\]"):
        effective_robustness(50.0, 101.0, line)
    with pytest.raises(ValueError, match=r"differ in shape: \(2,\) and \(\)"):
        effective_robustness([50.0, 60.0], 50.0, line)
    with pytest.raises(ValueError, match="y_baseline is nan"):
        relative_robustness(50.0, math.nan)
    with pytest.raises(ValueError, match="differ in shape"):
        relative_robustness([50.0, 60.0], [1.0, 2.0, 3.0])
    assert effective_robustness(50.0, 0.0, line) < 0


def test_the_band_agrees_with_refits_one_by_one() -> None:
    x, y = models(30, seed=5)
    grid = np.array([60.0, 75.0, 88.0])
    band = bootstrap_band(x, y, grid, resamples=200, seed=7)
    random = np.random.RandomState(7)
    lines = []
    for _ in range(200):
        drawn = random.choice(30, 30)
        lines.append(fit_logit_line(x[drawn], y[drawn]))
    fitted = np.array([line.predict(grid) for line in lines])
    np.testing.assert_allclose(
        band.lower, np.percentile(fitted, 2.5, axis=0, method="lower"), rtol=0, atol=1e-9
    )
    np.testing.assert_allclose(
        band.upper, np.percentile(fitted, 97.5, axis=0, method="higher"), rtol=0, atol=1e-9
    )
    slopes = [line.slope for line in lines]
    assert band.slope_interval == pytest.approx(
        (np.percentile(slopes, 2.5, method="lower"), np.percentile(slopes, 97.5, method="higher"))
    )


def test_true_values_of_a_band() -> None:
    x, y = models(30, seed=1110)
    band = bootstrap_band(x, y, [60.0, 88.0], seed=720257663)
    np.testing.assert_allclose(band.lower, [46.172418106193355, 78.64205998543541], atol=1e-9)
    np.testing.assert_allclose(band.upper, [47.78239445787572, 79.96458383930451], atol=1e-9)
    assert band.slope_interval == pytest.approx((0.8821017416844614, 0.9627301483854614))
    assert band.intercept_interval == pytest.approx((-0.5431985759897042, -0.4479422574910351))


def test_the_band_holds_the_line_and_repeats_with_its_seed() -> None:
    x, y = models(40, seed=2)
    first, second = (bootstrap_band(x, y, [60.0, 80.0], seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.lower, second.lower)
    line = fit_logit_line(x, y).predict([60.0, 80.0])
    assert (first.lower <= line).all()
    assert (line <= first.upper).all()


def test_two_models_have_a_band_although_half_their_resamples_have_no_line() -> None:
    band = bootstrap_band([50.0, 80.0], [40.0, 70.0], 60.0, resamples=50)
    line = fit_logit_line([50.0, 80.0], [40.0, 70.0])
    np.testing.assert_allclose(band.lower, [line.predict(60.0)])
    np.testing.assert_allclose(band.upper, [line.predict(60.0)])


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"grid": [100.0]}, r"grid\[0\] is 100.0"),
        ({"grid": []}, "grid is empty"),
        ({"grid": [[50.0]]}, "grid must have one dimension"),
        ({"resamples": 0}, "resamples is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 0.5}, "seed must be a whole number"),
    ],
)
def test_a_band_names_a_bad_option(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        bootstrap_band([50.0, 80.0], [40.0, 70.0], **({"grid": [60.0]} | options))
