"""The Fréchet distance between two sets of features, each taken for a Gaussian.

On features of an Inception network it is known as FID (Heusel et al., NeurIPS 2017). With finite
sets it is too large, two samples of one set included: to first order by a number over the number of
items (Chong and Forsyth, CVPR 2020). So numbers compare at equal sizes alone, and the distance
between halves of one set says how much of a number is bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import Floats, finite_array


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Mean and covariance of a set of features.

    Attributes:
        n: items.
        mean: float64, shape (d,).
        covariance: unbiased (over n - 1), float64, shape (d, d).
    """

    n: int
    mean: Floats
    covariance: Floats

    @property
    def singular(self) -> bool:
        """Whether there are too few items for a covariance of full rank."""
        return self.n <= self.mean.size

    @cached_property
    def root(self) -> Floats:
        """S with S Sᵀ the covariance, shape (d, r), r its numerical rank."""
        values, vectors = np.linalg.eigh(self.covariance)
        # Rounding leaves eigenvalues of a singular matrix slightly beside 0.
        kept = values > values.size * np.finfo(np.float64).eps * max(values[-1], 0.0)
        root: Floats = vectors[:, kept] * np.sqrt(values[kept])
        return root


class Moments:
    """Running sums of features: memory depends on their number of dimensions alone.

    What is added is centred before it is squared, so that large means cost no digits. The same
    batches in the same order give the same bits.
    """

    def __init__(self) -> None:
        self.n = 0
        self._mean: Floats = np.zeros(0)
        self._scatter: Floats = np.zeros((0, 0))

    @property
    def dimensions(self) -> int:
        """Of the features; 0 where none were added."""
        return self._mean.size

    def add(self, features: ArrayLike) -> None:
        """Take more items.

        Args:
            features: a row an item, shape (b, d); b may be 0.

        Raises:
            ValueError: another shape, another d than before, NaN or infinity.
        """
        rows = np.asarray(features)
        if rows.ndim != 2 or rows.shape[1] == 0:
            raise ValueError(f"features must have a row an item, not shape {rows.shape}")
        if self.n and rows.shape[1] != self._mean.size:
            raise ValueError(
                f"features have {rows.shape[1]} dimensions, those before had {self._mean.size}"
            )
        if not len(rows):
            return
        batch = Moments()
        rows = finite_array(rows, "features").astype(np.float64)
        batch.n, batch._mean = len(rows), rows.mean(axis=0)
        rows -= batch._mean
        batch._scatter = rows.T @ rows
        self.merge(batch)

    def merge(self, other: Moments) -> None:
        """Take all that another one has taken.

        Raises:
            ValueError: its features have another number of dimensions.
        """
        if not other.n:
            return
        if not self.n:
            self.n, self._mean = other.n, other._mean.copy()
            self._scatter = other._scatter.copy()
            return
        if other._mean.size != self._mean.size:
            raise ValueError(
                f"features have {other._mean.size} dimensions, those before had {self._mean.size}"
            )
        total = self.n + other.n
        apart = other._mean - self._mean
        self._mean = self._mean + apart * (other.n / total)
        self._scatter += other._scatter
        self._scatter += np.outer(apart, apart * (self.n * other.n / total))
        self.n = total

    def arrays(self) -> dict[str, Any]:
        """All of it as arrays, for `from_arrays`."""
        return {"n": np.array(self.n), "mean": self._mean, "scatter": self._scatter}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Moments:
        """What `arrays` gave.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        made = cls()
        made.n = int(arrays["n"])
        made._mean = np.array(arrays["mean"], np.float64)
        made._scatter = np.array(arrays["scatter"], np.float64)
        if made._mean.ndim != 1 or made._scatter.shape != 2 * made._mean.shape or made.n < 0:
            raise ValueError("these are no moments")
        return made

    def gaussian(self) -> Gaussian:
        """Mean and covariance of what was taken.

        Raises:
            ValueError: fewer than two items, which have no covariance.
        """
        if self.n < 2:
            raise ValueError(f"a covariance needs at least two items, not {self.n}")
        return Gaussian(self.n, self._mean.copy(), self._scatter / (self.n - 1))


def gaussian(features: ArrayLike) -> Gaussian:
    """Mean and covariance of features.

    Args:
        features: a row an item, shape (n, d).

    Raises:
        ValueError: another shape, NaN, infinity, or fewer than two items.
    """
    moments = Moments()
    moments.add(features)
    return moments.gaussian()


def frechet_distance(a: Gaussian, b: Gaussian) -> float:
    """d² = |μa - μb|² + tr(Σa + Σb - 2 (Σa Σb)^½).

    The trace of the root is the sum of the singular values of Saᵀ Sb, where S Sᵀ = Σ. So a singular
    covariance (fewer items than dimensions) needs no small number added to it, and no imaginary
    part is to be dropped, as with a root of Σa Σb itself.

    Args:
        a: of one set.
        b: of the other.

    Returns:
        The square of the distance, as FID is told; at least 0.

    Raises:
        ValueError: another number of dimensions, a covariance of another shape, NaN or infinity.
    """
    for name, one in (("a", a), ("b", b)):
        finite_array(one.mean, f"mean of {name}")
        finite_array(one.covariance, f"covariance of {name}")
        if one.covariance.shape != (one.mean.size, one.mean.size):
            raise ValueError(
                f"{name} has a covariance of shape {one.covariance.shape} for "
                f"{one.mean.size} dimensions"
            )
    if a.mean.size != b.mean.size:
        raise ValueError(f"a and b differ in dimensions: {a.mean.size} and {b.mean.size}")
    apart = a.mean - b.mean
    roots = np.linalg.svd(a.root.T @ b.root, compute_uv=False)
    traces = a.covariance.trace() + b.covariance.trace()
    return max(0.0, float(apart @ apart + traces - 2.0 * roots.sum()))


def extrapolated_distance(whole: float, halves: float) -> float:
    """What is left of a distance once its bias is taken out, to first order in 1 / items.

    Half as many items have twice the bias, so twice the distance of all less that of halves has
    none. It needs covariances of full rank. Below 0, which noise may bring, no distance is shown.

    Args:
        whole: the distance between all items of both sets.
        halves: the mean distance between a half of the one and a half of the other.
    """
    return 2.0 * whole - halves
