"""What every corruption is told beside the image, and how its result becomes grey levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from curate.corruptions.frost import FrostPictures

Levels = NDArray[np.uint8]
Floats = NDArray[np.float32]

#: The side of the crop whose pixels the published constants are told in.
CROP = 224

#: Published code cuts the fraction off (`np.uint8`), so that a value that is a whole number by its
#: formula ends one lower wherever rounding left it a hair below. Here it stays that number.
_GUARD = np.float32(2.0**-8)

_BLOCK = 1 << 16


@dataclass(frozen=True)
class Terms:
    """How one image is to be corrupted.

    Attributes:
        severity: 1 … 5.
        rng: where all that is random comes from.
        unit: how many of the image's pixels are one of the published 224 crop.
        frost: pictures of frost; None draws them.
    """

    severity: int
    rng: np.random.Generator
    unit: float = 1.0
    frost: FrostPictures | None = None


def levels(values: NDArray[Any]) -> Levels:
    """Floats in grey levels, clipped to 0 … 255 and cut to whole ones; they are overwritten."""
    values += _GUARD
    np.clip(values, 0.0, 255.0, out=values)
    return values.astype(np.uint8)


def row_blocks(height: int, width: int) -> Iterator[slice]:
    """Slices of rows that hold about as many pixels as a processor's cache."""
    step = max(1, _BLOCK // width)
    for start in range(0, height, step):
        yield slice(start, min(start + step, height))


def layer_shape(image: Levels, unit: float) -> tuple[int, int]:
    """Height and width of what lies over the image, in pixels of the published crop."""
    height, width = image.shape[:2]
    if unit == 1.0:
        return height, width
    return max(1, round(height / unit)), max(1, round(width / unit))


def stretched(layer: Floats, image: Levels) -> Floats:
    """The same layer, bilinearly, in the image's own height and width."""
    height, width = image.shape[:2]
    if layer.shape == (height, width):
        return layer
    from PIL import Image

    resized = Image.fromarray(layer).resize((width, height), Image.Resampling.BILINEAR)
    return np.array(resized, dtype=np.float32)
