"""Bodies of answers: looked at as they begin, and written to files while they are hashed."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from curate.files import TEMPORARY, storage_errors
from curate.sources.failures import FetchFailed
from curate.sources.http import Answer

# What the first bytes are looked at for; every format of images is known by then.
_HEAD_BYTES = 64
_IMAGE_STARTS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")
_BLANKS = b"\xef\xbb\xbf \t\r\n\f\0"


class BodyFile:
    """A file that a body is written to, its hash and its size.

    Args:
        folder: where to; the name begins with `curate.files.TEMPORARY`.

    Attributes:
        path: the file.
        size: bytes written.

    Raises:
        StorageError: the disk is full or refuses; the same holds for every method but `discard`.
    """

    __slots__ = ("_descriptor", "_digest", "path", "size")

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}"
        self._digest = hashlib.sha256()
        self.size = 0
        with storage_errors("a downloaded image"):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o666)

    def write(self, piece: bytes) -> None:
        """Add a piece."""
        self._digest.update(piece)
        self.size += len(piece)
        with storage_errors("a downloaded image"):
            written = os.write(self._descriptor, piece)
            while written < len(piece):
                written += os.write(self._descriptor, memoryview(piece)[written:])

    def finish(self) -> str:
        """Sync and close it; gives its SHA-256."""
        with storage_errors("a downloaded image"):
            os.fsync(self._descriptor)
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
        return self._digest.hexdigest()

    def discard(self) -> None:
        """Close and remove it."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
        with suppress(OSError):
            self.path.unlink()


def receive(answer: Answer, folder: Path) -> BodyFile:
    """Write what an answer brings to a file.

    Args:
        answer: its body has not been read.
        folder: where to.

    Raises:
        FetchFailed: the body does not arrive whole, is too large, or a page of text.
        StorageError: the disk is full or refuses.
    """
    pieces = answer.chunks()
    head = next(pieces, b"")
    while len(head) < _HEAD_BYTES and (more := next(pieces, b"")):
        head += more
    _refuse_pages(head, answer.headers.get("Content-Type", ""))
    file = BodyFile(folder)
    try:
        file.write(head)
        for piece in pieces:
            file.write(piece)
    except BaseException:
        file.discard()
        raise
    return file


def _refuse_pages(head: bytes, content_type: str) -> None:
    """Refuse a page of text that came instead of an image, before the rest of it is read."""
    if not head:
        raise FetchFailed("truncated", "0 bytes")
    start = head.lstrip(_BLANKS)
    if start.startswith(b"<"):
        raise FetchFailed("not_an_image", "a page in HTML or XML", retryable=False)
    is_text = content_type.strip().lower().startswith(("text/", "application/json"))
    if is_text and not (head.startswith(_IMAGE_STARTS) or head[4:8] == b"ftyp"):
        raise FetchFailed("not_an_image", f"text ({content_type[:100]})", retryable=False)
