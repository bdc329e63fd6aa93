"""Robustness to natural distribution shift, after Taori et al. (NeurIPS 2020).

Accuracies are percentages, in and out; robustness is in percentage points. All lines are ordinary
least squares of logit(y/100) on logit(x/100), natural logarithm, x the accuracy on the standard
test set and y that on the shifted one (section 3 and appendix B).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import (
    FloatOrArray,
    Floats,
    finite_floats,
    integer,
    percentages,
    same_length,
)
from curate.metrics.logits import logit, percent

#: Two accuracies closer than this, in points, are the same model's: tables store them as
#: float32 (ResNet-50's 91.86 reads 91.86000061), and one of 50,000 images is 0.002 points.
SAME_ACCURACY = 1e-4


class Fit(Protocol):
    """What says which accuracy to expect under shift."""

    def predict(self, x: ArrayLike) -> FloatOrArray:
        """Expected shifted accuracy, in percent, at standard accuracy `x`."""


@dataclass(frozen=True)
class LogitLine:
    """A line in logit space: logit(y/100) = slope · logit(x/100) + intercept.

    Attributes:
        slope: of the line.
        intercept: of the line, in logits.
        r2: share of the variance of logit(y/100) explained; 1 where all y are equal, as the
            line then passes through every point.
        n: models fitted.
    """

    slope: float
    intercept: float
    r2: float
    n: int

    def predict(self, x: ArrayLike) -> FloatOrArray:
        """β(x) = 100 · expit(slope · logit(x/100) + intercept).

        Args:
            x: percent, strictly between 0 and 100, of any shape.

        Returns:
            Percent, of the same shape; a float for one number.

        Raises:
            ValueError: NaN, infinity, or x not strictly between 0 and 100.
        """
        at = logit(percentages(x, "x", open_ends=True))
        return _float_or_array(percent(self.slope * at + self.intercept))


@dataclass(frozen=True)
class PiecewiseLogitFit:
    """Two separate lines, one on each side of a pivot; they need not meet there.

    Attributes:
        low: the line of the models below the pivot.
        high: the line of the models above it.
        pivot: in percent of standard accuracy.
    """

    low: LogitLine
    high: LogitLine
    pivot: float

    def predict(self, x: ArrayLike) -> FloatOrArray:
        """The upper line above the pivot, the lower one elsewhere, the pivot included.

        Args:
            x: percent, strictly between 0 and 100, of any shape.

        Returns:
            Percent, of the same shape; a float for one number.

        Raises:
            ValueError: as `LogitLine.predict`.
        """
        at = percentages(x, "x", open_ends=True)
        low: Floats = np.asarray(self.low.predict(at))
        high: Floats = np.asarray(self.high.predict(at))
        return _float_or_array(np.where(at > self.pivot + SAME_ACCURACY, high, low))


@dataclass(frozen=True, eq=False)
class BootstrapBand:
    """A pointwise 95 % band around a line, in percent.

    Attributes:
        lower: at each point of the grid.
        upper: at each point of the grid.
        slope_interval: (low, high).
        intercept_interval: (low, high), in logits.
    """

    lower: Floats
    upper: Floats
    slope_interval: tuple[float, float]
    intercept_interval: tuple[float, float]


def fit_logit_line(x: ArrayLike, y: ArrayLike) -> LogitLine:
    """Fit shifted accuracy against standard accuracy in logit space.

    Which models to fit (the standard ones) is the caller's choice. Nothing is clipped: a model
    at 0 or 100 percent has no logit and must be left out, which is then part of the result.

    Args:
        x: standard accuracy, percent, shape (n,).
        y: shifted accuracy, percent, shape (n,).

    Raises:
        ValueError: nothing there, lengths that differ, NaN, a value not strictly between 0 and
            100, or fewer than two different x.
    """
    at, value = _logit_pairs(x, y)
    slope, intercept = _least_squares(at, value)
    spread = np.sum((value - value.mean()) ** 2)
    r2 = 1.0
    if np.ptp(value) > 0.0:
        r2 = 1.0 - np.sum((value - (slope * at + intercept)) ** 2) / spread
    return LogitLine(slope=float(slope), intercept=float(intercept), r2=float(r2), n=at.size)


def fit_piecewise(x: ArrayLike, y: ArrayLike, pivot: float) -> PiecewiseLogitFit:
    """Fit the models below and above a pivot each by a line of their own.

    An adversarially filtered set bends the curve at the model that filtered it (appendix I;
    ImageNet-A: ResNet-50, 91.86 percent on the 200 classes). A model within `SAME_ACCURACY` of
    the pivot belongs to neither fit, and may be at 0 percent, as the filter's own model is.

    Args:
        x: standard accuracy, percent, shape (n,).
        y: shifted accuracy, percent, shape (n,).
        pivot: percent of standard accuracy, strictly between 0 and 100.

    Raises:
        ValueError: as `fit_logit_line`, for each side.
    """
    standard, shifted = percentages(x, "x", open_ends=True), percentages(y, "y")
    if standard.ndim != 1 or standard.shape != shifted.shape:
        raise ValueError(
            f"x and y must be two lists of one length, not of shapes {standard.shape} "
            f"and {shifted.shape}"
        )
    knee = float(percentages(pivot, "pivot", open_ends=True))
    below, above = standard < knee - SAME_ACCURACY, standard > knee + SAME_ACCURACY
    # Only models at the pivot need no logit; messages keep the places of the input.
    percentages(np.where(below | above, shifted, 50.0), "y", open_ends=True)
    lines = []
    for side, chosen in (("below", below), ("above", above)):
        if not chosen.any():
            raise ValueError(f"no model is {side} the pivot {knee:g}")
        try:
            lines.append(fit_logit_line(standard[chosen], shifted[chosen]))
        except ValueError as error:
            raise ValueError(f"{side} the pivot {knee:g}: {error}") from error
    return PiecewiseLogitFit(low=lines[0], high=lines[1], pivot=knee)


def effective_robustness(x: ArrayLike, y: ArrayLike, fit: Fit) -> FloatOrArray:
    """ρ = y - β(x): accuracy under shift beyond what standard accuracy predicts (section 2).

    Args:
        x: standard accuracy, percent, strictly between 0 and 100.
        y: shifted accuracy, percent, of the same shape.
        fit: gives β; a `LogitLine` or a `PiecewiseLogitFit`.

    Returns:
        Percentage points, of the same shape; a float for one model.

    Raises:
        ValueError: NaN, out of range, or shapes that differ.
    """
    standard, shifted = finite_floats(x, "x"), percentages(y, "y")
    if standard.shape != shifted.shape:
        raise ValueError(f"x and y differ in shape: {standard.shape} and {shifted.shape}")
    return _float_or_array(shifted - fit.predict(standard))


def relative_robustness(y: ArrayLike, y_baseline: ArrayLike) -> FloatOrArray:
    """τ = y - y(baseline): what an intervention adds under shift (section 2).

    Args:
        y: shifted accuracy with the intervention, percent.
        y_baseline: the same without it; of the same shape, or one number for all.

    Returns:
        Percentage points, of the shape of `y`; a float for one model.

    Raises:
        ValueError: NaN, out of range, or shapes that differ.
    """
    shifted, base = percentages(y, "y"), percentages(y_baseline, "y_baseline")
    if base.ndim != 0 and base.shape != shifted.shape:
        raise ValueError(f"y and y_baseline differ in shape: {shifted.shape} and {base.shape}")
    return _float_or_array(shifted - base)


def bootstrap_band(
    x: ArrayLike, y: ArrayLike, grid: ArrayLike, resamples: int = 1000, seed: int = 720257663
) -> BootstrapBand:
    """A pointwise 95 % band around the line of `fit_logit_line`, by refits on resampled models.

    Each resample draws n models with replacement, in the order of the input, from
    `numpy.random.RandomState(seed)` (its stream is frozen, so numbers last). The band is the
    2.5th percentile (the next lower refit) to the 97.5th (the next higher one) of the fitted
    logits at each point, taken back to percent. A resample with a single x has no line and is
    drawn again. The default seed is that of published plotting code.

    Args:
        x: standard accuracy, percent, shape (n,).
        y: shifted accuracy, percent, shape (n,).
        grid: where to give the band, percent, strictly between 0 and 100, shape (g,).
        resamples: number of refits, at least 1.
        seed: 0 … 2³² - 1.

    Raises:
        ValueError: as `fit_logit_line`, or a grid, `resamples` or `seed` out of range.
    """
    at, value = _logit_pairs(x, y)
    points = logit(np.atleast_1d(percentages(grid, "grid", open_ends=True)))
    if points.ndim != 1:
        raise ValueError(f"grid must have one dimension, not shape {points.shape}")
    resamples = integer(resamples, "resamples", 1)
    random = np.random.RandomState(integer(seed, "seed", 0, 2**32 - 1))

    lines: list[tuple[Floats, Floats]] = []
    missing = resamples
    while missing:
        drawn = random.randint(0, at.size, (missing, at.size))
        drawn = drawn[np.ptp(at[drawn], axis=1) > 0.0]
        lines.append(_least_squares(at[drawn], value[drawn]))
        missing -= len(drawn)
    slopes, intercepts = (np.concatenate(part) for part in zip(*lines, strict=True))

    fitted = slopes[:, None] * points + intercepts[:, None]
    lower, upper = _outer_percentiles(fitted)
    return BootstrapBand(
        lower=percent(lower),
        upper=percent(upper),
        slope_interval=_pair(_outer_percentiles(slopes)),
        intercept_interval=_pair(_outer_percentiles(intercepts)),
    )


def _float_or_array(values: Floats) -> FloatOrArray:
    return values if np.ndim(values) else float(values)


def _logit_pairs(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    standard = percentages(x, "x", open_ends=True)
    shifted = percentages(y, "y", open_ends=True)
    if standard.ndim != 1 or shifted.ndim != 1:
        raise ValueError(
            f"x and y must have one dimension, not shapes {standard.shape} and {shifted.shape}"
        )
    same_length(("x", standard), ("y", shifted))
    if np.ptp(standard) == 0.0:
        raise ValueError(
            f"a line needs two different x: it is {standard[0]} for all {standard.size} models"
        )
    return logit(standard), logit(shifted)


def _least_squares(at: Floats, value: Floats) -> tuple[Floats, Floats]:
    """Slopes and intercepts of the lines through the last axis, two different `at` in each."""
    centre, level = at.mean(axis=-1, keepdims=True), value.mean(axis=-1, keepdims=True)
    offset = at - centre
    slope = np.sum(offset * (value - level), axis=-1) / np.sum(offset**2, axis=-1)
    return slope, level[..., 0] - slope * centre[..., 0]


def _outer_percentiles(values: Floats) -> tuple[Floats, Floats]:
    return (
        np.percentile(values, 2.5, axis=0, method="lower"),
        np.percentile(values, 97.5, axis=0, method="higher"),
    )


def _pair(values: tuple[Floats, Floats]) -> tuple[float, float]:
    return float(values[0]), float(values[1])
