"""Spatter: drops of water, whose edges shine, or of mud, on the lens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from curate.corruptions.filters import gaussian
from curate.corruptions.terms import (
    Floats,
    Levels,
    Terms,
    layer_shape,
    levels,
    row_blocks,
    stretched,
)

_WATER = (175, 238, 238)
_MUD = (63, 42, 20)

#: Distances from a drop's edge that still differ, in pixels.
_FAR = 20

#: Gradients that are an edge, and that are one beside another.
_STRONG, _WEAK = 150, 50

_SHINE = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))


def spatter(
    image: Levels, constants: tuple[float, float, float, float, float, bool], terms: Terms
) -> Levels:
    """Drops where smoothed normal numbers are large.

    Published, and mended: without a single drop the water's division by its maximum gave no
    number. Distances from the edges are exact, where OpenCV's come close.

    Args:
        image: what to corrupt.
        constants: mean, deviation and smoothing of the numbers, the least that is a drop; how
            much the water covers, or the smoothing of the mud's edges; and whether it is mud.
        terms: see there.
    """
    mean, deviation, sigma, least, last, is_mud = constants
    liquid = terms.rng.standard_normal(layer_shape(image, terms.unit), dtype=np.float32)
    liquid *= np.float32(deviation)
    liquid += np.float32(mean)
    liquid = gaussian(liquid, sigma)
    if is_mud:
        cover: Floats = gaussian((liquid > np.float32(least)).astype(np.float32), last)
        cover[cover < np.float32(0.8)] = 0.0
    else:
        liquid[liquid < np.float32(least)] = 0.0
        liquid *= np.float32(255.0)
        cover = water(levels(liquid))
        np.multiply(cover, np.float32(last), out=cover)
    cover = stretched(cover, image)

    colour = np.array(_MUD if is_mud else _WATER, np.float32)
    result = np.empty_like(image)
    for rows in row_blocks(*cover.shape):
        here = cover[rows, :, None]
        spattered = here * colour
        spattered += image[rows] * (1 - here) if is_mud else image[rows]
        result[rows] = levels(spattered)
    return result


def water(liquid: Levels) -> Floats:
    """How much of the water's colour is added, in [0, 1].

    The distance from the drops' edges, as far as 20 pixels, smoothed, spread over all grey levels,
    sharpened towards one side, smoothed, and multiplied with the liquid itself.
    """
    distance = edge_distance(edges(liquid)).astype(np.float32)
    flat = _equalised(levels(_mean_of_nine(distance)))
    shining = np.clip(_weighed(flat.astype(np.float32), _SHINE), 0.0, 255.0)
    cover = np.rint(_mean_of_nine(shining))
    np.multiply(cover, liquid, out=cover)
    most = cover.max()
    if most > 0:
        np.divide(cover, most, out=cover)
    return cover


def _mean_of_nine(values: Floats) -> Floats:
    mean = _weighed(values, ((1, 1, 1), (1, 1, 1), (1, 1, 1)))
    return np.divide(mean, np.float32(9.0), out=mean)


def _weighed(values: Floats, kernel: Sequence[Sequence[int]]) -> Floats:
    """The sum of each pixel and its eight neighbours, each with its weight."""
    height, width = values.shape
    padded = np.pad(values, 1, mode="reflect")
    total = np.zeros_like(values)
    for down, row in enumerate(kernel):
        for right, weight in enumerate(row):
            if weight:
                part = padded[down : down + height, right : right + width]
                total += part if weight == 1 else part * np.float32(weight)
    return total


def _equalised(values: Levels) -> Levels:
    """Grey levels spread so that each stretch of them is as frequent; the lowest becomes 0."""
    counts = np.bincount(values.reshape(-1), minlength=256)
    lowest = int(np.flatnonzero(counts)[0])
    rest = values.size - int(counts[lowest])
    if rest == 0:
        return values
    counts[: lowest + 1] = 0
    table = np.rint(np.cumsum(counts) * (255.0 / rest)).astype(np.uint8)
    return table.take(values)


def edges(grey: Levels) -> NDArray[np.bool_]:
    """Canny's edges: steepest along the gradient, and strong or joined to strong ones.

    Gradients are Sobel's, their length is |dx| + |dy|, as OpenCV's Canny has it by default.
    """
    from scipy import ndimage

    padded = np.pad(grey, 1, mode="edge").astype(np.int32)
    rows = padded[:-2] + 2 * padded[1:-1] + padded[2:]
    columns = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    right = rows[:, 2:] - rows[:, :-2]
    down = columns[2:] - columns[:-2]
    steep = np.zeros((grey.shape[0] + 2, grey.shape[1] + 2), np.int32)
    steep[1:-1, 1:-1] = np.abs(right) + np.abs(down)

    # Flat parts are most of the layer: what follows looks at the rest alone.
    width = steep.shape[1]
    at_row, at_column = np.nonzero(steep[1:-1, 1:-1] > _WEAK)
    right, down = right[at_row, at_column], down[at_row, at_column]
    place = (at_row + 1) * width + at_column + 1
    flat = steep.reshape(-1)
    here = flat[place]
    slope, across, along = np.abs(down) << 15, np.abs(right) * _TANGENT, np.abs(right) << 16
    level, upright = slope < across, slope > across + along
    diagonal = ~(level | upright)
    step = np.where(level, 1, width)
    step[diagonal] += np.where((right * down)[diagonal] < 0, -1, 1)
    before, after = flat[place - step], flat[place + step]
    peak = (here > before) & ((here > after) | (~diagonal & (here == after)))

    kept = np.zeros(flat.size, np.bool_)
    kept[place[peak]] = True
    joined, _ = ndimage.label(kept.reshape(steep.shape)[1:-1, 1:-1], np.ones((3, 3)))
    strong = np.unique(joined[(steep[1:-1, 1:-1] > _STRONG) & (joined > 0)])
    wanted = np.zeros(int(joined.max()) + 1, np.bool_)
    wanted[strong] = True
    found: NDArray[np.bool_] = wanted[joined]
    return found


#: tan(22.5 degrees) in 2^-15.
_TANGENT = 13573


def edge_distance(found: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Each pixel's distance from the nearest edge, at most 20."""
    height, width = found.shape
    columns = np.arange(width, dtype=np.int32)
    before = np.maximum.accumulate(np.where(found, columns, -_FAR - 1), axis=1)
    after = np.minimum.accumulate(np.where(found, columns, width + _FAR)[:, ::-1], axis=1)[:, ::-1]
    sideways = np.minimum(np.minimum(columns - before, after - columns), _FAR).astype(np.int16)
    squared = sideways * sideways
    nearest = squared.copy()
    for step in range(1, min(_FAR, height)):
        further = squared + np.int16(step * step)
        np.minimum(nearest[step:], further[:-step], out=nearest[step:])
        np.minimum(nearest[:-step], further[step:], out=nearest[:-step])
    return np.sqrt(np.minimum(nearest, _FAR * _FAR))
