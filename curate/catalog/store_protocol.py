"""What every image store does: original bytes, unchanged, each stored once under its SHA-256.

`ab/abcdef….jpg`: two digits a folder, so that a million images make folders of four thousand.
The extension is the one that the content calls for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from curate.errors import ImageRefused, WorkspaceError
from curate.files import sha256_bytes

_KEY = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}\.[a-z0-9]{1,8}")
_FOLDER = re.compile(r"[0-9a-f]{2}")

#: What names the workspace that a store outside of it belongs to.
MARK = "curate-workspace"


def key_of(sha256: str, extension: str) -> str:
    """Where an image stands in every store: its folder and name, relative to the store."""
    return f"{sha256[:2]}/{sha256}.{extension}"


def is_key(text: str) -> bool:
    """Whether something in a store is named as images are; anything else is somebody else's."""
    return _KEY.fullmatch(text) is not None


def two_digits(name: str) -> bool:
    """Whether a folder in a store is one that images stand in."""
    return _FOLDER.fullmatch(name) is not None


class ImageStore(Protocol):
    """Images by content. Safe to share between threads.

    Attributes:
        address: what `open_store` takes on any machine that reaches the store; no secrets.
        inside: whether it is inside its workspace.
    """

    address: str
    inside: bool

    def name(self, sha256: str, extension: str) -> str:
        """What to call an image's place in messages; nothing to open."""

    def claim(self, owner: str) -> None:
        """Take the store for one workspace: another's images must not be taken for unneeded ones.

        Args:
            owner: the workspace's number.

        Raises:
            WorkspaceError: it is another workspace's, or cannot be used.
            StorageError: it is away.
        """

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


def refuse_other(found: bytes, owner: str, called: str) -> None:
    """Refuse a store whose mark holds another owner.

    Raises:
        WorkspaceError: it does.
    """
    if found != owner.encode():
        raise WorkspaceError(
            f"store: {called} is the store of another workspace: name a place of its own"
        )


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
