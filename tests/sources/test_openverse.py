"""Openverse, through the real client, against a server that answers as its API does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import QuotaExhausted, SourceError, UnknownNameError, UsageError
from curate.licences import parse
from curate.sources.openverse import NAME, REACH, Openverse, connect
from curate.sources.protocol import Hit, Query
from tests.sources.answering import Reply, client_for, found_in_two_goes
from tests.sources.openverse_server import CLOUDFLARE, OpenverseServer, image, throttled

QUERY = Query("n02012849", "heron", licences=frozenset(("CC-BY-2.0", "CC0-1.0", "CC-BY-SA-4.0")))


@pytest.fixture
def server() -> Iterator[OpenverseServer]:
    licences = ("by", "cc0", "by-nc")
    with OpenverseServer([image(n, licences[n % 3]) for n in range(1, 61)]) as server:
        yield server


def source(server: OpenverseServer, credentials: tuple[str, str] | None = None) -> Openverse:
    return Openverse(client_for(server, NAME), server.url("/v1"), credentials)


def locators(hits: Iterator[Hit]) -> list[str]:
    return [hit.locator for hit in hits]


def test_images_come_with_their_origin_and_licence(server: OpenverseServer) -> None:
    hits = list(source(server).search(QUERY))
    assert len(hits) == 40
    hit = hits[0]
    assert (hit.source, hit.label) == ("openverse", "n02012849")
    assert hit.locator == "images/00000000-0000-0000-0000-000000000001"
    assert hit.url == "https://images.example.org/1.jpg"
    assert (hit.title, hit.author, hit.collection) == ("Heron 1", "owner_1", "flickr")
    assert hit.page == "https://photos.example.org/1"
    assert {parse(hit.licence).id for hit in hits} == {"CC-BY-2.0", "CC0-1.0"}


def test_licences_and_the_wish_for_photographs_are_sent_along(server: OpenverseServer) -> None:
    server.images.append(image(99, category="illustration"))
    assert len(list(source(server).search(QUERY))) == 40
    sent = server.requests[0].query
    assert sent["license"] == "cc0,by,by-sa"
    assert (sent["category"], sent["mature"], sent["filter_dead"]) == (
        "photograph",
        "false",
        "true",
    )


def test_pages_are_asked_for_only_when_their_hits_are_wanted(server: OpenverseServer) -> None:
    hits = source(server).search(QUERY)
    assert server.requests == []
    next(hits)
    assert len(server.requests) == 1
    list(islice(hits, 19))
    assert len(server.requests) == 1
    next(hits)
    assert len(server.requests) == 2


def test_a_search_that_finds_too_much_goes_on_licence_by_licence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    many = [image(n, "by") for n in range(1, 301)] + [image(n, "cc0") for n in range(301, 351)]
    with OpenverseServer(many) as server:
        found = locators(source(server).search(QUERY))
    assert len(found) == len(set(found)) == REACH + 50
    assert "'heron' under by: no more than the first 240" in capsys.readouterr().err


def test_without_limits_on_licences_all_are_asked_for(server: OpenverseServer) -> None:
    server.images.append(image(99, "sampling+"))
    hits = list(source(server).search(Query("n02012849", "heron")))
    assert len(hits) == 61
    assert parse(hits[-1].licence).id == "LicenseRef-unknown"


def test_a_key_brings_larger_pages_and_is_renewed_when_it_ends(server: OpenverseServer) -> None:
    server.expires_in = 0.001
    keyed = source(server, ("me", "hush"))
    assert len(list(keyed.search(QUERY))) == 40
    assert len(list(keyed.search(QUERY))) == 40
    asked = [request for request in server.requests if request.path == "/v1/images/"]
    assert [request.query["page_size"] for request in asked] == ["48", "48"]
    assert len(server.tokens) == 2


def test_a_key_that_is_refused_is_told_without_its_secret(server: OpenverseServer) -> None:
    with pytest.raises(UsageError, match="refuses the key of OPENVERSE_CLIENT_ID") as told:
        next(source(server, ("me", "wrong-secret")).search(QUERY))
    assert "wrong-secret" not in str(told.value)


@pytest.mark.parametrize("lenient", [False, True])
def test_a_token_that_is_silently_taken_for_none_is_told(
    server: OpenverseServer, capsys: pytest.CaptureFixture[str], lenient: bool
) -> None:
    keyed = source(server, ("me", "hush"))
    if lenient:
        server.images = server.images[:10]
        server.most_anonymous = 50
    first = keyed.search(QUERY)
    next(first)
    assert capsys.readouterr().err == ""
    server.tokens.clear()
    assert len(list(keyed.search(QUERY))) == (7 if lenient else 40)
    assert "does not know the key of OPENVERSE_CLIENT_ID" in capsys.readouterr().err
    assert "Authorization" not in server.requests[-1].headers or lenient


def test_one_half_of_a_key_is_too_little(server: OpenverseServer) -> None:
    with pytest.raises(UsageError, match="set both OPENVERSE_CLIENT_ID and"):
        connect(client_for(server, NAME), server.url("/v1"), {"OPENVERSE_CLIENT_ID": "me"})
    connected = connect(client_for(server, NAME), server.url("/v1"), {})
    assert len(list(connected.search(QUERY))) == 40


def test_throttling_is_waited_for_or_told(server: OpenverseServer) -> None:
    server.troubles.append(throttled(0))
    assert len(list(source(server).search(QUERY))) == 40
    server.troubles.append(throttled(3412))
    with pytest.raises(QuotaExhausted, match="openverse wants a pause"):
        next(source(server).search(QUERY))


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (CLOUDFLARE, "403"),
        (Reply({"detail": {"license": ["License 'xyz' does not exist."]}}, 400), "HTTP 400"),
        (Reply({"detail": "Not found."}, 404), "Not found"),
        (Reply(["a", "list"]), "the answer is not understood"),
        (Reply({"result_count": 1, "page_count": 1, "results": {}}), "results"),
        (Reply({"result_count": "many", "page_count": 1, "results": []}), "result_count"),
    ],
)
def test_answers_of_another_form_are_one_line(
    server: OpenverseServer, reply: Reply, told: str
) -> None:
    server.troubles.append(reply)
    with pytest.raises(SourceError, match=told) as error:
        next(source(server).search(QUERY))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("record", "locator", "detail"),
    [
        (image(5, url=None), "images/00000000-0000-0000-0000-000000000005", "url"),
        (image(5, license=7), "images/00000000-0000-0000-0000-000000000005", "license"),
        (image(5, url="https://a.example/\0"), "images/0", "url"),
        (image(5, url="https://a.example/" + "a" * 2000), "images/0", "url"),
        (image(5, title=["a"]), "images/0", "title"),
        (image(5, id=5), "images/unnamed-", "id"),
        ("no record", "images/unnamed-", "the whole"),
        (None, "images/unnamed-", "the whole"),
    ],
)
def test_a_malformed_record_is_one_refused_hit(
    server: OpenverseServer, record: Any, locator: str, detail: str
) -> None:
    server.images = [image(1), record, image(2)]
    hits = [list(source(server).search(QUERY)) for _ in range(2)]
    assert [hit.refusal is None for hit in hits[0]] == [True, False, True]
    bad = hits[0][1]
    assert bad.refusal is not None
    assert bad.refusal.reason == "malformed-record"
    assert bad.refusal.detail.startswith(detail)
    assert bad.locator.startswith(locator)
    assert bad.locator == hits[1][1].locator


@pytest.mark.parametrize(
    ("changed", "licence"),
    [
        ({"license_url": None}, "CC-BY-2.0"),
        ({"license_url": None, "license_version": None}, "LicenseRef-CC-BY-unversioned"),
        ({"license": "CC0", "license_version": "1.0", "license_url": ""}, "CC0-1.0"),
        ({"license": "pdm", "license_version": "1.0", "license_url": ""}, "CC-PDM-1.0"),
        ({"license_url": "https://creativecommons.org/licenses/by/3.0/us/"}, "CC-BY-3.0-US"),
        (
            {"license": "by-nc", "license_url": "https://creativecommons.org/licenses/by/2.0/"},
            "LicenseRef-unknown",
        ),
    ],
)
def test_a_licence_is_read_with_its_version_and_never_guessed(
    server: OpenverseServer, changed: dict[str, Any], licence: str
) -> None:
    server.images = [image(1, **changed)]
    everything = Query("n02012849", "heron")
    assert [parse(hit.licence).id for hit in source(server).search(everything)] == [licence]


def test_a_page_address_that_would_run_a_script_is_left_out(server: OpenverseServer) -> None:
    server.images = [image(1, foreign_landing_url="javascript:alert(1)")]
    assert [hit.page for hit in source(server).search(QUERY)] == [None]


def test_unusable_queries_are_refused_before_anything_is_asked(server: OpenverseServer) -> None:
    for query in (Query(text=""), Query(text="a" * 201), Query(text="a", licences=frozenset())):
        with pytest.raises(UsageError):
            source(server).search(query)
    with pytest.raises(UsageError, match="no images under any of the licences"):
        source(server).search(Query(text="heron", licences=frozenset(("MIT",))))
    with pytest.raises(UnknownNameError, match="did you mean size"):
        source(server).search(Query(text="heron", options=(("sice", "large"),)))
    assert server.requests == []


def test_options_are_sent_and_empty_ones_left_out(server: OpenverseServer) -> None:
    options = (("size", "large"), ("category", ""))
    list(source(server).search(Query(text="heron", options=options)))
    sent = server.requests[0].query
    assert sent["size"] == "large"
    assert "category" not in sent


SMALL = [image(n, ("by", "cc0")[n % 2]) for n in range(1, 70)]
LARGE = [image(n, "by") for n in range(1, 251)] + [image(n, "cc0") for n in range(251, 280)]


@pytest.mark.parametrize("images", [SMALL, LARGE], ids=["in one", "licence by licence"])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_search_goes_on_from_any_hit_without_losing_one(
    images: list[dict[str, Any]], data: st.DataObject
) -> None:
    with OpenverseServer(images) as server:
        whole = locators(source(server).search(QUERY))
        stop = data.draw(st.integers(1, len(whole)))
        second = source(server, data.draw(st.sampled_from([None, ("me", "hush")])))
        assert found_in_two_goes(source(server), second, QUERY, stop) == set(whole)


def test_the_check_of_going_on_notices_a_cursor_too_far_ahead() -> None:
    with OpenverseServer(SMALL) as server:
        whole = locators(source(server).search(QUERY))
        found = found_in_two_goes(source(server), source(server), QUERY, stop=10, ahead=10)
    assert len(set(whole) - found) == 10


@pytest.mark.parametrize("cursor", [{}, {"part": "xyz", "taken": 0}, {"part": "by", "taken": -1}])
def test_a_cursor_of_another_search_starts_anew(
    server: OpenverseServer, cursor: dict[str, Any]
) -> None:
    query = Query(QUERY.wnid, QUERY.text, QUERY.licences, cursor)
    assert len(list(source(server).search(query))) == 40


def test_a_page_that_is_no_longer_there_ends_a_resumed_search(server: OpenverseServer) -> None:
    query = Query(QUERY.wnid, QUERY.text, QUERY.licences, {"part": "all", "taken": 200})
    assert list(source(server).search(query)) == []
