"""Tar files of images in the layout of ImageNet-21k, read without unpacking them.

A tar file a class (`n01440764.tar`), several in a folder or in one tar file, or class folders in a
tar file (`train/n01440764/…`). Each may be compressed with gzip, bzip2 or xz. Nothing is written,
no link is followed, and no name is used as a path.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from curate.errors import ImageRefused, UsageError
from curate.files import printable
from curate.sources.folder import LITTER
from curate.sources.locators import locator_of
from curate.sources.packed import unpacked
from curate.sources.protocol import Cursor, Hit, Query, clean
from curate.sources.tar_members import Members

#: The name of this source in the catalogue.
NAME = "tar"

_TAR_NAME = re.compile(r"\.(?:tar(?:\.(?:gz|bz2|xz))?|tgz|tbz2?|txz)$", re.IGNORECASE)
_WNID = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class _Place:
    """A tar file: what its members' locators begin with, its own class, where a search is in it."""

    locator: str
    stem: str
    cursor: Cursor
    #: Members that an earlier search has passed, here and in the tar files within.
    passed: tuple[int, ...] = ()

    def cursor_at(self, index: int) -> Cursor:
        return {**self.cursor, "members": [*self.cursor["members"], index]}


class TarFiles:
    """Tar files as a source.

    A member's class is that of the tar file that holds it, where that is named by a WordNet id,
    else the folder that holds it, else the tar file's name.

    Args:
        path: one tar file, or a folder of them.
        max_bytes: the largest image, in bytes; larger ones are refused unread.
        wnids: the classes to take: what is labelled with another WordNet id is passed over unread.
            A label that is no WordNet id is left to the caller to judge. None for all.
    """

    name = NAME

    def __init__(
        self, path: Path, *, max_bytes: int = 30_000_000, wnids: frozenset[str] | None = None
    ) -> None:
        self.path, self.max_bytes, self.wnids = path, max_bytes, wnids

    def search(self, query: Query) -> Iterator[Hit]:
        """Every member that is or should be an image, in the archives' order.

        An archive that breaks off gives what is whole, then one refused hit of its own name.

        Raises:
            UsageError: there is no tar file.
        """
        cursor = query.cursor or {}
        if not self.path.is_dir():
            yield from self._file(self.path, printable(self.path.name), cursor, alone=True)
            return
        start = str(cursor.get("file", ""))
        for name in self._listing():
            if os.fsencode(name) >= os.fsencode(start):
                locator = f"{printable(self.path.resolve().name)}/{printable(name)}"
                yield from self._file(self.path / name, locator, cursor, alone=False)

    def _listing(self) -> list[str]:
        try:
            names = [path.name for path in self.path.iterdir() if _TAR_NAME.search(path.name)]
        except OSError as error:
            raise UsageError(f"cannot read {printable(self.path)}: {error.strerror}") from error
        if not names:
            raise UsageError(f"{printable(self.path)} holds no tar files")
        return sorted(names, key=os.fsencode)

    def _file(self, path: Path, locator: str, cursor: Cursor, *, alone: bool) -> Iterator[Hit]:
        """The members of one file; in a folder of them (not `alone`) a bad one is a refused hit."""
        stem = _stem(path.name)
        if not self._wanted(stem):
            return
        here: Cursor = {"file": path.name, "bytes": 0, "members": []}
        place = _Place(locator, stem, here)
        try:
            if not alone and path.is_symlink():
                raise ImageRefused("symlink")
            if path.exists() and not path.is_file():
                raise ImageRefused("not-a-file", "no regular file")
            with path.open("rb") as stream:
                here["bytes"] = os.fstat(stream.fileno()).st_size
                # The places of a file that has changed since mean nothing.
                if all(cursor.get(key) == here[key] for key in ("file", "bytes")):
                    place = _Place(locator, stem, here, _passed(cursor))
                members = Members(unpacked(stream))
                yield from self._members(members, place, 0)
        except OSError as error:
            if alone:
                raise UsageError(f"cannot read {printable(path)}: {error.strerror}") from error
            yield _refused(place, ImageRefused("unreadable", error.strerror or str(error)), here)
        except ImageRefused as refusal:
            if alone:
                raise UsageError(f"cannot read {printable(path)}: {refusal.detail}") from refusal
            yield _refused(place, refusal, here)

    def _members(self, members: Members, place: _Place, depth: int) -> Iterator[Hit]:
        """The hits of a tar file and of those within it; ends with a refused one if it breaks."""
        index = -1
        try:
            for index, info in enumerate(members):
                if place.passed and index < place.passed[0]:
                    continue
                within = place.passed[1:] if place.passed and index == place.passed[0] else ()
                if place.passed and index == place.passed[0] and not within:
                    continue
                if info.isdir() or PurePosixPath(info.name).name in LITTER:
                    continue
                if info.isreg() and _TAR_NAME.search(info.name) and depth == 0:
                    yield from self._inner(members, info, place, index, within)
                elif self._wanted(label := _label(info.name, place.stem)):
                    yield self._hit(members, info, place, label, place.cursor_at(index))
        except ImageRefused as refusal:
            yield _refused(place, refusal, place.cursor_at(index))

    def _inner(
        self,
        members: Members,
        info: tarfile.TarInfo,
        place: _Place,
        index: int,
        passed: tuple[int, ...],
    ) -> Iterator[Hit]:
        stem = _stem(PurePosixPath(info.name).name)
        if not self._wanted(stem):
            return
        locator = f"{place.locator}/{_inside(info.name)}"
        inner = _Place(locator, stem, place.cursor_at(index), passed)
        try:
            if (fault := _fault(info)) is not None:
                raise fault
            tar = Members(unpacked(members.content(info)))
        except ImageRefused as refusal:
            yield _refused(inner, refusal, inner.cursor)
            return
        yield from self._members(tar, inner, 1)

    def _hit(
        self, members: Members, info: tarfile.TarInfo, place: _Place, label: str, cursor: Cursor
    ) -> Hit:
        locator = locator_of(f"{place.locator}/{_inside(info.name)}")
        refusal, data = _fault(info), None
        if refusal is None and info.size > self.max_bytes:
            detail = f"{info.size:,} bytes, over {self.max_bytes:,}"
            refusal = ImageRefused("too-many-bytes", detail)
        if refusal is None:
            data = members.read(info)
        return Hit(NAME, locator, label, data=data, refusal=refusal, cursor=cursor)

    def _wanted(self, label: str) -> bool:
        """Whether an image with this label may be among `wnids`."""
        return self.wnids is None or label in self.wnids or not _WNID.fullmatch(label)


def _fault(info: tarfile.TarInfo) -> ImageRefused | None:
    """Why a member is not read, as its header tells."""
    parts = PurePosixPath(info.name).parts
    if not parts or "\0" in info.name or parts[0].startswith("/") or ".." in parts:
        return ImageRefused("outside", f"the name {printable(info.name)!r} leaves the archive")
    if info.issym():
        return ImageRefused("symlink")
    if info.islnk():
        return ImageRefused("not-a-file", "a hard link")
    if info.issparse():
        return ImageRefused("not-a-file", "a sparse file")
    if not info.isreg():
        return ImageRefused("not-a-file", "a device or the like")
    if info.size == 0:
        return ImageRefused("empty-file")
    return None


def _label(name: str, stem: str) -> str:
    if _WNID.fullmatch(stem):
        return stem
    folders = [part for part in PurePosixPath(name).parts[:-1] if part not in ("/", "..")]
    return clean(folders[-1] if folders else stem) or ""


def _stem(name: str) -> str:
    """A tar file's name without what tells that it is one."""
    return clean(_TAR_NAME.sub("", name)) or ""


def _inside(name: str) -> str:
    """A member's name without "./" before it."""
    return str(PurePosixPath(name))


def _passed(cursor: Cursor) -> tuple[int, ...]:
    told = cursor.get("members")
    return tuple(told) if isinstance(told, list) else ()


def _refused(place: _Place, refusal: ImageRefused, cursor: Cursor) -> Hit:
    label = place.stem if _WNID.fullmatch(place.stem) else ""
    return Hit(NAME, locator_of(place.locator), label, refusal=refusal, cursor=cursor)
