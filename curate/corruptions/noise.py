"""Noise: every value of every pixel on its own, so that no constant is a length."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from curate.corruptions.terms import Levels, Terms, levels, row_blocks

_BITS = 12


def gaussian_noise(image: Levels, scale: float, terms: Terms) -> Levels:
    """x + N(0, c), with x in [0, 1]."""
    noise = terms.rng.standard_normal(image.shape, dtype=np.float32)
    noise *= np.float32(255.0 * scale)
    noise += image
    return levels(noise)


def speckle_noise(image: Levels, scale: float, terms: Terms) -> Levels:
    """x + x·N(0, c)."""
    noise = terms.rng.standard_normal(image.shape, dtype=np.float32)
    noise *= np.float32(scale)
    noise += np.float32(1.0)
    noise *= image
    return levels(noise)


def impulse_noise(image: Levels, amount: float, terms: Terms) -> Levels:
    """A share c of all values becomes 0 or 255, each as likely."""
    lot = terms.rng.random(image.shape, dtype=np.float32)
    result = image.copy()
    np.putmask(result, lot < np.float32(amount), 0)
    np.putmask(result, lot < np.float32(amount / 2.0), 255)
    return result


def shot_noise(image: Levels, photons: int, terms: Terms) -> Levels:
    """Poisson(x·c) / c: white is c photons.

    A count is the Poisson distribution's quantile at a random 32-bit number. There are but 256
    means, so that quantiles are looked up: the number's upper bits lead to the count, or to the
    first of few that its lower bits decide between.
    """
    thresholds, guide, shown = _quantiles(photons)
    steps = thresholds.shape[1]
    result = np.empty_like(image)
    for rows in row_blocks(*image.shape[:2]):
        grey = image[rows].reshape(-1).astype(np.intp)
        lot = terms.rng.integers(0, 1 << 32, grey.size, dtype=np.uint32)
        count = guide.take((grey << _BITS) | (lot >> (32 - _BITS)))
        undecided = np.flatnonzero(count & _UNDECIDED)
        count[undecided] ^= _UNDECIDED
        while undecided.size:
            here = grey[undecided] * steps + count[undecided]
            undecided = undecided[lot[undecided] >= thresholds.reshape(-1).take(here)]
            count[undecided] += 1
        result[rows] = shown.take(count).reshape(image[rows].shape)
    return result


_UNDECIDED = np.int16(1 << 14)


@lru_cache(maxsize=8)
def _quantiles(
    photons: int,
) -> tuple[NDArray[np.uint64], NDArray[np.int16], NDArray[np.uint8]]:
    """For each of the 256 means: where each count's quantiles end, in 2^-32.

    And the count at the beginning of each of 2^12 stretches, with a bit set where another count
    begins within it; and the grey level that each count is shown as.
    """
    from scipy.special import pdtr

    most = int(photons + 12.0 * np.sqrt(photons) + 30.0)
    means = np.arange(256)[:, None] * (photons / 255.0)
    cumulative = pdtr(np.arange(most), means)
    thresholds = np.rint(cumulative * 2.0**32).astype(np.uint64)
    thresholds[:, -1] = 1 << 32
    starts = np.arange(1 << _BITS, dtype=np.uint64) << np.uint64(32 - _BITS)
    last = starts + np.uint64((1 << (32 - _BITS)) - 1)
    guide = np.empty((256, 1 << _BITS), np.int16)
    for grey in range(256):
        low = np.searchsorted(thresholds[grey], starts, side="right")
        high = np.searchsorted(thresholds[grey], last, side="right")
        guide[grey] = np.where(high > low, low | int(_UNDECIDED), low)
    shown = levels(np.arange(most) * (255.0 / photons))
    return thresholds, guide.reshape(-1), shown
