"""The bytes that a release holds of an image: the original ones, or the same pixels otherwise."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from curate.choices import Metadata
from curate.errors import ImageRefused, VerificationError
from curate.images.cleaning import SEPARABLE, without_metadata
from curate.images.sniffing import EXTENSIONS
from curate.release.layout import IMAGE_EXTENSIONS

if TYPE_CHECKING:
    from PIL.Image import Image

_KINDS = {extension: kind for kind, extension in EXTENSIONS.items()}

#: Notes on what cleaning removes.
REMOVED_NOTES = frozenset(("has-gps", "trailing-data", "first-frame-of-mpo"))


@dataclass(frozen=True)
class Content:
    """What is written of an image.

    Attributes:
        data: the bytes.
        extension: what they call for, without a dot.
        reencoded: whether they are a PNG of the same pixels.
        cleaned: whether metadata were removed from the file and nothing else.
    """

    data: bytes
    extension: str
    reencoded: bool = False
    cleaned: bool = False


def content_of(
    data: bytes, extension: str, *, notes: Sequence[str], metadata: Metadata, what: str
) -> Content:
    """What a release holds of an image.

    Args:
        data: the original bytes.
        extension: what they call for.
        notes: what was noticed when it was taken in (`curate.images.decode.NOTES`).
        metadata: "clean" removes positions, owners and serial numbers, "strip" all that is no
            orientation and no colour profile, "keep" nothing. A TIFF of which they cannot be
            removed alone is re-encoded.
        what: names the image in errors.

    Raises:
        VerificationError: it cannot be cleaned or re-encoded.
    """
    try:
        if f".{extension}" not in IMAGE_EXTENSIONS:
            return Content(_as_png(data), "png", reencoded=True)
        if metadata == "keep":
            return Content(data, extension)
        kind = _KINDS[extension]
        if metadata == "strip" and kind not in SEPARABLE:
            return Content(_as_png(data), "png", reencoded=True)
        behind = not REMOVED_NOTES.isdisjoint(notes)
        try:
            cleaned = without_metadata(data, kind, everything=metadata == "strip", behind=behind)
        except ValueError:
            if kind != "TIFF":
                raise
            return Content(_as_png(data), "png", reencoded=True)
        if kind == "TIFF" and cleaned != data and not _same_pixels(data, cleaned):
            return Content(_as_png(data), "png", reencoded=True)
    except ImageRefused as refusal:
        raise VerificationError(
            f"no release was built: {what} ({extension}) cannot be re-encoded as PNG or cleaned "
            f"of metadata: {refusal}"
        ) from refusal
    return Content(cleaned, extension, cleaned=cleaned != data)


# Files are small beside their pixels, of which only those of one image are in memory at a time.
_one_at_a_time = threading.Lock()


def _as_png(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with _one_at_a_time:
        _pixels(data).save(buffer, "PNG")
    return buffer.getvalue()


def _same_pixels(data: bytes, cleaned: bytes) -> bool:
    """Whether two files show the same: a hostile one may have its pixels among its metadata."""
    try:
        with _one_at_a_time:
            return _pixels(data).tobytes() == _pixels(cleaned).tobytes()
    except ImageRefused:
        return False


def _pixels(data: bytes) -> Image:
    from curate.images.decode import decode_trusted
    from curate.settings import ImageLimits

    # Its pixels were counted when it was taken in, by limits that only the workspace knows.
    return decode_trusted(data, ImageLimits(max_pixels=2**31))
