from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import softmax
from sklearn.metrics import accuracy_score, top_k_accuracy_score

from curate.metrics import accuracy, grouped_accuracy, predict, restrict, softmax_confidence
from curate.metrics.classification import merge_groups, top_k_accuracy

LOGITS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 20), st.integers(1, 8)),
    elements=st.floats(-1e4, 1e4),
)


def made(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(seed)
    labels = random.randint(0, classes, n)
    logits = random.randn(n, classes)
    logits[np.arange(n), labels] += 1.5
    return logits, labels


def test_restriction_takes_the_columns_in_the_order_given() -> None:
    logits = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=np.float32)
    restricted = restrict(logits, [2, 0])
    np.testing.assert_array_equal(restricted, [[3, 1], [6, 4]])
    assert restricted.dtype == np.float32
    np.testing.assert_array_equal(restrict([1.0, 2.0, 3.0], [1]), [2.0])


def test_restriction_returns_a_copy() -> None:
    logits = np.zeros((2, 3))
    restrict(logits, [0, 1, 2])[:] = 7
    assert not logits.any()


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ([], "columns is empty"),
        ([0, 3], r"columns\[1\] is 3: there are 3 columns"),
        ([-1], r"columns\[0\] is -1"),
        ([1, 1], "column 1 more than once"),
        ([0.0, 1.0], "must be whole numbers"),
        ([[0, 1]], "one dimension"),
    ],
)
def test_bad_columns_are_named(columns: list[object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        restrict(np.zeros((2, 3)), columns)  # type: ignore[arg-type]


@given(LOGITS)
def test_confidence_is_the_maximum_of_the_softmax(logits: np.ndarray) -> None:
    confidence = softmax_confidence(logits)
    np.testing.assert_allclose(confidence, softmax(logits, axis=1).max(axis=1), rtol=1e-12)
    assert (confidence <= 1).all()
    assert (confidence >= 1 / logits.shape[1] - 1e-12).all()


def test_confidence_of_float32_logits_does_not_saturate_where_float32_would() -> None:
    values = softmax_confidence(np.array([[18, 0, 0], [20, 0, 0], [30, 0, 0]], dtype=np.float32))
    np.testing.assert_allclose(
        values, [0.9999999695400414, 0.9999999958776926, 0.999999999999813], rtol=0, atol=1e-15
    )


def test_confidence_of_one_item_is_a_float_and_of_views_keeps_their_shape() -> None:
    assert softmax_confidence([0.0, 0.0]) == 0.5
    assert isinstance(softmax_confidence([0.0, 0.0]), float)
    assert softmax_confidence(np.zeros((4, 10, 5))).shape == (4, 10)


def test_confidence_survives_extreme_logits_without_a_warning() -> None:
    with np.errstate(all="raise", under="ignore"):
        assert softmax_confidence([1e308, -1e308]) == 1.0
        assert softmax_confidence([-1e308, -1e308]) == 0.5


def test_confidence_does_not_depend_on_where_blocks_of_rows_end() -> None:
    logits = np.random.RandomState(0).randn(700, 1000)
    whole = softmax_confidence(logits)
    single = [softmax_confidence(row) for row in logits]
    np.testing.assert_array_equal(whole, single)


def test_prediction_is_the_first_of_equal_logits() -> None:
    assert predict([0.0, 2.0, 2.0]) == 1
    assert isinstance(predict([0.0, 2.0, 2.0]), int)
    np.testing.assert_array_equal(predict([[1, 1, 0], [0, 2, 2]]), [0, 1])


def test_prediction_within_columns_names_columns_of_the_full_output() -> None:
    np.testing.assert_array_equal(predict([[9, 1, 2, 3], [9, 5, 2, 3]], [1, 3]), [3, 1])
    assert predict([9, 1, 2, 3], [1, 3]) == 3


@given(LOGITS, st.data())
def test_accuracy_agrees_with_scikit_learn(logits: np.ndarray, data: st.DataObject) -> None:
    n, classes = logits.shape
    labels = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, classes - 1)))
    assert accuracy(logits, labels) == accuracy_score(labels, logits.argmax(axis=1))
    assert accuracy(logits, labels) == top_k_accuracy(logits, labels, k=1)
    assert top_k_accuracy(logits, labels, k=classes) == 1.0


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_top_k_accuracy_agrees_with_scikit_learn(k: int) -> None:
    logits, labels = made(500, 10)
    expected = top_k_accuracy_score(labels, logits, k=k, labels=np.arange(10))
    assert top_k_accuracy(logits, labels, k) == pytest.approx(expected, abs=1e-12)


def test_top_k_ranks_equal_logits_by_their_columns() -> None:
    assert top_k_accuracy([[1, 1, 1]], [1], k=1) == 0.0
    assert top_k_accuracy([[1, 1, 1]], [1], k=2) == 1.0
    assert top_k_accuracy([[1, 1, 1]], [1], k=1, columns=[1, 0]) == 1.0


@pytest.mark.parametrize("k", [0, 4, 2.0, True])
def test_top_k_refuses_a_k_that_is_no_rank(k: object) -> None:
    with pytest.raises(ValueError, match=r"^k "):
        top_k_accuracy([[1, 2, 3]], [0], k=k)  # type: ignore[arg-type]


def test_accuracy_within_columns_takes_labels_of_the_full_output() -> None:
    logits = [[9, 1, 2], [9, 3, 2]]
    assert accuracy(logits, [2, 1]) == 0.0
    assert accuracy(logits, [2, 1], columns=[1, 2]) == 1.0
    assert accuracy(logits, [2, 1], columns=[2, 1]) == 1.0


@pytest.mark.parametrize(
    ("logits", "labels", "columns", "fault"),
    [
        ([[1, math.nan]], [0], None, r"logits\[0, 1\] is nan"),
        ([[1, 2], [math.inf, 0]], [0, 0], None, r"logits\[1, 0\] is inf"),
        (np.zeros((0, 3)), [], None, "logits is empty"),
        (np.zeros((2, 0)), [0, 0], None, "logits is empty"),
        ([[1, 2]], [0, 1], None, "logits and labels differ in length: 1 and 2"),
        ([[1, 2]], [2], None, r"labels\[0\] is 2: there are 2 classes"),
        ([[1, 2]], [-1], None, r"labels\[0\] is -1"),
        ([[1, 2]], [0.0], None, "labels must be whole numbers"),
        ([[1, 2]], [True], None, "labels must be whole numbers"),
        ([1, 2], [0], None, "items by classes"),
        ([["a", "b"]], [0], None, "logits must hold numbers"),
        ([[1, 2], [3]], [0, 0], None, "logits is no array of numbers"),
        ([[1, 2, 3]], [2], [0, 1], r"labels\[0\] is 2: outside the label space"),
    ],
)
def test_accuracy_names_the_fault(
    logits: object, labels: object, columns: object, fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        accuracy(logits, labels, columns)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=fault):
        top_k_accuracy(logits, labels, k=1, columns=columns)  # type: ignore[arg-type]


@pytest.mark.parametrize("measure", [softmax_confidence, predict])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_single_items_refuse_what_has_no_softmax(measure: object, bad: float) -> None:
    with pytest.raises(ValueError, match=r"logits\[1\] is"):
        measure([0.0, bad])  # type: ignore[operator]
    with pytest.raises(ValueError, match="last axis of classes"):
        measure(3.0)  # type: ignore[operator]


def test_groups_merge_by_the_largest_logit_and_ignore_other_classes() -> None:
    logits = [[5, 1, 0, 9], [0, 1, 2, 9], [3, 3, 3, 3], [0, 0, 0, 9]]
    labels = [1, 2, 2, 3]
    merged, truth = merge_groups(logits, labels, [[0, 1], [2]])
    np.testing.assert_array_equal(merged, [[5, 0], [1, 2], [3, 3]])
    np.testing.assert_array_equal(truth, [0, 1, 1])
    assert grouped_accuracy(logits, labels, [[0, 1], [2]]) == pytest.approx(2 / 3)


def test_grouped_accuracy_agrees_with_a_loop_over_items() -> None:
    logits, labels = made(300, 30, seed=3)
    groups = [[0, 1, 2], [5], [9, 14], [20, 21, 22, 23], [29]]
    right = []
    for row, label in zip(logits, labels, strict=True):
        mine = [i for i, group in enumerate(groups) if label in group]
        if mine:
            scores = [max(row[c] for c in group) for group in groups]
            right.append(scores.index(max(scores)) == mine[0])
    assert grouped_accuracy(logits, labels, groups) == pytest.approx(np.mean(right), abs=1e-12)


def test_groups_of_one_class_each_are_accuracy_within_columns() -> None:
    logits, labels = made(200, 12, seed=4)
    columns = [2, 3, 7]
    kept = np.isin(labels, columns)
    assert grouped_accuracy(logits, labels, [[c] for c in columns]) == accuracy(
        logits[kept], labels[kept], columns
    )


@pytest.mark.parametrize(
    ("groups", "fault"),
    [
        ([], "groups is empty"),
        ([[0], []], r"groups\[1\] is empty"),
        ([[0, 1], [1]], "groups names column 1 more than once"),
        ([[0], [5]], r"groups\[1\]\[0\] is 5"),
        ([[2]], "no item is of a class in any group"),
    ],
)
def test_bad_groups_are_named(groups: list[list[int]], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        grouped_accuracy([[1, 2, 3]], [0], groups)
