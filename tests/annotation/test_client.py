"""The client against a server on loopback that answers as a Label Studio seldom does."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from annotation.client import Client
from annotation.client_errors import (
    GoneError,
    ReviewServerError,
    ServerAway,
    TokenRefused,
    Unanswered,
)
from annotation.client_http import MAX_BYTES, TRIES
from curate.errors import CurateError, Interrupted, UsageError
from tests.sources.servers import Exchange, LoopbackServer
from tests.waiting import PATIENCE, wait_until

TOKEN = "0123456789abcdef" * 2 + "01234567"
PERSONAL = "eyJhbGciOiJIUzI1NiJ9.eyJ0b2tlbl90eXBlIjoicmVmcmVzaCJ9.c2VjcmV0LXNpZ25hdHVyZQ"
PAGE = b"<!doctype html><html><body>" + b"nonsense " * 1000 + b"</body></html>"
WHO = "/api/current-user/whoami"
ME = {"id": 1, "email": "ann@example.org"}
IMPORT = "/api/projects/3/import"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("annotation.client_http.backoff", lambda attempt: 0.0)


def client(server: LoopbackServer, token: str = TOKEN, seconds: float = PATIENCE) -> Client:
    return Client(server.url(""), token, seconds)


def one_line(error: CurateError) -> str:
    text = str(error)
    assert "\n" not in text
    assert len(text) < 500
    for secret in (TOKEN, PERSONAL, "sessionid", "geheim"):
        assert secret not in text
    return text


def page(status: int) -> Callable[[Exchange], None]:
    headers = {"Set-Cookie": "sessionid=geheim"}
    return lambda exchange: exchange.send(status, PAGE, headers, "text/html")


def then(*answers: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    return lambda exchange: answers[min(exchange.request.number, len(answers) - 1)](exchange)


def me(exchange: Exchange) -> None:
    exchange.json(ME)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_question_is_asked_again_where_the_server_is_busy(
    server: LoopbackServer, status: int
) -> None:
    server.on(WHO, then(page(status), page(status), me))
    assert client(server).who_am_i() == ME
    assert server.hits(WHO) == 3


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (page(503), "HTTP 503"),
        (lambda exchange: exchange.raw(b""), "hung up"),
        (lambda exchange: exchange.silence(), "timed out"),
        (lambda e: e.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), "ended early"),
        (lambda exchange: exchange.drip(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 99, 0.02), "too long"),
        (page(200), "something else than JSON"),
    ],
    ids=["busy", "hangs-up", "silent", "truncated", "drips", "no-json"],
)
def test_a_server_that_stays_away_is_one_line_after_some_tries(
    server: LoopbackServer, answer: Callable[[Exchange], None], told: str
) -> None:
    server.on(WHO, answer)
    # Whoever answers has the time to on a busy machine, too.
    seconds = 0.3 if told in ("timed out", "too long") else PATIENCE
    with pytest.raises(ServerAway) as caught:
        client(server, seconds=seconds).who_am_i()
    assert told in one_line(caught.value)
    # The last one may still be on its way.
    wait_until(lambda: server.hits(WHO) >= TRIES)
    assert server.hits(WHO) == TRIES


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (page(500), PATIENCE),
        (page(502), PATIENCE),
        (page(503), PATIENCE),
        (page(201), PATIENCE),
        (lambda exchange: exchange.raw(b""), PATIENCE),
        (lambda exchange: exchange.silence(), 0.3),
        (
            lambda e: e.raw(b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{"),
            PATIENCE,
        ),
        (lambda exchange: exchange.json({}, 201), PATIENCE),
        (lambda exchange: exchange.json({"task_ids": [1, 2]}, 201), PATIENCE),
    ],
    ids=["500", "502", "503", "page", "hangs-up", "silent", "truncated", "empty", "too-many"],
)
def test_an_import_is_sent_once_and_said_to_be_stored_perhaps(
    server: LoopbackServer, answer: Callable[[Exchange], None], seconds: float
) -> None:
    server.on(IMPORT, answer)
    with pytest.raises(Unanswered) as caught:
        client(server, seconds=seconds).import_tasks(3, [{"data": {"candidate": "c"}}])
    one_line(caught.value)
    wait_until(lambda: server.hits(IMPORT) >= 1)
    assert server.hits(IMPORT) == 1


@pytest.mark.parametrize("ids", [None, 1, "1", {"1": 1}, [None], ["1"], [True], [float("inf")]])
def test_an_import_whose_ids_are_none_is_said_to_be_stored_perhaps(
    server: LoopbackServer, ids: object
) -> None:
    server.on(IMPORT, lambda exchange: exchange.json({"task_ids": ids}, 201))
    with pytest.raises(Unanswered, match="not understood.*may have been stored"):
        client(server).import_tasks(3, [{"data": {"candidate": "c"}}])


def test_what_never_reached_a_server_is_not_said_to_be_stored() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        away = Client(f"http://127.0.0.1:{unused.getsockname()[1]}", TOKEN)
        for call in (away.who_am_i, lambda: away.import_tasks(3, [{"data": {}}])):
            with pytest.raises(ServerAway, match="connection refused.*is it running") as caught:
                call()
            one_line(caught.value)


def test_a_refusal_is_told_in_the_servers_words_without_the_token(server: LoopbackServer) -> None:
    body = {
        "detail": f"Validation error of\n{TOKEN}",
        "validation_errors": {"title": ["at least 3 characters"]},
    }
    server.on("/api/projects/", lambda exchange: exchange.json(body, 400))
    with pytest.raises(ReviewServerError, match="title: at least 3 characters") as caught:
        client(server).create_project("ab", "<View/>")
    assert caught.value.status == 400
    assert not isinstance(caught.value, Unanswered)
    one_line(caught.value)


def test_a_missing_project_is_gone_though_the_answer_is_a_page(server: LoopbackServer) -> None:
    server.on(IMPORT, page(404))
    with pytest.raises(GoneError) as caught:
        client(server).import_tasks(3, [{"data": {}}])
    assert "html" not in one_line(caught.value)


@pytest.mark.parametrize("status", [301, 302, 307])
def test_the_token_follows_no_redirect(server: LoopbackServer, status: int) -> None:
    server.on(WHO, lambda exchange: exchange.redirect("/elsewhere", status))
    with pytest.raises(ReviewServerError, match="leads elsewhere"):
        client(server).who_am_i()
    assert server.hits("/elsewhere") == 0


def test_an_endless_answer_is_cut_off(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_BYTES >= 10_000_000
    monkeypatch.setattr("annotation.client_http.MAX_BYTES", 1_000_000)

    def endless(exchange: Exchange) -> None:
        exchange.raw(b"HTTP/1.1 200 OK\r\n\r\n")
        exchange.endless(b" " * 10_000)

    server.on(WHO, endless)
    with pytest.raises(ServerAway, match="too long"):
        client(server).who_am_i()


def test_a_pause_that_the_server_asks_for_is_kept_unless_it_is_long(server: LoopbackServer) -> None:
    server.on(WHO, then(lambda e: e.send(429, headers={"Retry-After": "1"}), me))
    began = time.monotonic()
    assert client(server).who_am_i() == ME
    assert time.monotonic() - began >= 1
    server.on("/api/users/", lambda e: e.send(429, headers={"Retry-After": "3600"}))
    with pytest.raises(ServerAway):
        client(server).users()
    assert server.hits("/api/users/") == 1


def test_a_wait_ends_when_the_user_wants_to_stop(server: LoopbackServer) -> None:
    server.on(WHO, lambda exchange: exchange.send(429, headers={"Retry-After": "50"}))
    with pytest.raises(Interrupted):
        Client(server.url(""), TOKEN, stop=lambda: True).who_am_i()


class Personal:
    """Gives access for a personal access token as Label Studio does."""

    def __init__(self, server: LoopbackServer) -> None:
        self.bought = 0
        self.valid = ""
        server.on("/api/token/refresh/", self.refresh)
        server.on(WHO, self.who)
        server.on(IMPORT, self.store)
        self.stored = 0

    def refresh(self, exchange: Exchange) -> None:
        if PERSONAL.encode() not in exchange.request.body:
            exchange.json({"detail": "Token is invalid"}, 401)
            return
        self.bought += 1
        self.valid = f"access-number-{self.bought}"
        exchange.json({"access": self.valid})

    def allowed(self, exchange: Exchange) -> bool:
        if exchange.request.headers["Authorization"] == f"Bearer {self.valid}":
            return True
        exchange.json({"detail": "Authentication credentials were not provided."}, 401)
        return False

    def who(self, exchange: Exchange) -> None:
        if self.allowed(exchange):
            exchange.json(ME)

    def store(self, exchange: Exchange) -> None:
        if self.allowed(exchange):
            self.stored += 1
            exchange.json({"task_ids": [self.stored]}, 201)


def test_access_is_bought_once_and_anew_when_it_is_old(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    personal = Personal(server)
    asked = client(server, PERSONAL)
    for _ in range(3):
        asked.who_am_i()
    assert personal.bought == 1
    now = time.monotonic()
    monkeypatch.setattr("annotation.client_http.time.monotonic", lambda: now + 250)
    asked.who_am_i()
    assert personal.bought == 2


def test_access_that_ended_early_is_bought_anew_and_nothing_is_stored_twice(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    personal = Personal(server)
    asked = client(server, PERSONAL)
    asked.who_am_i()
    personal.valid = "another"
    now = time.monotonic()
    monkeypatch.setattr("annotation.client_http.time.monotonic", lambda: now + 10)
    assert asked.import_tasks(3, [{"data": {}}]) == [1]
    assert (personal.bought, personal.stored) == (2, 1)


def test_a_personal_token_that_is_wrong_is_told(server: LoopbackServer) -> None:
    Personal(server)
    with pytest.raises(TokenRefused, match="Token is invalid") as caught:
        client(server, PERSONAL[:-3] + "abc").who_am_i()
    assert "eyJ" not in one_line(caught.value)
    assert caught.value.exit_code == 2


def test_no_other_log_in_goes_along(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login bob password geheim\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server.on(WHO, me)
    url = f"http://localhost:{server.port}/"
    Client(url, TOKEN).who_am_i()
    headers = server.requests[-1].headers
    assert headers.get_all("Authorization") == [f"Token {TOKEN}"]
    assert headers["Cookie"] is None


def test_cookies_are_not_kept(server: LoopbackServer) -> None:
    server.on(WHO, lambda exchange: exchange.json(ME, headers={"Set-Cookie": "sessionid=geheim"}))
    asked = client(server)
    asked.who_am_i()
    asked.who_am_i()
    assert server.requests[-1].headers["Cookie"] is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "labels.example.org",
        "ftp://labels.example.org",
        "http://",
        "http://ann:geheim@labels.example.org",
        "https://labels.example.org/?token=geheim",
        "http://labels.example.org:x",
        "http://labels.example.org\r\nX: geheim",
    ],
)
def test_an_unusable_address_is_told_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match=r"review\.url") as caught:
        Client(url, TOKEN)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "x", "0123 4567 89ab", "tokén-tokén", "0123456789\nHost: x"])
def test_an_unusable_token_is_told_and_not_repeated(token: str) -> None:
    with pytest.raises(UsageError, match="token") as caught:
        Client("http://127.0.0.1:9", token)
    assert not token or token not in str(caught.value) or token == "x"


@pytest.mark.parametrize(
    "answer", [[], {"id": 1}, "text", None, 3], ids=["list", "part", "text", "null", "number"]
)
def test_an_answer_of_another_form_is_not_understood(
    server: LoopbackServer, answer: object
) -> None:
    server.on(WHO, lambda exchange: exchange.json(answer))
    with pytest.raises(ReviewServerError, match="not understood"):
        client(server).who_am_i()


def test_pages_that_lead_nowhere_end(server: LoopbackServer) -> None:
    tasks = [{"id": number} for number in range(1, 1001)]
    server.on("/api/tasks", lambda exchange: exchange.json({"tasks": tasks}))
    with pytest.raises(ReviewServerError, match="not understood"):
        client(server).task_ids(3)
    assert server.hits("/api/tasks") == 2


def test_the_clock_is_that_of_the_server(server: LoopbackServer) -> None:
    headers = {"Date": "Mon, 30 Nov 2026 12:45:36 GMT"}
    server.on("/api/version", lambda e: e.json({"release": "1.23.2"}, headers=headers))
    assert client(server).clock() == datetime(2026, 11, 30, 12, 45, 36, tzinfo=UTC)


@pytest.mark.parametrize("date", ["Fri, 31 Dec 9999 23:59:59 -1200", "Mon", "soon", ""])
def test_a_server_whose_time_is_none_is_told_and_answers_all_the_same(
    server: LoopbackServer, date: str
) -> None:
    headers = {"Date": date}
    server.on("/api/version", lambda e: e.json({"release": "1"}, headers=headers))
    assert client(server).version() == "1"
    with pytest.raises(ReviewServerError, match="tells no time"):
        client(server).clock()


def test_neither_repr_nor_str_tells_a_token() -> None:
    asked = Client("http://127.0.0.1:9", TOKEN)
    assert TOKEN not in f"{asked!r}{asked}{asked._to!r}"
