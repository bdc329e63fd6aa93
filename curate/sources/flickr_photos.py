"""One photo of Flickr's answers: its record, its sizes, its licence, and the hit that it is."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from pydantic import BeforeValidator, Field, ValidationError

from curate.errors import ImageRefused
from curate.sources.answers import Record, malformed, whole_number
from curate.sources.hit_parts import unnamed
from curate.sources.protocol import Cursor, Hit, clean

#: The source's name.
NAME = "flickr"

#: Its numbers for licences, with its own names for them.
LICENCES = {
    0: "All Rights Reserved",
    1: "CC BY-NC-SA 2.0",
    2: "CC BY-NC 2.0",
    3: "CC BY-NC-ND 2.0",
    4: "CC BY 2.0",
    5: "CC BY-SA 2.0",
    6: "CC BY-ND 2.0",
    7: "No known copyright restrictions",
    8: "United States Government Work",
    9: "Public Domain Dedication (CC0)",
    10: "Public Domain Mark",
    11: "CC BY 4.0",
    12: "CC BY-SA 4.0",
    13: "CC BY-ND 4.0",
    14: "CC BY-NC 4.0",
    15: "CC BY-NC-SA 4.0",
    16: "CC BY-NC-ND 4.0",
}

#: Sizes by their letters, best first; squares are cut and never taken. Longest sides in pixels:
#: l 1024, c 800, z 640, h 1600, k 2048, m 500, n 320, o as uploaded. A photo without l is smaller
#: than that, or so old that only the upload itself is larger.
SIZES = {"large": "lczhkomn", "original": "okhlczmn"}


def _plain(value: Any) -> Any:
    """Text that older answers wrap in an object, or give as a number."""
    if isinstance(value, dict):
        value = value.get("_content")
    return str(value) if type(value) is int else value


_Text = Annotated[str | None, BeforeValidator(_plain)]
_Address = Annotated[str, Field(max_length=2000, pattern=r"^https?://")]


class _Photo(Record):
    id: Annotated[str, BeforeValidator(_plain), Field(pattern=r"^\d{1,20}$")]
    owner: _Text = None
    ownername: _Text = None
    pathalias: _Text = None
    title: _Text = None
    license: int | None = None
    media: str = "photo"
    url_l: _Address | None = None
    url_c: _Address | None = None
    url_z: _Address | None = None
    url_h: _Address | None = None
    url_k: _Address | None = None
    url_o: _Address | None = None
    url_m: _Address | None = None
    url_n: _Address | None = None


def hit_of(label: str, size: str, raw: Any, cursor: Cursor) -> Hit:
    """The hit that one photo of an answer is.

    Args:
        label: the class that it was searched for.
        size: one of `SIZES`.
        raw: the photo's record, from JSON.
        cursor: where a search goes on from.
    """
    try:
        photo = _Photo.model_validate(raw)
    except ValidationError as error:
        locator = f"photos/{whole_number(raw, 'id') or unnamed(raw)}"
        return Hit(NAME, locator, label, refusal=malformed(error), cursor=cursor)
    addresses = (getattr(photo, f"url_{letter}") for letter in SIZES[size])
    url = next((address for address in addresses if address), None)
    refusal = None
    if photo.media != "photo":
        refusal = ImageRefused("malformed-record", "media: no photo")
    elif url is None:
        refusal = ImageRefused("malformed-record", "url: no size may be downloaded")
    owner = clean(photo.pathalias) or clean(photo.owner)
    page = f"https://www.flickr.com/photos/{quote(owner, safe='@')}/{photo.id}" if owner else None
    return Hit(
        NAME,
        f"photos/{photo.id}",
        label,
        url=None if refusal else clean(url),
        page=page,
        title=clean(photo.title),
        author=clean(photo.ownername) or owner,
        licence=_licence(photo.license),
        refusal=refusal,
        cursor=cursor,
    )


def _licence(number: int | None) -> str | None:
    if number is None:
        return None
    return LICENCES.get(number, f"Flickr licence {number}")
