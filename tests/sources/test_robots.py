"""robots.txt and the tags of answers: what sites ask for is heard, and nothing else is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3 import HTTPHeaderDict

from curate.settings import NetworkSettings
from curate.sources.addresses import parse_url
from curate.sources.failures import FetchFailed
from curate.sources.host_rules import HostRule
from curate.sources.http import Fetcher
from curate.sources.manners import Manners
from curate.sources.robots import MOST_BYTES, Robots, tag_refuses
from tests.sources.servers import Exchange, LoopbackServer

TOKEN = "natadv-curate"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


def robots(server: LoopbackServer, allow: bool = True, **rule: float) -> Robots:
    settings = NetworkSettings(
        allow_hosts=(server.allow_host,) if allow else (),
        connect_seconds=60,
        read_seconds=rule.get("read_seconds", 60),
        total_seconds=120,
    )
    manners = Manners([HostRule("127.0.0.1", 2, rule.get("per_second", 1000))], settings)
    return Robots(Fetcher(settings, TOKEN), TOKEN, manners)


def told(server: LoopbackServer, text: str | bytes) -> Robots:
    body = text.encode() if isinstance(text, str) else text
    server.serve("/robots.txt", body, "text/plain")
    return robots(server)


def allowed(one: Robots, server: LoopbackServer, path: str = "/photos/1.jpg") -> bool:
    return one.allowed(parse_url(server.url(path)))


@pytest.mark.parametrize(
    ("text", "path", "may"),
    [
        ("", "/a.jpg", True),
        ("User-agent: *\nDisallow: /", "/a.jpg", False),
        ("User-agent: *\nDisallow:", "/a.jpg", True),
        ("User-agent: other\nDisallow: /", "/a.jpg", True),
        ("User-agent: other\nUser-agent: *\nDisallow: /", "/a.jpg", False),
        ("User-agent: *\nDisallow: /\n\nUser-agent: natadv-curate\nAllow: /", "/a.jpg", True),
        ("User-agent: *\nAllow: /\n\nUser-Agent: NatAdv-Curate/2.0\nDisallow: /", "/a.jpg", False),
        ("User-agent: n\nDisallow: /", "/a.jpg", True),
        ("user-agent:natadv-curate # us\r\ndisallow:/private\r\n", "/private/a.jpg", False),
        ("user-agent:natadv-curate # us\r\ndisallow:/private\r\n", "/a.jpg", True),
        ("User-agent: *\nDisallow: /*.jpg$\nAllow: /free/*.jpg$", "/free/a.jpg", True),
        ("User-agent: *\nDisallow: /*.jpg$\nAllow: /free/*.jpg$", "/a.jpg", False),
        ("User-agent: *\nDisallow: /*.jpg$", "/a.jpg?x", True),
        ("User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/b.jpg", True),
        ("Disallow: /", "/a.jpg", True),
        ("\ufeffUser-agent: *\nDisallow: /", "/a.jpg", False),
        ("User-agent: *\nSitemap: https://x.example/s\nDisallow: /", "/a.jpg", False),
        ("User-agent: *\n# User-agent: other\nDisallow: /", "/a.jpg", False),
        ("<!doctype html><title>Welcome</title>", "/a.jpg", True),
    ],
)
def test_rules_hold_for_whom_they_name(
    server: LoopbackServer, text: str, path: str, may: bool
) -> None:
    assert allowed(told(server, text), server, path) is may


@pytest.mark.parametrize("status", [204, 400, 401, 403, 404, 410, 451])
def test_a_site_without_robots_txt_allows_everything(server: LoopbackServer, status: int) -> None:
    server.on("/robots.txt", lambda exchange: exchange.send(status, b"", content_type="text/html"))
    assert allowed(robots(server), server)


@pytest.mark.parametrize("status", [429, 500, 501, 503, 520, 599])
def test_a_site_in_trouble_is_left_alone_for_now_and_asked_again_later(
    server: LoopbackServer, status: int
) -> None:
    def answer(exchange: Exchange) -> None:
        if exchange.request.number == 0:
            exchange.send(status, headers={"Retry-After": "77"})
        else:
            exchange.send(body=b"User-agent: *\nDisallow: /private")

    server.on("/robots.txt", answer)
    one = robots(server)
    with pytest.raises(FetchFailed) as failed:
        allowed(one, server)
    assert (failed.value.retryable, failed.value.retry_after) == (True, 77)
    assert not one.knows(parse_url(server.url("/a.jpg")))
    assert allowed(one, server, "/a.jpg")
    assert not allowed(one, server, "/private/a.jpg")
    assert server.hits("/robots.txt") == 2


def test_silence_is_no_permission(server: LoopbackServer) -> None:
    server.on("/robots.txt", lambda exchange: exchange.silence())
    with pytest.raises(FetchFailed) as failed:
        allowed(robots(server, read_seconds=0.5), server)
    assert failed.value.state == "timeout"
    assert failed.value.retryable


def test_a_forbidden_host_is_not_asked_for_its_rules(server: LoopbackServer) -> None:
    with pytest.raises(FetchFailed) as failed:
        allowed(robots(server, allow=False), server)
    assert failed.value.state == "forbidden_address"
    assert server.hits() == 0


def test_redirects_are_followed_each_in_its_turn(server: LoopbackServer) -> None:
    server.on("/robots.txt", lambda exchange: exchange.redirect("/one"))
    server.on("/one", lambda exchange: exchange.redirect("/two"))
    server.serve("/two", b"User-agent: *\nDisallow: /", "text/plain")
    assert not allowed(robots(server, per_second=1), server)
    first, second, third = (request.time for request in server.requests)
    assert third - second > 0.1, "the redirect did not wait"
    assert second >= first


def test_redirects_in_a_circle_mean_no_robots_txt(server: LoopbackServer) -> None:
    server.on("/robots.txt", lambda exchange: exchange.redirect("/robots.txt"))
    assert allowed(robots(server), server)
    assert server.hits("/robots.txt") == 6


@pytest.mark.parametrize("target", ["http://169.254.169.254/robots.txt", "file:///etc/robots"])
def test_rules_that_lie_where_nobody_may_look_are_no_permission(
    server: LoopbackServer, target: str
) -> None:
    server.on("/robots.txt", lambda exchange: exchange.redirect(target))
    assert not allowed(robots(server), server)


def test_one_question_an_origin_whatever_the_number_of_threads(server: LoopbackServer) -> None:
    def answer(exchange: Exchange) -> None:
        time.sleep(0.1)
        exchange.send(body=b"User-agent: *\nDisallow: /no")

    server.on("/robots.txt", answer)
    one = robots(server)
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append(allowed(one, server, "/no.jpg")))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [False] * 16
    assert server.hits("/robots.txt") == 1
    assert one.knows(parse_url(server.url("/other.jpg")))


def test_the_rules_are_asked_anew_after_a_day(server: LoopbackServer) -> None:
    server.serve("/robots.txt", b"", "text/plain")
    now = 0.0
    one = robots(server)
    one._clock = lambda: now
    for seconds, asked in ((0, 1), (86_000, 1), (86_400, 2)):
        now = float(seconds)
        assert allowed(one, server)
        assert server.hits("/robots.txt") == asked


def test_crawl_delay_reaches_the_manners(server: LoopbackServer) -> None:
    one = told(server, "User-agent: *\nCrawl-delay: 30\nDisallow: /private")
    manners = one._manners
    assert allowed(one, server)
    assert manners.ready_at("127.0.0.1") - manners.now() == pytest.approx(30, abs=10)


@pytest.mark.parametrize("delay", ["nan", "-5", "soon", "", "1e999", "10**9"])
def test_a_senseless_crawl_delay_breaks_nothing(server: LoopbackServer, delay: str) -> None:
    one = told(server, f"User-agent: *\nCrawl-delay: {delay}\nDisallow: /private")
    assert allowed(one, server)
    assert one._manners.ready_at("127.0.0.1") - one._manners.now() <= 86_400


def test_at_least_500_kib_are_read_and_the_rest_is_cut_at_a_line(server: LoopbackServer) -> None:
    filling = b"# " + b"x" * 97 + b"\n"
    before = b"User-agent: *\n" + filling * ((MOST_BYTES - 200) // 100) + b"Disallow: /late\n"
    before += b"#" * (MOST_BYTES - len(before) - 17) + b"\n"
    text = before + b"Disallow: /cut-here-or-not\n" + filling * 20_000
    one = told(server, text)
    assert not allowed(one, server, "/late.jpg")
    assert allowed(one, server, "/cut.jpg")
    assert allowed(one, server, "/cut-here-or-not.jpg")


def test_an_endless_robots_txt_ends(server: LoopbackServer) -> None:
    def answer(exchange: Exchange) -> None:
        exchange.raw(b"HTTP/1.1 200 OK\r\n\r\nUser-agent: *\nDisallow: /no\n")
        exchange.endless(b"Disallow: /other\n" * 1000)

    server.on("/robots.txt", answer)
    one = robots(server)
    assert not allowed(one, server, "/no.jpg")


@pytest.mark.parametrize(
    "text",
    [
        # Without looking at whom groups name, 18,000 robots times 28,000 rules.
        "".join(f"User-agent:r{n}\n" for n in range(15_000)) + "Allow:/1\n" * 28_000,
        "User-agent:" + " " * 450_000 + "x\nDisallow: /",
        "User-agent: *\nDisallow: /" + "*a" * 200_000 + "b",
        "User-agent: *\n" * 30_000,
        ("User-agent: *\nDisallow: /1\n") * 15_000,
    ],
    ids=["robots-times-rules", "blanks", "wildcards", "names", "groups"],
)
def test_a_hostile_robots_txt_takes_no_long_time(server: LoopbackServer, text: str) -> None:
    one = told(server, text)
    began = time.process_time()
    one.allowed(parse_url(server.url("/" + "a" * 4000 + ".jpg")))
    assert time.process_time() - began < 3


Pairs = list[tuple[str, str]]


@pytest.mark.parametrize(
    "values",
    [
        ["noai"],
        ["NoImageAI"],
        ["noindex, nofollow"],
        ["nofollow , noimageindex"],
        ["none"],
        ["all", "noai"],
        ["natadv-curate: noai"],
        ["Natadv-Curate: nofollow, noindex"],
        ["*: noai"],
        ["otherbot: nofollow", "noai"],
        ["otherbot: noindex, natadv-curate: noai"],
        ["unavailable_after: 25 Jun 2010 15:00:00 PST, noindex"],
        ["unavailable_after: Fri, 25-Jun-10 15:00:00 PST, noai"],
        ["max-image-preview: large, noindex"],
        ["noindex: yes"],
    ],
)
def test_tags_that_refuse(values: list[str]) -> None:
    headers = HTTPHeaderDict()
    for value in values:
        headers.add("x-robots-tag", value)
    assert tag_refuses(headers, TOKEN)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["all"],
        ["nofollow, noarchive"],
        ["googlebot: noindex"],
        ["googlebot: noindex, noimageindex"],
        ["googlebot: noai", "otherbot: noindex"],
        ["unavailable_after: 25 Jun 2010 15:00:00 PST"],
        ["unavailable_after: Friday, 25-Jun-10 15:00:00 UTC"],
        ["unavailable_after: 2010-06-25T15:00:00Z"],
        ["max-image-preview:none"],
        ["max-snippet:0, max-image-preview: none"],
        ["noaimless, notnoindex"],
        ["curate: noai"],
    ],
)
def test_tags_that_do_not(values: list[str]) -> None:
    headers = HTTPHeaderDict()
    for value in values:
        headers.add("X-Robots-Tag", value)
    assert tag_refuses(headers, TOKEN) is None


def test_a_reservation_against_mining_refuses() -> None:
    assert tag_refuses({"TDM-Reservation": " 1 "}, TOKEN)
    assert tag_refuses({"tdm-reservation": "0"}, TOKEN) is None


@given(
    st.text(alphabet="noaidex*:, -/_T12", max_size=60)
    | st.lists(st.sampled_from(["noai", "x: noindex", "all", "a: b", "unavailable_after: 1"])).map(
        ", ".join
    )
)
def test_a_plain_refusal_in_front_is_never_overheard(rest: str) -> None:
    assert tag_refuses({"X-Robots-Tag": f"noai, {rest}"}, TOKEN)
    tag_refuses({"X-Robots-Tag": rest}, TOKEN)
