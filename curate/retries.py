"""When to try again: what a server asks for, and otherwise longer and longer random waits."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: How often a wait looks whether it shall end, in seconds.
_LOOK_SECONDS = 0.1

_SECONDS = re.compile(r"\d{1,10}")


def retry_after(
    value: str | None, date: str | None = None, now: float | None = None
) -> float | None:
    """The seconds that a server asks to wait for, from its Retry-After header (RFC 9110, 10.2.3).

    Args:
        value: the header: whole seconds, or a date.
        date: the Date header of the same answer. A date in `value` is judged against it, so that
            neither clock needs to be right.
        now: seconds since the epoch, where there is no Date header; this machine's clock if None.

    Returns:
        Seconds, 0 for a date in the past; None where there is no header or it makes no sense.
    """
    text = (value or "").strip()
    if _SECONDS.fullmatch(text) and text.isascii():
        return float(text)
    until = _timestamp(text)
    if until is None:
        return None
    since = _timestamp(date or "")
    if since is None:
        since = time.time() if now is None else now
    return max(0.0, until - since)


def _timestamp(text: str) -> float | None:
    try:
        when = parsedate_to_datetime(text)
        # "-0000" as the zone gives a time without one.
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def backoff(
    attempt: int,
    base: float = 1.0,
    cap: float = 60.0,
    random: Callable[[], float] = random.random,
) -> float:
    """A random wait of up to `base` times two to the power of `attempt` ("full jitter").

    Args:
        attempt: how many attempts failed before the one that just did: 0, 1, …
        base: the longest wait after the first attempt, in seconds.
        cap: the longest wait ever, in seconds.
        random: gives numbers from 0 to 1.

    Returns:
        Seconds, from 0 to `cap`.
    """
    return random() * min(cap, base * 2.0 ** min(attempt, 64))


def wait(
    seconds: float,
    stop: Callable[[], bool] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Sleep, but no longer than until `stop` says so.

    Args:
        seconds: how long.
        stop: asked about ten times a second; None to sleep through.
        sleep: what sleeps.

    Returns:
        Whether it slept to the end.
    """
    left = seconds
    while True:
        if stop is not None and stop():
            return False
        if left <= 0:
            return True
        step = min(left, _LOOK_SECONDS)
        sleep(step)
        left -= step


def naive_utc(timestamp: float) -> datetime:
    """Seconds since the epoch as a time in UTC without zone, as the catalogue keeps times."""
    return datetime.fromtimestamp(timestamp, UTC).replace(tzinfo=None)
