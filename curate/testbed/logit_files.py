"""NPZ files with logits, read block by block: memory does not grow with their size."""

from __future__ import annotations

import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from curate.errors import UsageError
from curate.files import printable
from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace, load_label_space
from curate.testbed.image_ids import ImageIds
from curate.testbed.predictions import Gathered, Predictions, score_logits

# Numbers of one block of logits, and bytes of a whole list of ids.
_BLOCK, _LARGEST_LIST = 1 << 20, 1 << 30


def read_logits(
    path: Path,
    items: Sequence[tuple[str, str]] | None,
    choose: Callable[[Sequence[str]], LabelSpace],
    max_rows: int,
) -> tuple[Predictions, LabelSpace]:
    """Read an NPZ file with logits and restrict them to the label space.

    Its arrays:
        logits: numbers [n, K].
        paths: text [n], the image of each row; needed where `items` is given.
        labels: [n], the true classes, as ids or as ImageNet-1k's column numbers; needed where
            `items` is None.
        classes: text [K], the ids of the columns. Without it K is 1000 for the columns of
            ImageNet-1k, or the size of the label space for its classes in order.

    A row that holds NaN or an infinity counts as failed.

    Args:
        path: the file. Pickled objects in it are never loaded.
        items: see `prediction_files.read_predictions`.
        choose: gives the label space for the true classes.
        max_rows: most rows to read.

    Raises:
        UsageError: the file cannot be read, is cut off, or a row is wrong.
    """
    with _reading(path), zipfile.ZipFile(path) as archive:
        file = _Archive(archive, printable(path))
        with file.open("logits") as logits:
            rows, outputs = _shape(logits, max_rows)
        paths = file.texts("paths", rows)
        labels = _true_classes(file, rows)
        if items is None:
            if labels is None:
                raise UsageError(
                    f"{file.name}: without a DATASET an array 'labels' must give the true classes"
                )
            items = [
                (paths[row] if paths else f"row {row + 1}", label)
                for row, label in enumerate(labels)
            ]
            places = list(range(rows))
        else:
            places = _places(file.name, items, paths, labels)
        space = choose([wnid for _, wnid in items])
        targets = _targets(file.name, items, places, space)
        columns, output = _columns(file, outputs, space)
        gathered = Gathered(
            [image for image, _ in items], [wnid for _, wnid in items], space, columns, output
        )
        with file.open("logits") as logits:
            start = 0
            for block in logits.blocks():
                stop = start + len(block)
                scores = score_logits(block, columns, targets[start:stop])
                gathered.add(places[start:stop], scores)
                start = stop
    return gathered.predictions(), space


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (
        OSError,
        EOFError,
        MemoryError,
        ValueError,
        RuntimeError,  # an encrypted member; NotImplementedError: a rare compression
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
    ) as error:
        told = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
        raise UsageError(
            f"cannot read {printable(path)}: it is no whole NPZ file ({told})"
        ) from error


class _Archive:
    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self.name = archive, name
        self._members = {i.filename.removesuffix(".npy"): i for i in archive.infolist()}

    def __contains__(self, array: str) -> bool:
        return array in self._members

    @contextmanager
    def open(self, array: str) -> Iterator[_Array]:
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
            held = info.file_size - stream.tell()
            if math.prod(shape) * dtype.itemsize != held:
                raise UsageError(
                    f"{where} claims {shape} of {dtype}, but holds {held:,} bytes: is it cut off?"
                )
            yield _Array(stream, shape, dtype, where)

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
        """The same, as text."""
        values = self.values(array, rows)
        if values is None:
            return None
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8")
        if values.dtype.kind != "U":
            raise UsageError(f"{self.name}: array {array!r} must hold text, not {values.dtype}")
        found: list[str] = values.tolist()
        return found


@dataclass(frozen=True)
class _Array:
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


def _shape(logits: _Array, max_rows: int) -> tuple[int, int]:
    if len(logits.shape) != 2 or not all(logits.shape):
        raise UsageError(f"{logits.where} must be images by classes, not {logits.shape}")
    if logits.dtype.kind not in "fiu":
        raise UsageError(f"{logits.where} must hold numbers, not {logits.dtype}")
    rows, outputs = logits.shape
    if rows > max_rows:
        raise UsageError(f"{logits.where}: more than {max_rows:,} rows")
    return rows, outputs


def _true_classes(file: _Archive, rows: int) -> list[str] | None:
    values = file.values("labels", rows)
    if values is None or values.dtype.kind not in "iu":
        return file.texts("labels", rows)
    wnids = load_label_space("imagenet-1k").wnids
    wrong = (values < 0) | (values >= len(wnids))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UsageError(
            f"{file.name}, row {row + 1}: label {values[row]} is no column of imagenet-1k, "
            f"which has 0 … {len(wnids) - 1}"
        )
    return [wnids[value] for value in values.tolist()]


def _places(
    name: str,
    items: Sequence[tuple[str, str]],
    paths: Sequence[str] | None,
    labels: Sequence[str] | None,
) -> list[int]:
    """For each row of the file, its place in the dataset."""
    if paths is None:
        raise UsageError(
            f"{name}: an array 'paths' must say which image of the dataset each row is about"
        )
    ids = ImageIds(items, name)
    rows = ids.places((f"row {row + 1}", path) for row, path in enumerate(paths))
    places = [0] * len(rows)
    for place, row in enumerate(rows):
        places[row] = place
    for row, label in enumerate(labels or ()):
        if label != items[places[row]][1]:
            raise UsageError(
                f"{name}, row {row + 1}: the true class is {label!r} here and "
                f"{items[places[row]][1]!r} in the dataset"
            )
    return places


def _targets(
    name: str, items: Sequence[tuple[str, str]], places: Sequence[int], space: LabelSpace
) -> list[int]:
    targets = []
    for row, place in enumerate(places):
        wnid = items[place][1]
        if wnid not in space:
            raise UsageError(
                f"{name}, row {row + 1}: true class {wnid!r} is no class of {space.name}"
            )
        targets.append(space.position(wnid))
    return targets


def _columns(
    file: _Archive, outputs: int, space: LabelSpace
) -> tuple[Sequence[int], LabelSpace | None]:
    """The columns of the label space's classes, and the classes of all columns where known."""
    if (ids := file.texts("classes", outputs)) is not None:
        output = LabelSpace(f"{file.name}'s classes", [LabelClass(wnid, wnid) for wnid in ids])
        return space.columns_in(output), output
    thousand = load_label_space("imagenet-1k")
    if outputs == len(thousand) == len(space) and space.wnids != thousand.wnids:
        raise UsageError(
            f"{file.name}: {outputs} columns may be those of {space.name} or of imagenet-1k; "
            "add an array 'classes' with the ids of the columns"
        )
    if outputs == len(space):
        whole = space if space.wnids == thousand.wnids else None
        return range(outputs), whole
    if outputs == len(thousand):
        return space.columns_in(thousand), thousand
    raise UsageError(
        f"{file.name}: logits have {outputs} columns, neither the {len(space)} of {space.name} "
        f"nor the {len(thousand)} of imagenet-1k; add an array 'classes' with their ids"
    )
