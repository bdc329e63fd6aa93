"""Fetching from servers that behave, and from those that do not."""

from __future__ import annotations

import gzip
import os
import re
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3

from curate.errors import SettingsError
from curate.settings import NetworkSettings
from curate.sources.addresses import Url
from curate.sources.http import Fetcher, FetchFailed, user_agent
from tests.sources.servers import Exchange, LoopbackServer, closed_port
from tests.waiting import PATIENCE, wait_until

MEGABYTE = 1_000_000


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


def fetcher(*servers: LoopbackServer, **changes: Any) -> Fetcher:
    limits = {"connect_seconds": 60.0, "read_seconds": 60.0, "total_seconds": 120.0, **changes}
    allow = tuple(server.allow_host for server in servers)
    return Fetcher(NetworkSettings(**{"allow_hosts": allow, **limits}), "test/1")


def fetch(with_fetcher: Fetcher, url: str, max_bytes: int = MEGABYTE, **more: Any) -> bytes:
    with with_fetcher.open(url, max_bytes=max_bytes, **more) as answer:
        return b"".join(answer.chunks())


def failure(with_fetcher: Fetcher, url: str, max_bytes: int = MEGABYTE, **more: Any) -> FetchFailed:
    with pytest.raises(FetchFailed) as failed:
        fetch(with_fetcher, url, max_bytes, **more)
    return failed.value


@pytest.fixture
def photo(package_photos: list[tuple[Path, int]]) -> bytes:
    return package_photos[0][0].read_bytes()


def chunked(*pieces: bytes) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


# What is fetched.


def test_a_body_arrives_whole_in_pieces_with_its_headers(
    server: LoopbackServer, photo: bytes
) -> None:
    url = server.serve("/a.jpg", photo)
    with fetcher(server).open(url, max_bytes=MEGABYTE) as answer:
        assert (answer.status, answer.url) == (200, url)
        assert answer.headers["content-type"] == "image/jpeg"
        pieces = list(answer.chunks(1000))
    assert b"".join(pieces) == photo
    assert max(map(len, pieces)) <= 1000


def test_the_request_is_honest_and_bare(server: LoopbackServer, photo: bytes) -> None:
    fetch(fetcher(server), server.serve("/a.jpg", photo), headers={"If-None-Match": '"x"'})
    sent = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert sent == {
        "host": server.allow_host,
        "user-agent": "test/1",
        "accept": "*/*",
        "accept-encoding": "identity",
        "if-none-match": '"x"',
    }


def test_connections_are_kept(server: LoopbackServer, photo: bytes) -> None:
    url, asking = server.serve("/a.jpg", photo), fetcher(server)
    for _ in range(3):
        assert fetch(asking, url) == photo
    assert failure(asking, server.url("/none")).state == "http_404"
    server.on("/away", lambda exchange: exchange.redirect("/a.jpg"))
    fetch(asking, server.url("/away"))
    assert len({request.peer for request in server.requests}) == 1


def test_a_kept_connection_that_the_server_hung_up_is_no_failure(
    server: LoopbackServer, photo: bytes
) -> None:
    def answer(exchange: Exchange) -> None:
        if exchange.request.number == 1:
            exchange.raw(b"")
        else:
            exchange.send(body=photo)

    server.on("/a.jpg", answer)
    asking = fetcher(server)
    assert fetch(asking, server.url("/a.jpg")) == photo
    assert fetch(asking, server.url("/a.jpg")) == photo
    peers = [request.peer for request in server.requests]
    assert peers[0] == peers[1] != peers[2]


def test_pages_in_pieces_without_a_length_arrive(server: LoopbackServer) -> None:
    server.on("/chunked", lambda exchange: exchange.raw(chunked(b"abc", b"d" * 5000, b"")))
    server.on("/until-the-end", lambda exchange: exchange.raw(b"HTTP/1.1 200 OK\r\n\r\nabc"))
    assert fetch(fetcher(server), server.url("/chunked")) == b"abc" + b"d" * 5000
    assert fetch(fetcher(server), server.url("/until-the-end")) == b"abc"


def test_addresses_with_blanks_and_letters_reach_their_page(server: LoopbackServer) -> None:
    server.serve("/%C3%A4lg%201.jpg", b"moose")
    assert fetch(fetcher(server), server.url("/älg 1.jpg")) == b"moose"


@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda body: zlib.compress(body)[2:-4]),
        ("aws-chunked", bytes),
        ("utf-8", bytes),
    ],
)
def test_what_comes_packed_all_the_same_is_unpacked(
    server: LoopbackServer, photo: bytes, coding: str, pack: Any
) -> None:
    packed = pack(photo)
    server.on(
        "/a", lambda exchange: exchange.send(body=packed, headers={"Content-Encoding": coding})
    )
    assert fetch(fetcher(server), server.url("/a")) == photo


def test_the_environments_proxies_are_not_asked(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    assert fetch(fetcher(server), server.serve("/a", b"direct")) == b"direct"


# Time. Where a limit does not hold, the state is another one, or it takes minutes.

SOON = 30.0


def answers_slowly(exchange: Exchange) -> None:
    where = exchange.request.path
    head, body = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"x" * 1000
    if where == "/slow-status":
        exchange.drip(head, 0.05)
    elif where == "/slow-headers":
        exchange.raw(b"HTTP/1.1 200 OK\r\n")
        exchange.drip(b"X-Long: " + b"y" * 1000, 0.05)
    elif where == "/slow-body":
        exchange.raw(head)
        exchange.drip(body, 0.05)
    elif where == "/slow-chunks":
        exchange.raw(chunked())
        exchange.drip(b"1\r\nx\r\n" * 1000, 0.05)
    elif where == "/interim":
        exchange.drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 0.01)
    else:
        exchange.silence()


SLOW = ["/slow-status", "/slow-headers", "/slow-body", "/slow-chunks", "/interim"]


@pytest.mark.parametrize("path", SLOW)
def test_a_byte_now_and_then_does_not_hold_the_client(server: LoopbackServer, path: str) -> None:
    server.on("/*", answers_slowly)
    began = time.monotonic()
    failed = failure(fetcher(server, total_seconds=0.5), server.url(path))
    assert failed.state == "timeout"
    assert failed.retryable
    assert 0.3 < time.monotonic() - began < SOON


@pytest.mark.parametrize("path", SLOW)
def test_a_read_timeout_alone_would_not_notice(server: LoopbackServer, path: str) -> None:
    server.on("/*", answers_slowly)

    def still_asks_after_a_second() -> bool:
        asked = threading.Event()

        def ask() -> None:
            with urllib3.PoolManager() as pools, suppress(Exception):
                pools.request("GET", server.url(path), timeout=0.3, retries=False)
            asked.set()

        threading.Thread(target=ask, daemon=True).start()
        return not asked.wait(1.0)

    # On a busy machine the server itself may fall silent for so long, now and then.
    assert any(still_asks_after_a_second() for _ in range(10))


def test_silence_ends_after_the_read_timeout(server: LoopbackServer) -> None:
    server.on("/*", answers_slowly)
    began = time.monotonic()
    assert failure(fetcher(server, read_seconds=0.2), server.url("/silence")).state == "timeout"
    assert time.monotonic() - began < SOON


def test_redirects_share_one_limit_on_time(server: LoopbackServer) -> None:
    def slow_hop(exchange: Exchange) -> None:
        time.sleep(0.3)
        exchange.redirect(f"{exchange.request.path}x")

    server.on("/*", slow_hop)
    asking = fetcher(server, total_seconds=0.5, redirects=20)
    began = time.monotonic()
    assert failure(asking, server.url("/a")).state == "timeout"
    assert time.monotonic() - began < SOON


def test_what_is_under_way_ends_at_once_when_all_is_aborted(server: LoopbackServer) -> None:
    server.on("/*", answers_slowly)
    asking = fetcher(server)
    failures: list[FetchFailed] = []

    def ask(path: str) -> None:
        try:
            fetch(asking, server.url(path))
        except FetchFailed as failed:
            failures.append(failed)

    threads = [threading.Thread(target=ask, args=(path,)) for path in ("/silence", "/slow-body")]
    for thread in threads:
        thread.start()
    wait_until(lambda: server.hits() == 2)
    began = time.monotonic()
    asking.pools.abort()
    for thread in threads:
        thread.join(PATIENCE)
    assert time.monotonic() - began < SOON
    assert [failed.state for failed in failures] == ["waiting", "waiting"]
    assert failure(asking, server.url("/a")).state == "waiting"


# Size.


@pytest.mark.parametrize("length", [str(MEGABYTE + 1), "9" * 30])
def test_a_length_over_the_limit_is_refused_unread(server: LoopbackServer, length: str) -> None:
    server.on(
        "/a",
        lambda exchange: exchange.raw(
            b"HTTP/1.1 200 OK\r\nContent-Length: " + length.encode() + b"\r\n\r\nxx"
        ),
    )
    assert failure(fetcher(server), server.url("/a")).state == "too_large"


def test_exactly_the_limit_is_taken_and_one_byte_more_is_not(server: LoopbackServer) -> None:
    for size, name in ((1000, "/fits"), (1001, "/not")):
        body = b"x" * size
        server.on(name, lambda exchange, body=body: exchange.raw(chunked(body, b"")))
    assert len(fetch(fetcher(server), server.url("/fits"), 1000)) == 1000
    assert failure(fetcher(server), server.url("/not"), 1000).state == "too_large"


def endless(exchange: Exchange) -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    big = b"x" * 65536
    starts = {
        "/body": (head + b"\r\n", big),
        "/chunks": (chunked(), b"10000\r\n" + big + b"\r\n"),
        "/huge-chunk": (chunked() + b"7fffffffffffffff\r\n", big),
        "/negative-chunk": (chunked() + b"-1\r\n", big),
        "/chunk-size": (chunked(), b"0" * 65536),
        "/chunk-extension": (chunked() + b"1;", big),
        "/trailer": (chunked() + b"0\r\n", b"X-Trailer: " + big[:1000] + b"\r\n"),
        "/header": (head + b"X-Header: ", big),
        "/headers": (head, b"X-Header: y\r\n" * 5000),
        "/long-headers": (head, b"X-Header: " + big[:60000] + b"\r\n"),
        "/interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        "/status": (b"HTTP/1.1 200 ", big),
        "/packed": (
            head + b"Content-Encoding: gzip\r\n\r\n",
            gzip.compress(b"\0" * 10 * MEGABYTE),
        ),
        "/nothing-packed": (
            head + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08\0\0\0\0\0\0\xff",
            b"\0\0\0\xff\xff" * 10000,
        ),
    }
    first, again = starts[exchange.request.path]
    exchange.raw(first)
    exchange.endless(again)


@pytest.mark.parametrize(
    ("path", "state"),
    [
        ("/body", "too_large"),
        ("/chunks", "too_large"),
        ("/huge-chunk", "too_large"),
        ("/negative-chunk", "too_large"),
        ("/chunk-size", "bad_answer"),
        ("/chunk-extension", "bad_answer"),
        ("/trailer", "too_large"),
        ("/header", "bad_answer"),
        ("/headers", "bad_answer"),
        ("/long-headers", "bad_answer"),
        ("/interim", "bad_answer"),
        ("/status", "bad_answer"),
        ("/packed", "too_large"),
        ("/nothing-packed", "too_large"),
    ],
)
def test_what_never_ends_is_left_early_and_takes_no_memory(
    server: LoopbackServer, path: str, state: str
) -> None:
    server.on("/*", endless)
    asking = fetcher(server)
    tracemalloc.start()
    try:
        count = 0
        with (
            pytest.raises(FetchFailed) as failed,
            asking.open(server.url(path), max_bytes=MEGABYTE) as answer,
        ):
            for piece in answer.chunks():
                count += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert failed.value.state == state
    assert count <= MEGABYTE
    # The server's own pieces, in the same process, are part of it.
    assert peak < 16 * MEGABYTE


@pytest.mark.parametrize("path", ["/negative-chunk", "/trailer"])
def test_one_read_takes_little_memory_whatever_the_limit_is(
    server: LoopbackServer, path: str
) -> None:
    server.on("/*", endless)
    tracemalloc.start()
    try:
        failed = failure(fetcher(server), server.url(path), 2**50)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert failed.state == "too_large"
    assert peak < 16 * MEGABYTE


def test_a_bomb_is_unpacked_no_further_than_the_limit(server: LoopbackServer) -> None:
    packed = gzip.compress(b"\0" * 50 * MEGABYTE)
    assert len(packed) < MEGABYTE
    server.on(
        "/a", lambda exchange: exchange.send(body=packed, headers={"Content-Encoding": "gzip"})
    )
    tracemalloc.start()
    try:
        assert failure(fetcher(server), server.url("/a")).state == "too_large"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * MEGABYTE


# Broken answers.


@pytest.mark.parametrize(
    ("answer", "state", "retryable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc", "truncated", True),
        (chunked(b"abc"), "truncated", True),
        (chunked() + b"zz\r\nabc", "truncated", True),
        (b"", "connection", True),
        (b"SSH-2.0-OpenSSH_9.0\r\n", "bad_answer", False),
        (b"<html>hello</html>", "bad_answer", False),
        (b"\x00\xff" * 50, "bad_answer", False),
        (b"HTTP/1.1 abc OK\r\n\r\n", "bad_answer", False),
        (b"HTTP/9.9 200 OK\r\n\r\n", "bad_answer", False),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
            "bad_answer",
            False,
        ),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "http_101", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "http_204", False),
        (b"HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\n\r\nx", "http_206", False),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", "http_304", False),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "http_302", False),
        (
            b"HTTP/1.1 300 Multiple Choices\r\nContent-Length: 0\r\nLocation: /b\r\n\r\n",
            "http_300",
            False,
        ),
    ],
)
def test_broken_answers_have_names(
    server: LoopbackServer, answer: bytes, state: str, retryable: bool
) -> None:
    server.on("/a", lambda exchange: exchange.raw(answer))
    failed = failure(fetcher(server), server.url("/a"))
    assert (failed.state, failed.retryable) == (state, retryable)
    assert "\n" not in str(failed)
    assert len(str(failed)) < 300


def test_a_packed_body_that_ends_early_or_is_damaged_says_so(
    server: LoopbackServer, photo: bytes
) -> None:
    packed = gzip.compress(photo)
    bodies = {"/short": packed[:-100], "/broken": packed[:50] + b"\xff" * 500}
    server.on(
        "/*",
        lambda exchange: exchange.send(
            body=bodies[exchange.request.path], headers={"Content-Encoding": "gzip"}
        ),
    )
    assert failure(fetcher(server), server.url("/short")).state == "truncated"
    assert failure(fetcher(server), server.url("/broken")).state == "bad_answer"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 418, 451, 501, 505])
def test_answers_that_another_try_does_not_better(server: LoopbackServer, status: int) -> None:
    server.on("/a", lambda exchange: exchange.send(status, b"<html>no</html>"))
    failed = failure(fetcher(server), server.url("/a"))
    assert (failed.state, failed.status, failed.retryable) == (f"http_{status}", status, False)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_answers_to_come_back_for(server: LoopbackServer, status: int) -> None:
    server.on("/a", lambda exchange: exchange.send(status, headers={"Retry-After": "17"}))
    failed = failure(fetcher(server), server.url("/a"))
    assert (failed.state, failed.retryable, failed.retry_after) == (f"http_{status}", True, 17)


def test_a_date_to_come_back_at_is_read_by_the_servers_clock(server: LoopbackServer) -> None:
    server.on(
        "/a",
        lambda exchange: exchange.send(
            429,
            headers={
                "Date": "Mon, 02 Mar 1998 12:00:00 GMT",
                "Retry-After": "Mon, 02 Mar 1998 12:01:00 GMT",
            },
        ),
    )
    assert failure(fetcher(server), server.url("/a")).retry_after == 60


def test_a_closed_port_is_a_failed_connection() -> None:
    port = closed_port()
    asking = fetcher(allow_hosts=(f"127.0.0.1:{port}",))
    failed = failure(asking, f"http://127.0.0.1:{port}/")
    assert (failed.state, failed.retryable) == ("connection", True)


# Redirects.


def test_redirects_are_followed_within_their_number(server: LoopbackServer, photo: bytes) -> None:
    server.serve("/hop/5", photo)
    for number in range(5):
        target = f"{number + 1}" if number % 2 else server.url(f"/hop/{number + 1}")
        server.on(f"/hop/{number}", lambda exchange, to=target: exchange.redirect(to, 307))
    with fetcher(server).open(server.url("/hop/0"), max_bytes=MEGABYTE) as answer:
        assert answer.url == server.url("/hop/5")
        assert b"".join(answer.chunks()) == photo
    failed = failure(fetcher(server, redirects=4), server.url("/hop/0"))
    assert (failed.state, failed.retryable) == ("too_many_redirects", False)


def test_a_loop_of_redirects_ends(server: LoopbackServer) -> None:
    server.on(
        "/loop/*",
        lambda exchange: exchange.redirect(f"/loop/{(int(exchange.request.path[6:]) + 1) % 50}"),
    )
    assert failure(fetcher(server), server.url("/loop/0")).state == "too_many_redirects"
    assert server.hits() == 6


@pytest.mark.parametrize(
    ("location", "state"),
    [
        ("http://169.254.169.254/latest/meta-data/", "forbidden_address"),
        ("http://127.0.0.1:1/", "forbidden_address"),
        ("http://127.0.0.1/", "forbidden_address"),
        ("//localhost/", "forbidden_address"),
        ("http://example.org:22/", "forbidden_address"),
        ("file:///etc/passwd", "bad_url"),
        ("ftp://127.0.0.1/", "bad_url"),
        ("data:image/gif;base64,R0lGOD", "bad_url"),
        ("http://user:secret@127.0.0.1/", "bad_url"),
        ("http://a.example\\@127.0.0.1/", "bad_url"),
        ("http://[::1", "bad_url"),
    ],
)
def test_redirects_to_where_nobody_shall_go(
    server: LoopbackServer, location: str, state: str
) -> None:
    server.on("/a", lambda exchange: exchange.redirect(location))
    failed = failure(fetcher(server), server.url("/a"))
    assert failed.state == state
    assert "secret" not in str(failed)
    assert server.hits() == 1


def test_credentials_stay_with_the_first_origin(server: LoopbackServer) -> None:
    with LoopbackServer("127.0.0.2") as other:
        other.serve("/b", b"there")
        server.on(
            "/a",
            lambda exchange: exchange.send(
                302, headers={"Location": "/same", "Set-Cookie": "session=1"}
            ),
        )
        server.on("/same", lambda exchange: exchange.redirect(other.url("/b")))
        sent = {"Authorization": "Bearer x", "Cookie": "a=b", "X-Other": "y"}
        assert fetch(fetcher(server, other), server.url("/a"), headers=sent) == b"there"
        names = [{name.lower() for name in r.headers} for r in server.requests + other.requests]
    assert {"authorization", "cookie", "x-other"} <= names[0] & names[1]
    assert not {"authorization", "cookie"} & names[2]
    assert "x-other" in names[2]
    assert server.requests[1].headers["Cookie"] == "a=b"


def test_the_caller_is_asked_before_each_request_and_may_refuse(server: LoopbackServer) -> None:
    server.on("/a", lambda exchange: exchange.redirect("/b"))
    server.serve("/b", b"there")
    asked: list[str] = []

    def note(url: Url) -> None:
        asked.append(str(url))
        assert server.hits() == len(asked) - 1

    assert fetch(fetcher(server), server.url("/a"), on_hop=note) == b"there"
    assert asked == [server.url("/a"), server.url("/b")]

    def refuse(url: Url) -> None:
        if url.target == "/b":
            raise FetchFailed("robots")

    failed = failure(fetcher(server), server.url("/a"), on_hop=refuse)
    assert (failed.state, failed.retryable) == ("robots", False)
    assert server.hits("/b") == 1


def test_waiting_for_a_turn_does_not_count_as_the_servers_time(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, waited = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + sum(waited))
    url = server.serve("/a", b"there")
    asking = fetcher(server)
    assert fetch(asking, url, on_hop=lambda _: waited.append(1000.0)) == b"there"


# Names and certificates.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of its own for photos.example, with its key."""
    path = tmp_path_factory.mktemp("tls") / "photos.pem"
    made = subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=photos.example",
            "-addext",
            "subjectAltName=DNS:photos.example",
            "-keyout",
            "-",
            "-out",
            "-",
        ],
        capture_output=True,
        check=True,
    )
    path.write_bytes(made.stdout)
    return path


class Secure:
    """A server that speaks TLS as photos.example, which leads to it."""

    def __init__(self, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked_for: list[str | None] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.sni_callback = lambda _socket, name, _context: self.asked_for.append(name)
        self.server = LoopbackServer(tls=context)
        real = socket.getaddrinfo

        def getaddrinfo(host: str, *args: Any, **kwargs: Any) -> Any:
            return real("127.0.0.1" if host.endswith(".example") else host, *args, **kwargs)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    def fetcher(self, **changes: Any) -> Fetcher:
        names = ("photos.example", "other.example", "127.0.0.1")
        allow = tuple(f"{name}:{self.server.port}" for name in names)
        return fetcher(allow_hosts=allow, **changes)


@pytest.fixture
def secure(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secure]:
    made = Secure(certificate, monkeypatch)
    with made.server:
        yield made


def test_a_trusted_certificate_of_the_name_asked_for_is_taken(
    secure: Secure, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    secure.server.serve("/a", b"there")
    asking = secure.fetcher()
    for _ in range(2):
        assert fetch(asking, secure.server.url("/a", "photos.example")) == b"there"
    assert secure.asked_for == ["photos.example"]
    assert secure.server.requests[0].host == f"photos.example:{secure.server.port}"
    failed = failure(asking, secure.server.url("/a", "other.example"))
    assert (failed.state, failed.retryable) == ("tls", False)
    assert failure(asking, secure.server.url("/a")).state == "tls"


def test_a_certificate_that_nobody_vouches_for_is_not_taken(secure: Secure) -> None:
    failed = failure(secure.fetcher(), secure.server.url("/a", "photos.example"))
    assert (failed.state, failed.retryable) == ("tls", False)


def test_no_redirect_leads_from_https_to_http(
    secure: Secure, server: LoopbackServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    secure.server.on("/a", lambda exchange: exchange.redirect(server.serve("/b", b"plain")))
    allow = (server.allow_host, f"photos.example:{secure.server.port}")
    failed = failure(fetcher(allow_hosts=allow), secure.server.url("/a", "photos.example"))
    assert failed.state == "bad_url"
    assert server.hits() == 0


@pytest.mark.parametrize("path", SLOW)
def test_the_limit_on_time_holds_under_tls_as_well(
    secure: Secure, certificate: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    secure.server.on("/*", answers_slowly)
    began = time.monotonic()
    asking = secure.fetcher(total_seconds=0.6)
    assert failure(asking, secure.server.url(path, "photos.example")).state == "timeout"
    assert time.monotonic() - began < SOON


def test_a_server_that_falls_silent_in_the_handshake_is_left(server: LoopbackServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        host = f"127.0.0.1:{deaf.getsockname()[1]}"
        asking = fetcher(allow_hosts=(host,), connect_seconds=0.3)
        began = time.monotonic()
        assert failure(asking, f"https://{host}/").state == "timeout"
        assert time.monotonic() - began < SOON

        asking = fetcher(allow_hosts=(host,))
        timer = threading.Timer(0.2, asking.pools.abort)
        timer.start()
        began = time.monotonic()
        assert failure(asking, f"https://{host}/").state == "waiting"
        assert time.monotonic() - began < SOON


def test_https_from_a_server_that_speaks_http(server: LoopbackServer) -> None:
    url = server.serve("/a", b"plain").replace("http:", "https:")
    assert failure(fetcher(server), url).state == "tls"


def test_ipv6_addresses_are_asked_by_their_own_name() -> None:
    try:
        server = LoopbackServer("::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        server.serve("/a", b"there")
        host = f"[::1]:{server.port}"
        assert fetch(fetcher(allow_hosts=(host,)), f"http://{host}/a") == b"there"
        assert server.requests[0].host == host


# Who asks.


@pytest.mark.parametrize(
    ("contact", "told"),
    [
        ("", "natadv-curate/1.2"),
        ("me@example.org", "natadv-curate/1.2 (+mailto:me@example.org)"),
        ("mailto:me@example.org", "natadv-curate/1.2 (+mailto:me@example.org)"),
        ("https://example.org/@me", "natadv-curate/1.2 (+https://example.org/@me)"),
        ("Zoë, zoe@example.org", "natadv-curate/1.2 (+mailto:Zoë, zoe@example.org)"),
    ],
)
def test_the_program_says_who_it_is(contact: str, told: str) -> None:
    assert user_agent("1.2", contact) == told
    assert not re.search("mozilla|chrome|safari", told, re.IGNORECASE)


@pytest.mark.parametrize("contact", ["a\r\nX: y", "a\nb", "a\0b", "Ω@example.org", "a) (b", "a\\b"])
def test_a_contact_cannot_smuggle_headers(contact: str) -> None:
    with pytest.raises(SettingsError, match=r"collect\.contact"):
        user_agent("1.2", contact)


def test_many_threads_fetch_at_once(server: LoopbackServer) -> None:
    bodies = {f"/{number}": os.urandom(20_000) for number in range(40)}
    for path, body in bodies.items():
        server.serve(path, body)
    asking = fetcher(server, per_host=8)
    got: dict[str, bytes] = {}

    def ask(paths: list[str]) -> None:
        for path in paths:
            got[path] = fetch(asking, server.url(path))

    paths = list(bodies)
    threads = [threading.Thread(target=ask, args=(paths[i::8],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == bodies
