from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import f1_score

from curate.metrics import calibration_error, overconfidence, reliability_curve, soft_f1

ITEMS = st.lists(
    st.tuples(st.one_of(st.sampled_from([0.0, 0.3, 0.7, 1.0]), st.floats(0.0, 1.0)), st.booleans()),
    min_size=1,
    max_size=40,
)


def split(items: list[tuple[float, bool]]) -> tuple[list[float], list[bool]]:
    return [c for c, _ in items], [r for _, r in items]


@given(ITEMS, st.integers(1, 12))
def test_bins_of_equal_count_are_those_of_the_calibration_error(
    items: list[tuple[float, bool]], bin_size: int
) -> None:
    curve = reliability_curve(*split(items), bin_size=bin_size)
    gaps, shares = np.abs(curve.confidence - curve.accuracy), curve.count / len(items)
    assert curve.count.sum() == len(items)
    assert np.all(curve.count[:-1] == min(bin_size, len(items)))
    for norm, value in (
        ("rms", math.sqrt(np.sum(shares * gaps**2))),
        ("mad", np.sum(shares * gaps)),
        ("max", gaps.max()),
    ):
        assert calibration_error(*split(items), norm, bin_size) == pytest.approx(value, abs=1e-12)  # type: ignore[arg-type]
    assert np.sum(curve.count * curve.accuracy) == pytest.approx(sum(split(items)[1]))
    assert np.all(curve.low <= curve.confidence + 1e-12)
    assert np.all(curve.confidence <= curve.high + 1e-12)


@given(ITEMS, st.integers(1, 20))
def test_bins_of_equal_width_agree_with_a_loop_over_items(
    items: list[tuple[float, bool]], count: int
) -> None:
    bins: dict[int, list[tuple[float, bool]]] = {}
    for confidence, right in items:
        holds = [i for i in range(count) if i / count < confidence <= (i + 1) / count]
        bins.setdefault(holds[0] if holds else 0, []).append((confidence, right))
    curve = reliability_curve(*split(items), "width", bin_count=count)
    assert curve.count.tolist() == [len(bins[i]) for i in sorted(bins)]
    assert curve.accuracy.tolist() == pytest.approx(
        [np.mean([right for _, right in bins[i]]) for i in sorted(bins)], abs=1e-12
    )
    assert curve.confidence.tolist() == pytest.approx(
        [np.mean([c for c, _ in bins[i]]) for i in sorted(bins)], abs=1e-12
    )
    assert curve.low.tolist() == [i / count for i in sorted(bins)]
    assert curve.high.tolist() == [(i + 1) / count for i in sorted(bins)]


def test_bins_of_equal_width_agree_with_scikit_learn_where_no_item_is_on_an_edge() -> None:
    random = np.random.default_rng(2)
    confidence = random.random(2000)
    correct = random.random(2000) < confidence
    curve = reliability_curve(confidence, correct, "width", bin_count=10)
    accuracy, mean = calibration_curve(correct, confidence, n_bins=10)
    np.testing.assert_allclose(curve.accuracy, accuracy, atol=1e-12)
    np.testing.assert_allclose(curve.confidence, mean, atol=1e-12)


def test_a_score_a_hair_beside_an_edge_is_in_the_bin_it_belongs_to() -> None:
    for count in range(1, 60):
        edges = np.arange(count + 1) / count
        scores = np.concatenate([edges, np.nextafter(edges[:-1], 2), np.nextafter(edges[1:], -1)])
        curve = reliability_curve(scores, np.ones(scores.size, bool), "width", bin_count=count)
        places = np.clip(np.searchsorted(edges, scores, side="left") - 1, 0, None)
        assert curve.count.tolist() == np.bincount(places, minlength=count).tolist(), count


def test_exactly_zero_and_exactly_one_are_in_the_first_and_the_last_bin() -> None:
    curve = reliability_curve([0.0, 1.0], [0, 1], "width", bin_count=15)
    assert curve.low.tolist() == [0.0, 14 / 15]
    assert curve.count.tolist() == [1, 1]
    assert curve.confidence.tolist() == curve.accuracy.tolist() == [0.0, 1.0]


@given(ITEMS)
def test_soft_f1_is_the_formula_in_fractions(items: list[tuple[float, bool]]) -> None:
    doubt = [1 - Fraction(c) for c, _ in items]
    wrong = [Fraction(not r) for _, r in items]
    below = sum(doubt) + sum(wrong)
    expected = 2 * sum(a * w for a, w in zip(doubt, wrong, strict=True)) / below if below else 1
    value = soft_f1(*split(items))
    assert 0.0 <= value <= 1.0
    assert value == pytest.approx(float(expected), abs=1e-12)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_without_doubt_between_soft_f1_is_the_f1_score(items: list[tuple[bool, bool]]) -> None:
    confident, right = [c for c, _ in items], [r for _, r in items]
    expected = f1_score(~np.array(right), ~np.array(confident), zero_division=1.0)
    assert soft_f1(np.array(confident, float), right) == pytest.approx(expected)


def test_the_ends_of_soft_f1() -> None:
    assert soft_f1([1.0, 1.0], [1, 1]) == 1.0
    assert soft_f1([0.9, 1.0], [1, 1]) == 0.0
    assert soft_f1([1.0, 1.0], [0, 1]) == 0.0
    assert soft_f1([0.0, 1.0], [0, 1]) == 1.0
    assert soft_f1([0.0], [0]) == 1.0
    assert soft_f1([0.25], [0]) == pytest.approx(2 * 0.75 / 1.75)


@given(ITEMS)
def test_overconfidence_is_a_difference_of_means_within_the_mean_absolute_error(
    items: list[tuple[float, bool]],
) -> None:
    confidence, correct = split(items)
    value = overconfidence(confidence, correct)
    assert value == pytest.approx(np.mean(confidence) - np.mean(correct), abs=1e-12)
    assert abs(value) <= calibration_error(confidence, correct, "mad", 3) + 1e-12


@pytest.mark.parametrize(
    ("confidence", "correct", "fault"),
    [
        ([], [], "confidence is empty"),
        ([0.5, math.nan], [1, 0], r"confidence\[1\] is nan"),
        ([50.0, 90.0], [1, 0], r"confidence\[0\] is 50.0: outside \[0, 1\], a fraction"),
        ([0.5], [1, 0], "differ in length: 1 and 2"),
        ([0.5], [3], r"correct\[0\] is 3"),
    ],
)
def test_bad_input_is_named(confidence: Any, correct: Any, fault: str) -> None:
    for function in (reliability_curve, overconfidence, soft_f1):
        with pytest.raises(ValueError, match=fault):
            function(confidence, correct)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"bins": "size"}, "bins is 'size': expected 'count' or 'width'"),
        ({"bin_size": 0}, "bin_size is 0"),
        ({"bin_count": 0}, "bin_count is 0"),
    ],
)
def test_unknown_options_are_named(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        reliability_curve([0.5], [1], **options)
