"""How well a score puts the items that are looked for before the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import flags, level, same_length, vector
from curate.metrics.ood import detection_of
from curate.metrics.ordering import Ordered


@dataclass(frozen=True)
class Auc:
    """The area under the ROC curve and its interval.

    Attributes:
        value: probability that a genuine item scores above another one, ties count half.
        low, high: its interval, fractions.
        genuine, others: how many items of each kind there are.
    """

    value: float
    low: float
    high: float
    genuine: int
    others: int


def auc(scores: ArrayLike, genuine: ArrayLike, *, confidence: float = 0.95) -> Auc:
    """The area under the ROC curve of a score, with an interval that holds for small samples.

    The interval is all θ with |θ̂ - θ| ≤ z √V(θ), z the normal quantile of the level and

        V(θ) = θ (1 - θ) [1 + (N - 1) ((1 - θ) / (2 - θ) + θ / (1 + θ))] / (m n),  N = (m + n) / 2

    for m genuine items and n others. Source: Newcombe, "Confidence intervals for an effect size
    measure based on the Mann-Whitney statistic. Part 2", Statistics in Medicine 2006, method 5. It
    keeps a width where the score separates perfectly, which a bootstrap does not.

    Args:
        scores: one an item, higher = put earlier, shape (k,).
        genuine: 0 or 1 an item, shape (k,); both occur.
        confidence: between 0 and 1.

    Raises:
        ValueError: no item, NaN or infinity, lengths that differ, a flag other than 0 and 1, items
            of one kind alone, or `confidence` out of range.
    """
    from scipy.special import ndtri

    values, good = vector(scores, "scores"), flags(genuine, "genuine")
    same_length(("scores", values), ("genuine", good))
    if good.all() or not good.any():
        kind = "genuine" if good.all() else "not genuine"
        raise ValueError(f"all {good.size} items are {kind}: an AUC compares genuine with others")
    z = float(ndtri(0.5 + level(confidence) / 2.0))
    found = detection_of(Ordered((values, good)))
    area, m, n = found.auroc, found.n_out, found.n_in
    low = 1.0 - _upper(1.0 - area, m, n, z)
    return Auc(area, max(0.0, low), _upper(area, m, n, z), m, n)


def _upper(area: float, m: int, n: int, z: float) -> float:
    """The largest θ that `area` does not speak against; as V is symmetric it serves both ends."""
    from scipy.optimize import brentq

    if area >= 1.0:
        return 1.0

    def beyond(theta: float) -> float:
        spread = (1.0 - theta) / (2.0 - theta) + theta / (1.0 + theta)
        variance = theta * (1.0 - theta) * (1.0 + ((m + n) / 2.0 - 1.0) * spread) / (m * n)
        return float(theta - area - z * np.sqrt(variance))

    start = area if area > 0.0 else 1e-12
    return float(brentq(beyond, start, 1.0, xtol=1e-12))
