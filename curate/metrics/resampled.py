"""Measures of confidence and correctness, of as many copies of each item as one likes.

A bootstrap asks for the same measures a thousand times, of the same items drawn anew. Sorted once,
each draw is a number of copies an item, and sums over these give every measure without sorting
again: the values are those of `aurra`, `calibration_error`, `soft_f1` and `overconfidence` on the
copies, in a quarter of the time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import (
    Floats,
    Ints,
    finite_vector,
    integer,
    same_length,
    scored_fractions,
)


class ScoredItems:
    """Items with a confidence and a correctness each.

    Args:
        confidence: in [0, 1], shape (n,).
        correct: 0 or 1 an item, shape (n,).
        bin_size: items a bin of the calibration errors, at least 1.

    Attributes:
        distinct: whether no two items have the same confidence. Then the conventions for equal
            confidences agree on every draw, since copies of an item are equally right.

    Raises:
        ValueError: no item, lengths that differ, NaN or infinity, a confidence outside [0, 1],
            `correct` other than 0 and 1, or `bin_size` below 1.
    """

    def __init__(self, confidence: ArrayLike, correct: ArrayLike, bin_size: int = 100) -> None:
        scores, right = scored_fractions(confidence, correct)
        self._bin_size = integer(bin_size, "bin_size", 1)
        self._order = np.argsort(scores, kind="stable")
        self._scores = scores[self._order]
        self._right = right[self._order].astype(np.float64)
        starts = np.ones(scores.size, np.bool_)
        np.not_equal(self._scores[1:], self._scores[:-1], out=starts[1:])
        self._starts = np.flatnonzero(starts)
        self.distinct = self._starts.size == scores.size
        self._inverse_sums = np.empty(0)

    def __len__(self) -> int:
        return self._scores.size

    def measures(self, copies: ArrayLike | None = None) -> dict[str, float]:
        """Every measure of so many copies of each item.

        Args:
            copies: whole numbers from 0, in the order of the items, at least one of them above
                0; None for one of each.

        Returns:
            accuracy, aurra, rms, mad, max (as `calibration_error` names its norms, all bins),
            rms_published (without the last bin; 0 where that is all there is), soft_f1 and
            overconfidence.

        Raises:
            ValueError: `copies` of another length, NaN, below 0, or 0 for all.
        """
        # No products of BLAS here, whose last bits depend on the number of its threads.
        weight = np.ones(len(self)) if copies is None else self._taken(copies)
        n = round(float(weight.sum()))
        right = weight * self._right
        sums = weight * self._scores
        hits = float(right.sum())
        doubt = n - float(sums.sum())
        found = doubt - float(np.sum(right * (1.0 - self._scores)))
        wrong = n - hits
        at, told = self._groups(weight), self._groups(right)
        gaps, shares = self._gaps(n, at, told, self._groups(sums))
        # Rounding may leave a little of what is nothing.
        if doubt < 1e-6 and not np.any(self._scores[weight > 0] < 1.0):
            doubt = 0.0
        return {
            "accuracy": hits / n,
            "aurra": self._aurra(n, at, told),
            "rms": float(np.sqrt(np.sum(shares * gaps**2))),
            "mad": float(np.sum(shares * gaps)),
            "max": float(gaps.max()),
            "rms_published": float(np.sqrt(np.sum(shares[:-1] * gaps[:-1] ** 2))),
            "soft_f1": min(1.0, max(0.0, 2.0 * found / (doubt + wrong)))
            if doubt + wrong > 0.0
            else 1.0,
            "overconfidence": float(sums.sum()) / n - hits / n,
        }

    def _taken(self, copies: ArrayLike) -> Floats:
        counts = finite_vector(copies, "copies")
        same_length(("copies", counts), ("confidence", self._scores))
        if counts.min() < 0.0 or counts.max() <= 0.0:
            raise ValueError("copies must be from 0, and one of them above 0")
        return counts[self._order]

    def _groups(self, values: Floats) -> Floats:
        """Sums below each distinct confidence, lowest first, and at last the sum of all."""
        if not self.distinct:
            values = np.add.reduceat(values, self._starts)
        below = np.empty(values.size + 1)
        below[0] = 0.0
        np.cumsum(values, out=below[1:])
        return below

    def _aurra(self, n: int, at: Floats, told: Floats) -> float:
        if self._inverse_sums.size <= n:
            self._inverse_sums = np.concatenate(([0.0], np.cumsum(1.0 / np.arange(1, n + 1))))
        # Σ 1/j over the ranks of each group, counted from the most confident item.
        ranks = self._inverse_sums[n - at.astype(np.int64)]
        inverse = ranks[:-1] - ranks[1:]
        size, right = np.diff(at), np.diff(told)
        rate = np.divide(right, size, out=np.zeros_like(size), where=size > 0)
        surplus = (told[-1] - told[1:]) - (n - at[1:]) * rate
        return float(right.sum() + np.sum(surplus * inverse)) / n

    def _gaps(self, n: int, at: Floats, told: Floats, sums: Floats) -> tuple[Floats, Floats]:
        """The distance between confidence and accuracy in each bin, and the bin's share."""
        edges = np.arange(max(1, n // self._bin_size) + 1, dtype=np.float64) * self._bin_size
        edges[-1] = n
        # An edge within a group takes its part of it; a group is equal confidences.
        group = np.searchsorted(at[1:-1], edges, side="left")
        part = edges - at[group]
        size = at[group + 1] - at[group]
        part = np.divide(part, size, out=np.zeros_like(part), where=size > 0)
        ends = [side[group] + part * (side[group + 1] - side[group]) for side in (told, sums)]
        sizes = np.diff(edges)
        return np.abs(np.diff(ends[1]) - np.diff(ends[0])) / sizes, sizes / n


def draws(n: int, resamples: int, seed: int) -> Iterator[Ints]:
    """How often each of n items is drawn, resample after resample: those of `bootstrap_interval`.

    Args:
        n: items, at least 1.
        resamples: at least 1.
        seed: of `numpy.random.RandomState`, 0 … 2³² - 1.

    Raises:
        ValueError: an argument out of range.
    """
    n, resamples = integer(n, "n", 1), integer(resamples, "resamples", 1)
    random = np.random.RandomState(integer(seed, "seed", 0, 2**32 - 1))
    for _ in range(resamples):
        yield np.bincount(random.randint(0, n, n), minlength=n)
