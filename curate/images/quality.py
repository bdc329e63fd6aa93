"""Measurements of a picture's quality, and the flags that follow from them.

The numbers are measured once, when a photo is taken in; what counts as too dark or too blurred is
a setting, so flags follow the settings without decoding again. A flag orders and selects; it
removes nothing by itself.

All measuring is integer arithmetic on a small grey version of the picture, so the same pixels give
the same numbers on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from PIL import Image

from curate.choices import QUALITY_FLAGS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from curate.setting_groups import QualitySettings

# The short side of the grey version: that of the paper's views. Nothing is enlarged.
_SIDE = 256
_LEVELS = 256
# Tones as near as this count as one.
_TONE = 8
_DIGITS = 4


@dataclass(frozen=True)
class Quality:
    """What was measured of a picture; fractions are rounded to four digits.

    Attributes:
        width: of the upright picture, in pixels.
        height: of the upright picture, in pixels.
        brightness: mean luma (Rec. 601, as stored, not linear), 0 to 1.
        contrast: standard deviation of the luma, 0 to 0.5.
        one_tone: share of the pixels within the commonest 8 of 256 neighbouring tones, 0 to 1.
        sharpness: how much of the differences between neighbours blurring takes away, 0 to 1; see
            `measure`.
    """

    width: int
    height: int
    brightness: float
    contrast: float
    one_tone: float
    sharpness: float

    @property
    def aspect(self) -> float:
        """Long side over short side, at least 1."""
        return max(self.width, self.height) / min(self.width, self.height)

    def to_dict(self) -> dict[str, int | float]:
        """The numbers by name, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Quality | None:
        """The quality that `to_dict` made these values of; None where there are none, or others."""
        if values is None or values.keys() != {field.name for field in fields(cls)}:
            return None
        return cls(**values)


def measure(image: Image.Image) -> Quality:
    """Measure a picture.

    Sharpness is one minus the blur measure of Crété, Dolmiere, Ladret and Nicolas ("The blur
    effect: perception and estimation with a new no-reference perceptual blur metric", Proc. SPIE
    6492, 2007): blurring changes a sharp picture much and a blurred one little. It is blind to
    contrast and brightness. Here the blur is a mean over three pixels instead of nine, and the
    result is the least of both directions (which finds motion) and of two sizes of the picture,
    256 and 128 pixels on the short side (the smaller one finds what is far out of focus, where
    rounding and compression pass for detail in the larger one).

    Args:
        image: upright, of mode RGB.

    Raises:
        ValueError: another mode.
    """
    import numpy as np

    if image.mode != "RGB":
        raise ValueError(f"expected an image of mode RGB, got {image.mode}")
    small = _small_grey(image)
    grey = np.asarray(small)
    # Whole numbers until the last division: no sum depends on the order of its terms.
    counts = np.array(small.histogram())
    tones = np.arange(_LEVELS)
    total, first = grey.size, int(counts @ tones)
    second = int(counts @ (tones * tones))
    upto = np.concatenate(([0], np.cumsum(counts)))
    sharp = min(_sharpness(grey), _sharpness(_halved(grey)))
    top = _LEVELS - 1
    return Quality(
        width=image.width,
        height=image.height,
        brightness=round(first / (total * top), _DIGITS),
        contrast=round(math.sqrt(total * second - first * first) / (total * top), _DIGITS),
        one_tone=round(int((upto[_TONE:] - upto[:-_TONE]).max()) / total, _DIGITS),
        sharpness=round(sharp, _DIGITS),
    )


def flags(quality: Quality, settings: QualitySettings) -> tuple[str, ...]:
    """What is to be noted of a picture, in the order of `QUALITY_FLAGS`.

    Of 1,353 photos from public sets the default limits flag 5.3 % as small, 0.3 % as uniform, 0.7 %
    as dark, 1.6 % as bright, 0.5 % as blurred and 2.9 % as of odd aspect; 8.4 % have some flag. Of
    226 of them, blurred by a Gaussian of 2 pixels at a short side of 256, 99 % count as blurred (95
    % after JPEG at quality 75).

    Args:
        quality: of the picture.
        settings: the limits.
    """
    found = {
        "small": min(quality.width, quality.height) < settings.small_below,
        "uniform": quality.contrast < settings.contrast_below
        or quality.one_tone > settings.one_tone_above,
        "dark": quality.brightness < settings.dark_below,
        "bright": quality.brightness > settings.bright_above,
        "blurred": quality.sharpness < settings.blurred_below,
        "odd-aspect": quality.aspect > settings.aspect_above,
    }
    return tuple(flag for flag in QUALITY_FLAGS if found[flag])


def _small_grey(image: Image.Image) -> Image.Image:
    """The picture in grey, reduced to `_SIDE` on its short side where it is larger."""
    short = min(image.size)
    grey = image.convert("L")
    if short <= _SIDE:
        return grey
    width, height = (max(1, side * _SIDE // short) for side in image.size)
    return grey.resize((width, height), Image.Resampling.BOX, reducing_gap=2.0)


def _halved(grey: NDArray[np.uint8]) -> NDArray[np.int16]:
    """Sums over squares of two by two pixels; nothing is rounded."""
    import numpy as np

    height, width = (side // 2 * 2 for side in grey.shape)
    even = grey[:height, :width].astype(np.int16)
    rows = even[0::2] + even[1::2]
    return rows[:, 0::2] + rows[:, 1::2]


def _sharpness(grey: NDArray[Any]) -> float:
    """The least of both directions; 0 where the picture is too small or has no differences."""
    import numpy as np

    if min(grey.shape) < 4:
        return 0.0
    values = grey.astype(np.int16)
    # Differences of neighbours, and three times those of their means over three pixels, in which
    # all but the outer two cancel.
    return min(
        _lost(_apart(values[2:-1], values[1:-2]), _apart(values[3:], values[:-3])),
        _lost(_apart(values[:, 2:-1], values[:, 1:-2]), _apart(values[:, 3:], values[:, :-3])),
    )


def _apart(a: NDArray[np.int16], b: NDArray[np.int16]) -> NDArray[np.int16]:
    import numpy as np

    difference = a - b
    return np.abs(difference, out=difference)


def _lost(plain: NDArray[np.int16], blurred: NDArray[np.int16]) -> float:
    """The share of the plain differences that the blurred ones lack; `plain` is used up."""
    import numpy as np

    # 765 is the largest term; sums of 32 bits take half the time.
    wide = np.int32 if plain.size < 2**31 // 765 else np.int64
    plain *= 3
    total = int(plain.sum(dtype=wide))
    np.maximum(plain, blurred, out=plain)
    plain -= blurred
    return int(plain.sum(dtype=wide)) / max(1, total)
