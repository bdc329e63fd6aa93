"""Parquet tables from anyone's code, cell by cell in bounded memory.

Compression may pack one long text once for millions of rows, and a cell may hold what no Python
value does. So texts stay packed until their length is known, and only text, numbers and flags are
taken as values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import UsageError
from curate.files import printable
from curate.testbed.foreign_text import first_line, short

if TYPE_CHECKING:
    import pyarrow as pa

#: Most bytes of one text.
LONGEST_TEXT = 10_000

# Rows that are unpacked together.
_BATCH = 4096

#: Says which columns to read, of the names that there are and the number of rows.
Choose = Callable[[Sequence[str], int], Sequence[str]]


def parquet_batches(path: Path, choose: Choose) -> Iterator[tuple[int, dict[str, list[Any]]]]:
    """The cells of some columns, some rows at a time.

    Args:
        path: the file.
        choose: gives the columns to read, each there once; or raises `UsageError`.

    Yields:
        The number of the first row, from 1, and each column's cells: text, a number, a flag, or
        None. Points and lengths of time are told as text.

    Raises:
        UsageError: it is no whole Parquet file, a column holds something else, or a text has more
            than `LONGEST_TEXT` bytes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = printable(path)
    try:
        with path.open("rb") as stream:
            first = pq.ParquetFile(stream)
            schema, rows = first.schema_arrow, first.metadata.num_rows
            wanted = list(choose(schema.names, rows))
            kinds = {name: schema.field(name).type for name in wanted}
            for name, kind in kinds.items():
                if not _is_plain(kind):
                    raise UsageError(
                        f"{file}: column {short(name)} holds {kind}, neither numbers nor text"
                    )
            texts = [name for name, kind in kinds.items() if _is_text(kind)]
            parquet = pq.ParquetFile(stream, read_dictionary=texts, page_checksum_verification=True)
            start = 1
            for batch in parquet.iter_batches(batch_size=_BATCH, columns=wanted):
                cells = {}
                for name, kind in kinds.items():
                    column = batch.column(name)
                    if _is_text(kind):
                        _check_length(column, f"{file}: column {short(name)}")
                    cells[name] = _values(column)
                yield start, cells
                start += len(batch)
    except (pa.ArrowException, OSError, MemoryError, ValueError) as error:
        raise UsageError(
            f"cannot read {file}: it is no whole Parquet file ({first_line(error)})"
        ) from error


def _check_length(column: Any, where: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = column.dictionary if pa.types.is_dictionary(column.type) else column
    longest = pc.max(pc.binary_length(texts.cast(pa.large_string()))).as_py()
    if longest is not None and longest > LONGEST_TEXT:
        raise UsageError(f"{where}: a text has more than {LONGEST_TEXT:,} bytes")


def _values(column: Any) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_temporal(column.type):
        # Not every one is a date that Python has.
        column = column.cast(pa.string())
    values: list[Any] = column.to_pylist()
    return values


def _is_plain(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    return bool(
        _is_text(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_boolean(kind)
        or types.is_null(kind)
        or (types.is_temporal(kind) and not types.is_interval(kind))
    )


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
