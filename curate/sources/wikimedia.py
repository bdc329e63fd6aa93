"""Wikimedia Commons: freely licensed files, found by words or by category.

Pictures are taken as thumbnails of a standard width, with the address that the API gives: other
widths are refused by the servers, and originals may hold hundreds of megabytes. A picture no wider
than that is taken as it is.

Commons also names restrictions that are none of copyright, such as a trademark or the rights of a
person shown. They do not forbid a copy, and are not recorded: whoever publishes looks at the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import Field, ValidationError, field_validator

from curate.errors import ImageRefused, SourceError, UsageError
from curate.licences import UNKNOWN, parse
from curate.progress import say
from curate.retries import retry_after
from curate.sources.answers import Record, malformed, understood, whole_number
from curate.sources.api import ApiClient, TryAgain
from curate.sources.hit_parts import Whole, options_of, unnamed, web_page
from curate.sources.host_rules import HostRule
from curate.sources.html_text import html_text
from curate.sources.protocol import Cursor, Hit, Query, Source, clean

NAME = "wikimedia"

#: The API asks for questions one after the other; the file servers for at most two connections to
#: all of them together. The terms of the API stand in the place of a robots.txt.
HOSTS = (
    HostRule("commons.wikimedia.org", concurrency=1, per_second=1.0, robots=False),
    HostRule(
        "upload.wikimedia.org",
        concurrency=2,
        per_second=5.0,
        robots=False,
        also=("thumb.wikimedia.org",),
    ),
)

#: The owner refuses programs that leave no way to reach whoever runs them.
NEEDS_CONTACT = True

#: Widths of thumbnails that the file servers make, in pixels.
WIDTHS = (250, 330, 500, 960, 1280, 1920, 3840)

#: How many results of one search can be reached.
REACH = 10_000

#: Options of a query, with what they are when absent: the width of the pictures, and how many
#: steps below a category its sub-categories are followed.
OPTIONS = {"width": "960", "depth": "2"}

#: Most categories of one search, and the deepest step.
MOST_CATEGORIES, DEEPEST = 200, 5

_CATEGORY = "Category:"
# Larger batches are refused together with the files' descriptions.
_BATCH = 50
# Answers that one batch may be spread over.
_MOST_ANSWERS = 100
# Seconds to wait where a busy server does not say how long.
_PAUSE = 5.0
_BUSY = ("maxlag", "ratelimited", "readonly")
_MIMES = frozenset(
    f"image/{kind}" for kind in ("jpeg", "png", "gif", "webp", "tiff", "bmp", "x-ms-bmp", "avif")
)
_LICENCE = ("License", "LicenseUrl", "LicenseShortName", "UsageTerms")
_TOLD = (*_LICENCE, "Attribution", "Artist", "Credit")

#: What MediaWiki asks to be sent back for the next answer.
Continuation = dict[str, str | int]


class _Told(Record):
    value: str | int | float


class _ImageInfo(Record):
    url: Whole
    thumburl: Whole | None = None
    width: int = Field(ge=0)
    mime: str
    descriptionurl: str | None = None
    extmetadata: dict[str, _Told] = Field(default_factory=dict)

    @field_validator("extmetadata", mode="before")
    @classmethod
    def _only_what_is_read(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: value[name] for name in _TOLD if name in value}
        # PHP writes an empty mapping as an empty list.
        return {} if value == [] else value


class _Page(Record):
    pageid: int
    title: str
    imageinfo: list[_ImageInfo] = Field(min_length=1)


class _Category(Record):
    title: str = Field(min_length=1, max_length=300)


class _Found(Record):
    pages: list[Any] = Field(default_factory=list)
    categorymembers: list[_Category] = Field(default_factory=list)

    @field_validator("pages", mode="before")
    @classmethod
    def _old_shape(cls, value: Any) -> Any:
        return list(value.values()) if isinstance(value, dict) else value


class _Answer(Record):
    batchcomplete: bool | str | None = None
    go_on: dict[str, str | int] | None = Field(None, alias="continue")
    query: _Found = Field(default_factory=_Found)

    @property
    def complete(self) -> bool:
        # The old shape says "" for yes, and nothing for no.
        return self.batchcomplete is not None and self.batchcomplete is not False


class Wikimedia:
    """The source "wikimedia": Wikimedia Commons, or another wiki with its interface.

    Args:
        client: asks the API.
        url: the address of its `api.php`.
    """

    name = NAME

    def __init__(self, client: ApiClient, url: str) -> None:
        self._client = client
        self._url = url

    def search(self, query: Query) -> Iterator[Hit]:
        """Find images by words, or in a category.

        A text such as "Category:Sciurus niger" stands for the files of that category and of those
        below it. Licences cannot be sent along. Options of a query are those of `OPTIONS`.

        Raises:
            SourceError: the API answers with an error, or in a form that is not understood.
            QuotaExhausted: it wants no further question before a time.
            UsageError: there is no text, or an option is unusable.
        """
        options = options_of(query, OPTIONS, NAME)
        width = _number(options, "width", WIDTHS)
        depth = _number(options, "depth", range(DEEPEST + 1))
        text = query.text.strip()
        if not text.removeprefix(_CATEGORY):
            raise UsageError(f"{NAME} needs words or a category to search for")
        if text.startswith(_CATEGORY):
            return self._in_categories(query, text.replace("_", " "), width, depth)
        return self._by_words(query, text, width)

    def _by_words(self, query: Query, text: str, width: int) -> Iterator[Hit]:
        params = {
            "generator": "search",
            "gsrnamespace": "6",
            "gsrsearch": f"filetype:bitmap {text}",
            "gsrlimit": str(_BATCH),
        }
        start = _continuation((query.cursor or {}).get("continue"))
        for pages, at, following in self._batches(params, start or {}, width):
            offset = (following or {}).get("gsroffset")
            beyond = isinstance(offset, int) and offset + _BATCH > REACH
            further = at if beyond or not following else following
            yield from _hits(pages, query, width, {"continue": at}, {"continue": further})
            if beyond:
                say(f"{NAME}: {text!r}: only the first {REACH} images can be reached")
                return

    def _in_categories(self, query: Query, root: str, width: int, depth: int) -> Iterator[Hit]:
        categories, at, start = _walked(query.cursor) or ([(root, 0)], 0, None)
        while at < len(categories):
            title, level = categories[at]
            if start is None:
                start = {}
                if level < depth:
                    self._add_subcategories(title, level + 1, categories)
            place: Cursor = {"categories": [list(category) for category in categories], "at": at}
            params = {
                "generator": "categorymembers",
                "gcmtitle": title,
                "gcmtype": "file",
                "gcmlimit": str(_BATCH),
            }
            for pages, begun, following in self._batches(params, start, width):
                here = {**place, "continue": begun}
                yield from _hits(
                    pages, query, width, here, {**place, "continue": following or begun}
                )
            at, start = at + 1, None

    def _add_subcategories(self, title: str, level: int, categories: list[tuple[str, int]]) -> None:
        params = {
            "list": "categorymembers",
            "cmtitle": title,
            "cmtype": "subcat",
            "cmlimit": "500",
        }
        known = {name for name, _ in categories}
        go_on: Continuation | None = {}
        while go_on is not None:
            answer = self._ask({**params, **go_on})
            for member in answer.query.categorymembers:
                name = member.title.replace("_", " ")
                if name in known:
                    continue
                if len(categories) >= MOST_CATEGORIES:
                    say(
                        f"{NAME}: {categories[0][0]!r} has more than {MOST_CATEGORIES} "
                        "categories below it; the others are left out"
                    )
                    return
                known.add(name)
                categories.append((name, level))
            go_on = _further(go_on, answer)

    def _batches(
        self, params: dict[str, str], start: Continuation, width: int
    ) -> Iterator[tuple[list[Any], Continuation, Continuation | None]]:
        """Pages of files with all their properties, where they began, and where it goes on."""
        params = params | {
            "prop": "imageinfo",
            "iiprop": "url|size|mime|extmetadata",
            "iiurlwidth": str(width),
            "iiextmetadatafilter": "|".join(_TOLD),
        }
        following: Continuation | None = start
        while following is not None:
            begun = following
            pages, following = self._batch(params, begun)
            yield pages, begun, following

    def _batch(
        self, params: dict[str, str], start: Continuation
    ) -> tuple[list[Any], Continuation | None]:
        """One batch, which the server may spread over several answers."""
        named: dict[int, dict[str, Any]] = {}
        others: list[Any] = []
        go_on: Continuation | None = start
        for _ in range(_MOST_ANSWERS):
            answer = self._ask({**params, **(go_on or {})})
            for page in answer.query.pages:
                if isinstance(page, dict) and isinstance(page.get("pageid"), int):
                    named.setdefault(page["pageid"], {}).update(page)
                else:
                    others.append(page)
            go_on = _further(go_on or {}, answer)
            if go_on is None or answer.complete:
                return sorted(named.values(), key=_rank) + others, go_on
        raise SourceError(f"{NAME} spreads one batch over more than {_MOST_ANSWERS} answers")

    def _ask(self, params: Mapping[str, str | int]) -> _Answer:
        sent = {"action": "query", "format": "json", "formatversion": "2", "maxlag": "5"}
        body = self._client.get_json(self._url, {**params, **sent}, check=_check)
        return understood(_Answer, body, NAME)


def connect(client: ApiClient, url: str, environ: Mapping[str, str]) -> Source:
    """The source as the settings and the environment describe it; it takes no key.

    Args:
        client: asks the API.
        url: the address of its `api.php`.
        environ: the environment variables.
    """
    return Wikimedia(client, url)


def _further(begun: Continuation, answer: _Answer) -> Continuation | None:
    if answer.go_on == begun:
        raise SourceError(f"{NAME} answers with the same place to continue at again")
    return answer.go_on


def _rank(page: dict[str, Any]) -> tuple[int, int]:
    index = page.get("index")
    return (index if isinstance(index, int) else 0, page["pageid"])


def _hits(
    pages: list[Any], query: Query, width: int, here: Cursor, following: Cursor
) -> Iterator[Hit]:
    for index, page in enumerate(pages):
        yield _hit(page, query, width, following if index == len(pages) - 1 else here)


def _hit(record: Any, query: Query, width: int, cursor: Cursor) -> Hit:
    try:
        page = _Page.model_validate(record)
    except ValidationError as error:
        named = whole_number(record, "pageid") or unnamed(record)
        return Hit(NAME, f"pages/{named}", query.wnid, refusal=malformed(error), cursor=cursor)
    info = page.imageinfo[0]
    told = {name: str(entry.value) for name, entry in info.extmetadata.items()}
    readable = info.mime in _MIMES
    address = info.url if info.width <= width else info.thumburl or info.url
    return Hit(
        NAME,
        f"pages/{page.pageid}",
        query.wnid,
        url=address if readable else None,
        page=web_page(info.descriptionurl),
        title=clean(page.title.partition(":")[2] or page.title),
        author=_author(told),
        licence=_licence(told),
        refusal=None if readable else ImageRefused("unsupported-format", clean(info.mime) or ""),
        cursor=cursor,
    )


def _author(told: Mapping[str, str]) -> str | None:
    """Whom to name: as the author asks for, else who made it, else where it comes from."""
    for name in ("Attribution", "Artist", "Credit"):
        html = told.get(name, "")
        # The remark "own work" names nobody.
        if html and "int-own-work" not in html:
            text, link = html_text(html)
            if text or link:
                return text or link
    return None


def _licence(told: Mapping[str, str]) -> str | None:
    """All that is said of the licence and understood, so that contradictions are seen."""
    texts = [told[name].strip() for name in _LICENCE if told.get(name, "").strip()]
    known = [text for text in texts if parse(text) != UNKNOWN]
    if known:
        return clean(" ".join(f"({text})" for text in known))
    return clean(html_text(texts[0])[0]) if texts else None


def _check(body: Any, headers: Mapping[str, str]) -> None:
    """Errors come with status 200."""
    error = body.get("error") if isinstance(body, dict) else None
    if error is None:
        return
    told = error if isinstance(error, dict) else {"info": error}
    code, info = (" ".join(str(told.get(name, "")).split()) for name in ("code", "info"))
    text = clean(f"{code}: {info}", 300)
    if code in _BUSY:
        pause = retry_after(headers.get("Retry-After"), headers.get("Date"))
        raise TryAgain(_PAUSE if pause is None else pause, text or "")
    raise SourceError(f"{NAME} answers with the error {text}")


def _number(options: Mapping[str, str], name: str, choices: Iterable[int]) -> int:
    value = options[name]
    if value not in (known := [str(choice) for choice in choices]):
        raise UsageError(f"{NAME}: option {name} is one of {', '.join(known)}, not {value!r}")
    return int(value)


def _continuation(value: Any) -> Continuation | None:
    """A place to continue at as a cursor holds it; None if it is none."""
    if isinstance(value, dict) and all(isinstance(part, (str, int)) for part in value.values()):
        return value
    return None


def _walked(cursor: Cursor | None) -> tuple[list[tuple[str, int]], int, Continuation] | None:
    """Categories found so far with their steps below the first, which is in hand, and where."""
    cursor = cursor or {}
    start = _continuation(cursor.get("continue"))
    try:
        categories = [(str(title), int(level)) for title, level in cursor["categories"]]
        at = int(cursor["at"])
    except (KeyError, TypeError, ValueError):
        return None
    return None if start is None or not 0 <= at < len(categories) else (categories, at, start)
