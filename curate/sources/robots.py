"""What sites ask of robots: robots.txt before a request (RFC 9309), tags with the answer."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from curate.errors import QuotaExhausted
from curate.sources.addresses import Url
from curate.sources.failures import FetchFailed
from curate.sources.manners import Manners

if TYPE_CHECKING:
    from protego import Protego

    from curate.sources.http import Fetcher

#: How long a robots.txt is believed, in seconds.
LONGEST_AGE = 86_400.0

#: What is read of a robots.txt; the rest is not there.
MOST_BYTES = 500 * 1024

# What is longer is cut, not refused.
_NO_LIMIT = 2**50

#: Origins whose rules are remembered at a time.
_MOST_ORIGINS = 1000

_AGENT_FIELDS = ("user-agent", "useragent", "user agent")
#: Longest wait for the turn of a host that a robots.txt is redirected to, in seconds.
_PATIENCE = 10.0


@dataclass
class _Origin:
    """One origin's rules. None once `until` is set: everything is allowed."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    rules: Protego | None = None
    until: float = 0.0


class Robots:
    """The robots.txt of every origin, asked once a day and origin whatever the number of threads.

    Args:
        fetcher: what asks.
        token: the name that rules are looked up by.
        manners: gives redirects their turn, and learns of Crawl-delay. The first request's turn is
            the caller's to take.
        stop: asked while waiting for a turn.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        token: str,
        manners: Manners,
        stop: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = fetcher
        self._token = token.lower()
        self._manners = manners
        self._stop = stop
        self._clock = clock
        self._lock = threading.Lock()
        self._origins: OrderedDict[str, _Origin] = OrderedDict()

    def knows(self, url: Url) -> bool:
        """Whether `allowed` answers without a request."""
        with self._lock:
            known = self._origins.get(url.origin)
            return known is not None and self._clock() < known.until

    def allowed(self, url: Url) -> bool:
        """Whether the site lets us ask for an address; asks its robots.txt unless it is known.

        Raises:
            FetchFailed: robots.txt cannot be had, and the address neither. Retryable where the site
                may let us later: it answered 5xx or 429, or the connection broke. Nothing is
                remembered of it.
        """
        with self._lock:
            known = self._origins.setdefault(url.origin, _Origin())
            self._origins.move_to_end(url.origin)
            if len(self._origins) > _MOST_ORIGINS:
                self._origins.popitem(last=False)
        if self._clock() >= known.until:
            with known.lock:
                if self._clock() >= known.until:
                    known.rules = self._ask(url)
                    known.until = self._clock() + LONGEST_AGE
        return known.rules is None or known.rules.can_fetch(str(url), self._token)

    def _ask(self, url: Url) -> Protego | None:
        from protego import Protego

        hops = 0

        def on_hop(at: Url) -> None:
            nonlocal hops
            if hops:
                self._take_turn(at.host)
            hops += 1

        place = Url(url.scheme, url.host, url.port, "/robots.txt")
        text = bytearray()
        try:
            with self._fetcher.open(place, max_bytes=_NO_LIMIT, on_hop=on_hop) as answer:
                for piece in answer.chunks():
                    text += piece
                    if len(text) > MOST_BYTES:
                        break
        except FetchFailed as failure:
            if _means_none(failure):
                return None
            if failure.state == "bad_url" or (hops > 1 and failure.state == "forbidden_address"):
                # The rules lie where we do not look; so we do not know them.
                return Protego.parse("User-agent: *\nDisallow: /")
            if (failure.status or 0) >= 500:
                failure.retryable = True
            raise
        return self._read(url.host, bytes(text))

    def _take_turn(self, host: str) -> None:
        try:
            self._manners.wait_turn(host, self._stop, _PATIENCE)
        except QuotaExhausted as error:
            raise FetchFailed("waiting", str(error), retryable=True) from None

    def _read(self, host: str, text: bytes) -> Protego | None:
        from protego import Protego

        whole = text[:MOST_BYTES]
        if len(text) > MOST_BYTES:
            # A rule cut in the middle would be another rule.
            whole = whole[: whole.rfind(b"\n") + 1]
        told = _concerning(whole.decode("utf-8-sig", "replace"), self._token)
        if not told:
            return None
        rules = Protego.parse(told)
        delay = rules.crawl_delay(self._token)
        if delay is not None and delay > 0:
            self._manners.slow_down(host, delay)
        return rules


def _means_none(failure: FetchFailed) -> bool:
    """Whether a failure says that there is no robots.txt, so that everything is allowed."""
    status = failure.status or 0
    return failure.state == "too_many_redirects" or (200 < status < 500 and not failure.retryable)


def _concerning(text: str, token: str) -> str:
    """The groups that are for us or for everybody.

    A robots.txt that lists tens of thousands of robots before as many rules would take a parser
    minutes and gigabytes.
    """
    kept: list[str] = []
    ours: list[str] = []
    in_names = False
    for line in text.splitlines():
        rule = line.partition("#")[0].strip()
        name = _agent(rule)
        if name is not None:
            if not in_names:
                ours = []
            in_names = True
            if name in ("*", token) and name not in ours:
                ours.append(name)
                kept.append(f"User-agent: {name}")
        elif rule:
            in_names = False
            if ours:
                kept.append(rule)
    return "\n".join(kept)


def _agent(rule: str) -> str | None:
    """The robot that a line names, lower case and without its version; None for other lines."""
    start, colon, name = rule.partition(":")
    if not colon:
        start, _, name = rule.partition(" ")
    if start.strip().lower() not in _AGENT_FIELDS:
        return None
    name = name.strip().lower()
    return name if name == "*" else name.partition("/")[0].replace("*", "").strip()


class Headers(Protocol):
    """Headers of an answer, as urllib3 has them."""

    def getlist(self, key: str) -> list[str]:
        """All values of a header, in their order."""


_REFUSALS = frozenset(("noai", "noimageai", "noindex", "noimageindex", "none"))
_DIRECTIVES = _REFUSALS | {
    *("all", "index", "follow", "nofollow", "noarchive", "nocache", "nosnippet"),
    *("notranslate", "indexifembedded", "noml"),
}
# Directives that bring a value after a colon; a word that is none of these and stands before a
# colon names a robot.
_WITH_VALUE = frozenset(
    ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")
)
_AGENT = re.compile(r"[A-Za-z_*][\w.*/-]*")


def tag_refuses(headers: Headers | Mapping[str, str], token: str) -> str | None:
    """Why an answer's headers ask not to use the image.

    X-Robots-Tag with noai, noimageai, noindex, noimageindex or none, for all robots or for ours,
    and a `tdm-reservation` of 1.

    Args:
        headers: of the answer that brings the image.
        token: the name that tags may call us by.

    Returns:
        What the header says; None if it does not mind.
    """
    if any(value.strip() == "1" for value in _values(headers, "TDM-Reservation")):
        return "tdm-reservation: 1"
    for value in _values(headers, "X-Robots-Tag"):
        if (found := _refusal(value, token.lower())) is not None:
            return f"X-Robots-Tag: {found}"
    return None


def _values(headers: Headers | Mapping[str, str], name: str) -> Iterable[str]:
    if isinstance(headers, Mapping) and not hasattr(headers, "getlist"):
        return (value for key, value in headers.items() if key.lower() == name.lower())
    return headers.getlist(name)


def _refusal(value: str, token: str) -> str | None:
    for_us = True
    for part in value.split(","):
        before, colon, after = (text.strip() for text in part.partition(":"))
        directive = part.strip()
        if colon and before.lower() in _WITH_VALUE:
            continue
        # A part with a colon and no name before it is the rest of a date.
        if colon and before.lower() in _DIRECTIVES:
            directive = before
        elif colon and _AGENT.fullmatch(before):
            for_us, directive = before.lower() in ("*", token), after
        if for_us and directive.lower() in _REFUSALS:
            return directive.lower()
    return None
