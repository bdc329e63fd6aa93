"""Plots of values with their intervals, a row each, beside what was published of the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from curate.report.drawing import INK, colour, draw, figure, plain
from curate.report.plot_axes import THIN, few_ticks, key, key_of_thin, label_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Height of a row in points: its name above its interval.
_ROW = 34.0

_PUBLISHED: dict[str, Any] = {
    "color": INK,
    "fillstyle": "none",
    "markersize": 7,
    "clip_on": False,
}


@dataclass(frozen=True)
class Dot:
    """A value with its interval.

    Attributes:
        name: what it is of; untrusted.
        value: a fraction; None where there is none or what was published stands alone.
        low, high: its interval; None for none.
        published: what was published of the same; None for none.
        number: of its colour; its place by default.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    published: float | None = None
    number: int | None = None


def dots(
    rows: Sequence[Dot],
    *,
    title: str,
    alt: str,
    x_label: str,
    x_range: tuple[float, float] | None = None,
    level: tuple[float, str] | None = None,
) -> str:
    """Values with their intervals, a row each, and beside them what was published.

    Args:
        rows: from the top.
        title, alt: as in `line_curves`.
        x_label: what the values are, fractions.
        x_range: what the axis spans; from 0 to beyond the largest by default.
        level: a value to compare with and its name, such as chance.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ValueError: no row.
    """
    if not rows:
        raise ValueError("there is no row to draw")
    told = [(row.value, row.high, row.published, level and level[0]) for row in rows]
    largest = max((value for row in told for value in row if value is not None), default=1.0)
    ends = x_range or (0.0, min(1.0, max(1.06 * largest, 0.01)))

    def paint(_: Figure, axes: Axes) -> None:
        if level is not None:
            axes.axvline(level[0], **THIN)
        for place, row in enumerate(rows):
            shade = colour(place if row.number is None else row.number)
            above: dict[str, Any] = {"va": "bottom", "transform": axes.get_yaxis_transform()}
            axes.text(0.0, place - 0.18, plain(row.name, 40), ha="left", **above)
            axes.text(1.0, place - 0.18, _told(row), ha="right", **above)
            if row.low is not None and row.high is not None:
                axes.hlines(place + 0.12, row.low, row.high, color=shade, linewidth=2)
            if row.value is not None:
                axes.plot(row.value, place + 0.12, "o", color=shade, markersize=6, clip_on=False)
            if row.published is not None:
                axes.plot(row.published, place + 0.12, "D", **_PUBLISHED)
        axes.set_xlim(*ends)
        axes.set_ylim(len(rows) - 0.5, -0.75)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        label_axes(axes, x_label, "", True, False)
        few_ticks(axes.xaxis, 5)

    notes = "" if all(row.published is None for row in rows) else key("◇", "published")
    svg = draw(paint, alt, _ROW * len(rows) + 52)
    return figure(svg, title, notes + key_of_thin(level))


def _told(row: Dot) -> str:
    if row.value is not None:
        return f"{100 * row.value:.1f} %"
    return "no value" if row.published is None else f"{100 * row.published:.1f} %, published"
