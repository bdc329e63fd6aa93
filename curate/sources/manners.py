"""Manners towards hosts: how often, how many at a time, how many a day, and when not at all.

A host is asked by the rule that covers it, together with all other hosts below that rule's. What
was asked and what the host told us outlives the process (`Manners.snapshot`), so that stopping and
starting again gains nothing.

A host is left alone for a while when several different images fail there one after the other and
none succeeds in between. How often one of them was tried does not matter: a few bad images say
nothing of their host. After the pause the host is in doubt until an image is answered: then only
images that failed for good count, so that some of them end whenever the host is asked again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from curate.errors import Interrupted, QuotaExhausted
from curate.retries import naive_utc
from curate.settings import NetworkSettings
from curate.sources.host_rules import HostRule, rule_for
from curate.sources.host_state import LONGEST_PAUSE, HostState

__all__ = ["BREAKER_FAILURES", "BREAKER_SECONDS", "LONGEST_PAUSE", "Manners", "steady_clock"]

#: Images failing one after the other that pause a host, and for how many seconds.
BREAKER_FAILURES, BREAKER_SECONDS = 5, 600.0

_MOST_HOSTS = 10_000
_LOOK_SECONDS = 0.1


def steady_clock() -> Callable[[], float]:
    """A clock of seconds since the epoch that no change of the machine's time moves."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


class Manners:
    """Who may be asked when. Any thread may call it.

    Times are those of `now()`: seconds since the epoch.

    Args:
        rules: what the sources state for their hosts.
        settings: `per_host` and `per_second` for all other hosts.
        state: what `snapshot` gave to an earlier process; entries that make no sense are ignored.
        clock: gives seconds since the epoch and never goes back.
        breaker_failures: images failing one after the other that pause a host.
        breaker_seconds: for how long.
    """

    def __init__(
        self,
        rules: Iterable[HostRule],
        settings: NetworkSettings,
        state: Mapping[str, Any] | None = None,
        clock: Callable[[], float] | None = None,
        *,
        breaker_failures: int = BREAKER_FAILURES,
        breaker_seconds: float = BREAKER_SECONDS,
    ) -> None:
        self.now = clock or steady_clock()
        self._rules = tuple(rules)
        self._default = HostRule("", settings.per_host, settings.per_second)
        self._breaker_failures, self._breaker_seconds = breaker_failures, breaker_seconds
        self._lock = threading.Lock()
        self._most = _MOST_HOSTS
        self._by_rule: dict[str, HostState] = {}
        self._by_name: dict[str, HostState] = {}
        for name, told in (state or {}).items():
            self._host(name).learn(told, self.now(), breaker_seconds)

    def rule(self, host: str) -> HostRule:
        """The rule that a host is asked by.

        Args:
            host: lower case, without a port.
        """
        with self._lock:
            return self._host(host).rule

    def ready_at(self, host: str) -> float:
        """When the next request to a host may start, as far as is known.

        Returns:
            A time, perhaps a past one; infinity while all its connections are in use.
        """
        with self._lock:
            known = self._host(host)
            if known.active >= known.rule.concurrency:
                return float("inf")
            return known.ready(self.now())

    def paused_until(self, host: str) -> float:
        """When the next request to a host may start if no other is under way."""
        with self._lock:
            return self._host(host).ready(self.now())

    def start(self, host: str) -> bool:
        """Take a turn, if it is the host's time.

        Returns:
            Whether the turn was given; then `end` gives it back.
        """
        with self._lock:
            known, now = self._host(host), self.now()
            if known.active >= known.rule.concurrency or known.ready(now) > now:
                return False
            known.active += 1
            known.count(now)
            return True

    def end(self, host: str, *, failed: bool | None = None, item: str = "") -> None:
        """Give back a turn that `start` gave.

        Args:
            host: the host that was asked.
            failed: True if it was out of reach, silent or answered with 5xx, which pauses it if it
                happens to several items in a row; False if it answered; None if neither came out.
            item: what it was asked for, so that it counts once; empty for something new each time.
        """
        with self._lock:
            known = self._host(host)
            known.active = max(0, known.active - 1)
            self._tell(known, failed, item)

    def cancel(self, host: str) -> None:
        """Give back a turn that `start` gave and that no request was made of."""
        with self._lock:
            known = self._host(host)
            known.active = max(0, known.active - 1)
            known.uncount(self.now())

    def is_in_doubt(self, host: str) -> bool:
        """Whether a host was paused for failing, and has answered nothing since.

        It should be asked for one item at a time then, and told of a failure only when the item is
        not tried again.
        """
        with self._lock:
            return self._host(host).trips > 0

    def is_left(self, host: str) -> bool:
        """Whether a host was in doubt, failed again, and should not be waited for."""
        with self._lock:
            known = self._host(host)
            return known.trips > 1 and self.now() < known.broken_until

    def tell(self, host: str, failed: bool | None) -> None:
        """Note how a request ended that `wait_turn` began; as `end` does."""
        with self._lock:
            self._tell(self._host(host), failed, "")

    def _tell(self, known: HostState, failed: bool | None, item: str) -> None:
        now = self.now()
        if failed is False:
            known.failing.clear()
            known.trips = 0
        # What was under way when the pause began says nothing more.
        elif failed and now >= known.broken_until:
            known.failing[item or str(len(known.failing))] = now
            if len(known.failing) >= self._breaker_failures:
                known.failing.clear()
                known.trips += 1
                known.broken_until = now + self._breaker_seconds
                self._pause(known, self._breaker_seconds)

    def pause(self, host: str, seconds: float) -> None:
        """Ask a host no more for some time, as it wished; a longer pause stays.

        Args:
            host: lower case, without a port.
            seconds: from now, at most `LONGEST_PAUSE`.
        """
        with self._lock:
            self._pause(self._host(host), seconds)

    def _pause(self, known: HostState, seconds: float) -> None:
        until = self.now() + min(max(seconds, 0.0), LONGEST_PAUSE)
        known.paused_until = max(known.paused_until, until)

    def slow_down(self, host: str, seconds: float) -> None:
        """Keep at least some time between two requests, as robots.txt's Crawl-delay asks.

        Args:
            host: lower case, without a port.
            seconds: from one request to the next, at most `LONGEST_PAUSE`.
        """
        with self._lock:
            known = self._host(host)
            known.interval = max(known.interval, min(seconds, LONGEST_PAUSE))
            # What was just asked counts with the new distance.
            known.due = max(known.due, self.now() + known.interval)

    def wait_turn(
        self,
        host: str,
        stop: Callable[[], bool] | None = None,
        longest: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wait until a host may be asked by a client that asks one question at a time.

        The request counts for rate and day, but not among the connections: nothing is to be given
        back.

        Args:
            host: lower case, without a port.
            stop: asked about ten times a second whether to give up.
            longest: seconds that the caller is willing to wait; None for as long as it takes.
            sleep: what sleeps.

        Raises:
            QuotaExhausted: it would take longer than `longest`.
            Interrupted: `stop` said so.
        """
        while True:
            if stop is not None and stop():
                raise Interrupted(f"stopped while waiting for {host}")
            with self._lock:
                known, now = self._host(host), self.now()
                ready = known.ready(now)
                if ready <= now:
                    known.count(now)
                    return
            if longest is not None and ready - now > longest:
                raise QuotaExhausted(host, naive_utc(ready))
            sleep(min(ready - now, _LOOK_SECONDS))

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """What another process must know: rule's host to values that JSON can hold.

        Hosts that there is nothing to remember of are left out, but for those that an earlier
        snapshot held.
        """
        with self._lock:
            now = self.now()
            told = {}
            for name, known in self._by_rule.items():
                remembers = known.remembers(now)
                if remembers or known.stored:
                    told[name] = known.told()
                known.stored = remembers
            return told

    def _host(self, host: str) -> HostState:
        known = self._by_name.get(host)
        if known is None:
            rule = rule_for(host, self._rules, self._default)
            if len(self._by_name) >= self._most:
                self._forget()
            known = self._by_rule.get(rule.host)
            if known is None:
                known = HostState(rule, 1.0 / rule.per_second)
                self._by_rule[rule.host] = known
            self._by_name[host] = known
        return known

    def _forget(self) -> None:
        """Lists may name millions of hosts; most of them need no memory."""
        now = self.now()
        self._by_rule = {
            name: known
            for name, known in self._by_rule.items()
            if known.stored or known.remembers(now)
        }
        self._by_name = {name: known for name, known in self._by_name.items() if known.active}
        self._most = max(_MOST_HOSTS, 2 * len(self._by_rule))
