"""Flickr: people's photos, found by words in their titles, descriptions and tags.

One search shows 4,000 photos at most and repeats them from there on. So a search runs through
windows of upload dates, each narrow enough to be shown whole, from the oldest to the newest; what
was uploaded within a few minutes is divided by licence. What cannot be shown even so is said.
Answers come in an order that changes between two questions: within a window a photo counts once,
and a window of several pages in which some are missing is read a second time.

It needs a key, which is free for non-commercial use, and allows 3,600 questions an hour for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from curate.errors import SourceError, UnknownNameError, UsageError
from curate.licences import parse
from curate.progress import say
from curate.sources.answers import Record, understood, whole_number
from curate.sources.flickr_photos import LICENCES, NAME, SIZES, hit_of
from curate.sources.hit_parts import options_of
from curate.sources.host_rules import HostRule
from curate.sources.protocol import Cursor, Hit, Query, Source, clean

if TYPE_CHECKING:
    from curate.sources.api import ApiClient

NEEDS_CONTACT = False
KEY = "FLICKR_API_KEY"

#: 3,600 questions an hour; for the hosts of photos, which count as one, the owner names no number.
HOSTS = (
    HostRule("api.flickr.com", concurrency=1, per_second=1.0, robots=False),
    HostRule("staticflickr.com", concurrency=2, per_second=2.0, robots=False),
)

#: Options that are handed to the API as they are.
PASSED_ON = (
    "tags",
    "tag_mode",
    "min_taken_date",
    "max_taken_date",
    "content_types",
    "is_commons",
    "in_gallery",
)

_PAGE = 500
_MOST = 4000
_NARROWEST = 300
#: The service began in February 2004.
_BEGINNING = int(datetime(2004, 1, 1, tzinfo=UTC).timestamp())
_AGAIN = frozenset((10, 105, 201))
_BAD_KEY = 100
_TOO_DEEP = 20


class _Page(Record):
    total: int
    photo: list[Any]


class _Answer(Record):
    photos: _Page


class _Place(Record):
    since: int
    until: int
    licence: int | None = None


class _TooDeep(SourceError):
    """The API shows no page as far behind as this."""


@dataclass(frozen=True)
class _Window:
    """Photos uploaded between two seconds, both included, under some licences (None: any)."""

    since: int
    until: int
    licences: tuple[int, ...] | None

    def __str__(self) -> str:
        since, until = (datetime.fromtimestamp(t, UTC) for t in (self.since, self.until))
        return f"{since:%Y-%m-%d %H:%M:%S} and {until:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True)
class _Asked:
    """A search's own words, checked."""

    label: str
    size: str
    whole: _Window
    parameters: dict[str, str]


class Flickr:
    """The source "flickr".

    Options of a query are those of `PASSED_ON`; `min_upload_date` and `max_upload_date`, in seconds
    since 1970 or as "2012-07-11" or "2012-07-11 20:00:00" in UTC; and `size`: "large" unless given,
    or "original". Classifiers look at 256 pixels: 1024 are plenty, and a fraction of an original's
    bytes.

    Args:
        client: asks the API.
        url: the API's address.
        key: the API key; never shown.
        page: photos in one answer, at most 500.
        most: photos that one search shows.
    """

    name = NAME

    def __init__(
        self, client: ApiClient, url: str, key: str, *, page: int = _PAGE, most: int = _MOST
    ) -> None:
        self._client, self._url, self._key = client, url, key
        self._page_size, self._most = page, most

    def search(self, query: Query) -> Iterator[Hit]:
        """Find photos by words, from the oldest upload to the newest, as they are asked for.

        A search that goes on from a cursor reads the cursor's window from its beginning.

        Raises:
            SourceError: the API answers with an error, or in a form that is not understood.
            QuotaExhausted: it wants no further question before a time.
            UsageError: the API does not accept the key, or an option is unusable.
        """
        asked = _asked(query)
        place = None
        if query.cursor is not None:
            place = understood(_Place, query.cursor, NAME, "the stored place of the search")
        return self._walk(asked, place)

    def _walk(self, asked: _Asked, place: _Place | None) -> Iterator[Hit]:
        """Hits window by window; each is as wide as the last one, or double if that had few."""
        # They return more than they report: a window that they count at the limit is over it.
        few = self._most * 3 // 4
        end = asked.whole.until
        window = asked.whole
        if place is not None:
            window = replace(window, since=place.since, until=min(place.until, end))
        while window.since <= window.until:
            first = self._page(asked, window, 1)
            while first.total > few and window.until - window.since >= _NARROWEST:
                middle = window.since + (window.until - window.since) // 2
                window = replace(window, until=middle)
                first = self._page(asked, window, 1)
            if first.total > self._most:
                yield from self._by_licence(asked, window, place.licence if place else None)
            else:
                yield from self._photos(asked, window, first, None)
            place = None
            width = window.until - window.since + 1
            width *= 2 if first.total <= few // 2 else 1
            since = window.until + 1
            window = replace(window, since=since, until=min(since + width - 1, end))

    def _by_licence(self, asked: _Asked, window: _Window, start: int | None) -> Iterator[Hit]:
        numbers = sorted(window.licences if window.licences is not None else LICENCES)
        for number in numbers:
            if start is not None and number < start:
                continue
            part = replace(window, licences=(number,))
            first = self._page(asked, part, 1)
            yield from self._photos(asked, part, first, number)
            if first.total > self._most:
                say(
                    f"{NAME}: {first.total - self._most:,} photos under {LICENCES[number]!r} "
                    f"uploaded between {window} are out of reach: one search shows {self._most:,}"
                )

    def _photos(
        self, asked: _Asked, window: _Window, first: _Page, licence: int | None
    ) -> Iterator[Hit]:
        """Every photo of a window once."""
        cursor: Cursor = {"since": window.since, "until": window.until}
        if licence is not None:
            cursor["licence"] = licence
        seen: set[str] = set()
        for again in (False, True):
            for page in self._pages(asked, window, first):
                for raw in page.photo:
                    hit = hit_of(asked.label, asked.size, raw, cursor)
                    if hit.locator not in seen:
                        seen.add(hit.locator)
                        yield hit
            if again or first.total <= self._page_size or len(seen) >= min(first.total, self._most):
                return
            first = self._page(asked, window, 1)

    def _pages(self, asked: _Asked, window: _Window, first: _Page) -> Iterator[_Page]:
        yield first
        page, number = first, 1
        while page.photo and number * self._page_size < min(page.total, self._most):
            number += 1
            try:
                page = self._page(asked, window, number)
            except _TooDeep:
                return
            yield page

    def _page(self, asked: _Asked, window: _Window, number: int) -> _Page:
        parameters = {
            **asked.parameters,
            "method": "flickr.photos.search",
            "api_key": self._key,
            "format": "json",
            "nojsoncallback": "1",
            "min_upload_date": str(window.since),
            "max_upload_date": str(window.until),
            "per_page": str(self._page_size),
            "page": str(number),
        }
        if window.licences is not None:
            parameters["license"] = ",".join(str(licence) for licence in window.licences)
        answer = self._client.get_json(self._url, parameters, check=self._check)
        return understood(_Answer, answer, NAME).photos

    def _check(self, answer: Any, headers: Mapping[str, str]) -> None:
        """Errors come with status 200."""
        from curate.sources.api import TryAgain

        if not isinstance(answer, dict) or answer.get("stat") != "fail":
            return
        code = whole_number(answer, "code")
        message = " ".join(str(answer.get("message", "")).replace(self._key, "…").split())
        message = clean(message, 200) or "no reason given"
        told = f"error {code}: {message}"
        if code in _AGAIN:
            raise TryAgain(None, told)
        if code == _BAD_KEY:
            raise UsageError(f"{NAME} does not accept the key in {KEY}: {message}")
        kind = _TooDeep if code == _TOO_DEEP else SourceError
        raise kind(f"{NAME}: {told}")


def connect(client: ApiClient, url: str, environ: Mapping[str, str]) -> Source:
    """The source as the settings and the environment describe it.

    Args:
        client: asks the API.
        url: the API's address.
        environ: the environment variables, `FLICKR_API_KEY` among them.

    Raises:
        UsageError: there is no key.
    """
    key = environ.get(KEY, "").strip()
    if not key:
        raise UsageError(
            f"{NAME} needs a key: set {KEY} to one from https://www.flickr.com/services/apps/create"
        )
    return Flickr(client, url, key)


def _asked(query: Query) -> _Asked:
    dates = ("min_upload_date", "max_upload_date")
    defaults = {"size": "large", **dict.fromkeys((*dates, *PASSED_ON), "")}
    options = options_of(query, defaults | {"content_types": "0"}, NAME)
    if options["size"] not in SIZES:
        note = f"there are {', '.join(SIZES)}"
        raise UnknownNameError(f"size of {NAME}", options["size"], SIZES, note=note)
    parameters = {
        "text": query.text.strip(),
        "media": "photos",
        "safe_search": "1",
        "sort": "date-posted-asc",
        "extras": "license,owner_name,path_alias,media,"
        + ",".join(f"url_{letter}" for letter in SIZES["large"]),
        **{name: options[name] for name in PASSED_ON},
    }
    parameters = {name: value for name, value in parameters.items() if value}
    if not parameters.keys() & {"text", "tags"}:
        raise UsageError(f"{NAME} needs words or tags to search for")
    licences = None
    if query.licences is not None:
        licences = tuple(n for n, name in LICENCES.items() if parse(name).id in query.licences)
        if not licences:
            raise UsageError(f"{NAME} has no photos under any of the licences asked for")
    since = _seconds("min_upload_date", options["min_upload_date"], _BEGINNING)
    until = _seconds("max_upload_date", options["max_upload_date"], int(time.time()))
    if since > until:
        raise UsageError(f"{NAME}: min_upload_date is after max_upload_date")
    return _Asked(query.wnid, options["size"], _Window(since, until, licences), parameters)


def _seconds(option: str, text: str, default: int) -> int:
    text = text.strip()
    if not text:
        return default
    if text.isascii() and text.isdigit() and 8 < len(text) < 12:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f'{NAME}: {option} is a date such as "2012-07-11", or seconds since 1970; got {text!r}'
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
