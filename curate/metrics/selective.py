"""Selective classification: how accurate a model is on the items it is most confident of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.blocks import blocks
from curate.metrics.checks import Floats, one_of, scored_items
from curate.metrics.ties import cumulative_counts, expected_hits, sorted_scores

#: How `aurra` orders items of equal confidence.
Ties = Literal["expected", "input", "published"]


@dataclass(frozen=True, eq=False)
class ResponseRateCurve:
    """Accuracy against response rate, a point an item.

    Attributes:
        rate: j / n for j = 1 … n, shape (n,).
        accuracy: accuracy of the j most confident items, shape (n,).
    """

    rate: Floats
    accuracy: Floats


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
    accuracy = _accuracy_by_rank(confidence, correct, ties)
    return ResponseRateCurve(np.arange(1, accuracy.size + 1) / accuracy.size, accuracy)


def _accuracy_by_rank(confidence: ArrayLike, correct: ArrayLike, ties: Ties) -> Floats:
    one_of(ties, "ties", ("expected", "input", "published"))
    scores, right = scored_items(confidence, correct)
    n = scores.size
    if ties == "expected":
        items, hits = cumulative_counts(*sorted_scores(scores, right))
        accuracy = np.empty(n)
        for block in blocks(n):
            # The first j from the top are all but the n - j lowest.
            first = np.arange(block.start + 1, block.stop + 1)
            accuracy[block] = (hits[-1] - expected_hits(items, hits, n - first)) / first
        return accuracy
    stable = ties == "input"
    order = np.argsort(-scores, kind="stable") if stable else np.argsort(scores)[::-1]
    accuracy = np.cumsum(right[order], dtype=np.float64)
    accuracy /= np.arange(1, n + 1)
    return accuracy


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
    return float(np.mean(_accuracy_by_rank(confidence, correct, ties)))
