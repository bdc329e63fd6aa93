"""Lanes: every item comes out once, at its time, and no more of a host than its rule gives."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest

from curate.settings import NetworkSettings
from curate.sources.host_rules import HostRule
from curate.sources.lanes import Lanes
from curate.sources.manners import Manners
from tests.waiting import PATIENCE, wait_until


class Workers:
    """Threads that take items, hold them for a moment, and note what they saw."""

    def __init__(
        self,
        rules: list[HostRule],
        most: int,
        *,
        patience: float = 60.0,
        hold: float = 0.0,
    ) -> None:
        self.manners = Manners(rules, NetworkSettings(per_second=1e6, per_host=2))
        self.lanes: Lanes[str] = Lanes(
            self.manners, patience, self.give_up, lambda item: "alone" in item, self.add_thread
        )
        self.most, self.hold = most, hold
        self.threads: list[threading.Thread] = []
        self.lock = threading.Lock()
        self.taken: list[tuple[float, str]] = []
        self.given_up: list[tuple[str, float]] = []
        self.active: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self.disturbed: list[str] = []

    def give_up(self, item: str, until: float) -> None:
        self.given_up.append((item, until))

    def add_thread(self) -> None:
        if len(self.threads) < self.most:
            thread = threading.Thread(target=self.work, daemon=True)
            self.threads.append(thread)
            thread.start()

    def work(self) -> None:
        while (turn := self.lanes.take(lambda: False)) is not None:
            item = turn.item
            name = item.split()[1]
            with self.lock:
                self.taken.append((time.monotonic(), item))
                self.active[name] += 1
                self.peak[name] = max(self.peak[name], self.active[name])
                before = self.active[name]
            time.sleep(self.hold)
            with self.lock:
                if "alone" in item and (self.active[name] > before or before > 2):
                    self.disturbed.append(item)
                self.active[name] -= 1
            turn.end(failed=False)
            turn.end(failed=False)

    def until(self, count: int, seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while len(self.taken) + len(self.given_up) < count:
            assert time.monotonic() < end, f"{count - len(self.taken)} never came"
            time.sleep(0.005)

    def close(self) -> None:
        self.lanes.close()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.mark.parametrize("threads", [1, 2, 7, 24])
def test_every_item_comes_once_within_its_host_rules(threads: int) -> None:
    rules = [HostRule(f"{n}.example", n, per_second=400 * n) for n in (1, 2, 3)]
    workers = Workers(rules, threads, hold=0.001)
    chance = random.Random(threads)
    items = [f"{number} {chance.choice('1234')}.example" for number in range(400)]
    for item in items:
        workers.lanes.put(f"www.{item.split()[1]}", item, chance.choice([0, 0, 0.02]))
    workers.until(400)
    workers.close()
    assert sorted(item for _, item in workers.taken) == sorted(items)
    for rule in rules:
        assert workers.peak[rule.host] <= rule.concurrency
    assert workers.peak["4.example"] <= 2
    assert not workers.given_up


@pytest.mark.parametrize("threads", [1, 3])
def test_items_come_when_they_are_due_although_most_threads_sleep(threads: int) -> None:
    workers = Workers([], threads)
    # The first one is due long after the others are no longer waited for.
    delays = [10 * PATIENCE, 0.3, 0.1, 0.2, 0.05, 0.25]
    began = time.monotonic()
    for delay in delays:
        workers.lanes.put(f"{delay}.example", f"{delay} x", delay)
    workers.until(5)
    workers.close()
    # Whoever slept until the first one was due has been woken for the others.
    assert sorted(item for _, item in workers.taken) == sorted(f"{one} x" for one in delays[1:])
    for moment, item in workers.taken:
        assert moment - began >= float(item.split()[0])


def test_a_slow_lane_leaves_the_others_their_threads() -> None:
    workers = Workers([HostRule("slow.example", 1, per_second=1)], 2)
    for number in range(100):
        host = "slow.example" if number < 50 else f"{number}.example"
        workers.lanes.put(host, f"{number} {host}")

    def slow() -> int:
        return sum("slow" in item for _, item in workers.taken)

    wait_until(lambda: len(workers.taken) - slow() == 50)
    # All fifty take as many seconds.
    assert slow() < 25
    workers.close()


def test_nothing_else_of_a_host_goes_with_what_must_be_alone() -> None:
    workers = Workers([HostRule("a.example", 2, per_second=1e6)], 8, hold=0.005)
    for number in range(60):
        workers.lanes.put("a.example", f"{number} a{' alone' if number % 3 == 0 else ''}")
    workers.until(60)
    workers.close()
    assert not workers.disturbed
    assert workers.peak["a"] == 2


def test_a_long_pause_gives_up_what_waits_and_what_comes() -> None:
    workers = Workers([], 4, patience=5)
    for number in range(10):
        workers.lanes.put("a.example", f"{number} a", delay=3)
    workers.manners.pause("a.example", 100)
    workers.lanes.put("a.example", "late a")
    workers.lanes.put("b.example", "other b")
    workers.until(12)
    workers.close()
    assert [item for _, item in workers.taken] == ["other b"]
    assert [item for item, _ in workers.given_up] == ["late a", *(f"{n} a" for n in range(10))]
    for _, until in workers.given_up:
        assert until - time.time() == pytest.approx(100, abs=60)


def test_a_turn_that_somebody_else_holds_is_waited_for() -> None:
    workers = Workers([HostRule("a.example", 1, per_second=1e6)], 2)
    assert workers.manners.start("a.example")
    workers.lanes.put("a.example", "one a")
    time.sleep(0.15)
    assert not workers.taken
    workers.manners.end("a.example")
    workers.until(1)
    workers.close()
