"""Intervals of OOD detection, and AUPR at another base rate than the data's own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.blocks import blocks
from curate.metrics.checks import Ints, finite_vector, integer, level
from curate.metrics.draws import Urn, side_by_side
from curate.metrics.intervals import interval_of

#: Of ImageNet-O as published: 2,000 images against 10,000.
PUBLISHED_BASE_RATE = 1 / 6


@dataclass(frozen=True)
class Estimate:
    """A measure with its bootstrap interval.

    Attributes:
        value: on the items as they are.
        interval: (low, high); None where one side is a single item, which has no spread.
    """

    value: float
    interval: tuple[float, float] | None


def aupr_at_base_rate(
    scores_in: ArrayLike, scores_out: ArrayLike, base_rate: float = PUBLISHED_BASE_RATE
) -> float:
    """Average precision as it would be if the OOD items had another share, OOD positive.

    AUPR grows with the share β of OOD items, so values at different shares do not compare. Here
    each in-distribution item counts w times, as if there were more or fewer of the same kind:

        Σ (R_i - R_{i-1})·T_i / (T_i + w·F_i),  w = n_out·(1 - β) / (β·n_in),

    T_i and F_i the OOD and in-distribution items above the i-th threshold. It is average
    precision with sample weights; at the data's own base rate, w = 1, it is `ood_detection`'s
    `aupr`.

    Args:
        scores_in: scores of in-distribution items, higher = more anomalous, shape (n_in,).
        scores_out: scores of out-of-distribution items, shape (n_out,).
        base_rate: β, between 0 and 1; by default that of ImageNet-O as published, 1/6.

    Raises:
        ValueError: one of them is empty, or holds NaN or infinity, or `base_rate` is out of range.
    """
    sides = _Sides(scores_in, scores_out, base_rate)
    return sides.measures(sides.whole())["aupr_reweighted"]


def ood_detection_estimates(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    *,
    base_rate: float = PUBLISHED_BASE_RATE,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Measures of detection, each with a stratified bootstrap interval.

    Both sides are drawn anew with replacement, each at its own size, so that the base rate stays.
    The interval is that of `bootstrap_interval`: percentiles, less the bootstrap's bias. Where the
    sides are parted in every resample it has no width, which is no certainty.

    Args:
        scores_in: scores of in-distribution items, higher = more anomalous, shape (n_in,).
        scores_out: scores of out-of-distribution items, shape (n_out,).
        base_rate: of `aupr_reweighted`.
        resamples: at least 1; 1,000 for a 95 % interval.
        confidence: between 0 and 1.
        seed: of `numpy.random.RandomState`, whose stream is frozen; 0 … 2³² - 1.

    Returns:
        `aupr`, `aupr_reweighted` (see `aupr_at_base_rate`), `aupr_in` (average precision with the
        in-distribution items as positive and low scores first), `auroc`, `fpr95` and
        `fpr95_published` (see `ood_detection`).

    Raises:
        ValueError: one of them is empty, or holds NaN or infinity, or an argument is out of range.
    """
    (found,) = ood_detections_estimates(
        [(scores_in, scores_out)],
        base_rate=base_rate,
        resamples=resamples,
        confidence=confidence,
        seed=seed,
    )
    return found


def ood_detections_estimates(
    scores: Sequence[tuple[ArrayLike, ArrayLike]],
    *,
    base_rate: float = PUBLISHED_BASE_RATE,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    done: Callable[[int], None] = lambda _: None,
) -> list[dict[str, Estimate]]:
    """`ood_detection_estimates` of several scores of the same items, which are drawn once for all.

    Args:
        scores: each of the in-distribution items, shape (n_in,), and of the out-of-distribution
            ones, shape (n_out,).
        base_rate: of `aupr_reweighted`.
        resamples: at least 1.
        confidence: between 0 and 1.
        seed: as in `ood_detection_estimates`.
        done: called with its number, from 0, after each resample.

    Raises:
        ValueError: as `ood_detection_estimates`, or scores are of different numbers of items.
    """
    sides = [_Sides(*both, base_rate) for both in scores]
    resamples = integer(resamples, "resamples", 1)
    level(confidence)
    random = np.random.RandomState(integer(seed, "seed", 0, 2**32 - 1))
    sizes = {(one.n_in, one.n_out) for one in sides}
    if len(sizes) > 1:
        raise ValueError(f"the scores are of different numbers of items: {sorted(sizes)}")
    if not sizes:
        return []
    ((n_in, n_out),) = sizes
    for one in sides:  # each has done with it before the next one begins
        one.room = sides[0].room
    rows = [[one.measures(one.whole())] for one in sides]
    if min(n_in, n_out) > 1:

        def work(copies: Ints) -> list[dict[str, float]]:
            return [one.measures(copies) for one in sides]

        given = _draws(random, n_in, n_out, resamples)
        for number, found in enumerate(side_by_side(work, given, n_in + n_out)):
            for own, values in zip(rows, found, strict=True):
                own.append(values)
            done(number)
    return [
        {name: _estimate([one[name] for one in own], confidence) for name in own[0]} for own in rows
    ]


def _estimate(values: list[float], confidence: float) -> Estimate:
    """Of the value on the items as they are, and then on each resample."""
    value, *drawn = values
    return Estimate(value, interval_of(drawn, value, confidence, (0.0, 1.0)) if drawn else None)


def _draws(random: np.random.RandomState, n_in: int, n_out: int, resamples: int) -> Iterator[Ints]:
    """How often each item is drawn, the in-distribution ones first, each side at its own size."""
    inside, outside = Urn(n_in), Urn(n_out)
    for _ in range(resamples):
        yield np.concatenate((inside.draw(random), outside.draw(random)))


#: Two counts in one number, so that one running sum is both: of OOD items above it, of all below.
_BOTH = 32
_ALL = (1 << _BOTH) - 1

#: `blocks` of rows this wide: the arrays of a pass then stay within a processor's second cache.
_WIDTH = 8


class _Sides:
    """Items of both sides by score, the lowest first: a resample is a number of copies of each."""

    def __init__(self, scores_in: ArrayLike, scores_out: ArrayLike, base_rate: float) -> None:
        inside = finite_vector(scores_in, "scores_in")
        outside = finite_vector(scores_out, "scores_out")
        if not 0.0 < base_rate < 1.0:
            raise ValueError(f"base_rate is {base_rate}: expected a share between 0 and 1")
        self.n_in, self.n_out = inside.size, outside.size
        scores = np.concatenate((inside, outside))
        self._order = np.argsort(scores, kind="stable")
        scores = scores[self._order]
        is_out = self._order >= inside.size
        self._unit = is_out.astype(np.int64) << _BOTH
        self._unit += 1
        new = np.append(True, scores[1:] != scores[:-1])
        bounds = np.append(np.flatnonzero(new), scores.size)
        has_out = np.logical_or.reduceat(is_out, bounds[:-1])
        has_in = np.logical_or.reduceat(~is_out, bounds[:-1])
        # Of scores that only the other side has, a sum over one side asks nothing.
        self._stop_in = bounds[1:][has_in]
        self._start_out, self._stop_out = bounds[:-1][has_out], bounds[1:][has_out]
        self._weight = outside.size * (1.0 - base_rate) / (base_rate * inside.size)
        # No denominator that counts is smaller: one item passes at least.
        self._least = min(self._weight, 1.0)
        self.room = _Room(scores.size)

    def whole(self) -> Ints:
        """One copy of each item."""
        return np.ones(self.n_in + self.n_out, np.uint8)

    def measures(self, copies: Ints) -> dict[str, float]:
        """Every measure; scores that a resample lacks change nothing.

        Without BLAS, whose sums depend on the number of its threads.

        Args:
            copies: of each item, the in-distribution ones first; as many of each side as it has.
        """
        room, n_in, n_out = self.room, self.n_in, self.n_out
        np.multiply(copies.take(self._order), self._unit, out=room.copies)
        np.cumsum(room.copies, out=room.below[1:])

        fpr95, nearest = self._false_positives()
        aupr, reweighted, area = self._areas()
        return {
            "aupr": aupr,
            "aupr_reweighted": reweighted,
            "aupr_in": self._area_of_inside(),
            "auroc": area / (2 * n_in * n_out),
            "fpr95": fpr95 / n_in,
            "fpr95_published": nearest / n_in,
        }

    def _areas(self) -> tuple[float, float, int]:
        """Average precision, the same at the other base rate, and the sum of ranks behind AUROC."""
        below, n_in, n_out = self.room.below, self.n_in, self.n_out
        step, weighted, area = 0.0, 0.0, 0
        for block in blocks(self._start_out.size, _WIDTH):
            start, stop = below.take(self._start_out[block]), below.take(self._stop_out[block])
            out_start, out_stop = start >> _BOTH, stop >> _BOTH
            start &= _ALL
            start -= out_start
            stop &= _ALL
            stop -= out_stop
            own = (out_stop - out_start).astype(np.float64)
            true, false = (n_out - out_start).astype(np.float64), (n_in - start).astype(np.float64)
            # Where nothing has passed yet nothing is gained: the quotient counts for nothing.
            precision = true / np.maximum(true + false, 1.0)
            step += float(np.sum(np.multiply(own, precision, out=precision)))
            false *= self._weight
            false += true
            true /= np.maximum(false, self._least, out=false)
            weighted += float(np.sum(np.multiply(own, true, out=true)))
            start += stop
            out_stop -= out_start
            area += int(np.sum(np.multiply(out_stop, start, out=start)))
        return step / n_out, weighted / n_out, area

    def _area_of_inside(self) -> float:
        """Average precision with the in-distribution items as positive, from the lowest score."""
        step, before = 0.0, 0.0
        for block in blocks(self._stop_in.size, _WIDTH):
            passed = self.room.below.take(self._stop_in[block])
            out = passed >> _BOTH
            passed &= _ALL
            # As floats at once, since mixed arithmetic is slow.
            total = passed.astype(np.float64)
            true = np.subtract(passed, out, out=out).astype(np.float64)
            own = np.empty_like(true)
            own[0] = true[0] - before
            np.subtract(true[1:], true[:-1], out=own[1:])
            before = true[-1]
            true /= np.maximum(total, 1.0, out=total)
            step += float(np.sum(np.multiply(own, true, out=own)))
        return step / self.n_in

    def _false_positives(self) -> tuple[int, int]:
        """Those at 95 % recall, and at the recall nearest to it."""
        n_in, n_out = self.n_in, self.n_out
        (out_start, in_start), (out_stop, _) = self._crossing(n_out - -(-19 * n_out // 20))
        enough = n_in - in_start
        # Of thresholds with the nearest recall the lowest counts, which is above the next OOD item;
        # at full recall, the highest.
        recalled, fewer = n_out - out_start, n_out - out_stop
        if abs(fewer / n_out - 0.95) < abs(recalled / n_out - 0.95):
            recalled = fewer
        if recalled == n_out:
            return enough, n_in - self._crossing(0)[0][1]
        return enough, n_in - self._crossing(n_out - recalled - 1)[1][1]

    def _crossing(self, count: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """How many items of each side, OOD first, are below the score that more than `count` OOD
        items do not exceed, and how many do not exceed it.
        """
        below = self.room.below
        item = int(np.searchsorted(below, (count + 1) << _BOTH)) - 1
        group = int(np.searchsorted(self._stop_out, item, side="right"))
        ends = (int(below[side[group]]) for side in (self._start_out, self._stop_out))
        start, stop = ((both >> _BOTH, (both & _ALL) - (both >> _BOTH)) for both in ends)
        return start, stop


class _Room(threading.local):
    """What a pass over the items writes to, once for each thread."""

    def __init__(self, n: int) -> None:
        self.copies = np.empty(n, np.int64)
        self.below = np.zeros(n + 1, np.int64)
