"""Snow, frost and fog: layers over the photo, drawn in the published crop's measure."""

from __future__ import annotations

import numpy as np

from curate.corruptions.filters import luma, zoomed
from curate.corruptions.frost import drawn_frost
from curate.corruptions.motion import motion_blurred, motion_taps
from curate.corruptions.plasma import plasma, power_of_two
from curate.corruptions.terms import (
    CROP,
    Floats,
    Levels,
    Terms,
    layer_shape,
    levels,
    row_blocks,
    stretched,
)


def snow(
    image: Levels,
    constants: tuple[float, float, float, float, float, float, float],
    terms: Terms,
) -> Levels:
    """Flakes, blurred as they fall, over a whitened photo; each flake once more upside down.

    Args:
        image: what to corrupt.
        constants: mean and deviation of the normal numbers that flakes are made of, their
            enlargement, the least that is a flake, radius and sigma of the fall, and how much of
            the photo's own colour stays.
        terms: see there.
    """
    colour = constants[-1]
    flakes = stretched(_flakes(layer_shape(image, terms.unit), constants, terms), image)
    flakes = flakes + flakes[::-1, ::-1]
    grey = luma(image)
    grey *= np.float32(1.5)
    grey += np.float32(0.5 * 255.0)
    result = np.empty_like(image)
    for rows in row_blocks(*grey.shape):
        photo = image[rows].astype(np.float32)
        white = np.maximum(photo, grey[rows, :, None])
        white *= np.float32(1.0 - colour)
        photo *= np.float32(colour)
        photo += white
        photo += flakes[rows, :, None]
        result[rows] = levels(photo)
    return result


def _flakes(
    shape: tuple[int, int],
    constants: tuple[float, float, float, float, float, float, float],
    terms: Terms,
) -> Floats:
    """In whole grey levels."""
    mean, deviation, enlargement, least, radius, sigma, _ = constants
    layer = terms.rng.standard_normal(shape, dtype=np.float32)
    layer *= np.float32(deviation)
    layer += np.float32(mean)
    layer = zoomed(layer, enlargement)
    layer[layer < np.float32(least)] = 0.0
    layer *= np.float32(255.0)
    angle = terms.rng.uniform(-135.0, -45.0)
    fallen = motion_blurred(levels(layer)[..., None], motion_taps(radius, sigma, angle))
    return levels(fallen[..., 0]).astype(np.float32)


def frost(image: Levels, constants: tuple[float, float], terms: Terms) -> Levels:
    """So much of the photo, and so much of a picture of frost.

    Args:
        image: what to corrupt.
        constants: the shares of both.
        terms: whose `frost` says where the pictures come from.
    """
    own, over = (np.float32(share) for share in constants)
    cut = drawn_frost if terms.frost is None else terms.frost.cut
    picture = cut((image.shape[0], image.shape[1]), terms.unit, terms.rng)
    result = np.empty_like(image)
    for rows in row_blocks(*image.shape[:2]):
        frosted = image[rows] * own
        frosted += picture[rows] * over
        result[rows] = levels(frosted)
    return result


#: A landscape is as high as it is wide, which long images must not pay for.
_WIDEST = 4096


def fog(image: Levels, constants: tuple[float, float], terms: Terms) -> Levels:
    """A bright landscape added, and all of it dimmed to what the brightest value was.

    Published: the landscape is 256 pixels wide. Here it is the next power of two that covers the
    image, but no less than that and no more than 4096; it goes on where it began.

    Args:
        image: what to corrupt.
        constants: how much, and the landscape's decay.
        terms: see there.
    """
    amount, decay = constants
    height, width = layer_shape(image, terms.unit)
    side = min(power_of_two(max(height, width, CROP)), _WIDEST)
    landscape = plasma(terms.rng, side, decay)
    if max(height, width) > side:
        landscape = np.pad(
            landscape, ((0, max(0, height - side)), (0, max(0, width - side))), "wrap"
        )
    mist = stretched(landscape[:height, :width].copy(), image)
    mist *= np.float32(255.0 * amount)
    most = int(image.max()) / 255.0
    dimmed = np.float32(most / (most + amount))
    result = np.empty_like(image)
    for rows in row_blocks(*mist.shape):
        foggy = image[rows] + mist[rows, :, None]
        foggy *= dimmed
        result[rows] = levels(foggy)
    return result
