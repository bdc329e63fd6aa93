"""Two models on the same items: most of what makes images hard is common to both and cancels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from numpy.typing import ArrayLike

from curate.metrics.checks import Bools, Floats, flags, same_length, scored_items
from curate.metrics.intervals import bootstrap_interval


@dataclass(frozen=True)
class McNemar:
    """The four counts of two models on the same items, and whether they differ.

    Attributes:
        both, first_only, second_only, neither: how many items which of the two got right.
        p_value: two-sided.
    """

    both: int
    first_only: int
    second_only: int
    neither: int
    p_value: float


@dataclass(frozen=True)
class Difference:
    """What the first model has more than the second one, and its interval.

    Attributes:
        value: measure of the first less measure of the second.
        low, high: its interval; it holds 0 where the two may be equal.
    """

    value: float
    low: float
    high: float


def mcnemar(first_correct: ArrayLike, second_correct: ArrayLike) -> McNemar:
    """The exact test whether two models are right equally often on the same items.

    Items on which both are right or both wrong say nothing. Of the b + c others, b that only the
    first got right and c that only the second did, b follows Binomial(b + c, 1/2) if the models
    are equally good, so that

        p = min(1, 2 · P(X ≤ min(b, c))),  X ~ Binomial(b + c, 1/2).

    Source: McNemar, "Note on the sampling error of the difference between correlated proportions
    or percentages", Psychometrika 1947; the exact form, without the χ² approximation and its
    correction, which fail for few items.

    Args:
        first_correct: 0 or 1 an item, shape (n,).
        second_correct: the same items in the same order.

    Returns:
        p is 1 where the models are never right alone, which is no evidence that they are equal.

    Raises:
        ValueError: no item, lengths that differ, or a value other than 0 and 1.
    """
    from scipy.special import bdtr

    first, second = flags(first_correct, "first_correct"), flags(second_correct, "second_correct")
    same_length(("first_correct", first), ("second_correct", second))
    both, alone = int((first & second).sum()), int((first & ~second).sum())
    other = int((~first & second).sum())
    p_value = min(1.0, 2.0 * float(bdtr(min(alone, other), alone + other, 0.5)))
    return McNemar(both, alone, other, first.size - both - alone - other, p_value)


def paired_difference(
    statistic: Callable[[Floats, Bools], float],
    first: tuple[ArrayLike, ArrayLike],
    second: tuple[ArrayLike, ArrayLike],
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Difference:
    """The difference of a measure between two models, with a paired bootstrap interval.

    Items are drawn with replacement, the same ones for both models, and the measure of each is
    computed anew: `bootstrap_interval` of the difference. Two separate intervals that overlap do
    not say that the models are equal, since what both find hard moves both.

    Args:
        statistic: takes confidence and correctness, as `aurra` does; between 0 and 1.
        first: confidence and correctness (0 or 1) of the first model, each of shape (n,), n ≥ 2.
        second: the same of the second model, of the same items in the same order.
        resamples: of the bootstrap, at least 1.
        confidence: between 0 and 1.
        seed: 0 … 2³² - 1.

    Raises:
        ValueError: fewer than two items, lengths that differ, NaN or infinity, correctness other
            than 0 and 1, or an argument out of range; whatever the statistic itself raises.
    """
    sides = [_scored(*side, which) for side, which in ((first, "first"), (second, "second"))]
    same_length(("first", sides[0][0]), ("second", sides[1][0]))
    (conf_1, right_1), (conf_2, right_2) = sides

    def difference(c1: Floats, r1: Bools, c2: Floats, r2: Bools) -> float:
        return statistic(c1, r1) - statistic(c2, r2)

    low, high = bootstrap_interval(
        difference,
        conf_1,
        right_1,
        conf_2,
        right_2,
        resamples=resamples,
        confidence=confidence,
        seed=seed,
        bounds=(-1.0, 1.0),
    )
    return Difference(difference(conf_1, right_1, conf_2, right_2), low, high)


def _scored(confidence: ArrayLike, correct: ArrayLike, which: str) -> tuple[Floats, Bools]:
    try:
        return scored_items(confidence, correct)
    except ValueError as error:
        raise ValueError(f"{which} model: {error}") from error
