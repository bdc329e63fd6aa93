from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.metrics import ordering
from curate.metrics.ordering import Ordered

# Usual scores with ties, and such as no model gives: subnormal ones and the largest doubles.
SCORES = st.one_of(
    st.sampled_from([-2.0, -0.5, -0.0, 0.0, 0.25, 1.0, 1.0 + 2**-52]),
    st.floats(-1.0, 1.0),
    st.floats(allow_nan=False, allow_infinity=False),
)
ITEMS = st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=40)


def split(items: list[tuple[float, bool]]) -> tuple[Any, Any]:
    return np.array([c for c, _ in items]), np.array([f for _, f in items])


@given(ITEMS, st.sampled_from([8, 2**15, 2**16]))
def test_groups_are_the_distinct_scores_of_flagged_items_counted_one_by_one(
    items: list[tuple[float, bool]], width: int
) -> None:
    scores, flagged = split(items)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "_WIDTH", width)  # 32768, 8 or 4 items a part
        ordered = Ordered((scores, flagged))
        found = [
            row
            for group in ordered.groups()
            for row in zip(*(array.tolist() for array in group[:4]), strict=True)
        ]
        assert found == [
            (
                int((scores < level).sum()),
                int((scores == level).sum()),
                int(flagged[scores < level].sum()),
                int(flagged[scores == level].sum()),
            )
            for level in np.unique(scores[flagged])
        ]
        assert ordered.hits == flagged.sum()
        assert ordered.distinct == (np.unique(scores).size == scores.size)
        np.testing.assert_array_equal(ordered.scores(slice(None)), np.sort(scores))
        places = np.flatnonzero(ordered.flags(slice(None)))
        assert [ordered.place(hit) for hit in range(ordered.hits)] == places.tolist()


@given(ITEMS, st.sampled_from([8, 2**15, 2**17]))
def test_expected_hits_are_the_mean_over_all_orders_of_ties(
    items: list[tuple[float, bool]], width: int
) -> None:
    scores, flagged = split(items)
    share = np.array([flagged[scores == one].mean() for one in scores])
    expected = np.cumsum(share[np.argsort(-scores, kind="stable")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "_WIDTH", width)
        found = np.concatenate([part.copy() for part in Ordered((scores, flagged)).expected_hits()])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@given(ITEMS)
def test_a_span_is_all_items_of_one_score_with_flagged_ones_last(
    items: list[tuple[float, bool]],
) -> None:
    scores, flagged = split(items)
    ordered = Ordered((scores, flagged))
    start, stop, first = ordered.spans(np.arange(len(items)))
    for place, level in enumerate(np.sort(scores)):
        assert start[place] == (scores < level).sum()
        assert stop[place] == (scores <= level).sum()
        assert stop[place] - first[place] == flagged[scores == level].sum()


def many(levels: int) -> Any:
    return np.random.RandomState(8).randint(0, levels, 5000) / levels


@pytest.mark.parametrize(
    "scores",
    [
        pytest.param(many(3), id="few long groups"),
        pytest.param(many(50), id="long groups"),
        pytest.param(many(1000), id="groups of five"),
        pytest.param(many(5000), id="groups of two"),
        pytest.param(many(100_000), id="nearly all distinct"),
        pytest.param(
            np.append(many(10**9), many(200)[:4000]), id="groups of twenty between others"
        ),
        pytest.param(np.append(many(10**9), many(2)[:4000]), id="two long groups between others"),
    ],
)
def test_groups_of_every_length_are_counted_one_by_one(scores: Any) -> None:
    flagged = np.random.RandomState(9).random_sample(scores.size) < 0.3
    _, which, size = np.unique(scores, return_inverse=True, return_counts=True)
    hits = np.bincount(which, flagged)
    expected = np.cumsum(np.repeat(hits / size, size)[::-1])
    ordered = Ordered((scores, flagged))
    found = np.concatenate([part.copy() for part in ordered.expected_hits()])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)
    rows = np.concatenate([np.array(group[:4]) for group in ordered.groups()], axis=1)
    wanted = np.array([np.cumsum(size) - size, size, np.cumsum(hits) - hits, hits])
    np.testing.assert_array_equal(rows, wanted[:, hits > 0])


@given(ITEMS)
def test_of_equal_scores_the_earlier_item_comes_first(items: list[tuple[float, bool]]) -> None:
    scores, flagged = split(items)
    found = Ordered((scores, flagged)).in_input_order(scores, flagged)
    np.testing.assert_array_equal(found, flagged[np.argsort(scores, kind="stable")])


def test_scores_too_close_to_be_sorted_together_with_their_places_keep_their_order() -> None:
    scores = np.array([0.0, 1.0 + 2**-52, 1.0, 1.0 + 2**-52, 1.0])
    flagged = np.array([False, True, False, False, True])
    found = Ordered((scores, flagged)).in_input_order(scores, flagged)
    assert found.tolist() == [0, 0, 1, 1, 0]


def test_usual_scores_with_ties_are_sorted_together_with_their_places() -> None:
    for scores in (many(50), many(5000).astype(np.float32).astype(np.float64), -many(1000)):
        flagged = np.random.RandomState(10).random_sample(scores.size) < 0.5
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(np, "argsort", None)
            found = Ordered((scores, flagged)).in_input_order(scores, flagged)
        np.testing.assert_array_equal(found, flagged[np.argsort(scores, kind="stable")])


def test_parts_are_taken_together_and_may_be_strided() -> None:
    scores = np.array([3.0, -9.0, 1.0, -9.0, 2.0])[::2]
    ordered = Ordered((scores, False), (np.array([1.0]), True))
    np.testing.assert_array_equal(ordered.scores(slice(None)), [1.0, 1.0, 2.0, 3.0])
    assert ordered.flags(slice(None)).tolist() == [0, 1, 0, 0]
    with_extreme = Ordered((np.array([1e300, -1e-300]), False), (np.array([1.0]), True))
    assert with_extreme.flags(slice(None)).tolist() == [0, 1, 0]


def test_the_smallest_steps_between_scores_are_kept() -> None:
    scores = np.array([1.0, 1.0 - 2**-53, 0.0, 2.0**-511, -(2.0**-511), 2.0**511])
    ordered = Ordered((scores, np.zeros(6, np.bool_)))
    assert ordered.distinct
    np.testing.assert_array_equal(ordered.scores(slice(None)), np.sort(scores))
