from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from curate.metrics.draws import Urn, draws, side_by_side
from curate.metrics.resampled import ScoredItems, measures_on_draws
from tests.waiting import PATIENCE

#: Where the plain loop draws, and where words are counted: few of them thrown away and nearly half,
#: a power of two and one more.
SIZES = (1, 2, 3, 300, 8191, 8193, 12_000, 16_384, 16_385, 20_000, 70_000, 131_073, 300_000)


@pytest.mark.parametrize("n", SIZES)
def test_items_are_drawn_as_randint_draws_them_and_the_generator_goes_on_alike(n: int) -> None:
    urn, ours, plain = Urn(n), np.random.RandomState(n), np.random.RandomState(n)
    for _ in range(3):
        expected = np.bincount(plain.randint(0, n, n), minlength=n)
        np.testing.assert_array_equal(urn.draw(ours), expected)
    assert ours.randint(0, 2**31) == plain.randint(0, 2**31)
    state, other = ours.get_state(legacy=False), plain.get_state(legacy=False)
    assert state["state"]["pos"] == other["state"]["pos"]


@pytest.mark.parametrize("n", [255, 256, 300, 20_000, 300_000])
def test_no_item_is_drawn_too_often_to_be_counted(n: int) -> None:
    stuck = np.random.RandomState()
    stuck.set_state(("MT19937", np.zeros(624, np.uint32), 624, 0, 0.0))  # says 0 for ever
    drawn = Urn(n).draw(stuck)
    assert drawn[0] == n == drawn.sum()


def test_a_draw_is_not_overwritten_by_the_next_one() -> None:
    drawn = list(draws(20_000, 3, 8))
    again = draws(20_000, 3, 8)
    for one in drawn:
        np.testing.assert_array_equal(one, next(again))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="n is 0"):
        next(draws(0, 1, 0))
    with pytest.raises(ValueError, match="resamples is 0"):
        next(draws(3, 0, 0))
    with pytest.raises(ValueError, match="seed is -1"):
        next(draws(3, 1, -1))


@pytest.fixture(params=["one core", "all cores"])
def cores(request: pytest.FixtureRequest) -> Iterator[int]:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("cores are chosen on Linux alone")
    before = os.sched_getaffinity(0)
    if request.param == "one core":
        os.sched_setaffinity(0, {min(before)})
    yield len(os.sched_getaffinity(0))
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize("items", [10, 300_000, 50_000_000])
def test_results_keep_their_order_and_little_is_held_at_a_time(cores: int, items: int) -> None:
    made, told, threads = 0, 0, set()
    gate = threading.Event()

    def given() -> Iterator[int]:
        nonlocal made
        for number in range(40):
            made += 1
            # Whatever is ahead of what has been told is held.
            assert made - told <= 2 + min(4, cores)
            yield number

    def work(number: int) -> int:
        threads.add(threading.get_ident())
        if number % 2:
            gate.wait(0.001)
        return number

    for number in side_by_side(work, given(), items):
        assert number == told
        told += 1
    assert told == 40
    # Neither few items nor so many that they alone fill what may be worked on.
    assert threads == {threading.get_ident()} or (items == 300_000 and cores > 1)


def test_two_resamples_are_worked_on_at_once_where_there_are_two_cores(cores: int) -> None:
    both = threading.Barrier(min(2, cores), timeout=PATIENCE)

    def work(number: int) -> int:
        both.wait()
        return number

    assert list(side_by_side(work, range(8), 300_000)) == list(range(8))


@pytest.mark.parametrize("items", [10, 300_000])
def test_a_fault_in_a_thread_comes_out_where_the_results_would(items: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(lambda number: 1 // number, [3, 2, 1, 0, 1], items))


def test_measures_are_the_same_to_the_bit_on_one_core_and_on_all(cores: int) -> None:
    random = np.random.default_rng(3)
    confidence = random.random(30_000).round(4)
    items = ScoredItems(confidence, random.random(30_000) < confidence)
    found = list(measures_on_draws([items, items], 6, 2))
    for copies, (first, second) in zip(draws(30_000, 6, 2), found, strict=True):
        assert first == second == items.measures(copies)
