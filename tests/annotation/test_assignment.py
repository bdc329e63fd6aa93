"""Who sees what: different annotators, balanced, stable, with gold items each sees once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from annotation.assignment import Assignment, Plan, State, assign
from curate.errors import UsageError

NOON = datetime(2026, 3, 1, 12)
DAY = timedelta(days=1)
PEOPLE = ("anna", "ben", "cleo", "dan", "eva")
GOLD = [f"g{i}" for i in range(6)]


#: Each example plans more than once, and the machine may be busy.
BUSY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def plan(
    candidates: Sequence[str], people: Iterable[str] = PEOPLE, overlap: int = 2, **more: Any
) -> Plan:
    options: dict[str, Any] = {"now": NOON, "lease": DAY, **more}
    return assign(candidates, tuple(people), overlap, **options)


def keys(n: int) -> list[str]:
    return [f"c{i:03}" for i in range(n)]


def held(assignments: Iterable[Assignment], now: datetime = NOON) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for given_out in assignments:
        if given_out.held(now) and not given_out.gold:
            found.setdefault(given_out.candidate, []).append(given_out.annotator)
    return found


SIZES = st.tuples(st.integers(0, 30), st.integers(1, 5)).flatmap(
    lambda t: st.tuples(st.just(t[0]), st.just(t[1]), st.integers(1, t[1]))
)
RATES = st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.5])


@BUSY
@given(SIZES, RATES, st.integers(0, 3))
def test_each_candidate_goes_to_k_different_annotators_and_work_is_balanced(
    size: tuple[int, int, int], rate: float, seed: int
) -> None:
    n, people, overlap = size
    made = plan(keys(n), PEOPLE[:people], overlap, gold=GOLD, gold_rate=rate, seed=seed)
    found = held(made.new)
    assert set(found) == set(keys(n))
    assert all(len(who) == len(set(who)) == overlap for who in found.values())
    work = Counter(dict.fromkeys(PEOPLE[:people], 0))
    work.update(a.annotator for a in made.new if not a.gold)
    assert max(work.values()) - min(work.values()) <= 1
    assert not made.short
    assert not made.lapsed
    assert {a.until for a in made.new} <= {NOON + DAY}


@BUSY
@given(SIZES, RATES, st.randoms(use_true_random=False))
def test_neither_the_order_of_annotators_nor_of_gold_items_matters(
    size: tuple[int, int, int], rate: float, shuffle: Random
) -> None:
    n, count, overlap = size
    people, gold = list(PEOPLE[:count]), list(GOLD)
    first = plan(keys(n), people, overlap, gold=gold, gold_rate=rate)
    shuffle.shuffle(people)
    shuffle.shuffle(gold)
    assert plan(keys(n), people, overlap, gold=gold, gold_rate=rate) == first


def test_another_seed_deals_otherwise() -> None:
    assert plan(keys(20)) != plan(keys(20), seed=1)


def test_each_queue_is_in_review_order_without_gaps() -> None:
    made = plan(keys(40), gold=GOLD, gold_rate=0.1)
    for person in PEOPLE:
        mine = [a for a in made.new if a.annotator == person]
        assert [a.place for a in mine] == list(range(len(mine)))
        ordinary = [a.candidate for a in mine if not a.gold]
        assert ordinary == sorted(ordinary)


@st.composite
def histories(draw: st.DrawFn) -> list[Assignment]:
    """What came of a first plan, some time later."""
    n, people, overlap = draw(SIZES)
    made = plan(keys(n), PEOPLE[:people], overlap, gold=GOLD, gold_rate=draw(RATES))
    states = st.sampled_from(["open", "answered", "answered", "skipped", "lapsed"])
    ends = st.sampled_from([None, NOON, NOON + DAY, NOON + 3 * DAY])
    return [replace(a, state=draw(states), until=draw(ends)) for a in made.new]


@BUSY
@given(histories(), st.integers(0, 40), st.integers(1, 5), st.integers(1, 3), RATES)
def test_a_later_call_changes_nothing_that_is_held_and_gives_nothing_twice(
    history: list[Assignment], n: int, people: int, overlap: int, rate: float
) -> None:
    overlap = min(overlap, people)
    made = plan(
        keys(n), PEOPLE[:people], overlap, now=NOON, existing=history, gold=GOLD, gold_rate=rate
    )
    before = held(history)
    after = held([*history, *made.new])
    for candidate, who in after.items():
        assert len(who) == len(set(who))
        assert set(before.get(candidate, ())) <= set(who)
        assert len(who) <= max(overlap, len(before.get(candidate, ())))
    for candidate in keys(n):
        missing = overlap - len(after.get(candidate, ()))
        skipped = {
            a.annotator for a in history if a.candidate == candidate and a.state == "skipped"
        }
        assert missing <= 0 or candidate in made.short
        if candidate in made.short:
            free = set(PEOPLE[:people]) - set(after.get(candidate, ()))
            assert free <= skipped
    refused = {(a.annotator, a.candidate) for a in history if a.state == "skipped"}
    assert not refused & {(a.annotator, a.candidate) for a in made.new}
    places = [(a.annotator, a.place) for a in (*history, *made.new)]
    assert len(places) == len(set(places))
    shown = [(a.annotator, a.candidate) for a in (*history, *made.new) if a.gold]
    assert len(shown) == len(set(shown))
    assert set(made.lapsed) == {a for a in history if a.state == "open" and a.until == NOON}


@BUSY
@given(histories(), st.integers(0, 40))
def test_once_a_plan_is_given_out_the_same_call_adds_nothing(
    history: list[Assignment], n: int
) -> None:
    made = plan(keys(n), overlap=3, existing=history, gold=GOLD, gold_rate=0.1)
    again = plan(keys(n), overlap=3, existing=[*history, *made.new], gold=GOLD, gold_rate=0.1)
    assert (again.new, again.short) == ((), made.short)


@BUSY
@given(histories(), st.integers(0, 40), st.randoms(use_true_random=False))
def test_the_order_of_what_exists_does_not_matter(
    history: list[Assignment], n: int, shuffle: Random
) -> None:
    first = plan(keys(n), existing=history, gold=GOLD, gold_rate=0.1)
    shuffle.shuffle(history)
    assert plan(keys(n), existing=history, gold=GOLD, gold_rate=0.1) == first


def test_an_ended_lease_goes_to_somebody_else_even_if_they_have_more_to_do() -> None:
    busy = plan(keys(5), ("ben",), 1).new
    late = Assignment("late", "anna", 0, until=NOON)
    made = plan([*keys(5), "late"], ("anna", "ben"), 1, existing=[late, *busy])
    assert [(a.candidate, a.annotator) for a in made.new] == [("late", "ben")]
    assert made.lapsed == (late,)
    # It holds until its very end.
    before = plan(["late"], ("anna", "ben"), 1, existing=[late], now=NOON - DAY)
    assert (before.new, before.lapsed) == ((), ())


def test_an_ended_lease_comes_back_where_nobody_else_is_left() -> None:
    late = Assignment("c000", "anna", 0, until=NOON)
    done = Assignment("c000", "ben", 0, state="answered", until=NOON)
    made = plan(["c000"], ("anna", "ben"), 2, existing=[late, done])
    assert [(a.annotator, a.place) for a in made.new] == [("anna", 1)]
    assert not made.short


def test_a_skipped_candidate_goes_to_others_and_is_told_where_there_are_none() -> None:
    skipped = Assignment("c000", "anna", 0, state="skipped", until=NOON + DAY)
    made = plan(["c000"], ("anna", "ben", "cleo"), 2, existing=[skipped])
    assert {a.annotator for a in made.new} == {"ben", "cleo"}
    made = plan(["c000"], ("anna", "ben"), 2, existing=[skipped])
    assert [a.annotator for a in made.new] == ["ben"]
    assert made.short == ("c000",)


def test_who_joins_later_shares_in_what_is_not_yet_given_out() -> None:
    first = plan(keys(30), ("anna", "ben"), 1).new
    done = [replace(a, state="answered") for a in first]
    made = plan(keys(60), ("anna", "ben", "cleo"), 1, existing=done)
    assert Counter(a.annotator for a in made.new) == {"anna": 10, "ben": 10, "cleo": 10}
    open_still = plan(keys(60), ("anna", "ben", "cleo"), 1, existing=first)
    work = Counter(a.annotator for a in (*first, *open_still.new))
    assert max(work.values()) - min(work.values()) <= 1


def test_what_somebody_holds_who_has_left_stays_theirs() -> None:
    gone: list[Assignment] = [
        Assignment("c000", "zoe", 0, state="answered"),
        Assignment("c001", "zoe", 1, until=NOON + DAY),
        Assignment("c002", "zoe", 2, until=NOON),
    ]
    made = plan(keys(3), ("anna", "ben"), 1, existing=gone)
    assert [a.candidate for a in made.new] == ["c002"]


@pytest.mark.parametrize("rate", [0.03, 0.1, 0.25, 0.3, 0.5])
def test_gold_items_stand_at_the_rate_in_every_block_of_a_queue(rate: float) -> None:
    many = [f"g{i}" for i in range(400)]
    made = plan(keys(300), ("anna", "ben"), 2, gold=many, gold_rate=rate)
    places, orders = {}, []
    for person in ("anna", "ben"):
        mine = [a for a in made.new if a.annotator == person]
        places[person] = [a.place for a in mine if a.gold]
        # One in each block of 1 / rate places, of which the last one may be cut short.
        for length in range(1, len(mine) + 1):
            gold = sum(place < length for place in places[person])
            assert abs(gold - length * rate) <= 1.0
        items = [a.candidate for a in mine if a.gold]
        assert len(items) == len(set(items))
        orders.append(items[:3])
    assert places["anna"] != places["ben"]
    assert len({tuple(items) for items in orders}) == 2
    gaps = {b - a for a, b in zip(places["anna"], places["anna"][1:], strict=False)}
    assert len(gaps) > 1


def test_gold_goes_on_where_a_queue_goes_on() -> None:
    many = [f"g{i}" for i in range(60)]
    whole = plan(keys(200), ("anna",), 1, gold=many, gold_rate=0.1).new
    part = plan(keys(77), ("anna",), 1, gold=many, gold_rate=0.1).new
    rest = plan(keys(200), ("anna",), 1, existing=part, gold=many, gold_rate=0.1).new
    assert (*part, *rest) == whole


def test_who_has_seen_all_gold_items_gets_candidates_in_their_places() -> None:
    made = plan(keys(100), ("anna", "ben"), 1, gold=GOLD, gold_rate=0.5)
    assert made.without_gold == ("anna", "ben")
    assert Counter((a.annotator, a.candidate) for a in made.new if a.gold) == {
        (person, item): 1 for person in ("anna", "ben") for item in GOLD
    }
    assert set(held(made.new)) == set(keys(100))


def test_a_candidate_that_is_a_gold_item_is_given_out_as_gold_alone() -> None:
    seen = Assignment("c001", "anna", 0, state="answered")
    made = plan(keys(40), ("anna", "ben"), 2, existing=[seen], gold=["c001"], gold_rate=0.2)
    assert [(a.annotator, a.gold) for a in made.new if a.candidate == "c001"] == [("ben", True)]


@pytest.mark.parametrize("state", ["open", "answered", "skipped", "lapsed"])
def test_only_what_is_answered_or_live_is_held(state: State) -> None:
    one = Assignment("c", "anna", 0, state=state, until=NOON + DAY)
    assert one.held(NOON) == (state in ("open", "answered"))
    assert one.held(NOON + DAY) == (state == "answered")
    assert replace(one, until=None).held(NOON + DAY) == (state in ("open", "answered"))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"overlap": 6}, "each candidate goes to 6 different annotators, and there are 5; add"),
        ({"overlap": 6}, "or ask for fewer answers: --overlap 5$"),
        ({"people": ("anna",)}, "and there is 1; add"),
        ({"overlap": 0}, "goes to 0 annotators: it must be at least 1"),
        ({"people": ("anna", "ben", "anna")}, "annotator anna is named twice"),
        ({"candidates": ["c1", "c1"]}, "candidate c1 is named twice"),
        ({"lease": timedelta(0)}, "has ended when it begins"),
        ({"gold_rate": 0.6}, "the share of gold items is 0.6: expected 0 … 0.5"),
        ({"gold_rate": float("nan")}, "the share of gold items is nan"),
    ],
)
def test_what_cannot_be_dealt_is_named(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        plan(**{"candidates": keys(3), **options})
