"""The corruptions of ImageNet-C: names, published constants, and how each one differs here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from curate.corruptions import blur, digital, elastic, noise, spatter, weather
from curate.corruptions.terms import Levels, Terms

#: What "short-side" does to a corruption whose constants are no lengths.
_NO_LENGTHS = "nothing: its constants are no lengths"
_PER_PIXEL = "nothing: each pixel of the photo has its own noise, which resizing averages out"
_LENGTHS = "lengths are multiplied by short side / 224"
_LAYER = "the layer is drawn for a short side of 224 pixels and stretched over the photo"


@dataclass(frozen=True)
class Corruption:
    """One corruption.

    Attributes:
        name: as ImageNet-C's folders are called.
        apply: takes image, constants and terms.
        constants: of severity 1 … 5.
        is_random: whether the seed matters.
        scaling: what the scale "short-side" does.
        differs: where it is not the published code; empty where it gives the same grey levels to
            within one, given the same random numbers.
    """

    name: str
    apply: Callable[[Levels, Any, Terms], Levels]
    constants: Sequence[Any]
    is_random: bool
    scaling: str
    differs: str = ""


#: 244 stands in the published code where 224 is meant.
_SIDE = 244

_ALL = (
    Corruption(
        "gaussian_noise", noise.gaussian_noise, (0.08, 0.12, 0.18, 0.26, 0.38), True, _PER_PIXEL
    ),
    Corruption("shot_noise", noise.shot_noise, (60, 25, 12, 5, 3), True, _PER_PIXEL),
    Corruption(
        "impulse_noise", noise.impulse_noise, (0.03, 0.06, 0.09, 0.17, 0.27), True, _PER_PIXEL
    ),
    Corruption(
        "defocus_blur",
        blur.defocus_blur,
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        False,
        "the radius is multiplied by short side / 224",
    ),
    Corruption(
        "glass_blur",
        blur.glass_blur,
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        True,
        "sigma is multiplied by short side / 224, and patches as wide move as pixels do",
        "any height and width; as published, what looks like an exchange of pixels is a copy",
    ),
    Corruption(
        "motion_blur",
        blur.motion_blur,
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        True,
        _LENGTHS,
        "ImageMagick's kernel, without its rounding to 16 bits between",
    ),
    Corruption(
        "zoom_blur",
        blur.zoom_blur,
        ((1, 1.11, 0.01), (1, 1.16, 0.01), (1, 1.21, 0.02), (1, 1.26, 0.02), (1, 1.31, 0.03)),
        False,
        "nothing: factors are relative",
        "any height and width",
    ),
    Corruption(
        "snow",
        weather.snow,
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        True,
        _LAYER,
        "any height and width; ImageMagick's kernel, without its rounding to 16 bits between",
    ),
    Corruption(
        "frost",
        weather.frost,
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
        True,
        "pictures of frost are enlarged by short side / 224",
        "any height and width; frost is drawn unless pictures of it are given",
    ),
    Corruption(
        "fog",
        weather.fog,
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        True,
        _LAYER,
        "any height and width: the landscape is the next power of two, from 256 to 4096",
    ),
    Corruption("brightness", digital.brightness, (0.1, 0.2, 0.3, 0.4, 0.5), False, _NO_LENGTHS),
    Corruption("contrast", digital.contrast, (0.4, 0.3, 0.2, 0.1, 0.05), False, _NO_LENGTHS),
    Corruption(
        "elastic_transform",
        elastic.elastic_transform,
        (
            (_SIDE * 2, _SIDE * 0.7, _SIDE * 0.1),
            (_SIDE * 2, _SIDE * 0.08, _SIDE * 0.2),
            (_SIDE * 0.05, _SIDE * 0.01, _SIDE * 0.02),
            (_SIDE * 0.07, _SIDE * 0.01, _SIDE * 0.02),
            (_SIDE * 0.12, _SIDE * 0.01, _SIDE * 0.02),
        ),
        True,
        "displacements are drawn for a short side of 224 pixels, stretched and multiplied",
        "any height and width; the affine map is read at exact places, not at 1/32 pixel",
    ),
    Corruption(
        "pixelate",
        digital.pixelate,
        (0.6, 0.5, 0.4, 0.3, 0.25),
        False,
        "the size that it is reduced to is divided by short side / 224",
        "any height and width",
    ),
    Corruption(
        "jpeg_compression",
        digital.jpeg_compression,
        (25, 18, 15, 10, 7),
        False,
        "nothing: blocks are 8 pixels of the photo",
    ),
    Corruption(
        "speckle_noise", noise.speckle_noise, (0.15, 0.2, 0.35, 0.45, 0.6), True, _PER_PIXEL
    ),
    Corruption("gaussian_blur", blur.gaussian_blur, (1, 2, 3, 4, 6), False, _LENGTHS),
    Corruption(
        "spatter",
        spatter.spatter,
        (
            (0.65, 0.3, 4, 0.69, 0.6, False),
            (0.65, 0.3, 3, 0.68, 0.6, False),
            (0.65, 0.3, 2, 0.68, 0.5, False),
            (0.65, 0.3, 1, 0.65, 1.5, True),
            (0.67, 0.4, 1, 0.65, 1.5, True),
        ),
        True,
        _LAYER,
        "any height and width; exact distances from the drops' edges",
    ),
    Corruption(
        "saturate",
        digital.saturate,
        ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
        False,
        _NO_LENGTHS,
    ),
    Corruption(
        "greyscale",
        digital.greyscale,
        (0.2, 0.4, 0.6, 0.8, 1.0),
        False,
        _NO_LENGTHS,
        "not part of ImageNet-C",
    ),
)

BUILT_IN = {one.name: one for one in _ALL}

#: The fifteen corruptions of ImageNet-C, in the paper's order.
NAMES = tuple(one.name for one in _ALL[:15])

#: Its four extra ones, which are in no mean.
EXTRA_NAMES = tuple(one.name for one in _ALL[15:19])

#: What is offered beside them.
FURTHER_NAMES = tuple(one.name for one in _ALL[19:])

SEVERITIES = (1, 2, 3, 4, 5)
