"""Hashes of a whole set of pictures, such as ImageNet's training images, and their file.

A hash file is a Parquet or CSV table with a row a picture and the columns

    name             what names the picture in its set
    sha256           of the file's bytes, 64 hexadecimal digits
    perceptual_hash  32 hexadecimal digits (see `curate.images.hashing.PerceptualHash`)
    pixel_sha256     of the pixels, 64 digits (see `curate.images.hashing`); may be left out

It holds no picture and can be passed on where the pictures may not be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.errors import UsageError
from curate.files import atomic_write, csv_plain, csv_text, printable, read_csv
from curate.images.near import Hashes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    #: SHA-256 values as bytes [n, 32].
    Digests = NDArray[np.uint8]

#: Digits by column; the last column may be left out.
DIGITS = {"sha256": 64, "perceptual_hash": 32, "pixel_sha256": 64}

_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class HashSet:
    """The hashes of a set of pictures, sorted by name.

    Attributes:
        name: what the set is called.
        names: of the pictures, an Arrow array of strings [n].
        sha256: of their bytes [n, 32].
        pixels: of their pixels [n, 32]; None where they are not known.
        hashes: what the pictures look like.
    """

    name: str
    names: Any
    sha256: Digests
    pixels: Digests | None
    hashes: Hashes

    def __len__(self) -> int:
        return len(self.hashes)

    def picture(self, place: int) -> str:
        """The name of one picture."""
        return str(self.names[place].as_py())


class HashSetBuilder:
    """Gathers rows into a `HashSet`; takes some 150 bytes a picture."""

    def __init__(self) -> None:
        self._names: list[Any] = []
        self._digests = {column: bytearray() for column in DIGITS}
        self._has_pixels = True

    def add(self, names: Sequence[str], columns: dict[str, Sequence[str] | None]) -> None:
        """Add some rows.

        Args:
            names: of the pictures.
            columns: for each of `DIGITS` the digits of each row; None for pixels not known.

        Raises:
            ValueError: a value has other digits; the text names the column and the row among
                these.
        """
        import pyarrow as pa

        decoded = {}
        for column, values in columns.items():
            if values is None:
                self._has_pixels = False
                continue
            decoded[column] = _decoded(column, values)
        self._names.append(pa.array(names, pa.large_string()))
        for column, data in decoded.items():
            self._digests[column] += data

    def build(self, name: str) -> HashSet:
        """The set, sorted by name and then by content."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = pa.chunked_array(self._names, pa.large_string()).combine_chunks()
        sha256 = np.frombuffer(bytes(self._digests["sha256"]), np.uint8).reshape(-1, 32)
        both = np.frombuffer(bytes(self._digests["perceptual_hash"]), ">u8").reshape(-1, 2)
        # Only the front of a SHA-256: it decides the order of equal names alone.
        content = sha256[:, :8].copy().view(">u8").reshape(-1).astype(np.uint64)
        keys = pa.table({"name": names, "content": content})
        order = pc.sort_indices(keys, [("name", "ascending"), ("content", "ascending")])
        places = order.to_numpy()
        pixels = None
        if self._has_pixels:
            pixels = np.frombuffer(bytes(self._digests["pixel_sha256"]), np.uint8)
            pixels = pixels.reshape(-1, 32)[places]
        hashes = both[places].astype(np.uint64)
        return HashSet(
            name,
            names.take(order),
            sha256[places],
            pixels,
            Hashes(hashes[:, 0].copy(), hashes[:, 1].copy()),
        )


def _decoded(column: str, values: Sequence[str]) -> bytes:
    digits = DIGITS[column]
    matches = re.compile(rf"[0-9a-fA-F]{{{digits}}}").fullmatch
    for row, value in enumerate(values, start=1):
        if not matches(value):
            shown = value if len(value) <= 80 else value[:80] + "…"
            raise ValueError(
                f"row {row}: {column} should be {digits} hexadecimal digits, not {shown!r}"
            )
    return bytes.fromhex("".join(values))


def is_hash_file(path: Path) -> bool:
    """Whether a file is a hash file and no archive: by its first bytes, or the ending `.csv`.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(4)
    except OSError as error:
        raise UsageError(f"cannot read {printable(path)}: {error.strerror}") from error
    return start == b"PAR1" or path.suffix.lower() == ".csv"


def read_hash_file(path: Path) -> HashSet:
    """The set that a hash file holds.

    Args:
        path: a Parquet file, by its content, or else a CSV file.

    Raises:
        UsageError: it cannot be read, lacks a column, or holds a value of another form.
    """
    builder = HashSetBuilder()
    done = 0
    rows = _csv_rows(path) if path.suffix.lower() == ".csv" else _parquet_rows(path)
    for names, columns in rows:
        try:
            builder.add(names, columns)
        except ValueError as error:
            where = f" (after row {done:,})" if done else ""
            raise UsageError(f"{printable(path)}{where}: {error}") from error
        done += len(names)
    return builder.build(printable(path.name))


_Rows = Iterator[tuple[Sequence[str], dict[str, Sequence[str] | None]]]


def _parquet_rows(path: Path) -> _Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            there = file.schema_arrow.names
            columns = ["name", *(c for c in DIGITS if c in there or c != "pixel_sha256")]
            absent = [column for column in columns if column not in there]
            if absent:
                raise UsageError(
                    f"{printable(path)}: column {absent[0]!r} is missing; it has "
                    f"{', '.join(there) or 'none'}"
                )
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                texts = {
                    column: ["" if v is None else v for v in _texts(batch[column], column, path)]
                    for column in columns
                }
                yield texts["name"], {column: texts.get(column) for column in DIGITS}
    except (OSError, pa.ArrowException) as error:
        told = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"cannot read {printable(path)}: {told}") from error


def _texts(values: Any, column: str, path: Path) -> list[str | None]:
    import pyarrow as pa

    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise UsageError(f"{printable(path)}: column {column!r} holds {values.type}, not text")
    texts: list[str | None] = values.to_pylist()
    return texts


def _csv_rows(path: Path) -> _Rows:
    rows: list[dict[str, str]] = []

    def block() -> tuple[Sequence[str], dict[str, Sequence[str] | None]]:
        columns: dict[str, Sequence[str] | None] = {
            c: [row[c] for row in rows] if c in rows[0] else None for c in DIGITS
        }
        return [csv_plain(row["name"]) for row in rows], columns

    for _, row in read_csv(path, ["name", *list(DIGITS)[:2]]):
        rows.append(row)
        if len(rows) == _ROWS_AT_ONCE:
            yield block()
            rows.clear()
    if rows:
        yield block()


def write_hash_file(path: Path, hashes: HashSet) -> None:
    """Write a set's hash file, the same bytes for the same set.

    Args:
        path: CSV where it ends in `.csv`, else Parquet.
        hashes: the set.

    Raises:
        StorageError: the disk is full or refuses.
    """
    blocks = _blocks(hashes)
    with atomic_write(path) as stream:
        if path.suffix.lower() == ".csv":
            columns = ["name", *(c for c in DIGITS if c != "pixel_sha256" or _pixels(hashes))]
            stream.write(csv_text(columns, []).encode())
            for block in blocks:
                text = csv_text(columns, zip(*(block[c] for c in columns), strict=True))
                stream.write(text.partition("\n")[2].encode())
            return
        _write_parquet(stream, blocks, _pixels(hashes))


def _pixels(hashes: HashSet) -> bool:
    return hashes.pixels is not None


def _blocks(hashes: HashSet) -> Iterator[dict[str, list[str]]]:
    for start in range(0, len(hashes), _ROWS_AT_ONCE):
        piece = slice(start, start + _ROWS_AT_ONCE)
        pairs = zip(hashes.hashes.picture[piece], hashes.hashes.mirror[piece], strict=True)
        block = {
            "name": hashes.names[piece].to_pylist(),
            "sha256": [row.tobytes().hex() for row in hashes.sha256[piece]],
            "perceptual_hash": [f"{picture:016x}{mirror:016x}" for picture, mirror in pairs],
        }
        if hashes.pixels is not None:
            block["pixel_sha256"] = [row.tobytes().hex() for row in hashes.pixels[piece]]
        yield block


def _write_parquet(stream: Any, blocks: Iterable[dict[str, list[str]]], pixels: bool) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["name", *(c for c in DIGITS if c != "pixel_sha256" or pixels)]
    schema = pa.schema([(name, pa.string()) for name in names])
    with pq.ParquetWriter(stream, schema, compression="zstd", use_dictionary=False) as writer:
        for block in blocks:
            writer.write_table(pa.table({name: block[name] for name in names}, schema))


def same_digests(a: Digests, b: Digests) -> NDArray[np.int64]:
    """For each of `a` the first place in `b` with the same value, -1 where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    mine, theirs = (
        pa.Array.from_buffers(
            pa.binary(32), len(one), [None, pa.py_buffer(np.ascontiguousarray(one))]
        )
        for one in (a, b)
    )
    found: NDArray[np.int64] = pc.index_in(mine, theirs).fill_null(-1).to_numpy().astype(np.int64)
    return found
