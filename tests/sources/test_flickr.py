"""Flickr against a server that answers as its API does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.errors import SourceError, UnknownNameError, UsageError
from curate.licences import parse
from curate.sources import flickr
from curate.sources.flickr import Flickr
from curate.sources.protocol import Hit, Query
from tests.sources.clients import lasting_client
from tests.sources.flickr_server import IMAGES, KEY, FlickrServer, fail, photo

SQUIRREL = "n02356798"
START = 1_300_000_000
YEAR = 31_536_000


@pytest.fixture
def server() -> Iterator[FlickrServer]:
    with FlickrServer() as server:
        yield server


def found(
    server: FlickrServer, *, page: int = 500, most: int = 4000, key: str = KEY, **query: Any
) -> Iterator[Hit]:
    source = Flickr(lasting_client(server), server.api, key, page=page, most=most)
    return source.search(Query(**{"wnid": SQUIRREL, "text": "fox squirrel", **query}))


def one(server: FlickrServer, **query: Any) -> Hit:
    (hit,) = found(server, **query)
    return hit


def test_a_record_becomes_a_hit_whatever_types_its_fields_have(server: FlickrServer) -> None:
    server.photos = [
        photo(50000000001, START),
        photo(50000000002, START + 1, 9),
        photo(50000000005, START + 2, 0, ownername="", pathalias="", title=""),
    ]
    first, second, third = found(server)
    assert (first.source, first.label, first.refusal) == ("flickr", SQUIRREL, None)
    assert first.locator == "photos/50000000001"
    assert first.url == f"{IMAGES}/65535/50000000001_abcdef0123_b.jpg"
    assert first.page == "https://www.flickr.com/photos/10000001@N01/50000000001"
    assert (first.title, first.author) == ("squirrel 50000000001", "Owner One")
    assert second.page == "https://www.flickr.com/photos/owner_one/50000000002"
    assert (second.title, second.author) == ("squirrel 50000000002", "Owner One")
    assert (third.locator, third.title, third.author) == (
        "photos/50000000005",
        None,
        "10000001@N01",
    )
    assert [parse(hit.licence).id for hit in (first, second, third)] == [
        "CC-BY-2.0",
        "CC0-1.0",
        "LicenseRef-all-rights-reserved",
    ]


@pytest.mark.parametrize(
    ("number", "licence"),
    [
        (0, "LicenseRef-all-rights-reserved"),
        (1, "CC-BY-NC-SA-2.0"),
        (2, "CC-BY-NC-2.0"),
        (3, "CC-BY-NC-ND-2.0"),
        (4, "CC-BY-2.0"),
        (5, "CC-BY-SA-2.0"),
        (6, "CC-BY-ND-2.0"),
        (7, "LicenseRef-Flickr-Commons"),
        (8, "LicenseRef-US-Gov-Work"),
        (9, "CC0-1.0"),
        (10, "CC-PDM-1.0"),
        (11, "CC-BY-4.0"),
        (12, "CC-BY-SA-4.0"),
        (13, "CC-BY-ND-4.0"),
        (14, "CC-BY-NC-4.0"),
        (15, "CC-BY-NC-SA-4.0"),
        (16, "CC-BY-NC-ND-4.0"),
        (17, "LicenseRef-unknown"),
    ],
)
def test_each_number_of_a_licence_is_known_and_can_be_asked_for(
    server: FlickrServer, number: int, licence: str
) -> None:
    server.photos = [photo(1, START, number), photo(3, START, (number + 1) % 17)]
    if number == 17:
        assert next(parse(hit.licence).id for hit in found(server)) == licence
        return
    hit = one(server, licences=frozenset({licence}))
    assert (hit.locator, parse(hit.licence).id) == ("photos/1", licence)
    assert {asked["license"] for asked in server.asked()} == {str(number)}


def test_no_licence_that_the_site_knows_is_an_error_before_any_question(
    server: FlickrServer,
) -> None:
    with pytest.raises(UsageError, match="under any of the licences"):
        found(server, licences=frozenset({"CC-BY-3.0"}))
    assert server.hits() == 0


@pytest.mark.parametrize(
    ("sizes", "large", "original"),
    [
        ("ohklczm", "l", "o"),
        ("oczm", "c", "o"),
        ("zm", "z", "z"),
        ("om", "o", "o"),
        ("m", "m", "m"),
        ("khm", "h", "k"),
    ],
)
def test_the_size_nearest_to_1024_pixels_is_taken_or_the_original_where_asked_for(
    server: FlickrServer, sizes: str, large: str, original: str
) -> None:
    record = photo(1, START)
    record = {name: value for name, value in record.items() if not name.startswith("url_")}
    server.photos = [record | {f"url_{size}": f"{IMAGES}/{size}.jpg" for size in sizes}]
    assert one(server).url == f"{IMAGES}/{large}.jpg"
    assert one(server, options=(("size", "original"),)).url == f"{IMAGES}/{original}.jpg"


def test_the_question_leaves_out_videos_screenshots_and_what_is_not_safe(
    server: FlickrServer,
) -> None:
    list(found(server, options=(("tag_mode", "all"),)))
    asked = server.asked()[0]
    assert (asked["media"], asked["content_types"], asked["safe_search"]) == ("photos", "0", "1")
    assert (asked["text"], asked["tag_mode"]) == ("fox squirrel", "all")
    assert "license" not in asked
    assert "in_gallery" not in asked


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((("min_uploaded_date", "2012-07-11"),), "did you mean min_upload_date"),
        ((("size", "huge"),), "large, original"),
        ((("min_upload_date", "in July"),), "in July"),
        ((("min_upload_date", "2013-07-11"), ("max_upload_date", "2012-07-11")), "is after"),
    ],
)
def test_unusable_options_are_errors_before_any_question(
    server: FlickrServer, options: tuple[tuple[str, str], ...], said: str
) -> None:
    with pytest.raises((UsageError, UnknownNameError), match=said):
        found(server, options=options)
    with pytest.raises(UsageError, match="words or tags"):
        found(server, text="")
    assert server.hits() == 0


def test_upload_dates_limit_a_search_to_the_second(server: FlickrServer) -> None:
    noon = 1_342_008_000  # 2012-07-11 12:00:00 UTC
    server.photos = [photo(n, noon + n) for n in range(1, 6)]
    dates = (("min_upload_date", "2012-07-11 12:00:02"), ("max_upload_date", str(noon + 4)))
    assert [hit.locator for hit in found(server, options=dates)] == [
        "photos/2",
        "photos/3",
        "photos/4",
    ]


def spread(count: int, seconds: int, licences: int = 17) -> list[dict[str, Any]]:
    return [photo(n, START + n * seconds // count, n % licences) for n in range(1, count + 1)]


@pytest.mark.parametrize(("most", "reached"), [(4000, 10_000), (10**9, 4000)])
def test_windows_of_upload_dates_reach_what_one_search_does_not_show(
    server: FlickrServer, most: int, reached: int
) -> None:
    server.photos = spread(10_000, 3 * YEAR)
    hits = list(found(server, most=most))
    assert len({hit.locator for hit in hits}) == len(hits) == reached
    if most == 4000:
        assert len(server.asked()) < 45
        assert max(int(asked["page"]) for asked in server.asked()) <= 8


def test_what_was_uploaded_together_is_divided_by_licence_and_the_rest_is_told(
    server: FlickrServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.most = 20
    burst = [photo(n, START, 4 if n <= 25 else 11 + n % 3) for n in range(1, 61)]
    server.photos = [*burst, photo(99, START - YEAR), photo(100, START + YEAR)]
    locators = [hit.locator for hit in found(server, page=5, most=20)]
    assert len(set(locators)) == len(locators) == 2 + 20 + 35
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "5 photos under 'CC BY 2.0'" in said
    assert "2011-03-1" in said


def test_a_search_goes_on_within_a_window_divided_by_licence(server: FlickrServer) -> None:
    server.most = 20
    server.photos = [photo(n, START, (4, 9, 11)[n % 3]) for n in range(1, 49)]
    server.photos.append(photo(99, START + YEAR))
    whole = list(found(server, page=5, most=20))
    assert len(whole) == 49
    for stop in range(1, 49, 4):
        after = found(server, page=5, most=20, cursor=whole[stop - 1].cursor)
        locators = {hit.locator for hit in (*whole[:stop], *after)}
        assert locators == {hit.locator for hit in whole}


def test_no_photo_falls_between_two_windows(server: FlickrServer) -> None:
    server.most = 1000
    server.photos = [photo(n, START + n // 2) for n in range(3000)]
    dates = (("min_upload_date", str(START)), ("max_upload_date", str(START + 1499)))
    whole = list(found(server, page=250, most=1000, options=dates))
    assert [hit.locator for hit in whole] == [f"photos/{n}" for n in range(3000)]
    windows = sorted({hit.cursor["since"] for hit in whole if hit.cursor})
    assert len(windows) > 3
    for stop in (1, 700, 1500, 2999):
        after = found(server, page=250, most=1000, options=dates, cursor=whole[stop - 1].cursor)
        assert len({hit.locator for hit in (*whole[:stop], *after)}) == 3000


def test_only_the_licences_asked_for_divide_a_window(server: FlickrServer) -> None:
    server.most = 20
    server.photos = [photo(n, START, 4 + n % 3) for n in range(1, 61)]
    wanted = frozenset({"CC-BY-2.0", "CC-BY-SA-2.0"})
    hits = list(found(server, page=5, most=20, licences=wanted))
    assert len(hits) == 40
    assert {asked["license"] for asked in server.asked()} == {"4,5", "4", "5"}


def test_a_photo_that_slips_between_two_pages_is_found_at_a_second_look(
    server: FlickrServer,
) -> None:
    server.photos = spread(30, YEAR)
    server.most = 1000
    for shuffled, questions in ((2, 2), (1, 4)):
        before = server.hits()
        server.shuffles = shuffled
        # After 1, the second answer repeats the first one's last photo and leaves one out.
        hits = [hit.locator for hit in found(server, page=20, most=1000)]
        assert len(set(hits)) == len(hits) == 30
        assert server.hits() - before == questions


@pytest.mark.parametrize("code", [10, 105, 201])
def test_a_service_that_is_away_for_now_is_asked_again(server: FlickrServer, code: int) -> None:
    server.photos = spread(3, YEAR)
    server.faults = [fail(code, "Service currently unavailable")] * 2
    assert len(list(found(server))) == 3
    assert server.hits() == 3


def test_other_errors_end_the_search_in_one_line(server: FlickrServer) -> None:
    server.faults = [fail(18, "Illogical arguments\nreally")]
    with pytest.raises(SourceError, match="flickr: error 18: Illogical arguments really"):
        list(found(server))
    assert server.hits() == 1


def test_a_page_that_lies_too_deep_ends_its_window_and_not_the_search(
    server: FlickrServer,
) -> None:
    server.most, server.deep_error = 10, True
    server.photos = [*spread(15, 60), photo(99, START + 2 * YEAR)]
    locators = [hit.locator for hit in found(server, page=5, most=20)]
    assert len(locators) == 11
    assert locators[-1] == "photos/99"


def test_a_key_that_is_not_accepted_is_told_without_the_key(server: FlickrServer) -> None:
    secret = "a-secret-key-of-somebody"
    with pytest.raises(UsageError, match="FLICKR_API_KEY.*Invalid API Key") as caught:
        list(found(server, key=secret))
    assert caught.value.exit_code == 2
    assert secret not in str(caught.value)
    assert server.hits() == 1
    server.faults = [fail(100, "x" * 190 + secret)]
    with pytest.raises(UsageError) as caught:
        list(found(server, key=secret))
    assert secret[:5] not in str(caught.value)


def test_no_error_of_the_way_there_shows_the_key(server: FlickrServer) -> None:
    server.on("/services/rest/", lambda exchange: exchange.send(403, b"<html>no</html>"))
    with pytest.raises(SourceError, match="403") as caught:
        list(found(server))
    told: BaseException | None = caught.value
    while told is not None:
        assert KEY not in str(told)
        told = None if told.__suppress_context__ else told.__context__


def test_the_key_comes_from_the_environment() -> None:
    with pytest.raises(UsageError, match="set FLICKR_API_KEY"):
        flickr.connect(None, "https://api.flickr.com/services/rest/", {"FLICKR_API_KEY": " "})  # type: ignore[arg-type]
    source = flickr.connect(None, "https://api.flickr.com", {"FLICKR_API_KEY": KEY})  # type: ignore[arg-type]
    assert source.name == flickr.NAME == "flickr"
    assert KEY not in repr(source)


def test_a_page_is_asked_for_only_when_its_hits_are_wanted(server: FlickrServer) -> None:
    server.photos = spread(30, YEAR)
    hits = found(server, page=10, most=100)
    assert server.hits() == 0
    list(itertools.islice(hits, 10))
    assert server.hits() == 1
    next(hits)
    assert server.hits() == 2


BROKEN: list[dict[str, Any]] = [
    photo(1001, START + 5, title=["a", "b"]),
    photo(1002, START + 10**7, license="free"),
    photo(1003, START + 2 * 10**7, url_l="ftp://example.org/1.jpg"),
    photo(1004, START + 3 * 10**7, id={"_content": ""}),
    photo(1006, START + 3 * 10**7, id=None),
]


def test_broken_records_are_refused_by_name_and_the_search_goes_on(server: FlickrServer) -> None:
    video = photo(7, START + 9, media="video")
    bare = {k: v for k, v in photo(9, START + 11).items() if not k.startswith("url_")}
    server.photos = [*BROKEN, bare, photo(2000, START + 4 * 10**7)]
    hits = list(found(server))
    assert [hit.locator for hit in hits if hit.refusal is None] == ["photos/2000"]
    refused = {hit.locator: hit.refusal for hit in hits if hit.refusal}
    assert {r.reason for r in refused.values()} == {"malformed-record"}
    assert len(refused) == 6
    assert {f"photos/{n}" for n in (9, 1001, 1002, 1003)} <= set(refused)
    assert refused["photos/1002"].detail.startswith("license: input should be a valid integer")
    server.photos = []
    server.faults = [{"stat": "ok", "photos": {"total": 1, "photo": [video]}}]
    assert [str(hit.refusal) for hit in found(server)] == ["malformed-record: media: no photo"]


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({"stat": "ok"}, "photos"),
        ({"stat": "ok", "photos": {"total": "lots", "photo": []}}, "photos.total"),
        ({"stat": "ok", "photos": {"total": 3, "photo": {}}}, "photos.photo"),
        ([], "the whole"),
    ],
)
def test_an_answer_of_another_form_ends_the_search_in_one_line(
    server: FlickrServer, answer: Any, field: str
) -> None:
    server.faults = [answer]
    with pytest.raises(SourceError, match=f"flickr: .*{field}: ") as caught:
        list(found(server))
    assert "\n" not in str(caught.value)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    times=st.lists(st.integers(0, 5) | st.integers(0, 10 * YEAR), min_size=1, max_size=60),
    licences=st.none() | st.just(frozenset({"CC-BY-2.0", "CC0-1.0", "CC-BY-4.0"})),
    broken=st.booleans(),
    stop=st.integers(0, 80),
)
def test_wherever_a_search_stops_its_rest_is_found_from_the_last_cursor(
    server: FlickrServer,
    times: list[int],
    licences: frozenset[str] | None,
    broken: bool,
    stop: int,
) -> None:
    server.most = 12
    numbers = [4, 9, 11]
    server.photos = [photo(n, START + t, numbers[n % 3]) for n, t in enumerate(times, start=1)]
    server.photos += BROKEN if broken else []
    whole = list(found(server, page=4, most=12, licences=licences))
    assert len({hit.locator for hit in whole}) == len(whole)
    before = list(itertools.islice(found(server, page=4, most=12, licences=licences), stop))
    cursor = before[-1].cursor if before else None
    after = list(found(server, page=4, most=12, licences=licences, cursor=cursor))
    assert {_outcome(h) for h in [*before, *after]} == {_outcome(h) for h in whole}


def _outcome(hit: Hit) -> tuple[str, str | None, str | None]:
    return hit.locator, hit.url, hit.refusal and str(hit.refusal)


def test_uploads_after_a_finished_search_are_found_from_its_last_cursor(
    server: FlickrServer,
) -> None:
    server.photos = spread(20, YEAR)
    until = (("max_upload_date", str(START + YEAR)),)
    *_, last = found(server, page=4, most=12, options=until)
    server.photos.append(photo(99, START + 2 * YEAR))
    locators = {hit.locator for hit in found(server, page=4, most=12, cursor=last.cursor)}
    assert "photos/99" in locators
    assert len(locators) < 21
