"""Whether a picture shows anything, and more than two colours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from PIL import Image

from curate.errors import ImageRefused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A channel's standard deviation in grey levels below which nothing can be seen.
_LEAST_CONTRAST = 1.0
# One pixel in so many, each way, mostly tells enough.
_EACH = 8
# A JPEG can write one RGB colour with luminances that differ by up to 79: what lies outside RGB is
# clamped. Luminances that differ by more are of different colours.
_TWO_COLOURS = 80
# The share of samples left out at each end when contrast is sought in luminance.
_OUTLIERS = 0.01


def check(image: Image.Image) -> None:
    """Refuse what shows nothing: exact, over all pixels, without a copy of them.

    Args:
        image: of mode RGB.

    Raises:
        ImageRefused: `no-visible-content` or `not-a-photo`.
    """
    if not _few_show_enough(image):
        most = max(_deviations(image))
        if most < _LEAST_CONTRAST:
            raise ImageRefused("no-visible-content", f"a standard deviation of {most:.2f} of 255")
    if image.getcolors(2) is not None:
        raise ImageRefused("not-a-photo", "two colours, one bit a pixel")


def is_plain_by(luminance: NDArray[np.float64]) -> bool:
    """Whether luminance has so much contrast that `check` would refuse nothing.

    Args:
        luminance: about one sample of each block, in grey levels.
    """
    import numpy as np

    ordered = np.sort(luminance, axis=None)
    left_out = int(_OUTLIERS * ordered.size)
    least, most = ordered[0], ordered[-1]
    middle = ordered[np.searchsorted(ordered, least + _TWO_COLOURS) :][:1]
    return bool(
        ordered[-1 - left_out] - ordered[left_out] >= _TWO_COLOURS
        and (middle <= most - _TWO_COLOURS).any()
    )


def _few_show_enough(image: Image.Image) -> bool:
    """Whether some of the pixels prove the contrast of all.

    The squared deviations of all pixels add up to no less than those of a part from its own mean.
    """
    size = (max(1, image.width // _EACH), max(1, image.height // _EACH))
    few = image.resize(size, Image.Resampling.NEAREST)
    share = few.width * few.height / (image.width * image.height)
    return any(deviation**2 * share > _LEAST_CONTRAST**2 for deviation in _deviations(few))


def _deviations(image: Image.Image) -> Iterator[float]:
    """The standard deviation of each channel, in grey levels."""
    counts = image.histogram()
    for at in range(0, len(counts), 256):
        channel = counts[at : at + 256]
        total = sum(channel)
        first = sum(value * count for value, count in enumerate(channel))
        second = sum(value * value * count for value, count in enumerate(channel))
        yield math.sqrt(total * second - first * first) / total
