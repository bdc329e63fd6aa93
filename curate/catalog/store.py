"""The image store: original bytes, unchanged, each stored once under its SHA-256.

`ab/abcdef….jpg`: two digits a folder, so that a million images make folders of four thousand.
The extension is the one that the content calls for. A store is a folder (here) or lies elsewhere
(`curate/catalog/remote_store.py`); both do what `ImageStore` says.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname

from curate.errors import ImageRefused, SettingsError
from curate.files import (
    atomic_write,
    make_folder,
    printable,
    remove_leftovers,
    sha256_bytes,
    sha256_file,
    storage_errors,
    sync_folder,
)

_KEY = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}\.[a-z0-9]{1,8}")
_FOLDER = re.compile(r"[0-9a-f]{2}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

#: What else stands in a workspace, so that no store may lie there.
_TAKEN = {"incoming", "runs", "releases", "lists", ".curate"}


def key_of(sha256: str, extension: str) -> str:
    """Where an image stands in every store: its folder and name, relative to the store."""
    return f"{sha256[:2]}/{sha256}.{extension}"


def is_key(text: str) -> bool:
    """Whether something in a store is named as images are; anything else is somebody else's."""
    return _KEY.fullmatch(text) is not None


class ImageStore(Protocol):
    """Images by content. Safe to share between threads.

    Attributes:
        address: what `open_store` takes on any machine that reaches the store; no secrets.
    """

    address: str

    def name(self, sha256: str, extension: str) -> str:
        """What to call an image's place in messages; nothing to open."""

    def put(self, data: bytes, sha256: str, extension: str) -> None:
        """Store an image, unless it is there; only after `sync` may a transaction name it.

        Args:
            data: the original bytes.
            sha256: of `data`, as the caller computed it.
            extension: what the content calls for, without a dot.

        Raises:
            StorageError: the store is full, away, or refuses.
        """

    def adopt(self, file: Path, sha256: str, extension: str) -> None:
        """Make a finished file of this machine the stored one, unless it is there; see `put`.

        Args:
            file: synced; it goes from where it is. One that is gone was adopted before.
            sha256: of its content, as the caller computed it.
            extension: what the content calls for, without a dot.

        Raises:
            StorageError: the store refuses, or neither the file nor the image is there.
        """

    def sync(self) -> None:
        """Wait until everything that `put` and `adopt` stored survives a power cut.

        Raises:
            StorageError: some of it was not stored.
        """

    def holds(self, sha256: str, extension: str) -> bool:
        """Whether the image is there, as far as that can be told without moving its bytes over a
        network; see `check`.

        Raises:
            StorageError: the store is away, or refuses.
        """

    def check(self, sha256: str, extension: str) -> bool:
        """Whether the image is there and every byte of it is what its name promises.

        Raises:
            StorageError: the store is away, or refuses.
        """

    def read(self, sha256: str, extension: str) -> bytes:
        """The original bytes, checked against their SHA-256.

        Raises:
            ImageRefused: "missing", "unreadable" or "altered".
            StorageError: the store is away, or refuses.
        """

    def copy_to(self, sha256: str, extension: str, target: Path) -> None:
        """Make a file with the image's bytes; a link to the stored one where links work.

        Args:
            target: absent; its folder exists.

        Raises:
            ImageRefused: "missing", "unreadable" or "altered".
            StorageError: the store is away, or the disk refuses.
        """

    def remove(self, key: str) -> None:
        """Remove what `key_of` names, if it is there.

        Raises:
            StorageError: the store is away, or refuses.
        """

    def leftovers(self, *, remove: bool) -> dict[str, int]:
        """What killed writers left behind; only while nothing else writes.

        Args:
            remove: whether to remove it.

        Returns:
            The place, for messages, to the number of files.
        """

    def __iter__(self) -> Iterator[str]:
        """The keys of everything that is named as images are, in sorted order; the memory that it
        takes does not grow with their number."""


class FolderStore:
    """A folder of images.

    Args:
        root: the folder; made with the first image.
        called: what to call it in messages.
    """

    def __init__(self, root: Path, called: str = "images") -> None:
        self.root = root
        self.address = root.absolute().as_uri()
        self._called = called
        self._unsynced: set[Path] = set()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[FolderStore], tuple[Path, str]]:
        return type(self), (self.root, self._called)

    def path(self, sha256: str, extension: str) -> Path:
        """Where the image stands, whether or not it is there."""
        return self.root / key_of(sha256, extension)

    def name(self, sha256: str, extension: str) -> str:
        """As `ImageStore` says."""
        return f"{self._called}/{key_of(sha256, extension)}"

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
            data = self.path(sha256, extension).read_bytes()
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
        return sorted(p for p in self.root.iterdir() if _FOLDER.fullmatch(p.name) and p.is_dir())


def missing(sha256: str) -> ImageRefused:
    """What `ImageStore.read` raises where the image is not there."""
    return ImageRefused("missing", f"{sha256} is not in the store")


def checked(data: bytes, sha256: str) -> bytes:
    """Stored bytes, if they are what their name promises.

    Raises:
        ImageRefused: "altered".
    """
    if sha256_bytes(data) != sha256:
        raise ImageRefused("altered", f"{sha256} has other content than it was stored with")
    return data


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
    if _URL.match(address):
        parts = urlsplit(address)
        if parts.scheme.lower() != "file":
            raise SettingsError(f"store: {parts.scheme}:// is not a kind of store")
        folder = Path(url2pathname(parts.path))
        if parts.netloc not in ("", "localhost") or not folder.is_absolute():
            raise SettingsError(
                f"store: write a folder of this machine as file:///…, not {address}"
            )
        return FolderStore(folder, printable(folder))
    inside = PurePosixPath(address)
    if root is None or inside.is_absolute() or ".." in inside.parts or not inside.parts:
        raise SettingsError(
            f"store: {address!r} is no folder in the workspace; write one elsewhere as file:///…"
        )
    if inside.parts[0] in _TAKEN:
        raise SettingsError(f"store: the folder {inside.parts[0]} holds other things already")
    return FolderStore(root / inside, str(inside))
