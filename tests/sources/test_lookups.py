"""Look-ups of names: bounded in time and number, and ended when all is."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from curate.settings import NetworkSettings
from curate.sources.http import Fetcher, FetchFailed
from curate.sources.lookups import Lookups
from tests.sources.servers import LoopbackServer
from tests.waiting import PATIENCE, wait_until


class StuckNames:
    """A resolver that knows some names, and never answers for any other until the test ends."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.known: dict[str, str] = {}
        self.asked: list[str] = []
        self._real = socket.getaddrinfo

    def __call__(self, host: str, *args: Any, **more: Any) -> Any:
        self.asked.append(host)
        if host in self.known:
            return self._real(self.known[host], *args, **more)
        if host != "127.0.0.1":
            self.over.wait(2 * PATIENCE)
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return self._real(host, *args, **more)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[StuckNames]:
    stuck = StuckNames()
    monkeypatch.setattr(socket, "getaddrinfo", stuck)
    yield stuck
    stuck.over.set()


def fetcher(**changes: float) -> Fetcher:
    limits = {"connect_seconds": 0.3, "read_seconds": 60, "total_seconds": 60, **changes}
    return Fetcher(NetworkSettings.model_validate(limits), "test/1")


def asks(fetching: Fetcher, failures: list[FetchFailed]) -> Callable[[], None]:
    def ask() -> None:
        try:
            with fetching.open("http://stuck.example/a", max_bytes=10):
                pass
        except FetchFailed as failure:
            failures.append(failure)

    return ask


@pytest.mark.parametrize(
    "limits", [{"connect_seconds": 0.3}, {"connect_seconds": 60, "total_seconds": 0.3}]
)
@pytest.mark.parametrize("guarded", [True, False])
def test_a_resolver_that_never_answers_holds_nobody(
    names: StuckNames, monkeypatch: pytest.MonkeyPatch, guarded: bool, limits: dict[str, float]
) -> None:
    if not guarded:
        monkeypatch.setattr(Lookups, "run", lambda self, ask, seconds, look: ask())
    failures: list[FetchFailed] = []
    thread = threading.Thread(target=asks(fetcher(**limits), failures), daemon=True)
    thread.start()
    thread.join(PATIENCE if guarded else 1.5)
    assert thread.is_alive() != guarded
    if guarded:
        (failure,) = failures
        assert (failure.state, failure.retryable) == ("dns", True)
    names.over.set()
    thread.join(PATIENCE)


def test_an_abort_ends_the_wait_for_a_name(names: StuckNames) -> None:
    fetching = fetcher(connect_seconds=60)
    failures: list[FetchFailed] = []
    thread = threading.Thread(target=asks(fetching, failures), daemon=True)
    thread.start()
    wait_until(lambda: names.asked)
    began = time.monotonic()
    fetching.pools.abort()
    thread.join(PATIENCE)
    assert time.monotonic() - began < 30
    assert [failure.state for failure in failures] == ["waiting"]


def test_a_name_is_still_looked_up_once_and_what_was_checked_is_connected_to(
    names: StuckNames,
) -> None:
    with LoopbackServer() as server:
        server.serve("/a", b"abc")
        names.known["photos.example"] = "127.0.0.1"
        hosts = (f"photos.example:{server.port}",)
        fetching = Fetcher(NetworkSettings(allow_hosts=hosts), "test/1")
        url = server.url("/a", host="photos.example")
        with fetching.open(url, max_bytes=10) as answer:
            assert b"".join(answer.chunks()) == b"abc"
    assert names.asked.count("photos.example") == 1


def test_look_ups_left_behind_are_bounded_and_give_their_places_back() -> None:
    before = set(threading.enumerate())
    over, under_way, most = threading.Event(), 0, 0
    lock = threading.Lock()

    def stuck() -> str:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        over.wait(2 * PATIENCE)
        with lock:
            under_way -= 1
        return "found"

    lookups = Lookups(most=4)
    timeouts: list[TimeoutError] = []

    def wait_for_it() -> None:
        try:
            lookups.run(stuck, 0.3, lambda: None)
        except TimeoutError as error:
            timeouts.append(error)

    began = time.monotonic()
    threads = [threading.Thread(target=wait_for_it) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(timeouts) == 20
    assert time.monotonic() - began < 60
    assert most == 4
    left = set(threading.enumerate()) - before
    assert sum(thread.name == "look-up" for thread in left) == 4
    over.set()
    for _ in range(8):
        assert lookups.run(stuck, PATIENCE, lambda: None) == "found"


def test_what_a_look_up_raises_reaches_who_asked() -> None:
    def fails() -> None:
        raise FetchFailed("forbidden_address", "a loopback address")

    lookups = Lookups(most=1)
    for _ in range(3):
        with pytest.raises(FetchFailed, match="a loopback address"):
            lookups.run(fails, PATIENCE, lambda: None)
