from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix

from curate.metrics import class_accuracy, confusions

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60)


def split(items: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [a for a, _ in items], [b for _, b in items]


@given(PAIRS)
def test_pairs_are_the_confusion_matrix_off_its_diagonal(items: list[tuple[int, int]]) -> None:
    found = confusions(*split(items))
    matrix = confusion_matrix(*split(items), labels=range(5))
    np.fill_diagonal(matrix, 0)
    told = np.zeros_like(matrix)
    told[found.label, found.predicted] = found.count
    np.testing.assert_array_equal(told, matrix)
    assert found.total == matrix.sum() == found.count.sum()
    assert found.pairs == np.count_nonzero(matrix)


@given(PAIRS, st.integers(1, 5))
def test_the_most_frequent_come_first(items: list[tuple[int, int]], top: int) -> None:
    found = confusions(*split(items), top=top)
    counts = Counter(pair for pair in items if pair[0] != pair[1])
    expected = sorted(counts, key=lambda pair: (-counts[pair], pair))[:top]
    assert list(zip(found.label, found.predicted, strict=True)) == expected
    assert found.total == sum(counts.values())


def test_nothing_wrong_is_no_pair() -> None:
    found = confusions([3, 3], [3, 3])
    assert (found.label.size, found.total, found.pairs) == (0, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=40))
def test_each_class_has_its_share_and_its_exact_interval(items: list[tuple[int, bool]]) -> None:
    found = class_accuracy([a for a, _ in items], [b for _, b in items])
    assert found.label.tolist() == sorted({a for a, _ in items})
    for row, label in enumerate(found.label):
        right = [b for a, b in items if a == label]
        exact = binomtest(sum(right), len(right)).proportion_ci(0.95, method="exact")
        assert (found.n[row], found.right[row]) == (len(right), sum(right))
        assert found.accuracy[row] == pytest.approx(np.mean(right))
        assert found.low[row] == pytest.approx(exact.low, abs=1e-9)
        assert found.high[row] == pytest.approx(exact.high, abs=1e-9)


@pytest.mark.parametrize(
    ("labels", "other", "fault"),
    [
        ([], [], "labels is empty"),
        ([0, -1], [0, 1], r"labels\[1\] is -1"),
        ([0.5], [1], "labels must be whole numbers"),
        ([0, 1], [1], "differ in length: 2 and 1"),
    ],
)
def test_bad_input_is_named(labels: Any, other: Any, fault: str) -> None:
    for function in (confusions, class_accuracy):
        with pytest.raises(ValueError, match=fault):
            function(labels, other)


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="top is 0"):
        confusions([0], [1], top=0)
    with pytest.raises(ValueError, match=r"correct\[0\] is 2"):
        class_accuracy([0], [2])
    with pytest.raises(ValueError, match="confidence is 1"):
        class_accuracy([0], [1], confidence=1.0)
