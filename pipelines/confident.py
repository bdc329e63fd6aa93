"""The nearest misses of the rule outlier: who was nearly confident enough, by the scores."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from operator import itemgetter

#: (candidate, position of the model, number of the view, confidence), sorted by candidate.
ScoreRow = tuple[str, int, int, float]


def most_confident(
    rows: Iterable[ScoreRow], count: int, without: Collection[str], *, of_mean: bool
) -> list[str]:
    """The candidates that came nearest to surviving, the nearest first.

    How near one came is told by the least confident of its models: by the centre crop, or by the
    mean confidence of the crops that were computed, which the confidence of their mean softmax
    does not exceed.

    Args:
        rows: the scores of a run.
        count: how many are wanted.
        without: candidates that did survive.
        of_mean: whether the rule judges the mean of the ten crops.
    """
    kept = ((key, near) for key, near in _nearness(rows, of_mean) if key not in without)
    nearest = heapq.nsmallest(count, kept, key=lambda one: (-one[1], one[0]))
    return [key for key, _ in nearest]


def _nearness(rows: Iterable[ScoreRow], of_mean: bool) -> Iterator[tuple[str, float]]:
    for key, of_candidate in groupby(rows, key=itemgetter(0)):
        by_model: dict[int, list[float]] = {}
        for _, model, view, confidence in of_candidate:
            if of_mean or view == 0:
                by_model.setdefault(model, []).append(confidence)
        if by_model:
            yield key, min(sum(told) / len(told) for told in by_model.values())
