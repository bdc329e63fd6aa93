"""Arrays of NPZ files from anyone's code, in bounded memory; what they claim is checked."""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from curate.errors import UsageError
from curate.files import printable
from curate.testbed.foreign_text import first_line

# Numbers of one block, and bytes of a whole list of texts.
_BLOCK, _LARGEST_LIST = 1 << 20, 1 << 30

_LAST_SIGN = 0x10FFFF


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an NPZ file; whatever is found broken in it meanwhile is told in one line.

    Args:
        path: the file. Pickled objects in it are never loaded.

    Raises:
        UsageError: it cannot be read, or holds an array twice.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield Archive(archive, printable(path))
    except (
        OSError,
        EOFError,
        MemoryError,
        ValueError,
        RuntimeError,  # an encrypted member; NotImplementedError: a rare compression
        SyntaxError,
        tokenize.TokenError,  # NumPy takes a header that is no Python for one of Python 2
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
    ) as error:
        raise UsageError(
            f"cannot read {printable(path)}: it is no whole NPZ file ({first_line(error)})"
        ) from error


class Archive:
    """The arrays of an open file, by name.

    Args:
        archive: the file.
        name: how errors call it.

    Raises:
        UsageError: an array is there twice.
    """

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self.name = archive, name
        self._members: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            array = info.filename.removesuffix(".npy")
            if self._members.setdefault(array, info) is not info:
                raise UsageError(f"{name}: array {array!r} is there twice")

    def __contains__(self, array: str) -> bool:
        return array in self._members

    @contextmanager
    def open(self, array: str) -> Iterator[Array]:
        """One of the arrays; what its header claims is checked against the bytes there are."""
        if array not in self._members:
            there = ", ".join(sorted(self._members)[:10]) or "none"
            raise UsageError(f"{self.name}: array {array!r} is missing; there are {there}")
        info = self._members[array]
        where = f"{self.name}: array {array!r}"
        with self._archive.open(info) as stream:
            shape, fortran, dtype = _header(stream)
            if dtype.hasobject:
                raise UsageError(f"{where} holds Python objects; save numbers or plain text")
            if fortran and len(shape) > 1:
                raise UsageError(f"{where} is in Fortran order; numpy.ascontiguousarray helps")
            if not all(type(side) is int and side >= 0 for side in shape):
                raise UsageError(f"{where} claims the shape {shape}, which none has")
            held = info.file_size - stream.tell()
            if math.prod(shape) * dtype.itemsize != held:
                raise UsageError(
                    f"{where} claims {shape} of {dtype}, but holds {held:,} bytes: is it cut off?"
                )
            yield Array(stream, shape, dtype, where)

    def values(self, array: str, rows: int) -> Any:
        """A list of `rows` cells, or None where there is none of this name."""
        if array not in self:
            return None
        with self.open(array) as found:
            if found.shape != (rows,):
                raise UsageError(f"{found.where} has the shape {found.shape}, not ({rows},)")
            if rows * found.dtype.itemsize > _LARGEST_LIST:
                raise UsageError(f"{found.where} holds over {_LARGEST_LIST:,} bytes")
            return found.read(rows)

    def texts(self, array: str, rows: int) -> list[str] | None:
        """The same, as text; names of files as `printable` tells them."""
        values = self.values(array, rows)
        if values is None:
            return None
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8")
        if values.dtype.kind != "U":
            raise UsageError(f"{self.name}: array {array!r} must hold text, not {values.dtype}")
        signs = values.view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
        if signs.size and signs.max() > _LAST_SIGN:
            raise UsageError(f"{self.name}: array {array!r} holds signs of no text")
        return [printable(text) for text in values.tolist()]


@dataclass(frozen=True)
class Array:
    """An array that is read from its beginning on.

    Attributes:
        stream: its data.
        shape, dtype: of the whole array.
        where: how errors call it.
    """

    stream: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    where: str

    def read(self, rows: int) -> np.ndarray[Any, Any]:
        """The next rows."""
        shape = (rows, *self.shape[1:])
        size = math.prod(shape) * self.dtype.itemsize
        data = self.stream.read(size)
        if len(data) < size:
            raise EOFError("the data ends early")
        return np.frombuffer(data, self.dtype).reshape(shape)

    def blocks(self) -> Iterator[np.ndarray[Any, Any]]:
        """All rows, some at a time."""
        rows, width = self.shape
        step = max(1, _BLOCK // width)
        for start in range(0, rows, step):
            yield self.read(min(step, rows - start))
        # The checksum is compared at the end of the data alone.
        self.stream.read(1)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"NPY format {version} holds named fields")
