"""The structure of GIF, WebP, TIFF, BMP and AVIF files, checked without decoding a pixel.

Truncation is found here, by what the file says of its own length: whether Pillow reports it depends
on a switch that a whole process shares (`ImageFile.LOAD_TRUNCATED_IMAGES`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from curate.errors import ImageRefused
from curate.images.exif import Directory, byte_order, integer, read_directory

if TYPE_CHECKING:
    from curate.setting_groups import ImageLimits

#: What a structure check gives: the size by the header, if that is simple to read, and notes.
Checked = tuple[tuple[int, int] | None, list[str]]

_WIDTH, _LENGTH, _COMPRESSION, _NEW_SUBFILE, _DNG = 256, 257, 259, 254, 50706
_STRIP_OFFSETS, _STRIP_BYTES, _TILE_OFFSETS, _TILE_BYTES = 273, 279, 324, 325
_TILE_WIDTH, _TILE_LENGTH, _XMP, _ICC = 322, 323, 700, 34675
_MOST_STRIPS = 100_000
# No sound file has as many; they would cost a reader written in Python its time.
_MOST_BLOCKS = 10_000
_MOST_SUB_BLOCKS = 1_000_000


def check_gif(data: bytes, limits: ImageLimits) -> Checked:
    """Walk a GIF's blocks (GIF89a, appendix A).

    Raises:
        ImageRefused: `truncated`, `corrupt-data`, `animated`.
    """
    del limits  # A GIF's metadata is bounded by the file.
    if len(data) < 13:
        raise ImageRefused("truncated", "the GIF ends within its header")
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + _colour_table(flags)
    frames = 0
    for _ in range(_MOST_BLOCKS):
        introducer = data[at : at + 1]
        if introducer == b";":
            break
        if introducer == b"!":
            at = _sub_blocks(data, at + 2)
        elif introducer == b",":
            frames += 1
            if frames > 1:
                raise ImageRefused("animated", "a GIF of several frames")
            if at + 10 > len(data):
                raise ImageRefused("truncated", "the GIF ends within its frame")
            left, top, frame_width, frame_height, flags = struct.unpack_from("<4HB", data, at + 1)
            width, height = max(width, left + frame_width), max(height, top + frame_height)
            at = _sub_blocks(data, at + 11 + _colour_table(flags))
        elif introducer:
            raise ImageRefused("corrupt-data", f"no GIF block at byte {at}")
        else:
            raise ImageRefused("truncated", "the GIF ends before its trailer")
    else:
        raise ImageRefused("corrupt-data", f"a GIF of more than {_MOST_BLOCKS} blocks")
    if not frames:
        raise ImageRefused("corrupt-data", "the GIF holds no frame")
    return (width, height), ["trailing-data"] if len(data) > at + 1 else []


def _colour_table(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 128 else 0


def _sub_blocks(data: bytes, at: int) -> int:
    """The position behind a chain of sub-blocks."""
    for _ in range(_MOST_SUB_BLOCKS):
        if at >= len(data):
            break
        length = data[at]
        at += 1 + length
        if not length:
            return at
    raise ImageRefused("truncated", "the GIF ends within a block")


def check_webp(data: bytes, limits: ImageLimits) -> Checked:
    """Walk a WebP's chunks (RFC 9649).

    Raises:
        ImageRefused: `truncated`, `corrupt-data`, `animated`, `metadata-bomb`.
    """
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise ImageRefused("truncated", f"{len(data)} bytes of {end}")
    size: tuple[int, int] | None = None
    frames, blocks, at = 0, 0, 12
    while at + 8 <= end:
        blocks += 1
        if blocks > _MOST_BLOCKS:
            raise ImageRefused("corrupt-data", f"a WebP of more than {_MOST_BLOCKS} chunks")
        kind, length = struct.unpack_from("<4sI", data, at)
        body = data[at + 8 : at + 8 + min(length, 10)]
        if at + 8 + length > end:
            raise ImageRefused("corrupt-data", f"a WebP chunk at byte {at} exceeds the file")
        if kind in (b"ICCP", b"EXIF", b"XMP ") and length > limits.max_metadata_bytes:
            raise ImageRefused(
                "metadata-bomb", f"a {kind.decode().strip()} chunk of {length} bytes"
            )
        frames += kind == b"ANMF"
        size = size or _webp_size(kind, body)
        at += 8 + length + length % 2
    if frames > 1:
        raise ImageRefused("animated", "a WebP of several frames")
    if size is None:
        raise ImageRefused("corrupt-data", "the WebP holds no picture")
    return size, ["trailing-data"] if len(data) > end + end % 2 else []


def _webp_size(kind: bytes, body: bytes) -> tuple[int, int] | None:
    if kind == b"VP8X" and len(body) >= 10:
        return (
            int.from_bytes(body[4:7], "little") + 1,
            int.from_bytes(body[7:10], "little") + 1,
        )
    if kind == b"VP8 " and len(body) >= 10:
        width, height = struct.unpack_from("<HH", body, 6)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and len(body) >= 5:
        (bits,) = struct.unpack_from("<I", body, 1)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


def check_bmp(data: bytes, limits: ImageLimits) -> Checked:
    """Read a BMP's header.

    Raises:
        ImageRefused: `truncated`.
    """
    del limits  # A BMP has no metadata.
    header = int.from_bytes(data[14:18], "little")
    if len(data) < 14 + header:
        raise ImageRefused("truncated", "the BMP ends within its header")
    pixels_at = int.from_bytes(data[10:14], "little")
    if header < 40:
        width, height, _, bits = struct.unpack_from("<4H", data, 18)
        packing = 0
    else:
        width, height, _, bits, packing = struct.unpack_from("<iiHHI", data, 18)
    needed = pixels_at + (abs(width) * bits + 31) // 32 * 4 * abs(height)
    if packing in (0, 3, 6) and needed > len(data):
        raise ImageRefused("truncated", f"{len(data)} bytes of {needed}")
    return (abs(width), abs(height)), []


def check_avif(data: bytes, limits: ImageLimits) -> Checked:
    """Walk an AVIF's outermost boxes (ISO/IEC 14496-12, 4.2).

    Raises:
        ImageRefused: `truncated`, `corrupt-data`, `metadata-bomb`.
    """
    seen: set[bytes] = set()
    blocks, at = 0, 0
    while at < len(data):
        blocks += 1
        if blocks > _MOST_BLOCKS:
            raise ImageRefused("corrupt-data", f"an AVIF of more than {_MOST_BLOCKS} boxes")
        head = data[at : at + 16]
        length, kind = int.from_bytes(head[:4], "big"), head[4:8]
        if length == 1:
            length = int.from_bytes(head[8:16], "big")
        elif length == 0:
            length = len(data) - at
        if {b"meta", b"mdat"} <= seen and not (kind.isalnum() and 8 <= length <= len(data) - at):
            return None, ["trailing-data"]
        if len(head) < 8 or length > len(data) - at:
            raise ImageRefused("truncated", f"{len(data)} bytes of {at + length}")
        if length < 8:
            raise ImageRefused("corrupt-data", f"no AVIF box at byte {at}")
        if kind == b"meta" and length > limits.max_metadata_bytes:
            raise ImageRefused("metadata-bomb", f"a meta box of {length} bytes")
        seen.add(kind)
        at += length
    return None, []


def check_tiff(data: bytes, limits: ImageLimits) -> Checked:
    """Read a TIFF's first directory (TIFF 6.0, sections 2, 8 and 15).

    Raises:
        ImageRefused: `truncated`, `corrupt-data`, `multi-frame`, `metadata-bomb`,
            `too-many-pixels`, `unsupported-format` (camera raw).
    """
    order = byte_order(data)
    if order is None or len(data) < 8:
        raise ImageRefused("truncated", "the TIFF ends within its header")
    first = read_directory(data, struct.unpack_from(order + "I", data, 4)[0], order)
    if not first.whole:
        raise ImageRefused("truncated", "the TIFF ends before its directory does")

    def value(tag: int) -> int | None:
        return integer(data, order, first, tag)

    if _DNG in first.entries or data[8:10] == b"CR" or (value(_NEW_SUBFILE) or 0) & 1:
        raise ImageRefused("unsupported-format", "camera raw (DNG, CR2, NEF or the like)")
    if first.following:
        raise ImageRefused("multi-frame", "a TIFF of several pages")
    for tag in (_XMP, _ICC):
        if first.entries.get(tag, (0, 0, 0))[1] > limits.max_metadata_bytes:
            raise ImageRefused("metadata-bomb", f"TIFF tag {tag} exceeds the limit")
    if (value(_TILE_WIDTH) or 0) * (value(_TILE_LENGTH) or 0) > limits.max_pixels:
        raise ImageRefused("too-many-pixels", "a tile larger than the limit")
    end = max(
        _last_byte(data, order, first, _STRIP_OFFSETS, _STRIP_BYTES),
        _last_byte(data, order, first, _TILE_OFFSETS, _TILE_BYTES),
    )
    if end > len(data):
        raise ImageRefused("truncated", f"{len(data)} bytes of {end}")
    width, height = value(_WIDTH), value(_LENGTH)
    return ((width, height) if width and height else None), []


def _last_byte(data: bytes, order: str, directory: Directory, offsets: int, lengths: int) -> int:
    """Where the last strip or tile ends."""
    starts, sizes = (_numbers(data, order, directory, tag) for tag in (offsets, lengths))
    return max((start + size for start, size in zip(starts, sizes, strict=False)), default=0)


def _numbers(data: bytes, order: str, directory: Directory, tag: int) -> tuple[int, ...]:
    kind, count, at = directory.entries.get(tag, (4, 0, 0))
    code = {3: "H", 4: "I"}.get(kind)
    if code is None or count > _MOST_STRIPS:
        raise ImageRefused("corrupt-data", f"TIFF tag {tag} is no sensible list")
    size = struct.calcsize(code) * count
    if size > 4:
        (at,) = struct.unpack_from(order + "I", data, at)
    if at + size > len(data):
        raise ImageRefused("truncated", f"{len(data)} bytes, but TIFF tag {tag} lies behind them")
    return struct.unpack_from(f"{order}{count}{code}", data, at)
