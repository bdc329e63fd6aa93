"""In which order a queue is reviewed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

#: Every so manieth place of a queue in a referee's order is by hash.
TENTH = 10


def referee_order(p_claimed: ArrayLike, hashes: Sequence[str], tenth: int = TENTH) -> list[int]:
    """A queue with what a referee thinks genuine first, and a random sample among it.

    Survivors of a filter are to a large part mislabelled. A referee, a classifier that the filter
    did not ask, tells many of these apart: in the order of its probability of the claimed class
    reviewers meet genuine photos earlier. Such an order says nothing of what it puts last, and
    stopping early would keep what the referee knows already. So every tenth place belongs to a
    sample that is blind to the referee: the n // 10 candidates whose hashes come first, in the
    order of these. At every point of the queue this part alone estimates the share of genuine
    photos, and how well the referee orders (`curate.metrics.auc`).

    Args:
        p_claimed: the referee's probability of the claimed class, 0 … 1, shape (n,).
        hashes: a seeded hash of each candidate's content, all different; also decides between
            equal probabilities.
        tenth: every so manieth place is by hash, from 1 (all); 0: none.

    Returns:
        Indices into the input, in review order.

    Raises:
        ValueError: lengths that differ, a probability that is NaN or out of range, a hash twice,
            or `tenth` negative.
    """
    probabilities = np.asarray(p_claimed, dtype=np.float64)
    n = len(hashes)
    if probabilities.shape != (n,):
        raise ValueError(f"p_claimed has shape {probabilities.shape} for {n} hashes")
    if tenth < 0:
        raise ValueError(f"tenth is {tenth}: expected 0 or more")
    for i in np.flatnonzero(~((probabilities >= 0.0) & (probabilities <= 1.0))).tolist():
        raise ValueError(f"p_claimed[{i}] is {probabilities[i]}: expected a probability")
    if len(set(hashes)) < n:
        raise ValueError("hashes must all be different")
    by_hash = sorted(range(n), key=hashes.__getitem__)
    sample = by_hash[: n // tenth] if tenth else []
    drawn = set(sample)
    rest = [i for i in by_hash if i not in drawn]
    # Stable: of equal probabilities the earlier hash stays first.
    rest.sort(key=lambda i: -probabilities[i])
    blind, thought = iter(sample), iter(rest)
    return [next(blind if tenth and place % tenth == 0 else thought) for place in range(1, n + 1)]
