"""The image store: original bytes, unchanged, each stored once under its SHA-256.

`root/ab/abcdef….jpg`: two digits a folder, so that a million images make folders of four thousand.
The extension is the one that the content calls for. Names are relative to the workspace: a store
can be moved or copied.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from curate.errors import ImageRefused
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


class ImageStore:
    """A folder of images by content. Safe to share between threads.

    Args:
        root: the folder; made with the first image.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._unsynced: set[Path] = set()
        self._lock = threading.Lock()

    def path(self, sha256: str, extension: str) -> Path:
        """Where the image stands, whether or not it is there."""
        return self.root / sha256[:2] / f"{sha256}.{extension}"

    def put(self, data: bytes, sha256: str, extension: str) -> bool:
        """Store an image; call `sync` before a transaction names it.

        Args:
            data: the original bytes.
            sha256: of `data`, as the caller computed it.
            extension: what the content calls for, without a dot.

        Returns:
            False if it was there already.

        Raises:
            StorageError: the disk is full or refuses.
        """
        path = self.path(sha256, extension)
        if self.holds(sha256, extension):
            return False
        make_folder(path.parent)
        with atomic_write(path, sync_parent=False) as stream:
            stream.write(data)
        with self._lock:
            self._unsynced.add(path.parent)
        return True

    def adopt(self, file: Path, sha256: str, extension: str) -> bool:
        """Make a finished file of the same disk the stored one; see `put`.

        Args:
            file: synced; it goes from where it is. One that is gone was adopted before.
            sha256: of its content, as the caller computed it.
            extension: what the content calls for, without a dot.

        Returns:
            False if the image was there already.

        Raises:
            StorageError: the disk refuses, or neither the file nor the image is there.
        """
        path = self.path(sha256, extension)
        if self.holds(sha256, extension):
            with storage_errors(printable(file)):
                file.unlink(missing_ok=True)
            return False
        make_folder(path.parent)
        with storage_errors(printable(path)):
            file.replace(path)
        with self._lock:
            self._unsynced.add(path.parent)
        return True

    def holds(self, sha256: str, extension: str) -> bool:
        """Whether the image is there with the content that its name promises."""
        try:
            return sha256_file(self.path(sha256, extension)) == sha256
        except OSError:
            return False

    def sync(self) -> None:
        """Make everything that `put` stored survive a power cut."""
        with self._lock:
            folders, self._unsynced = self._unsynced, set()
        for folder in sorted(folders):
            sync_folder(folder)

    def read(self, sha256: str, extension: str) -> bytes:
        """The original bytes, checked against their SHA-256.

        Raises:
            ImageRefused: "missing", "unreadable" or "altered".
        """
        try:
            data = self.path(sha256, extension).read_bytes()
        except FileNotFoundError:
            raise ImageRefused("missing", f"{sha256} is not in the store") from None
        except OSError as error:
            raise ImageRefused("unreadable", f"{sha256}: {error.strerror}") from error
        if sha256_bytes(data) != sha256:
            raise ImageRefused("altered", f"{sha256} has other content than it was stored with")
        return data

    def remove_leftovers(self) -> int:
        """Delete what a killed `put` left behind; only while nothing else writes."""
        if not self.root.is_dir():
            return 0
        return sum(remove_leftovers(folder) for folder in self.root.iterdir() if folder.is_dir())

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        """Every stored image as (SHA-256 by its name, path), in sorted order."""
        if self.root.is_dir():
            for folder in sorted(p for p in self.root.iterdir() if p.is_dir()):
                for path in sorted(folder.iterdir()):
                    if len(path.stem) == 64:
                        yield path.stem, path
