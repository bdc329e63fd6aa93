"""PNG's chunks (W3C PNG specification, sections 5 and 11): checked, and cleared of metadata.

Pillow never sees text, profile or animation chunks: it unpacks them while opening, with limits of
its own that raise errors of other kinds and depend on settings that a whole process shares.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from curate.errors import ImageRefused
from curate.images.colour import MOST_PROFILE_BYTES

if TYPE_CHECKING:
    from curate.setting_groups import ImageLimits

_SIGNATURE = 8
#: Types of the chunks that make the pixels.
PIXELS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"}
_LAST = b"\0\0\0\0IEND\xaeB`\x82"
_TYPE = re.compile(rb"[A-Za-z]{4}")
_MOST_CHUNKS = 100_000
_PIECE = 65_536

#: Where a PNG file says how many bits a sample has.
DEPTH_AT = 24


def chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Type, start and end of the content of each chunk that is whole, up to IEND."""
    at = _SIGNATURE
    while at + 12 <= len(data):
        start = at + 8
        end = start + int.from_bytes(data[at : at + 4], "big")
        if end + 4 > len(data):
            return
        kind = data[at + 4 : start]
        yield kind, start, end
        if kind == b"IEND":
            return
        at = end + 4


def take_apart(data: bytes) -> tuple[bytes, bytes | None, bytes | None]:
    """Separate what makes the pixels from the metadata, checking nothing.

    Returns:
        The file without its metadata, for the decoder; the EXIF block; and the ICC profile, empty
        where there is one that cannot be unpacked.
    """
    kept: list[memoryview] = []
    view = memoryview(data)
    exif: bytes | None = None
    profile: bytes | None = None
    complete = True
    for kind, start, end in chunks(data):
        if kind in PIXELS:
            kept.append(view[start - 8 : end + 4])
            continue
        complete = False
        if kind == b"eXIf":
            exif = data[start:end]
        elif kind == b"iCCP" and profile is None:
            profile = _unpack_profile(data[start:end])
    pixels = data if complete else b"".join([view[:_SIGNATURE], *kept])
    return pixels, exif, profile


def check(data: bytes, limits: ImageLimits) -> tuple[tuple[int, int], list[str]]:
    """Check a PNG file's structure and every checksum in it.

    Returns:
        Width and height by the header, and notes.

    Raises:
        ImageRefused: `truncated`, `corrupt-data`, `metadata-bomb`, `animated`,
            `unsupported-format` (a critical chunk that the standard does not know).
    """
    size: tuple[int, int] | None = None
    has_pixels, frames, end_of_file, unpacked = False, 0, 0, 0
    for number, (kind, start, end) in enumerate(chunks(data)):
        _check_chunk(data, number, kind, start, end)
        if number == 0:
            size = _size(data)
        match kind:
            case b"IDAT":
                has_pixels = True
            case b"fcTL":
                frames += 1
            case b"acTL":
                frames = max(frames, int.from_bytes(data[start : start + 4], "big"))
            case b"zTXt" | b"iTXt" | b"iCCP":
                # One budget for all such chunks: many small bombs are a bomb.
                left = limits.max_metadata_bytes - unpacked
                body = _compressed(kind, data[start:end]) or b""
                unpacked += sum(map(len, _inflate(body, left)))
            case b"IEND":
                end_of_file = end + 4
        if unpacked > limits.max_metadata_bytes:
            raise ImageRefused(
                "metadata-bomb",
                f"a {kind.decode()} chunk unpacks to more than {limits.max_metadata_bytes} bytes",
            )
        if frames > 1:
            raise ImageRefused("animated", "an animated PNG (APNG)")
        if end - start > limits.max_metadata_bytes and kind not in PIXELS:
            raise ImageRefused("metadata-bomb", f"a {kind.decode()} chunk of {end - start} bytes")
    if size is None or not end_of_file:
        if data.endswith(_LAST):
            raise ImageRefused("corrupt-data", "a PNG chunk's length is wrong")
        raise ImageRefused("truncated", "the PNG ends before its IEND chunk")
    if not has_pixels:
        raise ImageRefused("corrupt-data", "the PNG holds no image data")
    return size, ["trailing-data"] if len(data) > end_of_file else []


def _check_chunk(data: bytes, number: int, kind: bytes, start: int, end: int) -> None:
    if number >= _MOST_CHUNKS:
        raise ImageRefused("corrupt-data", f"more than {_MOST_CHUNKS} PNG chunks")
    if not _TYPE.fullmatch(kind):
        raise ImageRefused("corrupt-data", f"no PNG chunk type at byte {start - 4}")
    if (kind == b"IHDR") != (number == 0) or (number == 0 and end - start != 13):
        raise ImageRefused("corrupt-data", "the PNG header is not where it must be")
    if kind[:1].isupper() and kind not in PIXELS:
        raise ImageRefused("unsupported-format", f"a PNG of a private kind ({kind.decode()})")
    stored = int.from_bytes(data[end : end + 4], "big")
    if zlib.crc32(memoryview(data)[start - 4 : end]) != stored:
        raise ImageRefused("corrupt-data", f"wrong checksum of the {kind.decode()} chunk")


def _size(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _compressed(kind: bytes, content: bytes) -> bytes | None:
    """The deflated part of a zTXt, iTXt or iCCP chunk; None where there is none."""
    keyword_ends = content.find(b"\0")
    if keyword_ends < 0:
        return None
    rest = content[keyword_ends + 1 :]
    if kind != b"iTXt":
        return rest[1:] if rest[:1] == b"\0" else None
    if rest[:2] != b"\x01\0":
        return None
    parts = rest[2:].split(b"\0", 2)
    return parts[2] if len(parts) == 3 else None


def _inflate(body: bytes, most: int) -> Iterator[bytes]:
    """Inflate in small pieces, at most `most` bytes and one piece more; damage ends it early."""
    inflater = zlib.decompressobj()
    total = 0
    try:
        for at in range(0, len(body), _PIECE):
            waiting = body[at : at + _PIECE]
            while waiting and not inflater.eof:
                piece = inflater.decompress(waiting, _PIECE)
                total += len(piece)
                yield piece
                if total > most:
                    return
                waiting = inflater.unconsumed_tail
    except zlib.error:
        return


def unpacked_text(kind: bytes, content: bytes, most: int = 16_000_000) -> bytes:
    """The deflated text of a zTXt or iTXt chunk, inflated; empty where there is none.

    Args:
        kind: its type.
        content: of the chunk.
        most: bytes of text to look at.
    """
    body = _compressed(kind, content) if kind in (b"zTXt", b"iTXt") else None
    return b"".join(_inflate(body, most)) if body else b""


def _unpack_profile(content: bytes) -> bytes:
    body = _compressed(b"iCCP", content)
    profile = b"".join(_inflate(body, MOST_PROFILE_BYTES)) if body else b""
    return profile if len(profile) <= MOST_PROFILE_BYTES else b""
