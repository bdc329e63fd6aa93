"""Out-of-distribution detection: ranking anomalous items above in-distribution ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.blocks import blocks
from curate.metrics.checks import finite_vector
from curate.metrics.ties import cumulative_counts


@dataclass(frozen=True)
class OodDetection:
    """Measures of detection; out-of-distribution is the positive class in every one of them.

    All are fractions.

    Attributes:
        auroc: probability that an OOD item scores above an in-distribution one, ties count half.
        aupr: average precision, Σ (R_i - R_{i-1})·P_i over thresholds from the highest. Chance
            is `base_rate`, so values at different base rates do not compare.
        fpr95: smallest false-positive rate among thresholds with recall of at least 0.95.
        base_rate: the share of OOD items, n_out / (n_in + n_out).
        fpr95_published: false-positive rate at the threshold whose recall is nearest to 0.95,
            on either side, as the published code has it. Of thresholds with equal recall it is
            the lowest, but at full recall the highest.
        aupr_trapezoid: area under the linearly joined precision-recall points, starting from
            precision 1 at recall 0. Too high under ties (0.583 where all of 2,000 and 10,000
            are tied); for comparison with code that does it so.
        n_in: number of in-distribution items.
        n_out: number of OOD items.
    """

    auroc: float
    aupr: float
    fpr95: float
    base_rate: float
    fpr95_published: float
    aupr_trapezoid: float
    n_in: int
    n_out: int


def ood_detection(scores_in: ArrayLike, scores_out: ArrayLike) -> OodDetection:
    """How well a score separates out-of-distribution items from in-distribution ones.

    ImageNet-O (Hendrycks et al., CVPR 2021): the score is minus the maximum softmax probability
    over the 200 classes, 2,000 OOD images stand against 10,000 validation images of the same
    classes, chance AUPR is 1/6. A threshold is a distinct score: tied items pass it together,
    so no measure depends on the order of the input.

    With in-distribution as the positive class: swap the arguments and negate both.

    Args:
        scores_in: scores of in-distribution items, higher = more anomalous, shape (n_in,).
        scores_out: scores of out-of-distribution items, shape (n_out,).

    Raises:
        ValueError: one of them is empty, or holds NaN or infinity.
    """
    inside = finite_vector(scores_in, "scores_in")
    outside = finite_vector(scores_out, "scores_out")
    ordered = np.concatenate((inside, outside))
    ordered.sort()
    items, hits = cumulative_counts(ordered, np.sort(outside))
    del ordered
    # What passes each threshold, the lowest first; the last entry is of one that nothing passes.
    passed = np.subtract(inside.size + outside.size, items, out=items)
    true = np.subtract(outside.size, hits, out=hits)

    area, step, joined = 0, 0.0, 0.0
    for block in blocks(passed.size - 1):
        above = slice(block.start + 1, block.stop + 1)
        gained = true[block] - true[above]
        lost = passed[block] - passed[above] - gained
        precision = true[block] / passed[block]
        beyond = np.ones_like(precision)
        np.divide(true[above], passed[above], out=beyond, where=passed[above] > 0)
        # Twice the trapezoids under the ROC curve, in counts: whole numbers stay exact.
        area += int(np.sum(lost * (true[block] + true[above])))
        step += float(np.sum(gained * precision))
        joined += float(np.sum(gained * (precision + beyond))) / 2.0

    # Recall of at least 0.95 in whole numbers, rounded up: no rounding error decides.
    enough = np.count_nonzero(true >= -(-19 * outside.size // 20)) - 1
    # Published: from the highest threshold with full recall upwards, the first that is nearest.
    full = np.count_nonzero(true == outside.size) - 1
    distance = true[full:-1] / outside.size
    distance -= 0.95
    nearest = full + int(np.argmin(np.abs(distance, out=distance)))

    return OodDetection(
        auroc=area / (2 * outside.size * inside.size),
        aupr=step / outside.size,
        fpr95=int(passed[enough] - true[enough]) / inside.size,
        base_rate=outside.size / (outside.size + inside.size),
        fpr95_published=int(passed[nearest] - true[nearest]) / inside.size,
        aupr_trapezoid=joined / outside.size,
        n_in=inside.size,
        n_out=outside.size,
    )
