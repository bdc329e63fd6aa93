"""What the axes of all plots have in common, and the keys of the lines to compare with."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from curate.report.drawing import INK, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

#: How a line to compare with is drawn.
THIN: dict[str, Any] = {"color": INK, "linewidth": 0.9, "alpha": 0.6, "linestyle": (0, (2, 2))}


def points(values: ArrayLike) -> NDArray[np.float64]:
    """Values as Matplotlib takes them."""
    return np.asarray(values, np.float64).reshape(-1)


def span(
    axes: Axes, x_range: tuple[float, float] | None, y_range: tuple[float, float] | None
) -> None:
    """Set what axes span; None leaves it to the points."""
    # A little beyond, so that a line at the very edge keeps its width.
    for ends, setter in ((x_range, axes.set_xlim), (y_range, axes.set_ylim)):
        if ends is not None:
            room = 0.015 * (ends[1] - ends[0])
            setter(ends[0] - room, ends[1] + room)


def label_axes(axes: Axes, x_label: str, y_label: str, x_percent: bool, y_percent: bool) -> None:
    """Name the axes, and tell their fractions in percent."""
    axes.set_xlabel(plain(x_label, 80))
    axes.set_ylabel(plain(y_label, 40))
    for axis, wanted in ((axes.xaxis, x_percent), (axes.yaxis, y_percent)):
        if wanted:
            axis.set_major_formatter(_percent)


def _percent(value: float, _: Any = None) -> str:
    return f"{round(100 * value, 6):g} %"


def few_ticks(axis: Axis, most: int, *, whole_numbers: bool = False) -> None:
    """Put round numbers on an axis."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most, integer=whole_numbers, steps=[1, 2, 5, 10]))


def key_of_thin(level: tuple[float, str] | None, diagonal: str | None = None) -> str:
    """What the line to compare with is, in HTML; empty where there is none."""
    if level is not None:
        return key("┄", level[1])
    return "" if diagonal is None else key("┄", diagonal)


def key(sign: str, text: str) -> str:
    """What a sign means, in HTML."""
    return f'<p class="key">{sign} <bdi>{escape(text)}</bdi></p>'
