"""Blurs: Gaussian, glass, out of focus, in motion, zooming. Their constants are lengths."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from curate.corruptions.filters import correlate, gaussian, zoomed
from curate.corruptions.motion import motion_blurred, motion_taps
from curate.corruptions.terms import Floats, Levels, Terms, layer_shape, levels, row_blocks


def gaussian_blur(image: Levels, sigma: float, terms: Terms) -> Levels:
    """A Gaussian of standard deviation c."""
    return levels(gaussian(_floats(image), sigma * terms.unit))


def glass_blur(image: Levels, constants: tuple[float, int, int], terms: Terms) -> Levels:
    """Blur, let each pixel become a near one at random, several times over, and blur again.

    Args:
        image: what to corrupt.
        constants: sigma of both blurs, how far a pixel may be taken from, how often.
        terms: see there.
    """
    sigma, reach, rounds = constants
    blurred = levels(gaussian(_floats(image), sigma * terms.unit))
    shape = layer_shape(image, terms.unit)
    places = shuffled(shape, reach, rounds, terms.rng)
    if shape == image.shape[:2]:
        moved = blurred.reshape(-1, 3).take(places, axis=0).reshape(image.shape)
    else:
        moved = _moved_alike(blurred, places.reshape(shape))
    return levels(gaussian(_floats(moved), sigma * terms.unit))


def shuffled(
    shape: tuple[int, int], reach: int, rounds: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Where each pixel of a shuffled image comes from, as one index a pixel.

    From the last pixel to the first each one is exchanged with one at -reach … reach - 1 rows and
    columns from it, except near the border. What the published code writes as an exchange is a
    copy, since its second assignment reads what the first one wrote: the pixel becomes the other
    one, which stays. So it is here.

    A pixel thus becomes what the other one *was*, where that one's turn comes later, or else what
    it *has become*. Following the pointers of those that had their turn, twice as far each time,
    resolves a whole round in a few steps.

    Args:
        shape: height and width.
        reach: how far a pixel may be taken from.
        rounds: how often.
        rng: draws columns and rows, of a round's pixels in their order.
    """
    height, width = shape
    pixels = np.arange(height * width, dtype=np.int32)
    source = pixels
    rows = np.arange(height - reach, reach, -1, dtype=np.int32)[:, None]
    columns = np.arange(width - reach, reach, -1, dtype=np.int32)
    if not (rows.size and columns.size):
        return source
    own = rows * width + columns
    turns = np.zeros(height * width, np.bool_)
    turns[own] = True
    for _ in range(rounds):
        drawn = rng.integers(-reach, reach, (*own.shape, 2), dtype=np.int8)
        other = own + drawn[..., 0] + drawn[..., 1] * np.int32(width)
        pointer = pixels.copy()
        pointer[own] = other
        # Later pixels are lower ones.
        goes_on = (pointer > pixels) & turns[pointer]
        while (waiting := np.flatnonzero(goes_on)).size:
            next_one = pointer[waiting]
            pointer[waiting] = pointer[next_one]
            goes_on[waiting] = goes_on[next_one]
        source = source[pointer]
    return source


def _moved_alike(image: Levels, places: NDArray[np.int32]) -> Levels:
    """Each pixel taken from as far away as the crop's pixel at its place, in the crop's measure."""
    height, width = image.shape[:2]
    rows, columns = places.shape
    down = np.rint((places // columns - np.arange(rows)[:, None]) * (height / rows))
    right = np.rint((places % columns - np.arange(columns)) * (width / columns))
    down, right = down.astype(np.int32), right.astype(np.int32)
    across = np.arange(width)
    over = across * columns // width
    result = np.empty_like(image)
    for block in row_blocks(height, width):
        along = np.arange(block.start, block.stop)[:, None]
        under = along * rows // height
        taken_down = np.clip(along + down[under, over], 0, height - 1)
        taken_right = np.clip(across + right[under, over], 0, width - 1)
        result[block] = image[taken_down, taken_right]
    return result


def defocus_blur(image: Levels, constants: tuple[float, float], terms: Terms) -> Levels:
    """The mean over a disk, its edge smoothed over the pixels beside it.

    Args:
        image: what to corrupt.
        constants: the disk's radius, and the smoothing's sigma, which is no length of the scene.
        terms: see there.
    """
    radius, smoothing = constants
    return levels(correlate(image, disk(radius * terms.unit, smoothing), "mirror"))


def disk(radius: float, smoothing: float) -> NDArray[np.float64]:
    """The weights of a disk.

    Published: at least 17 x 17 pixels; smoothed with a Gaussian cut to 3 x 3 pixels, to 5 x 5 where
    the radius is beyond 8, mirrored at the array's own edge.
    """
    from scipy import ndimage

    reach = 8 if radius <= 8 else int(np.ceil(radius))
    places = np.arange(-reach, reach + 1)
    weights = ((places[:, None] ** 2 + places**2) <= radius**2).astype(np.float64)
    weights /= weights.sum()
    steps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    kernel = np.exp(-0.5 * (steps / smoothing) ** 2)
    kernel /= kernel.sum()
    for axis in (0, 1):
        weights = ndimage.correlate1d(weights, kernel, axis, mode="mirror")
    return weights


def motion_blur(image: Levels, constants: tuple[float, float], terms: Terms) -> Levels:
    """Blur along a line at up to 45 degrees from the horizontal.

    Args:
        image: what to corrupt.
        constants: radius and sigma, see `motion`.
        terms: see there.
    """
    radius, sigma = constants
    angle = terms.rng.uniform(-45.0, 45.0)
    taps = motion_taps(radius * terms.unit, sigma * terms.unit, angle)
    return levels(motion_blurred(image, taps))


def zoom_blur(image: Levels, constants: tuple[float, float, float], terms: Terms) -> Levels:
    """The mean of the image and of its middle, enlarged ever more (the image itself counts twice).

    Args:
        image: what to corrupt.
        constants: the first factor, where they end, from one to the next.
        terms: see there.
    """
    factors = [float(factor) for factor in np.arange(*constants)]
    result = np.empty_like(image)
    for channel in range(3):
        values = _floats(image[:, :, channel])
        for rows in row_blocks(*values.shape):
            total = values[rows].copy()
            for factor in factors:
                total += zoomed(values, factor, rows)
            total *= np.float32(1.0 / (len(factors) + 1))
            result[rows, :, channel] = levels(total)
    return result


def _floats(image: NDArray[np.uint8]) -> Floats:
    return image.astype(np.float32)
