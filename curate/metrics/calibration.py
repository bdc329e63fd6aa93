"""Calibration error over bins of equal count."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import in_range, integer, one_of, scored_items
from curate.metrics.ties import cumulative_counts, expected_hits, sorted_scores


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
    scores, right = scored_items(confidence, correct)
    in_range(scores, "confidence", 0.0, 1.0, ", a fraction")
    n = scores.size
    if convention == "published" and n < bin_size:
        raise ValueError(
            f"the published convention has no value for {n} items, fewer than bin_size {bin_size}"
        )

    edges = np.arange(max(1, n // bin_size) + 1) * bin_size
    edges[-1] = n
    if ties == "mean":
        ordered, positives = sorted_scores(scores, right)
        hits = np.diff(expected_hits(*cumulative_counts(ordered, positives), edges))
    else:
        order = np.argsort(scores, kind="stable")
        ordered = scores[order]
        hits = np.add.reduceat(right[order].astype(np.float64), edges[:-1])
    sizes = np.diff(edges)
    gaps = np.abs(np.add.reduceat(ordered, edges[:-1]) - hits) / sizes
    shares = sizes / n

    if convention == "published":
        gaps, shares = gaps[:-1], shares[:-1]
    if norm == "max":
        return float(gaps.max(initial=0.0))
    if norm == "mad":
        return float(np.sum(shares * gaps))
    return float(np.sqrt(np.sum(shares * gaps**2)))
