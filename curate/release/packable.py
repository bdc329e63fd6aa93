"""A release that stands on the disk, read for packing: every byte as its checksums say."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from curate.errors import StorageError, UsageError, VerificationError
from curate.files import printable, sha256_bytes
from curate.labels.space import LabelSpace
from curate.release.reading import CHECKSUMS, MANIFEST, manifest_pieces, weight_of
from curate.release.rows import RowFile
from curate.release.version import Version

if TYPE_CHECKING:
    import pyarrow as pa

#: The types of columns, and what Hugging Face calls them.
DTYPES = {
    "string": "string",
    "int32": "int32",
    "int64": "int64",
    "double": "float64",
    "bool": "bool",
}

# A line of the checksums is some hundred bytes; this is enough for ten million images.
_LARGEST_TEXT = 2_000_000_000
# Threads that read ahead, how many batches, and what one batch holds at most.
_READERS, _AHEAD = 2, 2
_BATCH_IMAGES, _BATCH_BYTES = 16, 4_000_000
_PIECE = 1 << 20


class PackedImage(NamedTuple):
    """What packing knows of one image.

    Attributes:
        number: its row of the manifest.
        path: within the release.
        sha256: of its bytes.
        key: of its candidate, without dots and slashes.
        split: which one it belongs to.
        label: the place of its class folder in the class map, from 0.
        size: in bytes.
    """

    number: int
    path: str
    sha256: str
    key: str
    split: str
    label: int
    size: int


class PackableRows(RowFile):
    """The rows of the manifest by their number.

    Args:
        folder: on whose disk.
        names: of the columns.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        super().__init__(folder)
        self.names = tuple(names)

    def row(self, number: int) -> dict[str, Any]:
        """One row by its columns' names."""
        return dict(zip(self.names, self.values(number), strict=True))

    def columns(self, numbers: Sequence[int]) -> dict[str, Sequence[Any]]:
        """Some rows, at least one, as columns by name."""
        rows = map(self.values, numbers)
        return dict(zip(self.names, zip(*rows, strict=True), strict=True))


@dataclass(frozen=True)
class Packable:
    """A release whose list of files is that of its checksums and its manifest.

    Attributes:
        root: its folder.
        version: which one it is.
        record: what `release.json` holds.
        space: its class map.
        schema: of its manifest.
        images: sorted by path.
        others: the other files by path, with their SHA-256, which have been checked.
        sums: all files by path, with their SHA-256, but for the checksums themselves.
        sizes: all files by path, with their length in bytes.
    """

    root: Path
    version: Version
    record: Mapping[str, Any]
    space: LabelSpace
    schema: pa.Schema
    images: Sequence[PackedImage]
    others: Mapping[str, str]
    sums: Mapping[str, str]
    sizes: Mapping[str, int]

    def column(self, name: str) -> Iterator[Any]:
        """One column of the manifest, in the order of its rows."""
        for row in self._values([name]):
            yield row[0]

    @contextmanager
    def rows(self, folder: Path) -> Iterator[PackableRows]:
        """The manifest's rows, for the forms that hold them: on the disk of `folder`, since a row
        is some kilobytes and they are wanted in another order."""
        with PackableRows(folder, self.schema.names) as rows:
            for values in self._values(self.schema.names):
                rows.append(values)
            yield rows

    def _values(self, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        return manifest_values(self.root, self.bytes_of(MANIFEST), columns)

    def splits(self) -> dict[str, list[PackedImage]]:
        """The images of each split, splits by name and images in their order."""
        by_split: dict[str, list[PackedImage]] = {}
        for image in self.images:
            by_split.setdefault(image.split, []).append(image)
        return dict(sorted(by_split.items()))

    def read(self, images: Sequence[PackedImage]) -> Iterator[tuple[PackedImage, bytes]]:
        """The images with their bytes, in order, some of them read ahead.

        Raises:
            VerificationError: an image is not what the manifest says.
            StorageError: one cannot be read.
        """
        waiting: deque[tuple[Sequence[PackedImage], Future[list[bytes]]]] = deque()
        pool = ThreadPoolExecutor(_READERS, thread_name_prefix="pack")

        def done() -> Iterator[tuple[PackedImage, bytes]]:
            batch, read = waiting.popleft()
            return zip(batch, read.result(), strict=True)

        try:
            for batch in _batches(images):
                waiting.append((batch, pool.submit(self._bytes_of_all, batch)))
                if len(waiting) > _AHEAD:
                    yield from done()
            while waiting:
                yield from done()
        finally:
            pool.shutdown(cancel_futures=True)

    def _bytes_of_all(self, images: Sequence[PackedImage]) -> list[bytes]:
        return [self.bytes_of(image.path) for image in images]

    def pieces_of(self, path: str) -> Iterator[bytes]:
        """As `bytes_of`, in pieces; that they are right is known after the last one."""
        digest = hashlib.sha256()
        try:
            with (self.root / path).open("rb") as stream:
                while piece := stream.read(_PIECE):
                    digest.update(piece)
                    yield piece
        except OSError as error:
            reason = error.strerror
            raise StorageError(f"cannot read {printable(self.root / path)}: {reason}") from error
        if path != CHECKSUMS and digest.hexdigest() != self.sums[path]:
            raise self._altered(path)

    def bytes_of(self, path: str) -> bytes:
        """The bytes of one file, which are those that the checksums name.

        Raises:
            VerificationError: they are not.
            StorageError: it cannot be read.
        """
        data = read_whole(self.root / path)
        if path != CHECKSUMS and sha256_bytes(data) != self.sums[path]:
            raise self._altered(path)
        return data

    def _altered(self, path: str) -> VerificationError:
        return VerificationError(
            f"{printable(self.root / path)} is not what {CHECKSUMS} says; nothing was packed: "
            "fetch or build the release again"
        )


def manifest_values(root: Path, data: bytes, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Some columns of a manifest row by row.

    Args:
        root: the release's folder.
        data: the Parquet file.
        columns: which ones.

    Raises:
        VerificationError: it cannot be read, or is so long that it would fill a disk.
    """
    import pyarrow as pa

    unpacked = 0
    try:
        for piece in manifest_pieces(pa.py_buffer(data), MANIFEST, columns):
            unpacked += weight_of(piece)
            if unpacked > _LARGEST_TEXT:
                raise altered(root, f"{MANIFEST} unpacks to over {_LARGEST_TEXT:,} bytes")
            yield from zip(*(piece[name].to_pylist() for name in columns), strict=True)
    except UsageError as error:
        raise altered(root, str(error)) from error
    except UnicodeDecodeError as error:
        raise altered(root, f"a text of {MANIFEST} is none") from error


def _batches(images: Sequence[PackedImage]) -> Iterator[list[PackedImage]]:
    batch: list[PackedImage] = []
    size = 0
    for image in images:
        if batch and (len(batch) == _BATCH_IMAGES or size + image.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(image)
        size += image.size
    yield batch


def read_whole(path: Path) -> bytes:
    """The bytes of a file that is no link and not too large to be held.

    Raises:
        VerificationError: it is one.
        StorageError: it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST_TEXT:
                raise VerificationError(f"{printable(path)} is no file of a release")
            return stream.readall()
    except OSError as error:
        raise StorageError(f"cannot read {printable(path)}: {error.strerror}") from error


def altered(root: Path, what: str) -> VerificationError:
    """The error that says how a release differs from what was built."""
    return VerificationError(
        f"{printable(root)} is not as it was built: {what}; nothing was packed: fetch or build "
        "the release again"
    )
