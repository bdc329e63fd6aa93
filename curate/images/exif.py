"""What is needed of EXIF: which way is up, whether a position is in it, and it without that.

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

_EXIF_DIRECTORY = 34665
# Where it was taken, whose camera and lens these are, and what makers and owners write freely: a
# position, the owner's other devices and faces are in such notes.
_PRIVATE_TAGS = frozenset(
    (
        _GPS,
        700,  # XMP
        37500,  # the maker's note
        37510,  # the user's comment
        42016,  # the image's unique id, which some makers build from a serial number
        42032,  # the camera's owner
        42033,  # its serial number
        42037,  # the lens's
        50735,  # the camera's, as DNG writes it
        316,  # the computer, often called after its owner
    )
)
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}


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


def only_orientation(orientation: int) -> bytes:
    """The smallest EXIF block that says which way is up.

    Args:
        orientation: 1 to 8.
    """
    return struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, ORIENTATION, _SHORT, 1, orientation, 0, 0)


def without_private(block: bytes) -> bytes | None:
    """An EXIF block or a TIFF file without positions, owners, serial numbers and makers' notes.

    It keeps its length and every other value its place: entries are taken out of their
    directories, and what they led to is filled with zeros.

    Args:
        block: with or without its `Exif` prefix.

    Returns:
        The same bytes where there is nothing to remove; None where the block is damaged.
    """
    body = block.removeprefix(b"Exif\0\0")
    order = byte_order(body)
    if order is None or len(body) < 8:
        return None
    changed = bytearray(body)
    waiting = [struct.unpack_from(order + "I", body, 4)[0]]
    seen: set[int] = set()
    while waiting:
        offset = waiting.pop()
        if offset in seen:
            continue
        seen.add(offset)
        directory = read_directory(body, offset, order)
        if not directory.whole:
            return None
        inner = integer(body, order, directory, _EXIF_DIRECTORY)
        waiting += [each for each in (inner, directory.following) if each]
        if not _PRIVATE_TAGS.isdisjoint(directory.entries):
            _take_out(changed, body, offset, order)
    return block if changed == body else block[: len(block) - len(body)] + bytes(changed)


def _take_out(changed: bytearray, body: bytes, offset: int, order: ByteOrder) -> None:
    """Take the private entries out of the directory at `offset`."""
    (count,) = struct.unpack_from(order + "H", body, offset)
    at = offset + 2
    kept = []
    for _ in range(count):
        tag = struct.unpack_from(order + "H", body, at)[0]
        if tag in _PRIVATE_TAGS:
            if tag == _GPS:
                _blank_directory(changed, body, struct.unpack_from(order + "I", body, at + 8)[0])
            _blank_value(changed, body, at, order)
        else:
            kept.append(body[at : at + 12])
        at += 12
    following = body[at : at + 4]
    new = struct.pack(order + "H", len(kept)) + b"".join(kept) + following
    changed[offset : at + len(following)] = new.ljust(at + len(following) - offset, b"\0")


def _blank_directory(changed: bytearray, body: bytes, offset: int) -> None:
    order = byte_order(body)
    assert order is not None
    directory = read_directory(body, offset, order)
    for _, _, value_at in directory.entries.values():
        _blank_value(changed, body, value_at - 8, order)
    if directory.entries:
        end = max(value_at for _, _, value_at in directory.entries.values()) + 4
        changed[offset:end] = bytes(end - offset)


def _blank_value(changed: bytearray, body: bytes, at: int, order: ByteOrder) -> None:
    """Blank what the entry at `at` leads to."""
    kind, count, value = struct.unpack_from(order + "HII", body, at + 2)
    size = _SIZES.get(kind, 1) * count
    if size > 4 and 8 <= value <= len(body):
        end = min(value + size, len(body))
        changed[value:end] = bytes(end - value)
