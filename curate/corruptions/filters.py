"""The linear filters that several corruptions share; each takes and gives float32.

Short kernels are applied tap by tap, long ones by a transform whose time does not depend on their
length, so that constants that grow with the photo cost no more. Both give the same values to within
a thousandth of a grey level.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from curate.corruptions.terms import Floats, row_blocks

#: How an image goes on beyond its border, as NumPy and SciPy call it: the last pixel repeated, or
#: mirrored with ("reflect") or without ("mirror") repeating it.
Border = Literal["nearest", "reflect", "mirror"]

_PADS: dict[str, Any] = {"nearest": "edge", "reflect": "symmetric", "mirror": "reflect"}

#: Beyond this radius a transform is quicker than taps.
_LONG = 12


def gaussian_weights(sigma: float, truncate: float) -> NDArray[np.float64]:
    """Weights of a Gaussian kernel from its middle outwards; mirrored, they sum to 1.

    Args:
        sigma: in pixels.
        truncate: where it is cut, in sigmas.
    """
    radius = int(truncate * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(radius + 1) / sigma) ** 2)
    return weights / (2.0 * weights.sum() - weights[0])


def gaussian(
    values: Floats, sigma: float, border: Border = "nearest", truncate: float = 4.0
) -> Floats:
    """Gaussian blur of an image or of each of its channels.

    Args:
        values: shape (h, w) or (h, w, channels).
        sigma: in pixels.
        border: how the image goes on.
        truncate: where the kernel is cut, in sigmas.
    """
    from scipy import ndimage

    weights = gaussian_weights(sigma, truncate)
    radius = weights.size - 1
    if radius <= _LONG:
        result = values
        kernel = np.concatenate((weights[:0:-1], weights))
        for axis in (0, 1):
            result = ndimage.correlate1d(result, kernel, axis, output=np.float32, mode=border)
        return result
    if values.ndim == 2:
        return _gaussian_by_cosines(values, weights, border)
    out = np.empty(values.shape, np.float32)
    for channel in range(values.shape[2]):
        out[:, :, channel] = _gaussian_by_cosines(values[:, :, channel], weights, border)
    return out


def _gaussian_by_cosines(
    values: NDArray[Any], weights: NDArray[np.float64], border: Border
) -> Floats:
    """A cosine transform mirrors with repeating; whatever else is wanted is padded on first."""
    from scipy import fft

    radius = weights.size - 1
    height, width = values.shape
    spare = 0 if border == "reflect" else radius
    # Some lengths are transformed much quicker; what is further away than the kernel is no matter.
    pads = [
        (spare, spare and fft.next_fast_len(side + 2 * spare, real=True) - side - spare)
        for side in values.shape
    ]
    padded = np.pad(values.astype(np.float32), pads, mode=_PADS[border])
    spectrum = fft.dctn(padded, overwrite_x=True)
    spectrum *= _response(weights, padded.shape[0])[:, None]
    spectrum *= _response(weights, padded.shape[1])
    blurred: Floats = fft.idctn(spectrum, overwrite_x=True)
    return blurred[spare : spare + height, spare : spare + width]


def _response(weights: NDArray[np.float64], length: int) -> Floats:
    """What a symmetric kernel does to each cosine over `length` samples."""
    from scipy import fft

    # The kernel as it folds back at the mirrors, whose period is twice the length.
    folded = np.zeros(2 * length)
    places = np.arange(weights.size)
    np.add.at(folded, places % (2 * length), weights)
    np.add.at(folded, -places[1:] % (2 * length), weights[1:])
    response: NDArray[np.float64] = fft.rfft(folded).real
    return response[:length].astype(np.float32)


def correlate(values: NDArray[Any], kernel: NDArray[Any], border: Border) -> Floats:
    """Correlation of each channel with a kernel whose origin is its middle, by Fourier transform.

    Args:
        values: shape (h, w, channels).
        kernel: odd height and width.
        border: how the image goes on.
    """
    from scipy import fft

    height, width, channels = values.shape
    up, left = kernel.shape[0] // 2, kernel.shape[1] // 2
    size = (
        fft.next_fast_len(height + 2 * up, real=True),
        fft.next_fast_len(width + 2 * left, real=True),
    )
    response = fft.rfft2(kernel[::-1, ::-1].astype(np.float32), size)
    out = np.empty(values.shape, np.float32)
    pads = ((up, up), (left, left))
    for channel in range(channels):
        padded = np.pad(values[:, :, channel].astype(np.float32), pads, mode=_PADS[border])
        spectrum = fft.rfft2(padded, size)
        spectrum *= response
        whole = fft.irfft2(spectrum, size, overwrite_x=True)
        # The kernel begins at the origin of its array, so that what is whole begins behind it.
        out[:, :, channel] = whole[2 * up : 2 * up + height, 2 * left : 2 * left + width]
    return out


def zoomed(values: Floats, factor: float, rows: slice = slice(None)) -> Floats:
    """The middle of a channel, enlarged bilinearly to the size of the whole.

    The middle is ceil(side / factor) pixels wide, its first and last pixel centres become those of
    round(ceil(side / factor) · factor) pixels, and of these the middle ones are kept.

    Args:
        values: shape (h, w).
        factor: at least 1.
        rows: which ones of the result are wanted.
    """
    below, above, share = _zoom_places(values.shape[0], factor)
    near, far = values.take(below[rows], 0), values.take(above[rows], 0)
    lines = _between(near, far, share[rows, None])
    below, above, share = _zoom_places(values.shape[1], factor)
    return _between(lines.take(below, 1), lines.take(above, 1), share)


def _zoom_places(
    side: int, factor: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    part = math.ceil(side / factor)
    enlarged = round(part * factor)
    first = (side - part) // 2
    step = (part - 1) / (enlarged - 1) if enlarged > 1 else 0.0
    places = first + (np.arange(side) + (enlarged - side) // 2) * step
    below = np.clip(np.floor(places), first, first + part - 1).astype(np.int64)
    above = np.minimum(below + 1, first + part - 1)
    return below, above, (places - below).astype(np.float32)


def sampled(
    planes: NDArray[Any], down: NDArray[Any], right: NDArray[Any], border: Border
) -> list[Floats]:
    """An image read bilinearly at any places.

    Args:
        planes: its channels, shape (channels, h, w).
        down: row of each place, fractions between pixels.
        right: column of each, of the same shape.
        border: how the image goes on.

    Returns:
        Each channel at those places.
    """
    channels, height, width = planes.shape
    row, column = np.floor(down), np.floor(right)
    share_down = np.subtract(down, row, dtype=np.float32)
    share_right = np.subtract(right, column, dtype=np.float32)
    above, left = row.astype(np.int64), column.astype(np.int64)
    rows = [_inside(above + one, height, border) * width for one in (0, 1)]
    columns = [_inside(left + one, width, border) for one in (0, 1)]
    places = [[start + at for at in columns] for start in rows]
    found = []
    for plane in planes.reshape(channels, height * width):
        upper, lower = (
            _between(plane.take(near), plane.take(far), share_right) for near, far in places
        )
        found.append(_between(upper, lower, share_down))
    return found


def _between(near: NDArray[Any], far: NDArray[Any], share: Floats) -> Floats:
    near = near.astype(np.float32, copy=False)
    far = far.astype(np.float32, copy=False)
    far -= near
    far *= share
    far += near
    return far


def _inside(places: NDArray[np.int64], length: int, border: Border) -> NDArray[np.int64]:
    """The same places, those beyond the border brought back onto the image."""
    beyond = (places < 0) | (places >= length)
    if beyond.any():
        places[beyond] = _mirrored(places[beyond], length, border)
    return places


def _mirrored(places: NDArray[np.int64], length: int, border: Border) -> NDArray[np.int64]:
    if border == "nearest" or length == 1:
        return np.clip(places, 0, length - 1)
    period = 2 * length if border == "reflect" else 2 * length - 2
    places = places % period
    return np.minimum(places, period - places - (1 if border == "reflect" else 0))


def luma(image: NDArray[np.uint8]) -> Floats:
    """ITU-R 601 grey of each pixel, 0.299 R + 0.587 G + 0.114 B, in grey levels."""
    grey = np.empty(image.shape[:2], np.float32)
    for rows in row_blocks(*image.shape[:2]):
        red, green, blue = (image[rows, :, channel] for channel in range(3))
        block = grey[rows]
        np.multiply(red, np.float32(0.299), out=block)
        block += green * np.float32(0.587)
        block += blue * np.float32(0.114)
    return grey
