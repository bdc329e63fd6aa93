from __future__ import annotations

import itertools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.metrics import aurra
from curate.metrics.selective import response_rate_curve

# Few levels, so that ties are the rule; 0 and 1 are among them.
TIED = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()), min_size=1, max_size=30
)
ANY = st.lists(st.tuples(st.floats(-1e300, 1e300), st.booleans()), min_size=1, max_size=30)


def split(items: list[tuple[float, bool]]) -> tuple[list[float], list[bool]]:
    return [c for c, _ in items], [r for _, r in items]


def by_definition(right: list[int] | tuple[int, ...]) -> float:
    return float(np.mean([sum(right[:j]) / j for j in range(1, len(right) + 1)]))


@pytest.mark.parametrize(
    ("confidence", "correct", "expected"),
    [
        ([0.9, 0.8, 0.7, 0.6], [0, 0, 1, 1], (0 + 0 + 1 / 3 + 1 / 2) / 4),
        ([0.9, 0.9, 0.9, 0.9, 0.5, 0.5], [1, 1, 0, 0, 1, 0], 0.5),
        ([0.5] * 6, [1, 1, 1, 0, 0, 0], 0.5),
        ([0.7], [1], 1.0),
        ([0.7], [0], 0.0),
        ([0.0, 1.0], [1, 0], 0.25),
    ],
)
def test_true_values(confidence: list[float], correct: list[int], expected: float) -> None:
    assert aurra(confidence, correct) == pytest.approx(expected, abs=1e-12)


def test_all_tied_the_other_conventions_follow_the_order_of_the_input() -> None:
    tied = [0.5] * 6
    assert aurra(tied, [1, 1, 1, 0, 0, 0], "input") == pytest.approx(0.8083333333333332)
    assert aurra(tied, [0, 0, 0, 1, 1, 1], "input") == pytest.approx(0.19166666666666665)
    assert aurra(tied, [1, 1, 1, 0, 0, 0], "published") == pytest.approx(0.19166666666666665)
    assert aurra(tied, [0, 0, 0, 1, 1, 1], "published") == pytest.approx(0.8083333333333332)
    assert aurra(tied, [1, 0, 1, 0, 1, 0], "published") == pytest.approx(0.3722222222222222)


@pytest.mark.parametrize("seed", range(8))
def test_expected_value_is_the_mean_over_every_order_of_ties(seed: int) -> None:
    random = np.random.RandomState(seed)
    confidence = random.randint(0, 3, 7) / 2
    correct = random.randint(0, 2, 7)
    groups = [correct[confidence == level] for level in sorted(set(confidence), reverse=True)]
    orders = itertools.product(*(list(itertools.permutations(group)) for group in groups))
    values = [by_definition(np.concatenate(order).tolist()) for order in orders]
    assert aurra(confidence, correct) == pytest.approx(np.mean(values), abs=1e-12)


@given(ANY)
def test_stable_order_agrees_with_the_definition(items: list[tuple[float, bool]]) -> None:
    ranked = sorted(items, key=lambda item: -item[0])
    assert aurra(*split(items), ties="input") == pytest.approx(
        by_definition([int(right) for _, right in ranked]), abs=1e-12
    )


@given(TIED, st.randoms(use_true_random=False))
def test_expected_value_does_not_depend_on_order(
    items: list[tuple[float, bool]], shuffle: Random
) -> None:
    before = aurra(*split(items))
    shuffle.shuffle(items)
    assert aurra(*split(items)) == before


@given(TIED)
def test_every_convention_stays_between_zero_and_one(items: list[tuple[float, bool]]) -> None:
    values = [aurra(*split(items), ties=ties) for ties in ("expected", "input", "published")]
    assert all(0.0 <= value <= 1.0 for value in values)
    confidence, correct = split(items)
    if all(correct):
        assert values == [1.0] * 3
    if not any(correct):
        assert values == [0.0] * 3
    if len(set(confidence)) == len(confidence):
        assert values[0] == pytest.approx(values[1], abs=1e-12)
        assert values[0] == pytest.approx(values[2], abs=1e-12)


@given(TIED)
def test_only_the_ranking_counts(items: list[tuple[float, bool]]) -> None:
    confidence, correct = split(items)
    assert aurra(np.log(np.array(confidence) + 2), correct) == aurra(confidence, correct)


def test_published_order_is_the_reversed_argsort() -> None:
    random = np.random.RandomState(0)
    confidence, correct = random.randint(0, 5, 500) / 5, random.randint(0, 2, 500)
    order = np.argsort(confidence)[::-1]
    assert aurra(confidence, correct, "published") == by_definition(correct[order].tolist())


def test_negative_zero_ties_with_zero() -> None:
    assert aurra([0.0, -0.0], [1, 0]) == 0.5


def test_the_curve_ends_at_the_accuracy_and_its_mean_is_the_area() -> None:
    confidence, correct = [0.9, 0.4, 0.4, 0.1], [1, 0, 1, 0]
    curve = response_rate_curve(confidence, correct)
    np.testing.assert_allclose(curve.rate, [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(curve.accuracy, [1.0, 0.75, 2 / 3, 0.5])
    assert curve.accuracy.mean() == aurra(confidence, correct)


def test_a_million_items_with_ties_keep_their_precision() -> None:
    n = 1_200_000  # more groups of ties than fit into one block
    confidence = np.repeat(np.arange(n // 4), 4) / n
    correct = np.tile([1, 0, 0, 0], n // 4)
    assert aurra(confidence, correct) == pytest.approx(0.25, abs=1e-12)


@pytest.mark.parametrize(
    ("confidence", "correct", "fault"),
    [
        ([], [], "confidence is empty"),
        ([0.5, math.nan], [1, 0], r"confidence\[1\] is nan"),
        ([0.5, math.inf], [1, 0], r"confidence\[1\] is inf"),
        ([0.5, 0.6], [1], "differ in length: 2 and 1"),
        ([0.5], [2], r"correct\[0\] is 2: expected 0 or 1"),
        ([0.5], [math.nan], r"correct\[0\] is nan"),
        ([0.5], [0.5], r"correct\[0\] is 0.5"),
        ([[0.5]], [[1]], "one dimension"),
        (0.5, 1, "one dimension"),
        (["0.5"], [1], "must hold numbers"),
        ([None], [1], "must hold numbers"),
    ],
)
def test_bad_input_is_named(confidence: object, correct: object, fault: str) -> None:
    for ties in ("expected", "input", "published"):
        with pytest.raises(ValueError, match=fault):
            aurra(confidence, correct, ties)  # type: ignore[arg-type]


def test_unknown_ties_are_refused() -> None:
    with pytest.raises(ValueError, match="ties is 'random': expected 'expected' or"):
        aurra([0.5], [1], "random")  # type: ignore[arg-type]
