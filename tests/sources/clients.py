"""The real client of APIs, whose waits take no time."""

from __future__ import annotations

import time
from functools import lru_cache

from curate.settings import NetworkSettings
from curate.sources.api import ApiClient
from curate.sources.http import user_agent
from curate.sources.manners import Manners
from tests.sources.servers import LoopbackServer


class Waits:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = time.time()
        self.slept = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


def client(server: LoopbackServer, waits: Waits | None = None) -> ApiClient:
    """Asks one server, through the guard that everything goes through."""
    waits = waits or Waits()
    settings = NetworkSettings(allow_hosts=(server.allow_host,), tries=3)
    manners = Manners((), settings, clock=waits)
    agent = user_agent("1.0", "https://example.org/contact")
    return ApiClient("test", settings, agent, manners, sleep=waits.sleep)


@lru_cache(maxsize=1)
def lasting_client(server: LoopbackServer) -> ApiClient:
    """The same client for all questions to one server: making one takes a tenth of a second."""
    return client(server)
