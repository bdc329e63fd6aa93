"""Plots of many models under distribution shift as files: PNG, SVG and PDF.

To be called within `drawing.style`. Matplotlib is imported where something is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.report.drawing import colour, plain
from curate.report.shift_plots import (
    Floats,
    Models,
    QuadrantPlot,
    ShiftPlot,
    drawn_order,
    inside,
    paint_quadrants,
    paint_shift,
    within,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The kinds of files.
KINDS_OF_FILES = ("png", "svg", "pdf")

#: What a file would tell of the moment and of the library.
_METADATA = {
    "png": ("Software",),
    "svg": ("Creator", "Date", "Format", "Type"),
    "pdf": ("Creator", "Producer", "CreationDate"),
}

# On the longer side of a PNG: the heat map of thousands of models must not fill the memory.
_MOST_DOTS = 4000.0

#: Of types of models, beside their colours.
_MARKERS = "osD^vPX*"


def shift_figure(plot: ShiftPlot, kinds: Sequence[str]) -> Figure:
    """The plot as a figure for files, with a legend.

    Args:
        plot: what to draw.
        kinds: the names of the types.
    """
    figure, axes = _figure(plot.title)
    paint_shift(axes, plot)
    _points(axes, plot.models, kinds)
    axes.legend(loc="upper left", fontsize=8, framealpha=0.85, edgecolor="none")
    return figure


def quadrant_figure(plot: QuadrantPlot, kinds: Sequence[str]) -> Figure:
    """The same of effective and relative robustness."""
    figure, axes = _figure(plot.title)
    paint_quadrants(axes, plot)
    _points(axes, plot.models, kinds)
    # Above the axes, since their corners have words.
    axes.set_position((0.125, 0.09, 0.855, 0.79))
    axes.set_title(axes.get_title(), fontsize=11, pad=34)
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    axes.legend(**place, ncols=3, fontsize=8, edgecolor="none", columnspacing=1.2)
    return figure


def grid_figure(models: Sequence[str], settings: Sequence[str], accuracy: Floats) -> Figure:
    """Models × settings as a heat map for files.

    Args:
        models: from the top.
        settings: from the left.
        accuracy: percent, of shape (models, settings); NaN stays blank.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    models, settings = ([plain(name) for name in names] for names in (models, settings))
    across, down = 0.19 * max(8, len(settings)), 0.105 * max(8, len(models))
    left, top = (0.25 + 0.056 * max(map(len, names)) for names in (models, settings))
    below, right = 0.6, 0.1
    wide, high = left + across + right, top + down + below
    figure = Figure(figsize=(wide, high))
    axes = figure.add_axes((left / wide, below / high, across / wide, down / high))
    shades = ScalarMappable(Normalize(0.0, 100.0), "viridis")
    # Coloured while it is small, and not once it has the size of the figure.
    held = np.ma.masked_invalid(accuracy)
    axes.imshow(shades.to_rgba(held, bytes=True), aspect="auto", interpolation="none")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xticks(range(len(settings)), settings, rotation=90)
    axes.set_yticks(range(len(models)), models)
    axes.tick_params(labelsize=6)
    axes.xaxis.tick_top()
    place = (left / wide, 0.36 / high, min(across, 3.0) / wide, 0.1 / high)
    bar = figure.colorbar(shades, cax=figure.add_axes(place), orientation="horizontal")
    bar.set_label("accuracy, %", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    return figure


def saved(figure: Figure, kind: str) -> bytes:
    """A figure as the bytes of a file, the same each time.

    Args:
        figure: what to save.
        kind: "png", "svg" or "pdf".
    """
    nothing: dict[str, Any] = dict.fromkeys(_METADATA[kind])
    stream = io.BytesIO()
    more: dict[str, Any] = {"pil_kwargs": {"compress_level": 3}} if kind == "png" else {}
    dots = min(150.0, _MOST_DOTS / max(figure.get_size_inches()))
    figure.savefig(stream, format=kind, dpi=dots, metadata=nothing, **more)
    return stream.getvalue()


def _figure(title: str) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    # No layout engine: it would draw each figure twice for each file.
    figure = Figure(figsize=(6.0, 6.0))
    axes = figure.add_axes((0.125, 0.09, 0.855, 0.86))
    axes.set_title(plain(title, 80), fontsize=11)
    return figure, axes


def _points(axes: Any, models: Models, kinds: Sequence[str]) -> None:
    """The models for a file: a series and its intervals for each type."""
    numbers, shown = np.asarray(models.kinds), within(axes, models)
    for kind in drawn_order(numbers):
        chosen = (numbers == kind) & shown
        if not chosen.any():
            continue
        x, y, shade = models.x[chosen], models.y[chosen], colour(kind)
        for ends, draw_ends in ((models.x_ends, axes.hlines), (models.y_ends, axes.vlines)):
            if ends is not None:
                place = y if draw_ends == axes.hlines else x
                low, high = (inside(one[chosen]) for one in ends)
                draw_ends(place, low, high, color=shade, linewidth=0.6, alpha=0.45)
        axes.plot(
            x,
            y,
            color=shade,
            linestyle="",
            marker=_MARKERS[kind % len(_MARKERS)],
            markersize=4.5,
            markeredgecolor="white",
            markeredgewidth=0.3,
            label=plain(kinds[kind]),
        )
