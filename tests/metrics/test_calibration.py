from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.metrics import calibration_error

NORMS = ("rms", "mad", "max")
ITEMS = st.lists(
    st.tuples(st.one_of(st.sampled_from([0.0, 0.3, 1.0]), st.floats(0.0, 1.0)), st.booleans()),
    min_size=1,
    max_size=40,
)


def split(items: list[tuple[float, bool]]) -> tuple[list[float], list[bool]]:
    return [c for c, _ in items], [r for _, r in items]


def by_definition(
    confidence: Any, correct: Any, norm: str, bin_size: int, drop_last: bool, mean_ties: bool
) -> float:
    """A loop over bins of a sorted list, with nothing shared with the code under test."""
    items = sorted(zip(confidence, correct, strict=True), key=lambda item: item[0])
    values = [float(right) for _, right in items]
    if mean_ties:
        same = {c: [float(r) for d, r in items if d == c] for c, _ in items}
        values = [sum(same[c]) / len(same[c]) for c, _ in items]
    n = len(items)
    count = max(1, n // bin_size)
    total, worst = 0.0, 0.0
    for i in range(count - 1 if drop_last else count):
        stop = n if i == count - 1 else (i + 1) * bin_size
        chosen = range(i * bin_size, stop)
        gap = abs(sum(items[j][0] - values[j] for j in chosen)) / len(chosen)
        worst = max(worst, gap)
        total += len(chosen) / n * (gap**2 if norm == "rms" else gap)
    return {"rms": math.sqrt(total), "mad": total, "max": worst}[norm]


@pytest.mark.parametrize(
    ("norm", "expected"),
    [("rms", 0.7487604130377226), ("mad", 0.7487437185929648), ("max", 0.7537437185929649)],
)
def test_a_confident_half_that_is_all_wrong(norm: Any, expected: float) -> None:
    confidence, correct = np.linspace(0.01, 1, 200), np.arange(200) < 100
    assert calibration_error(confidence, correct, norm) == pytest.approx(expected, abs=1e-12)


def test_the_published_convention_misses_the_most_confident_bin() -> None:
    confidence, correct = np.linspace(0.01, 1, 200), np.arange(200) < 100
    value = calibration_error(confidence, correct, convention="published")
    assert value == pytest.approx(0.5259062268819847, abs=1e-12)
    assert calibration_error(confidence[:150], correct[:150], convention="published") == 0.0
    assert calibration_error(confidence[:100], correct[:100], "max", convention="published") == 0.0
    with pytest.raises(ValueError, match="no value for 99 items, fewer than bin_size 100"):
        calibration_error(confidence[:99], correct[:99], convention="published")


@given(ITEMS, st.integers(1, 12), st.sampled_from(NORMS), st.booleans(), st.booleans())
def test_agrees_with_a_loop_over_bins(
    items: list[tuple[float, bool]], bin_size: int, norm: Any, published: bool, mean_ties: bool
) -> None:
    if published and len(items) < bin_size:
        return
    value = calibration_error(
        *split(items),
        norm=norm,
        bin_size=bin_size,
        convention="published" if published else "all",
        ties="mean" if mean_ties else "input",
    )
    expected = by_definition(*split(items), norm, bin_size, published, mean_ties)
    assert value == pytest.approx(expected, abs=1e-12)


@given(ITEMS, st.integers(1, 12), st.sampled_from(NORMS), st.randoms(use_true_random=False))
def test_mean_ties_make_it_independent_of_order(
    items: list[tuple[float, bool]], bin_size: int, norm: Any, shuffle: Random
) -> None:
    before = calibration_error(*split(items), norm=norm, bin_size=bin_size)
    shuffle.shuffle(items)
    assert calibration_error(*split(items), norm=norm, bin_size=bin_size) == before


@given(ITEMS, st.integers(1, 12))
def test_norms_are_ordered_and_within_zero_and_one(
    items: list[tuple[float, bool]], bin_size: int
) -> None:
    rms, mad, largest = (
        calibration_error(*split(items), norm=norm, bin_size=bin_size)  # type: ignore[arg-type]
        for norm in NORMS
    )
    assert 0.0 <= mad <= rms + 1e-12
    assert rms <= largest + 1e-12
    assert largest <= 1.0 + 1e-12


def test_order_matters_only_where_a_bin_edge_parts_ties() -> None:
    confidence, correct = [0.5] * 4, [1, 1, 0, 0]
    assert calibration_error(confidence, correct, bin_size=2, ties="input") == 0.5
    assert calibration_error(confidence, [1, 0, 1, 0], bin_size=2, ties="input") == 0.0
    assert calibration_error(confidence, correct, bin_size=2) == 0.0


def test_confidence_of_exactly_zero_and_one_falls_into_bins_like_any_other() -> None:
    assert calibration_error([0.0, 1.0], [0, 1]) == 0.0
    assert calibration_error([0.0, 1.0], [1, 0], bin_size=1) == 1.0
    assert calibration_error([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1], bin_size=2) == 0.0
    assert calibration_error([1.0, 1.0, 1.0], [1, 1, 0], bin_size=1) == pytest.approx(1 / 3)


def test_one_item_is_its_own_bin() -> None:
    for norm in NORMS:
        assert calibration_error([0.8], [1], norm) == pytest.approx(0.2)  # type: ignore[arg-type]


def test_the_remainder_joins_the_last_bin() -> None:
    confidence = [0.1, 0.2, 0.3, 0.4, 0.5]
    value = calibration_error(confidence, [0, 0, 1, 1, 1], "max", bin_size=2)
    assert value == pytest.approx(1 - 0.4)


@pytest.mark.parametrize(
    ("confidence", "correct", "fault"),
    [
        ([], [], "confidence is empty"),
        ([0.5, math.nan], [1, 0], r"confidence\[1\] is nan"),
        ([50.0, 90.0], [1, 0], r"confidence\[0\] is 50.0: outside \[0, 1\], a fraction"),
        ([0.5, -0.1], [1, 0], r"confidence\[1\] is -0.1"),
        ([0.5], [1, 0], "differ in length: 1 and 2"),
        ([0.5], [3], r"correct\[0\] is 3"),
    ],
)
def test_bad_input_is_named(confidence: Any, correct: Any, fault: str) -> None:
    for ties in ("mean", "input"):
        with pytest.raises(ValueError, match=fault):
            calibration_error(confidence, correct, ties=ties)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"norm": "l2"}, "norm is 'l2': expected 'rms' or 'mad' or 'max'"),
        ({"convention": "some"}, "convention is 'some'"),
        ({"ties": "expected"}, "ties is 'expected'"),
        ({"bin_size": 0}, "bin_size is 0: it must be at least 1"),
        ({"bin_size": 10.0}, "bin_size must be a whole number"),
    ],
)
def test_unknown_options_are_named(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        calibration_error([0.5], [1], **options)
