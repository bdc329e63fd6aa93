"""The downloader against real servers on loopback that answer well, badly, late or not at all."""

from __future__ import annotations

import gzip
import math
import resource
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from curate.errors import ImageRefused, StorageError
from curate.files import TEMPORARY, sha256_bytes, sha256_file
from curate.retries import naive_utc
from curate.settings import NetworkSettings
from curate.sources.download import PER_LANE, Downloader, Failed, Fetched, Wanted
from curate.sources.host_rules import HostRule
from curate.sources.http import AGENT_TOKEN, Fetcher
from curate.sources.manners import BREAKER_SECONDS, Manners
from curate.sources.placeholders import Placeholders
from curate.sources.robots import Robots
from tests.sources.many_photos import content
from tests.sources.servers import Exchange, LoopbackServer, closed_port
from tests.waiting import PATIENCE, wait_until

PHOTO = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 40
PIXEL = (
    b"GIF89a\x01\x00\x01\x00\x80\x01\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,"
    b"\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02L\x01\x00;"
)
MAX_BYTES = 200_000

Result = Fetched[Any] | Failed


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture
def other() -> Iterator[LoopbackServer]:
    """A second host."""
    with LoopbackServer("127.0.0.2") as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "incoming"
    path.mkdir()
    return path


class Setting:
    """A downloader with all its parts, for some servers."""

    def __init__(
        self,
        folder: Path,
        servers: Iterable[LoopbackServer],
        *,
        rules: Iterable[HostRule] = (),
        robots: bool = False,
        process: Callable[[Path, str], Any] = lambda path, sha256: None,
        wait: Callable[[int], float] = lambda failed: 0.01,
        told: dict[str, Any] | None = None,
        per_lane: int = PER_LANE,
        breaker_seconds: float = BREAKER_SECONDS,
        **network: Any,
    ) -> None:
        limits = {
            "per_second": 1000,
            "tries": 3,
            "workers": 8,
            "connect_seconds": 60,
            "read_seconds": 60,
            "total_seconds": 120,
            "allow_hosts": tuple(server.allow_host for server in servers),
            **network,
        }
        self.settings = NetworkSettings.model_validate(limits)
        self.manners = Manners(rules, self.settings, told, breaker_seconds=breaker_seconds)
        self.fetcher = Fetcher(self.settings, AGENT_TOKEN)
        self.robots = Robots(self.fetcher, AGENT_TOKEN, self.manners) if robots else None
        self.stopped = False
        self.folder = folder
        self.downloader: Downloader[Any] = Downloader(
            self.fetcher,
            self.manners,
            self.robots,
            Placeholders.load(),
            folder,
            MAX_BYTES,
            self.settings,
            process,
            lambda: self.stopped,
            cores=2,
            per_lane=per_lane,
            wait=wait,
        )

    def __enter__(self) -> Setting:
        return self

    def __exit__(self, *_: object) -> None:
        self.downloader.close()
        self.fetcher.pools.clear()

    def get(self, *urls: str, added: Callable[[], object] = lambda: None) -> list[Result]:
        """Download all, and give the results in the order of the addresses; `added` is called once
        all are asked for."""
        for number, url in enumerate(urls):
            self.downloader.add(Wanted(number, url))
        added()
        results = self.next()
        assert sorted(result.wanted.id for result in results) == list(range(len(urls)))
        return sorted(results, key=lambda result: result.wanted.id)

    def next(self, count: float = math.inf) -> list[Result]:
        """The results that come next: so many, or all that are pending."""
        results: list[Result] = []
        until = time.monotonic() + PATIENCE
        while len(results) < count and self.downloader.pending:
            assert time.monotonic() < until, f"{self.downloader.pending} never ended"
            results += self.downloader.results(0.05)
        return results

    def files(self) -> set[Path]:
        return set(self.folder.iterdir())


def states(results: Iterable[Result]) -> list[str]:
    return [one.state if isinstance(one, Failed) else "fetched" for one in results]


def test_photos_arrive_whole_with_what_the_server_said(
    server: LoopbackServer, folder: Path, package_photos: list[tuple[Path, int]]
) -> None:
    def answer(exchange: Exchange) -> None:
        path = package_photos[int(exchange.request.path[1:])][0]
        headers = {"ETag": '"abc"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        exchange.send(body=path.read_bytes(), headers=headers, content_type="image/jpeg")

    server.on("/*", answer)

    def process(path: Path, sha256: str) -> tuple[str, int]:
        assert sha256_file(path) == sha256
        return "seen", path.stat().st_size

    with Setting(folder, [server], process=process, per_host=3) as setting:
        results = setting.get(*(server.url(f"/{number}") for number in range(20)))
        for result, (path, _) in zip(results, package_photos, strict=True):
            assert isinstance(result, Fetched)
            assert result.path.read_bytes() == path.read_bytes()
            assert result.sha256 == sha256_file(path)
            assert result.outcome == ("seen", result.bytes)
            assert (result.content_type, result.etag) == ("image/jpeg", '"abc"')
            assert result.last_modified == "Thu, 01 Jan 2026 00:00:00 GMT"
            assert result.url == server.url(f"/{result.wanted.id}")
            assert result.attempts == 1
            assert result.path.name.startswith(TEMPORARY)
        assert setting.files() == {one.path for one in results if isinstance(one, Fetched)}
    assert len({request.peer for request in server.requests}) <= 3, "connections are kept"


def chunked(exchange: Exchange) -> None:
    exchange.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    with suppress(OSError):
        exchange.endless(b"2710\r\n" + b"\xff\xd8\xff\xe0" * 2500 + b"\r\n")


def sends(body: bytes, content_type: str = "image/jpeg", **headers: str) -> Any:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda exchange: exchange.send(body=body, headers=told, content_type=content_type)


def answers(status: int, **headers: str) -> Any:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda exchange: exchange.send(status, b"no", told, "text/plain")


HTML = b"<!DOCTYPE html><html><body>Please enable cookies</body></html>"
CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + PHOTO
BOMB = gzip.compress(b"\xff\xd8\xff" + bytes(50_000_000))


@pytest.mark.parametrize(
    ("answer", "state", "tries"),
    [
        (answers(404), "http_404", 1),
        (answers(410), "http_410", 1),
        (answers(403), "http_403", 1),
        (answers(204), "http_204", 1),
        (answers(500), "http_500", 3),
        (answers(429), "http_429", 3),
        (sends(HTML), "not_an_image", 1),
        (sends(b"\xef\xbb\xbf \r\n" + HTML, "image/png"), "not_an_image", 1),
        (sends(b"<?xml version='1.0'?><svg/>", "image/svg+xml"), "not_an_image", 1),
        (sends(b"Access denied", "text/html; charset=utf-8"), "not_an_image", 1),
        (sends(b'{"error": "gone"}', "application/json"), "not_an_image", 1),
        (sends(b""), "truncated", 3),
        (lambda exchange: exchange.raw(CUT), "truncated", 3),
        (sends(bytes(MAX_BYTES + 1)), "too_large", 1),
        (sends(b"\xff\xd8\xff", Content_Length=str(10**15)), "too_large", 1),
        (chunked, "too_large", 1),
        (sends(BOMB, Content_Encoding="gzip"), "too_large", 1),
        (sends(PIXEL, "image/gif"), "placeholder", 1),
        (answers(302, Location="/always"), "too_many_redirects", 1),
        (answers(302, Location="https://s.yimg.com/photo_unavailable.png"), "placeholder", 1),
        (answers(302, Location="file:///etc/passwd"), "bad_url", 1),
        (answers(302, Location="http://10.0.0.1/x.jpg"), "forbidden_address", 1),
        (answers(302, Location="http://127.0.0.1:1/x.jpg"), "forbidden_address", 1),
        (lambda exchange: exchange.raw(b"220 mail.example ready\r\n"), "bad_answer", 1),
        (lambda exchange: exchange.drip(PHOTO, 0.05), "bad_answer", 1),
    ],
)
def test_every_bad_answer_has_its_state_and_leaves_no_file(
    server: LoopbackServer, folder: Path, answer: Any, state: str, tries: int
) -> None:
    server.on("/always", answer)
    with Setting(folder, [server]) as setting:
        (result,) = setting.get(server.url("/always"))
        assert isinstance(result, Failed)
        assert (result.state, result.attempts, result.retry_at) == (state, tries, None)
        assert result.detail
        assert "\n" not in result.detail
        assert setting.files() == set()


@pytest.mark.parametrize(
    ("url", "state"),
    [
        ("", "bad_url"),
        ("file:///etc/passwd", "bad_url"),
        ("http://user:secret@example.org/a.jpg", "bad_url"),
        ("http://127.0.0.1/a.jpg", "forbidden_address"),
        ("http://[::1]/a.jpg", "forbidden_address"),
        ("http://0x7f.1/a.jpg", "forbidden_address"),
        ("http://169.254.169.254/latest/meta-data", "forbidden_address"),
        ("https://i.imgur.com/removed.png", "placeholder"),
    ],
)
def test_an_address_that_is_not_to_be_asked_is_not(folder: Path, url: str, state: str) -> None:
    with Setting(folder, []) as setting:
        (result,) = setting.get(url)
        assert states([result]) == [state]
        assert isinstance(result, Failed)
        assert "secret" not in result.detail


@pytest.mark.parametrize("allowed", [False, True])
def test_a_redirect_to_a_private_address_is_followed_only_where_the_user_says_so(
    server: LoopbackServer, other: LoopbackServer, folder: Path, allowed: bool
) -> None:
    server.on("/go", answers(302, Location=other.serve("/secret", PHOTO)))
    with Setting(folder, [server, other] if allowed else [server]) as setting:
        (result,) = setting.get(server.url("/go"))
    assert states([result]) == ["fetched" if allowed else "forbidden_address"]
    assert other.hits() == int(allowed)


def test_an_image_sent_as_text_is_one_and_odd_addresses_are_mended(
    server: LoopbackServer, folder: Path
) -> None:
    server.serve("/%C3%A4lg%20%231.jpg", PHOTO, "text/html")
    with Setting(folder, [server]) as setting:
        (result,) = setting.get(server.url("/älg %231.jpg "))
        assert states([result]) == ["fetched"]


def test_what_fails_at_first_is_tried_again(server: LoopbackServer, folder: Path) -> None:
    def answer(exchange: Exchange) -> None:
        match exchange.request.number:
            case 0:
                exchange.send(503, b"later")
            case 1:
                exchange.raw(CUT)
            case 2:
                exchange.raw(b"")
            case _:
                exchange.send(body=PHOTO)

    server.on("/photo", answer)
    with Setting(folder, [server], tries=5) as setting:
        (result,) = setting.get(server.url("/photo"))
        assert isinstance(result, Fetched)
        assert (result.attempts, result.sha256) == (4, sha256_bytes(PHOTO))
        assert setting.files() == {result.path}


def test_refused_and_silent_servers_are_tried_again_and_then_told(
    server: LoopbackServer, folder: Path
) -> None:
    server.on("/silent", lambda exchange: exchange.silence())
    port = closed_port()
    settings = {"tries": 2, "total_seconds": 0.5}
    with Setting(
        folder, [server], **settings, allow_hosts=(server.allow_host, f"127.0.0.1:{port}")
    ) as setting:
        results = setting.get(server.url("/silent"), f"http://127.0.0.1:{port}/a.jpg")
    assert states(results) == ["timeout", "connection"]
    assert [one.attempts for one in results] == [2, 2]
    wait_until(lambda: server.hits("/silent") >= 2)
    assert server.hits("/silent") == 2


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n\xff\xd8\xff", b""])
def test_one_byte_at_a_time_takes_no_longer_than_the_total(
    server: LoopbackServer, folder: Path, head: bytes
) -> None:
    def answer(exchange: Exchange) -> None:
        exchange.raw(head)
        exchange.drip(b"HTTP/1.1 200 OK\r\nX-Header: and so on and so on" + PHOTO, 0.05)

    server.on("/drip", answer)
    began = time.monotonic()
    with Setting(folder, [server], tries=1, total_seconds=0.5) as setting:
        (result,) = setting.get(server.url("/drip"))
        assert states([result]) == ["timeout"]
        assert setting.files() == set()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("waits", [False, True])
def test_an_image_has_one_limit_on_time_over_its_redirects_but_for_turns(
    server: LoopbackServer, folder: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Of the clock twenty seconds pass with each answer, or in waiting for each turn."""
    real, passed = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + sum(passed))

    def answer(exchange: Exchange) -> None:
        if not waits:
            passed.append(20.0)
        number = int(exchange.request.path[1:])
        if number == 5:
            exchange.send(body=PHOTO)
        else:
            exchange.redirect(f"/{number + 1}")

    server.on("/*", answer)
    with Setting(folder, [server], total_seconds=70, tries=2) as setting:
        if waits:
            put = setting.downloader._lanes.put

            def slowly(*about: Any, **how: Any) -> None:
                passed.append(20.0)
                put(*about, **how)

            monkeypatch.setattr(setting.downloader._lanes, "put", slowly)
        (result,) = setting.get(server.url("/0"))
    if not waits:
        assert isinstance(result, Failed)
        assert (result.state, result.attempts) == ("timeout", 2)
        assert server.hits("/5") == 0
        assert server.hits("/3") == 2, "each try has its own limit"
    else:
        assert states([result]) == ["fetched"]


def after_a_second(exchange: Exchange, value: str, **headers: str) -> None:
    if exchange.request.number == 0:
        exchange.send(429, b"<html>slow down", {"Retry-After": value, **headers}, "text/html")
    else:
        exchange.send(body=PHOTO)


def test_retry_after_in_seconds_and_as_a_date_is_obeyed(
    server: LoopbackServer, other: LoopbackServer, folder: Path
) -> None:
    # The server's clock is an hour wrong, which must not matter.
    wrong = time.time() - 3600
    date = {"Date": formatdate(wrong, usegmt=True)}
    server.on("/a", lambda exchange: after_a_second(exchange, "1"))
    other.on("/a", lambda exchange: after_a_second(exchange, formatdate(wrong + 1, True), **date))
    with Setting(folder, [server, other]) as setting:
        results = setting.get(server.url("/a"), other.url("/a"))
    assert states(results) == ["fetched", "fetched"]
    for asked in (server, other):
        first, second = (request.time for request in asked.requests)
        assert 0.95 <= second - first < 60


def test_a_parked_host_holds_up_no_other_even_with_one_thread(
    server: LoopbackServer, other: LoopbackServer, folder: Path
) -> None:
    server.on("/*", lambda exchange: after_a_second(exchange, "8"))
    other.serve("/*", PHOTO)
    began = time.monotonic()
    with Setting(folder, [server, other], workers=1) as setting:
        for number in range(40):
            host = server if number % 2 else other
            setting.downloader.add(Wanted(number, host.url("/photo")))
        done = setting.next(20)
        assert time.monotonic() - began < 8
        assert server.hits() == 1, "parked: the host, not the one image"
        done += setting.next()
    assert states(done).count("fetched") == 40


def test_a_silent_host_holds_up_no_other(
    server: LoopbackServer, other: LoopbackServer, folder: Path
) -> None:
    server.on("/*", lambda exchange: exchange.silence())
    other.serve("/*", PHOTO)
    with Setting(folder, [server, other], workers=4, per_host=2, total_seconds=60) as setting:
        for number in range(60):
            setting.downloader.add(
                Wanted(number, (server if number < 30 else other).url(f"/{number}"))
            )
        done = setting.next(30)
        assert sorted(one.wanted.id for one in done) == list(range(30, 60))


def test_a_lane_takes_so_many_and_again_when_some_have_come_out(
    server: LoopbackServer, other: LoopbackServer, folder: Path
) -> None:
    gate = threading.Event()

    def answer(exchange: Exchange) -> None:
        gate.wait(PATIENCE)
        exchange.send(body=PHOTO)

    server.on("/*", answer)
    rules = [HostRule("127.0.0.1", concurrency=2, per_second=1000)]
    with Setting(folder, [server, other], rules=rules, per_lane=20) as setting:
        downloader = setting.downloader
        added = 0
        while downloader.takes(server.url(f"/{added}")):
            downloader.add(Wanted(added, server.url(f"/{added}")))
            added += 1
        assert added == 20
        assert downloader.takes(other.url("/a")), "another host has room"
        for odd in ("", "file:///etc/passwd", "http://user:secret@127.0.0.1/a", "http://[::1/"):
            assert downloader.takes(odd)
            downloader.add(Wanted(1000 + len(odd), odd))
        assert not downloader.takes(server.url("/b"))
        gate.set()
        assert len(setting.next()) == 24
        assert downloader.takes(server.url("/b"))
        assert not downloader._held, "nothing is kept of hosts that are done"
        assert not downloader._lane_of


def test_images_that_wait_elsewhere_after_a_redirect_count_where_they_began(
    server: LoopbackServer, other: LoopbackServer, folder: Path
) -> None:
    server.on("/*", lambda exchange: exchange.redirect(other.url(exchange.request.path)))
    other.on("/*", lambda exchange: exchange.silence())
    with Setting(folder, [server, other], per_lane=3) as setting:
        for number in range(3):
            setting.downloader.add(Wanted(number, server.url(f"/{number}")))
        wait_until(lambda: other.hits() >= 2)
        assert other.hits() == 2
        assert not setting.downloader.takes(server.url("/x"))
        assert setting.downloader.takes(other.url("/x"))


def test_a_host_that_wants_a_long_pause_is_left_with_all_its_images(
    server: LoopbackServer, other: LoopbackServer, folder: Path
) -> None:
    server.on("/*", answers(503, Retry_After="5000"))
    other.serve("/*", PHOTO)
    with Setting(folder, [server, other], per_host=1, patience_seconds=100) as setting:
        urls = [(server if number % 2 else other).url(f"/{number}") for number in range(20)]
        results = setting.get(*urls)
        assert states(results) == ["fetched", "waiting"] * 10
        assert server.hits() == 1
        for result in results[1::2]:
            assert isinstance(result, Failed)
            assert result.retry_at is not None
            away = result.retry_at - naive_utc(time.time())
            assert away.total_seconds() == pytest.approx(5000, abs=PATIENCE)
        (late,) = setting.get(server.url("/late"))
        assert states([late]) == ["waiting"]
        assert server.hits() == 1
        remembered = setting.manners.snapshot()
    with Setting(folder, [server], patience_seconds=100, told=remembered) as setting:
        assert states(setting.get(server.url("/again"))) == ["waiting"]
    assert server.hits() == 1


def over_the_pause(told: dict[str, Any]) -> dict[str, Any]:
    """What is remembered of hosts, as a start after their pauses finds it."""
    return {host: {**one, "paused_until": 0.0, "next_at": 0.0} for host, one in told.items()}


@pytest.mark.parametrize("bad", [1, 3, 4])
def test_a_few_bad_photos_say_nothing_of_their_host(
    server: LoopbackServer, folder: Path, bad: int
) -> None:
    server.on("/bad/*", answers(500))
    server.serve("/good/*", PHOTO)
    urls = [server.url(f"/bad/{number}") for number in range(bad)]
    with Setting(folder, [server], per_host=1, tries=5) as setting:
        results = setting.get(*urls)
        assert states(results) == ["http_500"] * bad
        assert {one.attempts for one in results} == {5}
        told = setting.manners.snapshot()
    urls += [server.url(f"/good/{number}") for number in range(30)]
    with Setting(folder, [server], per_host=1, tries=5, told=over_the_pause(told)) as setting:
        assert states(setting.get(*urls)) == ["http_500"] * bad + ["fetched"] * 30


def test_bad_photos_at_the_head_of_a_list_delay_the_good_ones_and_end_none_of_them(
    server: LoopbackServer, folder: Path
) -> None:
    server.on("/bad/*", answers(500))
    server.serve("/good/*", PHOTO)
    left = [server.url(f"/bad/{number}") for number in range(12)]
    left += [server.url(f"/good/{number}") for number in range(30)]
    ended: dict[str, str] = {}
    told: dict[str, Any] = {}
    starts = 0
    while left:
        starts += 1
        assert starts < 6
        with Setting(folder, [server], per_host=1, told=over_the_pause(told)) as setting:
            for url, result in zip(left, setting.get(*left), strict=True):
                state = states([result])[0]
                if state != "waiting":
                    ended[url] = state
            told = setting.manners.snapshot()
        left = [url for url in left if url not in ended]
    assert all(state == ("http_500" if "bad" in url else "fetched") for url, state in ended.items())
    assert len(ended) == 42


@pytest.mark.parametrize(
    ("answer", "state", "robots"),
    [
        (answers(502), "http_502", "off"),
        (answers(502), "http_502", "answers"),
        (answers(502), "http_502", "fails"),
        (answers(429), "http_429", "fails"),
        (lambda exchange: exchange.raw(b""), "connection", "off"),
    ],
)
def test_of_a_dead_host_a_few_images_end_by_their_own_tries_and_none_that_was_not_asked_for(
    server: LoopbackServer, folder: Path, answer: Any, state: str, robots: str
) -> None:
    all_added = threading.Event()

    def answer_then(exchange: Exchange) -> None:
        # Else the first one would be tried again while there are no others.
        all_added.wait(PATIENCE)
        answer(exchange)

    server.on("/*", answer_then)
    if robots == "answers":
        server.serve("/robots.txt", b"", "text/plain")
    told: dict[str, Any] = {}

    def start(*urls: str) -> tuple[list[Result], list[str]]:
        nonlocal told
        server.requests.clear()
        all_added.clear()
        settings = {"per_host": 1, "robots": robots != "off", "told": told}
        with Setting(folder, [server], **settings) as setting:
            results = setting.get(*urls, added=all_added.set)
            told = setting.manners.snapshot()
        asked = [one.path for one in server.requests]
        return results, [path for path in asked if robots != "answers" or "robots" not in path]

    left = [server.url(f"/{number}") for number in range(30)]
    results, asked = start(*left)
    assert states(results) == ["waiting"] * 30
    assert len(asked) == 5
    assert len(set(asked)) == (1 if robots == "fails" else 5)
    results, asked = start(*left)
    assert states(results) == ["waiting"] * 30
    assert asked == [], "not during the pause"
    for _ in range(3):
        told = over_the_pause(told)
        results, asked = start(*left)
        assert states(results) == [state] * 5 + ["waiting"] * (len(left) - 5)
        assert len(asked) == 15, "three tries each, and nothing else of the host"
        for result in results[5:]:
            assert isinstance(result, Failed)
            assert result.retry_at is not None
            assert result.attempts == 0
        left = left[5:]
    server.serve("/*", PHOTO)
    server.serve("/robots.txt", b"", "text/plain")
    told = over_the_pause(told)
    assert states(start(*left)[0]) == ["fetched"] * len(left)


def test_a_dead_host_does_not_hold_a_patient_start_for_ever(
    server: LoopbackServer, folder: Path
) -> None:
    all_added = threading.Event()

    def answer(exchange: Exchange) -> None:
        all_added.wait(PATIENCE)
        exchange.send(502)

    server.on("/*", answer)
    urls = [server.url(f"/{number}") for number in range(30)]
    with Setting(folder, [server], per_host=1, breaker_seconds=2, patience_seconds=60) as setting:
        results = setting.get(*urls, added=all_added.set)
        assert Counter(states(results)) == {"http_502": 5, "waiting": 25}
    asked = Counter(request.path for request in server.requests)
    assert len(asked) == 10
    assert sorted(asked.values())[5:] == [3] * 5


def test_a_host_whose_name_nobody_answers_for_holds_up_no_other_and_is_left(
    server: LoopbackServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, over = socket.getaddrinfo, threading.Event()

    def stuck(host: str, *args: Any, **more: Any) -> Any:
        if host == "stuck.example":
            over.wait(2 * PATIENCE)
        return real(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", stuck)
    server.serve("/*", PHOTO)
    urls = [f"http://stuck.example/{number}" for number in range(30)]
    urls += [server.url(f"/{number}") for number in range(30)]
    began = time.monotonic()
    with Setting(folder, [server], per_host=1, connect_seconds=1) as setting:
        results = setting.get(*urls)
        over.set()
    assert states(results) == ["waiting"] * 30 + ["fetched"] * 30
    assert time.monotonic() - began < 60


def test_rate_and_connections_hold_over_all_hosts_of_a_rule(folder: Path) -> None:
    busy, most, lock = 0, 0, threading.Lock()

    def answer(exchange: Exchange) -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.03)
        with lock:
            busy -= 1
        exchange.send(body=PHOTO)

    with LoopbackServer() as server:
        server.on("/*", answer)
        rule = HostRule("127.0.0.1", concurrency=2, per_second=20)
        began = time.monotonic()
        with Setting(folder, [server], rules=[rule], workers=8) as setting:
            results = setting.get(*(server.url(f"/{number}") for number in range(24)))
    assert states(results) == ["fetched"] * 24
    assert most <= 2
    # Five at once, then one each 50 ms.
    assert max(request.time for request in server.requests) - began >= (24 - 5) / 20 - 0.1


def test_each_request_of_a_redirect_is_a_turn_of_its_host(
    server: LoopbackServer, other: LoopbackServer, folder: Path
) -> None:
    server.on("/*", lambda exchange: exchange.redirect(other.url(exchange.request.path)))
    other.serve("/*", PHOTO)
    rules = [HostRule("127.0.0.2", concurrency=1, per_second=4)]
    began = time.monotonic()
    with Setting(folder, [server, other], rules=rules, per_host=8) as setting:
        results = setting.get(*(server.url(f"/{number}") for number in range(6)))
        assert [one.url for one in results if isinstance(one, Fetched)] == [
            other.url(f"/{number}") for number in range(6)
        ]
    # Of one that comes late the next one is nearer.
    after = [request.time - began for request in other.requests]
    assert all(seconds > number / 4 - 0.05 for number, seconds in enumerate(after))


def test_redirects_are_counted_however_they_are_waited_for(
    server: LoopbackServer, folder: Path
) -> None:
    def answer(exchange: Exchange) -> None:
        number = int(exchange.request.path[1:])
        if number == 50:
            exchange.send(body=PHOTO)
        else:
            exchange.redirect(f"/{number + 1}")

    server.on("/*", answer)
    with Setting(folder, [server], redirects=5) as setting:
        results = setting.get(server.url("/0"), server.url("/44"), server.url("/45"))
    assert states(results) == ["too_many_redirects", "too_many_redirects", "fetched"]
    assert server.hits("/5") == 1
    assert server.hits("/6") == 0


def test_robots_txt_is_asked_once_and_heeded_also_after_redirects(
    server: LoopbackServer, other: LoopbackServer, folder: Path
) -> None:
    server.serve("/robots.txt", b"User-agent: *\nDisallow: /private/", "text/plain")
    other.serve("/robots.txt", b"User-agent: natadv-curate\nDisallow: /", "text/plain")
    server.serve("/public/*", PHOTO)
    server.serve("/private/*", PHOTO)
    server.on("/away", answers(302, Location=other.serve("/a.jpg", PHOTO)))
    public = [server.url(f"/public/{number}") for number in range(10)]
    private = [server.url(f"/private/{number}") for number in range(10)]
    with Setting(folder, [server, other], robots=True) as setting:
        results = setting.get(*public, *private, server.url("/away"))
        assert states(results) == ["fetched"] * 10 + ["robots"] * 11
    asked = Counter(request.path for request in server.requests + other.requests)
    assert asked["/robots.txt"] == 2
    assert server.hits("/robots.txt") == 1
    assert other.hits() == 1
    assert server.requests[0].path == "/robots.txt"
    assert not any(path.startswith("/private/") for path in asked)


def test_images_that_robots_txt_forbids_take_no_turns(server: LoopbackServer, folder: Path) -> None:
    server.serve("/robots.txt", b"User-agent: *\nDisallow: /private/", "text/plain")
    with Setting(folder, [server], robots=True, per_second=0.2) as setting:
        began = time.monotonic()
        results = setting.get(*(server.url(f"/private/{number}") for number in range(20)))
        # Twenty turns would take a hundred seconds.
        assert time.monotonic() - began < 50
    assert states(results) == ["robots"] * 20


def test_without_robots_neither_file_nor_tags_are_asked(
    server: LoopbackServer, folder: Path
) -> None:
    server.serve("/robots.txt", b"User-agent: *\nDisallow: /", "text/plain")
    server.on("/a", sends(PHOTO, X_Robots_Tag="noai"))
    with Setting(folder, [server], robots=False) as setting:
        assert states(setting.get(server.url("/a"))) == ["fetched"]
    rule = HostRule("127.0.0.1", 2, 1000, robots=False)
    with Setting(folder, [server], robots=True, rules=[rule]) as setting:
        assert states(setting.get(server.url("/a"))) == ["robots_tag"]
    assert server.hits("/robots.txt") == 0


def test_a_site_whose_robots_txt_fails_is_asked_nothing_else(
    server: LoopbackServer, folder: Path
) -> None:
    def answer(exchange: Exchange) -> None:
        if exchange.request.number < 2:
            exchange.send(503)
        else:
            exchange.send(body=b"", content_type="text/plain")

    server.on("/robots.txt", answer)
    server.serve("/a", PHOTO)
    with Setting(folder, [server], robots=True) as setting:
        assert states(setting.get(server.url("/a"))) == ["fetched"]
    assert [request.path for request in server.requests] == ["/robots.txt"] * 3 + ["/a"]

    server.requests.clear()
    all_added = threading.Event()

    def refuse(exchange: Exchange) -> None:
        all_added.wait(PATIENCE)
        exchange.send(429)

    server.on("/robots.txt", refuse)
    with Setting(folder, [server], robots=True) as setting:
        urls = [server.url(f"/{number}") for number in range(10)]
        results = setting.get(*urls, added=all_added.set)
        assert states(results) == ["waiting"] * 10
    assert len(server.requests) == 5
    assert {request.path for request in server.requests} == {"/robots.txt"}


def test_what_looking_refuses_ends_in_the_state_of_its_reason(
    server: LoopbackServer, folder: Path
) -> None:
    def process(path: Path, sha256: str) -> str:
        if path.read_bytes().endswith(b"bad"):
            raise ImageRefused("unsupported-format", "a drawing")
        return "good"

    server.serve("/good", PHOTO)
    server.serve("/bad", PHOTO + b"bad")
    with Setting(folder, [server], process=process) as setting:
        good, bad = setting.get(server.url("/good"), server.url("/bad"))
        assert isinstance(bad, Failed)
        assert (bad.state, bad.detail, bad.attempts) == ("not_an_image", "a drawing", 1)
        assert isinstance(good, Fetched)
        assert setting.files() == {good.path}


def test_a_fault_in_looking_surfaces_where_results_are_taken(
    server: LoopbackServer, folder: Path
) -> None:
    def process(path: Path, sha256: str) -> None:
        raise LookupError("a fault")

    server.serve("/a", PHOTO)
    with Setting(folder, [server], process=process) as setting:
        with pytest.raises(LookupError, match="a fault"):
            setting.get(server.url("/a"))
        with pytest.raises(LookupError, match="a fault"):
            setting.downloader.results(0)
        assert setting.files() == set()


def test_a_full_disk_surfaces_and_leaves_only_whole_reported_files(
    server: LoopbackServer, folder: Path
) -> None:
    server.serve("/small", PHOTO)
    server.serve("/large", PHOTO * 10)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Setting(folder, [server], per_host=1) as setting:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 * len(PHOTO), hard))
        try:
            for number in range(10):
                setting.downloader.add(Wanted(number, server.url("/small")))
            setting.downloader.add(Wanted(10, server.url("/large")))
            results: list[Result] = []
            with pytest.raises(StorageError, match="the disk is full"):
                while setting.downloader.pending:
                    results += setting.downloader.results(5)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert set(states(results)) <= {"fetched"}
        setting.downloader.close()
        assert setting.files() == {one.path for one in results if isinstance(one, Fetched)}


def test_a_folder_that_is_gone_is_one_line(server: LoopbackServer, folder: Path) -> None:
    server.serve("/a", PHOTO)
    with (
        Setting(folder / "gone", [server]) as setting,
        pytest.raises(StorageError, match="cannot write a downloaded image"),
    ):
        setting.get(server.url("/a"))


def test_a_stop_in_the_middle_leaves_only_reported_files_and_is_quick(
    server: LoopbackServer, other: LoopbackServer, folder: Path
) -> None:
    server.serve("/*", PHOTO)
    other.on("/silent*", lambda exchange: exchange.silence())

    def half(exchange: Exchange) -> None:
        exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + PHOTO)
        exchange.silence()

    other.on("/half*", half)
    with Setting(folder, [server, other], per_host=4, per_second=20) as setting:
        for number in range(300):
            setting.downloader.add(Wanted(number, server.url(f"/{number}")))
        for number in range(300, 306):
            name = "silent" if number % 2 else "half"
            setting.downloader.add(Wanted(number, other.url(f"/{name}{number}")))
        results = setting.next(30)
        wait_until(lambda: other.hits() == 4)
        setting.stopped = True
        began = time.monotonic()
        setting.downloader.close()
        assert time.monotonic() - began < 30
        wait_until(lambda: not threads_of_downloads())
        asked = server.hits()
        results += setting.downloader.results(0)
        assert set(states(results)) == {"fetched"}
        assert setting.files() == {one.path for one in results if isinstance(one, Fetched)}
        assert len(results) < 300
        # Of twenty a second; four may have been under way.
        time.sleep(1)
        assert server.hits() <= asked + 4
    assert not threads_of_downloads()


def threads_of_downloads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("download-")]


def test_close_without_anything_under_way_leaves_the_connections(
    server: LoopbackServer, folder: Path
) -> None:
    server.serve("/a", PHOTO)
    with Setting(folder, [server]) as setting:
        setting.get(server.url("/a"))
        setting.downloader.close()
        with setting.fetcher.open(server.url("/a"), max_bytes=MAX_BYTES) as answer:
            assert b"".join(answer.chunks()) == PHOTO
    assert len({request.peer for request in server.requests}) == 1


@pytest.mark.slow
def test_five_thousand_images_take_no_more_memory_than_a_thousand(folder: Path) -> None:
    import psutil

    size, count = 20_000, 5_000
    program = [sys.executable, str(Path(__file__).with_name("many_photos.py")), str(size)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        base = f"127.0.0.1:{int(running.stdout.readline())}"
        with Setting(folder, [], allow_hosts=(base,), per_second=1e6, per_host=8) as setting:
            memory: dict[int, int] = {}
            given, taken, faults = 0, 0, []
            while taken < count:
                while given < count and setting.downloader.pending < 500:
                    setting.downloader.add(Wanted(given, f"http://{base}/{given}"))
                    given += 1
                for result in setting.downloader.results(1):
                    path = f"/{result.wanted.id}"
                    if not isinstance(result, Fetched) or (
                        result.sha256 != sha256_bytes(content(path, size))
                        or result.path.read_bytes() != content(path, size)
                    ):
                        faults.append(result)
                    else:
                        result.path.unlink()
                    taken += 1
                    if taken % 1000 == 0:
                        memory[taken] = psutil.Process().memory_info().rss
            assert faults == []
            assert setting.files() == set()
            assert memory[count] - memory[1000] < 8_000_000
        assert running.stdin is not None
        running.stdin.close()
