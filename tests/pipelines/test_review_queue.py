"""Which candidates people are asked about."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.filtration.caps import Survivor, in_order
from pipelines.review_queue import Queued, interleaved, review_queue
from pipelines.runs import finished_run
from tests.pipelines.reviewing import RUN, Rows, made_rows

CAP = 3


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    """Thirty survivors of three confusions, and ten removed candidates."""
    made = made_rows(
        tmp_path_factory.mktemp("queue") / "w",
        40,
        30,
        labels=("n01498041", "n01531178", "n01534433"),
        cap=CAP,
    )
    yield made
    made.workspace.close()


def ordered(rows: Rows) -> list[str]:
    """The survivors' keys in the run's order."""
    survivors = [
        Survivor(key, wnid, "", 0.5, number)
        for key, wnid, number in zip(rows.keys[:30], rows.wnids[:30], rows.ids[:30], strict=True)
    ]
    return [one.key for one in in_order(survivors, "hash", 0)]


def queued(rows: Rows, rejected: set[str]) -> list[str]:
    run = finished_run(rows.workspace, RUN)
    return [one.key for one in review_queue(rows.workspace, run, rejected)]


@given(numbers=st.sets(st.integers(0, 39)), last=st.integers(0, 1000))
def test_a_rejection_brings_exactly_the_next_survivor_of_its_confusion(
    rows: Rows, numbers: set[int], last: int
) -> None:
    rejected = {rows.keys[n] for n in numbers}
    before = queued(rows, rejected)
    wnid_of = dict(zip(rows.keys, rows.wnids, strict=True))
    assert max(Counter(wnid_of[key] for key in before).values(), default=0) <= CAP
    assert rejected.isdisjoint(before)
    order = ordered(rows)
    assert before == sorted(before, key=order.index)
    if not before:
        return
    key = before[last % len(before)]
    after = queued(rows, rejected | {key})
    same = [one for one in order if wnid_of[one] == wnid_of[key] and one not in rejected]
    expected = set(before) - {key} | set(same[CAP : CAP + 1])
    assert after == sorted(expected, key=order.index)


def test_without_rejections_it_is_the_shortlist(rows: Rows) -> None:
    wnid_of = dict(zip(rows.keys, rows.wnids, strict=True))
    taken: Counter[str] = Counter()
    expected = []
    for key in ordered(rows):
        taken[wnid_of[key]] += 1
        expected += [key] if taken[wnid_of[key]] <= CAP else []
    assert queued(rows, set()) == expected


def test_controls_stand_evenly_among_the_others_and_each_once(rows: Rows) -> None:
    run = finished_run(rows.workspace, RUN)
    shortlist = queued(rows, set())
    listed = rows.keys.index(shortlist[4])
    rows.set_controls([31, listed, 35, 39])
    try:
        queue = review_queue(rows.workspace, run, {rows.keys[35]})
    finally:
        rows.set_controls([])
    assert [one.key for one in queue if one.key in shortlist] == shortlist
    assert {one.key for one in queue if one.control} == {rows.keys[n] for n in (31, listed, 39)}
    places = [n for n, one in enumerate(queue) if one.key not in shortlist]
    assert places == [2, 8]


@given(st.integers(0, 60), st.integers(0, 60))
def test_whatever_is_mixed_in_both_keep_their_order(first: int, second: int) -> None:
    main = [Queued(f"m{n}", n, "", "", "") for n in range(first)]
    others = [Queued(f"o{n}", n, "", "", "", True) for n in range(second)]
    mixed = interleaved(main, others)
    assert [one for one in mixed if not one.control] == main
    assert [one for one in mixed if one.control] == others
    # Each piece of the queue has its share of them, give or take one.
    for end in range(len(mixed) + 1):
        share = second * end / max(1, len(mixed))
        assert abs(sum(one.control for one in mixed[:end]) - share) <= 1


@pytest.mark.slow
def test_twenty_thousand_survivors_are_queued_in_a_few_seconds(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    labels = [f"n{number:08}" for number in range(2000)]
    made = made_rows(tmp_path_factory.mktemp("many") / "w", 20_000, labels=labels)
    run = finished_run(made.workspace, RUN)
    began = time.process_time()
    queue = review_queue(made.workspace, run, set(made.keys[:1000]))
    assert time.process_time() - began < 20
    assert len(queue) == 19_000
    made.workspace.close()
