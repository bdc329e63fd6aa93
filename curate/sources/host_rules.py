"""What the owners of hosts ask of programs, as each source states it for its own hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class HostRule:
    """How often a host may be asked.

    Attributes:
        host: the host, which counts as one with all hosts below it ("staticflickr.com").
        also: further hosts that count as one with it, with all below them.
        concurrency: connections at a time.
        per_second: requests a second, over a minute or so.
        per_day: most requests in 24 hours; None where the owner names no number.
        robots: whether its robots.txt is asked. False where the terms of an API stand in its place.
    """

    host: str
    concurrency: int = 1
    per_second: float = 1.0
    per_day: int | None = None
    robots: bool = True
    also: tuple[str, ...] = ()

    def covers(self, host: str) -> bool:
        """Whether `host` is one of these hosts or below one."""
        return self.closeness(host) > 0

    def closeness(self, host: str) -> int:
        """How specific the rule is to a host: the length of the name that covers it, or 0."""
        names = (self.host, *self.also)
        return max((len(n) for n in names if host == n or host.endswith("." + n)), default=0)


def rule_for(host: str, rules: Iterable[HostRule], default: HostRule) -> HostRule:
    """The most specific rule that covers a host; a rule of its own made of `default` if none does.

    Args:
        host: lower case, without a port.
        rules: what the sources state.
        default: concurrency and rate of hosts that no rule names.
    """
    covering = [rule for rule in rules if rule.covers(host)]
    if covering:
        return max(covering, key=lambda rule: rule.closeness(host))
    return HostRule(host, default.concurrency, default.per_second, default.per_day, default.robots)
