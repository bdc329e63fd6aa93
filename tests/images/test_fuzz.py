"""Whatever the bytes: an image or a refusal, and the fast way never differs from the strict one."""

from __future__ import annotations

import struct
import time
import zlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from curate.errors import ImageRefused
from curate.images import decode, decode_trusted
from tests.images.awkward import chunk, map_chunks, save, segment, small


@lru_cache(maxsize=1)
def seeds(path: Path) -> list[bytes]:
    """Small sound files of every format and of many modes."""
    with Image.open(path) as image:
        photo = small(image.convert("RGB"), 96)
    exif = Image.Exif()
    exif[274] = 6
    exif.get_ifd(34853).update({1: "N", 2: (51.0, 30.0, 0.0)})
    made = [
        save(photo.convert(mode), "JPEG", exif=exif, progressive=mode == "L")
        for mode in ("RGB", "L", "CMYK")
    ]
    made += [save(photo.convert(mode), "PNG", exif=exif) for mode in ("RGB", "LA", "P", "RGBA")]
    made += [save(photo, "GIF"), save(photo.convert("P"), "GIF", transparency=3)]
    made += [save(photo.convert(mode), "WEBP", exif=exif) for mode in ("RGB", "RGBA")]
    made += [
        save(photo.convert(mode), "TIFF", compression=packing)
        for mode in ("RGB", "CMYK", "P")
        for packing in (None, "tiff_lzw", "packbits")
    ]
    made += [save(photo.convert(mode), "BMP") for mode in ("RGB", "P", "RGBA")]
    made += [save(photo, "AVIF", exif=exif)]
    for data in made:
        decode(data)
    return made


def reseal(png: bytes) -> bytes:
    """A damaged PNG with right checksums, so that the damage reaches the decoder."""
    try:
        return map_chunks(png, lambda kind, content: content)
    except Exception:
        return png


edits = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.floats(0, 1), st.binary(min_size=1, max_size=6)),
        st.tuples(st.just("set"), st.floats(0, 0.05), st.binary(min_size=1, max_size=4)),
        st.tuples(st.just("insert"), st.floats(0, 1), st.binary(min_size=1, max_size=40)),
        st.tuples(st.just("delete"), st.floats(0, 1), st.binary(min_size=1, max_size=60)),
        st.tuples(st.just("cut"), st.floats(0, 1), st.just(b"")),
    ),
    min_size=1,
    max_size=4,
)


def apply(data: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for kind, where, content in changes:
        at = int(where * len(data))
        if kind == "set":
            data = data[:at] + content + data[at + len(content) :]
        elif kind == "insert":
            data = data[:at] + content + data[at:]
        elif kind == "delete":
            data = data[:at] + data[at + len(content) :]
        else:
            data = data[:at]
    return data


# Pillow and libtiff warn of what they find in a damaged TIFF.
@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=400, deadline=None)
@given(number=st.integers(0, 10**6), changes=edits, sealed=st.booleans())
def test_damaged_files_give_an_image_or_a_refusal(
    package_photos: list[tuple[Path, int]],
    number: int,
    changes: list[tuple[str, float, bytes]],
    sealed: bool,
) -> None:
    files = seeds(package_photos[2][0])
    data = apply(files[number % len(files)], changes)
    if sealed and data.startswith(b"\x89PNG"):
        data = reseal(data)
    refusal: ImageRefused | None = None
    try:
        image = decode(data)[0]
    except ImageRefused as caught:
        refusal = caught
    if refusal is None:
        np.testing.assert_array_equal(np.asarray(image), np.asarray(decode_trusted(data)))
        return
    assert refusal.detail
    assert "\n" not in str(refusal)
    with suppress(ImageRefused):
        decode_trusted(data)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(
        [
            b"",
            b"\xff\xd8\xff",
            b"\x89PNG\r\n\x1a\n",
            b"GIF89a",
            b"II*\0",
            b"MM\0*",
            b"BM",
            b"RIFF\xff\0\0\0WEBP",
            b"\0\0\0\x18ftypavif",
        ]
    ),
    st.binary(max_size=300),
)
def test_random_bytes_behind_a_signature_are_refused(head: bytes, tail: bytes) -> None:
    try:
        decode(head + tail)
    except ImageRefused:
        return
    raise AssertionError("random bytes are no photo")


def test_checksums_are_right_after_resealing(photo: Image.Image) -> None:
    """The fuzzing of PNG is worth something only if this holds."""
    data = bytearray(save(small(photo), "PNG"))
    data[-30] ^= 1
    sealed = reseal(bytes(data))
    assert sealed != bytes(data)
    assert zlib.crc32(sealed[12:29]) == int.from_bytes(sealed[29:33])


def many_small_parts() -> dict[str, bytes]:
    """Files of some megabytes that hold as many parts as they can."""
    scan = b"\xff\xd8" + segment(0xC0, b"\x08\x00\x64\x00\x64\x01\x01\x11\x00")
    scan += segment(0xDA, b"\x01\x01\x00\x00\x3f\x00")
    gif = b"GIF89a" + struct.pack("<HHBBB", 100, 100, 0, 0, 0)
    webp = b"XXXX\0\0\0\0" * 500_000
    return {
        "fill bytes": b"\xff\xd8" + b"\xff" * 4_000_000,
        "fill bytes in a scan": scan + b"\xff" * 4_000_000,
        "stuffed bytes in a scan": scan + b"\xff\0" * 2_000_000,
        "comments": b"\xff\xd8" + b"\xff\xfe\0\2" * 1_000_000,
        "PNG chunks": b"\x89PNG\r\n\x1a\n" + chunk(b"teXt", b"") * 300_000,
        "GIF blocks": gif + b"!\xfe\0" * 1_000_000,
        "GIF sub-blocks": gif + b"!\xfe" + b"\1x" * 2_000_000,
        "WebP chunks": b"RIFF" + struct.pack("<I", len(webp) + 4) + b"WEBP" + webp,
        "AVIF boxes": b"\0\0\0\x18ftypavif" + bytes(12) + b"\0\0\0\x08free" * 500_000,
    }


@pytest.mark.parametrize("what", list(many_small_parts()))
def test_millions_of_small_parts_are_refused_quickly(what: str) -> None:
    data = many_small_parts()[what]
    started = time.thread_time()
    with pytest.raises(ImageRefused):
        decode(data)
    assert time.thread_time() - started < 2
