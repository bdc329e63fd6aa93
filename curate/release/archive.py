"""Tar archives whose bytes depend on the members' names and content alone."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from curate.errors import VerificationError
from curate.files import printable
from curate.progress import Bar
from curate.release.build import CHECKSUMS
from curate.release.hashed import HashedFile
from curate.release.packable import Packable


@dataclass(frozen=True)
class PackedFile:
    """One file that packing wrote.

    Attributes:
        path: within the folder of its form, with slashes.
        bytes: its length.
        sha256: of its content.
        images: how many it holds.
        split: whose; None for all of them.
    """

    path: str
    bytes: int
    sha256: str
    images: int
    split: str | None = None


def packed(file: HashedFile, folder: Path, images: int, split: str | None = None) -> PackedFile:
    """What a finished file is, seen from `folder`."""
    path = file.path.relative_to(folder).as_posix()
    return PackedFile(path, file.tell(), file.sha256, images, split)


class Archive:
    """An archive being written: no owner, no time, plain files with mode 644.

    `tarfile` makes the headers. Its own archive would keep a list of all members.
    """

    def __init__(self, stream: HashedFile) -> None:
        self._stream = stream

    def add(self, name: str, data: bytes) -> None:
        """Add a file."""
        self.add_pieces(name, len(data), (data,))

    def add_pieces(self, name: str, size: int, pieces: Iterable[bytes]) -> None:
        """Add a file that is `size` bytes long, piece by piece.

        Raises:
            VerificationError: it is longer or shorter.
        """
        self._stream.write(_header(name, size))
        written = 0
        for piece in pieces:
            written += self._stream.write(piece)
        if written != size:
            raise VerificationError(f"{name!r} changed while it was packed; run again")
        self._stream.write(bytes(-size % tarfile.BLOCKSIZE))

    def close(self) -> None:
        """Write the end: two empty blocks, and as many more as fill a record."""
        self._stream.write(bytes(2 * tarfile.BLOCKSIZE))
        self._stream.write(bytes(-self._stream.tell() % tarfile.RECORDSIZE))


def _header(name: str, size: int) -> bytes:
    """What stands before a member; where ustar can hold it, ten times as fast as `tarfile`."""
    if name.isascii() and len(name) <= tarfile.LENGTH_NAME and size < _LARGEST_USTAR:
        fields = name.encode().ljust(tarfile.LENGTH_NAME, b"\0"), f"{size:011o}".encode()
        checksum = _EMPTY_SUM + sum(fields[0]) + sum(fields[1])
        return (
            b"".join(
                (fields[0], _EMPTY[100:124], fields[1], _EMPTY[135:148], f"{checksum:06o}".encode())
            )
            + _EMPTY[154:]
        )
    return _by_tarfile(name, size)


def _by_tarfile(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o644, 0
    # What ustar cannot hold, long names and letters beyond ASCII, becomes a pax header.
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


_LARGEST_USTAR = 8**11

# The header of a file without name and bytes; the sum of a header counts neither digits of its own.
_EMPTY = _by_tarfile("", 0)
_EMPTY_SUM = int(_EMPTY[148:154], 8) - sum(b"0" * 11)


@contextmanager
def new_archive(path: Path) -> Iterator[tuple[Archive, HashedFile]]:
    """A new archive, and its file, which is closed at the end."""
    with HashedFile(path, apart=True) as stream:
        archive = Archive(stream)
        yield archive, stream
        archive.close()


def write_tar(release: Packable, folder: Path, bar: Bar) -> list[PackedFile]:
    """Write `VERSION.tar`: all files of the release below `VERSION/`, sorted by path.

    Args:
        release: what to pack.
        folder: where to.
        bar: advanced by one an image.
    """
    top = str(release.version)
    images = {image.path: image for image in release.images}
    bytes_of = release.read(release.images)
    with new_archive(folder / f"{top}.tar") as (archive, stream):
        for path in sorted([*release.sums, CHECKSUMS], key=str.encode):
            if path in images:
                image, data = next(bytes_of)
                assert image.path == path, printable(path)
                archive.add(f"{top}/{path}", data)
                bar.advance()
            else:
                pieces = release.pieces_of(path)
                archive.add_pieces(f"{top}/{path}", release.sizes[path], pieces)
    return [packed(stream, folder, len(images))]
