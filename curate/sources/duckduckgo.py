"""DuckDuckGo's image search: an extra that is off until asked for.

The paper used it, so it is here; but it has no official interface, no terms that permit questions
by programs, and answers at its own discretion. It is asked seldom, under this program's own name,
and left alone as soon as it refuses. What it finds has no licence that anyone told: each candidate
is marked unknown, and can be looked at and never released. It needs no further package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, ValidationError

from curate.errors import QuotaExhausted, SourceError, UsageError
from curate.files import sha256_bytes
from curate.sources.answers import Record, malformed, understood
from curate.sources.api import ApiClient, ApiError
from curate.sources.hit_parts import Whole, options_of, unnamed, web_page
from curate.sources.host_rules import HostRule
from curate.sources.protocol import Cursor, Hit, Query, Source, clean

NAME = "duckduckgo"

#: No rule of the owner is known; a question every five seconds is what a person might ask.
HOSTS = (HostRule("duckduckgo.com", concurrency=1, per_second=0.2),)

#: Who comes uninvited says who he is.
NEEDS_CONTACT = True

#: Options of a query, with what is sent when they are absent: the region, and 1 for a strict and
#: -1 for no safe search.
OPTIONS = {"region": "wt-wt", "safe": "1"}

# Statuses that it refuses programs with.
_REFUSALS = (202, 403, 418)
# The page hands out a token that questions for images must carry.
_TOKEN = re.compile(r"""\bvqd=(?:"([\w-]{3,200})"|'([\w-]{3,200})'|([\w-]{3,200})&)""")


class _Image(Record):
    image: Whole
    title: str | None = None
    url: str | None = None
    source: str | None = None


class _Answer(Record):
    results: list[Any]
    next: str | None = None


class _Place(Record):
    """Where a search stands: how many results lie before the page."""

    skip: int = Field(0, ge=0)


class DuckDuckGo:
    """The source "duckduckgo".

    Args:
        client: asks the site.
        url: the site's address.
    """

    name = NAME

    def __init__(self, client: ApiClient, url: str) -> None:
        self._client, self._url = client, url.rstrip("/")

    def search(self, query: Query) -> Iterator[Hit]:
        """Find images by words.

        Options of a query are those of `OPTIONS`.

        Raises:
            SourceError: the site answers with an error, or in a form that is not understood.
            QuotaExhausted: it refuses to answer programs for now.
            UsageError: only known licences are allowed, or an option is unusable.
        """
        if query.licences is not None:
            raise UsageError(
                f"{NAME} tells no licences: its images are taken only where unknown licences are "
                "allowed (--allow-unknown-licence), and never released"
            )
        text = " ".join(query.text.split())
        if not text:
            raise UsageError(f"{NAME} needs words to search for")
        return self._walk(query, text, options_of(query, OPTIONS, NAME))

    def _walk(self, query: Query, text: str, options: Mapping[str, str]) -> Iterator[Hit]:
        place: _Place | None = _start(query.cursor)
        token = self._token(text)
        while place is not None:
            params = {
                "o": "json",
                "q": text,
                "l": options["region"],
                "p": options["safe"],
                "vqd": token,
                "s": str(place.skip),
            }
            headers = {"Referer": f"{self._url}/"}
            try:
                body = self._client.get_json(f"{self._url}/i.js", params, headers=headers)
            except ApiError as error:
                raise _refusal(error) from None
            answer = understood(_Answer, body, NAME)
            following = _further(answer, place)
            last = len(answer.results) - 1
            for index, record in enumerate(answer.results):
                at = following if index == last and following else place
                yield _hit(record, query, at.model_dump())
            place = following

    def _token(self, text: str) -> str:
        try:
            page = self._client.get_text(f"{self._url}/", {"q": text})
        except ApiError as error:
            raise _refusal(error) from None
        found = _TOKEN.search(page)
        if found is None:
            raise SourceError(
                f"{NAME} answers in a form that is not understood: the page has no vqd"
            )
        return next(group for group in found.groups() if group)


def connect(client: ApiClient, url: str, environ: Mapping[str, str]) -> Source:
    """The source, where the settings turn it on; it takes no key.

    Args:
        client: asks the site.
        url: the site's address; empty while the source is off.
        environ: the environment variables.

    Raises:
        UsageError: it is off.
    """
    if not url:
        raise UsageError(
            f"{NAME} is off: its site permits no questions by programs, and it tells no licences; "
            "sources.duckduckgo: https://duckduckgo.com in curate.yaml turns it on all the same"
        )
    return DuckDuckGo(client, url)


def _start(cursor: Cursor | None) -> _Place:
    try:
        return _Place.model_validate(cursor or {})
    except ValidationError:
        return _Place()


def _further(answer: _Answer, place: _Place) -> _Place | None:
    """The page after this one, which the address of the next one tells."""
    if not answer.next:
        return None
    skip = parse_qs(urlsplit(answer.next).query).get("s", [""])[-1]
    if not re.fullmatch(r"[0-9]{1,9}", skip) or int(skip) <= place.skip:
        raise SourceError(f"{NAME}: the answer is not understood: next leads nowhere")
    return _Place(skip=int(skip))


def _refusal(error: ApiError) -> SourceError:
    if error.status in _REFUSALS:
        told = f"it answers programs with HTTP {error.status} for now"
        return QuotaExhausted(NAME, None, told)
    return error


def _hit(record: Any, query: Query, cursor: Cursor) -> Hit:
    try:
        image = _Image.model_validate(record)
    except ValidationError as error:
        name = f"images/{unnamed(record)}"
        return Hit(NAME, name, query.wnid, refusal=malformed(error), cursor=cursor)
    return Hit(
        NAME,
        f"images/{sha256_bytes(image.image.encode())[:32]}",
        query.wnid,
        url=image.image,
        collection=clean(image.source),
        page=web_page(image.url),
        title=clean(image.title),
        cursor=cursor,
    )
