"""What lies in a release that is a zip file, as hosts of datasets hand folders out.

The standard library reads it. What it is kept from: a list of members that fills the memory, ways
of packing whose steps have no bound, and more bytes than a sound archive of that size holds.
"""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, cast

from curate.errors import ImageRefused
from curate.release.contents import Damaged, Member, Readable, Waiting, in_archive
from curate.sources.packed import weigh

#: How zip files begin, one without members among them.
_STARTS = (b"PK\x03\x04", b"PK\x05\x06")

# Most bytes of the list of members, which the library holds as a whole: a hundred or so for each.
_LONGEST_LIST = 1 << 28

#: Other ways of packing unpack without a bound, or are unknown to the library.
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

_ENCRYPTED = 1
_UNIX = 3

# The library's parser was not written for hostile numbers.
_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, LookupError, NotImplementedError)


def is_zip(path: Path) -> bool:
    """Whether a file begins as a zip file does."""
    with path.open("rb") as stream:
        return stream.read(4) in _STARTS


def in_zip(path: Path, texts: Path) -> Iterator[Waiting]:
    """Every member of a zip file but folders, in the order of its list.

    Args:
        path: the file.
        texts: as `curate.release.contents.in_archive` wants it.

    Raises:
        ImageRefused: the archive cannot be read on; what was told before is sound.
    """
    with path.open("rb") as stream:
        guarded = _Guarded(stream)
        try:
            archive = zipfile.ZipFile(cast(IO[bytes], guarded))
        except _ERRORS as error:
            raise ImageRefused("corrupt-data", f"no whole zip file: {error}") from error
        yield from in_archive(_Members(archive, path.stat().st_size), texts)


class _Guarded:
    """A file of which only so much is read at a time."""

    mode = "rb"

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.seek, self.tell = stream.seek, stream.tell

    def seekable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Some bytes; what asks for more than a list of members may have is refused."""
        if size > _LONGEST_LIST:
            raise ImageRefused("metadata-bomb", "its list of members is too long")
        return self._stream.read(size if size >= 0 else _LONGEST_LIST)

    def close(self) -> None:
        """Whoever has opened it closes it."""


class _Members:
    def __init__(self, archive: zipfile.ZipFile, packed: int) -> None:
        self._archive, self._packed = archive, packed
        self._unpacked = 0

    def __iter__(self) -> Iterator[Member]:
        for info in self._archive.infolist():
            if info.is_dir():
                continue
            # The library cuts names off at a NUL.
            fault = _fault(info)
            yield Member(info.orig_filename, info.file_size, fault, partial(self._open, info))

    def _open(self, info: zipfile.ZipInfo) -> Readable:
        try:
            return _Content(self, self._archive.open(info), info.orig_filename)
        except _ERRORS as error:
            raise _damaged(info.orig_filename, error) from error

    def count(self, more: int) -> None:
        """Add what was unpacked: members may share their bytes, so that each alone is no bomb."""
        self._unpacked += more
        weigh(self._unpacked, self._packed)


class _Content:
    def __init__(self, members: _Members, stream: IO[bytes], name: str) -> None:
        self._members, self._stream, self._name = members, stream, name

    def read(self, size: int) -> bytes:
        """Some of the next bytes; that they are right is known after the last ones."""
        try:
            data = self._stream.read(size)
        except _ERRORS as error:
            raise _damaged(self._name, error) from error
        self._members.count(len(data))
        return data


def _damaged(name: str, error: Exception) -> Damaged:
    return Damaged("corrupt-data", f"the member {name!r} is damaged: {error}")


def _fault(info: zipfile.ZipInfo) -> str:
    kind = stat.S_IFMT(info.external_attr >> 16) if info.create_system == _UNIX else 0
    if kind == stat.S_IFLNK:
        return "symlink"
    if kind not in (0, stat.S_IFREG):
        return "not-a-file"
    if info.flag_bits & _ENCRYPTED or info.compress_type not in _PACKINGS:
        return "unreadable"
    return ""
