"""What models said of images, kept by everything that makes it: the same again needs no forward.

A file is named by the hash of the images' bytes, the weights, the preprocessing, the label space,
the device and the libraries, and begins with the hash of its name and of what follows. One that is
cut off, altered or under another's name counts as absent. Nothing but time is lost with the folder.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from curate.errors import StorageError
from curate.files import (
    atomic_write,
    make_folder,
    printable,
    remove_leftovers,
    sha256_bytes,
    user_cache,
)
from curate.progress import say

#: Most bytes of all files; the ones that were used longest ago go first.
MOST_BYTES = 2_000_000_000

_ENDING = ".scores"


def cache_folder() -> Path | None:
    """Where scores are kept: below `curate.files.user_cache`; None where there is none."""
    caches = user_cache()
    return caches / "evaluations" if caches else None


class Cache:
    """Arrays by the key of what makes them.

    A disk that refuses is told once and changes nothing else.

    Args:
        folder: where they are; it is made when something is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told = False

    def find(self, key: str) -> dict[str, Any] | None:
        """The arrays that were kept under a key; None where nothing sound is there.

        Args:
            key: hexadecimal digits.
        """
        path = self._folder / f"{key}{_ENDING}"
        try:
            stored = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        header, _, content = stored.partition(b"\n")
        if header != _header(key, content):
            return None
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as held:
                return {name: held[name] for name in held.files}
        except (OSError, ValueError, zipfile.BadZipFile):
            return None

    def keep(self, key: str, arrays: Mapping[str, Any]) -> None:
        """Keep arrays under a key, whole or not at all.

        Args:
            key: hexadecimal digits.
            arrays: of numbers and text.
        """
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **arrays)
        content = stream.getvalue()
        try:
            make_folder(self._folder)
            with atomic_write(self._folder / f"{key}{_ENDING}") as file:
                file.write(_header(key, content) + b"\n")
                file.write(content)
            self._forget()
        except (OSError, StorageError) as error:
            if not self._told:
                self._told = True
                say(f"scores are not kept for another time in {printable(self._folder)}: {error}")

    def _forget(self) -> None:
        """Delete what was used longest ago, and what a killed process left unfinished."""
        remove_leftovers(self._folder, shared=True)
        kept: list[tuple[float, int, Path]] = []
        for path in self._folder.iterdir():
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # another process deletes, too
            if path.suffix == _ENDING:
                kept.append((status.st_mtime, status.st_size, path))
        left = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept)[:-1]:
            if left <= MOST_BYTES:
                break
            path.unlink(missing_ok=True)
            left -= size


def _header(key: str, content: bytes) -> bytes:
    return sha256_bytes(key.encode() + b"\n" + content).encode()
