"""Taking metadata out of image files without touching a pixel: only what stands around them goes.

What tells where a photo was taken and whose camera took it is named here; whoever passes photos on
removes at least that. The author's name and the copyright notice stay: licences ask for them.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator

from curate.images import exif, jpeg, png
from curate.images.sniffing import Format

# What XMP, makers' own blocks and texts call a position, an owner or a serial number.
_PRIVATE = re.compile(rb"gps|owner[ _]?name|serial[ _]?number", re.IGNORECASE)
# The same in EXIF, where a small picture's bytes would tell of "gps" by chance.
_PRIVATE_EXIF = re.compile(
    rb"gps[ _]?(?:latitude|longitude|position|coordinate)|owner[ _]?name|serial[ _]?number",
    re.IGNORECASE,
)

_JFIF, _APP1, _APP2, _ADOBE, _COMMENT = 0xE0, 0xE1, 0xE2, 0xEE, 0xFE
_EXIF_PREFIX, _ICC_PREFIX, _MPF_PREFIX = b"Exif\0\0", b"ICC_PROFILE\0", b"MPF\0"

# Chunks that say what the colours of a PNG mean.
_PNG_COLOURS = frozenset(
    (b"iCCP", b"sRGB", b"gAMA", b"cHRM", b"cICP", b"mDCV", b"cLLI", b"sBIT", b"pHYs")
)
_PNG_TEXTS = frozenset((b"tEXt", b"zTXt", b"iTXt"))
_WEBP_EXIF, _WEBP_XMP = 0x08, 0x04

#: Formats whose metadata can be removed alone; BMP has none.
SEPARABLE: frozenset[Format] = frozenset(("JPEG", "PNG", "WEBP", "BMP"))


def without_metadata(
    data: bytes, kind: Format, *, everything: bool = False, behind: bool = True
) -> bytes:
    """An image file without what its metadata tell of people and places.

    Positions (GPS), owners and serial numbers of cameras and lenses, makers' own notes and what
    follows the image (a phone's second picture or film) are removed; XMP as a whole where it tells
    any of that, and EXIF where words left over in it do. Its orientation and colour profile stay,
    so a decoder gives the same pixels.

    Args:
        data: bytes that `curate.images.decode.decode` accepts.
        kind: their format; one of `SEPARABLE` or TIFF.
        everything: remove all other metadata too; not for TIFF, whose pixels lie among them.
        behind: whether something may follow the image; False saves looking.

    Returns:
        The very same bytes where there is nothing to remove.

    Raises:
        ValueError: another format, or a TIFF whose metadata are damaged or tell of that where no
            directory leads: its pixels may lie anywhere between them.
    """
    match kind:
        case "JPEG":
            return _jpeg(data, everything, behind)
        case "PNG":
            return _png(data, everything)
        case "WEBP":
            return _webp(data, everything)
        case "TIFF" if not everything:
            if (kept := _exif_kept(data)) is None:
                raise ValueError("metadata of this TIFF file cannot be removed alone")
            return kept
        case "BMP":
            return data
        case _:
            raise ValueError(f"metadata of {kind} files cannot be removed alone")


def _exif(block: bytes, everything: bool) -> bytes | None:
    """What is left of an EXIF block; None for nothing."""
    orientation = exif.read_exif(block).orientation
    least = exif.only_orientation(orientation) if orientation != 1 else None
    if everything:
        return least
    kept = _exif_kept(block)
    return least if kept is None or exif.read_exif(kept).orientation != orientation else kept


def _exif_kept(block: bytes) -> bytes | None:
    """An EXIF block or TIFF file without what is private; None where some of that would be left."""
    kept = exif.without_private(block)
    # What no directory leads to is still there to be read, and directories may overlap.
    if kept is None or exif.read_exif(kept).has_gps or _tells(kept, _PRIVATE_EXIF):
        return None
    return kept


def _jpeg(data: bytes, everything: bool, behind: bool) -> bytes:
    header = list(jpeg.header(data))
    blocks = [s for s in header if _is_exif(data, s)]
    end = jpeg.walk(data).end if behind else len(data)
    parts: list[bytes | memoryview] = []
    view, done = memoryview(data), 0
    for segment in header:
        if not _is_metadata(segment.marker):
            continue
        body = view[segment.start : segment.end]
        put: bytes | None
        if segment in blocks:
            # Several make one block; where they begin again nobody can say.
            whole = b"".join(data[s.start + len(_EXIF_PREFIX) : s.end] for s in blocks)
            put = _exif(whole, everything or len(blocks) > 1) if segment is blocks[0] else None
            if put is not None and len(blocks) == 1 and put == whole:
                continue
            put = None if put is None else _jpeg_segment(_APP1, _EXIF_PREFIX + put)
        elif _jpeg_keeps(segment.marker, body, everything, end < len(data)):
            continue
        else:
            put = None
        parts += [view[done : segment.at], put or b""]
        done = segment.end
    if not parts and end == len(data):
        return data
    return b"".join([*parts, view[done:end]])


def _is_metadata(marker: int) -> bool:
    return 0xE0 <= marker <= 0xEF or marker == _COMMENT


def _is_exif(data: bytes, segment: jpeg.Segment) -> bool:
    return segment.marker == _APP1 and data.startswith(_EXIF_PREFIX, segment.start, segment.end)


def _jpeg_keeps(marker: int, body: memoryview, everything: bool, cut: bool) -> bool:
    """Whether metadata of a JPEG's header stay that are not EXIF."""
    start = bytes(body[:32])
    decoding = (
        (marker == _JFIF and start.startswith(b"JFIF\0"))
        or marker == _ADOBE
        or (marker == _APP2 and start.startswith(_ICC_PREFIX))
    )
    if decoding or everything:
        return decoding
    if marker == _APP2 and start.startswith(_MPF_PREFIX):
        return not cut
    # A long packet of XMP goes on in further segments, any of which may tell the rest.
    extended = marker == _APP1 and start.startswith(b"http://ns.adobe.com/xmp/extension/")
    return not (extended or _tells(body))


def _tells(body: bytes | memoryview, private: re.Pattern[bytes] = _PRIVATE) -> bool:
    # UTF-16 differs by zeros.
    return private.search(bytes(body).replace(b"\0", b"")) is not None


def _jpeg_segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


def _png(data: bytes, everything: bool) -> bytes:
    parts: list[bytes | memoryview] = [data[:8]]
    view = memoryview(data)
    for kind, start, end in png.chunks(data):
        if kind == b"eXIf":
            kept = _exif(data[start:end], everything)
            if kept == data[start:end]:
                parts.append(view[start - 8 : end + 4])
            elif kept is not None:
                parts.append(_png_chunk(kind, kept))
        elif _png_keeps(kind, data[start:end], everything):
            parts.append(view[start - 8 : end + 4])
    return b"".join(parts)


def _png_keeps(kind: bytes, content: bytes, everything: bool) -> bool:
    if kind in png.PIXELS or kind in _PNG_COLOURS:
        return True
    if everything:
        return False
    if kind not in _PNG_TEXTS:
        return not _tells(content)
    # Other programs' EXIF and XMP in hexadecimal digits.
    hidden = content.startswith(b"Raw profile type")
    return not (hidden or _tells(content) or _tells(png.unpacked_text(kind, content)))


def _png_chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def _webp(data: bytes, everything: bool) -> bytes:
    parts: list[tuple[bytes, bytes]] = []
    flags = 0
    for kind, content in _webp_chunks(data):
        if kind == b"EXIF":
            kept = _exif(content, everything)
            if kept is not None:
                prefix = _EXIF_PREFIX if content.startswith(_EXIF_PREFIX) else b""
                parts.append((kind, prefix + kept.removeprefix(_EXIF_PREFIX)))
                flags |= _WEBP_EXIF
        elif kind == b"XMP ":
            if not (everything or _tells(content)):
                parts.append((kind, content))
                flags |= _WEBP_XMP
        elif kind in (b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ICCP", b"ANIM", b"ANMF") or not (
            everything or _tells(content)
        ):
            parts.append((kind, content))
    body = b"WEBP"
    for kind, content in parts:
        if kind == b"VP8X" and content:
            mask = 0xFF ^ _WEBP_EXIF ^ _WEBP_XMP
            content = bytes([content[0] & mask | content[0] & flags]) + content[1:]
        body += kind + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    end, at = min(8 + int.from_bytes(data[4:8], "little"), len(data)), 12
    while at + 8 <= end:
        kind, length = struct.unpack_from("<4sI", data, at)
        yield kind, data[at + 8 : min(at + 8 + length, end)]
        at += 8 + length + length % 2
