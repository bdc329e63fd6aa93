"""Sets of pictures to compare with: a folder, tar files or a hash file, as hashes.

Pictures are decoded in threads and forgotten. A set that takes hours to hash can be hashed into a
file once; what a start that was cut off has hashed is kept beside that file.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.errors import ImageRefused, Interrupted, UsageError
from curate.files import make_folder, printable, sha256_bytes, storage_errors
from curate.images.decode import decode
from curate.images.hash_sets import (
    DIGITS,
    HashSet,
    HashSetBuilder,
    is_hash_file,
    read_hash_file,
    write_hash_file,
)
from curate.images.hashing import perceptual_hash, pixel_sha256
from curate.progress import Stop, progress, stop_on_interrupt
from curate.settings import ImageLimits
from curate.sources.folder import read_image, scan_class_folders
from curate.sources.protocol import Hit, Query
from curate.sources.tar import TarFiles
from pipelines.threads import usable_cores

#: Training images of any shape count, also those that would be no candidates.
_ANY_SHAPE = {"min_side": 1, "max_aspect_ratio": 1e9}

_ROWS_AT_ONCE = 4096

_TAR_ENDINGS = (".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".tbz", ".tbz2", ".txz")

#: A picture's hashes by column, or why it has none.
_Looked = dict[str, str] | ImageRefused


@dataclass(frozen=True)
class PictureSet:
    """A set that was read.

    Attributes:
        path: where it is.
        hashes: of its pictures.
        refused: pictures and other files that could not be read, by reason.
        is_hash_file: whether the pictures themselves are not at hand.
    """

    path: Path
    hashes: HashSet
    refused: Counter[str] = field(default_factory=Counter)
    is_hash_file: bool = False

    def pictures(self) -> Iterator[tuple[str, Hit]]:
        """Every picture with its name, to be read again."""
        if not self.is_hash_file:
            for hit in _items(self.path):
                yield hit.locator, hit


def read_set(path: Path, limits: ImageLimits, stop: Stop) -> PictureSet:
    """The hashes of a folder, of tar files, or from a hash file.

    Args:
        path: a folder of pictures at any depth, or of tar files; a tar file; a hash file.
        limits: bytes and pixels of one picture are limited; its shape is not.
        stop: asks to stop.

    Raises:
        UsageError: it cannot be read, or holds no picture.
        Interrupted: stopped by the user.
    """
    if not path.is_dir() and is_hash_file(path):
        read = PictureSet(path, read_hash_file(path), is_hash_file=True)
    else:
        read = _hash_all(path, limits, stop, None)
    if not len(read.hashes):
        raise UsageError(f"{printable(path)} holds no picture to compare with")
    return read


def hash_pictures(path: Path, out: Path, limits: ImageLimits) -> dict[str, Any]:
    """Hash a folder or tar files into a hash file, which stands for them from then on.

    Args:
        path: a folder of pictures at any depth, or of tar files; a tar file.
        out: the hash file to write: CSV where it ends in `.csv`, else Parquet.
        limits: bytes and pixels of one picture are limited; its shape is not.

    Returns:
        `images` (hashed), `refused` (by reason), `path` (of the hash file).

    Raises:
        UsageError: `path` cannot be read or holds no picture, or `out` names no possible file.
        StorageError: the disk is full.
        Interrupted: stopped by the user; the same command goes on.
    """
    if out.is_dir():
        raise UsageError(f"{printable(out)} is a folder: name the file to write")
    if not path.is_dir() and is_hash_file(path):
        raise UsageError(f"{printable(path)} is a hash file already")
    make_folder(out.parent)
    journal = out.with_name(f".{out.name}.unfinished")
    with stop_on_interrupt() as stop:
        read = _hash_all(path, limits, stop, journal)
    if not len(read.hashes):
        raise UsageError(f"{printable(path)} holds no picture")
    write_hash_file(out, read.hashes)
    journal.unlink(missing_ok=True)
    return {
        "images": len(read.hashes),
        "refused": dict(sorted(read.refused.items())),
        "path": printable(out),
    }


def _items(path: Path) -> Iterator[Hit]:
    """The pictures of a folder or of tar files, in an order that does not change."""
    if not path.is_dir():
        yield from TarFiles(path).search(Query())
        return
    tars = False
    for hit in scan_class_folders(path):
        if hit.path is not None and hit.path.parent == path and _is_tar(hit.path):
            tars = True
        else:
            yield hit
    if tars:
        yield from TarFiles(path).search(Query())


def _is_tar(path: Path) -> bool:
    return path.name.lower().endswith(_TAR_ENDINGS)


def read_picture(hit: Hit, max_bytes: int) -> bytes:
    """The bytes of one picture of a set.

    Raises:
        ImageRefused: it cannot be read, or is too large.
    """
    if hit.refusal is not None:
        raise hit.refusal
    if hit.data is not None:
        if len(hit.data) > max_bytes:
            raise ImageRefused("too-many-bytes", f"over {max_bytes:,} bytes")
        return hit.data
    assert hit.path is not None
    return read_image(hit.path, max_bytes)


def any_shape(limits: ImageLimits) -> ImageLimits:
    """Limits without those on the shape of a picture."""
    return limits.model_copy(update=_ANY_SHAPE)


def _look(hit: Hit, limits: ImageLimits) -> _Looked:
    try:
        data = read_picture(hit, limits.max_bytes)
        image, _ = decode(data, limits, None)
    except ImageRefused as refusal:
        return refusal
    return {
        "sha256": sha256_bytes(data),
        "perceptual_hash": str(perceptual_hash(image)),
        "pixel_sha256": pixel_sha256(image),
    }


def _hash_all(path: Path, limits: ImageLimits, stop: Stop, journal: Path | None) -> PictureSet:
    loose = any_shape(limits)
    gathered = _Gathered()
    with (
        _Journal(journal) as noted,
        progress(f"hash {printable(path.name)}", None, unit="pictures") as bar,
    ):
        for name, looked in _in_order(_items(path), noted, loose, stop):
            gathered.add(name, looked)
            bar.advance()
    if stop.requested:
        kept = "run again to go on" if journal else "nothing was changed; run again"
        raise Interrupted(f"stopped after {gathered.count:,} files of {printable(path)}; {kept}")
    return PictureSet(path, gathered.build(printable(path.resolve().name)), gathered.refused)


def _in_order(
    items: Iterator[Hit], noted: _Journal, limits: ImageLimits, stop: Stop
) -> Iterator[tuple[str, _Looked]]:
    """The items with their hashes: from the journal as long as it tells of the same ones."""
    queue: deque[tuple[Hit, Future[_Looked]]] = deque()
    most = 4 * usable_cores()

    def first() -> tuple[str, _Looked]:
        hit, future = queue.popleft()
        looked = future.result()
        noted.note(hit, looked)
        return hit.locator, looked

    with ThreadPoolExecutor(usable_cores(), thread_name_prefix="hash") as pool:
        for hit in items:
            if stop.requested:
                break
            if (looked := noted.recall(hit)) is not None:
                yield hit.locator, looked
                continue
            queue.append((hit, pool.submit(_look, hit, limits)))
            if len(queue) > most:
                yield first()
        while queue:
            yield first()


class _Journal:
    """What was hashed before, a line a file of the set in their order; it may break off anywhere.

    Args:
        path: the file; None keeps nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._recalls = path, path is not None

    def __enter__(self) -> _Journal:
        if self._path is not None:
            with storage_errors(printable(self._path)):
                self._stream = self._path.open("a+b")
            self._stream.seek(0)
        return self

    def __exit__(self, *error: object) -> None:
        if self._path is not None:
            self._stream.close()

    def recall(self, hit: Hit) -> _Looked | None:
        """What is noted of the next file; None from the first one on that is not there or new."""
        if not self._recalls:
            return None
        place = self._stream.tell()
        try:
            *what, told = json.loads(self._stream.readline())
            if what == [hit.locator, _stamp(hit)]:
                return told if isinstance(told, dict) else ImageRefused(*told)
        except (ValueError, TypeError):
            pass
        self._recalls = False
        self._stream.truncate(place)
        self._stream.seek(place)
        return None

    def note(self, hit: Hit, looked: _Looked) -> None:
        """Keep what a file gave; the notes of some files may be lost by a kill."""
        if self._path is None:
            return
        told = [looked.reason, looked.detail] if isinstance(looked, ImageRefused) else looked
        line = json.dumps([hit.locator, _stamp(hit), told]) + "\n"
        with storage_errors(printable(self._path)):
            self._stream.write(line.encode())


def _stamp(hit: Hit) -> list[int] | None:
    """What tells whether a picture is the one that was hashed: its length and time of change."""
    if hit.data is not None:
        return [len(hit.data)]
    try:
        status = hit.path.stat(follow_symlinks=False) if hit.path else None
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns] if status else None


class _Gathered:
    """Rows on their way into a set."""

    def __init__(self) -> None:
        self._builder = HashSetBuilder()
        self._rows: list[tuple[str, dict[str, str]]] = []
        self.refused: Counter[str] = Counter()
        self.count = 0

    def add(self, name: str, looked: _Looked) -> None:
        self.count += 1
        if isinstance(looked, ImageRefused):
            self.refused[looked.reason] += 1
            return
        self._rows.append((name, looked))
        if len(self._rows) == _ROWS_AT_ONCE:
            self._flush()

    def build(self, name: str) -> HashSet:
        self._flush()
        return self._builder.build(name)

    def _flush(self) -> None:
        columns: dict[str, Any] = {c: [looked[c] for _, looked in self._rows] for c in DIGITS}
        self._builder.add([name for name, _ in self._rows], columns)
        self._rows.clear()
