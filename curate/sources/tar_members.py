"""The members of one tar file, one after the other, from a stream that may be hostile.

The standard library reads the headers. What it is kept from: headers without end, members behind
the place it has reached, and a list of all members in memory.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import IO, Any, cast

from curate.errors import ImageRefused
from curate.sources.packed import faults_told

#: Most bytes of headers before one member: paths take 4 kB, extended attributes some more.
_LONGEST_HEADERS = 65_536

#: Most entries that hold for all members of an archive.
_MOST_GLOBAL_ENTRIES = 100

#: The library looks for numbers in time that grows with the square of their length.
_ENDLESS_NUMBER = re.compile(rb"\d{1000}")

_PIECE = 1 << 20

#: No archive is larger; operating systems refuse places far behind a file's end.
_FARTHEST = 1 << 43


#: The library's parser was not written for hostile numbers.
_HEADER_ERRORS = (tarfile.TarError, ValueError, ArithmeticError, LookupError, RecursionError)


@contextmanager
def _faults_told() -> Iterator[None]:
    """Turn what the library's readers raise into a refusal."""
    try:
        with faults_told():
            yield
    except tarfile.ReadError as error:
        if "unexpected end of data" in str(error):
            raise ImageRefused("truncated", "the archive ends within a member") from error
        raise ImageRefused("corrupt-data", f"a damaged header: {error}") from error
    except _HEADER_ERRORS as error:
        raise ImageRefused("corrupt-data", f"a damaged header: {error}") from error


class _Guarded:
    """What the library reads headers from: forwards alone, and only so many bytes of them."""

    mode = "rb"

    def __init__(self, stream: BufferedReader) -> None:
        self._stream, self._left = stream, 0
        self.last, self.short = b"", False

    def allow(self, count: int) -> None:
        self._left = count

    def read(self, size: int) -> bytes:
        if size < 0 or size > self._left:
            detail = f"a header of more than {_LONGEST_HEADERS:,} bytes"
            raise ImageRefused("metadata-bomb", detail)
        self._left -= size
        self.last = self._stream.read(size)
        self.short = len(self.last) < size
        if _ENDLESS_NUMBER.search(self.last):
            raise ImageRefused("metadata-bomb", "a header with an endless number")
        return self.last

    def seek(self, position: int) -> int:
        if position < self._stream.tell():
            raise ImageRefused("corrupt-data", "a header leads backwards")
        if position > _FARTHEST:
            raise ImageRefused("truncated", "the archive ends within a member")
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()


class Part:
    """The content of a member as a stream of its own: for a tar file within a tar file."""

    def __init__(self, stream: BufferedReader, start: int, length: int) -> None:
        self._stream, self._start, self._length = stream, start, length
        self._position = 0

    def read(self, size: int) -> bytes:
        """Some of the next bytes, none behind the member's end."""
        size = min(size, self._length - self._position)
        if size <= 0:
            return b""
        target = self._start + self._position
        if self._stream.tell() != target:
            self._stream.seek(target)
        # Reading on would lose what is whole before data that is not.
        data = self._stream.read1(size)
        self._position += len(data)
        return data

    def seek(self, position: int) -> int:
        """Go forwards; bytes are passed over when the next ones are read."""
        if position < self._position:
            raise ImageRefused("corrupt-data", "a header leads backwards")
        self._position = position
        return position

    def tell(self) -> int:
        """The place reached."""
        return self._position


class Members:
    """Iterates over the members of a tar file; ends with a refusal where the file is not whole.

    Args:
        stream: the tar file, not compressed, at its start.

    Raises:
        ImageRefused: "empty-file" or "corrupt-data": it is no tar file.
    """

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream
        self._guarded = _Guarded(stream)
        self._guarded.allow(_LONGEST_HEADERS)
        with faults_told():
            try:
                self._archive = tarfile.TarFile(
                    fileobj=cast(IO[bytes], self._guarded),
                    encoding="utf-8",
                    errors="surrogateescape",
                )
            except _HEADER_ERRORS as error:
                if stream.tell() == 0:
                    raise ImageRefused("empty-file") from error
                raise ImageRefused("corrupt-data", "no tar file") from error

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        """The members' headers.

        Raises:
            ImageRefused: "truncated", "corrupt-data", "metadata-bomb" or "unreadable": there may
                be more members, but they cannot be reached.
        """
        while (info := self._next()) is not None:
            yield info
        if self._guarded.short:
            raise ImageRefused("truncated", "the archive ends without its end mark")
        if self._guarded.last.strip(b"\0"):
            raise ImageRefused("corrupt-data", "a damaged header; the rest cannot be reached")

    def _next(self) -> tarfile.TarInfo | None:
        self._guarded.allow(_LONGEST_HEADERS)
        try:
            with _faults_told():
                info = self._archive.next()
        except ImageRefused as refusal:
            if refusal.reason == "corrupt-data" and self._guarded.short:
                raise ImageRefused("truncated", "the archive ends within a header") from refusal
            raise
        # The library would keep all of them.
        cast(Any, self._archive).members.clear()
        if len(self._archive.pax_headers) > _MOST_GLOBAL_ENTRIES:
            raise ImageRefused("metadata-bomb", "too many entries that hold for all members")
        if info is not None and (info.size < 0 or info.offset_data < 0):
            raise ImageRefused("corrupt-data", "a member of negative size")
        return info

    def content(self, info: tarfile.TarInfo) -> Part:
        """The content of the member whose header came last."""
        return Part(self._stream, info.offset_data, info.size)

    def read(self, info: tarfile.TarInfo) -> bytes:
        """All bytes of the member whose header came last.

        Raises:
            ImageRefused: "truncated": the archive ends within them.
        """
        part, pieces, left = self.content(info), [], info.size
        with _faults_told():
            while left > 0 and (piece := part.read(min(left, _PIECE))):
                pieces.append(piece)
                left -= len(piece)
        if left > 0:
            raise ImageRefused("truncated", "the archive ends within a member")
        return b"".join(pieces)
