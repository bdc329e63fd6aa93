"""Caps and orders depend on content, never on the order of the input."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.choices import CapOrder
from curate.errors import UnknownNameError
from curate.filtration.caps import Survivor, in_order, shortlist

CAP_ORDERS = get_args(CapOrder)

survivors = st.lists(
    st.builds(
        Survivor,
        key=st.text("0123456789abcdef", min_size=4, max_size=4),
        true=st.sampled_from("ab"),
        predicted=st.sampled_from("xyz"),
        confidence=st.floats(0, 1),
        arrival=st.integers(0, 99),
        flagged=st.booleans(),
    ),
    unique_by=lambda s: s.key,
    max_size=40,
)


@given(survivors, st.randoms(), st.integers(1, 5), st.sampled_from(CAP_ORDERS))
def test_the_shortlist_is_the_same_whatever_order_survivors_come_in(
    found: list[Survivor], random: object, cap: int, cap_order: str
) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert shortlist(found, cap, cap_order) == shortlist(shuffled, cap, cap_order)


@given(survivors, st.integers(1, 5), st.sampled_from(CAP_ORDERS))
def test_every_confusion_fills_its_places_with_its_first_survivors(
    found: list[Survivor], cap: int, cap_order: str
) -> None:
    listed = shortlist(found, cap, cap_order)
    available = Counter((s.true, s.predicted) for s in found)
    taken = Counter((s.true, s.predicted) for s in listed)
    assert taken == Counter({c: min(n, cap) for c, n in available.items()})
    order = in_order(found, cap_order, 0)
    for confusion in available:
        mine = [s for s in order if (s.true, s.predicted) == confusion]
        assert [s for s in listed if (s.true, s.predicted) == confusion] == mine[:cap]
    assert sorted(listed, key=order.index) == listed


@given(survivors, st.integers(1, 5))
def test_a_larger_cap_only_adds(found: list[Survivor], cap: int) -> None:
    assert set(shortlist(found, cap)) <= set(shortlist(found, cap + 1))


def test_hash_order_is_seeded_and_blind_to_all_but_content() -> None:
    keys = [f"{n:04x}" for n in range(50)]
    found = [Survivor(key, "a", "x", n / 50, n) for n, key in enumerate(keys)]
    other = [Survivor(key, "b", "y", 1 - n / 50, 50 - n) for n, key in enumerate(keys)]
    order = [s.key for s in in_order(found, "hash", 0)]
    assert order == [s.key for s in in_order(other, "hash", 0)]
    assert order != [s.key for s in in_order(found, "hash", 1)]
    assert order != keys


@given(survivors, st.integers(1, 4), st.sampled_from(CAP_ORDERS), st.integers(0, 40))
def test_survivors_capped_some_at_a_time_are_those_capped_together(
    found: list[Survivor], cap: int, cap_order: str, some: int
) -> None:
    """So that a run of any size need not hold all of its survivors."""
    first = shortlist(found[:some], cap, cap_order)
    assert shortlist(first + found[some:], cap, cap_order) == shortlist(found, cap, cap_order)


@given(survivors, st.integers(0, 3))
def test_quality_order_is_hash_order_with_the_flagged_last(
    found: list[Survivor], seed: int
) -> None:
    plain = in_order(found, "hash", seed)
    expected = [s for s in plain if not s.flagged] + [s for s in plain if s.flagged]
    assert in_order(found, "quality", seed) == expected


def test_confidence_and_arrival_orders() -> None:
    found = [Survivor("1", "a", "x", 0.5, 2), Survivor("2", "a", "x", 0.9, 1)]
    assert [s.key for s in in_order(found, "confidence", 0)] == ["2", "1"]
    assert [s.key for s in in_order(found, "arrival", 0)] == ["2", "1"]
    with pytest.raises(UnknownNameError, match="cap order"):
        in_order(found, "size", 0)
