"""Samples of a JPEG's blocks that no encoder could have written, because they lie outside 0..255.

A decoder clamps samples, so they are looked at in halves: decoded with the upper halves of the
quantisation steps (rounded up) and with the lower ones (rounded down), which add up to the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from curate.errors import ImageRefused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MIDDLE = 128
# Rounding of the two halves and of the decoder's integer transform, in grey levels.
_SLACK = 2
# mozjpeg lets white overshoot, by so much and by two steps of the mean at most.
_OVERSHOOT = 31
_BAND = 512
_AT_ONCE = 32

# An upper half so far from the middle may belong to a sample that was clamped: half of 128 at
# least, or more where steps are odd.
_NEAR_CLAMPING = 60
# What upper halves may show of what is allowed. 2,200 damaged photos that `check` refuses showed
# 0.31 or more, 1,066 undamaged ones at most 0.49, and 99 % of them at most 0.30.
_PLAINLY_ALLOWED = 0.25


def check(lower: NDArray[np.uint8], upper: NDArray[np.uint8], steps: NDArray[np.float64]) -> None:
    """Refuse a block whose samples lie further outside 0..255 than quantisation can put them.

    With x the samples before clamping, e their excess over the range, and F the transform: for
    samples y inside the range <e, x - y> >= |e|^2, and where each coefficient of y was rounded by
    at most h steps, <e, x - y> = <F(e), F(x) - F(y)> <= h * sum |F(e)| * step. So |e|^2 above that
    sum proves damage. Rounding to the nearest gives h = 1/2; encoders that weigh rate against
    distortion exceed it now and then; h = 1 is the limit here.

    Args:
        lower: luminance [row, column] from the lower halves of the steps.
        upper: from the upper ones.
        steps: luminance's quantisation steps [8, 8].

    Raises:
        ImageRefused: `corrupt-data`.
    """
    import numpy as np

    for top, part in _bands(upper):
        height, width = part.shape
        other = lower[top : top + height, :width]
        least, most = _limits(steps, _SLACK)
        # The mean of both halves in bytes, at most 1 too low, shows which blocks may be outside.
        mean = (part >> 1) + (other >> 1)
        row, column = _blocks_outside(
            mean, -(-(least + 2 * _MIDDLE) // 2), (most + 2 * _MIDDLE - 2) // 2
        )
        blocks = _blocks(part, row, column).astype(np.int16)
        blocks += _blocks(other, row, column)
        blocks -= 2 * _MIDDLE
        wrong = np.flatnonzero(_exceed(blocks, least, most, steps, 1))
        if wrong.size:
            first = wrong[0]
            raise ImageRefused(
                "corrupt-data",
                f"impossible samples in {wrong.size} blocks, first at {8 * column[first]}, "
                f"{top + 8 * row[first]} of the stored picture",
            )


def upper_halves_suffice(upper: NDArray[np.uint8], steps: NDArray[np.float64]) -> bool:
    """Whether the upper halves alone show that `check` would refuse nothing.

    In each block the lower halves follow from them, but for rounding and where they are clamped
    themselves. A mean whose step is 1 has no halves: a wrong one shows itself by clamped samples.

    Args:
        upper: luminance [row, column] from the upper halves of the steps.
        steps: luminance's quantisation steps [8, 8].
    """
    import numpy as np

    if steps[0, 0] < 2 and upper.size and (upper.min() == 0 or upper.max() == 255):
        return False
    lower_of_upper = _lower_of_upper(steps.tobytes())
    least, most = _limits(steps, _SLACK - 1)
    for _, part in _bands(upper):
        row, column = _blocks_outside(part, _MIDDLE - _NEAR_CLAMPING, _MIDDLE + _NEAR_CLAMPING)
        if not row.size:
            continue
        near = _blocks(part, row, column).reshape(-1, 64)
        samples = _both_halves(near, lower_of_upper)
        if samples.min() >= least and samples.max() <= most:
            continue
        outside = np.flatnonzero((samples < least) | (samples > most))
        blocks = samples[np.unique(outside // 64)].reshape(-1, 8, 8)
        if _exceed(blocks, least, most, steps, _PLAINLY_ALLOWED).any():
            return False
    return True


def _both_halves(
    upper: NDArray[np.uint8], lower_of_upper: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The samples [block, 64] that upper halves belong to, relative to the middle."""
    import numpy as np

    # In pieces that BLAS multiplies in the calling thread: threads of its own, which wait for each
    # other on cores that decode other images, would cost several times the work.
    pieces = -(-len(upper) // _AT_ONCE)
    samples = np.zeros((pieces, _AT_ONCE, 64), np.float32)
    flat = samples.reshape(-1, 64)
    flat[: len(upper)] = upper
    flat[: len(upper)] -= _MIDDLE
    samples += samples @ lower_of_upper
    return flat


def _limits(steps: NDArray[np.float64], slack: int) -> tuple[int, int]:
    """The least and the largest sample that need no reason, relative to the middle."""
    brightest = 255 + min(_OVERSHOOT, 2 * int(steps[0, 0]))
    return -_MIDDLE - slack, brightest - _MIDDLE + slack


def _bands(samples: NDArray[np.uint8]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Rows of whole blocks, with where they begin: so that large pictures take little memory."""
    height, width = (side // 8 * 8 for side in samples.shape)
    for top in range(0, height, _BAND):
        yield top, samples[top : min(top + _BAND, height), :width]


def luminance(upper: NDArray[np.uint8], steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """About one sample of each block, in grey levels: exact where the block is flat.

    Args:
        upper: luminance [row, column] from the upper halves of the steps.
        steps: luminance's quantisation steps [8, 8].
    """
    import numpy as np

    whole = steps[0, 0] / max(1, steps[0, 0] - steps[0, 0] // 2)
    return (upper[::8, ::8].astype(np.float64) - _MIDDLE) * whole + _MIDDLE


def _blocks_outside(
    samples: NDArray[np.uint8], least: int, most: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows and columns of blocks that have a sample outside the limits."""
    import numpy as np

    rows, columns = samples.shape[0] // 8, samples.shape[1] // 8
    strips = samples.reshape(rows, 8, 8 * columns)
    outside = (strips.min(axis=1) < least) | (strips.max(axis=1) > most)
    # Eight truth values at once; reducing each eight of them by itself takes longer than all else.
    row, column = np.nonzero(outside.view(np.uint64).reshape(rows, columns))
    return row, column


def _blocks(
    samples: NDArray[np.uint8], row: NDArray[np.intp], column: NDArray[np.intp]
) -> NDArray[np.uint8]:
    """Some of the blocks [block, row, column]."""
    import numpy as np

    # Rows of blocks as one number each are gathered several times as fast as eight bytes.
    strips = samples.view(np.uint64).reshape(samples.shape[0] // 8, 8, -1)
    return strips[row, :, column].view(np.uint8).reshape(-1, 8, 8)


def _exceed(
    blocks: NDArray[Any], least: int, most: int, steps: NDArray[np.float64], share: float
) -> NDArray[np.bool_]:
    """Whether the excess of blocks over the limits is above a share of what rounding explains."""
    import numpy as np

    basis = _transform()
    excess = np.maximum(blocks - most, 0) + np.minimum(blocks - least, 0)
    outside = excess.astype(np.float64)
    allowed = (np.abs(basis @ outside @ basis.T) * steps).sum(axis=(1, 2))
    return (outside**2).sum(axis=(1, 2)) > share * allowed


@cache
def _transform() -> NDArray[np.float64]:
    """The orthonormal eight-point DCT-II [frequency, sample] (T.81, A.3.3)."""
    import numpy as np
    from scipy.fft import dct

    return np.asarray(dct(np.eye(8), axis=0, norm="ortho"))


@lru_cache(maxsize=64)
def _lower_of_upper(steps: bytes) -> NDArray[np.float32]:
    """What maps the samples of an upper half to those of the lower half [64, 64]."""
    import numpy as np

    table = np.frombuffer(steps)
    both = np.kron(_transform(), _transform())
    # A step of 0, which only broken files have, makes all of its coefficients 0.
    ratio = (table // 2) / np.maximum(table - table // 2, 1)
    return (both.T * ratio @ both).astype(np.float32)
