"""Asking APIs: patience and its end, errors in one line, and keys that nobody reads."""

from __future__ import annotations

import gzip
import logging
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import Interrupted, QuotaExhausted, SourceError, UsageError
from curate.settings import NetworkSettings
from curate.sources.api import MAX_BYTES, ApiClient, ApiError, TryAgain, _Hider
from curate.sources.host_rules import HostRule
from curate.sources.manners import Manners
from tests.sources.servers import Exchange, LoopbackServer, closed_port

KEY = "0123456789abcdef-key"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


def client(server: LoopbackServer, **changes: Any) -> ApiClient:
    hooks = {name: changes.pop(name) for name in ("stop", "sleep", "manners") if name in changes}
    limits = {"connect_seconds": 60.0, "read_seconds": 60.0, "per_second": 1e6, "tries": 3}
    allow = (server.allow_host,)
    settings = NetworkSettings(**{"allow_hosts": allow, **limits, **changes})
    # Pauses are asked for, and not slept through: every test is to be fast.
    clock = Clock()
    manners = Manners((), settings, clock=clock.now)
    return ApiClient(
        "flickr", settings, "test/1", **{"manners": manners, "sleep": clock.sleep, **hooks}
    )


class Clock:
    def __init__(self) -> None:
        self.time = time.time()
        self.slept = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.slept += seconds


def replies(server: LoopbackServer, path: str, *answers: Any) -> str:
    """Answer one after the other; the last one again and again."""

    def answer(exchange: Exchange) -> None:
        answers[min(exchange.request.number, len(answers) - 1)](exchange)

    server.on(path, answer)
    return server.url(path)


def fine(exchange: Exchange) -> None:
    exchange.json({"photos": [1, 2]}, headers={"X-RateLimit-Limit": "20/min"})


def page(status: int, **headers: str) -> Any:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    body = b"<html><title>Just a moment</title></html>"
    return lambda exchange: exchange.send(status, body, told, "text/html")


def test_a_question_goes_out_with_its_parameters_and_the_answer_comes_back(
    server: LoopbackServer,
) -> None:
    url, asking = replies(server, "/rest", fine), client(server)
    got = asking.get_json(url, {"text": "kestrel é", "page": 2, "none": None}, {"X-More": "1"})
    assert got == {"photos": [1, 2]}
    assert asking.last_headers["x-ratelimit-limit"] == "20/min"
    request = server.requests[0]
    assert request.query == {"text": "kestrel é", "page": "2"}
    assert request.headers["User-Agent"] == "test/1"
    assert request.headers["X-More"] == "1"
    assert "Cookie" not in request.headers


def test_a_form_is_posted(server: LoopbackServer) -> None:
    url = replies(server, "/token", lambda exchange: exchange.json({"access_token": "x"}))
    assert client(server).post_form(url, {"grant": "a b"}) == {"access_token": "x"}
    request = server.requests[0]
    assert (request.method, request.body) == ("POST", b"grant=a+b")


def test_text_is_taken_as_it_comes(server: LoopbackServer) -> None:
    url = replies(server, "/page", lambda exchange: exchange.send(body=b"<p>\xff\xc3\xa9"))
    assert client(server).get_text(url) == "<p>�é"


def test_packed_answers_are_unpacked(server: LoopbackServer) -> None:
    body = gzip.compress(b'{"a": 1}')
    url = replies(
        server,
        "/a",
        lambda exchange: exchange.send(body=body, headers={"Content-Encoding": "gzip"}),
    )
    assert client(server).get_json(url) == {"a": 1}


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_busy_answers_are_tried_again(server: LoopbackServer, status: int) -> None:
    url = replies(server, "/a", page(status, Retry_After="0"), page(status), fine)
    assert client(server).get_json(url) == {"photos": [1, 2]}
    assert server.hits() == 3


def test_a_broken_connection_and_half_an_answer_are_tried_again(server: LoopbackServer) -> None:
    half = b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"a": '
    url = replies(
        server, "/a", lambda exchange: exchange.raw(b""), lambda exchange: exchange.raw(half), fine
    )
    assert client(server).get_json(url) == {"photos": [1, 2]}


def test_what_the_server_asks_to_wait_is_waited(server: LoopbackServer) -> None:
    url, clock = replies(server, "/a", page(429, Retry_After="30"), fine), Clock()
    manners = Manners((), NetworkSettings(per_second=1e6), clock=clock.now)
    asking = client(server, manners=manners, sleep=clock.sleep)
    assert asking.get_json(url) == {"photos": [1, 2]}
    assert 30 <= clock.slept < 31


def test_a_longer_wish_than_the_users_patience_says_when_to_come_back(
    server: LoopbackServer,
) -> None:
    url, asking = replies(server, "/a", page(429, Retry_After="3600")), client(server)
    with pytest.raises(QuotaExhausted, match="flickr wants a pause") as exhausted:
        asking.get_json(url)
    until = datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=1)
    assert exhausted.value.until is not None
    assert abs(exhausted.value.until - until) < timedelta(seconds=5)
    assert server.hits() == 1
    # The pause holds for the next question as well, without another request.
    with pytest.raises(QuotaExhausted, match="flickr wants a pause") as exhausted:
        asking.get_json(url)
    assert exhausted.value.until is not None
    assert server.hits() == 1


def test_refusing_every_time_exhausts_the_quota_and_failing_every_time_is_an_error(
    server: LoopbackServer,
) -> None:
    with pytest.raises(QuotaExhausted, match="HTTP 429"):
        client(server).get_json(replies(server, "/busy", page(429)))
    with pytest.raises(SourceError, match=r"flickr: HTTP 503 \(tried 3 times\)"):
        client(server).get_json(replies(server, "/broken", page(503)))
    assert (server.hits("/busy"), server.hits("/broken")) == (3, 3)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda e: e.json({"error": "Unknown taxon"}, 422), "HTTP 422: Unknown taxon"),
        (lambda e: e.json({"detail": "No such page"}, 404), "HTTP 404: No such page"),
        (lambda e: e.json({"message": "a\n b"}, 400), "HTTP 400: a b"),
        (lambda e: e.json({"error": {"code": 1, "message": "bad"}}, 400), "HTTP 400: bad"),
        (lambda e: e.json({"errors": [{"message": "bad"}]}, 400), "HTTP 400: bad"),
        (lambda e: e.json([], 400), "HTTP 400"),
        (lambda e: e.json({"error": 7}, 400), "HTTP 400"),
        (page(403), "HTTP 403"),
        (page(401, Retry_After="5"), "HTTP 401"),
        (page(202), "HTTP 202"),
        (lambda e: e.send(204), "HTTP 204"),
    ],
)
def test_other_answers_are_errors_in_one_line(
    server: LoopbackServer, answer: Any, text: str
) -> None:
    with pytest.raises(ApiError) as failed:
        client(server).get_json(replies(server, "/a", answer))
    assert str(failed.value) == f"flickr answers with {text}"
    assert failed.value.status == int(text[5:8])
    assert server.hits() == 1


def test_redirects_are_not_followed(server: LoopbackServer) -> None:
    with LoopbackServer("127.0.0.2") as other:
        url = replies(server, "/a", lambda exchange: exchange.redirect(other.url("/b")))
        asking = client(server, allow_hosts=(server.allow_host, other.allow_host))
        with pytest.raises(ApiError, match="redirect"):
            asking.get_json(url, {"api_key": KEY})
        assert other.hits() == 0


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"", b"{", b"[" * 100_000, b"\xff\xfe"])
def test_an_answer_that_is_no_json_is_tried_again_and_then_an_error(
    server: LoopbackServer, body: bytes
) -> None:
    url = replies(server, "/a", lambda exchange: exchange.send(body=body), fine)
    assert client(server).get_json(url) == {"photos": [1, 2]}
    url = replies(server, "/b", lambda exchange: exchange.send(body=body))
    with pytest.raises(SourceError, match="flickr: the answer is no JSON"):
        client(server).get_json(url)


def test_an_endless_answer_is_left(server: LoopbackServer) -> None:
    def endless(exchange: Exchange) -> None:
        exchange.raw(b"HTTP/1.1 200 OK\r\n\r\n")
        exchange.endless(b" " * 65536)

    with pytest.raises(SourceError, match=f"too_large: over {MAX_BYTES:,} bytes"):
        client(server).get_json(replies(server, "/a", endless))
    assert server.hits() == 1


def test_a_byte_now_and_then_does_not_hold_the_client(server: LoopbackServer) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    url = replies(server, "/a", lambda exchange: exchange.drip(head + b" " * 1000, 0.02))
    began = time.monotonic()
    with pytest.raises(SourceError, match="timeout"):
        client(server, total_seconds=0.3, tries=2).get_json(url)
    assert time.monotonic() - began < 30


def test_errors_inside_of_answers_are_the_sources_to_judge(server: LoopbackServer) -> None:
    seen: list[Mapping[str, str]] = []

    def check(value: Any, headers: Mapping[str, str]) -> None:
        seen.append(headers)
        if value.get("stat") == "busy":
            raise TryAgain(0.0, "busy")
        if value.get("stat") == "away":
            raise TryAgain(9999.0, "away")
        if value.get("stat") == "fail":
            raise UsageError("flickr does not accept the key")

    busy = {"stat": "busy"}
    url = replies(server, "/a", lambda exchange: exchange.json(busy), fine)
    assert client(server).get_json(url, check=check) == {"photos": [1, 2]}
    assert "content-type" in seen[0]
    cases: list[tuple[str, type[Exception], str, int]] = [
        ("busy", SourceError, r"flickr: busy \(tried 3 times\)", 3),
        ("away", QuotaExhausted, r"away", 1),
        ("fail", UsageError, "does not accept", 1),
    ]
    for stat, error, text, hits in cases:
        url = replies(server, f"/{stat}", lambda exchange, s=stat: exchange.json({"stat": s}))
        with pytest.raises(error, match=text):
            client(server).get_json(url, check=check)
        assert server.hits(f"/{stat}") == hits


def test_questions_keep_the_distance_that_the_rule_asks_for(server: LoopbackServer) -> None:
    url = replies(server, "/a", fine)
    rule = HostRule("127.0.0.1", per_second=20)
    manners = Manners((rule,), NetworkSettings())
    asking = client(server, manners=manners, sleep=time.sleep)
    began = time.monotonic()
    for _ in range(15):
        asking.get_json(url)
    # A few may come early, no more than a quarter of a second in all.
    assert server.requests[-1].time - began >= 14 / 20 - 0.3


def test_what_says_nothing_of_the_api_leaves_the_count_of_its_failures(
    server: LoopbackServer,
) -> None:
    settings = NetworkSettings(allow_hosts=(server.allow_host,), per_second=1e6, tries=1)
    manners = Manners((), settings)
    asking = ApiClient("test", settings, "test/1", manners)
    for _ in range(3):
        manners.tell("nowhere.invalid", failed=True)
    with pytest.raises(SourceError, match="is this machine online"):
        asking.get_json("http://nowhere.invalid/")
    assert len(manners.snapshot()["nowhere.invalid"]["failing"]) >= 3


def test_a_stop_ends_the_waiting(server: LoopbackServer) -> None:
    url = replies(server, "/a", page(503, Retry_After="60"))
    began = time.monotonic()
    asking = client(
        server,
        manners=Manners((), NetworkSettings(per_second=1e6)),
        sleep=time.sleep,
        stop=lambda: time.monotonic() - began > 0.2,
    )
    with pytest.raises(Interrupted):
        asking.get_json(url)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/", "http://127.0.0.1:1/", "http://localhost/"]
)
def test_no_private_address_is_asked(server: LoopbackServer, url: str) -> None:
    with pytest.raises(SourceError, match="forbidden_address"):
        client(server).get_json(url)


@pytest.mark.parametrize("url", ["", "ftp://example.org/", "http://user:pass@example.org/"])
def test_an_unusable_address_is_the_users_to_correct(server: LoopbackServer, url: str) -> None:
    with pytest.raises(UsageError, match="flickr: its address is unusable"):
        client(server).get_json(url)


@pytest.mark.parametrize(
    "question",
    [
        {"params": {"api_key": KEY}},
        {"params": {"key": KEY, "q": "a"}},
        {"headers": {"Authorization": f"Bearer {KEY}"}},
        {"headers": {"X-Auth-Token": KEY}},
    ],
)
def test_no_error_and_no_log_tells_a_key(
    server: LoopbackServer, question: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def repeat(status: int) -> Any:
        told = {"error": f"the key {KEY} in ?api_key={KEY}&x is not known"}
        return lambda exchange: exchange.json(told, status)

    urls = [
        replies(server, "/refused", repeat(401)),
        replies(server, "/busy", repeat(503)),
        replies(server, "/quota", repeat(429)),
        replies(server, "/cut", lambda exchange: exchange.raw(b"HTTP/1.1 200 OK\r\nContent-")),
        replies(server, "/odd", lambda exchange: exchange.raw(b"HTTP/1.1 200 OK\r\n: x\r\n\r\n{")),
        replies(server, "/no-http", lambda exchange: exchange.raw(f"{KEY}?\r\n".encode())),
        replies(
            server, "/no-number", lambda exchange: exchange.raw(f"HTTP/1.1 {KEY}\r\n".encode())
        ),
        f"http://127.0.0.1:{closed_port()}/",
    ]
    for url in urls:
        with pytest.raises(SourceError) as failed:
            client(server).get_json(url, **question)
        error: BaseException | None = failed.value
        while error is not None:
            assert KEY not in f"{error} {error!r}"
            error = error.__cause__
    assert KEY not in caplog.text
    with pytest.raises(SourceError) as failed:
        client(server).post_form(urls[0], {"client_secret": KEY})
    assert KEY not in str(failed.value)


def test_the_client_below_would_log_it(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The test above looks at a log that would give the key away."""
    asking = client(server)
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "urllib3"):
        asking.get_json(replies(server, "/a", fine), {"api_key": KEY})
    assert KEY in caplog.text


def test_the_servers_message_does_tell_it(server: LoopbackServer) -> None:
    """The test above looks at a message that would give the key away."""
    url = replies(server, "/a", lambda exchange: exchange.json({"error": f"the key {KEY}"}, 401))
    with pytest.raises(ApiError, match=KEY):
        client(server).get_json(url, {"innocent": KEY})


@given(st.text(min_size=4, max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_no_secret_stays_in_a_text(secret: str, before: str, after: str) -> None:
    hide = _Hider({"api_key": secret}, None, None)
    if "…" not in secret:
        assert secret not in hide(before + secret + after)
