"""What lies in a release, whoever wrote it: every file with its hash, and what its pixels are.

A folder or an archive is gone through once. No link in an archive is followed, and none in a folder
but to a single file; no name leads outside, nothing is unpacked but the texts, and of images only
some are in memory at a time.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from curate.errors import ImageRefused, UsageError
from curate.files import printable
from curate.images.decode import examine
from curate.release.layout import CLASS_MAP, IMAGE_EXTENSIONS, RELEASE_RECORD
from curate.release.reading import CHECKSUMS, LARGEST_TABLE, MANIFEST, MANIFEST_CSV, TOMBSTONES
from curate.setting_groups import ImageLimits
from curate.sources.packed import faults_told, unpacked
from curate.sources.tar_members import Members

#: What is read besides being hashed.
TEXTS = frozenset((CHECKSUMS, RELEASE_RECORD, CLASS_MAP, MANIFEST, MANIFEST_CSV, TOMBSTONES))

#: Where the texts of an archive go.
OUTER, INNER = "outer", "inner"

# An image is held in memory; what is larger is none.
_LARGEST_IMAGE = 1 << 28
_PIECE = 1 << 20

# Of other people's datasets nobody knows the limits. What has more pixels than usual is decoded one
# at a time.
_LIMITS = ImageLimits(max_bytes=_LARGEST_IMAGE, min_side=1, max_aspect_ratio=1e9)
_WIDER = ImageLimits(max_bytes=_LARGEST_IMAGE, max_pixels=1 << 28, min_side=1, max_aspect_ratio=1e9)
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Seen:
    """One thing that lies in a release.

    Attributes:
        path: within it, with slashes, printable.
        fault: why it was not read (a key of `curate.errors.REASONS`); empty for a file.
        sha256: of its bytes; empty where it was not read.
        size: of the upright picture, in pixels; None where it is no image, or not a sound one.
        refusal: why its pixels cannot be had; empty where they can, or where it is no image.
        linked: whether it is a link to a file that lies elsewhere, whose bytes these are.
    """

    path: str
    fault: str = ""
    sha256: str = ""
    size: tuple[int, int] | None = None
    refusal: str = ""
    linked: bool = False

    @property
    def is_image(self) -> bool:
        """Whether loaders take it for an image."""
        return self.path.lower().endswith(IMAGE_EXTENSIONS)

    def within(self) -> Seen:
        """The same, seen from within the folder that its path begins with."""
        return replace(self, path=self.path.partition("/")[2])


@dataclass(frozen=True)
class Waiting:
    """Something that is still to be read; `look` may be called from any thread."""

    path: str
    look: Callable[[], Seen]

    def read(self) -> Seen:
        """Look at it."""
        return self.look()


def in_folder(root: Path) -> Iterator[Waiting]:
    """Everything below a folder but folders that hold something.

    An empty folder, which no list of checksums names, is told as "not-a-file". Caches of datasets
    keep each file once and link to it from every version, so that a link is read where it leads to
    a regular file of its own owner on the same disk; any other is told as "symlink".

    Raises:
        UsageError: `root` cannot be listed.
    """
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        name = printable(folder.relative_to(root).as_posix())
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
            disk = folder.stat().st_dev
        except OSError as error:
            if folder == root:
                raise UsageError(f"cannot read {printable(root)}: {error.strerror}") from error
            yield _told(Seen(name, "unreadable"))
            continue
        if not entries and folder != root:
            yield _told(Seen(name, "not-a-file"))
        for entry in entries:
            path = Path(entry.path)
            name = printable(path.relative_to(root).as_posix())
            if entry.is_symlink():
                if _leads_to_a_file(entry, disk):
                    yield Waiting(name, _Look(name, path, linked=True))
                else:
                    yield _told(Seen(name, "symlink"))
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            elif not entry.is_file(follow_symlinks=False):
                yield _told(Seen(name, "not-a-file"))
            else:
                yield Waiting(name, _Look(name, path))


def _leads_to_a_file(link: os.DirEntry[str], disk: int) -> bool:
    """Whether a link may be read: what the system makes up as it is read lies on no such disk."""
    try:
        own, there = link.stat(follow_symlinks=False), Path(link.path).stat()
    except OSError:
        return False
    return stat.S_ISREG(there.st_mode) and (there.st_dev, there.st_uid) == (disk, own.st_uid)


class Damaged(ImageRefused):
    """One member of an archive cannot be read; those after it can."""


class Readable(Protocol):
    """The content of a member of an archive."""

    def read(self, size: int, /) -> bytes:
        """At most `size` of the next bytes; none at the end.

        Raises:
            Damaged: they cannot be had.
            ImageRefused: nor can any behind them.
        """


@dataclass(frozen=True)
class Member:
    """One member of an archive.

    Attributes:
        name: as the archive says, whatever that is.
        size: of its content, as the archive says.
        fault: why it is not read (a key of `curate.errors.REASONS`); empty for a file.
        content: opens it; may be called once, before the next member is asked for.
    """

    name: str
    size: int = 0
    fault: str = ""
    content: Callable[[], Readable] = io.BytesIO


def in_tar(path: Path, texts: Path) -> Iterator[Waiting]:
    """Every member of a tar file but folders, which may be compressed.

    Args:
        path: the file.
        texts: as `in_archive` wants it.

    Raises:
        ImageRefused: the archive cannot be read on; what was told before is sound.
    """
    with path.open("rb") as stream:
        yield from in_archive(_in_tar(Members(unpacked(stream))), texts)


def _in_tar(members: Members) -> Iterator[Member]:
    for info in members:
        if info.isdir():
            continue
        link = "symlink" if info.issym() or info.islnk() else ""
        fault = link or ("" if info.isreg() else "not-a-file")
        yield Member(info.name, info.size, fault, partial(members.content, info))


def in_archive(members: Iterable[Member], texts: Path) -> Iterator[Waiting]:
    """Every member of an archive.

    Args:
        members: all but folders.
        texts: an empty folder, which gets the `TEXTS`: those that lie in no folder go to its folder
            `OUTER`, those one folder down to `INNER`, since most archives hold a single folder.

    Raises:
        ImageRefused: the archive cannot be read on; what was told before is sound.
    """
    kept = 0
    for member in members:
        # As `tar -c .` writes them.
        inner = member.name.removeprefix("./")
        name = printable(inner)
        if member.fault:
            yield _told(Seen(name, member.fault))
        elif not is_inside(inner):
            yield _told(Seen(name, "outside"))
        else:
            if _is_text(inner):
                kept += member.size
            if kept > 2 * LARGEST_TABLE:
                raise ImageRefused("too-many-bytes", "its lists are too large")
            try:
                yield _read(member, inner, texts)
            except Damaged:
                yield _told(Seen(name, "unreadable"))


def _read(member: Member, inner: str, texts: Path) -> Waiting:
    name = printable(inner)
    if _is_text(inner):
        folder = texts / (INNER if "/" in inner else OUTER)
        folder.mkdir(exist_ok=True)
        with (folder / inner.rpartition("/")[2]).open("wb") as copy:
            return _told(Seen(name, sha256=_hash(member, copy)))
    if Seen(name).is_image and member.size <= _LARGEST_IMAGE:
        return Waiting(name, _Look(name, data=b"".join(_pieces(member))))
    seen = Seen(name, sha256=_hash(member))
    return _told(replace(seen, refusal="too-many-bytes" if seen.is_image else ""))


def _is_text(inner: str) -> bool:
    return inner.rpartition("/")[2] in TEXTS and inner.count("/") <= 1


def is_inside(path: str) -> bool:
    """Whether a path is plain: relative, downwards, and the same on every system."""
    parts = path.split("/")
    return not any(
        part in ("", ".", "..") or "\\" in part or not part.isprintable() for part in parts
    )


def _told(seen: Seen) -> Waiting:
    return Waiting(seen.path, lambda: seen)


@dataclass(frozen=True)
class _Look:
    name: str
    path: Path | None = None
    data: bytes | None = None
    linked: bool = False

    def __call__(self) -> Seen:
        seen, data = Seen(self.name, linked=self.linked), self.data
        try:
            if data is None:
                assert self.path is not None
                size = self.path.stat().st_size
                if not seen.is_image or size > _LARGEST_IMAGE:
                    refusal = "too-many-bytes" if seen.is_image else ""
                    with self.path.open("rb") as stream:
                        digest = hashlib.file_digest(stream, "sha256").hexdigest()
                    return replace(seen, sha256=digest, refusal=refusal)
                data = self.path.read_bytes()
        except OSError:
            return replace(seen, fault="unreadable")
        seen = replace(seen, sha256=hashlib.sha256(data).hexdigest())
        try:
            return replace(seen, size=_size(data))
        except ImageRefused as refusal:
            return replace(seen, refusal=str(refusal))


def _size(data: bytes) -> tuple[int, int]:
    try:
        info = examine(data, _LIMITS)
    except ImageRefused as refusal:
        if refusal.reason != "too-many-pixels":
            raise
        with _one_at_a_time:
            info = examine(data, _WIDER)
    return info.width, info.height


def _hash(member: Member, copy: IO[bytes] | None = None) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(member):
        digest.update(piece)
        if copy is not None:
            copy.write(piece)
    return digest.hexdigest()


def _pieces(member: Member) -> Iterator[bytes]:
    content, left = member.content(), member.size
    while left > 0:
        with faults_told():
            piece = content.read(min(left, _PIECE))
        if not piece:
            raise ImageRefused("truncated", "the archive ends within a member")
        yield piece
        left -= len(piece)
