"""The curves behind AUPR, AUROC and FPR95, for drawing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import Floats, Ints, finite_vector, integer
from curate.metrics.ties import cumulative_counts


@dataclass(frozen=True, eq=False)
class DetectionCurves:
    """Precision and false-positive rate against recall, a point a threshold, the highest first.

    A threshold is a distinct score; the first point is of one that nothing passes.
    Out-of-distribution is the positive class.

    Attributes:
        recall: share of the OOD items that pass, from 0 to 1.
        false_positive_rate: share of the in-distribution items that pass, from 0 to 1.
        precision: share of OOD items among those that pass. A value holds from the recall of the
            point before up to its own: the area under these steps is the average precision of
            `ood_detection`. That of the first point, which nothing passes, is the second one's.
    """

    recall: Floats
    false_positive_rate: Floats
    precision: Floats


def detection_curves(
    scores_in: ArrayLike, scores_out: ArrayLike, points: int | None = None
) -> DetectionCurves:
    """How well each threshold on a score separates OOD items from in-distribution ones.

    Args:
        scores_in: scores of in-distribution items, higher = more anomalous, shape (n_in,).
        scores_out: scores of out-of-distribution items, shape (n_out,).
        points: most points to keep, at least 4: the ends, and between them those nearest to equal
            steps, one half of recall and one of the false-positive rate. None keeps all.

    Raises:
        ValueError: one of them is empty, or holds NaN or infinity; `points` is below 4.
    """
    inside = finite_vector(scores_in, "scores_in")
    outside = finite_vector(scores_out, "scores_out")
    if points is not None:
        points = integer(points, "points", 4)
    ordered = np.concatenate((inside, outside))
    ordered.sort()
    items, hits = cumulative_counts(ordered, np.sort(outside))
    passed = (items[-1] - items)[::-1]
    true = (hits[-1] - hits)[::-1]
    false = passed - true
    if points is not None and passed.size > points:
        kept = _spread(true, false, points)
        passed, true, false = passed[kept], true[kept], false[kept]
    precision = np.empty(passed.size)
    np.divide(true[1:], passed[1:], out=precision[1:])
    precision[0] = precision[1]
    return DetectionCurves(true / outside.size, false / inside.size, precision)


def _spread(true: Ints, false: Ints, points: int) -> Ints:
    """Positions of the points to keep, in order; both arrays grow."""
    kept = []
    for counts, some in ((true, points // 2), (false, points - points // 2)):
        wanted = np.linspace(0, counts[-1], some)
        kept.append(np.minimum(np.searchsorted(counts, wanted), counts.size - 1))
    kept[1][-1] = true.size - 1
    return np.unique(np.concatenate(kept))
