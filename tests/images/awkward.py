"""Awkward image files, built from real photos."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from PIL import Image

from curate.errors import ImageRefused
from curate.images import ImageInfo, decode, decode_trusted, examine


def save(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def small(photo: Image.Image, side: int = 120) -> Image.Image:
    """A quick photo, not square."""
    return photo.resize((side, side * 3 // 4), Image.Resampling.LANCZOS)


def array(image: Image.Image) -> np.ndarray:
    return np.asarray(image).astype(np.int16)


def reason(data: bytes, **options: Any) -> str:
    """Why the bytes are refused."""
    with pytest.raises(ImageRefused) as caught:
        decode(data, **options)
    return caught.value.reason


def accepted(data: bytes, **options: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """The pixels and notes of accepted bytes; the fast way gives the same pixels."""
    image, info = decode(data, **options)
    trusted = decode_trusted(data)
    assert image.mode == trusted.mode == "RGB"
    assert image.info == trusted.info == {}
    assert image.size == (info.width, info.height)
    np.testing.assert_array_equal(np.asarray(image), np.asarray(trusted))
    return array(image), info.notes


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + zlib.crc32(kind + content).to_bytes(4)


def with_chunk(png: bytes, kind: bytes, content: bytes) -> bytes:
    """A PNG with one more chunk, behind its header."""
    return png[:33] + chunk(kind, content) + png[33:]


def map_chunks(png: bytes, change: Callable[[bytes, bytes], bytes]) -> bytes:
    """A PNG whose chunks' contents went through `change(kind, content)`."""
    result, at = png[:8], 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        result += chunk(kind, change(kind, content))
        at += 12 + length
    return result


def raw_png(samples: np.ndarray, depth: int, colour: int, *extra: bytes) -> bytes:
    """A PNG written by hand: rows of bytes as stored, for depths that Pillow cannot write."""
    height = len(samples)
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    width = samples[0].nbytes * 8 // (depth * channels)
    body = b"".join(b"\0" + row.tobytes() for row in samples)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + b"".join(extra)
        + chunk(b"IDAT", zlib.compress(body))
        + chunk(b"IEND", b"")
    )


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def with_segment(jpeg: bytes, marker: int, content: bytes) -> bytes:
    """A JPEG with one more segment, behind its start marker."""
    return jpeg[:2] + segment(marker, content) + jpeg[2:]


def examined(data: bytes, **options: Any) -> ImageInfo | str:
    """What `examine` says of the bytes: the image's particulars or the reason of refusal."""
    try:
        return examine(data, **options)
    except ImageRefused as refusal:
        return refusal.reason


def decoded(data: bytes, **options: Any) -> ImageInfo | str:
    """What `decode` says of them."""
    try:
        return decode(data, **options)[1]
    except ImageRefused as refusal:
        return refusal.reason


def without_pixels(data: bytes) -> bool:
    """Whether `examine` accepts the bytes without decoding them for good."""

    def fail(*_: object) -> Any:
        raise AssertionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("curate.images.decode"), "_pixels", fail)
        try:
            examine(data)
        except AssertionError:
            return False
        return True
