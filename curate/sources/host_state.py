"""What is remembered of the hosts that one rule covers: requests, pauses, failures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from curate.sources.host_rules import HostRule

#: No host is paused for longer, in seconds, whatever it asks for or a file says.
LONGEST_PAUSE = 86_400.0

#: Requests may come this much earlier than their rate, in seconds: threads wake up late, and a
#: fast host would otherwise never be asked as often as it allows.
_SLACK = 0.25

_HOUR = 3600


@dataclass(slots=True)
class HostState:
    """The state of a rule's hosts. Times are in seconds since the epoch.

    Attributes:
        rule: what their owner asks.
        interval: seconds from one request to the next.
        active: requests under way.
        due: when the next request would be due at an even rate.
        paused_until: until when nothing is asked.
        failing: the items that failed since the last answer, and when.
        trips: how often there were too many of them since then.
        broken_until: until when the pause for that holds.
        hours: requests by the hour, counted from the epoch, where a day's number is limited.
        stored: whether another process will know of it.
    """

    rule: HostRule
    interval: float
    active: int = 0
    due: float = 0.0
    paused_until: float = 0.0
    failing: dict[str, float] = field(default_factory=dict)
    trips: int = 0
    broken_until: float = 0.0
    hours: dict[int, int] = field(default_factory=dict)
    stored: bool = False

    @property
    def slack(self) -> float:
        """How much earlier than at an even rate a request may come, in seconds."""
        return max(0.0, _SLACK - self.interval)

    def ready(self, now: float) -> float:
        """When the next request may start, connections left aside."""
        ready = max(self.due - self.slack, self.paused_until)
        if self.rule.per_day is not None and self._used(now) >= self.rule.per_day:
            # Whole hours are counted, so that no stretch of 24 hours holds more.
            ready = max(ready, (min(self.hours, default=int(now // _HOUR)) + 25) * _HOUR)
        return ready

    def count(self, now: float) -> None:
        """Note a request."""
        self.due = max(self.due, now) + self.interval
        if self.rule.per_day is not None:
            hour = int(now // _HOUR)
            self.hours[hour] = self.hours.get(hour, 0) + 1

    def uncount(self, now: float) -> None:
        """Note that the request before was not made."""
        self.due -= self.interval
        hour = int(now // _HOUR)
        if self.hours.get(hour):
            self.hours[hour] -= 1

    def _used(self, now: float) -> int:
        first = int(now // _HOUR) - 24
        for hour in [hour for hour in self.hours if hour < first]:
            del self.hours[hour]
        return sum(self.hours.values())

    def remembers(self, now: float) -> bool:
        """Whether forgetting it would change what it may be asked."""
        paused = max(self.due, self.paused_until) > now
        return bool(self.active or self.failing or self.trips or self.hours or paused)

    def told(self) -> dict[str, Any]:
        """What another process must know, in values that JSON can hold."""
        return {
            "next_at": self.due,
            "paused_until": self.paused_until,
            "interval": self.interval,
            "failing": dict(self.failing),
            "trips": self.trips,
            "hours": {str(hour): used for hour, used in self.hours.items()},
        }

    def learn(self, told: Any, now: float, failing_seconds: float) -> None:
        """Take in what `told` gave to an earlier process; what makes no sense is ignored.

        Args:
            told: it, from JSON; of several the strictest holds.
            now: the time.
            failing_seconds: how long a failure counts.
        """
        try:
            due, paused = float(told["next_at"]), float(told["paused_until"])
            interval, trips = float(told.get("interval", 0)), int(told.get("trips", 0))
            failing = {str(item): float(when) for item, when in told.get("failing", {}).items()}
            hours = {int(hour): int(used) for hour, used in told["hours"].items()}
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            return
        if any(map(math.isnan, (due, paused, interval))):
            return
        if due > now:
            # Later its robots.txt is asked first, and says anew how long to wait.
            self.interval = max(self.interval, min(interval, LONGEST_PAUSE))
        # A clock that went wrong once must not stop a host for years.
        self.due = max(self.due, min(due, now + self.slack + self.interval))
        self.paused_until = max(self.paused_until, min(paused, now + LONGEST_PAUSE))
        since = now - failing_seconds
        self.failing |= {item: when for item, when in failing.items() if since < when <= now}
        self.trips = max(self.trips, min(trips, 1))
        if self.rule.per_day is not None:
            latest = int(now // _HOUR)
            for hour, used in hours.items():
                if latest - 24 <= hour <= latest:
                    self.hours[hour] = max(used, self.hours.get(hour, 0))
        self.stored = True
