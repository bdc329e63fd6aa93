"""One request for an image: whether it may be made, and what it brings."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from curate.settings import NetworkSettings
from curate.sources.addresses import Url
from curate.sources.bodies import BodyFile, receive
from curate.sources.failures import FetchFailed
from curate.sources.http import AGENT_TOKEN, Answer, Fetcher
from curate.sources.lanes import Turn
from curate.sources.manners import Manners
from curate.sources.placeholders import Placeholders
from curate.sources.robots import Robots, tag_refuses
from curate.sources.wanted import Wanted


@dataclass(slots=True, eq=False)
class Item:
    """What is wanted, and how far that is.

    Attributes:
        wanted: as the caller has it.
        first: its address.
        at: where redirects have led to.
        hops: how many there were.
        attempts: how often the image was tried.
        robots_attempts: how often a robots.txt was asked for it in vain.
        left: seconds left for this attempt with all its redirects.
    """

    wanted: Wanted
    first: Url
    at: Url
    hops: int = 0
    attempts: int = 0
    robots_attempts: int = 0
    left: float = 0.0


class Moved(Exception):
    """An answer leads elsewhere, where another host's turn must be waited for."""

    def __init__(self, to: Url) -> None:
        self.to = to


class RobotsKnown(Exception):
    """The turn went to robots.txt; the item waits for another."""


class RobotsFailed(FetchFailed):
    """A site's robots.txt cannot be had; nothing of it may be asked before."""

    @property
    def out_of_reach(self) -> bool | None:
        """True for all answers too: the next image of the site would fare no better."""
        return None if super().out_of_reach is None else True


class Asking:
    """Makes single requests for items; may be used from any number of threads.

    Args:
        fetcher: what asks.
        manners: which robots.txt is asked.
        robots: what robots.txt says; None to ask neither it nor the tags of answers.
        placeholders: pictures that stand in for missing ones.
        folder: where files go.
        max_bytes: the largest file.
        settings: tries and time limits.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        manners: Manners,
        robots: Robots | None,
        placeholders: Placeholders,
        folder: Path,
        max_bytes: int,
        settings: NetworkSettings,
    ) -> None:
        self._fetcher, self._manners, self._robots = fetcher, manners, robots
        self._placeholders, self._folder, self._max_bytes = placeholders, folder, max_bytes
        self._settings = settings

    def asks_robots(self, item: Item) -> bool:
        """Whether the item's next request goes to a robots.txt."""
        robots = self._robots_for(item)
        return robots is not None and not robots.knows(item.at)

    def ask(self, turn: Turn[Item]) -> tuple[BodyFile, Answer]:
        """Make the one request whose turn it is, and write what comes to a file.

        A turn that no request is needed for is given back.

        Raises:
            FetchFailed: the image does not come; `RobotsFailed` if its robots.txt does not.
            Moved: it is elsewhere.
            RobotsKnown: the request was the one for robots.txt.
        """
        self._check(turn)
        return self._receive(turn.item)

    def _check(self, turn: Turn[Item]) -> None:
        item = turn.item
        note = self._placeholders.by_url(str(item.at))
        if note is not None:
            turn.end(asked=False)
            raise FetchFailed("placeholder", note, retryable=False)
        if (robots := self._robots_for(item)) is None:
            return
        asks = not robots.knows(item.at)
        try:
            allowed = robots.allowed(item.at)
        except FetchFailed as failure:
            item.robots_attempts += 1
            again = failure.retryable and item.robots_attempts < self._settings.tries
            # What is wrong with the host is not the fault of its robots.txt.
            of_host = failure.state in ("forbidden_address", "dns", "connection", "tls")
            raise RobotsFailed(
                failure.state,
                failure.detail if of_host else f"robots.txt: {failure.detail}",
                retry_after=failure.retry_after,
                retryable=again,
            ) from None
        if asks:
            raise RobotsKnown
        if not allowed:
            turn.end(asked=False)
            raise FetchFailed("robots", retryable=False)

    def _robots_for(self, item: Item) -> Robots | None:
        """What must allow the item's next request."""
        if self._robots is None or not self._manners.rule(item.at.host).robots:
            return None
        return self._robots

    def _receive(self, item: Item) -> tuple[BodyFile, Answer]:
        if item.hops == 0:
            item.attempts += 1
            item.left = self._settings.total_seconds
        asked = False

        def on_hop(at: Url) -> None:
            nonlocal asked
            if asked:
                raise Moved(at)
            asked = True

        began = time.monotonic()
        try:
            with self._fetcher.open(
                item.at, max_bytes=self._max_bytes, on_hop=on_hop, seconds=item.left
            ) as answer:
                if self._robots is not None:
                    tag = tag_refuses(answer.headers, AGENT_TOKEN)
                    if tag is not None:
                        raise FetchFailed("robots_tag", tag, retryable=False)
                return receive(answer, self._folder), answer
        finally:
            item.left -= time.monotonic() - began
