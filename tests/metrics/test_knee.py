"""Where two lines that meet leave the least squares, beside a plain search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from curate.metrics.knee import find_knee


def planted(knee: float, below: float, above: float, n: int, noise: float, seed: int) -> np.ndarray:
    random = np.random.RandomState(seed)
    x = np.sort(random.uniform(-1.0, 3.0, n))
    y = -3.0 + below * (x - knee) + (above - below) * np.maximum(0.0, x - knee)
    return 100.0 * expit(np.stack([x, y + noise * random.normal(size=n)]))


@settings(max_examples=15, deadline=None)
@given(st.floats(0.0, 2.0), st.floats(0.1, 1.0), st.floats(2.0, 4.0), st.integers(0, 99))
def test_a_planted_knee_is_found_in_any_order(
    knee: float, below: float, above: float, seed: int
) -> None:
    x, y = planted(knee, below, above, 80, 0.02, seed)
    found = find_knee(x, y, resamples=20)
    assert found is not None
    assert found.percent == pytest.approx(100.0 * expit(knee), abs=2.0)
    assert (found.slope_below, found.slope_above) == pytest.approx((below, above), abs=0.15)
    assert found.r2 > found.r2_line
    order = np.random.RandomState(seed).permutation(80)
    assert find_knee(x[order], y[order], resamples=20) == found


def test_it_leaves_what_plain_least_squares_leaves() -> None:
    x, y = planted(1.0, 0.5, 2.5, 40, 0.4, 7)
    found = find_knee(x, y, resamples=5)
    assert found is not None
    at, value = (np.log(v / (100.0 - v)) for v in (x, y))
    at, value = at[np.argsort(at)], value[np.argsort(at)]
    least = np.inf
    for place in np.linspace(at[2], at[-3], 200):
        design = np.stack([np.ones(40), at, np.maximum(0.0, at - place)], axis=1)
        solved, *_ = np.linalg.lstsq(design, value, rcond=None)
        left = float(np.sum((value - design @ solved) ** 2))
        if left < least:
            least, best, slopes = left, place, solved
    assert found.percent == pytest.approx(100.0 * expit(best))
    assert (found.slope_below, found.slope_above) == pytest.approx(
        (slopes[1], slopes[1] + slopes[2])
    )
    assert found.r2 == pytest.approx(1.0 - least / np.sum((value - value.mean()) ** 2))


def test_its_interval_is_of_models_drawn_with_replacement() -> None:
    x, y = planted(1.0, 0.5, 2.5, 30, 0.4, 5)
    found = find_knee(x, y, resamples=100, seed=4)
    assert found is not None
    at, value = (np.log(v / (100.0 - v))[np.argsort(x)] for v in (x, y))
    places = np.linspace(at[2], at[-3], 200)
    random, ends = np.random.RandomState(4), []
    for _ in range(100):
        rows = random.randint(0, 30, 30)
        left = []
        for place in places:
            hinge = np.maximum(0.0, at[rows] - place)
            design = np.stack([np.ones(30), at[rows], hinge], axis=1)
            solved, *_ = np.linalg.lstsq(design, value[rows], rcond=None)
            left.append(np.sum((value[rows] - design @ solved) ** 2))
        ends.append(places[np.argmin(left)])
    ends.sort()
    assert found.interval == pytest.approx([100.0 * expit(ends[place]) for place in (2, 97)])


def test_a_straight_line_has_no_knee_worth_the_name() -> None:
    x, y = planted(1.0, 1.5, 1.5, 60, 0.1, 3)
    found = find_knee(x, y, resamples=200)
    assert found is not None
    assert found.r2 - found.r2_line < 0.01
    assert found.interval[1] - found.interval[0] > 10.0
    bent = find_knee(*planted(1.0, 0.3, 3.0, 60, 0.1, 3), resamples=200)
    assert bent is not None
    assert bent.interval[1] - bent.interval[0] < 10.0


def test_few_models_have_none_and_nonsense_is_refused() -> None:
    x = np.linspace(50.0, 90.0, 10)
    assert find_knee(x, x / 2.0, resamples=5) is not None
    assert find_knee(x[1:], x[1:] / 2.0) is None
    assert find_knee(np.repeat(x[1:], 2), np.arange(1.0, 19.0)) is None
    for x, y in (([50.0, 100.0], [1.0, 2.0]), ([50.0], [1.0, 2.0]), ([np.nan, 1.0], [1.0, 2.0])):
        with pytest.raises(ValueError, match=r"x|y"):
            find_knee(x, y)
