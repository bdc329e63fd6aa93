"""Rows of a manifest that are wanted in another order than they come in, and their tables.

A row is some kilobytes of texts and scores. They wait in a file without a name, and come back some
hundreds at a time, in the order of their paths; only what names and counts need stays in memory.
"""

from __future__ import annotations

import marshal
import os
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from curate.files import TEMPORARY
from curate.release.manifest import COLUMNS, ROWS, ManifestRow, Table

# Columns that are known only when the image is written.
_LATE = ("path", "sha256", "reencoded", "cleaned")

_values = attrgetter(*COLUMNS)


class Released(NamedTuple):
    """What is kept in memory of each image of a release; the attributes are `ManifestRow`'s.

    Attributes:
        number: of its row, in the order in which the rows came.
    """

    path: str
    candidate: str
    wnid: str
    name: str
    licence: str
    split: str | None
    sha256: str
    original_sha256: str
    reencoded: bool
    cleaned: bool
    number: int


class RowFile:
    """Rows on the disk, to be read in any order.

    Args:
        folder: on whose disk.
    """

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, prefix=TEMPORARY)  # noqa: SIM115 - `__exit__` closes it
        self._ends = array("Q", [0])
        self._flushed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(self, values: tuple[Any, ...]) -> int:
        """Put a row down: texts, numbers, flags and None; gives its number, from 0."""
        data = marshal.dumps(values)
        self._file.write(data)
        self._ends.append(self._ends[-1] + len(data))
        return len(self._ends) - 2

    def values(self, number: int) -> tuple[Any, ...]:
        """The row that has a number."""
        start, end = self._ends[number], self._ends[number + 1]
        if end > self._flushed:
            self._file.flush()
            self._flushed = self._ends[-1]
        row: tuple[Any, ...] = marshal.loads(os.pread(self._file.fileno(), end - start, start))
        return row


class WaitingRows(RowFile):
    """The rows of a release that is being built."""

    def add(self, row: ManifestRow) -> int:
        """Put a row down; gives its number."""
        return self.append(_values(row))

    def tables(self, images: Sequence[Released]) -> Iterator[Table]:
        """The rows of images, in their order, with what became known when they were written.

        Their texts are as they came; see `table_of`.
        """
        for start in range(0, len(images), ROWS):
            some = images[start : start + ROWS]
            rows = (self.values(image.number) for image in some)
            columns: dict[str, Sequence[Any]] = dict(
                zip(COLUMNS, zip(*rows, strict=True), strict=True)
            )
            for name in _LATE:
                columns[name] = [getattr(image, name) for image in some]
            yield columns
