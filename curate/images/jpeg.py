"""JPEG: its segments, and whether its coefficients are sound (ITU-T T.81).

JPEG has no checksum, and libjpeg mends what it can and goes on: a cut or rotten photo decodes to a
smeared one without an error. Two checks find most damage:

- libjpeg's warnings, made errors;
- samples that no encoder could have written. An encoder transforms samples in 0..255 and rounds
  each coefficient to a multiple of its quantisation step, so the transform back, before it is
  clamped, leaves 0..255 by no more than that rounding explains. Damaged data do not know this.

What passes both may still be damaged, where the wrong bits happen to decode to a plausible picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from curate.errors import ImageRefused
from curate.images import jpeg_samples

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SOI, _EOI, _SOS, _DQT, _DHT = 0xD8, 0xD9, 0xDA, 0xDB, 0xC4
_ADOBE, _COMMENT = 0xEE, 0xFE
_APPLICATION = range(0xE0, 0xF0)
_FRAMES = frozenset(range(0xC0, 0xD0)) - {_DHT, 0xC8, 0xCC}
_HIERARCHICAL = {0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF}
# The block transform; the lossless processes have none.
_HUFFMAN_WITH_BLOCKS = {0xC0, 0xC1, 0xC2}
_WITH_BLOCKS = _HUFFMAN_WITH_BLOCKS | {0xC9, 0xCA}
_JPEG_LS = 0xF7
_EXIF_PREFIX = b"Exif\0\0"
_ICC_PREFIX = b"ICC_PROFILE\0"

# The next marker in entropy-coded data, where FF00 is a byte and FFD0..FFD7 are restarts. Without
# a repetition: on a long run of FF that would take quadratic time.
_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
_MARKER = re.compile(rb"\xff+[^\xff]", re.DOTALL)

# A progressive photo has about ten scans. Each costs a pass over the whole image, a few bytes buy
# one, and so thousands of them keep a decoder busy for hours.
_MOST_SCANS = 200
_MOST_SEGMENTS = 10_000
_MOST_FILL_BYTES = 10_000

_DAMAGE = re.compile("Corrupt JPEG data|Premature end|Inconsistent progression")


class Segment(NamedTuple):
    """One marker segment: its code, where it starts (at FF), and its content's limits."""

    marker: int
    at: int
    start: int
    end: int


@dataclass(frozen=True)
class Jpeg:
    """What the segments of a JPEG say.

    Attributes:
        size: width and height as stored.
        frame: the frame header's marker (0xC0 baseline, 0xC2 progressive ...).
        precision: bits a sample.
        components: (sampling factors as horizontal << 4 | vertical, quantisation table), each.
        segments: all marker segments, in order.
        end: position behind the end marker.
        is_multi_picture: whether it is the first picture of an MPO file (CIPA DC-007).
    """

    size: tuple[int, int]
    frame: int
    precision: int
    components: tuple[tuple[int, int], ...]
    segments: tuple[Segment, ...]
    end: int
    is_multi_picture: bool


def walk(data: bytes) -> Jpeg:
    """Follow the markers from the start to the end marker.

    Raises:
        ImageRefused: `truncated`, `corrupt-data`, `unsupported-format` (JPEG-LS, hierarchical).
    """
    segments: list[Segment] = []
    frame: Segment | None = None
    scans, at = 0, 2
    while True:
        found = (_MARKER_IN_SCAN.search if scans else _MARKER.match)(data, at)
        if found is None:
            raise _broken(data, scans, at)
        marker, start = data[found.end() - 1], found.end()
        if marker == _EOI:
            break
        if found.end() - found.start() > _MOST_FILL_BYTES:
            raise ImageRefused("corrupt-data", f"only fill bytes from byte {found.start()} on")
        if marker == _JPEG_LS:
            raise ImageRefused("unsupported-format", "JPEG-LS")
        if marker < 0xC0 or 0xD0 <= marker <= _SOI:
            raise ImageRefused("corrupt-data", f"a marker FF{marker:02X} out of place")
        end = start + int.from_bytes(data[start : start + 2], "big")
        if end < start + 2 or end > len(data):
            raise _broken(data, scans, at)
        segments.append(Segment(marker, found.start(), start + 2, end))
        if marker in _FRAMES:
            if frame is not None:
                raise ImageRefused("corrupt-data", "two frame headers")
            frame = segments[-1]
        scans += marker == _SOS
        if scans > _MOST_SCANS or len(segments) > _MOST_SEGMENTS:
            raise ImageRefused("corrupt-data", "more scans or segments than any photo has")
        at = end
    if frame is None or not scans:
        raise ImageRefused("corrupt-data", "the JPEG ends before any picture")
    return _describe(data, frame, segments, found.end())


def _broken(data: bytes, scans: int, at: int) -> ImageRefused:
    if data.endswith(b"\xff\xd9") and (scans or at < len(data) - 2):
        return ImageRefused("corrupt-data", f"the JPEG's segments break off at byte {at}")
    return ImageRefused("truncated", "the JPEG ends before its end marker")


def _describe(data: bytes, frame: Segment, segments: list[Segment], end: int) -> Jpeg:
    if frame.marker in _HIERARCHICAL:
        raise ImageRefused("unsupported-format", "hierarchical JPEG")
    body = data[frame.start : frame.end]
    if len(body) < 6 or len(body) != 6 + 3 * body[5]:
        raise ImageRefused("corrupt-data", "a malformed frame header")
    return Jpeg(
        size=(int.from_bytes(body[3:5], "big"), int.from_bytes(body[1:3], "big")),
        frame=frame.marker,
        precision=body[0],
        components=tuple((body[i + 1], body[i + 2]) for i in range(6, len(body), 3)),
        segments=tuple(segments),
        end=end,
        is_multi_picture=any(
            s.marker == 0xE2 and data.startswith(b"MPF\0", s.start, s.end) for s in segments
        ),
    )


def header(data: bytes) -> Iterator[Segment]:
    """The segments before the first scan, as far as they are whole."""
    at = 2
    while (found := _MARKER.match(data, at)) is not None:
        marker, start = data[found.end() - 1], found.end() + 2
        end = start - 2 + int.from_bytes(data[start - 2 : start], "big")
        if not 0xC0 <= marker <= 0xFE or marker in (_SOS, _EOI) or not start <= end <= len(data):
            break
        yield Segment(marker, found.start(), start, end)
        at = end


def take_apart(data: bytes) -> tuple[bytes, bytes | None, bytes | None]:
    """Separate what makes the pixels from the metadata, checking nothing.

    Pillow would read the metadata while opening, and report trouble through Python's warnings,
    which all threads share.

    Returns:
        The file without its metadata, for the decoder; the EXIF block; and the ICC profile (ICC.1,
        annex B.4), empty where a piece of it is missing.
    """
    kept: list[memoryview] = []
    exif: list[bytes] = []
    profile: list[bytes] = []
    view = memoryview(data)
    done = 0
    for segment in header(data):
        marker, start, end = segment.marker, segment.start, segment.end
        if marker in _APPLICATION or marker == _COMMENT:
            if marker == 0xE1 and data.startswith(_EXIF_PREFIX, start, end):
                exif.append(data[start + len(_EXIF_PREFIX) : end])
            elif marker == 0xE2 and data.startswith(_ICC_PREFIX, start, end):
                profile.append(data[start + len(_ICC_PREFIX) : end])
            # These two decide how libjpeg reads the colours.
            if marker != _ADOBE and not (marker == 0xE0 and data.startswith(b"JFIF\0", start, end)):
                kept.append(view[done : segment.at])
                done = end
    pixels = b"".join([*kept, view[done:]]) if done else data
    return pixels, b"".join(exif) or None, _join(profile)


def _join(pieces: list[bytes]) -> bytes | None:
    """An ICC profile from its pieces, each with its number and how many there are in front."""
    if not pieces:
        return None
    pieces = sorted(pieces)
    numbers = [(piece[0], piece[1]) for piece in pieces if len(piece) >= 2]
    if numbers != [(number, len(pieces)) for number in range(1, len(pieces) + 1)]:
        return b""
    return b"".join(piece[2:] for piece in pieces)


def check_pixels(data: bytes, jpeg: Jpeg) -> NDArray[np.float64] | None:
    """Decode strictly, and refuse what no encoder could have written.

    Only luminance is looked at, full size and without colour conversion. To see it before clamping,
    it is decoded twice, with the quantisation steps halved (rounded up, rounded down): the halves
    stay inside 0..255 where their sum does not. Mostly the first half settles it.

    Returns:
        About one sample of luminance a block, in grey levels, of a plain JPEG: one that any decoder
        takes which took this. None of another one.

    Raises:
        ImageRefused: `corrupt-data`, `unsupported-mode`.
    """
    import simplejpeg

    if jpeg.precision != 8 or len(jpeg.components) not in (1, 3, 4):
        raise ImageRefused(
            "unsupported-mode",
            f"a JPEG of {len(jpeg.components)} components of {jpeg.precision} bits",
        )
    high = _half(data, jpeg, is_upper=True)
    try:
        colours = simplejpeg.decode_jpeg_header(high, strict=False)[2]
        if colours not in ("Gray", "YCbCr"):
            space = "CMYK" if len(jpeg.components) == 4 else "RGB"
            simplejpeg.decode_jpeg(high, space, min_height=1, min_width=1)
            return None
        upper = simplejpeg.decode_jpeg(high, "GRAY")[..., 0]
        steps = _quantisation(data, jpeg)
        if steps is None:
            return None
        # Steps of 1 have no lower halves, and clamped samples alone are never outside.
        if steps.max() > 1 and not jpeg_samples.upper_halves_suffice(upper, steps):
            low = _half(data, jpeg, is_upper=False)
            lower = simplejpeg.decode_jpeg(low, "GRAY")[..., 0]
            jpeg_samples.check(lower, upper, steps)
    except ValueError as error:
        # Other complaints are of what this wrapper cannot do; the decoder proper will say more.
        if _DAMAGE.search(str(error)):
            raise ImageRefused("corrupt-data", str(error)) from error
        return None
    return jpeg_samples.luminance(upper, steps) if _is_plain(jpeg) else None


def _is_plain(jpeg: Jpeg) -> bool:
    """Whether libjpeg, however it is built, can decode the colours if it can luminance."""
    first = jpeg.components[0][0]
    return jpeg.frame in _HUFFMAN_WITH_BLOCKS and all(
        (first >> 4) % (factors >> 4) == 0 and (first & 15) % (factors & 15) == 0
        for factors, _ in jpeg.components
    )


def _half(data: bytes, jpeg: Jpeg, *, is_upper: bool) -> bytes:
    """The file with the upper or with the lower half of each quantisation step.

    Segments that have no part in decoding are left out: libjpeg warns of oddities in some.
    """
    parts: list[bytes | memoryview] = []
    view = memoryview(data)
    done = 0
    for segment in jpeg.segments:
        dropped = segment.marker == _COMMENT or (
            segment.marker in _APPLICATION and segment.marker != _ADOBE
        )
        if not dropped and segment.marker != _DQT:
            continue
        parts.append(view[done : segment.at])
        done = segment.end
        if segment.marker == _DQT:
            parts.append(view[segment.at : segment.start])
            for label, table in _tables(data, segment):
                half = table - table // 2 if is_upper else table // 2
                parts.append(bytes([label]) + half.tobytes())
    parts.append(view[done : jpeg.end])
    return b"".join(parts)


def _tables(data: bytes, segment: Segment) -> Iterator[tuple[int, NDArray[np.uint8 | np.uint16]]]:
    """The tables of a DQT segment, in zigzag order: precision << 4 | number, and 64 steps."""
    import numpy as np

    at = segment.start
    while at < segment.end:
        label = data[at]
        kind = np.dtype(">u2" if label >> 4 else "u1")
        if at + 1 + 64 * kind.itemsize > segment.end:
            raise ImageRefused("corrupt-data", "a malformed quantisation table")
        yield label, np.frombuffer(data, kind, 64, at + 1)
        at += 1 + 64 * kind.itemsize


def _quantisation(data: bytes, jpeg: Jpeg) -> NDArray[np.float64] | None:
    """Luminance's steps [8, 8], or None where its blocks cannot be told from the samples."""
    sampling, number = jpeg.components[0]
    found = [
        table
        for segment in jpeg.segments
        if segment.marker == _DQT
        for label, table in _tables(data, segment)
        if label & 15 == number
    ]
    horizontal = max(factors >> 4 for factors, _ in jpeg.components)
    vertical = max(factors & 15 for factors, _ in jpeg.components)
    largest = sampling == horizontal << 4 | vertical
    if jpeg.frame not in _WITH_BLOCKS or len(found) != 1 or not largest:
        return None
    return _from_zigzag(found[0])


def _from_zigzag(table: NDArray[np.uint8 | np.uint16]) -> NDArray[np.float64]:
    import numpy as np

    steps = np.empty(64)
    steps[_zigzag()] = table
    return steps.reshape(8, 8)


@cache
def _zigzag() -> NDArray[np.intp]:
    """Where the coefficients of a table belong in the rows of a block (T.81, figure A.6)."""
    import numpy as np

    # Antidiagonals in turn, odd ones downwards.
    order = sorted(
        np.ndindex(8, 8), key=lambda p: (p[0] + p[1], p[0] if (p[0] + p[1]) % 2 else p[1])
    )
    return np.array([8 * row + column for row, column in order])
