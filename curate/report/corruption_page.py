"""The page of a corruption run: every row of every table, its curves, and a photo under each.

Like the report page it is one file, runs no script and asks for nothing over the network. A mean
never stands alone on it: rows come first, and a mean says what it is divided by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from curate.report.page import counted, environment
from curate.report.thumbnails import Thumbnail


@dataclass(frozen=True)
class Cell:
    """A model in one setting; fractions.

    Attributes:
        accuracy, low, high: with its interval.
        lost: the share of what can be lost between clean accuracy and chance, from 0 to 1.
        is_chance: whether it cannot be told from guessing.
        overconfidence: mean confidence less accuracy.
        failed: images that failed here.
    """

    accuracy: float
    low: float
    high: float
    lost: float
    is_chance: bool
    overconfidence: float
    failed: int


@dataclass(frozen=True)
class Line:
    """One corruption of a table.

    Attributes:
        corruption: its name.
        cells: severities 1 … 5; None where one was not measured.
        error: mean error, a fraction.
        relative: to the clean error; None where that is 0 or not known.
        ce: corruption error in percent of the baseline's; None without one.
        calibration: mean RMS calibration error, a fraction.
        overconfidence: mean of the severities'.
        shape: in words.
    """

    corruption: str
    cells: Sequence[Cell | None]
    error: float
    relative: float | None
    ce: float | None
    calibration: float
    overconfidence: float
    shape: str


@dataclass(frozen=True)
class ErrorTable:
    """One model's table.

    Attributes:
        name: of the model, with how its view is cut.
        is_baseline: whether it is there to be divided by alone.
        clean: on uncorrupted images; None where there were none.
        clean_calibration: RMS calibration error there.
        lines: the rows.
        relative: mean of the rows' relative errors; None where a row has none.
        means: the mean corruption error with its name, or why there is none.
        chance: 1 / classes.
        plots: curves, HTML.
    """

    name: str
    is_baseline: bool
    clean: Cell | None
    clean_calibration: float | None
    lines: Sequence[Line]
    relative: float | None
    means: str
    chance: float
    plots: Sequence[str]

    @property
    def has_ce(self) -> bool:
        """Whether any row has a corruption error."""
        return any(line.ce is not None for line in self.lines)

    @property
    def worst(self) -> Line | None:
        """The row with the largest mean error."""
        return max(self.lines, key=lambda line: line.error, default=None)


@dataclass(frozen=True)
class Change:
    """One row of two tables: mean errors and relative errors before and after."""

    corruption: str
    before: float
    after: float
    relative_before: float | None
    relative_after: float | None
    shape_before: str
    shape_after: str

    @property
    def by(self) -> float:
        """What the mean error rose by."""
        return self.after - self.before


@dataclass(frozen=True)
class Beside:
    """Two tables side by side.

    Attributes:
        before, after: their names.
        changes: the rows that both have.
        summary: how many rows are better and worse.
        caveats: in what they were not measured alike.
    """

    before: str
    after: str
    changes: Sequence[Change]
    summary: str
    caveats: Sequence[str] = ()


@dataclass(frozen=True)
class Sample:
    """The photo under one corruption: severity with its picture, or None and why."""

    corruption: str
    pictures: Sequence[tuple[int, Thumbnail | None, str]]


@dataclass(frozen=True)
class CorruptionPage:
    """Everything that the page shows.

    Attributes:
        dataset: its name.
        where: what was corrupted and how.
        tables: one a model and way of cutting.
        besides: tables side by side.
        photo: path of the photo that is shown, within its dataset.
        credit: whose it is; empty where nothing is known.
        clean_photo: the photo as it is; None where it is not shown.
        samples: the photo under each corruption.
        notes: what must be said, a sentence each.
        made_by: what made each table.
        no_plots: why there are no plots; empty where there are.
        curate: the version of this software.
    """

    dataset: str
    where: str
    tables: Sequence[ErrorTable]
    besides: Sequence[Beside]
    photo: str
    credit: str
    clean_photo: Thumbnail | None
    samples: Sequence[Sample]
    notes: Sequence[str]
    made_by: Sequence[str]
    no_plots: str
    curate: str

    @property
    def headline(self) -> str:
        """What the page is about, before the dataset's name."""
        shown = [table for table in self.tables if not table.is_baseline]
        if len(shown) > 1:
            return f"{counted(len(shown), 'table')} of errors on damaged images of "
        return "Errors on damaged images of "


def pieces(page: CorruptionPage) -> Iterator[str]:
    """The page in pieces, so that a large one need not be held in memory."""
    template = environment().get_template("corruptions.html.j2")
    return template.generate(page=page, times=times, signed=signed, points=points)


def times(value: float | None) -> str:
    """A relative error: "3.2x"; a dash where there is none."""
    return "–" if value is None else f"{value:.1f}x"


def signed(value: float) -> str:
    """A difference of fractions in points, with its sign."""
    # Rounded first, so that what is nearly 0 never reads as -0.0.
    return f"{round(100 * value, 1) + 0.0:+.1f}"


def points(value: float) -> str:
    """A fraction in percent with one digit."""
    return f"{100 * value:.1f}"
