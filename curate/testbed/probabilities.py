"""Telling probabilities from logits, for which files are often mistaken.

A softmax over probabilities is nearly flat: the predictions stay what they are, and every measure
of confidence is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.errors import UsageError

# What a softmax in float16 is off by, and more.
_TOLERANCE = 0.01


class Probabilities:
    """Whether all rows of an array are distributions, in fractions or in percent."""

    def __init__(self) -> None:
        self._sums = {1.0, 100.0}
        self._seen = False

    def look(self, block: NDArray[Any]) -> None:
        """Take some rows, shape (n, columns); those that are not finite are passed over."""
        if not self._sums:
            return
        rows = block[np.isfinite(block).all(axis=1)]
        if not len(rows):
            return
        self._seen = True
        if rows.min() < 0:
            self._sums = set()
            return
        found = rows.sum(axis=1, dtype=np.float64)
        self._sums = {one for one in self._sums if (np.abs(found / one - 1.0) <= _TOLERANCE).all()}

    def refuse(self, where: str) -> None:
        """Refuse them where all of at least one row are.

        Args:
            where: how to call the array.

        Raises:
            UsageError: they are.
        """
        if self._seen and self._sums:
            raise UsageError(
                f"{where} holds probabilities: every row is from 0 and sums to "
                f"{next(iter(self._sums)):g}; save what the softmax was given, or the logarithm of "
                "what it gave"
            )
