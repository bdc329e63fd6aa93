"""Compressed streams that may be bombs, read forwards in bounded pieces."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Protocol

from curate.errors import ImageRefused

#: Photos hardly get smaller by packing, lists to a twentieth: what unpacks to so many times its
#: size is there to keep machines busy. Small ones do no harm.
_MOST_TIMES = 100
_HARMLESS = 1 << 30

_LONGEST_STEP = 64 << 20


class Stream(Protocol):
    """Bytes that are read forwards only."""

    def read(self, size: int, /) -> bytes:
        """At most `size` of the next bytes; fewer only at the end."""

    def seek(self, position: int, /) -> int:
        """Go forwards to a place, counted from the start."""

    def tell(self) -> int:
        """The place reached."""


def weigh(unpacked: int, packed: int) -> None:
    """Refuse what unpacks to so many bytes from so few.

    Raises:
        ImageRefused: "corrupt-data": it is a bomb.
    """
    if unpacked > _HARMLESS and unpacked > _MOST_TIMES * packed:
        raise ImageRefused("corrupt-data", f"it unpacks to over {_MOST_TIMES} times its size")


def unpacked(stream: IO[bytes] | Stream) -> io.BufferedReader:
    """The content of a stream that may be compressed with gzip, bzip2 or xz, as its start tells.

    It is read forwards only, and never more of it is unpacked at a time than was asked for.

    Args:
        stream: at its start.

    Raises:
        ImageRefused: its first bytes cannot be read.
    """
    packed = _buffered(stream)
    with faults_told():
        start = packed.peek(6)[:6]
    if start.startswith(b"\x1f\x8b"):
        return _buffered(_Unpacked(gzip.GzipFile(fileobj=packed, mode="rb"), packed))
    if start.startswith(b"BZh"):
        return _buffered(_Unpacked(bz2.BZ2File(packed), packed))
    if start.startswith(b"\xfd7zXZ\0"):
        return _buffered(_Unpacked(lzma.LZMAFile(packed), packed))
    return packed


def _buffered(stream: IO[bytes] | Stream) -> io.BufferedReader:
    return io.BufferedReader(_Raw(stream), 65_536)


class _Unpacked:
    """What a compressed stream unpacks to, as long as that is no bomb."""

    def __init__(self, stream: gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile, packed: Stream) -> None:
        self._stream, self._packed = stream, packed

    def read(self, size: int) -> bytes:
        # Reading on would lose what is whole before data that is not.
        data = self._stream.read1(size)
        self._weigh()
        return data

    def seek(self, position: int) -> int:
        while (here := self.tell()) < position:
            target = min(position, here + _LONGEST_STEP)
            self._stream.seek(target)
            self._weigh()
            if self.tell() < target:
                break
        return self.tell()

    def tell(self) -> int:
        return self._stream.tell()

    def _weigh(self) -> None:
        weigh(self.tell(), self._packed.tell())


class _Raw(io.RawIOBase):
    """A stream in the form that the standard library's readers want."""

    def __init__(self, stream: IO[bytes] | Stream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, position: int, whence: int = 0) -> int:
        if whence == 1:
            position += self.tell()
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()


@contextmanager
def faults_told() -> Iterator[None]:
    """Turn what readers of compressed streams raise into a refusal."""
    try:
        yield
    except EOFError:
        raise ImageRefused("truncated", "the compressed data ends early") from None
    except (zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ImageRefused("corrupt-data", f"the compressed data is damaged: {error}") from error
    except OSError as error:
        if error.errno is None:
            detail = f"the compressed data is damaged: {error}"
            raise ImageRefused("corrupt-data", detail) from error
        raise ImageRefused("unreadable", error.strerror or str(error)) from error
