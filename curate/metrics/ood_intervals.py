"""Intervals of OOD detection, and AUPR at another base rate than the data's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import Ints, finite_vector, integer, level
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
    counts = _Groups(scores_in, scores_out, base_rate)
    return counts.measures(*counts.whole())["aupr_reweighted"]


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
    groups = _Groups(scores_in, scores_out, base_rate)
    resamples = integer(resamples, "resamples", 1)
    level(confidence)
    random = np.random.RandomState(integer(seed, "seed", 0, 2**32 - 1))
    values = groups.measures(*groups.whole())
    if min(groups.inside.size, groups.outside.size) < 2:
        return {name: Estimate(value, None) for name, value in values.items()}
    drawn = {name: np.empty(resamples) for name in values}
    for number in range(resamples):
        for name, value in groups.measures(*groups.draw(random)).items():
            drawn[name][number] = value
    return {
        name: Estimate(value, interval_of(drawn[name], value, confidence, (0.0, 1.0)))
        for name, value in values.items()
    }


class _Groups:
    """Items by distinct score, the highest first: a resample is two lists of counts."""

    def __init__(self, scores_in: ArrayLike, scores_out: ArrayLike, base_rate: float) -> None:
        inside = finite_vector(scores_in, "scores_in")
        outside = finite_vector(scores_out, "scores_out")
        if not 0.0 < base_rate < 1.0:
            raise ValueError(f"base_rate is {base_rate}: expected a share between 0 and 1")
        distinct, groups = np.unique(-np.concatenate((inside, outside)), return_inverse=True)
        self.inside, self.outside = groups[: inside.size], groups[inside.size :]
        self._count = distinct.size
        self._weight = outside.size * (1.0 - base_rate) / (base_rate * inside.size)
        # No denominator that counts is smaller: one item passes at least.
        self._least = min(self._weight, 1.0)

    def whole(self) -> tuple[Ints, Ints]:
        """How many items of each side have each score."""
        return self._counted(self.inside), self._counted(self.outside)

    def draw(self, random: np.random.RandomState) -> tuple[Ints, Ints]:
        """The same of a resample."""
        inside, outside = self.inside, self.outside
        return (
            self._counted(inside[random.randint(0, inside.size, inside.size)]),
            self._counted(outside[random.randint(0, outside.size, outside.size)]),
        )

    def _counted(self, groups: Ints) -> Ints:
        return np.bincount(groups, minlength=self._count)

    def measures(self, inside: Ints, outside: Ints) -> dict[str, float]:
        """Every measure; scores that a resample lacks change nothing.

        Without BLAS, whose sums depend on the number of its threads.
        """
        true, false = np.cumsum(outside), np.cumsum(inside)
        n_out, n_in = int(true[-1]), int(false[-1])
        # Where nothing has passed yet, nothing is gained either: the quotient counts for nothing.
        precision = true / np.maximum(true + false, 1)
        weighted = true / np.maximum(true + self._weight * false, self._least)
        # Seen from the lowest score, the in-distribution items are the positive ones.
        below_in = n_in - false + inside
        below = np.maximum(below_in + (n_out - true + outside), 1)
        area = int(np.sum(inside * (2 * true - outside)))
        enough = int(np.searchsorted(true, -(-19 * n_out // 20)))
        full = int(np.searchsorted(true, n_out))
        distance = np.abs(true[full::-1] / n_out - 0.95)
        nearest = full - int(np.argmin(distance))
        return {
            "aupr": float(np.sum(outside * precision)) / n_out,
            "aupr_reweighted": float(np.sum(outside * weighted)) / n_out,
            "aupr_in": float(np.sum(inside * (below_in / below))) / n_in,
            "auroc": area / (2 * n_in * n_out),
            "fpr95": int(false[enough]) / n_in,
            "fpr95_published": int(false[nearest]) / n_in,
        }
