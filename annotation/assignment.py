"""Who sees what: each candidate goes to K different annotators, with gold items among them.

A pure function of what there is: it reads no clock and no random numbers but those of its seed, so
that the same call gives the same plan. What somebody holds, answered or under a live lease, is
never taken away; a call with more candidates or annotators only adds.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from math import ceil, floor
from typing import Literal

from curate.errors import UsageError

#: open: given out; answered; skipped: seen and refused; lapsed: its lease ended without an answer.
State = Literal["open", "answered", "skipped", "lapsed"]


@dataclass(frozen=True)
class Assignment:
    """One candidate in one annotator's queue.

    Attributes:
        candidate: its key.
        annotator: who gets it.
        place: in this annotator's queue, from 0; never given twice.
        gold: whether the right answer is known already, and the annotator is judged by it.
        state: what became of it.
        until: when its lease ends, in UTC without zone; None: never.
    """

    candidate: str
    annotator: str
    place: int
    gold: bool = False
    state: State = "open"
    until: datetime | None = None

    def live(self, now: datetime) -> bool:
        """Whether it is given out and its lease has not ended."""
        return self.state == "open" and (self.until is None or self.until > now)

    def held(self, now: datetime) -> bool:
        """Whether it counts as one of the K: answered, or live."""
        return self.state == "answered" or self.live(now)


@dataclass(frozen=True)
class Plan:
    """What to give out, and what is wrong with it.

    Attributes:
        new: what to give out, by annotator and place.
        lapsed: what was open and whose lease has ended; its place may now be another's.
        short: candidates for which there are not enough annotators left, because the others
            skipped them; in review order.
        without_gold: annotators who have seen all gold items, sorted.
    """

    new: tuple[Assignment, ...]
    lapsed: tuple[Assignment, ...]
    short: tuple[str, ...]
    without_gold: tuple[str, ...]


def assign(
    candidates: Sequence[str],
    annotators: Collection[str],
    overlap: int,
    *,
    now: datetime,
    lease: timedelta,
    existing: Iterable[Assignment] = (),
    gold: Collection[str] = (),
    gold_rate: float = 0.0,
    seed: int = 0,
) -> Plan:
    """Give each candidate so many annotators that `overlap` different ones hold it.

    In review order each candidate goes to those with the least unanswered work, among equals in
    an order by a seeded hash of candidate and annotator. Nobody gets what they have answered,
    skipped or hold. Where a lease has ended, somebody else comes first; only where nobody else is
    left does the same annotator get it again.

    Gold items stand among the others: an annotator's queue is cut into blocks of 1 / `gold_rate`
    places, and one place of each block, by a seeded hash of annotator and block, is for a gold
    item. Each gets them in an order of their own, none twice; after the last one such places are
    for candidates. A candidate that is a gold item is given out as gold alone.

    Args:
        candidates: keys in review order, each once.
        annotators: who can be given something now. What others hold stays theirs.
        overlap: K, different annotators a candidate.
        now: the present time in UTC without zone.
        lease: how long a new assignment holds without an answer.
        existing: all assignments made so far, in whatever order.
        gold: keys of gold items. One whose lease has ended is not given to the same person again:
            it may have been looked at.
        gold_rate: share of each queue, 0 … 0.5.
        seed: of every choice among equals.

    Raises:
        UsageError: fewer annotators than `overlap`, a name twice, or a number out of range.
    """
    _check(candidates, annotators, overlap, lease, gold_rate)
    given = list(existing)
    golden = set(gold)
    holders: dict[str, set[str]] = {}
    refused: dict[str, set[str]] = {}
    lapsed: dict[str, set[str]] = {}
    load = Counter(dict.fromkeys(annotators, 0))
    earlier: dict[str, list[Assignment]] = {}
    for past in given:
        earlier.setdefault(past.annotator, []).append(past)
        kind = holders if past.held(now) else refused if past.state == "skipped" else lapsed
        kind.setdefault(past.candidate, set()).add(past.annotator)
        if past.live(now) and not past.gold:
            load[past.annotator] += 1

    queues: dict[str, list[str]] = {annotator: [] for annotator in sorted(annotators)}
    short: list[str] = []
    nobody: set[str] = set()
    for candidate in candidates:
        if candidate in golden:
            continue
        has = holders.get(candidate, nobody)
        missing = overlap - len(has)
        if missing <= 0:
            continue
        late = lapsed.get(candidate, nobody)
        free = queues.keys() - has - refused.get(candidate, nobody)
        if len(free) < missing:
            short.append(candidate)
        for annotator in heapq.nsmallest(
            missing, free, key=lambda a: (a in late, load[a], _hash(seed, candidate, a))
        ):
            queues[annotator].append(candidate)
            load[annotator] += 1

    new: list[Assignment] = []
    without: list[str] = []
    for annotator, queue in queues.items():
        before = earlier.get(annotator, [])
        seen = {past.candidate for past in before}
        unseen = sorted(golden - seen, key=lambda item: _hash(seed, "gold", annotator, item))
        places = _places(annotator, before, queue, unseen, gold_rate, seed)
        new += [Assignment(c, annotator, p, g, until=now + lease) for c, p, g in places]
        if golden and not golden - seen - {c for c, _, _ in places}:
            without.append(annotator)
    ended = [past for past in given if past.state == "open" and not past.live(now)]
    ended.sort(key=lambda past: (past.annotator, past.place))
    return Plan(tuple(new), tuple(ended), tuple(short), tuple(without))


def _check(
    candidates: Sequence[str],
    annotators: Collection[str],
    overlap: int,
    lease: timedelta,
    gold_rate: float,
) -> None:
    for what, names in (("candidate", candidates), ("annotator", annotators)):
        if len(set(names)) < len(names):
            twice = next(name for name, n in Counter(names).items() if n > 1)
            raise UsageError(f"{what} {twice} is named twice")
    if overlap < 1:
        raise UsageError(f"each candidate goes to {overlap} annotators: it must be at least 1")
    if (there := len(annotators)) < overlap:
        are = f"is {there}" if there == 1 else f"are {there}"
        fewer = f": --overlap {there}" if there else ""
        raise UsageError(
            f"each candidate goes to {overlap} different annotators, and there {are}; add "
            f"annotators or ask for fewer answers{fewer}"
        )
    if lease <= timedelta(0):
        raise UsageError(f"a lease of {lease} has ended when it begins: give it more time")
    if not 0.0 <= gold_rate <= 0.5:
        raise UsageError(f"the share of gold items is {gold_rate}: expected 0 … 0.5")


def _places(
    annotator: str,
    before: Sequence[Assignment],
    queue: Sequence[str],
    unseen_gold: Sequence[str],
    gold_rate: float,
    seed: int,
) -> list[tuple[str, int, bool]]:
    """The queue with gold items in their places, which go on after those given before."""
    place = 1 + max((past.place for past in before), default=-1)
    rate = Fraction(gold_rate).limit_denominator(10_000)
    gold = iter(unseen_gold)
    placed: list[tuple[str, int, bool]] = []
    for candidate in queue:
        while _is_gold(annotator, place, rate, seed) and (item := next(gold, None)) is not None:
            placed.append((item, place, True))
            place += 1
        placed.append((candidate, place, False))
        place += 1
    return placed


def _is_gold(annotator: str, place: int, rate: Fraction, seed: int) -> bool:
    if not rate:
        return False
    block = floor(place * rate)
    start, end = ceil(block / rate), ceil((block + 1) / rate)
    return place == start + int(_hash(seed, "place", annotator, str(block)), 16) % (end - start)


def _hash(seed: int, *names: str) -> str:
    return hashlib.sha256("\0".join((str(seed), *names)).encode()).hexdigest()
