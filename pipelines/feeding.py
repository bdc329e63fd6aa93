"""Feeding a downloader: waiting hits in their order, past those whose host has no room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from curate.catalog import hits
from curate.sources.download import Downloader, Wanted
from pipelines.workspace import Workspace

#: Hits that the downloader holds, and those that wait beside it for a host with room. A list sorted
#: by host is looked through that far, so that a slow host does not hold up the next ones.
_IN_HAND, _ASIDE = 5000, 50_000

#: Hits that are read at a time.
_PAGE = 1000


class Feed:
    """What a harvest has handed to its downloader, and what it hands on next.

    Args:
        workspace: where hits are.
        scope: which of them.
    """

    def __init__(self, workspace: Workspace, scope: Callable[[], hits.Scope]) -> None:
        self._workspace, self._scope = workspace, scope
        # The last hit that was read; those read that have not ended; and of these the ones that
        # wait for room, by host.
        self._last = 0
        self._open: set[int] = set()
        self._aside: dict[str, deque[Wanted]] = {}
        self._are_more = True

    @property
    def aside(self) -> int:
        """How many hits wait for a host with room."""
        return sum(map(len, self._aside.values()))

    def look_again(self, *, from_start: bool = False) -> None:
        """There are more hits; with `from_start` also before those that were read."""
        self._are_more = True
        if from_start:
            self._last = 0

    def ended(self, numbers: Iterable[int]) -> None:
        """Hits that came back from the downloader."""
        self._open.difference_update(numbers)

    def hand_on(self, downloader: Downloader[Any]) -> bool:
        """Give the downloader what it has room for; say whether it could take still more."""
        for host, queue in list(self._aside.items()):
            while queue and downloader.pending < _IN_HAND and downloader.takes(queue[0].url):
                downloader.add(queue.popleft())
            if not queue:
                del self._aside[host]
        aside = self.aside
        while self._are_more and downloader.pending < _IN_HAND and aside < _ASIDE:
            with self._workspace.catalogue.read() as connection:
                rows = hits.wanted(connection, self._scope(), self._last, _PAGE)
            self._are_more = len(rows) == _PAGE
            for row in rows:
                self._last = row["id"]
                if row["id"] in self._open:
                    continue
                self._open.add(row["id"])
                wanted = Wanted(row["id"], row["url"])
                if downloader.takes(wanted.url):
                    downloader.add(wanted)
                else:
                    self._aside.setdefault(_host(wanted.url), deque()).append(wanted)
                    aside += 1
        return not self._are_more and downloader.pending < _IN_HAND and aside < _ASIDE


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""
