"""From bytes of unknown origin to an upright 8-bit RGB image, or a refusal with its reason.

`decode` is for images that are taken in: it checks everything. `examine` does the same where nobody
needs the pixels. `decode_trusted` is for bytes that were accepted before: the same pixels, without
the checks. All go through `_open` and `_pixels`, so they cannot drift apart.

Pillow's readers are called by name instead of through `Image.open`: nothing guesses, no other
reader runs, and its pixel limit, which a whole process shares (`Image.MAX_IMAGE_PIXELS`), does not
come between; GIF, WebP and TIFF ask it all the same, but it is above the default limit. No state is
shared or changed: any number of threads may decode. Of a damaged TIFF, Pillow and libtiff warn on
standard error besides.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from PIL import Image, features
from PIL import __version__ as _pillow_version

from curate.errors import ImageRefused
from curate.images import colour, containers, jpeg, png, visible
from curate.images.exif import Exif, read_exif
from curate.images.sniffing import EXTENSIONS, Format, sniff

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.ImageFile import ImageFile

    from curate.setting_groups import ImageLimits

#: What was noticed and dealt with; an image's notes are some of these.
NOTES: dict[str, str] = {
    "exif-orientation-applied": "rotated or mirrored as EXIF says",
    "exif-unreadable": "its EXIF is damaged; what cannot be read is ignored",
    "has-gps": "its metadata hold a position",
    "icc-converted": "its ICC profile was applied",
    "icc-unreadable": "its ICC profile is damaged or does not fit, and is ignored",
    "alpha-flattened": "laid on white where it is transparent",
    "cmyk-converted": "stored as CMYK",
    "16-bit-scaled": "stored with 16 bits a channel",
    "grey": "stored without colour",
    "first-frame-of-mpo": "the first of several pictures, as phones write them",
    "trailing-data": "more bytes follow the image",
}

#: The decoders that made the pixels, for records.
DECODER = ", ".join(
    f"{name} {version}"
    for name, version in (
        ("pillow", _pillow_version),
        ("libjpeg-turbo", features.version("libjpeg_turbo") or features.version("jpg")),
        ("libtiff", features.version("libtiff")),
        ("libwebp", features.version("webp")),
        ("libavif", features.version("avif")),
        ("littlecms", features.version("littlecms2")),
    )
    if version
)

_READERS: dict[Format, tuple[str, str]] = {
    "JPEG": ("PIL.JpegImagePlugin", "JpegImageFile"),
    "PNG": ("PIL.PngImagePlugin", "PngImageFile"),
    "GIF": ("PIL.GifImagePlugin", "GifImageFile"),
    "WEBP": ("PIL.WebPImagePlugin", "WebPImageFile"),
    "TIFF": ("PIL.TiffImagePlugin", "TiffImageFile"),
    "BMP": ("PIL.BmpImagePlugin", "BmpImageFile"),
    "AVIF": ("PIL.AvifImagePlugin", "AvifImageFile"),
}
_OPTIONAL = {"WEBP": "webp", "AVIF": "avif"}

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Orientations that swap width and height.
_LYING = range(5, 9)

_BITS_PER_SAMPLE = 258
_XMP = ("xmp", "XML:com.adobe.xmp")
_UNSUPPORTED = re.compile("pixel mode|pixel depth|cannot handle|compression")

# A picture with a shorter side shows nothing, whatever its proportions.
_NOTHING_SHOWN = 16


@dataclass(frozen=True)
class ImageInfo:
    """What an accepted image is.

    Attributes:
        format: JPEG, PNG, GIF, WEBP, TIFF, BMP or AVIF, by content.
        extension: what the content calls for, without a dot.
        width: of the upright image, in pixels.
        height: of the upright image, in pixels.
        mode: Pillow's name of the pixels as stored; with ";16" for 16 bits a colour channel.
        notes: keys of `NOTES`.
    """

    format: Format
    extension: str
    width: int
    height: int
    mode: str
    notes: tuple[str, ...]


@dataclass
class _Opened:
    """An image whose header has been read, and whose pixels have not."""

    image: ImageFile
    mode: str
    exif: Exif
    profile: bytes | None
    is_turned_by_reader: bool = False


@dataclass
class _Checked:
    """An image that has passed all checks but those of its decoded pixels."""

    kind: Format
    opened: _Opened
    notes: list[str]
    luminance: NDArray[np.float64] | None


def decode(
    data: bytes,
    limits: ImageLimits | None = None,
    name: str | None = None,
    *,
    must_show: bool = True,
) -> tuple[Image.Image, ImageInfo]:
    """Check and decode an image of unknown origin.

    The size is checked by the header, before pixels are decoded. The conversions are those of
    `curate.images.colour`; EXIF orientation is applied once (TIFF's own too, XMP's never).

    Args:
        data: the whole file.
        limits: on bytes, pixels, sides and metadata; the defaults of the settings if None.
        name: the file's name; it only tells an SVG drawing from other text (see `sniff`).
        must_show: whether what shows nothing, or two colours alone, is refused.

    Returns:
        An upright image of mode RGB with an empty `info`, and what is known of it.

    Raises:
        ImageRefused: with a reason from `REASONS`; no other error, whatever the bytes are.
    """
    checked = _check(data, limits or _default_limits(), name)
    image, notes = _pixels(checked.opened)
    if must_show:
        visible.check(image)
    return image, _describe(data, checked, image.size, notes)


def examine(data: bytes, limits: ImageLimits | None = None, name: str | None = None) -> ImageInfo:
    """Check an image of unknown origin as `decode` does, without its pixels where that is possible.

    Of a plain JPEG the check of its samples tells what the pixels would, in about 60 % of the time;
    all else is decoded. The verdict is that of `decode`.

    Args:
        data: as for `decode`.
        limits: as for `decode`.
        name: as for `decode`.

    Raises:
        ImageRefused: as `decode`.
    """
    checked = _check(data, limits or _default_limits(), name)
    opened = checked.opened
    notes = None
    if checked.luminance is not None and visible.is_plain_by(checked.luminance):
        notes = colour.notes_of_kept(opened.image.mode, opened.profile)
    if notes is None:
        image, notes = _pixels(opened)
        visible.check(image)
        return _describe(data, checked, image.size, notes)
    width, height = opened.image.size
    size = (height, width) if opened.exif.orientation in _LYING else (width, height)
    return _describe(data, checked, size, notes + _notes_on_exif(opened.exif))


@cache
def _default_limits() -> ImageLimits:
    from curate.setting_groups import ImageLimits

    return ImageLimits()


def _check(data: bytes, limits: ImageLimits, name: str | None) -> _Checked:
    """Everything that can be checked before the pixels are decoded for good."""
    if not data:
        raise ImageRefused("empty-file")
    if len(data) > limits.max_bytes:
        raise ImageRefused("too-many-bytes", f"{len(data)} bytes, more than {limits.max_bytes}")
    kind = sniff(data, name)
    notes, luminance = _check_structure(kind, data, limits)
    opened = _open(kind, data)
    _check_size(opened.image.size, limits)
    return _Checked(kind, opened, notes, luminance)


def _describe(data: bytes, checked: _Checked, size: tuple[int, int], notes: list[str]) -> ImageInfo:
    if "has-gps" not in notes and b"exif:GPSLatitude" in data:
        notes = [*notes, "has-gps"]
    kind = checked.kind
    return ImageInfo(kind, EXTENSIONS[kind], *size, checked.opened.mode, (*notes, *checked.notes))


def decode_trusted(data: bytes, limits: ImageLimits | None = None) -> Image.Image:
    """Decode bytes that `decode` accepted before, to exactly the same pixels.

    Args:
        data: the whole file.
        limits: those that `decode` had; only `max_pixels` counts here.

    Raises:
        ImageRefused: the bytes cannot be decoded; other faults go unnoticed here.
    """
    if not data:
        raise ImageRefused("empty-file")
    opened = _open(sniff(data), data)
    _check_pixel_count(opened.image.size, limits or _default_limits())
    return _pixels(opened)[0]


def _check_structure(
    kind: Format, data: bytes, limits: ImageLimits
) -> tuple[list[str], NDArray[np.float64] | None]:
    """Everything that can be checked without Pillow; gives notes, and luminance if it is known."""
    if kind == "JPEG":
        with _refusing():
            layout = jpeg.walk(data)
            _check_size(layout.size, limits)
            luminance = jpeg.check_pixels(data, layout)
        if layout.is_multi_picture:
            return ["first-frame-of-mpo"], luminance
        return ["trailing-data"] if layout.end < len(data) else [], luminance
    check: Callable[[bytes, ImageLimits], containers.Checked] = {
        "PNG": png.check,
        "GIF": containers.check_gif,
        "WEBP": containers.check_webp,
        "TIFF": containers.check_tiff,
        "BMP": containers.check_bmp,
        "AVIF": containers.check_avif,
    }[kind]
    with _refusing():
        size, notes = check(data, limits)
    if size is not None:
        _check_size(size, limits)
    return notes, None


def _check_pixel_count(size: tuple[int, int], limits: ImageLimits) -> None:
    if size[0] * size[1] > limits.max_pixels:
        raise ImageRefused(
            "too-many-pixels", f"{size[0]} x {size[1]}, more than {limits.max_pixels}"
        )


def _check_size(size: tuple[int, int], limits: ImageLimits) -> None:
    shown = f"{size[0]} x {size[1]}"
    short, long = sorted(size)
    _check_pixel_count(size, limits)
    if short < min(_NOTHING_SHOWN, limits.min_side):
        raise ImageRefused("too-small", shown)
    if long > limits.max_aspect_ratio * short:
        raise ImageRefused("aspect-ratio", f"{shown}, more than {limits.max_aspect_ratio:g} to 1")
    if short < limits.min_side:
        raise ImageRefused("too-small", f"{shown}, a side under {limits.min_side}")


def _open(kind: Format, data: bytes) -> _Opened:
    """Read the header and the metadata that matter for the pixels."""
    if kind in _OPTIONAL and not features.check(_OPTIONAL[kind]):
        raise ImageRefused("unsupported-format", f"{kind}: this Pillow is built without it")
    module, name = _READERS[kind]
    with _refusing():
        source, exif, profile = data, None, None
        if kind == "JPEG":
            source, exif, profile = jpeg.take_apart(data)
        elif kind == "PNG":
            source, exif, profile = png.take_apart(data)
        image: ImageFile = getattr(import_module(module), name)(io.BytesIO(source))
        is_deep = False
        if kind == "PNG":
            depth = data[png.DEPTH_AT]
            _scale_transparent_colour(image, depth)
            is_deep = depth == 16
        elif kind != "JPEG":
            exif, profile = image.info.get("exif"), image.info.get("icc_profile")
        if kind == "TIFF":
            exif = data  # A TIFF file is built as an EXIF block is.
            is_deep = max(getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (8,))) == 16
            for key in _XMP:
                image.info.pop(key, None)  # Pillow would turn the image by XMP's orientation.
        if getattr(image, "is_animated", False):
            reason = "multi-frame" if kind == "TIFF" else "animated"
            raise ImageRefused(reason, f"a {kind} of several frames")
        colour.check_mode(image.mode)
    return _Opened(
        image,
        mode=f"{image.mode};16" if is_deep and image.mode[:2] != "I;" else image.mode,
        exif=read_exif(exif),
        profile=profile,
        is_turned_by_reader=kind == "TIFF",
    )


def _scale_transparent_colour(image: ImageFile, depth: int) -> None:
    """Bring a PNG's transparent colour to the 8 bits that Pillow gives to its pixels.

    Pillow leaves it in the file's own depth. Of 16 bits a colour channel the upper byte counts, as
    in the pixels; 16-bit grey keeps its depth until it is converted.
    """

    def scaled(sample: int) -> int:
        sample &= (1 << depth) - 1
        return sample >> 8 if depth == 16 else sample * 255 // ((1 << depth) - 1)

    key = image.info.get("transparency")
    if image.mode == "RGB" and isinstance(key, tuple):
        image.info["transparency"] = tuple(scaled(sample) for sample in key)
    elif image.mode == "L" and isinstance(key, int):
        image.info["transparency"] = scaled(key)


def _pixels(opened: _Opened) -> tuple[Image.Image, list[str]]:
    """Decode, convert to sRGB, turn upright; with notes."""
    exif = opened.exif
    with _refusing():
        opened.image.load()
        image, notes = colour.to_rgb(opened.image, opened.profile)
        if opened.is_turned_by_reader:
            image = image.copy()  # So that nobody can read the orientation again and turn it.
        elif exif.orientation != 1:
            image = image.transpose(_UPRIGHT[exif.orientation])
    # What described the stored pixels does not describe these.
    image.info = {}
    if ";16" in opened.mode:
        notes.append("16-bit-scaled")
    return image, notes + _notes_on_exif(exif)


def _notes_on_exif(exif: Exif) -> list[str]:
    notes = []
    if exif.orientation != 1:
        notes.append("exif-orientation-applied")
    if not exif.readable:
        notes.append("exif-unreadable")
    if exif.has_gps:
        notes.append("has-gps")
    return notes


@contextmanager
def _refusing() -> Iterator[None]:
    """Make a refusal of whatever hostile bytes make a reader raise: Pillow has no list of it."""
    try:
        yield
    except ImageRefused:
        raise
    except Image.DecompressionBombError as error:
        raise ImageRefused("too-many-pixels", _line(error)) from error
    except MemoryError as error:
        raise ImageRefused("corrupt-data", "the decoder asked for too much memory") from error
    except Exception as error:
        text = _line(error)
        if _UNSUPPORTED.search(text):
            reason = "unsupported-mode"
        else:
            reason = "truncated" if "truncated" in text.lower() else "corrupt-data"
        raise ImageRefused(reason, text) from error


def _line(error: Exception) -> str:
    """An error's text in one short line of printable characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return ascii(text)[1:-1][:200]
