"""Blur along a line, as ImageMagick's `-motion-blur RADIUSxSIGMA+ANGLE` has it.

The kernel is half a Gaussian, from the pixel itself in one direction, over 2·ceil(radius) + 1
pixels; each tap lies on the pixel nearest to its place on the line, and the last pixel goes on
beyond the border. Weights below a millionth of the largest are left out, and nothing is rounded to
16 bits between. Beside ImageMagick 6.9 (by its PNG, whose levels are cut and not rounded) one
value in 500 differs, by one grey level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.corruptions.filters import correlate
from curate.corruptions.terms import Floats

_LEAST = 1e-6

#: More taps than these are applied by transform.
_LONG = 64


@dataclass(frozen=True)
class Tap:
    """One pixel of the line: how far away, and what it weighs."""

    down: int
    right: int
    weight: float


def motion_taps(radius: float, sigma: float, angle: float) -> list[Tap]:
    """The line's pixels, the nearest first; their weights sum to 1.

    Args:
        radius: in pixels.
        sigma: of the half Gaussian, in pixels.
        angle: in degrees, clockwise from the right.
    """
    count = 2 * math.ceil(radius) + 1
    weights = [math.exp(-0.5 * (step / sigma) ** 2) for step in range(count)]
    weights = [weight for weight in weights if weight >= _LEAST]
    total = math.fsum(weights)
    down, right = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    return [
        Tap(math.ceil(step * down - 0.5), math.ceil(step * right - 0.5), weight / total)
        for step, weight in enumerate(weights)
    ]


def motion_blurred(values: NDArray[Any], taps: list[Tap]) -> Floats:
    """The same image or layer, blurred along the line.

    Args:
        values: shape (h, w, channels), in grey levels.
        taps: of `motion_taps`.
    """
    return _transformed(values, taps) if len(taps) > _LONG else _summed(values, taps)


def _summed(values: NDArray[Any], taps: list[Tap]) -> Floats:
    height, width = values.shape[:2]
    up, down = (max(0, *(sign * tap.down for tap in taps)) for sign in (-1, 1))
    left, right = (max(0, *(sign * tap.right for tap in taps)) for sign in (-1, 1))
    padded = np.pad(values, ((up, down), (left, right), (0, 0)), mode="edge")
    padded = padded.astype(np.float32, copy=False)
    total = np.zeros(values.shape, np.float32)
    part = np.empty_like(total)
    for tap in taps:
        row, column = up + tap.down, left + tap.right
        moved = padded[row : row + height, column : column + width]
        np.multiply(moved, np.float32(tap.weight), out=part)
        total += part
    return total


def _transformed(values: NDArray[Any], taps: list[Tap]) -> Floats:
    up = max(abs(tap.down) for tap in taps)
    left = max(abs(tap.right) for tap in taps)
    kernel = np.zeros((2 * up + 1, 2 * left + 1))
    for tap in taps:
        kernel[up + tap.down, left + tap.right] += tap.weight
    return correlate(values, kernel, "nearest")
