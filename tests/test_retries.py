"""When to try again: Retry-After in its two forms, jitter, and waits that can be ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.retries import backoff, naive_utc, retry_after, wait

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def http_date(when: datetime) -> str:
    return format_datetime(when, usegmt=True)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0", 0), ("7", 7), (" 120 ", 120), ("86400", 86400), ("0007", 7)],
)
def test_seconds_are_taken_as_they_are(value: str, seconds: float) -> None:
    assert retry_after(value) == seconds


@pytest.mark.parametrize(
    "value",
    [None, "", "soon", "-3", "1.5", "1e3", "٣", "9" * 40, "Mon, 99 Foo 2026", "\x00", "Mon"],
)
def test_nonsense_is_no_wish(value: str | None) -> None:
    assert retry_after(value) is None


@given(st.integers(-10_000, 10_000_000), st.integers(-(10**9), 10**9))
def test_a_date_is_judged_by_the_servers_own_clock(ahead: int, clock_error: int) -> None:
    server = NOON + timedelta(seconds=clock_error)
    asked = http_date(server + timedelta(seconds=ahead))
    assert retry_after(asked, http_date(server), now=0.0) == max(0, ahead)


def test_without_a_date_header_this_machines_clock_counts() -> None:
    asked = http_date(NOON + timedelta(seconds=90))
    assert retry_after(asked, None, now=NOON.timestamp()) == 90
    assert retry_after(asked, "nonsense", now=NOON.timestamp()) == 90


@given(st.text(max_size=60), st.one_of(st.none(), st.text(max_size=60)))
def test_no_header_breaks_it(value: str, date: str | None) -> None:
    seconds = retry_after(value, date)
    assert seconds is None or seconds >= 0


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_backoff_lies_between_zero_and_a_bound_that_doubles_up_to_the_cap(
    attempt: int, chance: float
) -> None:
    seconds = backoff(attempt, base=1.0, cap=60.0, random=lambda: chance)
    assert seconds == pytest.approx(chance * min(60.0, 2.0 ** min(attempt, 10)))


def test_backoff_is_spread_so_that_clients_do_not_come_back_together() -> None:
    assert len({backoff(5) for _ in range(50)}) > 40


def test_a_wait_sleeps_its_time_in_short_steps() -> None:
    slept: list[float] = []
    assert wait(1.05, lambda: False, slept.append)
    assert sum(slept) == pytest.approx(1.05)
    assert max(slept) <= 0.2


def test_a_wait_ends_when_it_is_told_to() -> None:
    slept: list[float] = []
    assert not wait(3600, lambda: len(slept) >= 3, slept.append)
    assert len(slept) == 3


def test_times_are_kept_in_utc_without_zone() -> None:
    assert naive_utc(NOON.timestamp()) == datetime(2026, 3, 1, 12, 0, 0)
