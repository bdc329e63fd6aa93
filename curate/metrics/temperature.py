"""Proper scores of whole distributions, and temperature scaling, which is fitted by one of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from curate.metrics.blocks import blocks
from curate.metrics.checks import Floats, Ints, finite_floats
from curate.metrics.classification import labelled_logits

#: Between these a temperature is looked for. At the lower end only the largest logit counts; at
#: the upper one a hundred logits apart are as good as equal.
TEMPERATURES = (0.01, 100.0)

#: For logits that differ by more than a double holds: 0 · -∞ would be no number.
_LOWEST = np.finfo(np.float64).min


def temperature(logits: ArrayLike, labels: ArrayLike, columns: ArrayLike | None = None) -> float:
    """The temperature that makes a model's logits most likely: softmax(z / T).

    T minimises the negative log likelihood of the labels,

        NLL(T) = mean_i [log Σ_k exp(z_ik / T) - z_iy / T],

    which is convex in 1/T: there is one minimum, found where the derivative in 1/T,
    mean_i [Σ_k p_ik z_ik - z_iy], is 0. Fit it on images that are not measured afterwards. It
    changes no prediction, only confidences: divide the logits by it. Source: Guo et al., "On
    Calibration of Modern Neural Networks", ICML 2017.

    Args:
        logits: shape (n, classes).
        labels: column numbers of the full output, shape (n,).
        columns: the label space's columns, which softmax runs over; None for all.

    Returns:
        Above 1 for a model that is too sure of itself. Where there is no minimum between the
        ends of `TEMPERATURES`, the nearer end: the lower one where every label has the largest
        logit, the upper one where the logits say less than nothing of the labels; and 1 where
        all logits of every item are equal, so that none is better than another.

    Raises:
        ValueError: NaN, infinity, no item, lengths that differ, or a label outside the columns.
    """
    from scipy.optimize import brentq

    scores, truth = labelled_logits(logits, labels, columns)
    if not np.any(scores != scores[:, :1]):
        return 1.0

    def slope(log_inverse: float) -> float:
        return _mean_slope(scores, truth, float(np.exp(log_inverse)))

    # In the logarithm of 1/T the ends are equally far from 1.
    low, high = -np.log(TEMPERATURES[1]), -np.log(TEMPERATURES[0])
    if slope(low) >= 0.0:
        return TEMPERATURES[1]
    if slope(high) <= 0.0:
        return TEMPERATURES[0]
    return float(np.exp(-brentq(slope, low, high, xtol=1e-13)))


def apply_temperature(logits: ArrayLike, value: float) -> Floats:
    """Logits over a temperature, as float64.

    Args:
        logits: of any shape.
        value: the temperature, above 0.

    Raises:
        ValueError: NaN or infinity, nothing there, or a temperature that is not above 0.
    """
    scores = finite_floats(logits, "logits")
    if not (np.isfinite(value) and value > 0.0):
        raise ValueError(f"temperature is {value}: it must be above 0")
    return scores / value


def negative_log_likelihood(
    logits: ArrayLike, labels: ArrayLike, columns: ArrayLike | None = None
) -> float:
    """The mean of -log p(label), natural logarithm, in float64.

    From logits it is finite however sure the model is of something else; from probabilities it
    would be infinite as soon as one is rounded to 0. Good, "Rational decisions", Journal of the
    Royal Statistical Society B 1952.

    Args:
        logits: shape (n, classes).
        labels: column numbers of the full output, shape (n,).
        columns: the label space's columns, which softmax runs over; None for all.

    Returns:
        0 or more; log(classes) for a model that says nothing.

    Raises:
        ValueError: as `temperature`.
    """
    scores, truth = labelled_logits(logits, labels, columns)
    total = 0.0
    for block in blocks(*scores.shape):
        shifted = _shifted(scores[block])
        own = np.take_along_axis(shifted, truth[block, None], axis=1)[:, 0]
        total += float(np.sum(np.log(np.exp(shifted).sum(axis=1)) - own))
    return total / len(scores)


def brier_score(logits: ArrayLike, labels: ArrayLike, columns: ArrayLike | None = None) -> float:
    """The squared distance between the softmax and the truth: mean_i Σ_k (p_ik - [k = y_i])².

    The sum runs over all classes, as in Brier, "Verification of forecasts expressed in terms of
    probability", Monthly Weather Review 1950; scikit-learn's default for two classes is half of it.

    Args:
        logits: shape (n, classes).
        labels: column numbers of the full output, shape (n,).
        columns: the label space's columns, which softmax runs over; None for all.

    Returns:
        In [0, 2].

    Raises:
        ValueError: as `temperature`.
    """
    scores, truth = labelled_logits(logits, labels, columns)
    total = 0.0
    for block in blocks(*scores.shape):
        p = np.exp(_shifted(scores[block]))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(p)), truth[block]] -= 1.0
        total += float(np.sum(p**2))
    return total / len(scores)


def _shifted(rows: NDArray[np.floating]) -> Floats:
    """Logits less each row's largest, so that exp neither overflows nor loses the largest."""
    shifted = rows.astype(np.float64)
    with np.errstate(over="ignore"):
        shifted -= shifted.max(axis=1, keepdims=True)
    if shifted.min() < _LOWEST:
        np.maximum(shifted, _LOWEST, out=shifted)
    return shifted


def _mean_slope(scores: NDArray[np.floating], truth: Ints, inverse: float) -> float:
    total = 0.0
    for block in blocks(*scores.shape):
        shifted = _shifted(scores[block])
        own = np.take_along_axis(shifted, truth[block, None], axis=1)[:, 0]
        p = shifted * inverse
        np.exp(p, out=p)
        mean = np.multiply(p, shifted, out=shifted).sum(axis=1) / p.sum(axis=1)
        total += float(np.sum(mean - own))
    return total / len(scores)
