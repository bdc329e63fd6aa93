"""The page of a testbed: many models, shift by shift, in plots whose points tell their names.

Like the report page it is one file, runs no script and asks for nothing over the network. Boxes to
tick leave types of models out of every plot and table, by the style sheet alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from curate.report.page import environment
from curate.report.shift_drawings import key, kind_colours, symbols

#: Steps of a colour.
STEPS = 20

#: Points of effective robustness at which its colour is full.
FULL_POINTS = 10.0


@dataclass(frozen=True)
class Kind:
    """A type of models: its name, untrusted, and how many there are."""

    name: str
    count: int


@dataclass(frozen=True)
class LineRow:
    """A fitted line; intervals are None where nothing was resampled."""

    name: str
    n: int
    slope: float
    slope_interval: tuple[float, float] | None
    intercept: float
    intercept_interval: tuple[float, float] | None
    r2: float


@dataclass(frozen=True)
class ShiftSection:
    """What the page shows of one shift.

    Attributes:
        name: untrusted.
        plot: an element of the page, escaped already; empty where no model can be drawn.
        quadrants: the same of effective over relative robustness; empty where no model has a
            baseline.
        lines: as fitted.
        notes: what to say below the plot.
    """

    name: str
    plot: str
    quadrants: str
    lines: Sequence[LineRow]
    notes: Sequence[str]


@dataclass(frozen=True)
class ModelRow:
    """A model in a table: its name, untrusted, the number of its type, and a cell a column."""

    name: str
    kind: int
    cells: Sequence[float | None]


@dataclass(frozen=True)
class TestbedPage:
    """Everything that the page shows.

    Attributes:
        file: the table's name, untrusted.
        models: how many there are.
        standard: how many of them were to be fitted.
        chosen_by: what says which; None where nothing does.
        kinds: the types, in the order of their numbers.
        shifts: in their order.
        robustness: effective robustness, a column a shift.
        settings: the columns of `accuracies`, untrusted.
        accuracies: in percent.
        correlations: of effective robustness on each two shifts, (r, models); None for a shift with
            itself. Empty with a single shift.
        correlated: how many models they may be over.
        notes: what must be said of the numbers.
        made_by: what made them, as (name, value).
        curate: the version of this software.
    """

    __test__ = False

    file: str
    models: int
    standard: int
    chosen_by: str | None
    kinds: Sequence[Kind]
    shifts: Sequence[ShiftSection]
    robustness: Sequence[ModelRow]
    settings: Sequence[str]
    accuracies: Sequence[ModelRow]
    correlations: Sequence[Sequence[tuple[float | None, int] | None]]
    correlated: int
    notes: Sequence[str]
    made_by: Sequence[tuple[str, str]]
    curate: str

    @property
    def headline(self) -> str:
        """What there is, in one line."""
        models = f"{self.models:,} model" + ("" if self.models == 1 else "s")
        shifts = f"{len(self.shifts)} distribution shift" + ("" if len(self.shifts) == 1 else "s")
        return f"{models} under {shifts}"


def pieces(page: TestbedPage) -> Iterator[str]:
    """The page in pieces, so that a large one need not be held in memory."""
    from markupsafe import Markup

    count = len(page.kinds)
    return (
        environment()
        .get_template("testbed.html.j2")
        .generate(
            page=page,
            symbols=Markup(symbols(count)),
            keys=[Markup(key(kind)) for kind in range(count)],
            colours=kind_colours(count),
            safe=Markup,
            steps=STEPS,
            share=_share,
            leaning=_leaning,
            signed=_signed,
        )
    )


def _share(percent: float) -> int:
    """The step of an accuracy's colour."""
    return round(percent / 100.0 * STEPS)


def _leaning(points: float, full: float = FULL_POINTS) -> str:
    """The class of the colour of a number that may be negative."""
    step = min(STEPS, round(abs(points) / full * STEPS))
    return f"{'p' if points >= 0 else 'n'}{step}"


def _signed(points: float) -> str:
    """A number of points with its sign; none where it rounds to nothing."""
    text = f"{points:+.1f}"
    return "0.0" if float(text) == 0.0 else text
