"""A server on loopback whose answers a subclass computes from the questions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Self

from curate.settings import NetworkSettings
from curate.sources.api import ApiClient
from curate.sources.http import user_agent
from curate.sources.protocol import Query, Source
from tests.sources.servers import Exchange, LoopbackServer, Request


@dataclass(frozen=True)
class Reply:
    """A text is sent as HTML, everything else as JSON."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class AnsweringServer(LoopbackServer):
    """Attributes:
    troubles: replies that are given first, whatever is asked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.troubles: deque[Reply] = deque()
        self.on("*", self._answer)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def answer(self, asked: Request) -> Reply:
        raise NotImplementedError

    def _answer(self, exchange: Exchange) -> None:
        reply = self.troubles.popleft() if self.troubles else self.answer(exchange.request)
        if isinstance(reply.body, str):
            exchange.send(reply.status, reply.body.encode(), reply.headers, "text/html")
        else:
            exchange.json(reply.body, reply.status, reply.headers)


def client_for(server: LoopbackServer, name: str = "source") -> ApiClient:
    """The real client, in no hurry to be polite."""
    settings = NetworkSettings(allow_hosts=(server.allow_host,), per_second=1e6, tries=3)
    return ApiClient(name, settings, user_agent("1.0", "https://example.org/contact"))


def found_in_two_goes(
    first: Source, second: Source, query: Query, stop: int, ahead: int = 0
) -> set[str]:
    """What a search finds that stops after some hits, and another that goes on from the last.

    `ahead` plants a fault: the second goes on from a cursor that many hits further on.
    """
    hits = list(islice(first.search(query), stop + ahead))
    assert hits[-1].cursor is not None
    rest = second.search(replace(query, cursor=hits[-1].cursor))
    return {hit.locator for hit in hits[:stop]} | {hit.locator for hit in rest}
