"""The pairs page: duplicates beside what is kept, for people to see whether they are the same.

Like the report page it is one file, runs no script and asks for nothing over the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from curate.report.page import Credit, counted, environment
from curate.report.thumbnails import Thumbnail


@dataclass(frozen=True)
class Picture:
    """One picture of a group.

    Attributes:
        title: its class, or what names it within its set.
        size: in pixels and bytes as text, or empty.
        candidate: its key; empty for a picture of a set.
        credit: where it comes from; None for a picture of a set.
        thumbnail: the picture; None where it is not at hand.
        problem: why there is no thumbnail.
    """

    title: str
    size: str = ""
    candidate: str = ""
    credit: Credit | None = None
    thumbnail: Thumbnail | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Twin:
    """A candidate that shows what the group's first picture shows.

    Attributes:
        picture: the candidate.
        exact: whether bytes or pixels are the same.
        distance: of the perceptual hashes, in bits.
        other_label: whether it has another label than what is kept.
        dropped: whether it stays out of the filter.
    """

    picture: Picture
    exact: bool
    distance: int
    other_label: bool
    dropped: bool


@dataclass(frozen=True)
class Group:
    """What is kept, or the picture of a set, and the candidates that show the same.

    Attributes:
        first: the candidate that is kept, or the picture of the set.
        set: the name of the set; None among candidates.
        twins: the most doubtful first.
    """

    first: Picture
    set: str | None
    twins: Sequence[Twin]


@dataclass(frozen=True)
class PairsPage:
    """Everything that the page shows.

    Attributes:
        groups: the most doubtful first; taken once.
        shown: duplicates on the page.
        total: duplicates in all.
        exact, near: of these by kind.
        against: of these found in a set.
        across_labels: of these under another label than what is kept.
        dropped: of these out of the filter.
        withheld: pictures on the page whose licence is not known to allow passing them on.
        curate: the version of this software.
    """

    groups: Iterable[Group]
    shown: int
    total: int
    exact: int
    near: int
    against: int
    across_labels: int
    dropped: int
    withheld: int
    curate: str

    @property
    def headline(self) -> str:
        """What was found, in one sentence."""
        verb = "shows" if self.total == 1 else "show"
        return f"{counted(self.total, 'candidate')} {verb} a picture that is there already"


def pieces(page: PairsPage) -> Iterator[str]:
    """The page in pieces, so that a large one need not be held in memory."""
    return environment().get_template("pairs.html.j2").generate(page=page)
