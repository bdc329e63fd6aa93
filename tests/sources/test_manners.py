"""Manners: rate, connections, day's budget, pauses, and that a new start gains nothing."""

from __future__ import annotations

import json
import threading
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import Interrupted, QuotaExhausted
from curate.settings import NetworkSettings
from curate.sources.host_rules import HostRule
from curate.sources.manners import LONGEST_PAUSE, Manners

START = 1_790_000_000.0


class Clock:
    """Time that passes when the test says so."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def manners(clock: Clock, *rules: HostRule, **network: float) -> Manners:
    return Manners(rules, NetworkSettings.model_validate(network), clock=clock)


def times(one: Manners, clock: Clock, count: int, host: str = "a.example") -> list[float]:
    """When `count` requests one after the other may start, seconds from now."""
    begun = clock.now
    given = []
    for _ in range(count):
        one.wait_turn(host, sleep=clock.sleep)
        given.append(clock.now - begun)
    return given


def test_requests_keep_their_distance() -> None:
    clock = Clock()
    given = times(manners(clock, per_second=2), clock, 5)
    assert given == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0], abs=0.11)


def test_a_slow_host_is_never_asked_in_bursts_and_a_fast_one_a_little() -> None:
    clock = Clock()
    slow = manners(clock, per_second=1)
    assert slow.start("a.example")
    assert not slow.start("a.example")
    fast = manners(clock, per_second=100, per_host=256)
    assert sum(fast.start("a.example") for _ in range(100)) == pytest.approx(25, abs=1)


def test_hosts_below_a_rule_count_as_one_and_others_for_themselves() -> None:
    clock = Clock()
    rule = HostRule("staticflickr.com", concurrency=1, per_second=1000)
    one = manners(clock, rule, per_host=1, per_second=1000)
    assert one.start("live.staticflickr.com")
    assert one.ready_at("farm1.staticflickr.com") == float("inf")
    assert one.start("notstaticflickr.com")
    one.end("live.staticflickr.com")
    assert one.start("farm1.staticflickr.com")


def test_several_hosts_of_one_rule_count_as_one_over_a_new_start_as_well() -> None:
    clock = Clock()
    rule = HostRule("files.example", concurrency=2, per_second=1000, also=("thumbs.example",))
    near = HostRule("small.thumbs.example", concurrency=1, per_second=1000)
    one = manners(clock, rule, near, per_second=1000)
    assert one.start("files.example")
    assert one.start("a.thumbs.example")
    assert one.ready_at("thumbs.example") == one.ready_at("b.files.example") == float("inf")
    assert one.start("small.thumbs.example"), "a more specific rule holds"
    assert one.start("otherthumbs.example")
    one.pause("thumbs.example", 50)
    # An earlier version remembered each for itself.
    told = {"next_at": 0.0, "paused_until": clock.now + 20, "hours": {}}
    told_both = {"files.example": one.snapshot()["files.example"], "thumbs.example": told}
    for order in (told_both, dict(reversed(told_both.items()))):
        after = Manners([rule], NetworkSettings(), order, clock)
        assert after.ready_at("thumbs.example") == clock.now + 50
        assert after.ready_at("files.example") == clock.now + 50


def test_a_pause_holds_for_its_host_alone_and_the_longer_one_stays() -> None:
    clock = Clock()
    one = manners(clock)
    one.pause("a.example", 30)
    one.pause("a.example", 5)
    assert one.ready_at("a.example") == START + 30
    assert not one.start("a.example")
    assert one.start("b.example")
    clock.now += 30
    assert one.start("a.example")


@pytest.mark.parametrize("seconds", [1e300, float("inf")])
def test_no_pause_is_longer_than_a_day(seconds: float) -> None:
    clock = Clock()
    one = manners(clock)
    one.pause("a.example", seconds)
    assert one.ready_at("a.example") == START + LONGEST_PAUSE


def test_different_images_failing_in_a_row_pause_a_host_and_an_answer_forgives() -> None:
    clock = Clock()
    one = Manners([], NetworkSettings(per_second=1000), clock=clock, breaker_seconds=600)
    numbers = count()

    def fail(times: int, failed: bool = True, item: str = "") -> None:
        for _ in range(times):
            clock.now += 1
            assert one.start("a.example")
            one.end("a.example", failed=failed, item=item or f"{next(numbers)}")

    fail(50, item="the same image")
    fail(3)
    assert one.ready_at("a.example") <= clock.now, "the tries of one image count once"
    fail(1, failed=False)
    fail(4)
    assert one.ready_at("a.example") <= clock.now
    fail(1)
    assert one.ready_at("a.example") == clock.now + 600
    clock.now += 600
    fail(4)
    assert one.ready_at("a.example") <= clock.now, "after the pause it is counted anew"
    fail(1)
    assert one.ready_at("a.example") == clock.now + 600


def test_what_was_under_way_when_a_pause_began_does_not_count_against_the_host() -> None:
    clock = Clock()
    one = manners(clock, per_second=1e6, per_host=100)
    assert sum(one.start("a.example") for _ in range(100)) == 100
    for number in range(100):
        one.end("a.example", failed=True, item=str(number))
    assert not one.is_left("a.example")
    clock.now += 600
    one.tell("a.example", failed=True)
    assert one.ready_at("a.example") <= clock.now


def test_a_host_that_failed_is_in_doubt_until_it_answers_and_left_if_it_fails_again() -> None:
    clock = Clock()
    one = manners(clock)

    def fail() -> None:
        for _ in range(5):
            one.tell("a.example", failed=True)

    fail()
    assert (one.is_in_doubt("a.example"), one.is_left("a.example")) == (True, False)
    clock.now += 600
    fail()
    assert (one.is_in_doubt("a.example"), one.is_left("a.example")) == (True, True)
    one = Manners([], NetworkSettings(), one.snapshot(), clock)
    assert (one.is_in_doubt("a.example"), one.is_left("a.example")) == (True, False)
    assert one.ready_at("a.example") == clock.now + 600
    clock.now += 3600
    assert one.is_in_doubt("a.example"), "time alone tells nothing"
    one = Manners([], NetworkSettings(), one.snapshot(), clock)
    fail()
    assert one.is_left("a.example")
    one.tell("a.example", failed=False)
    assert (one.is_in_doubt("a.example"), one.is_left("a.example")) == (False, False)


def test_starting_again_and_again_asks_a_dead_host_no_more_often_than_one_start() -> None:
    clock = Clock()
    told: dict[str, object] = {}
    for number in range(5):
        one = Manners([], NetworkSettings(), told, clock)
        assert one.ready_at("a.example") <= clock.now
        for _ in range(3):
            one.end("a.example", failed=True, item=f"image {number}")
        told = json.loads(json.dumps(one.snapshot()))
        clock.now += 10
    assert one.ready_at("a.example") > clock.now + 500
    told["a.example"] = {**told["a.example"], "paused_until": 0, "trips": 0}  # type: ignore[dict-item]
    assert Manners([], NetworkSettings(), told, clock).ready_at("a.example") <= clock.now


def test_failures_of_long_ago_are_forgotten() -> None:
    clock = Clock()
    one = manners(clock)
    for _ in range(4):
        one.tell("a.example", failed=True)
    told = one.snapshot()
    clock.now += 601
    one = Manners([], NetworkSettings(), told, clock)
    one.tell("a.example", failed=True)
    assert one.ready_at("a.example") <= clock.now


def test_a_turn_that_was_not_used_is_given_back() -> None:
    clock = Clock()
    one = manners(clock, HostRule("a.example", 1, 0.1, per_day=3))
    for _ in range(50):
        assert one.start("a.example")
        one.cancel("a.example")
    assert one.start("a.example")
    one.end("a.example")
    assert one.ready_at("a.example") == START + 10


def test_a_turn_that_ends_without_a_finding_counts_neither_way() -> None:
    clock = Clock()
    one = manners(clock, per_second=1000)
    for failed in (True, None, True, None, True, None, True, None, True):
        clock.now += 1
        assert one.start("a.example")
        one.end("a.example", failed=failed)
    assert one.ready_at("a.example") > clock.now + 500


def test_the_budget_of_a_day_ends_and_comes_back() -> None:
    clock = Clock()
    one = manners(clock, HostRule("a.example", 4, 1000, per_day=10))
    times(one, clock, 10)
    with pytest.raises(QuotaExhausted) as told:
        one.wait_turn("a.example", longest=60, sleep=clock.sleep)
    assert told.value.until is not None
    assert 23 <= (one.ready_at("a.example") - clock.now) / 3600 <= 25
    clock.now = one.ready_at("a.example")
    assert one.start("a.example")


def test_crawl_delay_widens_the_distance_from_the_request_that_told_it() -> None:
    clock = Clock()
    one = manners(clock, per_second=10)
    one.wait_turn("a.example", sleep=clock.sleep)
    one.slow_down("a.example", 20)
    one.slow_down("a.example", 3)
    assert one.ready_at("a.example") == START + 20
    clock.now += 20
    assert times(one, clock, 3) == pytest.approx([0, 20, 40], abs=0.3)


def test_crawl_delay_holds_over_a_new_start() -> None:
    clock = Clock()
    one = manners(clock, per_second=10)
    one.wait_turn("a.example", sleep=clock.sleep)
    one.slow_down("a.example", 20)
    clock.now += 5
    one = Manners([], NetworkSettings(per_second=10), one.snapshot(), clock)
    assert one.ready_at("a.example") == START + 20
    clock.now += 15
    assert times(one, clock, 2) == pytest.approx([0, 20], abs=0.3)
    clock.now += 1000
    one = Manners([], NetworkSettings(per_second=10), one.snapshot(), clock)
    assert times(one, clock, 2) == pytest.approx([0, 0.1], abs=0.2), "robots.txt says it anew"


@pytest.mark.parametrize("interval", [1e300, float("inf")])
def test_no_delay_that_is_remembered_is_longer_than_a_day(interval: float) -> None:
    clock = Clock()
    told = {"next_at": 1e300, "paused_until": 0, "interval": interval, "hours": {}}
    one = Manners([], NetworkSettings(), {"a.example": told}, clock)
    assert one.ready_at("a.example") <= START + LONGEST_PAUSE + 1


def test_waiting_ends_when_asked_to_stop() -> None:
    clock = Clock()
    one = manners(clock)
    one.pause("a.example", 50)
    with pytest.raises(Interrupted):
        one.wait_turn("a.example", stop=lambda: clock.now > START + 3, sleep=clock.sleep)
    assert clock.now < START + 4


def test_a_new_process_keeps_rate_budget_failures_and_pause() -> None:
    clock = Clock()
    rules = [HostRule("day.example", 1, 0.1, per_day=3)]
    network = NetworkSettings(per_second=0.05)
    before = Manners(rules, network, clock=clock)
    times(before, clock, 2, "day.example")
    before.wait_turn("slow.example", sleep=clock.sleep)
    before.pause("paused.example", 500)
    for _ in range(5):
        before.tell("dead.example", failed=True)
    before.rule("idle.example")
    told = json.loads(json.dumps(before.snapshot(), allow_nan=False))
    assert set(told) == {"day.example", "slow.example", "paused.example", "dead.example"}
    after = Manners(rules, network, told, clock=clock)
    for host in told:
        assert after.ready_at(host) == pytest.approx(before.ready_at(host))
    times(after, clock, 1, "day.example")
    assert after.ready_at("day.example") - clock.now > 80_000
    assert after.is_in_doubt("dead.example")


def test_a_host_that_recovered_is_told_once_more_so_that_the_old_word_is_replaced() -> None:
    clock = Clock()
    one = manners(clock)
    one.tell("a.example", failed=True)
    assert len(one.snapshot()["a.example"]["failing"]) == 1
    one.tell("a.example", failed=False)
    assert one.snapshot()["a.example"]["failing"] == {}
    assert "a.example" not in one.snapshot()


@pytest.mark.parametrize(
    "told",
    [
        None,
        "text",
        {},
        {"next_at": "soon", "paused_until": 0, "hours": {}},
        {"next_at": float("nan"), "paused_until": 0, "hours": {}},
        {"next_at": 0, "paused_until": 0, "hours": []},
        {"next_at": 1e300, "paused_until": 0, "hours": {}},
        {"next_at": 0, "paused_until": float("inf"), "trips": -5, "hours": {"x": 1}},
        {"next_at": 0, "paused_until": 0, "failing": [1, 2, 3, 4, 5], "hours": {}},
        {"next_at": 0, "paused_until": 0, "failing": dict.fromkeys("abcdef", 1e300), "hours": {}},
        {"next_at": 0, "paused_until": 0, "failing": {"a": float("nan")}, "hours": {}},
        {"next_at": 1e300, "paused_until": 0, "interval": float("nan"), "hours": {}},
        {"next_at": 0, "paused_until": 0, "interval": 1e300, "hours": {}},
    ],
)
def test_nonsense_from_an_earlier_process_stops_no_host_for_ever(told: object) -> None:
    clock = Clock()
    one = Manners([], NetworkSettings(), {"a.example": told}, clock)
    assert one.ready_at("a.example") <= START + 1
    one = Manners([], NetworkSettings(), {"a.example": told, "b.example": told}, clock)
    assert one.start("c.example")


def test_a_million_hosts_take_no_memory_for_ever() -> None:
    clock = Clock()
    one = manners(clock)
    one.pause("paused.example", 5000)
    for number in range(30_000):
        clock.now += 0.01
        host = f"{number}.example"
        assert one.start(host)
        one.end(host, failed=False)
    assert len(one._by_name) <= 10_000
    assert len(one._by_rule) <= 10_000
    assert one.ready_at("paused.example") == START + 5000


@settings(max_examples=60, deadline=None)
@given(
    per_second=st.sampled_from([0.5, 1.0, 3.0, 7.0, 40.0, 1000.0]),
    concurrency=st.integers(1, 4),
    per_day=st.sampled_from([None, 5, 40]),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["start", "end", "wait", "restart", "delay"]),
            st.floats(0, 3) | st.floats(0, 40_000),
        ),
        max_size=150,
    ),
)
def test_no_order_of_events_exceeds_rate_connections_or_budget(
    per_second: float,
    concurrency: int,
    per_day: int | None,
    steps: list[tuple[str, float]],
) -> None:
    clock = Clock()
    rules = [HostRule("a.example", concurrency, per_second, per_day)]
    one = Manners(rules, NetworkSettings(), clock=clock)
    begun: list[float] = []
    active, delay = 0, 0.0
    for what, seconds in steps:
        if what == "start":
            for _ in range(5):
                ready = one.ready_at("a.example")
                got = one.start("www.a.example")
                assert got == (ready <= clock.now)
                if got:
                    assert not begun or clock.now - begun[-1] >= delay - 0.25 - 1e-6
                    begun.append(clock.now)
                    active += 1
        elif what == "end" and active:
            one.end("a.example", failed=False)
            active -= 1
        elif what == "wait":
            clock.now += seconds
        elif what == "delay" and begun and begun[-1] == clock.now:
            one.slow_down("a.example", min(seconds, 60.0))
            delay = max(delay, min(seconds, 60.0))
        elif what == "restart":
            told = one.snapshot()
            if told.get("a.example", {}).get("next_at", 0.0) <= clock.now:
                # Its robots.txt is asked first then, and has to say it anew.
                delay = 0.0
            one = Manners(rules, NetworkSettings(), told, clock)
            active = 0
        assert active <= concurrency
    burst = 1 + max(0.0, 0.25 * per_second - 1)
    for first, since in enumerate(begun):
        for last in range(first, len(begun)):
            inside = last - first + 1
            assert inside <= burst + (begun[last] - since) * per_second + 1e-3
            if per_day is not None and begun[last] - since < 86_400:
                assert inside <= per_day


def test_threads_never_hold_more_turns_than_the_rule_gives() -> None:
    one = Manners([HostRule("a.example", 3, 1e6)], NetworkSettings())
    held, most = 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal held, most
        for _ in range(300):
            if one.start("a.example"):
                with lock:
                    held += 1
                    most = max(most, held)
                with lock:
                    held -= 1
                one.end("a.example", failed=False)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= most <= 3
