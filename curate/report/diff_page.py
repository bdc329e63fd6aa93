"""The page of what differs between two releases, with a thumbnail of each image.

Like the report page it is one file, runs no script and asks for nothing over the network. What was
taken back is named and never shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from curate.report.page import counted, environment
from curate.report.thumbnails import Thumbnail


@dataclass(frozen=True)
class Changed:
    """One image.

    Attributes:
        image: the SHA-256 of its original bytes.
        label: its class, in words.
        path: in the release.
        what: what differs, or why it went; empty where its place on the page says it.
        licence, licence_url: by name, and where its text is.
        author, title, page: as the manifest says; untrusted.
        thumbnail: the picture; None where there is none.
        problem: why there is none.
    """

    image: str
    label: str
    path: str
    what: str
    licence: str
    licence_url: str
    author: str | None = None
    title: str | None = None
    page: str | None = None
    thumbnail: Thumbnail | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Section:
    """Images that changed in one way.

    Attributes:
        title, hint: what way.
        photos: taken once.
        total: how many there are.
        photos_left: how many of them are not shown.
    """

    title: str
    hint: str
    photos: Iterable[Changed]
    total: int
    photos_left: int = 0


@dataclass(frozen=True)
class DiffPage:
    """Everything that the page shows.

    Attributes:
        before, after: what the releases are called.
        step: of the version that this calls for.
        counts: images by what became of them.
        kept: images that did not change.
        sections: one for each way; taken once.
        withheld: photos on the page whose licence is not known to allow passing them on.
        curate: the version of this software.
    """

    before: str
    after: str
    step: str
    counts: Mapping[str, int]
    kept: int
    sections: Iterable[Section]
    withheld: int
    curate: str

    @property
    def headline(self) -> str:
        """What differs, in one sentence."""
        told = {"reencoded": "re-encoded"}
        some = [f"{n:,} {told.get(name, name)}" for name, n in self.counts.items() if n]
        if not some:
            return f"{counted(self.kept, 'image')}, all of them the same"
        return f"{', '.join(some[:-1])}{' and ' if some[:-1] else ''}{some[-1]}"


def pieces(page: DiffPage) -> Iterator[str]:
    """The page in pieces, so that a large one need not be held in memory."""
    return environment().get_template("diff.html.j2").generate(page=page)
