"""Reading what releases say of themselves: files that somebody else may have written.

Nothing is believed: sizes are checked before anything is read, columns that are absent are None,
and what cannot be read is told in one line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import UsageError
from curate.files import csv_plain, printable, read_csv
from curate.release.manifest import ManifestRow

if TYPE_CHECKING:
    import pyarrow as pa

#: What is remembered of images that were taken back.
TOMBSTONES = "tombstones.csv"
TOMBSTONE_COLUMNS = ("sha256", "retracted", "reason")

MANIFEST, MANIFEST_CSV, CHECKSUMS = "manifest.parquet", "manifest.csv", "SHA256SUMS"

#: Most bytes of what is held in memory as a whole, and of tables, which are read in pieces.
LARGEST_TEXT, LARGEST_TABLE = 1 << 26, 1 << 34

# Rows that are read together, and most bytes of their texts: a few bytes of a Parquet file may
# stand for one long text in each of many rows.
_ROWS_AT_ONCE, _LARGEST_PIECE = 1000, 1 << 26


# Columns that nothing but text may stand in.
_TEXTS = frozenset(field.name for field in fields(ManifestRow) if str(field.type)[:3] == "str")


def manifest_rows(folder: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a release's `manifest.parquet`, some hundreds at a time.

    Args:
        folder: of the release.
        columns: those wanted; None where the manifest has no such column. All by default.

    Raises:
        UsageError: it is absent, unreadable, far too large, or holds what no manifest holds.
    """
    where = printable(folder / MANIFEST)
    try:
        _check_size(folder / MANIFEST)
    except OSError as error:
        raise UsageError(f"cannot read {where}: {error.strerror}") from error
    empty: dict[str, Any] = {} if columns is None else dict.fromkeys(columns)
    for piece in manifest_pieces(folder / MANIFEST, where, columns):
        for row in piece.to_pylist():
            yield empty | row


def manifest_pieces(
    source: Path | pa.Buffer, where: str, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a manifest as tables of some hundreds, none of which is large.

    Args:
        source: the file, or its content.
        where: what errors call it.
        columns: those wanted, of which absent ones are left out. All by default.

    Returns:
        Texts are dictionary-encoded: a long one that stands in many rows is held once.

    Raises:
        UsageError: it is unreadable, or holds what no manifest holds.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if isinstance(source, pa.Buffer):
            source = pa.BufferReader(source)
        with pq.ParquetFile(source) as file:
            schema = file.schema_arrow
            texts = [one.name for one in schema if pa.types.is_string(one.type)]
            there = schema.names
            if len(set(there)) < len(there) or not all(map(_is_of_manifests, schema)):
                raise UsageError(f"cannot read {where}: its columns are not those of a manifest")
            some = [column for column in there if columns is None or column in columns]
        if isinstance(source, pa.BufferReader):
            source.seek(0)
        with pq.ParquetFile(source, read_dictionary=texts) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=some, use_threads=False):
                if weight_of(batch) > _LARGEST_PIECE:
                    raise UsageError(f"cannot read {where}: its texts are too long")
                yield batch
    except (OSError, pa.ArrowException, MemoryError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UsageError(f"cannot read {where}: {reason.splitlines()[0]}") from error


def weight_of(piece: pa.RecordBatch) -> int:
    """How many bytes the values of a piece have, each text counted as often as it stands there."""
    return sum(map(_weight, piece.columns))


def _is_of_manifests(column: pa.Field) -> bool:
    """Whether a column may be one of a manifest: texts, which `_weight` can weigh, or numbers."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if column.name in _TEXTS:
        return bool(pa.types.is_string(kind))
    is_of = (pa.types.is_string, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
    return any(one(kind) for one in is_of)


def _check_size(path: Path) -> None:
    if path.stat().st_size > LARGEST_TABLE:
        raise UsageError(f"cannot read {printable(path)}: it is too large")


def _weight(column: pa.Array) -> int:
    """How many bytes a column's texts have, each counted as often as it stands there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary.cast(pa.large_binary()))
    return int(pc.sum(lengths.cast(pa.int64()).take(column.indices)).as_py() or 0)


def manifest_about(folder: Path) -> bytes | None:
    """The record that a release's manifest carries; None where it carries none.

    Raises:
        UsageError: the manifest cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        told = pq.read_schema(folder / MANIFEST).metadata or {}
    except (OSError, pa.ArrowException, MemoryError) as error:
        raise UsageError(f"cannot read {printable(folder / MANIFEST)}") from error
    return told.get(b"curate")


def release_record(data: bytes, name: str) -> dict[str, Any]:
    """What `release.json` holds.

    Raises:
        UsageError: it is no JSON object.
    """
    try:
        record = json.loads(data)
        if not isinstance(record, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"cannot read {name}: it is no release's record") from error
    return record


def read_tombstones(path: Path) -> dict[str, tuple[str, str]]:
    """SHA-256 to (date, reason) of a list of images that were taken back.

    Raises:
        UsageError: it cannot be read, or lacks a column.
    """
    return {
        row["sha256"].strip().lower(): (row["retracted"], csv_plain(row["reason"]))
        for _, row in read_csv(path, TOMBSTONE_COLUMNS)
    }
