"""The two things needed of EXIF: which way is up, and whether a position is in it.

Pillow reads EXIF too, but reports trouble through Python's warnings, which all threads share. The
structure is that of TIFF 6.0, section 2, as CIPA DC-008 (EXIF) 4.5.2 adopts it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

ORIENTATION = 274
_GPS = 34853
_GPS_VERSION = 0
_SHORT, _LONG = 3, 4


@dataclass(frozen=True)
class Directory:
    """One image file directory.

    Attributes:
        entries: tag to (type, count, position of the value or of the offset that leads to it).
        following: offset of the next directory, 0 for none.
        whole: whether the directory ends before the data does.
    """

    entries: dict[int, tuple[int, int, int]]
    following: int
    whole: bool


@dataclass(frozen=True)
class Exif:
    """What an EXIF block says.

    Attributes:
        orientation: 1 to 8; 1 where the block gives none or another value.
        has_gps: whether the GPS directory holds more than its version.
        readable: False where the block is damaged; what could be read counts all the same.
    """

    orientation: int = 1
    has_gps: bool = False
    readable: bool = True


ByteOrder = Literal["<", ">"]


def byte_order(block: bytes) -> ByteOrder | None:
    """The byte order that a TIFF header names, or None where there is no header."""
    match block[:4]:
        case b"II*\0":
            return "<"
        case b"MM\0*":
            return ">"
        case _:
            return None


def read_directory(block: bytes, offset: int, order: ByteOrder) -> Directory:
    """The directory at `offset`, as far as it lies inside `block`."""
    entries: dict[int, tuple[int, int, int]] = {}
    if not 8 <= offset <= len(block) - 2:
        return Directory(entries, 0, False)
    (count,) = struct.unpack_from(order + "H", block, offset)
    at = offset + 2
    for _ in range(count):
        if at + 12 > len(block):
            return Directory(entries, 0, False)
        tag, kind, number = struct.unpack_from(order + "HHI", block, at)
        entries.setdefault(tag, (kind, number, at + 8))
        at += 12
    # Some writers leave the final offset out; that ends the chain too.
    following = struct.unpack_from(order + "I", block, at)[0] if at + 4 <= len(block) else 0
    return Directory(entries, following, True)


def integer(block: bytes, order: ByteOrder, directory: Directory, tag: int) -> int | None:
    """The value of a tag that holds one SHORT or LONG, else None."""
    kind, count, at = directory.entries.get(tag, (0, 0, 0))
    if count != 1 or kind not in (_SHORT, _LONG):
        return None
    value: int = struct.unpack_from(order + ("H" if kind == _SHORT else "I"), block, at)[0]
    return value


def read_exif(block: bytes | None) -> Exif:
    """Read an EXIF block, with or without its `Exif` prefix; None gives the defaults."""
    if not block:
        return Exif()
    block = block.removeprefix(b"Exif\0\0")
    order = byte_order(block)
    if order is None or len(block) < 8:
        return Exif(readable=False)
    first = read_directory(block, struct.unpack_from(order + "I", block, 4)[0], order)
    orientation = integer(block, order, first, ORIENTATION) or 1
    gps_at = integer(block, order, first, _GPS)
    gps = read_directory(block, gps_at, order).entries if gps_at is not None else {}
    return Exif(
        orientation=orientation if 1 <= orientation <= 8 else 1,
        has_gps=any(tag != _GPS_VERSION for tag in gps),
        readable=first.whole,
    )
