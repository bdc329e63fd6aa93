"""One image under one corruption, the same on any machine, in any batch, with any thread count.

All that is random comes from a PCG64 generator whose seed is a hash of the caller's seed, the
corruption and the severity; nothing global is read or changed. The rest is whole numbers, float32
by elements, and transforms of a fixed order, on one thread. What may still differ between
processors, by one grey level where a value lies next to a whole number: exponentials and sines
(kernels, some of the normal numbers), and sums that are compiled with fused multiplications (SciPy
on ARM). Another release of NumPy (its stream of random numbers), SciPy (transforms) or Pillow (its
JPEG library, resizing) may differ in more; a report of corruptions records their versions.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal, get_args

import numpy as np

from curate.corruptions.catalogue import BUILT_IN, NAMES, SEVERITIES
from curate.corruptions.frost import FrostPictures
from curate.corruptions.registry import find
from curate.corruptions.terms import CROP, Levels, Terms

#: How the published constants, which are pixels of a 224 crop, are read: as pixels of the image, or
#: as 224ths of its short side.
Scale = Literal["none", "short-side"]

#: The same as names.
SCALES: tuple[Scale, ...] = get_args(Scale)

#: How many pixels of the published crop the longer side is, at most.
_LONGEST = 10 * CROP


def corrupt(
    image: Any,
    name: str,
    severity: int,
    seed: int,
    *,
    scale: Scale = "none",
    frost: FrostPictures | None = None,
) -> Levels:
    """An image under a corruption of ImageNet-C, or under one of the user's own.

    Args:
        image: RGB, uint8, shape (h, w, 3), of any size; or an RGB picture of Pillow's. It is not
            changed.
        name: one of `NAMES`, `EXTRA_NAMES`, `FURTHER_NAMES`, or one that was registered.
        severity: 1 … 5.
        seed: a whole number from 0. Severities and corruptions of one seed are independent.
        scale: `"none"`: the published constants are pixels of the image, as at the 224 crop.
            `"short-side"`: they are 224ths of its short side, for photos in full resolution
            that are resized afterwards (2240ths of the long side, where that is more than ten
            times as long). `describe` says what that does to each corruption.
        frost: pictures of frost; None draws them.

    Returns:
        uint8 of the image's shape, a new array.

    Raises:
        ValueError: what is no such image, name (the nearest ones are told), severity, seed or
            scale; or a user's corruption failed.
        UsageError: a picture of frost is gone or was changed.
    """
    photo = checked_image(image)
    user = find(name)
    severity = _whole(severity, "severity", 1, SEVERITIES[-1])
    seed = _whole(seed, "seed", 0, None)
    if scale not in SCALES:
        raise ValueError(f"scale is {scale!r}: expected {' or '.join(map(repr, SCALES))}")
    terms = Terms(severity, generator(name, severity, seed), _unit(photo, scale), frost)
    if user is not None:
        return user.apply(photo, terms)
    known = BUILT_IN[name]
    return known.apply(photo, known.constants[severity - 1], terms)


def generator(name: str, severity: int, seed: int) -> np.random.Generator:
    """The generator that a corruption draws from."""
    return np.random.Generator(np.random.PCG64(_hashed(f"{name}/{severity}/{seed}")))


def seed_of(sha256: str, name: str, severity: int, seed: int = 0) -> int:
    """A seed for one image, corruption and severity, in 0 … 2^63 - 1.

    It depends on these alone, not on the image's place or file name, so that an image's corruption
    is the same in every subset and order.

    Args:
        sha256: of the image's file, in hexadecimal.
        name: of the corruption.
        severity: 1 … 5.
        seed: of the whole run.

    Raises:
        ValueError: what is no SHA-256, severity or seed.
    """
    digest = str(sha256).lower()
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(f"sha256 is {sha256!r}: expected 64 hexadecimal digits")
    severity = _whole(severity, "severity", 1, SEVERITIES[-1])
    seed = _whole(seed, "seed", 0, None)
    return _hashed(f"{digest}/{name}/{severity}/{seed}") >> 193


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def describe(
    name: str, *, scale: Scale = "none", frost: FrostPictures | None = None
) -> dict[str, Any]:
    """What a report records of a corruption, as JSON would have it.

    Args:
        name: of the corruption.
        scale: as `corrupt` takes it.
        frost: as `corrupt` takes it.

    Returns:
        `name`; `origin`: "ImageNet-C", "ImageNet-C, extra", "curate" or the user's file;
        `sha256` of that file or of the pictures of frost, else None; `constants` of each severity,
        and `random`, None where a user's; `scale`, and `scaling`, what it does; `differs`: where it
        is not the published code, None where it is; `frost`: "drawn", "published pictures" or
        "pictures of the user's", None for any other corruption.

    Raises:
        ValueError: no such corruption; the nearest ones are told.
    """
    told: dict[str, Any] = {"name": name, "scale": scale, "frost": None, "sha256": None}
    user = find(name)
    if user is not None:
        return told | {
            "origin": user.source or "a program",
            "sha256": user.digest or None,
            "constants": None,
            "random": None,
            "scaling": "nothing: it is told the severity alone",
            "differs": None,
        }
    known = BUILT_IN[name]
    if name == "frost":
        told["frost"] = "drawn"
        if frost is not None:
            told["frost"] = (
                "published pictures" if frost.are_published else "pictures of the user's"
            )
            told["sha256"] = frost.fingerprint
    return told | {
        "origin": _origin(name),
        "constants": [list(one) if isinstance(one, tuple) else one for one in known.constants],
        "random": known.is_random,
        "scaling": known.scaling,
        "differs": known.differs or None,
    }


def _origin(name: str) -> str:
    if name in NAMES:
        return "ImageNet-C"
    return "ImageNet-C, extra" if name != "greyscale" else "curate"


def checked_image(image: Any) -> Levels:
    """An image as a contiguous array.

    Raises:
        ValueError: it is none, by type, shape or size.
    """
    try:
        array = np.asarray(image)
    except (TypeError, ValueError) as error:
        raise ValueError(f"image is no array: {error}") from error
    if array.dtype != np.uint8:
        hint = ""
        if array.dtype.kind == "f":
            hint = " (it holds NaN)" if np.isnan(array).any() else ", from 0 to 255"
        raise ValueError(f"image is {array.dtype}: expected uint8{hint}")
    if array.ndim != 3 or array.shape[2] != 3:
        raise ValueError(f"image has shape {array.shape}: expected (height, width, 3), RGB")
    if array.size == 0:
        raise ValueError(f"image is empty (shape {array.shape})")
    return np.ascontiguousarray(array)


def _whole(value: Any, name: str, low: int, high: int | None) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"in {low} … {high}"
        raise ValueError(f"{name} is {value}: it must be {bounds}")
    return int(value)


def _unit(image: Levels, scale: Scale) -> float:
    if scale == "none":
        return 1.0
    short, long = sorted(image.shape[:2])
    # So that what lies over a narrow strip is not drawn much larger than the strip.
    return max(short / CROP, long / _LONGEST)
