"""The photos of a dataset for a corruption run: read once, decoded once, and kept outside memory.

Ninety-five settings look at each photo. What they begin with (the photo itself, or the crop that
is to be corrupted) is decoded once into a file without a name, which the system takes back however
the run ends. Photos of more than half a megapixel stay as files and are decoded anew each time: to
corrupt one takes tens of times as long.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curate.errors import ImageRefused, StorageError
from curate.files import sha256_bytes, storage_errors
from curate.progress import Stop, progress
from curate.sources.folder import read_image
from pipelines.datasets import Dataset
from pipelines.labelled import LIMITS
from pipelines.threads import run_here, usable_cores

if TYPE_CHECKING:
    from curate.images.views import ViewRecipe

Pixels = NDArray[np.uint8]

# Bytes of pixels that are kept of one picture.
_LARGEST_KEPT = 1_500_000

# The share of the disk's free bytes that all of them may take.
_SHARE = 2

_CHUNK = 32


@dataclass(frozen=True)
class Stored:
    """A photo that is still a file.

    Attributes:
        path: where it lies.
        sha256: of its bytes when they were read first; empty where they were not.
    """

    path: Path
    sha256: str


def decoded(stored: Stored) -> Pixels:
    """The upright RGB pixels of a photo.

    Raises:
        ImageRefused: it cannot be read or decoded, or is not what was read first.
    """
    from curate.images.decode import decode

    data = read_image(stored.path, LIMITS.max_bytes)
    if stored.sha256 and sha256_bytes(data) != stored.sha256:
        raise ImageRefused("altered", "the file has changed since the run began")
    # On the disk a corruption may have left little to be seen.
    image, _ = decode(data, LIMITS, stored.path.name, must_show=False)
    return np.asarray(image)


def cut(pixels: Pixels, recipe: ViewRecipe) -> Pixels:
    """The centre crop of a photo, as a classifier sees it."""
    from PIL import Image

    from curate.images.views import resize_short_side, view

    # A copy: the window would keep the whole photo in memory.
    resized = resize_short_side(Image.fromarray(pixels), recipe)
    return np.ascontiguousarray(view(resized, 0, recipe.crop))


class Pictures:
    """The photos of a dataset, by row.

    Args:
        dataset: its images.
        before: how to cut what is corrupted; None for the whole photo.
        keep: whether pixels are worth keeping, since several settings ask for them.

    Attributes:
        digests: SHA-256 of each photo's bytes; "" where it cannot be read.
        refused: row to why there are no pixels.
        content_sha256: over a line "SHA-256, two blanks, path" for each image in order, as
            sha256sum prints it; of an unreadable image the line begins with the blanks.
    """

    def __init__(self, dataset: Dataset, before: ViewRecipe | None, keep: bool = True) -> None:
        self.dataset, self.before = dataset, before
        self.digests = [""] * len(dataset.paths)
        self.refused: dict[int, ImageRefused] = {}
        self.content_sha256 = ""
        self._keep, self._decoded = keep, False
        self._kept: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._spool = tempfile.TemporaryFile() if keep else None  # noqa: SIM115
        self._end, self._lock = 0, threading.Lock()

    def __len__(self) -> int:
        return len(self.digests)

    def close(self) -> None:
        """Give the disk its room back."""
        if self._spool is not None:
            self._spool.close()

    def read(self, stop: Stop, is_shown: bool = True) -> bool:
        """Read and hash every photo; False where a stop was requested before the end."""
        if not self._all("reading" if is_shown else "", self._hash, stop):
            return False
        lines = (
            f"{digest}  {path}\n"
            for digest, path in zip(self.digests, self.dataset.paths, strict=True)
        )
        self.content_sha256 = sha256_bytes("".join(lines).encode())
        return True

    def decode(self, stop: Stop) -> bool:
        """Decode every photo once; False where a stop was requested before the end."""
        if self._decoded or not self._keep:
            return True
        with storage_errors("pixels to the folder for temporary files"):
            free = shutil.disk_usage(tempfile.gettempdir()).free
        self._budget = free // _SHARE
        self._decoded = self._all("decoding", self._take, stop)
        return self._decoded

    def source(self, row: int) -> Pixels | Stored:
        """What a setting begins with: pixels that are kept, else the file."""
        if row not in self._kept:
            return Stored(self.dataset.layout.items[row].path, self.digests[row])
        assert self._spool is not None
        start, shape = self._kept[row]
        data = os.pread(self._spool.fileno(), int(np.prod(shape)), start)
        return np.frombuffer(data, np.uint8).reshape(shape)

    def _all(self, what: str, work: Callable[[Sequence[int]], bool], stop: Stop) -> bool:
        rows = range(len(self))
        chunks = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
        left = len(rows)
        with progress(f"{what} {self.dataset.name}", left) if what else nullcontext() as bar:
            for chunk, _ in run_here(chunks, work, usable_cores(), stop):
                left -= len(chunk)
                if bar is not None:
                    bar.advance(len(chunk))
        return not left

    def _hash(self, chunk: Sequence[int]) -> bool:
        for row in chunk:
            try:
                data = read_image(self.dataset.layout.items[row].path, LIMITS.max_bytes)
                self.digests[row] = sha256_bytes(data)
            except ImageRefused as refusal:
                self.refused[row] = refusal
        return True

    def _take(self, chunk: Sequence[int]) -> bool:
        for row in chunk:
            if row in self.refused:
                continue
            try:
                source = self.source(row)
                pixels = decoded(source) if isinstance(source, Stored) else source
                if self.before is not None:
                    pixels = cut(pixels, self.before)
                if pixels.nbytes <= _LARGEST_KEPT:
                    self._store(row, pixels)
            except ImageRefused as refusal:
                self.refused[row] = refusal
        return True

    def _store(self, row: int, pixels: Pixels) -> None:
        assert self._spool is not None
        with self._lock:
            start = self._end
            if start + pixels.nbytes > self._budget:
                return
            self._end += pixels.nbytes
        with storage_errors("pixels to the folder for temporary files"):
            written = os.pwrite(self._spool.fileno(), np.ascontiguousarray(pixels).data, start)
        if written != pixels.nbytes:
            raise StorageError("the disk is full while writing pixels; free some space")
        self._kept[row] = start, pixels.shape
