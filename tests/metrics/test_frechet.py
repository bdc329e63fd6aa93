"""The distance between Gaussians, beside scipy's root of a matrix and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from curate.metrics.frechet import (
    Gaussian,
    Moments,
    extrapolated_distance,
    frechet_distance,
    gaussian,
)

SEEDS = st.integers(0, 999)


def drawn(n: int, d: int, seed: int) -> np.ndarray:
    """Features with correlations and a mean of their own."""
    random = np.random.RandomState(seed)
    return random.normal(size=(n, d)) @ random.normal(size=(d, d)) + 3.0 * random.normal(size=d)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(1, 8))
def test_it_is_that_of_the_root_of_the_product(seed: int, d: int) -> None:
    a, b = gaussian(drawn(40, d, seed)), gaussian(drawn(30, d, seed + 1))
    root = np.atleast_2d(sqrtm(a.covariance @ b.covariance)).real
    plain = np.sum((a.mean - b.mean) ** 2) + np.trace(a.covariance + b.covariance - 2.0 * root)
    assert frechet_distance(a, b) == pytest.approx(plain, rel=1e-6, abs=1e-8)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(2, 12), st.integers(2, 8))
def test_equal_sets_are_at_no_distance_and_no_side_is_the_first(seed: int, n: int, d: int) -> None:
    """Singular covariances, of fewer items than dimensions, among them."""
    one, other = drawn(n, d, seed), drawn(n + 3, d, seed + 1)
    a, b = gaussian(one), gaussian(other)
    scale = float(a.covariance.trace() + b.covariance.trace())
    assert frechet_distance(a, gaussian(one[::-1])) == pytest.approx(0.0, abs=1e-9 * scale)
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a), abs=1e-9 * scale)
    assert frechet_distance(a, b) >= np.sum((a.mean - b.mean) ** 2) - 1e-9 * scale


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.floats(0.1, 10.0))
def test_turning_both_sets_changes_nothing_and_scaling_squares(seed: int, scale: float) -> None:
    one, other = drawn(30, 5, seed), drawn(20, 5, seed + 1)
    turned, _ = np.linalg.qr(np.random.RandomState(seed).normal(size=(5, 5)))
    plain = frechet_distance(gaussian(one), gaussian(other))
    moved = [scale * values @ turned + 7.0 for values in (one, other)]
    assert frechet_distance(*map(gaussian, moved)) == pytest.approx(scale**2 * plain, rel=1e-8)


def test_closed_forms() -> None:
    zero = np.zeros(3)
    a, b = np.array([4.0, 9.0, 0.0]), np.array([1.0, 16.0, 25.0])
    squares = np.sum((np.sqrt(a) - np.sqrt(b)) ** 2)
    one, other = (Gaussian(9, zero, np.diag(v)) for v in (a, b))
    assert frechet_distance(one, other) == pytest.approx(squares)
    moved = Gaussian(9, np.array([3.0, 4.0, 0.0]), np.diag(b))
    assert frechet_distance(one, moved) == pytest.approx(squares + 25.0)
    assert frechet_distance(moved, other) == pytest.approx(25.0)
    points = gaussian([[1.0, 5.0], [1.0, 5.0]])
    assert frechet_distance(points, gaussian([[4.0, 1.0], [4.0, 1.0]])) == pytest.approx(25.0)
    assert points.singular
    assert not gaussian(drawn(9, 3, 1)).singular


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.lists(st.integers(0, 7), min_size=1, max_size=8))
def test_batches_of_any_size_give_the_moments_of_the_whole(seed: int, sizes: list[int]) -> None:
    rows = drawn(sum(sizes) + 2, 4, seed) + 1e6
    moments, start = Moments(), 0
    for size in [*sizes, 2]:
        moments.add(rows[start : start + size])
        start += size
    found = moments.gaussian()
    assert found.n == len(rows)
    assert found.mean == pytest.approx(rows.mean(axis=0), rel=1e-14)
    centred = rows - rows.mean(axis=0)
    covariance = centred.T @ centred / (len(rows) - 1)
    assert found.covariance == pytest.approx(covariance, rel=1e-6, abs=1e-6)
    again = Moments.from_arrays(moments.arrays()).gaussian()
    assert np.array_equal(again.covariance, found.covariance)


def test_few_items_make_a_distance_too_large_and_halves_tell_by_how_much() -> None:
    d, n = 16, 60
    random = np.random.RandomState(4)
    shape = random.normal(size=(d, d)) / 4.0
    true = frechet_distance(
        Gaussian(9, np.zeros(d), shape.T @ shape), Gaussian(9, np.full(d, 0.2), np.eye(d))
    )
    whole, halves = [], []
    for _ in range(20):
        a, b = random.normal(size=(n, d)) @ shape, random.normal(size=(n, d)) + 0.2
        whole.append(frechet_distance(gaussian(a), gaussian(b)))
        halves += [
            frechet_distance(gaussian(one), gaussian(other))
            for one in (a[::2], a[1::2])
            for other in (b[::2], b[1::2])
        ]
    assert true < np.mean(whole) < np.mean(halves)
    better = extrapolated_distance(float(np.mean(whole)), float(np.mean(halves)))
    assert abs(better - true) < 0.15 * (np.mean(whole) - true)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([[1.0, 2.0]], "at least two items"),
        (np.zeros((0, 3)), "at least two items"),
        ([1.0, 2.0], "a row an item"),
        (np.zeros((4, 0)), "a row an item"),
        ([[1.0, np.nan], [0.0, 1.0]], r"features\[0, 1\] is nan"),
        ([[1.0, np.inf], [0.0, 1.0]], r"features\[0, 1\] is inf"),
        ([["a"], ["b"]], "must hold numbers"),
    ],
)
def test_what_has_no_covariance_is_refused(rows: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        gaussian(rows)  # type: ignore[arg-type]


def test_sets_of_other_dimensions_are_refused() -> None:
    two, three = gaussian(drawn(5, 2, 1)), gaussian(drawn(5, 3, 1))
    with pytest.raises(ValueError, match="differ in dimensions: 2 and 3"):
        frechet_distance(two, three)
    with pytest.raises(ValueError, match="a has a covariance of shape"):
        frechet_distance(Gaussian(5, two.mean, three.covariance), two)
    with pytest.raises(ValueError, match="covariance of b"):
        frechet_distance(two, Gaussian(5, two.mean, np.full((2, 2), np.nan)))
    moments, other = Moments(), Moments()
    moments.add(drawn(3, 2, 1))
    other.add(drawn(3, 3, 1))
    with pytest.raises(ValueError, match="3 dimensions, those before had 2"):
        moments.add(drawn(3, 3, 1))
    with pytest.raises(ValueError, match="3 dimensions, those before had 2"):
        moments.merge(other)
    with pytest.raises(ValueError, match="no moments"):
        Moments.from_arrays(moments.arrays() | {"mean": np.zeros(3)})


def test_the_root_has_the_rank_of_the_items() -> None:
    one = gaussian(drawn(4, 6, 1))
    assert one.root.shape == (6, 3)
    assert one.root @ one.root.T == pytest.approx(one.covariance, abs=1e-9)
