"""Plots of many models under distribution shift: what files and pages draw alike.

Axes of accuracy are scaled by the logit, as the lines are fitted, so that a line is straight and
gains near 100 % have the room that they deserve. Models are no part of it: `shift_figures` adds
them for files and `shift_drawings` for pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from curate.metrics.logits import logit, percent
from curate.report.drawing import INK, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

#: Where a logit axis may have a number, the most welcome ones first, in percent.
_TICKS = (
    *(50.0, 90.0, 10.0, 70.0, 30.0, 80.0, 20.0, 60.0, 40.0, 95.0, 5.0, 99.0, 1.0),
    *(85.0, 75.0, 65.0, 55.0, 45.0, 35.0, 25.0, 15.0, 98.0, 2.0, 97.0, 96.0, 99.5, 0.5, 99.9, 0.1),
    *(float(percent) for percent in range(1, 100)),
    *(percent / 2 for percent in range(1, 200)),
)

#: One number on an axis gives no scale.
_FEWEST_TICKS = 3

_STEPS = (5.0, 2.0, 1.0)

#: Points of accuracy below which nothing is told apart.
_FINEST = 1e-5

#: Most types that a plot tells apart.
KINDS = 12


@dataclass(frozen=True, eq=False)
class Models:
    """Models as points.

    Attributes:
        names: untrusted.
        kinds: the number of each one's type, 0 … `KINDS` - 1.
        x, y: where they are; NaN leaves one out.
        x_ends, y_ends: lower and upper ends of intervals; NaN where there is none.
        told: what to add to each name.
    """

    names: Sequence[str]
    kinds: Sequence[int]
    x: Floats
    y: Floats
    x_ends: tuple[Floats, Floats] | None = None
    y_ends: tuple[Floats, Floats] | None = None
    told: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class FittedLine:
    """A line, and the band around it, where there is one; all in percent."""

    x: Floats
    y: Floats
    lower: Floats | None = None
    upper: Floats | None = None


@dataclass(frozen=True, eq=False)
class ShiftPlot:
    """Accuracy under shift over standard accuracy, in percent.

    Attributes:
        title: untrusted.
        x_label, y_label: untrusted.
        models: all of them.
        near: which of them the plot must show, such as those of the fit.
        lines: as fitted.
        pivot: where the lines part; None where there is one.
    """

    title: str
    x_label: str
    y_label: str
    models: Models
    near: NDArray[np.bool_]
    lines: Sequence[FittedLine]
    pivot: float | None = None


@dataclass(frozen=True, eq=False)
class QuadrantPlot:
    """Effective over relative robustness, in points."""

    title: str
    models: Models


def drawn_order(numbers: NDArray[Any]) -> list[int]:
    """Types with many models first, so that the few stand before them."""
    found, counts = np.unique(numbers, return_counts=True)
    return [int(found[place]) for place in np.lexsort((found, -counts))]


def within(axes: Axes, models: Models) -> NDArray[np.bool_]:
    """Which models lie within the axes."""
    return _within(models, axes.get_xlim(), axes.get_ylim())


def outside(plot: ShiftPlot) -> int:
    """How many models lie beyond the axes of a plot."""
    there = ~(np.isnan(plot.models.x) | np.isnan(plot.models.y))
    return int((there & ~_within(plot.models, *_limits(plot))).sum())


def _within(
    models: Models, x_ends: tuple[float, float], y_ends: tuple[float, float]
) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        found: NDArray[np.bool_] = (models.x >= x_ends[0]) & (models.x <= x_ends[1])
        found &= (models.y >= y_ends[0]) & (models.y <= y_ends[1])
    return found


def paint_shift(axes: Axes, plot: ShiftPlot) -> None:
    """Draw axes, lines and bands."""
    (left, right), (low, high) = _limits(plot)
    for name in ("x", "y"):
        getattr(axes, f"set_{name}scale")("function", functions=(_logit, _percent))
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    for axis, ends in ((axes.xaxis, (left, right)), (axes.yaxis, (low, high))):
        ticks = axis_ticks(*ends)
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.set_xlabel(plain(f"{plot.x_label}, %", 80))
    axes.set_ylabel(plain(f"{plot.y_label}, %", 80))
    ends = (max(left, low), min(right, high))
    if ends[0] < ends[1]:
        axes.plot(ends, ends, color=INK, linewidth=0.9, alpha=0.6, linestyle=(0, (2, 2)))
        axes.lines[-1].set_label("y = x")
    if plot.pivot is not None:
        axes.axvline(plot.pivot, color=INK, linewidth=0.9, alpha=0.6, linestyle=(0, (7, 2, 1.5, 2)))
        axes.lines[-1].set_label("pivot")
    for number, line in enumerate(plot.lines):
        if line.lower is not None and line.upper is not None:
            axes.fill_between(line.x, line.lower, line.upper, color=_FIT, alpha=0.22, linewidth=0)
        label = None if number else "fit of the standard models"
        axes.plot(line.x, line.y, color=_FIT, linewidth=1.4, label=label)


#: Of the fitted line: no type has it.
_FIT = "#c22f2f"


def paint_quadrants(axes: Axes, plot: QuadrantPlot) -> None:
    """Draw axes, and name the quadrants."""
    x, y = plot.models.x, plot.models.y
    there = ~(np.isnan(x) | np.isnan(y))
    for values, setter in ((x[there], axes.set_xlim), (y[there], axes.set_ylim)):
        low, high = min(0.0, *values, -1.0), max(0.0, *values, 1.0)
        room = 0.14 * (high - low)
        setter(low - room, high + room)
    for line in (axes.axhline, axes.axvline):
        line(0.0, color=INK, linewidth=0.9, alpha=0.6)
    axes.set_xlabel("relative robustness τ, points")
    axes.set_ylabel("effective robustness ρ, points")
    for right, above, words in (
        (True, True, "both"),
        (False, True, "effective alone"),
        (True, False, "relative alone"),
        (False, False, "neither"),
    ):
        axes.text(
            0.985 if right else 0.015,
            0.985 if above else 0.015,
            words,
            ha="right" if right else "left",
            va="top" if above else "bottom",
            alpha=0.7,
            fontsize=9,
            transform=axes.transAxes,
        )


def _limits(plot: ShiftPlot) -> tuple[tuple[float, float], tuple[float, float]]:
    """What the axes span: what must be seen, half as much again below, and all above.

    Models far below, such as untrained ones, would squeeze all others into a corner.
    """
    found = []
    for values in (plot.models.x, plot.models.y):
        sound = (values > 0.0) & (values < 100.0)
        logits = _logit(values[sound])
        near = _logit(values[sound & plot.near])
        near = near if near.size else logits
        if not logits.size:
            found.append((1.0, 99.0))
            continue
        span = max(float(np.ptp(near)), 0.2)
        low = max(float(logits.min()), float(near.min()) - 0.5 * span) - 0.06 * span
        high = float(logits.max()) + 0.06 * span
        found.append((float(_percent(np.array(low))), float(_percent(np.array(high)))))
    return found[0], found[1]


def axis_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Where a logit axis has numbers: round ones first, none too near to another.

    Where so few round ones lie within the ends that they give no scale, finer ones join them.
    """
    apart = float(np.ptp(_logit(np.array([low, high])))) / most
    chosen: list[float] = []

    def choose(ticks: Iterable[float]) -> None:
        for tick in ticks:
            at = float(_logit(np.array(tick)))
            if low <= tick <= high and all(
                abs(at - float(_logit(np.array(one)))) >= apart for one in chosen
            ):
                chosen.append(tick)

    choose(_TICKS)
    if high - low >= _FINEST:
        power = math.floor(math.log10(high - low))
        for width in (step * 10.0**exponent for exponent in (power, power - 1) for step in _STEPS):
            if len(chosen) < _FEWEST_TICKS:
                places = range(math.ceil(low / width), math.floor(high / width) + 1)
                choose(round(place * width, 10) for place in places)
    return sorted(chosen)


def _logit(percentages: Any) -> Any:
    return logit(inside(np.asarray(percentages, np.float64)))


def _percent(logits: Any) -> Any:
    return percent(np.asarray(logits, np.float64))


def inside(percent: Floats) -> Floats:
    """Percentages without the very ends, where an axis of logits has no place."""
    held: Floats = np.clip(percent, 1e-3, 100.0 - 1e-3)
    return held
