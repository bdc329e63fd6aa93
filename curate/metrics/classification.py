"""Top-1 and top-k classification, over all columns of a model's output or a label space's.

Restriction means: take the columns, then softmax and argmax over those alone (ImageNet-A,
Hendrycks et al., CVPR 2021). Softmax over everything followed by a choice of columns gives other
confidences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from curate.metrics.blocks import blocks
from curate.metrics.checks import (
    FloatOrArray,
    Ints,
    finite_array,
    integer,
    same_length,
    whole_numbers,
)


def _logits(values: ArrayLike) -> NDArray[Any]:
    logits = finite_array(values, "logits")
    if logits.ndim == 0:
        raise ValueError("logits must have a last axis of classes, not be one number")
    return logits


def _labelled(logits: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], Ints]:
    scores = _logits(logits)
    if scores.ndim != 2:
        raise ValueError(f"logits must be items by classes, not shape {scores.shape}")
    truth = whole_numbers(labels, "labels", scores.shape[1], "classes")
    same_length(("logits", scores), ("labels", truth))
    return scores, truth


def _columns(columns: ArrayLike, classes: int, name: str = "columns") -> Ints:
    chosen = whole_numbers(columns, name, classes, "columns of logits")
    values, counts = np.unique(chosen, return_counts=True)
    if values.size != chosen.size:
        raise ValueError(f"{name} names column {values[counts > 1][0]} more than once")
    return chosen


def _within(truth: Ints, columns: Ints, classes: int) -> Ints:
    """The place of each label among `columns`."""
    place = np.full(classes, -1)
    place[columns] = np.arange(columns.size)
    places = place[truth]
    if (places < 0).any():
        item = int(np.argmax(places < 0))
        raise ValueError(f"labels[{item}] is {truth[item]}: outside the label space's columns")
    return places


def labelled_logits(
    logits: ArrayLike, labels: ArrayLike, columns: ArrayLike | None
) -> tuple[NDArray[Any], Ints]:
    """Logits of a label space's columns, and each label's place among these.

    Args:
        logits: shape (n, classes).
        labels: column numbers of the full output, shape (n,).
        columns: the label space's columns; None for all.

    Raises:
        ValueError: NaN, infinity, no item, lengths that differ, or a label outside the columns.
    """
    scores, truth = _labelled(logits, labels)
    if columns is None:
        return scores, truth
    chosen = _columns(columns, scores.shape[1])
    return np.take(scores, chosen, axis=1), _within(truth, chosen, scores.shape[1])


def restrict(logits: ArrayLike, columns: ArrayLike) -> NDArray[Any]:
    """The logits of a label space's columns.

    Args:
        logits: shape (..., classes).
        columns: distinct column numbers, shape (m,), in the label space's order.

    Returns:
        A copy of shape (..., m), of the type of `logits`.

    Raises:
        ValueError: NaN, infinity, nothing there, or a column out of range or named twice.
    """
    scores = _logits(logits)
    return np.take(scores, _columns(columns, scores.shape[-1]), axis=-1)


def softmax_confidence(logits: ArrayLike) -> FloatOrArray:
    """The maximum softmax probability of each item.

    max softmax(z) = 1 / Σ exp(z - max z), in float64: float32 gives exactly 1.0 from a gap of
    16.64 between two logits (float64 from 36.74), and such ties change every ranking.
    Baseline of Hendrycks and Gimpel, ICLR 2017.

    Args:
        logits: shape (..., classes), already restricted where a label space is meant.

    Returns:
        Shape (...), in (0, 1]; a float for one item.

    Raises:
        ValueError: NaN, infinity, or nothing there.
    """
    scores = _logits(logits)
    rows = scores.reshape(-1, scores.shape[-1])
    confidence = np.empty(len(rows))
    # Finite extremes may differ by more than float64 holds; exp(-inf) = 0 is right there.
    with np.errstate(over="ignore"):
        for block in blocks(*rows.shape):
            shifted = rows[block].astype(np.float64)
            shifted -= shifted.max(axis=1, keepdims=True)
            confidence[block] = 1.0 / np.exp(shifted, out=shifted).sum(axis=1)
    return float(confidence[0]) if scores.ndim == 1 else confidence.reshape(scores.shape[:-1])


def predict(logits: ArrayLike, columns: ArrayLike | None = None) -> Any:
    """The column with the largest logit; among equal ones the first.

    Args:
        logits: shape (..., classes).
        columns: look at these columns alone; among equal logits the first named wins.

    Returns:
        Column numbers of the full output as int64, shape (...); an int for one item.

    Raises:
        ValueError: as `restrict`. (argmax over NaN would name the NaN's place.)
    """
    scores = _logits(logits)
    if columns is None:
        best = np.argmax(scores, axis=-1)
    else:
        chosen = _columns(columns, scores.shape[-1])
        best = chosen[np.argmax(np.take(scores, chosen, axis=-1), axis=-1)]
    return int(best) if scores.ndim == 1 else best


def accuracy(logits: ArrayLike, labels: ArrayLike, columns: ArrayLike | None = None) -> float:
    """Top-1 accuracy: the share of items whose largest logit is the label's.

    Args:
        logits: shape (n, classes).
        labels: column numbers of the full output, shape (n,), whether restricted or not.
        columns: the label space's columns; None for all.

    Returns:
        A fraction. Among equal logits the first column wins, as in `predict`.

    Raises:
        ValueError: NaN, infinity, no item, lengths that differ, or a label outside the columns.
    """
    scores, truth = labelled_logits(logits, labels, columns)
    return float(np.mean(np.argmax(scores, axis=1) == truth))


def top_k_accuracy(
    logits: ArrayLike, labels: ArrayLike, k: int = 5, columns: ArrayLike | None = None
) -> float:
    """The share of items whose label is among the `k` largest logits.

    Args:
        logits: shape (n, classes).
        labels: column numbers of the full output, shape (n,).
        k: at least 1, at most the number of columns looked at.
        columns: the label space's columns; None for all.

    Returns:
        A fraction. Equal logits rank in the order of their columns, so `k=1` is `accuracy`.

    Raises:
        ValueError: as `accuracy`, or `k` out of range.
    """
    scores, truth = labelled_logits(logits, labels, columns)
    k = integer(k, "k", 1, scores.shape[1])
    order = np.arange(scores.shape[1])
    hits = 0
    for block in blocks(*scores.shape):
        rows, places = scores[block], truth[block, None]
        own = np.take_along_axis(rows, places, axis=1)
        ahead = (rows > own) | ((rows == own) & (order < places))
        hits += int(np.count_nonzero(ahead.sum(axis=1) < k))
    return hits / len(scores)


def merge_groups(
    logits: ArrayLike, labels: ArrayLike, groups: Sequence[ArrayLike]
) -> tuple[NDArray[Any], Ints]:
    """Merge classes into groups: a group's logit is the largest of its classes'.

    The rule for ObjectNet, ImageNet-Vid-Robust and YTBB-Robust, whose labels are coarser than
    ImageNet's (Taori et al., NeurIPS 2020, appendix).

    Args:
        logits: shape (n, classes).
        labels: column numbers, shape (n,).
        groups: disjoint lists of columns, one a group; classes in no group are ignored.

    Returns:
        For the m items whose label is in a group: logits of shape (m, groups), and the number
        of each item's group, shape (m,).

    Raises:
        ValueError: as `accuracy`; an empty group, a class in two groups, or no item left.
    """
    scores, truth = _labelled(logits, labels)
    if len(groups) == 0:
        raise ValueError("groups is empty")
    classes = scores.shape[1]
    members = [_columns(group, classes, f"groups[{i}]") for i, group in enumerate(groups)]
    columns = _columns(np.concatenate(members), classes, "groups")
    sizes = [len(group) for group in members]
    group_of = np.full(classes, -1)
    group_of[columns] = np.repeat(np.arange(len(members)), sizes)
    kept = group_of[truth] >= 0
    if not kept.any():
        raise ValueError("no item is of a class in any group")
    chosen = np.take(scores[kept], columns, axis=1)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return np.maximum.reduceat(chosen, starts, axis=1), group_of[truth[kept]]


def grouped_accuracy(logits: ArrayLike, labels: ArrayLike, groups: Sequence[ArrayLike]) -> float:
    """Class-subsampled accuracy: items of the groups' classes, logits merged by maximum.

    Args:
        logits: shape (n, classes).
        labels: column numbers, shape (n,); items whose class is in no group are left out.
        groups: disjoint lists of columns. One class a group: plain class subsampling.

    Returns:
        A fraction of the items kept (`merge_groups` gives those). The first group wins a tie.

    Raises:
        ValueError: as `merge_groups`.
    """
    merged, truth = merge_groups(logits, labels, groups)
    return float(np.mean(np.argmax(merged, axis=1) == truth))
