"""Plots of many models under distribution shift as elements of a page.

A page runs no script. So models are elements of their own: a pointer shows the name that each has,
and its class says its type, so that a style sheet alone leaves types out.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.report.drawing import INK, colour, draw, plain
from curate.report.shift_plots import (
    Floats,
    Models,
    QuadrantPlot,
    ShiftPlot,
    drawn_order,
    paint_quadrants,
    paint_shift,
    within,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Height of a plot on a page, in points; see `drawing.WIDTH`.
_HEIGHT = 318.0

#: The shapes of types, beside their colours: those of Matplotlib's markers in files.
_SHAPES = (
    "M3 0A3 3 0 1 1-3 0A3 3 0 1 1 3 0Z",
    "M-2.7-2.7H2.7V2.7H-2.7Z",
    "M0-3.6 3.6 0 0 3.6-3.6 0Z",
    "M0-3.4 3.2 2.5H-3.2Z",
    "M0 3.4 3.2-2.5H-3.2Z",
    "M-1.1-3.2H1.1V-1.1H3.2V1.1H1.1V3.2H-1.1V1.1H-3.2V-1.1H-1.1Z",
    "M-3-1.6-1.6-3 0-1.4 1.6-3 3-1.6 1.4 0 3 1.6 1.6 3 0 1.4-1.6 3-3 1.6-1.4 0Z",
    "M0-3.8 .9-1.2H3.6L1.5.5 2.2 3.1 0 1.5-2.2 3.1-1.5.5-3.6-1.2H-.9Z",
)


def shift_drawing(plot: ShiftPlot, alt: str) -> str:
    """The plot as an element of a page.

    Args:
        plot: what to draw.
        alt: what it shows, in a sentence.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    return _drawing(lambda axes: paint_shift(axes, plot), plot.models, alt)


def quadrant_drawing(plot: QuadrantPlot, alt: str) -> str:
    """The same of effective and relative robustness."""
    return _drawing(lambda axes: paint_quadrants(axes, plot), plot.models, alt)


def symbols(count: int) -> str:
    """The shapes of types as symbols that the drawings of a page refer to, in one hidden SVG."""
    shapes = "".join(
        f'<path id="kind{kind}" d="{_SHAPES[kind % len(_SHAPES)]}"/>' for kind in range(count)
    )
    return f'<svg class="shapes" aria-hidden="true"><defs>{shapes}</defs></svg>'


def key(kind: int) -> str:
    """A type's shape in its colour, for a legend."""
    return (
        f'<svg class="shape kind{kind}" viewBox="-5 -5 10 10" aria-hidden="true">'
        f'<use href="#kind{kind}"/></svg>'
    )


def kind_colours(count: int) -> list[str]:
    """The colour of each type, for a style sheet."""
    return [colour(kind).replace(INK, "currentColor") for kind in range(count)]


def _drawing(paint: Any, models: Models, alt: str) -> str:
    kept: list[Any] = []

    def paint_axes(whole: Figure, axes: Axes) -> None:
        kept.append((whole, axes))
        # All are of one shape; finding the room for each one's words would draw it twice.
        whole.set_layout_engine(None)
        axes.set_position((0.135, 0.13, 0.85, 0.85))
        paint(axes)

    svg = draw(paint_axes, alt, _HEIGHT)
    ((whole, axes),) = kept
    to_page = axes.transData + whole.transFigure.inverted()
    width, height = (float(part) for part in svg.split('viewBox="', 1)[1].split('"')[0].split()[2:])

    def place(x: Floats, y: Floats) -> Floats:
        at = to_page.transform(np.column_stack([x, y]))
        found: Floats = np.column_stack([at[:, 0] * width, (1.0 - at[:, 1]) * height])
        return found

    body, end = svg[: svg.rindex("</svg>")], "</svg>"
    return f"{body}<g>{''.join(_marks(axes, models, place))}</g>{end}"


def _marks(axes: Axes, models: Models, place: Any) -> list[str]:
    x_ends, y_ends = axes.get_xlim(), axes.get_ylim()
    numbers, shown = np.asarray(models.kinds), within(axes, models)
    rows = [
        row
        for kind in drawn_order(numbers)
        for row in np.flatnonzero(shown & (numbers == kind)).tolist()
    ]
    if not rows:
        return []
    x, y = models.x[rows], models.y[rows]
    at = place(x, y)
    bars = [""] * len(rows)
    if models.x_ends is not None and models.y_ends is not None:
        left, right = (place(np.clip(one[rows], *x_ends), y)[:, 0] for one in models.x_ends)
        below, above = (place(x, np.clip(one[rows], *y_ends))[:, 1] for one in models.y_ends)
        ends = zip(at, left, right, below, above, strict=True)
        bars = [_bars(*middle, *sides) for middle, *sides in ends]
    marks = []
    for number, row in enumerate(rows):
        kind = int(numbers[row])
        told = f" {models.told[row]}" if models.told else ""
        marks.append(
            f'<g class="at kind{kind}"><title>{html.escape(plain(models.names[row], 200))}'
            f"{html.escape(told)}</title>{bars[number]}"
            f'<use href="#kind{kind}" x="{at[number][0]:.1f}" y="{at[number][1]:.1f}"/></g>'
        )
    return marks


def _bars(x: float, y: float, left: float, right: float, below: float, above: float) -> str:
    """The intervals of a model; there may be one along either axis, both or none."""
    path = "" if np.isnan(left + right) else f"M{left:.1f} {y:.1f}H{right:.1f}"
    path += "" if np.isnan(below + above) else f"M{x:.1f} {below:.1f}V{above:.1f}"
    return f'<path d="{path}"/>' if path else ""
