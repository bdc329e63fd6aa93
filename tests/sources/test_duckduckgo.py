"""DuckDuckGo, through the real client, against a server that answers as its image search does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import QuotaExhausted, SourceError, UnknownNameError, UsageError
from curate.licences import UNKNOWN, parse
from curate.settings import SourceSettings
from curate.sources.duckduckgo import NAME, DuckDuckGo, connect
from curate.sources.protocol import Query
from tests.sources.answering import Reply, client_for, found_in_two_goes
from tests.sources.duckduckgo_server import DuckDuckGoServer, image

QUERY = Query("n02012849", "grey heron")


@pytest.fixture
def server() -> Iterator[DuckDuckGoServer]:
    with DuckDuckGoServer([image(n) for n in range(1, 251)]) as server:
        yield server


def source(server: DuckDuckGoServer) -> DuckDuckGo:
    return DuckDuckGo(client_for(server, NAME), server.url())


def test_it_is_off_until_asked_for(server: DuckDuckGoServer) -> None:
    client = client_for(server, NAME)
    with pytest.raises(UsageError, match=r"is off: .* sources.duckduckgo: https://duckduckgo.com"):
        connect(client, SourceSettings().duckduckgo, {})
    assert next(connect(client, server.url(), {}).search(QUERY)).source == "duckduckgo"


def test_it_does_not_start_where_unknown_licences_are_refused(server: DuckDuckGoServer) -> None:
    with pytest.raises(UsageError, match="--allow-unknown-licence"):
        source(server).search(Query("n02012849", "heron", licences=frozenset(("CC0-1.0",))))
    assert server.requests == []


def test_images_come_with_their_page_and_an_unknown_licence(server: DuckDuckGoServer) -> None:
    hits = list(source(server).search(QUERY))
    assert len(hits) == len({hit.locator for hit in hits}) == 250
    hit = hits[0]
    assert (hit.url, hit.page) == (
        "https://images.example.org/1.jpg",
        "https://pages.example.org/1",
    )
    assert (hit.title, hit.author, hit.collection) == ("Heron 1", None, "Bing")
    assert {parse(hit.licence) for hit in hits} == {UNKNOWN}


def test_it_says_who_it_is(server: DuckDuckGoServer) -> None:
    list(source(server).search(QUERY))
    agents = {request.headers["User-Agent"] for request in server.requests}
    assert agents == {"natadv-curate/1.0 (+https://example.org/contact)"}


def test_pages_are_asked_for_only_when_their_hits_are_wanted(server: DuckDuckGoServer) -> None:
    hits = source(server).search(QUERY)
    assert server.requests == []
    list(islice(hits, 100))
    assert server.hits("/i.js") == 1
    next(hits)
    assert server.hits("/i.js") == 2


@pytest.mark.parametrize("page", ["vqd='{}'", 'vqd="{}"', "a?vqd={}&x=1"])
def test_the_token_is_found_however_the_page_writes_it(server: DuckDuckGoServer, page: str) -> None:
    server.page = page
    assert len(list(source(server).search(QUERY))) == 250


@pytest.mark.parametrize("status", [202, 403])
@pytest.mark.parametrize("answers_before", [0, 1, 2])
def test_a_refusal_is_taken_for_an_answer(
    server: DuckDuckGoServer, status: int, answers_before: int
) -> None:
    hits = source(server).search(QUERY)
    # The page with the token and the first images come together.
    found = list(islice(hits, 100 * (answers_before // 2)))
    if answers_before == 1:
        server.troubles.append(Reply("<html>4-12345 vqd='4-1'</html>"))
    server.troubles.append(Reply("<html>If this persists, write to us</html>", status))
    with pytest.raises(QuotaExhausted, match=f"HTTP {status} for now.*run the same command again"):
        next(hits)
    assert len(found) == 100 * (answers_before // 2)


@pytest.mark.parametrize(
    ("replies", "told"),
    [
        ([Reply("<html>no token</html>")], "the page has no vqd"),
        ([Reply("vqd='4-1'"), Reply({"results": "none"})], "results"),
        ([Reply("vqd='4-1'"), Reply({"results": [], "next": 7})], "next"),
        ([Reply("vqd='4-1'"), Reply({"results": [image(1)], "next": "i.js?s=0"})], "nowhere"),
        ([Reply("vqd='4-1'"), Reply({"results": [image(1)], "next": "i.js?s=x"})], "nowhere"),
        ([Reply("vqd='4-1'"), Reply("", 404)], "HTTP 404"),
    ],
)
def test_answers_of_another_form_are_one_line(
    server: DuckDuckGoServer, replies: list[Reply], told: str
) -> None:
    server.troubles.extend(replies)
    with pytest.raises(SourceError, match=told) as error:
        list(source(server).search(QUERY))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("record", [image(2, image=None), image(2, title=2), "text", None])
def test_a_malformed_record_is_one_refused_hit(server: DuckDuckGoServer, record: Any) -> None:
    server.images = [image(1), record, image(3)]
    runs = [list(source(server).search(QUERY)) for _ in range(2)]
    assert [hit.refusal is None for hit in runs[0]] == [True, False, True]
    assert runs[0][1].refusal is not None
    assert runs[0][1].refusal.reason == "malformed-record"
    assert runs[0][1].locator == runs[1][1].locator


def test_options_are_sent_and_unknown_ones_refused(server: DuckDuckGoServer) -> None:
    options = (("region", "us-en"), ("safe", "-1"))
    next(source(server).search(Query(text="heron", options=options)))
    sent = server.requests[-1].query
    assert (sent["l"], sent["p"]) == ("us-en", "-1")
    with pytest.raises(UnknownNameError, match="option of duckduckgo"):
        source(server).search(Query(text="heron", options=(("size", "large"),)))
    with pytest.raises(UsageError, match="words"):
        source(server).search(Query(text=" "))


@settings(max_examples=10, deadline=None)
@given(stop=st.integers(1, 230))
def test_a_search_goes_on_from_any_hit_without_losing_one(stop: int) -> None:
    with DuckDuckGoServer([image(n) for n in range(230)]) as server:
        whole = {hit.locator for hit in source(server).search(QUERY)}
        assert found_in_two_goes(source(server), source(server), QUERY, stop) == whole


def test_the_check_of_going_on_notices_a_cursor_too_far_ahead(server: DuckDuckGoServer) -> None:
    found = found_in_two_goes(source(server), source(server), QUERY, stop=10, ahead=90)
    assert len(found) == 160


@pytest.mark.parametrize("cursor", [{}, {"skip": "x"}, {"skip": -1}])
def test_a_cursor_of_another_search_starts_anew(
    server: DuckDuckGoServer, cursor: dict[str, Any]
) -> None:
    assert len(list(source(server).search(Query("", "heron", cursor=cursor)))) == 250
