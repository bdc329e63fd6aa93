"""The report page: what it shows, and how that becomes one self-contained HTML file.

The page runs no script and asks for nothing over the network, and its policy forbids both. All
text from outside is escaped and set apart from the text around it, so that neither markup nor
right-to-left marks in a file name reach beyond their place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from operator import ge, gt
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from curate.report.thumbnails import Thumbnail

if TYPE_CHECKING:
    from jinja2 import Environment

#: Bins of the histogram, over [0, 1].
BINS = 40


@dataclass(frozen=True)
class Said:
    """What a classifier takes a photo for: its short name, the class, its probability in [0, 1]."""

    model: str
    name: str
    confidence: float


@dataclass(frozen=True)
class Credit:
    """Where a photo comes from and what may be done with it.

    Attributes:
        licence: the licence's name.
        licence_url: its text; empty where there is none.
        redistributable: whether the photo may be passed on.
        author, title, page, collection, source, locator: as its origin says.
    """

    licence: str
    licence_url: str
    redistributable: bool
    author: str | None = None
    title: str | None = None
    page: str | None = None
    collection: str | None = None
    source: str | None = None
    locator: str | None = None


@dataclass(frozen=True)
class Photo:
    """One photo of the contact sheet, or a near miss.

    Attributes:
        candidate: its key.
        sha256: of the original bytes.
        true_name: the class of its weak label.
        said: the prediction that counts; None where it was not computed.
        wrong: whether that prediction is another class than the true one.
        p_true: the largest probability that any computed view gives the true class; None where no
            class is true.
        borderline: whether a view lies within the margin of a limit.
        flags: what is noted of the picture's quality.
        credit: where it comes from.
        place: on the shortlist, from 1; None for a near miss.
        others: what the other classifiers say of its centre crop.
        removed: which view of which classifier removed it, and why; None for a survivor.
        thumbnail: the picture; None where the stored file is of no use.
        problem: why there is no picture.
        review: what people say of it: "accepted", "rejected: unclear", "disputed"; None where not
            enough people have answered.
    """

    candidate: str
    sha256: str
    true_name: str
    said: Said | None
    wrong: bool
    p_true: float | None
    borderline: bool
    credit: Credit
    flags: Sequence[str] = ()
    place: int | None = None
    others: Sequence[Said] = ()
    removed: str | None = None
    thumbnail: Thumbnail | None = None
    problem: str | None = None
    review: str | None = None


@dataclass(frozen=True)
class Reviews:
    """How many of the shortlist people have accepted, rejected and disputed."""

    accepted: int
    rejected: int
    disputed: int

    @property
    def done(self) -> int:
        """How many people have looked at, as many as should."""
        return self.accepted + self.rejected + self.disputed


@dataclass(frozen=True)
class Reason:
    """Why candidates were removed or failed, and how many."""

    text: str
    count: int


@dataclass(frozen=True)
class Funnel:
    """The paper's funnel: how many candidates were left at each stage, and why the others left."""

    candidates: int
    failed: Sequence[Reason]
    removed: Sequence[Reason]
    survivors: int
    shortlisted: int

    @property
    def scored(self) -> int:
        """Candidates that every classifier could look at."""
        return self.candidates - sum(reason.count for reason in self.failed)

    @property
    def capped(self) -> int:
        """Survivors that the cap holds back."""
        return self.survivors - self.shortlisted

    def share(self, count: int) -> float:
        """`count` in percent of the candidates."""
        return 100 * count / self.candidates if self.candidates else 0.0


@dataclass(frozen=True)
class Confusion:
    """A pair of classes: what the label says, what the first classifier sees."""

    true_name: str
    predicted_name: str
    survivors: int
    shortlisted: int


@dataclass(frozen=True)
class ClassFunnel:
    """The funnel of one class; `removed` has a count for each of the page's removal reasons."""

    wnid: str
    name: str
    candidates: int
    failed: int
    removed: Sequence[int]
    survivors: int
    shortlisted: int


@dataclass
class Histogram:
    """How probabilities of the scored candidates are distributed, in `BINS` bins.

    These are the largest p(true class), or under the rule outlier the confidence.

    Attributes:
        threshold: the limit to draw, in [0, 1]; None for no limit.
        scored: candidates by bin.
        survivors: those of them that survived.
    """

    threshold: float | None
    scored: list[int] = field(default_factory=lambda: [0] * BINS)
    survivors: list[int] = field(default_factory=lambda: [0] * BINS)

    def add(self, value: float, survived: bool) -> None:
        """Count one candidate."""
        number = min(int(value * BINS), BINS - 1)
        self.scored[number] += 1
        self.survivors[number] += survived

    @property
    def top(self) -> int:
        """The power of ten that the axis ends at."""
        return 10 ** math.ceil(math.log10(max(max(self.scored), 2)))

    @property
    def ticks(self) -> list[int]:
        """The powers of ten on the axis, from 1; every second one where they would crowd."""
        powers = round(math.log10(self.top))
        return [10**power for power in range(0, powers + 1, 1 if powers < 5 else 2)]

    def height(self, count: int) -> float:
        """How high a bar stands, in percent of the axis: logarithmic, one candidate still shows."""
        return 100 * math.log10(1 + count) / math.log10(1 + self.top)

    def bars(self) -> Iterator[tuple[float, float, int, int]]:
        """(low, high, scored, survivors) of each bin that is not empty."""
        for number, (scored, survivors) in enumerate(zip(self.scored, self.survivors, strict=True)):
            if scored:
                yield number / BINS, (number + 1) / BINS, scored, survivors


@dataclass(frozen=True)
class Model:
    """A classifier of the ensemble, with what is needed to load the same one again."""

    name: str
    short: str
    fingerprint: str
    parameters: int
    preprocessing: str


@dataclass(frozen=True)
class LicenceCount:
    """How many of the photos shown carry a licence."""

    name: str
    url: str
    redistributable: bool
    count: int


@dataclass(frozen=True)
class Page:
    """Everything that the page shows.

    Attributes:
        run: the run's id.
        label_space: its name.
        classes: how many classes it has.
        finished: when the run ended, UTC.
        models: the ensemble in its order; the first one names the confusion.
        rule: its name.
        threshold: the rule's threshold; None under the rule outlier.
        margin: distance from a limit within which a photo is marked as borderline.
        complete: whether every view of every candidate was scored.
        funnel: the funnel of the whole run.
        reasons: the column heads of the removal reasons in `by_class`.
        photos: the contact sheet in review order; taken once, one photo at a time.
        photos_shown: how many of the shortlist `photos` holds.
        borderline: how many of the shortlist are borderline.
        misses: the nearest misses, nearest first; taken once, after `photos`.
        misses_shown: how many `misses` holds.
        confusions: the largest ones.
        confusions_total: how many there are.
        by_class: classes with candidates, those with most survivors first.
        by_class_total: how many there are.
        histogram: of the largest p(true class).
        licences: of all photos on the page, most frequent first.
        made_by: what made the run, as (name, value).
        versions: of libraries, as (name, version).
        curate: the version of this software that the run was made with.
        min_confidence: what the rule outlier asks of every classifier; None under other rules.
        of_mean: whether it asks that of the mean of the ten crops, instead of the centre crop.
        reviews: what people say of the shortlist.
    """

    run: str
    label_space: str
    classes: int
    finished: datetime
    models: Sequence[Model]
    rule: str
    threshold: float | None
    margin: float
    complete: bool
    funnel: Funnel
    reasons: Sequence[str]
    photos: Iterable[Photo]
    photos_shown: int
    borderline: int
    misses: Iterable[Photo]
    misses_shown: int
    confusions: Sequence[Confusion]
    confusions_total: int
    by_class: Sequence[ClassFunnel]
    by_class_total: int
    histogram: Histogram
    licences: Sequence[LicenceCount]
    made_by: Sequence[tuple[str, str]]
    versions: Sequence[tuple[str, str]]
    curate: str
    min_confidence: float | None = None
    of_mean: bool = False
    reviews: Reviews = Reviews(0, 0, 0)

    @property
    def outlier(self) -> bool:
        """Whether candidates are labelled with concepts outside the label space."""
        return self.min_confidence is not None

    @property
    def label_word(self) -> str:
        """What a candidate's label is."""
        return "concept" if self.outlier else "label"

    @property
    def withheld(self) -> int:
        """Photos on the page whose licence is not known to allow passing them on."""
        return sum(item.count for item in self.licences if not item.redistributable)

    def listing(self, conjunction: str) -> str:
        """The classifiers by their short names: "lite0, lite1 and lite2"."""
        names = [model.short for model in self.models]
        return f" {conjunction} ".join(filter(None, (", ".join(names[:-1]), names[-1])))

    @property
    def headline(self) -> str:
        """What the run found, in one sentence."""
        of = counted(self.funnel.candidates, "photo")
        if self.funnel.survivors == 0:
            return f"None of {of} survived the filter"
        return f"{number(self.funnel.survivors)} of {of} survived the filter"


def render(page: Page) -> str:
    """The page as one HTML text."""
    return "".join(pieces(page))


def pieces(page: Page) -> Iterator[str]:
    """The page in pieces, so that a large one need not be held in memory."""
    return environment().get_template("report.html.j2").generate(page=page, bins=BINS)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """What makes pages from the templates: it escapes all text, and refuses unknown names."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("curate.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        number=number,
        counted=counted,
        fraction=fraction,
        percent=percent,
        hundredths=hundredths,
        web=web_address,
    )
    return environment


def number(value: int) -> str:
    """A count with its thousands set apart: "1,063"."""
    return f"{value:,}"


def counted(value: int, one: str, many: str = "") -> str:
    """A count with its noun: "1 photo", "2 photos"."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def fraction(
    value: float, digits: int = 2, apart_from: float | None = None, *, reached: bool = False
) -> str:
    """A probability with few digits that does not claim what is not so.

    A value near 0 or 1 never becomes 0 or 1 ("<0.01", ">0.99"), and one near `apart_from` gets as
    many digits (at most 9) as show on which side of it it lies.

    Args:
        value: in [0, 1].
        digits: after the point.
        apart_from: a limit.
        reached: whether a value that equals the limit lies on the side of the larger ones.
    """
    if apart_from is not None:
        beyond = ge if reached else gt
        while digits < 9 and beyond(round(value, digits), apart_from) != beyond(value, apart_from):
            digits += 1
    text = f"{value:.{digits}f}"
    if value > 0 and float(text) == 0:
        return f"<{10**-digits:.{digits}f}"
    if value < 1 and float(text) == 1:
        return f">{1 - 10**-digits:.{digits}f}"
    return text


def percent(value: float) -> str:
    """A percentage that is 0 or 100 only if it is: "100 %", "1.7 %", "<0.1 %", ">99.9 %"."""
    if 0 < value < 0.05:
        return "<0.1 %"
    if 99.95 <= value < 100:
        return ">99.9 %"
    return f"{value:.0f} %" if value in (0, 100) else f"{value:.1f} %"


def hundredths(value: float) -> str:
    """A fraction in percent without the sign, as tables of results have it: "2.17", "−1.50".

    A fraction near 0 or 1 never becomes 0 or 1: "<0.01", ">99.99".
    """
    if 0 < value < 0.00005:
        return "<0.01"
    if 0.99995 <= value < 1:
        return ">99.99"
    # Rounded first, so that what is nearly 0 never reads as −0.00.
    return f"{round(100 * value, 2) + 0.0:.2f}".replace("-", "−")


def web_address(text: str | None) -> str | None:
    """The address if a browser may follow it, else None: `javascript:` and the like are text."""
    try:
        parts = urlsplit(text or "")
    except ValueError:
        return None
    return text if parts.scheme in ("http", "https") and parts.hostname else None
