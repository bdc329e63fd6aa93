"""A random landscape by the diamond-square method: fog, and what frost is drawn from."""

from __future__ import annotations

import numpy as np

from curate.corruptions.terms import Floats


def plasma(rng: np.random.Generator, side: int, decay: float) -> Floats:
    """Heights in [0, 1] over a square that joins itself at its edges.

    From coarse to fine, the middle of every square, then of every diamond, becomes the mean of its
    four corners plus w² · uniform(-1, 1). w is 100 at first and is divided by `decay` with every
    halving (published: that w is both the range of the random number and what it is multiplied
    with).

    Args:
        rng: draws a step's numbers row by row: of squares, of diamonds on rows, on columns.
        side: a power of two.
        decay: how much finer steps count less.
    """
    heights = np.zeros((side, side), np.float32)
    wobble, step = 100.0, side
    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        middles = heights[half::step, half::step]
        on_rows = heights[::step, half::step]
        on_columns = heights[half::step, ::step]

        total = corners + np.roll(corners, -1, 0)
        total += np.roll(total, -1, 1)
        _settle(middles, total, rng, wobble)

        _settle(
            on_rows,
            corners + np.roll(corners, -1, 1) + middles + np.roll(middles, 1, 0),
            rng,
            wobble,
        )
        _settle(
            on_columns,
            corners + np.roll(corners, -1, 0) + middles + np.roll(middles, 1, 1),
            rng,
            wobble,
        )
        step, wobble = half, wobble / decay
    heights -= heights.min()
    top = heights.max()
    if top > 0:
        heights /= top
    return heights


def _settle(places: Floats, total: Floats, rng: np.random.Generator, wobble: float) -> None:
    total *= np.float32(0.25)
    noise = rng.random(total.shape, dtype=np.float32)
    noise -= np.float32(0.5)
    noise *= np.float32(2.0 * wobble**2)
    np.add(total, noise, out=places)


def power_of_two(least: int) -> int:
    """The smallest power of two that is at least `least`."""
    return 1 << max(1, (least - 1).bit_length())
