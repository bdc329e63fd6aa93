"""What all sources share: a query goes in, hits come out, lazily and resumable.

A source is one file of this folder. It searches, and never downloads an image: a hit names a place
(an address, a path, or bytes of an archive) with what the source says of its origin and licence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from curate.errors import ImageRefused
from curate.files import csv_plain, printable

#: Where a search stands: values that JSON can hold, understood by its source alone.
Cursor = dict[str, Any]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

#: Sources that read this machine's disks; all others ask the network.
LOCAL_SOURCES = frozenset(("folder", "tar"))

#: Text from outside is cut here: it ends up on pages and in manifests.
LONGEST_TEXT = 2000


@dataclass(frozen=True)
class Query:
    """What to search for in one source.

    Attributes:
        wnid: the class that hits are labelled with; empty for lists, which bring their own labels.
        text: what to search for: words, or a taxon's name; empty for lists.
        licences: SPDX ids that may be taken, sent along where the source can; None for all.
        cursor: where an earlier search for the same stopped; None from the start.
        options: what else the source is asked, by name (its own words).
    """

    wnid: str = ""
    text: str = ""
    licences: frozenset[str] | None = None
    cursor: Cursor | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Hit:
    """One image with its weak label, before anything is known of its content.

    Exactly one of `url`, `path` and `data` says where the content is, unless `refusal` is set.
    All text is printable and holds no NUL (see `clean`).

    Attributes:
        source: the name of the source.
        locator: what names it within its source, the same whenever it is found: "photos/123", or a
            folder's name and the path within it.
        label: the class as the source calls it: a wnid or a name; empty where there is none.
        url: the image's address.
        path: the image's file.
        data: the image's bytes.
        collection: the set or provider that the source took it from.
        page: the page that shows it.
        title: what its author calls it.
        author: who made it.
        licence: the licence in the source's words, complete enough for `curate.licences.parse`.
        refusal: why it cannot be taken, where that is clear already.
        cursor: a search that starts with it goes on after this hit or before: hits may come again,
            none is left out.
    """

    source: str
    locator: str
    label: str
    url: str | None = None
    path: Path | None = None
    data: bytes | None = None
    collection: str | None = None
    page: str | None = None
    title: str | None = None
    author: str | None = None
    licence: str | None = None
    refusal: ImageRefused | None = None
    cursor: Cursor | None = None


class Source(Protocol):
    """Something that finds images."""

    @property
    def name(self) -> str:
        """How the command line and the catalogue call it."""

    def search(self, query: Query) -> Iterator[Hit]:
        """Find images, page by page as they are asked for.

        Raises:
            SourceError: the source answers with an error, or in a form that is not understood.
            QuotaExhausted: it wants no further question before a time.
            UsageError: the query, a key or a file is unusable.
        """


def clean(text: str | None, longest: int = LONGEST_TEXT) -> str | None:
    """Text from outside as any database, terminal and page takes it; None where there is none.

    It is one line: blanks and line ends become single blanks. Bytes that are not UTF-8 and control
    characters become escapes, and it is cut.
    """
    if text is None:
        return None
    line = " ".join(printable(csv_plain(text)).split())
    return _CONTROL.sub(lambda sign: f"\\x{ord(sign[0]):02x}", line)[:longest] or None
