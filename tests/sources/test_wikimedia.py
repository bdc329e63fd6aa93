"""Wikimedia Commons, through the real client, against a server that answers as MediaWiki does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import QuotaExhausted, SourceError, UnknownNameError, UsageError
from curate.licences import parse
from curate.settings import NetworkSettings
from curate.sources import wikimedia
from curate.sources.api import ApiClient
from curate.sources.http import user_agent
from curate.sources.protocol import Hit, Query
from curate.sources.wikimedia import NAME, Wikimedia, connect
from tests.sources.answering import Reply, client_for, found_in_two_goes
from tests.sources.wikimedia_server import MAXLAG, WikimediaServer, file, told

QUERY = Query("n02012849", "heron", licences=frozenset(("CC-BY-SA-4.0",)))


@pytest.fixture
def server() -> Iterator[WikimediaServer]:
    with WikimediaServer([file(n) for n in range(1, 121)]) as server:
        yield server


def source(server: WikimediaServer) -> Wikimedia:
    return Wikimedia(client_for(server, NAME), server.url("/w/api.php"))


def numbers(hits: Iterator[Hit]) -> list[int]:
    return [int(hit.locator.removeprefix("pages/")) for hit in hits]


def one(server: WikimediaServer, record: dict[str, Any]) -> Hit:
    server.files = [record]
    (hit,) = source(server).search(QUERY)
    return hit


def test_files_come_with_their_origin_and_licence(server: WikimediaServer) -> None:
    hit = next(source(server).search(QUERY))
    assert (hit.source, hit.locator, hit.label) == ("wikimedia", "pages/1", "n02012849")
    assert hit.url == "https://upload.example.org/thumb/1/960px-Heron.jpg"
    assert (hit.title, hit.author) == ("Heron 1.jpg", "Owner 1")
    assert hit.page == "https://commons.example.org/wiki/File:Heron_1.jpg"
    assert parse(hit.licence).id == "CC-BY-SA-4.0"


@pytest.mark.parametrize("old_shape", [False, True])
@pytest.mark.parametrize("split", [1000, 7])
def test_batches_spread_over_answers_come_whole_and_in_order(split: int, old_shape: bool) -> None:
    files = [file(n) for n in range(1, 121)]
    with WikimediaServer(files, split=split, old_shape=old_shape) as server:
        hits = list(source(server).search(QUERY))
    assert numbers(iter(hits)) == list(range(1, 121))
    assert all(hit.refusal is None for hit in hits)


def test_batches_are_asked_for_only_when_their_hits_are_wanted(server: WikimediaServer) -> None:
    hits = source(server).search(QUERY)
    assert server.requests == []
    list(islice(hits, 50))
    assert len(server.requests) == 1
    next(hits)
    assert len(server.requests) == 2


def test_nothing_found_is_no_error(server: WikimediaServer) -> None:
    server.files = []
    assert list(source(server).search(QUERY)) == []


def test_a_picture_no_wider_than_asked_for_is_taken_as_it_is(server: WikimediaServer) -> None:
    original = "https://upload.example.org/2/25/Heron_1.jpg"
    strange = "https://upload.example.org/thumb/1/strange.jpg"
    assert one(server, file(1, width=960)).url == original
    assert one(server, file(1, width=960, thumburl=strange)).url == original
    assert one(server, file(1, width=961, thumburl=strange)).url == strange
    assert one(server, file(1, thumburl=None)).url == original


def test_the_width_is_one_that_the_file_servers_make(server: WikimediaServer) -> None:
    query = Query("n02012849", "heron", options=(("width", "1280"),))
    hit = next(source(server).search(query))
    assert hit.url == "https://upload.example.org/thumb/1/1280px-Heron.jpg"
    with pytest.raises(UsageError, match="option width is one of 250, .*, not '1024'"):
        source(server).search(Query(text="heron", options=(("width", "1024"),)))
    with pytest.raises(UnknownNameError, match="option of wikimedia"):
        source(server).search(Query(text="heron", options=(("widht", "960"),)))


@pytest.mark.parametrize(
    ("texts", "author"),
    [
        ({"Artist": "<b>Ann</b> &amp; <i>Bob</i>"}, "Ann & Bob"),
        ({"Artist": "Ann", "Attribution": "Ann / <a href='x'>Museum</a>"}, "Ann / Museum"),
        ({"Artist": "<span></span>", "Credit": "Museum of Herons"}, "Museum of Herons"),
        ({"Credit": '<span class="int-own-work">Own work</span>'}, None),
        ({"Artist": '<a href="//c.example.org/U"><img src="x"></a>'}, "https://c.example.org/U"),
        ({"Artist": 1887}, "1887"),
        ({}, None),
    ],
)
def test_the_author_is_who_asks_to_be_named(
    server: WikimediaServer, texts: dict[str, Any], author: str | None
) -> None:
    assert one(server, file(1, extmetadata=told(**texts))).author == author


@pytest.mark.parametrize(
    ("texts", "licence"),
    [
        ({"License": "cc-by-2.0"}, "CC-BY-2.0"),
        ({"License": "cc0", "UsageTerms": "Creative Commons Zero, in other words"}, "CC0-1.0"),
        ({"License": "pd", "LicenseShortName": "Public domain"}, "LicenseRef-public-domain"),
        ({"LicenseUrl": "//creativecommons.org/licenses/by/3.0/de/deed.en"}, "CC-BY-3.0-DE"),
        ({"LicenseShortName": "CC BY-SA 3.0"}, "CC-BY-SA-3.0"),
        (
            {
                "License": "cc-by-4.0",
                "LicenseUrl": "https://creativecommons.org/licenses/by-nc/4.0",
            },
            "LicenseRef-unknown",
        ),
        ({"LicenseShortName": "<i>See</i> page"}, "LicenseRef-unknown"),
        ({}, "LicenseRef-unknown"),
    ],
)
def test_the_licence_is_what_all_that_is_said_agrees_on(
    server: WikimediaServer, texts: dict[str, Any], licence: str
) -> None:
    hit = one(server, file(1, extmetadata=told(**texts)))
    assert parse(hit.licence).id == licence
    assert "<" not in (hit.licence or "")


def test_an_empty_mapping_may_come_as_a_list(server: WikimediaServer) -> None:
    hit = one(server, file(1, extmetadata=[]))
    assert (hit.refusal, hit.licence, hit.author) == (None, None, None)


def test_what_is_no_picture_is_refused(server: WikimediaServer) -> None:
    hit = one(server, file(1, mime="video/webm"))
    assert hit.refusal is not None
    assert (hit.refusal.reason, hit.url) == ("unsupported-format", None)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"width": "wide"}, "imageinfo.0.width"),
        ({"url": None}, "imageinfo.0.url"),
        ({"extmetadata": "gone"}, "imageinfo.0.extmetadata"),
        ({"extmetadata": {"License": ["cc0"]}}, "imageinfo.0.extmetadata.License"),
        ({"extmetadata": told(Artist={"en": "Ann"})}, "imageinfo.0.extmetadata.Artist"),
    ],
)
def test_a_malformed_record_is_one_refused_hit(
    server: WikimediaServer, changed: dict[str, Any], field: str
) -> None:
    server.files[1] = file(2, **changed)
    hits = list(source(server).search(QUERY))
    refused = [hit for hit in hits if hit.refusal]
    assert len(hits) == 120
    assert [hit.locator for hit in refused] == ["pages/2"]
    assert refused[0].refusal is not None
    assert refused[0].refusal.reason == "malformed-record"
    assert refused[0].refusal.detail.startswith(field)


def test_a_page_without_id_or_file_is_one_refused_hit(server: WikimediaServer) -> None:
    server.files[3:5] = [{"title": "File:A.jpg", "missing": True}, {"pageid": 5, "title": "File:B"}]
    runs = [list(source(server).search(QUERY)) for _ in range(2)]
    refused = sorted(hit.locator for hit in runs[0] if hit.refusal)
    assert refused[0] == "pages/5"
    assert refused[1].startswith("pages/unnamed-")
    assert refused == sorted(hit.locator for hit in runs[1] if hit.refusal)
    assert len(runs[0]) == 120


def test_a_lagging_server_is_waited_for(server: WikimediaServer) -> None:
    server.troubles.append(MAXLAG)
    assert len(list(source(server).search(QUERY))) == 120
    assert server.requests[0].query["maxlag"] == "5"


def test_a_server_that_lags_too_long_is_left_for_later(server: WikimediaServer) -> None:
    server.troubles.append(Reply(MAXLAG.body, headers={"Retry-After": "600"}))
    with pytest.raises(QuotaExhausted, match="wikimedia wants a pause .*6.2 seconds lagged"):
        next(source(server).search(QUERY))


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (
            Reply({"error": {"code": "badvalue", "info": 'Unrecognized\nvalue for "iiprop"'}}),
            "error badvalue: Unrecognized value",
        ),
        (Reply({"error": "broken"}), "the error : broken"),
        (Reply([1]), "the answer is not understood"),
        (Reply({"query": {"pages": "none"}}), "query.pages"),
        (Reply({"continue": "gsroffset||", "batchcomplete": True}), "continue"),
        (Reply("<html>Too many requests</html>", 404), "HTTP 404"),
    ],
)
def test_errors_with_status_200_and_other_forms_are_one_line(
    server: WikimediaServer, reply: Reply, text: str
) -> None:
    server.troubles.append(reply)
    with pytest.raises(SourceError, match=text) as error:
        next(source(server).search(QUERY))
    assert "\n" not in str(error.value)


def test_a_server_that_never_gets_on_is_left(server: WikimediaServer) -> None:
    again = Reply({"continue": {"gsroffset": 50}, "batchcomplete": True})
    server.troubles.extend([again, again])
    with pytest.raises(SourceError, match="same place"):
        next(source(server).search(QUERY))
    server.troubles.clear()
    server.troubles.extend(Reply({"continue": {"iistart": n}}) for n in range(200))
    with pytest.raises(SourceError, match="more than 100 answers"):
        next(source(server).search(QUERY))


def test_who_leaves_no_contact_is_refused_by_the_owner(server: WikimediaServer) -> None:
    nets = NetworkSettings(allow_hosts=(server.allow_host,), per_second=1e6)
    anonymous = ApiClient(NAME, nets, user_agent("1.0", ""))
    with pytest.raises(SourceError, match="403"):
        next(connect(anonymous, server.url("/w/api.php"), {}).search(QUERY))
    assert wikimedia.NEEDS_CONTACT


def test_the_end_of_what_can_be_reached_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with WikimediaServer([file(n) for n in range(1, 10_101)]) as server:
        cursor = {"continue": {"gsroffset": 9900, "continue": "gsroffset||"}}
        query = Query("n02012849", "heron", cursor=cursor)
        hits = list(source(server).search(query))
        assert numbers(iter(hits)) == list(range(9901, 10_001))
        last = Query("n02012849", "heron", cursor=hits[-1].cursor)
        assert numbers(source(server).search(last)) == list(range(9951, 10_001))
    assert "'heron': only the first 10000 images can be reached" in capsys.readouterr().err


TREE = {
    "Category:Herons": ["Category:Ardea", "Category:Egretta", "Category:Herons by year"],
    "Category:Ardea": ["Category:Herons", "Category:Ardea cinerea"],
    "Category:Ardea cinerea": ["Category:Too deep"],
    "Category:Herons by year": ["Category:Ardea"],
}
SHELVES = [*TREE, "Category:Egretta", "Category:Too deep"]
SHELVED = [file(n, (SHELVES[n % len(SHELVES)],)) for n in range(1, 400)]
HERONS = Query("n02012849", "Category:Herons")


def test_a_category_is_followed_downwards_once_and_not_too_deep() -> None:
    with WikimediaServer(SHELVED, TREE) as server:
        found = numbers(source(server).search(HERONS))
        asked = [r.query["gcmtitle"] for r in server.requests if r.query.get("generator")]
    assert sorted(found) == [n for n in range(1, 400) if n % len(SHELVES) != 5]
    assert len(found) == len(set(found))
    assert list(dict.fromkeys(asked)) == [
        "Category:Herons",
        "Category:Ardea",
        "Category:Egretta",
        "Category:Herons by year",
        "Category:Ardea cinerea",
    ]


def test_the_depth_below_a_category_can_be_set() -> None:
    with WikimediaServer(SHELVED, TREE) as server:
        flat = Query("n02012849", "Category:Herons", options=(("depth", "0"),))
        found = numbers(source(server).search(flat))
        assert {n % len(SHELVES) for n in found} == {0}
        with pytest.raises(UsageError, match="option depth is one of 0, 1, 2, 3, 4, 5, not '99'"):
            source(server).search(Query(text="Category:Herons", options=(("depth", "99"),)))


def test_a_tree_without_end_is_cut_and_that_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    endless = {"Category:Herons": [f"Category:Heron {n}" for n in range(300)]}
    with WikimediaServer([file(1, ("Category:Herons",))], endless) as server:
        assert numbers(source(server).search(HERONS)) == [1]
    assert "has more than 200 categories below it" in capsys.readouterr().err


def test_words_and_categories_cannot_be_empty(server: WikimediaServer) -> None:
    for text in ("", "  ", "Category:"):
        with pytest.raises(UsageError, match="words or a category"):
            source(server).search(Query(text=text))


@pytest.mark.parametrize("query", [QUERY, HERONS], ids=["words", "category"])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_search_goes_on_from_any_hit_without_losing_one(
    query: Query, data: st.DataObject
) -> None:
    split = data.draw(st.sampled_from([1000, 30]))
    with WikimediaServer(SHELVED[:230], TREE, split=split) as server:
        whole = {hit.locator for hit in source(server).search(query)}
        stop = data.draw(st.integers(1, len(whole)))
        assert found_in_two_goes(source(server), source(server), query, stop) == whole


def test_the_check_of_going_on_notices_a_cursor_too_far_ahead(server: WikimediaServer) -> None:
    found = found_in_two_goes(source(server), source(server), QUERY, stop=10, ahead=40)
    assert len(found) == 80


@pytest.mark.parametrize(
    "cursor",
    [
        {},
        {"continue": []},
        {"continue": {"gsroffset": []}},
        {"categories": [["Category:Herons", 0]], "at": 7, "continue": {}},
        {"categories": "x", "at": 0, "continue": {}},
    ],
)
def test_a_cursor_of_another_search_starts_anew(cursor: dict[str, Any]) -> None:
    with WikimediaServer(SHELVED[:60], TREE) as server:
        for query in (QUERY, HERONS):
            whole = numbers(source(server).search(query))
            again = Query(query.wnid, query.text, query.licences, cursor)
            assert numbers(source(server).search(again)) == whole


def test_its_file_servers_count_as_one() -> None:
    rules = [rule for rule in wikimedia.HOSTS if rule.covers("upload.wikimedia.org")]
    assert rules == [rule for rule in wikimedia.HOSTS if rule.covers("thumb.wikimedia.org")]
    assert [rule.concurrency for rule in rules] == [2]
