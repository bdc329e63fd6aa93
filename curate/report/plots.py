"""Plots for pages, each a figure in HTML with SVG inside.

All of them are readable at a phone's width and without colour, say in words what they show, and
escape and bound every name. Numbers come in as fractions and are drawn in percent. Matplotlib is
imported when the first one is drawn; where it is absent each raises `MissingExtraError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from curate.report.drawing import colour, dashes, draw, figure, legend
from curate.report.plot_axes import THIN, few_ticks, key_of_thin, label_axes, points, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 236.0


@dataclass(frozen=True)
class Series:
    """A line.

    Attributes:
        name: what it is of; untrusted.
        x, y: its points in order; NaN parts the line.
        low, high: a band around it; None for none.
        note: what to add to its name in the legend.
        number: of its colour and dashes, so that a model looks the same in every plot; its place
            among the lines by default.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    note: str = ""
    number: int | None = None


@dataclass(frozen=True)
class Bars:
    """The counts of a histogram.

    Attributes:
        name: what is counted.
        counts: one a bin.
        number: of its colour; its place by default.
    """

    name: str
    counts: ArrayLike
    number: int | None = None


def line_curves(
    series: Sequence[Series],
    *,
    title: str,
    alt: str,
    x_label: str,
    y_label: str,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = (0.0, 1.0),
    x_percent: bool = True,
    y_percent: bool = True,
    x_ticks: Sequence[float] | None = None,
    level: tuple[float, str] | None = None,
    diagonal: str | None = None,
    markers: bool = False,
    steps: bool = False,
) -> str:
    """Lines over one axis, such as accuracy over severity, with bands where they have any.

    Args:
        series: the lines.
        title: stands above the plot.
        alt: what the plot shows, in a sentence.
        x_label, y_label: of the axes.
        x_range, y_range: what they span; None fits the points.
        x_percent, y_percent: whether their numbers are fractions, to be told in percent.
        x_ticks: where the x axis has numbers.
        level: a horizontal line to compare with and its name, such as chance.
        diagonal: the name of the line y = x; None for no such line.
        markers: whether to mark the points, where they are few.
        steps: whether a value holds until the next one's place, as precision does over recall.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ValueError: no line, or x and y of different lengths.
    """
    if not series:
        raise ValueError("there is no line to draw")

    def paint(_: Figure, axes: Axes) -> None:
        for number, one in enumerate(series):
            number = number if one.number is None else one.number
            x, y = points(one.x), points(one.y)
            if x.shape != y.shape:
                raise ValueError(f"{one.name!r} has {x.size} x and {y.size} y")
            axes.plot(
                x,
                y,
                color=colour(number),
                linestyle=dashes(number),
                marker="osD^v"[number % 5] if markers or x.size == 1 else "",
                markersize=4,
                drawstyle="steps-pre" if steps else "default",
            )
            if one.low is not None and one.high is not None:
                low, high = points(one.low), points(one.high)
                axes.fill_between(x, low, high, color=colour(number), alpha=0.14, linewidth=0)
        if diagonal is not None:
            axes.plot((0, 1), (0, 1), **THIN)
        if level is not None:
            axes.axhline(level[0], **THIN)
        span(axes, x_range, y_range)
        if x_ticks is not None:
            axes.set_xticks(list(x_ticks))
        label_axes(axes, x_label, y_label, x_percent, y_percent)

    entries = [
        (n if one.number is None else one.number, one.name, one.note)
        for n, one in enumerate(series)
    ]
    return figure(draw(paint, alt, _HEIGHT), title, legend(entries) + key_of_thin(level, diagonal))


def reliability_diagram(
    confidence: ArrayLike,
    accuracy: ArrayLike,
    counts: ArrayLike,
    *,
    title: str,
    alt: str,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    number: int = 0,
    name: str = "bins of images",
) -> str:
    """How often a model is right where it is how confident, and how many images that is of.

    Args:
        confidence, accuracy: mean confidence and accuracy of each bin, fractions.
        counts: images in each bin; empty bins are left out.
        title, alt: as in `line_curves`.
        low, high: the accuracy's interval in each bin.
        number: of the colour.
        name: of the bins, in the legend.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ValueError: no bin holds an image.
    """
    sizes = np.asarray(counts)
    some = sizes > 0
    if not some.any():
        raise ValueError("no bin holds an image")
    x, y, sizes = points(confidence)[some], points(accuracy)[some], sizes[some]

    def paint(whole: Figure, axes: Axes) -> None:
        if low is not None and high is not None:
            ends = points(low)[some], points(high)[some]
            axes.vlines(x, *ends, color=colour(number), linewidth=1.4, alpha=0.5)
        axes.plot((0, 1), (0, 1), **THIN)
        axes.plot(x, y, color=colour(number), linewidth=1.2, marker="o", markersize=4)
        span(axes, (0.0, 1.0), (0.0, 1.0))
        label_axes(axes, "", "accuracy", True, True)
        below = whole.axes[1]
        below.vlines(x, 0, sizes, color=colour(number), linewidth=2.5)
        below.set_ylim(0, max(1, int(sizes.max())) * 1.15)
        label_axes(below, "confidence", "images", True, False)
        few_ticks(below.yaxis, 2, whole_numbers=True)

    svg = draw(paint, alt, _HEIGHT + 34, panels=(3.2, 1))
    return figure(svg, title, legend([(number, name, "")]) + key_of_thin(None, "calibrated"))


def histogram(
    groups: Sequence[Bars],
    edges: ArrayLike,
    *,
    title: str,
    alt: str,
    x_label: str,
    x_percent: bool = True,
    share: bool = False,
    mark: tuple[float, str] | None = None,
) -> str:
    """How values are distributed, in one or more groups over the same bins.

    Args:
        groups: counts of each.
        edges: of the bins, one more than there are counts.
        title, alt: as in `line_curves`.
        x_label: what is counted by.
        x_percent: whether that is a fraction, to be told in percent.
        share: whether to draw shares of each group, where groups differ in size.
        mark: a vertical line and its name, such as a threshold.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ValueError: no group.
    """
    if not groups:
        raise ValueError("there is no group to draw")
    ends = points(edges)

    def paint(_: Figure, axes: Axes) -> None:
        for number, group in enumerate(groups):
            number = number if group.number is None else group.number
            heights = points(group.counts)
            if share:
                heights = heights / max(heights.sum(), 1.0)
            axes.stairs(heights, ends, fill=True, color=colour(number), alpha=0.22)
            axes.stairs(
                heights, ends, color=colour(number), linewidth=1.6, linestyle=dashes(number)
            )
        if mark is not None:
            axes.axvline(mark[0], **THIN)
        axes.set_xlim(ends[0], ends[-1])
        axes.set_ylim(bottom=0)
        label_axes(axes, x_label, "share of each" if share else "images", x_percent, share)
        few_ticks(axes.yaxis, 5, whole_numbers=not share)

    entries = [
        (
            n if group.number is None else group.number,
            group.name,
            f"{int(points(group.counts).sum()):,}",
        )
        for n, group in enumerate(groups)
    ]
    return figure(draw(paint, alt, _HEIGHT), title, legend(entries) + key_of_thin(mark))
