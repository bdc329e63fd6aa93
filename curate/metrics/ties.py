"""Counts over items in order of their score that do not depend on the order of equal scores.

Sorting plain values is two to three times faster than sorting indices by value, needs no second
array of indices, and leaves no order among ties. So positives are counted by a search for each
distinct score among the sorted scores of the positives.
"""

from __future__ import annotations

import numpy as np

from curate.metrics.blocks import blocks
from curate.metrics.checks import Floats, Ints


def cumulative_counts(ordered: Floats, positives: Floats) -> tuple[Ints, Ints]:
    """How many items, and how many positive ones, have at most each score.

    Args:
        ordered: every item's score, lowest first, shape (n,), finite.
        positives: the scores of the positive items, lowest first, a part of `ordered`.

    Returns:
        Two new arrays of one length: zero, then one entry for each distinct score, lowest
        first. They end with n and with the number of positives.
    """
    starts = np.ones(ordered.size + 1, dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:-1])
    items = np.flatnonzero(starts)
    hits = np.zeros_like(items)
    for block in blocks(items.size - 1):
        after = slice(block.start + 1, block.stop + 1)
        hits[after] = np.searchsorted(positives, ordered[items[after] - 1], side="right")
    return items, hits
