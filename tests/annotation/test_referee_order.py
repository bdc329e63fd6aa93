from __future__ import annotations

import hashlib
import math
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotation.order import referee_order

QUEUES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.text("0123456789abcdef", min_size=4)),
    unique_by=lambda item: item[1],
    max_size=45,
)


def split(queue: list[tuple[float, str]]) -> tuple[list[float], list[str]]:
    return [p for p, _ in queue], [h for _, h in queue]


@given(QUEUES, st.integers(0, 11))
def test_each_stands_once_the_sample_by_hash_and_the_rest_by_probability(
    queue: list[tuple[float, str]], tenth: int
) -> None:
    ordered = [queue[i] for i in referee_order(*split(queue), tenth)]
    assert sorted(ordered) == sorted(queue)
    sample = [item for place, item in enumerate(ordered, 1) if tenth and place % tenth == 0]
    rest = [item for place, item in enumerate(ordered, 1) if not tenth or place % tenth]
    assert [h for _, h in sample] == sorted(h for _, h in queue)[: len(sample)]
    assert rest == sorted(rest, key=lambda item: (-item[0], item[1]))


@given(QUEUES, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    queue: list[tuple[float, str]], shuffle: Random
) -> None:
    ordered = [queue[i] for i in referee_order(*split(queue))]
    shuffle.shuffle(queue)
    assert [queue[i] for i in referee_order(*split(queue))] == ordered


@given(QUEUES, st.randoms(use_true_random=False))
def test_who_stands_in_the_sample_does_not_depend_on_the_referee(
    queue: list[tuple[float, str]], shuffle: Random
) -> None:
    probabilities, hashes = split(queue)
    first = referee_order(probabilities, hashes)[9::10]
    shuffle.shuffle(probabilities)
    assert referee_order(probabilities, hashes)[9::10] == first


def test_the_sample_shows_the_share_of_genuine_photos_that_the_referee_hides() -> None:
    n = 5000
    genuine = [i % 5 < 2 for i in range(n)]
    hashes = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(n)]
    order = referee_order([0.9 if good else 0.1 for good in genuine], hashes)
    early = order[: n // 5]
    assert sum(genuine[i] for i in early) / len(early) > 0.9
    blind = early[9::10]
    assert sum(genuine[i] for i in blind) / len(blind) == pytest.approx(0.4, abs=0.12)


@pytest.mark.parametrize(
    ("p", "hashes", "tenth", "fault"),
    [
        ([0.5], ["a", "b"], 10, r"p_claimed has shape \(1,\) for 2 hashes"),
        ([0.5, math.nan], ["a", "b"], 10, r"p_claimed\[1\] is nan: expected a probability"),
        ([1.5, 0.5], ["a", "b"], 10, r"p_claimed\[0\] is 1.5"),
        ([0.5, 0.5], ["a", "a"], 10, "hashes must all be different"),
        ([0.5], ["a"], -1, "tenth is -1"),
    ],
)
def test_bad_input_is_named(p: Any, hashes: Any, tenth: int, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        referee_order(p, hashes, tenth)


def test_an_empty_queue_is_one() -> None:
    assert referee_order([], []) == []
