"""Openverse: openly licensed images of many collections, found by words.

One question leads to its first 240 results and no further, with and without a key. A search that
finds more is asked again licence by licence, which reaches 240 of each; what lies beyond is told.

Without a key the owner allows few questions an hour. A key (`OPENVERSE_CLIENT_ID` and
`OPENVERSE_CLIENT_SECRET`, from https://api.openverse.org/v1/) allows more, and larger pages. The
service answers to a key that it does not know as if there were none; that is told too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, ValidationError

from curate.errors import UsageError
from curate.progress import say
from curate.sources.answers import Record, malformed, understood
from curate.sources.api import ApiClient, ApiError
from curate.sources.hit_parts import Whole, options_of, unnamed, web_page
from curate.sources.host_rules import HostRule
from curate.sources.protocol import Cursor, Hit, Query, Source, clean

NAME = "openverse"

#: The API tells its limits in each answer; its terms stand in the place of a robots.txt. The images
#: lie on the hosts of the collections.
HOSTS = (HostRule("api.openverse.org", concurrency=1, per_second=1.0, robots=False),)

#: Its terms ask for none.
NEEDS_CONTACT = False

#: The environment variables that hold a key.
KEY = ("OPENVERSE_CLIENT_ID", "OPENVERSE_CLIENT_SECRET")

#: How many results of one question can be reached.
REACH = 240

#: Its names of licences, the freest first: in this order they are asked for one by one.
SLUGS = ("cc0", "pdm", "by", "by-sa", "by-nd", "by-nc", "by-nc-sa", "by-nc-nd")

#: Options of a query, with what is sent when they are absent; an empty one is not sent.
OPTIONS = {
    "category": "photograph",
    "filter_dead": "true",
    "source": "",
    "excluded_source": "",
    "extension": "",
    "size": "",
    "aspect_ratio": "",
}

# Both divide REACH, so that no page lies half beyond it.
_PAGE, _PAGE_WITH_KEY = 20, 48
_LONGEST_QUESTION = 200
# Licences that SPDX does not list.
_OTHER_SLUGS = ("sampling+", "nc-sampling+")
# The part of a search that asks for all licences at once.
_ALL = "all"
_LICENCE_ID = re.compile(r"(?:LicenseRef-)?CC-(BY(?:-NC)?(?:-SA|-ND)?)-.+")
_ELEMENT = {"cc0": "/zero/", "pdm": "/mark/"}


class _Image(Record):
    id: Whole
    url: Whole
    license: str
    license_version: str | None = None
    license_url: str | None = None
    title: str | None = None
    creator: str | None = None
    foreign_landing_url: str | None = None
    source: str | None = None


class _Answer(Record):
    result_count: int = Field(ge=0)
    page_count: int = Field(ge=0)
    results: list[Any]


class _Token(Record):
    access_token: str = Field(pattern=r"^[!-~]+$")
    expires_in: float = Field(gt=0)


class _Place(Record):
    """Where a search stands: the part of it, by licence, and how many results of it are known."""

    part: str
    taken: int = Field(ge=0, lt=REACH)


class Openverse:
    """The source "openverse".

    Args:
        client: asks the API.
        url: the API's address.
        credentials: a key's id and secret; None to ask without one.
    """

    name = NAME

    def __init__(
        self, client: ApiClient, url: str, credentials: tuple[str, str] | None = None
    ) -> None:
        self._client, self._url, self._credentials = client, url.rstrip("/"), credentials
        self._token, self._token_ends = "", 0.0

    def search(self, query: Query) -> Iterator[Hit]:
        """Find images by words.

        Licences are sent along without their version, which each image's record tells. Options of
        a query are those of `OPTIONS`.

        Raises:
            SourceError: the API answers with an error, or in a form that is not understood.
            QuotaExhausted: it wants no further question before a time.
            UsageError: the text is too long, an option unusable, or no licence is one that
                Openverse has.
        """
        text = " ".join(query.text.split())
        if not 0 < len(text) <= _LONGEST_QUESTION:
            raise UsageError(f"{NAME} needs 1 to {_LONGEST_QUESTION} characters to search for")
        options = options_of(query, OPTIONS, NAME)
        params = {name: value for name, value in options.items() if value}
        return self._walk(query, {**params, "q": text, "mature": "false"}, _slugs(query.licences))

    def _walk(self, query: Query, params: dict[str, str], slugs: list[str]) -> Iterator[Hit]:
        place: _Place | None = _start(query.cursor, slugs)
        while place is not None:
            licences = slugs if place.part == _ALL else [place.part]
            answer, size = self._page({**params, "license": ",".join(licences)}, place.taken)
            whole = answer.result_count < REACH
            if len(licences) > 1 and not whole:
                place = _Place(part=slugs[0], taken=0)
                continue
            end = (place.taken // size + 1) * size
            if end < min(REACH, answer.page_count * size):
                following: _Place | None = _Place(part=place.part, taken=end)
            else:
                following = _part_after(place.part, slugs)
                if not whole:
                    say(
                        f"{NAME}: {params['q']!r} under {', '.join(licences)}: "
                        f"no more than the first {REACH} images can be reached"
                    )
            last = len(answer.results) - 1
            for index, record in enumerate(answer.results):
                at = following if index == last and following else place
                yield _hit(record, query, at.model_dump())
            place = following

    def _page(self, params: Mapping[str, str], taken: int) -> tuple[_Answer, int]:
        """The page that holds the result after the first `taken`, and how many a page holds."""
        while True:
            size = _PAGE_WITH_KEY if self._credentials else _PAGE
            sent = {**params, "page": str(taken // size + 1), "page_size": str(size)}
            headers = self._authorisation()
            try:
                body = self._client.get_json(f"{self._url}/images/", sent, headers=headers)
            except ApiError as error:
                if error.status == 404 and taken:
                    # Fewer images are found than when an earlier search stopped here.
                    return _Answer(result_count=0, page_count=0, results=[]), size
                if not headers or error.status != 401:
                    raise
                self._give_up_key()
                continue
            if headers and not _knows_key(self._client.last_headers):
                self._give_up_key()
            return understood(_Answer, body, NAME), size

    def _authorisation(self) -> dict[str, str]:
        if not self._credentials:
            return {}
        if time.monotonic() >= self._token_ends:
            form = {
                "grant_type": "client_credentials",
                "client_id": self._credentials[0],
                "client_secret": self._credentials[1],
            }
            try:
                body = self._client.post_form(f"{self._url}/auth_tokens/token/", form)
            except ApiError as error:
                if error.status in (400, 401):
                    raise UsageError(f"{NAME} refuses the key of {' and '.join(KEY)}") from None
                raise
            token = understood(_Token, body, NAME)
            self._token = token.access_token
            # A little before its end, since a question takes time.
            self._token_ends = time.monotonic() + 0.9 * token.expires_in
        return {"Authorization": f"Bearer {self._token}"}

    def _give_up_key(self) -> None:
        self._credentials = None
        say(f"{NAME} does not know the key of {KEY[0]}; going on without it, within tighter limits")


def connect(client: ApiClient, url: str, environ: Mapping[str, str]) -> Source:
    """The source as the settings and the environment describe it; it goes without a key.

    Args:
        client: asks the API.
        url: the API's address.
        environ: the environment variables; both of `KEY`, or neither.

    Raises:
        UsageError: one of them is missing.
    """
    given = [environ.get(name, "").strip() for name in KEY]
    if any(given) and not all(given):
        raise UsageError(f"set both {' and '.join(KEY)}, or neither")
    return Openverse(client, url, (given[0], given[1]) if all(given) else None)


def _slugs(licences: frozenset[str] | None) -> list[str]:
    """Its names of the licences with these SPDX ids; of all where there is no limit."""
    if licences is None:
        return [*SLUGS, *_OTHER_SLUGS]
    named = {"CC0-1.0": "cc0", "CC-PDM-1.0": "pdm"}
    wanted = {
        found[1].lower() if (found := _LICENCE_ID.fullmatch(licence)) else named.get(licence)
        for licence in licences
    }
    slugs = [slug for slug in SLUGS if slug in wanted]
    if not slugs:
        raise UsageError(f"{NAME} has no images under any of the licences asked for")
    return slugs


def _start(cursor: Cursor | None, slugs: list[str]) -> _Place:
    """Where the cursor stands; the beginning if it is none of this search."""
    try:
        place = _Place.model_validate(cursor)
    except ValidationError:
        place = None
    if place is None or place.part not in (_ALL, *slugs):
        return _Place(part=_ALL, taken=0)
    return place


def _part_after(part: str, slugs: list[str]) -> _Place | None:
    if part == _ALL or part == slugs[-1]:
        return None
    return _Place(part=slugs[slugs.index(part) + 1], taken=0)


def _knows_key(headers: Mapping[str, str]) -> bool:
    """Whether an answer counts the question for a key: the limits it tells are named for it."""
    scopes = [name.lower() for name in headers if name.lower().startswith("x-ratelimit-limit-")]
    return not scopes or any("oauth2" in scope for scope in scopes)


def _hit(record: Any, query: Query, cursor: Cursor) -> Hit:
    try:
        image = _Image.model_validate(record)
    except ValidationError as error:
        name = record.get("id") if isinstance(record, dict) else None
        named = clean(name) if isinstance(name, str) else None
        return Hit(
            NAME,
            f"images/{named or unnamed(record)}",
            query.wnid,
            refusal=malformed(error),
            cursor=cursor,
        )
    return Hit(
        NAME,
        f"images/{image.id}",
        query.wnid,
        url=image.url,
        collection=clean(image.source),
        page=web_page(image.foreign_landing_url),
        title=clean(image.title),
        author=clean(image.creator),
        licence=clean(_licence(image)),
        cursor=cursor,
    )


def _licence(image: _Image) -> str:
    """The licence's address, which may name a port; with its name where the two do not agree."""
    code = image.license.strip().lower()
    name = f"{code if code in _ELEMENT else f'CC {code}'} {image.license_version or ''}".strip()
    address = (image.license_url or "").strip()
    if not address:
        return name
    return address if _ELEMENT.get(code, f"/{code}/") in address else f"{name} ({address})"
