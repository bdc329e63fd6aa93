"""Thumbnails: small sRGB JPEGs, upright, free of metadata, made to stand in a page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

from curate.images.decode import decode_trusted
from curate.settings import ImageLimits

#: Longest side in pixels: sharp at the width of a contact sheet's column on a dense screen.
LONGEST_SIDE = 320

_QUALITY = 80


@dataclass(frozen=True)
class Thumbnail:
    """A picture as text.

    Attributes:
        uri: a `data:` address that holds the JPEG.
        width: in pixels.
        height: in pixels.
    """

    uri: str
    width: int
    height: int


def make_thumbnail(
    data: bytes, longest_side: int = LONGEST_SIDE, limits: ImageLimits | None = None
) -> Thumbnail:
    """A thumbnail of a stored image; one that is small already keeps its size.

    Args:
        data: the original bytes.
        longest_side: in pixels, at least 1.
        limits: those that held when the image was taken in.

    Raises:
        ImageRefused: the bytes do not decode.
    """
    from PIL import Image

    image = decode_trusted(data, limits)
    # The gap halves the cost of large photos; it changes pixels that nobody measures.
    image.thumbnail((longest_side, longest_side), Image.Resampling.LANCZOS, reducing_gap=3.0)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_QUALITY, optimize=True)
    uri = "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
    return Thumbnail(uri, image.width, image.height)
