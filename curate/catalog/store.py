"""The image store: a folder (here), or elsewhere (`curate/catalog/remote_store.py`).

`open_store` opens either by its address. What both do is told by `ImageStore`.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit
from urllib.request import url2pathname

from curate.catalog.store_protocol import (
    MARK,
    ImageStore,
    checked,
    is_key,
    key_of,
    missing,
    refuse_other,
    two_digits,
)
from curate.errors import ImageRefused, SettingsError
from curate.files import (
    atomic_write,
    make_folder,
    printable,
    remove_leftovers,
    sha256_file,
    storage_errors,
    sync_folder,
    write_bytes,
)

__all__ = ["FolderStore", "ImageStore", "key_of", "open_store"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

_HTTP = (
    "cannot be written to; name a server of S3 in AWS_ENDPOINT_URL, and write s3://bucket/prefix"
)
_UNUSABLE = {
    "memory": "keeps nothing beyond a process",
    "http": _HTTP,
    "https": _HTTP,
}

#: What else stands in a workspace, so that no store may lie there.
_TAKEN = {"incoming", "runs", "releases", "review", "lists", ".curate"}


class FolderStore:
    """A folder of images.

    Args:
        root: the folder; made with the first image.
        called: what to call it in messages.
        inside: whether it is inside its workspace.
    """

    def __init__(self, root: Path, called: str = "images", *, inside: bool = True) -> None:
        self.root = root
        self.inside = inside
        self.address = root.absolute().as_uri()
        self._called = called
        self._unsynced: set[Path] = set()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[[], FolderStore], tuple[()]]:
        return partial(type(self), self.root, self._called, inside=self.inside), ()

    def path(self, sha256: str, extension: str) -> Path:
        """Where the image stands, whether or not it is there."""
        return self.root / key_of(sha256, extension)

    def name(self, sha256: str, extension: str) -> str:
        """As `ImageStore` says."""
        return f"{self._called}/{key_of(sha256, extension)}"

    def claim(self, owner: str) -> None:
        """As `ImageStore` says; one inside a workspace is that workspace's anyway."""
        if self.inside:
            return
        mark = self.root / MARK
        with storage_errors(printable(mark)):
            if not mark.exists():
                make_folder(self.root)
                write_bytes(mark, owner.encode())
            refuse_other(mark.read_bytes(), owner, self._called)

    def put(self, data: bytes, sha256: str, extension: str) -> None:
        """As `ImageStore` says."""
        path = self.path(sha256, extension)
        if self.holds(sha256, extension):
            return
        make_folder(path.parent)
        with atomic_write(path, sync_parent=False) as stream:
            stream.write(data)
        with self._lock:
            self._unsynced.add(path.parent)

    def adopt(self, file: Path, sha256: str, extension: str) -> None:
        """As `ImageStore` says."""
        path = self.path(sha256, extension)
        if self.holds(sha256, extension):
            with storage_errors(printable(file)):
                file.unlink(missing_ok=True)
            return
        make_folder(path.parent)
        with storage_errors(printable(path)):
            try:
                file.replace(path)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._move(file, path)
        with self._lock:
            self._unsynced.add(path.parent)

    def sync(self) -> None:
        """As `ImageStore` says."""
        with self._lock:
            folders, self._unsynced = self._unsynced, set()
        for folder in sorted(folders):
            sync_folder(folder)

    def holds(self, sha256: str, extension: str) -> bool:
        """As `ImageStore` says; a disk is near enough to read every byte."""
        return self.check(sha256, extension)

    def check(self, sha256: str, extension: str) -> bool:
        """As `ImageStore` says."""
        try:
            return sha256_file(self.path(sha256, extension)) == sha256
        except OSError:
            return False

    def read(self, sha256: str, extension: str) -> bytes:
        """As `ImageStore` says."""
        try:
            with open(self.path(sha256, extension), "rb", 0, opener=_at_once) as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise ImageRefused("not-a-file", sha256)
                data = stream.read()
        except FileNotFoundError:
            raise missing(sha256) from None
        except OSError as error:
            raise ImageRefused("unreadable", f"{sha256}: {error.strerror}") from error
        return checked(data, sha256)

    def copy_to(self, sha256: str, extension: str, target: Path) -> None:
        """As `ImageStore` says; the bytes are not looked at."""
        source = self.path(sha256, extension)
        with storage_errors(printable(target)):
            try:
                os.link(source, target)
            except FileNotFoundError:
                raise missing(sha256) from None
            except OSError:
                shutil.copyfile(source, target)

    def remove(self, key: str) -> None:
        """As `ImageStore` says."""
        with storage_errors(f"{self._called}/{key}"):
            (self.root / key).unlink(missing_ok=True)

    def leftovers(self, *, remove: bool) -> dict[str, int]:
        """As `ImageStore` says."""
        found = {
            f"{self._called}/{folder.name}": remove_leftovers(folder, dry=not remove)
            for folder in self._folders()
        }
        return {place: count for place, count in found.items() if count}

    def __iter__(self) -> Iterator[str]:
        for folder in self._folders():
            for path in sorted(folder.iterdir()):
                key = f"{folder.name}/{path.name}"
                if is_key(key):
                    yield key

    @staticmethod
    def _move(file: Path, path: Path) -> None:
        """Take in a file of another disk."""
        with file.open("rb") as source, atomic_write(path, sync_parent=False) as stream:
            shutil.copyfileobj(source, stream)
        file.unlink()

    def _folders(self) -> list[Path]:
        if not self.root.is_dir():
            return []
        return sorted(p for p in self.root.iterdir() if two_digits(p.name) and p.is_dir())


def open_store(address: str, root: Path | None = None) -> ImageStore:
    """Open a store; nothing is read or written yet.

    Args:
        address: the setting `store` (a folder relative to the workspace, or a URL), or the
            `address` of a store that another process opened.
        root: the workspace's folder; None where the address is one of an open store.

    Raises:
        SettingsError: there can be no store.
        MissingExtraError: the package for this kind of store is absent.
    """
    if kind := _URL.match(address):
        scheme = kind[1].lower()
        if scheme in _UNUSABLE:
            raise SettingsError(f"store: {scheme}:// {_UNUSABLE[scheme]}")
        if scheme not in ("file", "local"):
            from curate.catalog.remote_store import RemoteStore

            return RemoteStore(address)
        parts = urlsplit(address)
        folder = Path(url2pathname(parts.path))
        if parts.netloc not in ("", "localhost") or not folder.is_absolute():
            raise SettingsError(
                f"store: write a folder of this machine as file:///…, not {address}"
            )
        return FolderStore(folder, printable(folder), inside=False)
    inside = PurePosixPath(address)
    outside = inside.is_absolute() or ".." in inside.parts or "://" in address
    if root is None or outside or not inside.parts:
        raise SettingsError(
            f"store: {address!r} is no folder in the workspace; write one elsewhere as file:///…"
        )
    if inside.parts[0] in _TAKEN:
        raise SettingsError(f"store: the folder {inside.parts[0]} holds other things already")
    return FolderStore(root / inside, str(inside))


def _at_once(path: str, flags: int) -> int:
    """Open a file; a pipe that somebody has put in its place would let its reader wait for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
