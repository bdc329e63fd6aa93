"""Out-of-distribution detection: ranking anomalous items above in-distribution ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import vector
from curate.metrics.ordering import Ordered


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
    inside, outside = vector(scores_in, "scores_in"), vector(scores_out, "scores_out")
    names = ("scores_in", "scores_out")
    return detection_of(Ordered((inside, False), (outside, True), names=names))


def detection_of(ordered: Ordered) -> OodDetection:
    """The same of items in order, the out-of-distribution ones flagged; both kinds occur."""
    n, n_out = len(ordered), ordered.hits
    n_in = n - n_out
    area, step, joined = 0, 0.0, 0.0
    for group in ordered.groups():
        # As floats at once, since mixed arithmetic is slow: what passes a threshold at the group's
        # score, and its own items.
        true, passed = group.hits_below.astype(float), group.below.astype(float)
        np.subtract(n_out, true, out=true)
        np.subtract(n, passed, out=passed)
        hits = group.hits.astype(float) if group.tied else 1.0
        precision = true / passed
        # And what passes the next one above.
        true -= hits
        passed -= group.size.astype(float) if group.tied else 1.0
        if passed[-1] == 0.0:  # precision is 1 where nothing passes
            true[-1] = passed[-1] = 1.0
        beyond = np.divide(true, passed, out=true)
        # Twice the area under the ROC curve, in counts: whole numbers stay exact.
        if group.tied:
            around = group.below - group.hits_below
            around *= 2
            around += group.size
            around -= group.hits
            area += int(np.sum(np.multiply(group.hits, around, out=around)))
            # No products of BLAS, whose last bits depend on the number of its threads.
            own = float(np.sum(np.multiply(hits, precision, out=precision)))
            step += own
            joined += (own + float(np.sum(np.multiply(hits, beyond, out=beyond)))) / 2.0
        else:
            area += 2 * (int(np.sum(group.below)) - int(np.sum(group.hits_below)))
            alone = float(np.sum(precision))
            step += alone
            joined += (alone + float(np.sum(beyond))) / 2.0

    fpr95, fpr95_published = _false_positives(ordered, n_in, n_out)
    return OodDetection(
        auroc=area / (2 * n_out * n_in),
        aupr=step / n_out,
        fpr95=fpr95,
        base_rate=n_out / n,
        fpr95_published=fpr95_published,
        aupr_trapezoid=joined / n_out,
        n_in=n_in,
        n_out=n_out,
    )


def _false_positives(ordered: Ordered, n_in: int, n_out: int) -> tuple[float, float]:
    """The false-positive rate at 95 % recall, and the published one."""
    n = len(ordered)
    # Recall of at least 0.95 in whole numbers, rounded up: no rounding error decides.
    hit = n_out - -(-19 * n_out // 20)
    place = ordered.place(hit)
    start, stop, first = (int(at[0]) for at in ordered.spans(np.array([place])))
    hits_below = hit - (place - first)
    passed, true = n - start, n_out - hits_below
    fpr95 = (passed - true) / n_in

    # Published: the threshold whose recall is nearest, the lower recall only if strictly nearer.
    # Of equal recalls the lowest threshold counts, but of full ones the highest.
    if hits_below > 0:
        passed = n - ordered.place(hits_below - 1) - 1
    passed_above, true_above = n - stop, n_out - hits_below - (stop - first)
    nearer = abs(true_above / n_out - 0.95) < abs(true / n_out - 0.95)
    if passed_above > 0 and nearer:
        passed, true = passed_above, true_above
    return fpr95, (passed - true) / n_in
