"""A measure as results hold it: its value, its interval, and how both came about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.metrics import clopper_pearson
from curate.metrics.intervals import interval_of

#: Of every interval.
CONFIDENCE_LEVEL = 0.95


def metric(
    value: float | None, interval: tuple[float, float] | None, n: int, how: str | None, note: str
) -> dict[str, Any]:
    """One measure as results hold it.

    Args:
        value: a fraction; None where there is none.
        interval: its low and high end.
        n: images that it is of.
        how: how the interval was found.
        note: why something is missing, or how to read it.
    """
    low, high = interval or (None, None)
    return {
        "value": value,
        "low": low,
        "high": high,
        "n": n,
        "interval": how,
        "convention": None,
        "note": note or None,
    }


def nothing(n: int, note: str) -> dict[str, Any]:
    """A measure that has no value.

    Args:
        n: images that it would be of.
        note: why.
    """
    return metric(None, None, n, None, note)


def share(correct: NDArray[np.bool_]) -> dict[str, Any]:
    """The share of images that are right, with its exact interval.

    Args:
        correct: whether each is, at least one.
    """
    right, n = int(np.count_nonzero(correct)), len(correct)
    interval = clopper_pearson(right, n, CONFIDENCE_LEVEL)
    return metric(right / n, interval, n, f"Clopper-Pearson, {CONFIDENCE_LEVEL:.0%}", "")


def resampled(
    value: float,
    values: Sequence[float],
    n: int,
    resamples: int,
    seed: int,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> dict[str, Any]:
    """A measure with its interval by bootstrap.

    Args:
        value: of the measure.
        values: on each resample; not read for one image, which has no spread.
        n: images that it is of.
        resamples: of the bootstrap.
        seed: of the bootstrap.
        bounds: the measure's own range.
    """
    if n < 2:
        return metric(value, None, n, None, "one image has no spread, so no interval")
    interval = interval_of(values, value, CONFIDENCE_LEVEL, bounds)
    note = ""
    if interval[0] == interval[1]:
        note = "every resample gives this value; that is no certainty, see accuracy's interval"
    return metric(value, interval, n, bootstrap_said(resamples, seed), note)


def bootstrap_said(resamples: int, seed: int) -> str:
    """How an interval by bootstrap was found, for people.

    Args:
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    return (
        f"bootstrap over images, {CONFIDENCE_LEVEL:.0%}: percentiles of {resamples} resamples "
        f"less the bootstrap's bias, seed {seed}"
    )


def paired_said(resamples: int, seed: int) -> str:
    """How an interval of a difference by paired bootstrap was found, for people.

    Args:
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    return f"paired {bootstrap_said(resamples, seed)}"
