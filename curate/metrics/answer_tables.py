"""Tables of answers: a row an item, a column an annotator, each cell a category or None."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from curate.metrics.checks import Floats, Ints

#: A row an item, a column an annotator; None where there is no answer. Arrays are welcome.
Table = Sequence[Sequence[Hashable | None]] | np.ndarray[Any, Any]


def coded(
    table: Table, categories: Sequence[Hashable] | None = None
) -> tuple[Ints, list[Hashable]]:
    """The table with each category's number in place of it.

    Args:
        table: items by annotators.
        categories: all that could be answered; None: those that were, by name.

    Returns:
        Numbers of shape (items, annotators), -1 for None; and the categories in their order.

    Raises:
        ValueError: no item, no annotator, rows of different lengths, NaN in place of None, what
            cannot be a category (a list), or an answer that is not among `categories`.
    """
    rows = [list(row) for row in _rows(table)]
    if not rows:
        raise ValueError("table is empty: no item")
    if not rows[0]:
        raise ValueError(f"table is empty: {len(rows)} items, no annotator")
    numbers: dict[Hashable, int] = {}
    for category in categories or ():
        numbers.setdefault(category, len(numbers))
    used: dict[Hashable, str] = {}
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ValueError(f"table[{i}] has {len(row)} annotators, table[0] has {len(rows[0])}")
        for j, answer in enumerate(row):
            if answer is not None:
                used.setdefault(_category(answer, f"table[{i}][{j}]"), f"table[{i}][{j}]")
    if categories is None:
        # Sorted, so that neither the order of the items nor that of the answers shows anywhere.
        for category in sorted(used, key=lambda c: (str(c), repr(c))):
            numbers[category] = len(numbers)
    elif strange := [category for category in used if category not in numbers]:
        raise ValueError(f"{used[strange[0]]} is {strange[0]!r}: that is not among the categories")
    codes = [[-1 if answer is None else numbers[answer] for answer in row] for row in rows]
    return np.array(codes, dtype=np.int64), list(numbers)


def _rows(table: Table) -> list[Any]:
    if isinstance(table, np.ndarray):
        if table.ndim != 2:
            raise ValueError(f"table must be items by annotators, not shape {table.shape}")
        return table.tolist()
    rows = list(table)
    for i, row in enumerate(rows):
        if isinstance(row, str) or not hasattr(row, "__iter__"):
            raise ValueError(f"table[{i}] is {row!r}: expected a row of answers, one an annotator")
    return rows


def _category(answer: Hashable, place: str) -> Hashable:
    if isinstance(answer, (float, np.floating)) and math.isnan(answer):
        raise ValueError(f"{place} is nan: write None where there is no answer")
    try:
        hash(answer)
    except TypeError as error:
        raise ValueError(f"{place} is {answer!r}: that is no category") from error
    return answer


def counts_of(codes: Ints, categories: Sequence[Hashable]) -> Floats:
    """How many answers of each category an item has, shape (items, categories)."""
    counts = np.zeros((len(codes), len(categories)))
    item, annotator = np.nonzero(codes >= 0)
    np.add.at(counts, (item, codes[item, annotator]), 1.0)
    return counts
