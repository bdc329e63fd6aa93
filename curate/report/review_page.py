"""The review page: how far people are, how far they agree, and what they dispute.

Like the report page it is one file, runs no script and asks for nothing over the network. People
stand on it by the names of their roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from curate.report.page import Credit, counted, environment, number
from curate.report.thumbnails import Thumbnail


@dataclass(frozen=True)
class Share:
    """How many of several, with the interval of their share in percent; None without any."""

    count: int
    of: int
    low: float | None
    high: float | None

    @property
    def value(self) -> float:
        """The share in percent; 0 without any."""
        return 100 * self.count / self.of if self.of else 0.0


@dataclass(frozen=True)
class Measure:
    """A measure of agreement; its value and interval are None where it is undefined."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    items: int


@dataclass(frozen=True)
class Person:
    """An annotator, by the name of their role, and how they work.

    Attributes:
        name: of the role.
        open: tasks that wait for them.
        done: answers that stand.
        skipped: candidates that they skipped.
        median_seconds: of an answer; None where nobody timed one.
        gold: gold items that they judged rightly.
        accepts: candidates that they accepted.
        hours: expected until nothing is open; None where nobody knows.
        warnings: a sentence each.
    """

    name: str
    open: int
    done: int
    skipped: int
    median_seconds: float | None
    gold: Share
    accepts: Share
    hours: float | None
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class ClassCounts:
    """How far the candidates of one class are; done are all that do not wait."""

    wnid: str
    name: str
    waiting: int
    done: int
    accepted: int
    rejected: int
    disputed: int


@dataclass(frozen=True)
class Vote:
    """What one annotator says of a candidate.

    Attributes:
        name: of the role.
        said: the decision, in words.
        details: what else was chosen, a phrase each.
        note: free text, untrusted; empty where there is none.
    """

    name: str
    said: str
    details: Sequence[str] = ()
    note: str = ""


@dataclass(frozen=True)
class Disputed:
    """A candidate that people do not agree about.

    Attributes:
        candidate: its key.
        sha256: of the original bytes.
        label: the class that it is labelled with.
        votes: who said what.
        credit: where it comes from.
        thumbnail: the picture; None where the stored file is of no use.
        problem: why there is no picture.
    """

    candidate: str
    sha256: str
    label: str
    votes: Sequence[Vote]
    credit: Credit
    thumbnail: Thumbnail | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Unread:
    """An answer that cannot be read: the project, Label Studio's numbers, and why."""

    project: str
    task: int
    annotation: int
    why: str


@dataclass(frozen=True)
class Blind:
    """What a blind test says of some photos.

    Attributes:
        name: which photos these are.
        share: those that were named rightly.
        cannot_tell: those of the others that nobody could name, or that were skipped.
        unanswered: photos that wait for an answer.
    """

    name: str
    share: Share
    cannot_tell: int
    unanswered: int


@dataclass(frozen=True)
class Mistaken:
    """A class that was taken for another one in a blind test."""

    name: str
    picked: str
    count: int


@dataclass(frozen=True)
class ReviewPage:
    """Everything that the page shows.

    Attributes:
        label_space: its name.
        run: the run whose survivors are counted; None for all that was ever given out.
        newest: when the newest answer was given, UTC; None without any.
        accepted: candidates that people have accepted.
        rejected: how many were rejected for which main reason, in words.
        waiting: candidates that too few have answered.
        disputed: the contact sheet of those that people differ about; taken once.
        disputed_shown: how many it holds.
        disputed_total: how many there are but for those of the control sample alone.
        disputed_controls: how many there are of the control sample alone.
        control: accepted and judged ones of the control sample; None without one.
        measures: of agreement.
        people: annotators.
        hours: expected until nothing is open, of all together; None where nobody knows.
        by_class: those with most left to do first.
        by_class_total: how many there are.
        unread: answers that cannot be read.
        unread_total: how many there are.
        blind: what blind tests say.
        mistaken: the most frequent confusions in them, of accepted photos.
        withheld: photos on the page whose licence is not known to allow passing them on.
        outlier: whether candidates are labelled with concepts outside the label space.
        curate: the version of this software.
    """

    label_space: str
    run: str | None
    newest: datetime | None
    accepted: int
    rejected: Sequence[tuple[str, int]]
    waiting: int
    disputed: Iterable[Disputed]
    disputed_shown: int
    disputed_total: int
    disputed_controls: int
    control: Share | None
    measures: Sequence[Measure]
    people: Sequence[Person]
    hours: float | None
    by_class: Sequence[ClassCounts]
    by_class_total: int
    unread: Sequence[Unread]
    unread_total: int
    blind: Sequence[Blind]
    mistaken: Sequence[Mistaken]
    withheld: int
    outlier: bool
    curate: str

    @property
    def refused(self) -> int:
        """Candidates that people have rejected."""
        return sum(count for _, count in self.rejected)

    @property
    def done(self) -> int:
        """Candidates that enough people have answered."""
        return self.accepted + self.refused + self.disputed_total

    @property
    def disputes(self) -> int:
        """All that people differ about."""
        return self.disputed_total + self.disputed_controls

    @property
    def asked(self) -> int:
        """Candidates that were given out."""
        return self.done + self.waiting

    @property
    def headline(self) -> str:
        """How far people are, in one sentence."""
        if not self.asked:
            return "Nothing has been given out for review yet"
        return f"{number(self.done)} of {counted(self.asked, 'candidate')} reviewed"

    @property
    def warned(self) -> list[str]:
        """All warnings, with the names of those whom they are about."""
        return [f"{person.name} {text}" for person in self.people for text in person.warnings]

    def share(self, count: int) -> float:
        """`count` in percent of what was given out."""
        return 100 * count / self.asked if self.asked else 0.0


def pieces(page: ReviewPage) -> Iterator[str]:
    """The page in pieces, so that a large one need not be held in memory."""
    template = environment().get_template("review.html.j2")
    return template.generate(page=page, measured=measured, hours=hours)


def measured(value: float | None) -> str:
    """A measure of agreement with two digits, which may be below 0; a dash where undefined."""
    # Rounded first, so that what is nearly 0 never reads as -0.00.
    return "–" if value is None else f"{round(value, 2) + 0.0:.2f}"


def hours(value: float | None) -> str:
    """How long something takes: "40 min", "3.5 h"; a dash where nobody knows."""
    if value is None:
        return "–"
    if 0 < value < 1 / 60:
        return "<1 min"
    return f"{60 * value:.0f} min" if value < 0.99 else f"{value:,.1f} h"
