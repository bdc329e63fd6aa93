"""iNaturalist against a server that answers as its API does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.errors import (
    AmbiguousNameError,
    QuotaExhausted,
    SourceError,
    UnknownNameError,
    UsageError,
)
from curate.licences import parse
from curate.sources import inaturalist
from curate.sources.inaturalist import Inaturalist
from curate.sources.protocol import Hit, Query
from tests.sources.clients import Waits, client, lasting_client
from tests.sources.inaturalist_server import (
    ANISOPTERA,
    HIDDEN,
    ODONATA,
    THROTTLED,
    TREES,
    InaturalistServer,
    observation,
    photo,
)

OPEN = "https://inaturalist-open-data.s3.amazonaws.com"
CLOSED = "https://static.inaturalist.org"
DRAGONFLY = "n02268443"


@pytest.fixture
def server() -> Iterator[InaturalistServer]:
    with InaturalistServer() as server:
        yield server


def found(server: InaturalistServer, page: int = 200, **query: Any) -> Iterator[Hit]:
    source = Inaturalist(lasting_client(server), server.api, page=page)
    return source.search(Query(**{"wnid": DRAGONFLY, "text": str(ANISOPTERA), **query}))


def many(count: int, photos: int = 1) -> list[dict[str, Any]]:
    return [
        observation(n * 7, [photo(n * 10 + k, "cc-by", OPEN) for k in range(photos)])
        for n in range(1, count + 1)
    ]


def test_each_photo_is_a_hit_with_its_own_licence_author_page_and_title(
    server: InaturalistServer,
) -> None:
    server.observations = [
        observation(
            70,
            [
                photo(1, "cc-by-nc", OPEN, "jpeg"),
                photo(2, None, CLOSED, "JPG?1598551272", attribution_name="Someone Else"),
            ],
        ),
        observation(80, [photo(3, "cc0", OPEN)], user={"login": "observer_two", "name": None}),
    ]
    hits = list(found(server))
    assert [(hit.source, hit.label, hit.refusal) for hit in hits] == [
        ("inaturalist", DRAGONFLY, None)
    ] * 3
    assert [(hit.locator, hit.url, hit.page, hit.author, hit.licence) for hit in hits] == [
        (
            "photos/1",
            f"{OPEN}/photos/1/large.jpeg",
            "https://www.inaturalist.org/observations/70",
            "Observer One",
            "CC-BY-NC-4.0",
        ),
        (
            "photos/2",
            f"{CLOSED}/photos/2/large.JPG?1598551272",
            "https://www.inaturalist.org/observations/70",
            "Someone Else",
            "all rights reserved",
        ),
        (
            "photos/3",
            f"{OPEN}/photos/3/large.jpg",
            "https://www.inaturalist.org/observations/80",
            "observer_two",
            "CC0-1.0",
        ),
    ]
    assert {hit.title for hit in hits} == {"Anisoptera"}


@pytest.mark.parametrize(
    ("code", "licence"),
    [
        *inaturalist.LICENCES.items(),
        ("CC-BY", "CC-BY-4.0"),
        (None, "LicenseRef-all-rights-reserved"),
        ("pd", "LicenseRef-public-domain"),
        ("gfdl", "LicenseRef-unknown"),
    ],
)
def test_a_code_is_told_so_that_the_licence_is_known(
    server: InaturalistServer, code: str | None, licence: str
) -> None:
    server.observations = [observation(1, [photo(1, code, OPEN)])]
    assert [parse(hit.licence).id for hit in found(server)] == [licence]


def test_a_record_that_says_nothing_of_its_licence_is_not_taken_to_reserve_all_rights(
    server: InaturalistServer,
) -> None:
    silent = photo(1, "cc-by", OPEN)
    del silent["license_code"]
    server.observations = [observation(1, [silent])]
    assert [hit.licence for hit in found(server)] == [None]


def test_licences_are_sent_along_and_each_photo_still_tells_its_own(
    server: InaturalistServer,
) -> None:
    server.observations = [
        observation(1, [photo(1, "cc-by", OPEN), photo(2, "cc-by-nc", OPEN)]),
        observation(2, [photo(3, "cc-by-nc", OPEN)]),
        observation(3, [photo(4, "cc0", OPEN)]),
    ]
    hits = list(found(server, licences=frozenset({"CC-BY-4.0", "CC0-1.0", "MIT"})))
    assert server.asked()[0]["photo_license"] == "cc0,cc-by"
    assert [(hit.locator, hit.licence) for hit in hits] == [
        ("photos/1", "CC-BY-4.0"),
        ("photos/2", "CC-BY-NC-4.0"),
        ("photos/4", "CC0-1.0"),
    ]


def test_no_licence_that_the_site_knows_is_an_error_before_any_question(
    server: InaturalistServer,
) -> None:
    with pytest.raises(UsageError, match="under any of the licences"):
        found(server, licences=frozenset({"CC-BY-2.0"}))
    assert server.hits() == 0


def test_what_is_no_photo_of_the_observation_is_refused(server: InaturalistServer) -> None:
    server.observations = [
        observation(
            1,
            [
                photo(1, "cc-by", OPEN, url=HIDDEN, hidden=True),
                photo(2, "cc-by", OPEN, url=HIDDEN),
                photo(3, "cc-by", OPEN, url=f"{OPEN}/photos/4/square.jpg"),
                photo(5, "cc-by", OPEN, url="file:///photos/5/square.jpg"),
                photo(6, "cc-by", OPEN, hidden=True),
                photo(7, "cc-by", OPEN),
            ],
        )
    ]
    hits = list(found(server))
    reasons = [hit.refusal.reason if hit.refusal else None for hit in hits]
    odd = "malformed-record"
    assert reasons == ["placeholder", odd, odd, odd, "placeholder", None]
    assert [hit.locator for hit in hits] == [f"photos/{n}" for n in (1, 2, 3, 5, 6, 7)]
    assert [hit.url for hit in hits[:5]] == [None] * 5


@pytest.mark.parametrize(
    ("text", "options", "number"),
    [
        ("Carduelis carduelis", (), 9424),
        ("carduelis  CARDUELIS", (), 9424),
        ("American Goldfinch", (), 9398),
        ("dragonflies", (), ANISOPTERA),
        ("Wild Canary", (), 9398),
        ("Anisoptera", (("taxon_rank", "suborder"),), ANISOPTERA),
        ("Anisoptera", (("taxon_rank", "Genus"),), TREES),
    ],
)
def test_a_taxon_is_found_by_the_whole_of_its_name(
    server: InaturalistServer, text: str, options: tuple[tuple[str, str], ...], number: int
) -> None:
    list(found(server, text=text, options=options))
    assert [asked["taxon_id"] for asked in server.asked()] == [str(number)]
    (asked,) = server.asked("/v1/taxa")
    assert asked["is_active"] == "true"


def test_a_number_is_taken_for_the_taxon_as_it_is(server: InaturalistServer) -> None:
    list(found(server, text=str(ODONATA)))
    assert server.asked("/v1/taxa") == []
    assert server.asked()[0]["taxon_id"] == str(ODONATA)


def test_a_name_of_several_taxa_is_an_error_that_lists_them(server: InaturalistServer) -> None:
    with pytest.raises(AmbiguousNameError) as caught:
        list(found(server, text="Anisoptera"))
    assert f"{ANISOPTERA} (suborder Anisoptera), {TREES} (genus Anisoptera)" in str(caught.value)
    with pytest.raises(AmbiguousNameError, match="8010"):
        list(found(server, text="spreadwings"))
    assert server.asked() == []


@pytest.mark.parametrize("text", ["Goldfinch", "Carduelis tristis", "Nessie"])
def test_part_of_a_name_and_names_no_longer_in_use_find_no_taxon(
    server: InaturalistServer, text: str
) -> None:
    with pytest.raises(UnknownNameError, match="unknown taxon"):
        list(found(server, text=text))


def test_an_unknown_name_comes_with_the_nearest_ones(server: InaturalistServer) -> None:
    with pytest.raises(UnknownNameError, match="did you mean Carduelis carduelis"):
        list(found(server, text="Carduelis cardueli"))


def test_research_grade_is_asked_for_unless_told_otherwise(server: InaturalistServer) -> None:
    server.observations = [
        observation(1, [photo(1, "cc-by", OPEN)]),
        observation(2, [photo(2, "cc-by", OPEN)], quality_grade="casual", captive=True),
    ]

    def locators(*options: tuple[str, str]) -> list[str]:
        return [hit.locator for hit in found(server, options=options)]

    assert locators() == ["photos/1"]
    assert locators(("quality_grade", "casual")) == ["photos/2"]
    assert locators(("quality_grade", "any")) == ["photos/1", "photos/2"]
    assert locators(("quality_grade", "any"), ("captive", "false")) == ["photos/1"]


def test_other_options_reach_the_api_and_unknown_ones_are_errors(server: InaturalistServer) -> None:
    list(found(server, options=(("place_id", "1"), ("d1", "2020-01-01"), ("term_id", "1"))))
    asked = server.asked()[0]
    assert (asked["place_id"], asked["d1"], asked["term_id"]) == ("1", "2020-01-01", "1")
    assert "d2" not in asked
    with pytest.raises(UnknownNameError, match="did you mean place_id"):
        found(server, options=(("place", "1"),))
    with pytest.raises(UnknownNameError, match="large, original, medium"):
        found(server, options=(("size", "huge"),))
    with pytest.raises(UsageError, match="needs a taxon"):
        found(server, text="  ")


def test_the_size_can_be_chosen(server: InaturalistServer) -> None:
    server.observations = [observation(1, [photo(1, "cc-by", OPEN, "png")])]
    hits = found(server, options=(("size", "original"),))
    assert [hit.url for hit in hits] == [f"{OPEN}/photos/1/original.png"]


def test_a_page_is_asked_for_only_when_its_hits_are_wanted(server: InaturalistServer) -> None:
    server.observations = many(12)
    hits = found(server, page=5)
    assert server.hits() == 0
    assert len(list(itertools.islice(hits, 5))) == 5
    assert len(server.asked()) == 1
    next(hits)
    assert [asked["id_above"] for asked in server.asked()] == ["0", "35"]
    assert len(list(hits)) == 6
    assert len(server.asked()) == 3


def test_a_search_goes_on_behind_the_10000_that_pages_reach(server: InaturalistServer) -> None:
    server.observations = many(10_050)
    asked = {"taxon_id": str(ANISOPTERA), "per_page": "200", "page": "51"}
    with pytest.raises(SourceError, match="window is too large"):
        lasting_client(server).get_json(f"{server.api}/observations", asked)
    assert len({hit.locator for hit in found(server)}) == 10_050


def test_a_search_that_goes_on_does_not_look_the_taxon_up_again(server: InaturalistServer) -> None:
    server.observations = many(4)
    first = next(found(server, text="dragonflies"))
    rest = list(found(server, text="dragonflies", cursor=first.cursor))
    assert [hit.locator for hit in rest] == ["photos/20", "photos/30", "photos/40"]
    assert len(server.asked("/v1/taxa")) == 1


BROKEN: list[dict[str, Any]] = [
    observation(100, []) | {"photos": None},
    {"_id": 101, "id": "one hundred and one", "photos": []},
    {"_id": 102, "photos": []},
    {"_id": 103, "id": 103, "photos": {"1": "cc-by"}},
    observation(104, [photo(1040, "cc-by", OPEN), photo(1041, "cc-by", OPEN, license_code=4)]),
    observation(105, [photo(1050, "cc-by", OPEN), "a photo", {"id": [], "url": 3}]),
    observation(106, [photo(1060, "cc-by", OPEN, hidden="perhaps")]),
    observation(107, [photo(1070, "cc-by", OPEN)], user={"login": {"name": "x"}}),
    observation(108, []),
]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    photos=st.lists(st.integers(1, 3), min_size=1, max_size=9),
    broken=st.sets(st.sampled_from(range(len(BROKEN)))),
    page=st.integers(1, 7),
    stop=st.integers(0, 40),
)
def test_wherever_a_search_stops_its_rest_is_found_from_the_last_cursor(
    server: InaturalistServer, photos: list[int], broken: set[int], page: int, stop: int
) -> None:
    # A page that holds nothing but records without an id ends a search: see the test of that.
    page = max(page, 1 + len(broken & {1, 2}))
    server.observations = [
        observation(90 + 3 * n, [photo(n * 10 + k, "cc-by", OPEN) for k in range(count)])
        for n, count in enumerate(photos, start=1)
    ]
    taken = {one["id"] for one in server.observations}
    server.observations += [
        BROKEN[n] for n in sorted(broken) if BROKEN[n].get("_id", BROKEN[n].get("id")) not in taken
    ]
    for one in server.observations:
        one.setdefault("_id", one.get("id"))
    whole = [_outcome(hit) for hit in found(server, page=page)]
    assert len(whole) >= sum(photos)
    before = list(itertools.islice(found(server, page=page), stop))
    cursor = before[-1].cursor if before else None
    after = list(found(server, page=page, cursor=cursor))
    assert {_outcome(hit) for hit in [*before, *after]} == set(whole)


def _outcome(hit: Hit) -> tuple[str, str | None, str | None]:
    return hit.locator, hit.url, hit.refusal and str(hit.refusal)


def test_broken_records_are_refused_by_name_and_the_search_goes_on(
    server: InaturalistServer,
) -> None:
    server.observations = [*BROKEN, observation(200, [photo(2000, "cc-by", OPEN)])]
    for one in server.observations:
        one.setdefault("_id", one.get("id"))
    hits = list(found(server))
    good = [hit.locator for hit in hits if hit.refusal is None]
    assert good == ["photos/1040", "photos/1050", "photos/2000"]
    refused = {hit.locator: hit.refusal for hit in hits if hit.refusal}
    assert {r.reason for r in refused.values()} == {"malformed-record"}
    assert {"observations/100", "observations/103", "photos/1041", "photos/1060"} <= set(refused)
    assert len(refused) == 9
    assert refused["photos/1041"].detail == "license_code: input should be a valid string"


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({"results": []}, "total_results"),
        ({"total_results": 5, "results": "none"}, "results"),
        ({"total_results": "many", "results": []}, "total_results"),
        ([], "the whole"),
        (None, "the whole"),
    ],
)
def test_an_answer_of_another_form_ends_the_search_in_one_line(
    server: InaturalistServer, answer: Any, field: str
) -> None:
    server.faults = [(200, {}, answer)]
    with pytest.raises(SourceError, match=f"inaturalist: .*{field}: ") as caught:
        list(found(server))
    assert "\n" not in str(caught.value)


def test_a_taxon_of_another_form_ends_the_search_too(server: InaturalistServer) -> None:
    server.faults = [(200, {}, {"results": [{"id": 1, "name": {"la": "Odonata"}}]})]
    with pytest.raises(SourceError, match=r"results\.0\.name"):
        list(found(server, text="Odonata"))


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ([{"photos": []}, {"photos": []}], "has a readable id"),
        ([observation(9, []), observation(8, [])], "not in the order of id"),
    ],
)
def test_answers_that_would_never_end_are_errors(
    server: InaturalistServer, results: list[Any], said: str
) -> None:
    server.faults = [(200, {}, {"total_results": 900, "results": results})] * 5
    with pytest.raises(SourceError, match=said):
        list(found(server))
    assert server.hits() == 1


def test_throttling_and_broken_servers_are_waited_for(server: InaturalistServer) -> None:
    server.observations = many(3)
    waits = Waits()
    server.faults = [
        (429, {"Retry-After": "7"}, THROTTLED),
        (500, {}, {"error": "Internal Server Error", "status": 500}),
    ]
    source = Inaturalist(client(server, waits), server.api)
    assert len(list(source.search(Query(DRAGONFLY, str(ANISOPTERA))))) == 3
    assert len(server.asked()) == 3
    assert waits.slept >= 7


def test_a_quota_that_ends_in_the_middle_says_when_to_come_back_and_loses_nothing(
    server: InaturalistServer,
) -> None:
    server.observations = many(12)
    hits = found(server, page=5)
    before = list(itertools.islice(hits, 5))
    server.faults = [(429, {"Retry-After": "3600"}, THROTTLED)]
    with pytest.raises(QuotaExhausted) as caught:
        next(hits)
    assert caught.value.until is not None
    source = Inaturalist(client(server), server.api, page=5)
    after = source.search(Query(DRAGONFLY, str(ANISOPTERA), cursor=before[-1].cursor))
    locators = [hit.locator for hit in (*before, *after)]
    assert locators == [f"photos/{n * 10}" for n in range(1, 13)]


def test_an_unknown_number_is_told_in_one_line(server: InaturalistServer) -> None:
    with pytest.raises(SourceError, match=r"422.*Unprocessable Entity") as caught:
        list(found(server, text="999999"))
    assert "\n" not in str(caught.value)


def test_it_connects_without_a_key_and_states_its_owners_rules() -> None:
    source = inaturalist.connect(None, "https://api.inaturalist.org/v1", {})  # type: ignore[arg-type]
    assert source.name == inaturalist.NAME == "inaturalist"
    assert inaturalist.NEEDS_CONTACT
    api, media = inaturalist.HOSTS
    assert (api.host, api.per_second * 60 <= 60) == ("api.inaturalist.org", True)
    assert api.per_day is not None
    assert api.per_day < 10_000
    # 0.6 MB a photo: 5 GB an hour, 24 GB a day.
    assert all(
        map(media.covers, ("inaturalist-open-data.s3.amazonaws.com", "static.inaturalist.org"))
    )
    assert media.per_second * 3600 * 0.6e6 <= 5e9
    assert media.per_day is not None
    assert media.per_day * 0.6e6 <= 24e9
