"""Where a curve of shifted against standard accuracy bends, found from the curve alone.

An adversarially filtered set bends it at the model that filtered (Taori et al., NeurIPS 2020,
appendix I). Two lines that are fitted apart on both sides of a known pivot need not meet; here they
meet, and where they do is what is looked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import Floats, integer, percentages, same_length
from curate.metrics.logits import logit, percent

#: Places where the bend is looked for, evenly in logit between the models.
PLACES = 200

#: Fewer models than this on either side of a bend say nothing of it.
LEAST_ASIDE = 3

#: Fewer models than this follow any two lines that meet.
LEAST_MODELS = 10


@dataclass(frozen=True)
class Knee:
    """Two lines in logit space that meet.

    Attributes:
        percent: standard accuracy where they meet.
        interval: of that place, 95 %, over models drawn with replacement.
        slope_below: of the lower line.
        slope_above: of the upper line.
        r2: share of the variance of logit(y/100) that both explain together.
        r2_line: share that a single line explains.
        n: models.
    """

    percent: float
    interval: tuple[float, float]
    slope_below: float
    slope_above: float
    r2: float
    r2_line: float
    n: int


def find_knee(
    x: ArrayLike, y: ArrayLike, *, resamples: int = 1000, seed: int = 720257663
) -> Knee | None:
    """The bend that leaves the least squares: logit(y) = a + b·logit(x) + c·max(0, logit(x) - k).

    It is always found, in a straight line too: then both slopes are alike, its interval is wide,
    and r2 hardly above r2_line.

    Args:
        x: standard accuracy, percent, shape (n,).
        y: shifted accuracy, percent, shape (n,).
        resamples: for the interval, at least 1.
        seed: of `numpy.random.RandomState`, whose stream is frozen.

    Returns:
        None where x has fewer than `LEAST_MODELS` different values.

    Raises:
        ValueError: nothing there, lengths that differ, NaN, a value not strictly between 0 and 100,
            or an argument out of range.
    """
    at, value = (percentages(v, name, open_ends=True) for v, name in ((x, "x"), (y, "y")))
    if at.ndim != 1 or value.ndim != 1:
        raise ValueError(f"x and y must have one dimension, not {at.shape} and {value.shape}")
    same_length(("x", at), ("y", value))
    resamples = integer(resamples, "resamples", 1)
    random = np.random.RandomState(integer(seed, "seed", 0, 2**32 - 1))
    order = np.lexsort((value, at))
    at, value = (logit(v)[order] for v in (at, value))
    different = np.unique(at)
    if different.size < LEAST_MODELS:
        return None
    places = np.linspace(different[LEAST_ASIDE - 1], different[-LEAST_ASIDE], PLACES)
    sums = _Sums(at, value, places)
    whole = np.ones((1, at.size))
    rest, slopes = sums.fit(whole)
    best = int(np.argmin(rest[0]))
    found = []
    # A few hundred resamples at a time: the sums of each one are PLACES x 9 numbers.
    for start in range(0, resamples, 250):
        count = min(250, resamples - start)
        drawn = random.randint(0, at.size, (count, at.size))
        counts = np.stack([np.bincount(row, minlength=at.size) for row in drawn]).astype(np.float64)
        found.append(places[np.argmin(sums.fit(counts)[0], axis=1)])
    ends = np.concatenate(found)
    spread = float(np.sum((value - value.mean()) ** 2))
    line = sums.line(whole)
    share = (lambda left: 1.0 - left / spread) if spread > 0.0 else (lambda left: 1.0)
    return Knee(
        percent=float(percent(places[best])),
        interval=(
            float(percent(np.percentile(ends, 2.5, method="lower"))),
            float(percent(np.percentile(ends, 97.5, method="higher"))),
        ),
        slope_below=float(slopes[0, best, 0]),
        slope_above=float(slopes[0, best, 0] + slopes[0, best, 1]),
        r2=float(share(rest[0, best])),
        r2_line=float(share(line)),
        n=at.size,
    )


class _Sums:
    """Weighted least squares for every place of a bend at once."""

    def __init__(self, at: Floats, value: Floats, places: Floats) -> None:
        # About their means: the sums stay small, and differences of them exact enough.
        self._x, self._y = at - at.mean(), value - value.mean()
        self._h = np.maximum(0.0, at[None, :] - places[:, None])

    def line(self, weights: Floats) -> float:
        """What a single line leaves."""
        n, x, y, xx, xy, yy = (
            float((weights * part).sum())
            for part in (1.0, self._x, self._y, self._x**2, self._x * self._y, self._y**2)
        )
        sxx, sxy, syy = xx - x * x / n, xy - x * y / n, yy - y * y / n
        return max(0.0, syy - sxy * sxy / sxx)

    def fit(self, weights: Floats) -> tuple[Floats, Floats]:
        """Sums of squares that are left, and the coefficients of x and of the hinge.

        Args:
            weights: of the models, shape (b, n).

        Returns:
            Shapes (b, places) and (b, places, 2).
        """
        x, y, h = self._x, self._y, self._h
        n = weights.sum(axis=1)[:, None]
        mx, my = ((weights @ part)[:, None] / n for part in (x, y))
        mh = weights @ h.T / n
        sxx = (weights @ (x * x))[:, None] - n * mx * mx
        syy = (weights @ (y * y))[:, None] - n * my * my
        sxy = (weights @ (x * y))[:, None] - n * mx * my
        shh = weights @ (h * h).T - n * mh * mh
        sxh = weights @ (h * x).T - n * mx * mh
        shy = weights @ (h * y).T - n * mh * my
        determinant = sxx * shh - sxh * sxh
        # Where a resample has no model beyond a place, nothing bends there.
        sound = determinant > 1e-12 * np.maximum(sxx * shh, 1e-300)
        determinant = np.where(sound, determinant, 1.0)
        b = (sxy * shh - shy * sxh) / determinant
        c = (shy * sxx - sxy * sxh) / determinant
        rest = np.where(sound, np.maximum(0.0, syy - b * sxy - c * shy), np.inf)
        return rest, np.stack([b, c], axis=-1)
