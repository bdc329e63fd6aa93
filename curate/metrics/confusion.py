"""Which classes are wrong, and what they are taken for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import Floats, Ints, flags, integer, level, same_length, whole_numbers
from curate.metrics.intervals import clopper_pearson

#: Far more than any label space has.
_CLASSES = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Confusions:
    """Pairs of a true and another predicted class, the most frequent first.

    Attributes:
        label: the true class, shape (p,).
        predicted: what it was taken for, shape (p,).
        count: how often, shape (p,).
        total: how many items are wrong, those of pairs that were cut off too.
        pairs: how many pairs there are, those too.
    """

    label: Ints
    predicted: Ints
    count: Ints
    total: int
    pairs: int


@dataclass(frozen=True, eq=False)
class ClassAccuracy:
    """Accuracy by true class, a row a class that has any item, in the order of its number.

    Attributes:
        label: the class, shape (c,).
        n: its items, shape (c,).
        right: how many of them are right, shape (c,).
        accuracy: right / n, shape (c,).
        low, high: the Clopper-Pearson interval of each, by itself: of many classes some will lie
            outside theirs.
    """

    label: Ints
    n: Ints
    right: Ints
    accuracy: Floats
    low: Floats
    high: Floats


def confusions(labels: ArrayLike, predicted: ArrayLike, top: int | None = None) -> Confusions:
    """Count which class is taken for which other one.

    Args:
        labels: the true class of each item, a whole number from 0, shape (n,).
        predicted: the predicted class likewise.
        top: give at most so many pairs, at least 1; None for all.

    Returns:
        Pairs of equal count stand in the order of the true class, then of the predicted one.

    Raises:
        ValueError: no item, lengths that differ, not whole numbers or below 0, or `top` below 1.
    """
    truth = whole_numbers(labels, "labels", _CLASSES, "classes")
    guess = whole_numbers(predicted, "predicted", _CLASSES, "classes")
    same_length(("labels", truth), ("predicted", guess))
    if top is not None:
        top = integer(top, "top", 1)
    width = int(max(truth.max(), guess.max())) + 1
    pairs, count = _counted(truth * width + guess)
    wrong = np.flatnonzero(pairs // width != pairs % width)
    total = int(count[wrong].sum())
    order = wrong[np.argsort(-count[wrong], kind="stable")[:top]]
    label, other = np.divmod(pairs[order], width)
    return Confusions(label, other, count[order], total, wrong.size)


def _counted(numbers: Ints) -> tuple[Ints, Ints]:
    """The distinct numbers in order, and how often each one occurs."""
    if numbers.max() <= max(numbers.size, 1 << 16):
        # Counting in place costs one pass; sorting is for numbers that leave large gaps.
        counts = np.bincount(numbers)
        there = np.flatnonzero(counts)
        return there, counts[there]
    return np.unique(numbers, return_counts=True)


def class_accuracy(
    labels: ArrayLike, correct: ArrayLike, *, confidence: float = 0.95
) -> ClassAccuracy:
    """Accuracy of each class, with its interval.

    Args:
        labels: the true class of each item, a whole number from 0, shape (n,).
        correct: 0 or 1 an item, shape (n,).
        confidence: of the intervals, between 0 and 1.

    Raises:
        ValueError: no item, lengths that differ, not whole numbers or below 0, `correct` other
            than 0 and 1, or `confidence` out of range.
    """
    truth = whole_numbers(labels, "labels", _CLASSES, "classes")
    right = flags(correct, "correct")
    same_length(("labels", truth), ("correct", right))
    share = level(confidence)
    classes, n = _counted(truth)
    hits = np.zeros_like(n)
    if right.any():
        found, count = _counted(truth[right])
        hits[np.searchsorted(classes, found)] = count
    ends = [clopper_pearson(int(k), int(m), share) for k, m in zip(hits, n, strict=True)]
    low, high = np.array(ends).T
    return ClassAccuracy(classes, n, hits, hits / n, low, high)
