"""iNaturalist: photos of wild organisms, each identified by several people.

A search names a taxon, by its scientific name, a common name or its number, and finds the photos of
its observations and of those of all taxa below it. Observations come in the order of their
numbers, which are never given anew, so that a search goes on where an earlier one stopped.

The service is made for applications: at most 60 questions a minute and 10,000 a day, 5 GB of photos
an hour and 24 GB a day, and a User-Agent that says who asks. Whoever needs more takes the sets that
it publishes for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from curate.errors import (
    AmbiguousNameError,
    ImageRefused,
    SourceError,
    UnknownNameError,
    UsageError,
)
from curate.sources.answers import Record, malformed, understood, whole_number
from curate.sources.hit_parts import options_of, unnamed
from curate.sources.host_rules import HostRule
from curate.sources.protocol import Cursor, Hit, Query, Source, clean

if TYPE_CHECKING:
    from curate.sources.api import ApiClient

NAME = "inaturalist"

#: Its terms ask for a User-Agent with a contact.
NEEDS_CONTACT = True

#: The limits on photos count bytes, of all their hosts together. These numbers keep them where a
#: photo has 0.6 MB or less, which the size "large" stays well below.
HOSTS = (
    HostRule("api.inaturalist.org", concurrency=1, per_second=1.0, per_day=9_500, robots=False),
    HostRule(
        "inaturalist-open-data.s3.amazonaws.com",
        concurrency=2,
        per_second=2.0,
        per_day=40_000,
        robots=False,
        also=("static.inaturalist.org",),
    ),
)

#: Its codes name no version: it offers version 4.0 of all of them.
LICENCES = {
    "cc0": "CC0-1.0",
    "cc-by": "CC-BY-4.0",
    "cc-by-sa": "CC-BY-SA-4.0",
    "cc-by-nd": "CC-BY-ND-4.0",
    "cc-by-nc": "CC-BY-NC-4.0",
    "cc-by-nc-sa": "CC-BY-NC-SA-4.0",
    "cc-by-nc-nd": "CC-BY-NC-ND-4.0",
}

#: Options that are handed to the API as they are.
PASSED_ON = (
    "without_taxon_id",
    "quality_grade",
    "captive",
    "identifications",
    "rank",
    "hrank",
    "lrank",
    "place_id",
    "d1",
    "d2",
    "created_d1",
    "created_d2",
    "updated_since",
    "term_id",
    "term_value_id",
)

#: Longest side of a photo: 1024, 2048 and 500 pixels.
SIZES = ("large", "original", "medium")

_PAGE = 200
_PHOTO = re.compile(
    r"(?P<before>https?://[^/?#\s]+/photos/(?P<id>\d+)/)"
    r"(?:square|thumb|small|medium|large|original)(?P<after>\.[A-Za-z]+(?:\?\d*)?)"
)


class _Taxon(Record):
    id: int
    name: str
    rank: str = ""
    is_active: bool = True
    preferred_common_name: str | None = None
    matched_term: str | None = None


class _Taxa(Record):
    results: list[_Taxon]


class _User(Record):
    login: str
    name: str | None = None


class _Name(Record):
    name: str | None = None


class _Observation(Record):
    id: int
    photos: list[Any]
    user: _User | None = None
    taxon: _Name | None = None


class _Photo(Record):
    id: int
    url: str
    license_code: str | None = None
    attribution_name: str | None = None
    hidden: bool = False


class _Page(Record):
    total_results: int
    results: list[Any]


class _Place(Record):
    taxon: int
    above: int = 0


@dataclass(frozen=True)
class _Asked:
    """A search's own words, checked."""

    text: str
    rank: str
    size: str
    parameters: dict[str, str]


class Inaturalist:
    """The source "inaturalist".

    Options of a query are those of `PASSED_ON`; `taxon_rank`, to tell apart taxa of one name
    ("suborder"); and `size`, one of `SIZES`. `quality_grade` is "research" unless given: what
    several people agree on. Pets, farm animals, and garden and food plants never reach that grade:
    they want "casual", or "any".

    The size is "large" unless given: classifiers look at 256 pixels, and the owner counts bytes.
    With "original" the limits of bytes are nearer than those of `HOSTS`.

    Args:
        client: asks the API.
        url: the API's address.
        page: observations in one answer, at most 200.
    """

    name = NAME

    def __init__(self, client: ApiClient, url: str, *, page: int = _PAGE) -> None:
        self._client, self._url, self._page_size = client, url.rstrip("/"), page

    def search(self, query: Query) -> Iterator[Hit]:
        """Find the photos of a taxon, page by page as they are asked for.

        One hit is one photo with its own licence, which may be none of those asked for: the API
        finds observations with at least one such photo.

        Raises:
            SourceError: the API answers with an error, or in a form that is not understood.
            QuotaExhausted: it wants no further question before a time.
            UsageError: no such taxon, several of that name, or an unusable option.
        """
        asked = _asked(query)
        place = None
        if query.cursor is not None:
            place = understood(_Place, query.cursor, NAME, "the stored place of the search")
        return self._walk(query.wnid, asked, place)

    def _walk(self, label: str, asked: _Asked, place: _Place | None) -> Iterator[Hit]:
        place = place or _Place(taxon=self._taxon(asked))
        while True:
            page = self._page(asked, place)
            last = place.above
            for raw in page.results:
                try:
                    observation = _Observation.model_validate(raw)
                except ValidationError as error:
                    number = whole_number(raw, "id")
                    yield Hit(
                        NAME,
                        f"observations/{number or unnamed(raw)}",
                        label,
                        refusal=malformed(error),
                        cursor=_cursor(place, number or last),
                    )
                    last = number or last
                    continue
                if observation.id <= last:
                    raise SourceError(f"{NAME}: the answer is not in the order of id")
                for index, photo in enumerate(observation.photos, start=1):
                    whole = index == len(observation.photos)
                    cursor = _cursor(place, observation.id if whole else last)
                    yield _hit(label, asked.size, observation, photo, cursor)
                last = observation.id
            if page.total_results <= len(page.results) or not page.results:
                return
            if last == place.above:
                raise SourceError(f"{NAME}: no observation after {last} has a readable id")
            place = _Place(taxon=place.taxon, above=last)

    def _page(self, asked: _Asked, place: _Place) -> _Page:
        parameters = {
            **asked.parameters,
            "taxon_id": str(place.taxon),
            "photos": "true",
            "order_by": "id",
            "order": "asc",
            "per_page": str(self._page_size),
            "id_above": str(place.above),
        }
        return understood(
            _Page, self._client.get_json(f"{self._url}/observations", parameters), NAME
        )

    def _taxon(self, asked: _Asked) -> int:
        """The number of the one active taxon that carries exactly this name."""
        text = asked.text
        if text.isascii() and text.isdigit() and len(text) < 12:
            return int(text)
        parameters = {"q": text, "is_active": "true", "per_page": "200"}
        answer = self._client.get_json(f"{self._url}/taxa", parameters)
        taxa = [taxon for taxon in understood(_Taxa, answer, NAME).results if taxon.is_active]
        for field in ("name", "preferred_common_name", "matched_term"):
            found = {t.id: t for t in taxa if _same(getattr(t, field), text)}
            # Sources differ in ranks (suborder or infraorder), so a rank only tells apart.
            ranked = {t.id: t for t in found.values() if _same(t.rank, asked.rank)}
            if len(ranked) == 1:
                found = ranked
            if len(found) > 1:
                matches = [f"{t.id} ({t.rank} {t.name})" for t in found.values()]
                raise AmbiguousNameError("taxon", text, [clean(match) or "" for match in matches])
            if found:
                return next(iter(found))
        names = [name for t in taxa for name in (t.name, t.preferred_common_name) if name]
        note = "write a scientific name, or a taxon's number"
        raise UnknownNameError("taxon", text, names, note=note)


def connect(client: ApiClient, url: str, environ: Mapping[str, str]) -> Source:
    """The source as the settings and the environment describe it; it takes no key.

    Args:
        client: asks the API.
        url: the API's address.
        environ: the environment variables.
    """
    return Inaturalist(client, url)


def _asked(query: Query) -> _Asked:
    text = " ".join(query.text.split())
    if not text:
        raise UsageError(f"{NAME} needs a taxon: a scientific name, or a taxon's number")
    defaults = {"size": SIZES[0], "taxon_rank": "", **dict.fromkeys(PASSED_ON, "")}
    options = options_of(query, defaults | {"quality_grade": "research"}, NAME)
    if options["size"] not in SIZES:
        note = f"there are {', '.join(SIZES)}"
        raise UnknownNameError(f"size of {NAME}", options["size"], SIZES, note=note)
    if options["quality_grade"] == "any":
        options["quality_grade"] = ""
    parameters = {name: options[name] for name in PASSED_ON if options[name]}
    if query.licences is not None:
        codes = [code for code, licence in LICENCES.items() if licence in query.licences]
        if not codes:
            raise UsageError(f"{NAME} has no photos under any of the licences asked for")
        parameters["photo_license"] = ",".join(codes)
    return _Asked(text, options["taxon_rank"].strip().lower(), options["size"], parameters)


def _cursor(place: _Place, above: int) -> Cursor:
    return {"taxon": place.taxon, "above": above}


def _same(name: str | None, text: str) -> bool:
    return name is not None and " ".join(name.casefold().split()) == text.casefold()


def _hit(label: str, size: str, observation: _Observation, raw: Any, cursor: Cursor) -> Hit:
    page = f"https://www.inaturalist.org/observations/{observation.id}"
    try:
        photo = _Photo.model_validate(raw)
    except ValidationError as error:
        number = whole_number(raw, "id")
        return Hit(
            NAME,
            f"photos/{number or unnamed(raw)}",
            label,
            page=page,
            refusal=malformed(error),
            cursor=cursor,
        )
    refusal = None
    address = _PHOTO.fullmatch(photo.url)
    if photo.hidden:
        refusal = ImageRefused("placeholder", "hidden by the site")
    elif address is None or int(address["id"]) != photo.id:
        refusal = ImageRefused("malformed-record", "url: not the address of this photo")
    user = observation.user
    return Hit(
        NAME,
        f"photos/{photo.id}",
        label,
        url=None if refusal or not address else f"{address['before']}{size}{address['after']}",
        page=page,
        title=clean(observation.taxon.name if observation.taxon else None),
        author=clean(photo.attribution_name) or (clean(user.name or user.login) if user else None),
        licence=_licence(photo),
        refusal=refusal,
        cursor=cursor,
    )


def _licence(photo: _Photo) -> str | None:
    code = photo.license_code
    if code is None:
        # Only null says that all rights are reserved; a record without the field says nothing.
        return "all rights reserved" if "license_code" in photo.model_fields_set else None
    code = code.strip().lower()
    return LICENCES.get(code) or ("public domain" if code == "pd" else clean(code))
