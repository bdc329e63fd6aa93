"""One documented conversion to 8-bit RGB a pixel mode, and ICC profiles to sRGB.

| stored as | becomes |
| --- | --- |
| grey | the same value in all three channels |
| 16-bit grey | value / 257, rounded; then as grey |
| 16 bits a colour channel | Pillow's own conversion while decoding: the upper byte |
| palette | the palette's colours |
| alpha, or a transparent colour or palette entry | laid on white |
| CMYK | through its ICC profile, else 255 - min(255, ink + black) as Pillow computes it |
| YCbCr (TIFF) | Pillow's conversion (ITU-R BT.601, full range) |
| 32-bit integers, floats, CIELAB | refused: no range is defined for them |
| 1 bit | refused: not a photo |

An ICC profile is applied by LittleCMS, relative colorimetric with black point compensation: colours
inside sRGB stay exact, white becomes white and black black. A profile that gives sRGB to within one
level of 255 is sRGB, and the pixels stay as they are, bit for bit.
"""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING

from PIL import Image

from curate.errors import ImageRefused

if TYPE_CHECKING:
    from PIL import ImageCms

_SIXTEEN_BIT = {"I;16", "I;16B"}
_GREY = {"L", "LA", "La"} | _SIXTEEN_BIT
_ALPHA = {"LA", "La", "PA", "RGBA"}
_COLOUR = {"P", "PA", "RGB", "RGBA", "YCbCr", "CMYK"}
_WHITE = (255, 255, 255)
#: A larger profile is ignored: real ones, CMYK's too, stay below.
MOST_PROFILE_BYTES = 8_000_000

# Kept for the next photo only if no larger: the most common ones have 500 to 9,000 bytes.
_MOST_KEPT_BYTES = 1_000_000


def check_mode(mode: str) -> None:
    """Refuse pixel modes that have no conversion, before the pixels are decoded.

    Raises:
        ImageRefused: `not-a-photo` or `unsupported-mode`.
    """
    if mode == "1":
        raise ImageRefused("not-a-photo")
    if mode not in _GREY and mode not in _COLOUR:
        raise ImageRefused("unsupported-mode", f"pixels of mode {mode}")


def to_rgb(image: Image.Image, profile: bytes | None) -> tuple[Image.Image, list[str]]:
    """Convert a decoded image to 8-bit RGB in sRGB.

    Args:
        image: decoded, of a mode that `check_mode` lets pass; `info["transparency"]` counts.
        profile: its ICC profile; None for none, empty for one that could not be read.

    Returns:
        The image (the same object where nothing had to change) and notes.
    """
    notes = ["grey"] if image.mode in _GREY else []
    if image.mode == "CMYK":
        notes.append("cmyk-converted")
    alpha: Image.Image | None = None
    if image.mode in _SIXTEEN_BIT:
        image, alpha = _from_16_bit(image)
    if image.mode in _ALPHA or "transparency" in image.info:
        if image.mode == "La":  # Pillow has no direct way from premultiplied grey.
            image = image.convert("LA")
        image = image.convert("RGBA")
        alpha = image.getchannel("A")
        image = image.getchannel("R") if "grey" in notes else image.convert("RGB")
    # Grey and CMYK stay what they are for their profiles' sake; all else is RGB from here on.
    if image.mode not in ("L", "CMYK"):
        image = _plain(image)
    if profile is not None:
        image, note = _apply_profile(image, profile)
        notes += note
    image = _plain(image)
    if alpha is not None and alpha.getextrema() != (255, 255):
        flat = Image.new("RGB", image.size, _WHITE)
        flat.paste(image, mask=alpha)
        image = flat
        notes.append("alpha-flattened")
    return image, notes


def notes_of_kept(mode: str, profile: bytes | None) -> list[str] | None:
    """The notes of `to_rgb` for opaque 8-bit pixels, or None where it changes more than the mode.

    Args:
        mode: L or RGB.
        profile: as for `to_rgb`.
    """
    notes = ["grey"] if mode in _GREY else []
    if profile is None:
        return notes
    transform, more = _planned(profile, mode)
    return notes + more if transform is None else None


def _plain(image: Image.Image) -> Image.Image:
    return image if image.mode == "RGB" else image.convert("RGB")


def _from_16_bit(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """16-bit grey in 8 bits, and as an image's alpha what its transparent grey says."""
    import numpy as np

    values = np.asarray(image)
    # 65,535 = 255 * 257, so this maps the ends on the ends; 128 = 257 // 2 rounds.
    scaled = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    key = image.info.get("transparency")
    alpha = None
    if isinstance(key, int):
        alpha = Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8))
    return Image.fromarray(scaled), alpha


def _apply_profile(image: Image.Image, profile: bytes) -> tuple[Image.Image, list[str]]:
    transform, note = _planned(profile, image.mode)
    if transform is None:
        return image, note
    if transform.input_mode != image.mode:
        image = image.convert(transform.input_mode)
    in_place = transform.input_mode == transform.output_mode
    return transform.apply(image, image if in_place else None), note


def _planned(profile: bytes, mode: str) -> tuple[ImageCms.ImageCmsTransform | None, list[str]]:
    if len(profile) > MOST_PROFILE_BYTES:
        return None, ["icc-unreadable"]
    plan = _plan if len(profile) <= _MOST_KEPT_BYTES else _plan.__wrapped__
    return plan(profile, mode)


@lru_cache(maxsize=64)
def _plan(profile: bytes, mode: str) -> tuple[ImageCms.ImageCmsTransform | None, list[str]]:
    """What to do with an image of this profile and mode: a transform or nothing, and the note.

    A LittleCMS transform is not changed by use, so threads share it.
    """
    try:
        transform = _build(profile, mode)
        is_srgb = transform.input_mode != "CMYK" and _changes_nothing(transform)
    except Exception:  # Hostile bytes make LittleCMS and its wrapper fail in many ways.
        return None, ["icc-unreadable"]
    return (None, []) if is_srgb else (transform, ["icc-converted"])


def _build(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform:
    from PIL import ImageCms

    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    space = source.profile.xcolor_space.strip()
    # Grey photos often carry the profile of the colour photo they come from.
    fitting = {("GRAY", "L"): "L", ("RGB", "L"): "RGB", ("RGB", "RGB"): "RGB"}
    input_mode = "CMYK" if space == mode == "CMYK" else fitting[space, mode]
    return ImageCms.ImageCmsTransform(
        source,
        ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")),
        input_mode,
        "RGB",
        intent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
        flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )


def _changes_nothing(transform: ImageCms.ImageCmsTransform) -> bool:
    """Whether it moves no sample by more than one level, on a grid or, for grey, on all values."""
    import numpy as np

    if transform.input_mode == "L":
        before = np.arange(256, dtype=np.uint8)[np.newaxis]
        expected = np.stack([before] * 3, axis=-1)
    else:
        axis = np.linspace(0, 255, 18).round().astype(np.uint8)
        before = expected = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(18, -1, 3)
    after = np.asarray(transform.apply(Image.fromarray(before)))
    return bool(np.abs(after.astype(np.int16) - expected).max() <= 1)
