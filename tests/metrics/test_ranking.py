from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from curate.metrics import auc

ITEMS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30).filter(
    lambda items: len({genuine for _, genuine in items}) == 2
)


@settings(deadline=None)
@given(ITEMS)
def test_agrees_with_scikit_learn_and_lies_in_its_interval(items: list[tuple[int, bool]]) -> None:
    scores, genuine = zip(*items, strict=True)
    result = auc(scores, genuine)
    assert result.value == pytest.approx(roc_auc_score(genuine, scores), abs=1e-12)
    assert 0.0 <= result.low <= result.value <= result.high <= 1.0
    assert (result.genuine, result.others) == (sum(genuine), len(items) - sum(genuine))


@settings(deadline=None)
@given(ITEMS)
def test_a_negated_score_mirrors_value_and_interval(items: list[tuple[int, bool]]) -> None:
    scores, genuine = zip(*items, strict=True)
    result, mirrored = auc(scores, genuine), auc(-np.array(scores), genuine)
    assert (1 - mirrored.high, 1 - mirrored.value, 1 - mirrored.low) == pytest.approx(
        (result.low, result.value, result.high), abs=1e-9
    )


@settings(deadline=None)
@given(ITEMS)
def test_the_ends_solve_newcombes_equation(items: list[tuple[int, bool]]) -> None:
    scores, genuine = zip(*items, strict=True)
    result = auc(scores, genuine)
    m, n = result.genuine, result.others
    for end in (result.low, result.high):
        if 1e-9 < end < 1 - 1e-9:
            spread = (1 - end) / (2 - end) + end / (1 + end)
            variance = end * (1 - end) * (1 + ((m + n) / 2 - 1) * spread) / (m * n)
            assert abs(result.value - end) == pytest.approx(
                norm.ppf(0.975) * math.sqrt(variance), abs=1e-6
            )


def test_a_score_that_separates_perfectly_is_not_certain_of_it() -> None:
    few, many = (auc(np.arange(2 * n), np.arange(2 * n) >= n) for n in (3, 300))
    assert few.value == few.high == many.value == 1.0
    assert few.low < 0.6 < 0.98 < many.low < 1.0
    assert auc([1, 2], [0, 1], confidence=0.5).low > auc([1, 2], [0, 1]).low


@pytest.mark.parametrize(("shift", "m", "n"), [(0.0, 10, 10), (1.0, 18, 26), (2.0, 5, 40)])
def test_intervals_hold_the_true_value_about_as_often_as_they_say(
    shift: float, m: int, n: int
) -> None:
    true, held = norm.cdf(shift / math.sqrt(2)), 0
    for seed in range(200):
        random = np.random.RandomState(seed)
        scores = np.r_[random.randn(m) + shift, random.randn(n)]
        result = auc(scores, np.r_[np.ones(m), np.zeros(n)])
        held += result.low <= true <= result.high
    assert 0.91 <= held / 200 <= 0.995


@pytest.mark.parametrize(
    ("scores", "genuine", "fault"),
    [
        ([], [], "scores is empty"),
        ([0.1, 0.2], [1, 1], "all 2 items are genuine: an AUC compares"),
        ([0.1, 0.2], [0, 0], "all 2 items are not genuine"),
        ([0.1, 0.2], [0, 2], r"genuine\[1\] is 2: expected 0 or 1"),
        ([0.1], [0, 1], "scores and genuine differ in length"),
        ([0.1, math.nan], [0, 1], r"scores\[1\] is nan"),
    ],
)
def test_bad_input_is_named(scores: Any, genuine: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        auc(scores, genuine)
    with pytest.raises(ValueError, match="confidence is 95"):
        auc([0.1, 0.2], [0, 1], confidence=95)
