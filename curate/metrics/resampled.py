"""Measures of confidence and correctness, of as many copies of each item as one likes.

A bootstrap asks for the same measures a thousand times, of the same items drawn anew. Sorted once,
each draw is a number of copies an item, and one running sum of these tells how many copies stand
before any item. What else there is to know is at few places: where right and wrong items meet, and
where bins end. The values are those of `aurra`, `calibration_error`, `soft_f1` and `overconfidence`
on the copies.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import (
    Bools,
    Floats,
    Ints,
    finite_vector,
    integer,
    same_length,
    scored_fractions,
)
from curate.metrics.draws import draws, side_by_side


class ScoredItems:
    """Items with a confidence and a correctness each.

    Args:
        confidence: in [0, 1], shape (n,).
        correct: 0 or 1 an item, shape (n,).
        bin_size: items a bin of the calibration errors, at least 1.

    Attributes:
        mixed: whether a right and a wrong item have the same confidence. Where none have, the
            conventions for equal confidences agree on every draw.

    Raises:
        ValueError: no item, lengths that differ, NaN or infinity, a confidence outside [0, 1],
            `correct` other than 0 and 1, or `bin_size` below 1.
    """

    def __init__(self, confidence: ArrayLike, correct: ArrayLike, bin_size: int = 100) -> None:
        scores, told = scored_fractions(confidence, correct)
        self._bin_size = integer(bin_size, "bin_size", 1)
        self._order = np.argsort(scores, kind="stable")
        self._scores = scores[self._order]
        right = told[self._order].astype(np.float64)
        self._surplus = self._scores - right
        self._doubt_of_wrong = (1.0 - right) * (1.0 - self._scores)
        self._groups(right)
        self._room = _Room(right.size)
        self._worth_of = 0, np.empty(0)
        if self.mixed:
            self._published_order = np.argsort(scores)
            self._published_runs = _runs(told[self._published_order], np.arange(len(self) + 1))

    def _groups(self, right: Floats) -> None:
        """Where equal confidences begin and end, and which of them are of right items alone."""
        new = np.ones(right.size, np.bool_)
        np.not_equal(self._scores[1:], self._scores[:-1], out=new[1:])
        starts = np.flatnonzero(new)
        bounds = np.append(starts, right.size)
        size, hits = np.diff(bounds), np.add.reduceat(right, starts)
        self._alone = starts.size == right.size
        if not self._alone:
            group = np.cumsum(new) - 1
            self._first, self._end = starts[group], bounds[group + 1]
        self._runs = _runs(hits == size, bounds)
        both = (hits > 0.0) & (hits < size)
        self.mixed = bool(both.any())
        self._starts, self._stops = starts[both], bounds[1:][both]
        self._right_in_both = np.flatnonzero(np.repeat(both, size) & (right > 0.0))
        self._first_right = (np.cumsum(hits[both]) - hits[both]).astype(np.int64)

    def __len__(self) -> int:
        return self._scores.size

    def measures(self, copies: ArrayLike | None = None) -> dict[str, float]:
        """Every measure of so many copies of each item.

        Args:
            copies: whole numbers from 0, in the order of the items, at least one of them above
                0; None for one of each.

        Returns:
            accuracy, aurra, rms, mad, max (as `calibration_error` names its norms, all bins),
            rms_published (without the last bin; 0 where that is all there is), rms_published_input
            (the same, where of equal confidences the earlier item comes first), soft_f1,
            overconfidence, and aurra_published (`aurra` in the published order of the items: their
            copies stand where they do).

        Raises:
            ValueError: `copies` of another length, no whole numbers, below 0, or 0 for all.
        """
        # No products of BLAS here, whose last bits depend on the number of its threads.
        room = self._room
        counts = self._taken(copies)
        taken = counts.take(self._order)
        np.cumsum(taken, dtype=np.int64, out=room.at[1:])
        n = int(room.at[-1])
        if n == 0:
            raise ValueError("copies must be from 0, and one of them above 0")
        room.weight[:] = taken
        doubt_of_wrong = np.multiply(room.weight, self._doubt_of_wrong, out=room.sums[:-1])
        found = float(np.sum(doubt_of_wrong))
        np.multiply(room.weight, self._surplus, out=room.sums[:-1])
        hits, area = self._right(taken, n)
        gaps, shares, surplus = self._gaps(n, of_items=False)
        by_input = self._gaps(n, of_items=True)[0] if self.mixed else gaps
        # Of confidences of 1 all terms are whole numbers, so that no doubt is none at all.
        wrong, doubt = n - hits, n - hits - surplus
        return {
            "accuracy": hits / n,
            "aurra": area / n,
            "aurra_published": (self._published(counts, n) if self.mixed else area) / n,
            "rms": _rms(gaps, shares),
            "mad": float(np.sum(shares * gaps)),
            "max": float(gaps.max()),
            "rms_published": _rms(gaps[:-1], shares[:-1]),
            "rms_published_input": _rms(by_input[:-1], shares[:-1]),
            "soft_f1": min(1.0, max(0.0, 2.0 * found / (doubt + wrong)))
            if doubt + wrong > 0.0
            else 1.0,
            "overconfidence": surplus / n,
        }

    def _taken(self, copies: ArrayLike | None) -> Ints:
        if copies is None:
            return np.ones(len(self), np.uint8)
        counts = np.asarray(copies)
        if counts.ndim != 1 or counts.dtype.kind not in "iu":
            numbers = finite_vector(copies, "copies")
            if np.any(numbers != np.floor(numbers)):
                raise ValueError("copies must be whole numbers")
            counts = numbers.astype(np.int64)
        same_length(("copies", counts), ("confidence", self._scores))
        if counts.min() < 0:
            raise ValueError("copies must be from 0, and one of them above 0")
        return counts

    def _right(self, taken: Ints, n: int) -> tuple[int, float]:
        """How many copies are right, and n times the area under the response rate curve.

        A right copy at rank j adds 1 to the numerators of j and all later ranks: it is worth
        1/j + … + 1/n. The m first copies are worth Σ_j min(j, m)/j = m (1 + 1/(m + 1) + … + 1/n),
        and those of a run of right ones what this grows by. Of copies that share their ranks with
        wrong ones, each is worth the mean.
        """
        worth, at = self._worth(n), self._room.at
        bounds = at.take(self._runs)
        hits, area = int(np.sum(bounds[1::2]) - np.sum(bounds[::2])), _between(worth, bounds)
        if self.mixed:
            right = taken.take(self._right_in_both).astype(np.int64)
            right = np.add.reduceat(right, self._first_right)
            start, stop = at.take(self._starts), at.take(self._stops)
            rate = right / np.maximum(stop - start, 1)
            area += float(np.sum(rate * (worth.take(start) - worth.take(stop))))
            hits += int(np.sum(right))
        return hits, area

    def _published(self, counts: Ints, n: int) -> float:
        """n times the area under the curve where equal confidences are in the published order."""
        at = np.zeros(len(self) + 1, np.int64)
        np.cumsum(counts.take(self._published_order), out=at[1:])
        return _between(self._worth(n), at.take(self._published_runs))

    def _worth(self, n: int) -> Floats:
        """What the copies from the most confident one on are worth, by how many come before."""
        known = self._worth_of
        if known[0] != n:
            tail = np.zeros(n + 1)
            np.cumsum(1.0 / np.arange(n, 0, -1), out=tail[1:])
            tail += 1.0
            tail *= np.arange(n, -1, -1)
            # In one assignment, as threads may ask at the same time.
            self._worth_of = known = n, tail
        return known[1]

    def _gaps(self, n: int, *, of_items: bool) -> tuple[Floats, Floats, float]:
        """The distance between confidence and accuracy in each bin, and the bin's share.

        And the sum of confidence less correctness over all copies.

        Args:
            n: copies.
            of_items: whether equal confidences stay in order, rather than share their correctness.
        """
        at, sums = self._room.at, self._room.sums
        count = max(1, n // self._bin_size)
        edges = np.arange(1, count) * self._bin_size
        # The item that an edge is in, or the group: it takes its part of it.
        item = np.searchsorted(at, edges) - 1
        first, end = (
            (item, item + 1)
            if self._alone or of_items
            else (
                self._first[item],
                self._end[item],
            )
        )
        new = np.ones(first.size, np.bool_)
        np.not_equal(first[1:], first[:-1], out=new[1:])
        bounds = np.zeros(2 * int(np.count_nonzero(new)) + 1, np.int64)
        bounds[1::2], bounds[2::2] = first[new], end[new]
        parts = np.add.reduceat(sums, bounds)
        # Of nothing, it gives what comes next.
        parts[:-1][bounds[1:] == bounds[:-1]] = 0.0
        before = np.cumsum(parts)
        place = 2 * np.cumsum(new) - 2
        below = at.take(first)
        part = (edges - below) / (at.take(end) - below)
        ends = np.zeros(count + 1)
        ends[1:-1] = before[place] + part * parts[place + 1]
        ends[-1] = before[-1]
        sizes = np.full(count, float(self._bin_size))
        sizes[-1] = n - (count - 1) * self._bin_size
        return np.abs(np.diff(ends)) / sizes, sizes / n, float(before[-1])


class _Room(threading.local):
    """What a pass over the items writes to: in new memory each pass would take twice as long.

    Every thread has its own.
    """

    def __init__(self, n: int) -> None:
        self.at = np.zeros(n + 1, np.int64)
        self.weight = np.empty(n)
        # A last 0, so that a sum may begin behind the last item.
        self.sums = np.zeros(n + 1)


def _runs(right: Bools, bounds: Ints) -> Ints:
    """Where each run of right groups begins and, next to it, where it ends."""
    among = np.concatenate(([False], right, [False]))
    return bounds[among[1:] != among[:-1]]


def _between(worth: Floats, bounds: Ints) -> float:
    """What the copies in runs are worth, each of which is a beginning and an end."""
    value = worth.take(bounds)
    return float(np.sum(value[::2] - value[1::2]))


def _rms(gaps: Floats, shares: Floats) -> float:
    return float(np.sqrt(np.sum(shares * gaps**2)))


def measures_on_draws(
    models: Sequence[ScoredItems], resamples: int, seed: int
) -> Iterator[list[dict[str, float]]]:
    """The measures of each model on resample after resample, all on the same draws.

    Args:
        models: of the same number of items.
        resamples: at least 1.
        seed: as `draws` takes it.

    Yields:
        For each model what `ScoredItems.measures` gives.

    Raises:
        ValueError: no model, numbers of items that differ, or an argument out of range.
    """
    sizes = {len(items) for items in models}
    if len(sizes) != 1:
        raise ValueError(f"models must be of one number of items, not {sorted(sizes)}")

    def work(copies: Ints) -> list[dict[str, float]]:
        return [items.measures(copies) for items in models]

    n = sizes.pop()
    yield from side_by_side(work, draws(n, resamples, seed), n)
