"""Files whose SHA-256 is known when they are closed, since it is computed as they are written."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

# How much waits to be written, at most about; where another core hashes, as much again is hashed.
_HELD, _HELD_APART = 1 << 18, 1 << 22

# After so much the disk is told to begin: at the end there is little left to wait for.
_SYNCED = 1 << 26

# Pieces of one system call; POSIX promises 16, and Linux and macOS take 1024.
_PIECES = 1024


class HashedFile(io.RawIOBase):
    """A new file that is written from start to end.

    Args:
        path: where; nothing may stand there.
        apart: other threads hash it, and sync it, which is worth it from some megabytes on.
    """

    def __init__(self, path: Path, *, apart: bool = False) -> None:
        self.path = path
        self._stream = path.open("xb", buffering=0)
        self._digest = hashlib.sha256()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="sha256") if apart else None
        self._most = _HELD_APART if apart else _HELD
        self._pieces: list[bytes] = []
        self._held = self._length = self._unsynced = 0
        self._hashing: Future[None] | None = None
        self._syncing: Future[None] | None = None

    def writable(self) -> bool:
        """True: it does nothing else."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Write all of `data`, now or with what follows."""
        self._pieces.append(bytes(data))
        self._held += len(data)
        self._length += len(data)
        if self._held >= self._most:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """Write what waits; few long writes are cheaper than many short ones."""
        pieces, self._pieces, self._held = self._pieces, [], 0
        if not pieces:
            return
        if self._pool is None:
            self._hash(pieces)
        else:
            if self._hashing is not None:
                self._hashing.result()
            self._hashing = self._pool.submit(self._hash, pieces)
        for start in range(0, len(pieces), _PIECES):
            write_all(self._stream.fileno(), pieces[start : start + _PIECES])
        self._unsynced += sum(map(len, pieces))
        if self._pool is not None and self._unsynced >= _SYNCED:
            self._sync(self._pool)

    def _sync(self, pool: ThreadPoolExecutor) -> None:
        if self._syncing is not None:
            if not self._syncing.done():
                return
            self._syncing.result()
        self._syncing, self._unsynced = pool.submit(_sync_data, self._stream.fileno()), 0

    def _hash(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self._digest.update(piece)

    def tell(self) -> int:
        """How much was written."""
        return self._length

    def close(self) -> None:
        """Close the file; what a full disk refuses is told here at the latest."""
        if self.closed:
            return
        try:
            super().close()
            for begun in (self._hashing, self._syncing):
                if begun is not None:
                    begun.result()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
            self._stream.close()

    @property
    def sha256(self) -> str:
        """Of the closed file's content."""
        return self._digest.hexdigest()


def _sync_data(descriptor: int) -> None:
    getattr(os, "fdatasync", os.fsync)(descriptor)


def write_all(descriptor: int, pieces: Sequence[bytes]) -> None:
    """Write all of some pieces, a thousand at most."""
    done = os.writev(descriptor, pieces)
    if done < sum(map(len, pieces)):
        # A disk that fills, or a signal, cuts it short.
        rest = memoryview(b"".join(pieces))[done:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]
