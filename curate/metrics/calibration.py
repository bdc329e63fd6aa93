"""Calibration: whether a model that says 70 % is right in 70 of 100 cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.blocks import blocks
from curate.metrics.checks import Bools, Floats, Ints, integer, one_of, scored_fractions
from curate.metrics.ordering import Ordered


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """What a reliability diagram shows: a row a bin that holds any item, lowest confidence first.

    Attributes:
        confidence: mean confidence of the bin's items, shape (b,).
        accuracy: their mean correctness, a fraction, shape (b,).
        count: how many they are, shape (b,).
        low: the lowest confidence among them, or for bins of equal width the bin's lower edge.
        high: the highest confidence among them, or the bin's upper edge.
    """

    confidence: Floats
    accuracy: Floats
    count: Ints
    low: Floats
    high: Floats


def calibration_error(
    confidence: ArrayLike,
    correct: ArrayLike,
    norm: Literal["rms", "mad", "max"] = "rms",
    bin_size: int = 100,
    convention: Literal["all", "published"] = "all",
    ties: Literal["mean", "input"] = "mean",
) -> float:
    """The distance between confidence and accuracy, over bins of equally many items.

    With b_i items in bin i and gap g_i = |mean confidence - mean correctness| in it,

        rms = √(Σ b_i/n · g_i²),  mad = Σ b_i/n · g_i,  max = max g_i.

    Hendrycks et al., "Deep Anomaly Detection with Outlier Exposure", ICLR 2019, and "Natural
    Adversarial Examples", CVPR 2021 (RMS, after Kumar et al., NeurIPS 2019, on binning).

    Bin edges: items sorted by confidence, lowest first, max(1, ⌊n / bin_size⌋) bins of
    `bin_size` items by rank; the last one takes the remainder. No edge is a confidence, so
    exactly 0 and exactly 1 need no rule of their own.

    The error of a model that is perfectly calibrated is above 0, because a bin's mean
    correctness varies by chance: about √(p(1-p)/bin_size) in rms.

    Args:
        confidence: in [0, 1], shape (n,).
        correct: 0 or 1 an item, shape (n,).
        norm: "rms", "mad" (mean absolute) or "max".
        bin_size: items a bin, at least 1.
        convention: "all" bins; or "published", which leaves out the last, most confident bin
            while n stays whole, as the published `calib_err` does: 0 for fewer than
            2·bin_size items, no value for fewer than `bin_size`.
        ties: "mean" gives items of equal confidence their mean correctness, so that the order
            of the input does not matter where a bin edge parts them; "input" sorts stably and
            takes them as they come.

    Returns:
        A fraction in [0, 1].

    Raises:
        ValueError: no item, lengths that differ, NaN or infinity, a confidence outside [0, 1],
            `correct` other than 0 and 1, an unknown word, or the published convention with
            fewer than `bin_size` items (there the published code fails with an IndexError).
    """
    one_of(norm, "norm", ("rms", "mad", "max"))
    one_of(convention, "convention", ("all", "published"))
    one_of(ties, "ties", ("mean", "input"))
    bin_size = integer(bin_size, "bin_size", 1)
    scores, right = scored_fractions(confidence, correct)
    n = scores.size
    if convention == "published" and n < bin_size:
        raise ValueError(
            f"the published convention has no value for {n} items, fewer than bin_size {bin_size}"
        )
    bins = _equal_count(scores, right, bin_size, ties)
    gaps = np.abs(bins.confidence - bins.accuracy)
    shares = bins.count / n

    if convention == "published":
        gaps, shares = gaps[:-1], shares[:-1]
    if norm == "max":
        return float(gaps.max(initial=0.0))
    if norm == "mad":
        return float(np.sum(shares * gaps))
    return float(np.sqrt(np.sum(shares * gaps**2)))


def reliability_curve(
    confidence: ArrayLike,
    correct: ArrayLike,
    bins: Literal["count", "width"] = "count",
    *,
    bin_size: int = 100,
    bin_count: int = 15,
) -> ReliabilityCurve:
    """Mean confidence and accuracy by bin of confidence, for a reliability diagram.

    Source: DeGroot and Fienberg, "The comparison and evaluation of forecasters", The Statistician
    1983; for networks Guo et al., "On Calibration of Modern Neural Networks", ICML 2017.

    Args:
        confidence: in [0, 1], shape (n,).
        correct: 0 or 1 an item, shape (n,).
        bins: "count": the bins of `calibration_error`, `bin_size` items each and the last one the
            remainder too, items of equal confidence sharing their mean correctness. The gaps
            between the two columns are what that measure adds up. "width": `bin_count` bins of
            equal width, bin i from i/m (exclusive) to (i + 1)/m (inclusive), as Guo et al. have
            it; confidence 0 belongs to the first one. Bins without items are left out.
        bin_size: items a bin, at least 1.
        bin_count: bins of equal width, at least 1.

    Raises:
        ValueError: as `calibration_error`, or `bin_count` below 1.
    """
    one_of(bins, "bins", ("count", "width"))
    bin_size = integer(bin_size, "bin_size", 1)
    bin_count = integer(bin_count, "bin_count", 1)
    scores, right = scored_fractions(confidence, correct)
    if bins == "count":
        return _equal_count(scores, right, bin_size, "mean")
    return _equal_width(scores, right, bin_count)


def overconfidence(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Mean confidence less accuracy: above 0 where a model says more than it keeps.

    Unlike a calibration error it has a sign and needs no bins; over- and underconfidence in
    different places cancel. Its absolute value is at most the mean absolute calibration error.

    Args:
        confidence: in [0, 1], shape (n,).
        correct: 0 or 1 an item, shape (n,).

    Returns:
        In [-1, 1].

    Raises:
        ValueError: as `calibration_error`.
    """
    scores, right = scored_fractions(confidence, correct)
    return float(scores.mean()) - np.count_nonzero(right) / right.size


def soft_f1(confidence: ArrayLike, correct: ArrayLike) -> float:
    """How well low confidence finds the wrong items: an F1 score without a threshold.

    With w_i = 1 for a wrong item, 0 for a right one, and a_i = 1 - confidence_i,

        soft F1 = 2 Σ a_i w_i / Σ (a_i + w_i).

    The wrong items are the positive class. It is the F1 score with each item counted as found to
    the degree a_i: a model that is sure of what is right and unsure of what is wrong has 1.
    Source: Hendrycks et al., "Deep Anomaly Detection with Outlier Exposure", ICLR 2019, in the
    published code of its calibration measures.

    Args:
        confidence: in [0, 1], shape (n,).
        correct: 0 or 1 an item, shape (n,).

    Returns:
        A fraction in [0, 1]. 0 where all are right but not all wholly sure (nothing to be found,
        and something is called wrong), and where all confidence is 1 but something is wrong. 1
        where all are right and all confidence is exactly 1: nothing was to be found and nothing
        was called wrong. (The published code divides 0 by 0 there.)

    Raises:
        ValueError: as `calibration_error`.
    """
    scores, right = scored_fractions(confidence, correct)
    wrong = right.size - int(np.count_nonzero(right))
    doubt, found = 0.0, 0.0
    for block in blocks(scores.size):
        low = 1.0 - scores[block]
        doubt += float(low.sum())
        # No product of BLAS, whose last bits depend on the number of its threads.
        found += float(np.multiply(low, ~right[block], out=low).sum())
    if doubt == 0.0 and wrong == 0:
        return 1.0
    return min(1.0, 2.0 * found / (doubt + wrong))


def _equal_count(scores: Floats, right: Bools, bin_size: int, ties: str) -> ReliabilityCurve:
    ordered = Ordered((scores, right))
    n = len(ordered)
    edges = np.arange(max(1, n // bin_size) + 1) * bin_size
    edges[-1] = n
    sums, hits = np.empty(edges.size - 1), np.empty(edges.size - 1)
    for part in blocks(edges.size - 1, 8 * bin_size):
        items = slice(int(edges[part.start]), int(edges[part.stop]))
        at = edges[part] - items.start
        sums[part] = np.add.reduceat(ordered.scores(items), at)
        hits[part] = np.add.reduceat(ordered.flags(items), at)
    inner = edges[1:-1]
    parted = inner[ordered.tied_with_next(inner - 1)] if inner.size else inner
    if parted.size and ties == "mean":
        # Of a group that an edge parts, the right items stand last; they are to be spread evenly.
        start, stop, first = ordered.spans(parted)
        share = (parted - start) * ((stop - first) / (stop - start))
        moved = np.zeros(edges.size)
        moved[parted // bin_size] = share - np.maximum(parted - first, 0)
        hits += np.diff(moved)
    elif parted.size:
        hits = np.add.reduceat(ordered.in_input_order(scores, right), edges[:-1])
    sizes = np.diff(edges)
    low, high = ordered.scores(edges[:-1]), ordered.scores(edges[1:] - 1)
    return ReliabilityCurve(sums / sizes, hits / sizes, sizes, low, high)


def _equal_width(scores: Floats, right: Bools, count: int) -> ReliabilityCurve:
    edges = np.arange(count + 1) / count
    # Of bins counted from 1; a rounded product may be in 0, which holds nothing.
    low, high = np.append(-1.0, edges[:-1]), np.append(-1.0, edges[1:])
    low[1] = -1.0
    counts, sums = np.zeros(2 * count + 2, dtype=np.int64), np.zeros(count + 1)
    for block in blocks(scores.size, 8):
        score = scores[block]
        place = np.ceil(score * count).astype(np.int64)
        # The product is rounded; the edges are what counts.
        below, above = score <= low.take(place), score > high.take(place)
        if below.any():
            place -= below
        if above.any():
            place += above
        sums += np.bincount(place, score, minlength=count + 1)
        place <<= 1
        place |= right[block]
        counts += np.bincount(place, minlength=2 * count + 2)
    sums, hits = sums[1:], counts[3::2]
    sizes = counts[2::2] + hits
    kept = sizes > 0
    n = sizes[kept]
    return ReliabilityCurve(sums[kept] / n, hits[kept] / n, n, edges[:-1][kept], edges[1:][kept])
