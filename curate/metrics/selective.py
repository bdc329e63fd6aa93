"""Selective classification: how accurate a model is on the items it is most confident of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.blocks import blocks
from curate.metrics.checks import Floats, Ints, flags, one_of, same_length, vector
from curate.metrics.ordering import Ordered

#: How `aurra` orders items of equal confidence.
Ties = Literal["expected", "input", "published"]


@dataclass(frozen=True, eq=False)
class ResponseRateCurve:
    """Accuracy against response rate, a point an item.

    Attributes:
        accuracy: accuracy of the j most confident items, j = 1 … n, shape (n,).
    """

    accuracy: Floats

    @property
    def rate(self) -> Floats:
        """j / n for j = 1 … n, shape (n,)."""
        n = self.accuracy.size
        return np.arange(1, n + 1) / n


def response_rate_curve(
    confidence: ArrayLike, correct: ArrayLike, ties: Ties = "expected"
) -> ResponseRateCurve:
    """The accuracy of the j most confident items, for every j.

    Args:
        confidence: a finite score an item, higher = surer, shape (n,). Only the order counts.
        correct: whether the item's prediction is right, 0 or 1, shape (n,).
        ties: what becomes of equal confidences.
            "expected": the expected value over all their orders. For a group of m items of
            which k are right, after a items of which c are right, the accuracy of the first
            a + j is (c + j·k/m) / (a + j). It does not depend on the order of the input.
            "input": stable, the earlier item first.
            "published": `np.argsort(confidence)[::-1]`, as the published code has it. Its order
            among ties is NumPy's own: it depends on the order of the input, and with several
            groups of ties on the processor too. For comparison with published numbers only.

    Raises:
        ValueError: no item, lengths that differ, NaN or infinity (NaN would rank as the most
            confident), `correct` other than 0 and 1, or an unknown `ties`.
    """
    ordered, told = _ordered(confidence, correct, ties)
    if told is not None:
        return ResponseRateCurve(_accuracy_in_order(told))
    accuracy, done = ordered.memory()[::-1], 0
    for part in _accuracy_by_rank(ordered):
        accuracy[done : done + part.size] = part
        done += part.size
    return ResponseRateCurve(accuracy)


def _accuracy_by_rank(ordered: Ordered) -> Iterator[Floats]:
    """The expected accuracy of the j most confident items, for every j, in parts.

    A part holds until the next one is asked for.
    """
    rank = np.arange(1.0, ordered.part_size + 1.0)
    for hits in ordered.expected_hits():
        hits /= rank[: hits.size]
        rank += hits.size
        yield hits


def _accuracy_in_order(right: Ints) -> Floats:
    """The accuracy of the first j items, for every j, of 0 or 1 an item; in the same memory."""
    hits = np.cumsum(right)
    accuracy = hits.view(np.float64)
    for block in blocks(hits.size):
        rank = np.arange(block.start + 1, block.stop + 1)
        np.divide(hits[block], rank, out=accuracy[block])
    return accuracy


def _ordered(confidence: ArrayLike, correct: ArrayLike, ties: Ties) -> tuple[Ordered, Ints | None]:
    """The items in order, and their flags from the highest on where the input's order counts."""
    one_of(ties, "ties", ("expected", "input", "published"))
    scores, right = vector(confidence, "confidence"), flags(correct, "correct")
    same_length(("confidence", scores), ("correct", right))
    ordered = Ordered((scores, right), names=("confidence",))
    if ties == "expected" or ordered.distinct:
        return ordered, None
    if ties == "input":
        return ordered, ordered.in_input_order(scores[::-1], right[::-1])[::-1]
    return ordered, right[np.argsort(scores)[::-1]].astype(np.int64)


def aurra(confidence: ArrayLike, correct: ArrayLike, ties: Ties = "expected") -> float:
    """Area under the response rate accuracy curve.

    AURRA = 1/n Σ_{j=1..n} (accuracy of the j most confident items). Hendrycks et al., "Natural
    Adversarial Examples", CVPR 2021, section on metrics; there the confidence is the maximum
    softmax probability after restriction to the 200 classes.

    Args:
        confidence: a finite score an item, higher = surer, shape (n,).
        correct: 0 or 1 an item, shape (n,).
        ties: "expected" (independent of the order of the input), "input" or "published"; see
            `response_rate_curve`.

    Returns:
        A fraction in [0, 1]: 1 if all are right, 0 if all are wrong, the accuracy in
        expectation if the confidence says nothing.

    Raises:
        ValueError: as `response_rate_curve`.
    """
    ordered, told = _ordered(confidence, correct, ties)
    if told is not None:
        return float(np.mean(_accuracy_in_order(told)))
    return sum(float(part.sum()) for part in _accuracy_by_rank(ordered)) / len(ordered)
