"""Brightness, contrast, saturation, coarse pixels, JPEG, and grey."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from curate.corruptions.filters import luma
from curate.corruptions.terms import Floats, Levels, Terms, levels, row_blocks


def brightness(image: Levels, amount: float, terms: Terms) -> Levels:
    """V + c in HSV, clipped to 1; hue and saturation stay.

    With those every channel is a share of the largest one, V: it grows as V does. A value's result
    therefore depends on itself and V alone, and is looked up.
    """
    value = np.arange(256)[:, None] / 255.0
    brighter = np.minimum(value + amount, 1.0)
    # The table's row is V. Black has no hue and becomes grey.
    share = np.divide(
        np.arange(256), np.arange(256)[:, None], where=value > 0, out=np.ones((256, 256))
    )
    table = levels(255.0 * brighter * share).reshape(-1)
    result = np.empty_like(image)
    for rows in row_blocks(*image.shape[:2]):
        photo = image[rows]
        largest = _largest(photo).astype(np.intp)
        result[rows] = table.take((largest << 8)[..., None] + photo)
    return result


def saturate(image: Levels, constants: tuple[float, float], terms: Terms) -> Levels:
    """S·a + b in HSV, clipped to [0, 1]; hue and V stay.

    A channel is V·(1 - S·t), where t is its hue's share. Published, and kept: grey has the hue 0,
    which is red, so that where b is above 0 (severities 4 and 5) grey becomes reddish.

    Args:
        image: what to corrupt.
        constants: a and b.
        terms: see there.
    """
    factor, offset = constants
    largest = np.arange(256.0)[:, None]
    spread = np.minimum(np.arange(256.0), largest)
    saturation = np.divide(spread, largest, where=largest > 0, out=np.zeros((256, 256)))
    wanted = np.clip(saturation * factor + offset, 0.0, 1.0)
    # By V and the spread: what the distance from V is multiplied with.
    stretch = np.divide(
        wanted * largest, spread, where=spread > 0, out=np.zeros((256, 256))
    ).astype(np.float32)
    result = np.empty_like(image)
    for rows in row_blocks(*image.shape[:2]):
        photo = image[rows]
        top = _largest(photo)
        spread_here = top - np.minimum(np.minimum(photo[..., 0], photo[..., 1]), photo[..., 2])
        place = (top.astype(np.intp) << 8) + spread_here
        away = (top[..., None] - photo).astype(np.float32)
        away *= stretch.reshape(-1).take(place)[..., None]
        if offset > 0.0:
            grey = spread_here == 0
            away[grey, 1:] = (top[grey] * np.float32(min(offset, 1.0)))[:, None]
        result[rows] = levels(np.subtract(top[..., None], away, out=away))
    return result


def _largest(photo: Levels) -> Levels:
    return np.maximum(np.maximum(photo[..., 0], photo[..., 1]), photo[..., 2])


def contrast(image: Levels, share: float, terms: Terms) -> Levels:
    """(x - mean)·c + mean, by channel."""
    result = np.empty_like(image)
    pixels = image.shape[0] * image.shape[1]
    for channel in range(3):
        values = image[:, :, channel]
        mean = int(values.sum(dtype=np.int64)) / pixels
        table = levels((np.arange(256) - mean) * share + mean)
        result[:, :, channel] = table.take(values)
    return result


def pixelate(image: Levels, share: float, terms: Terms) -> Levels:
    """Reduced to c of its size and enlarged again, both by Pillow's box filter."""
    from PIL import Image

    height, width = image.shape[:2]
    share /= terms.unit
    small = max(1, int(width * share)), max(1, int(height * share))
    photo = Image.fromarray(image).resize(small, Image.Resampling.BOX)
    return np.array(photo.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: Levels, quality: int, terms: Terms) -> Levels:
    """Through a JPEG file of quality c, as Pillow writes it."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    with Image.open(file) as photo:
        return np.array(photo)


def greyscale(image: Levels, share: float, terms: Terms) -> Levels:
    """So much of each pixel's grey, and the rest of its colour; at severity 5 grey alone."""
    grey: Floats = luma(image)
    grey *= np.float32(share)
    result = np.empty_like(image)
    for rows in row_blocks(*grey.shape):
        photo: NDArray[np.float32] = image[rows] * np.float32(1.0 - share)
        photo += grey[rows, :, None]
        photo += np.float32(0.5)
        result[rows] = levels(photo)
    return result
