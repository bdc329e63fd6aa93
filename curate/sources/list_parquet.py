"""The rows of lists in Parquet, streamed; a bad row or row group never stops the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import ImageRefused, UsageError
from curate.files import printable
from curate.sources.list_columns import find_columns
from curate.sources.list_rows import LONGEST_ROW, Row
from curate.sources.protocol import Cursor

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows that are read together.
_BATCH = 4096


def parquet_rows(path: Path, cursor: Cursor | None, *, labelled: bool) -> Iterator[Row]:
    """The rows of a Parquet file.

    Args:
        path: with columns of text (numbers are taken as text, but for addresses).
        cursor: that of an earlier row; a file that has changed since is read from the start.
        labelled: whether there must be a column of labels.

    Raises:
        UsageError: it is no Parquet file, or a column is lacking or holds no text.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
        columns = _columns(schema, printable(path), labelled)
        texts = [schema.names[at] for at in columns.values() if _is_text(schema.types[at])]
        # As dictionaries: one long text in many rows is held once.
        file = pq.ParquetFile(path, read_dictionary=texts, buffer_size=1 << 20)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"cannot read {printable(path)}: {reason}") from error
    with file:
        total = file.metadata.num_rows
        same = cursor is not None and cursor.get("rows") == total
        passed = int(cursor["row"]) if cursor is not None and same else 0
        first = 0
        for group in range(file.num_row_groups):
            last = first + file.metadata.row_group(group).num_rows
            if last > passed:
                yield from _group_rows(file, group, columns, first, last, passed, total)
            first = last


def _group_rows(
    file: Any,
    group: int,
    columns: dict[str, int],
    first: int,
    last: int,
    passed: int,
    total: int,
) -> Iterator[Row]:
    import pyarrow as pa

    names = {role: file.schema_arrow.names[at] for role, at in columns.items()}
    row = first
    try:
        batches = file.iter_batches(
            _BATCH, row_groups=[group], columns=list(dict.fromkeys(names.values()))
        )
        for batch in batches:
            if row + batch.num_rows > passed:
                cells = {role: _texts(batch.column(name)) for role, name in names.items()}
                for at in range(max(passed - row, 0), batch.num_rows):
                    told = {role: column[at] for role, column in cells.items()}
                    yield _row(row + at + 1, told, total)
            row += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        detail = f"rows {row + 1} to {last} cannot be read: {reason}"
        cursor = {"row": last, "rows": total}
        yield Row(row + 1, {}, cursor, ImageRefused("corrupt-data", detail))


def _row(number: int, told: dict[str, str | ImageRefused | None], total: int) -> Row:
    cells, fault = {}, None
    for role, text in told.items():
        if isinstance(text, ImageRefused):
            fault = text
        elif text is not None:
            cells[role] = text
    return Row(number, {} if fault else cells, {"row": number, "rows": total}, fault)


def _texts(column: pa.Array) -> list[str | ImageRefused | None]:
    """A column's cells as text, each distinct one made once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _is_text(column.type):
        return [None if value is None else str(value) for value in column.to_pylist()]
    column = column.dictionary_encode()
    values = column.dictionary.cast(pa.large_binary())
    fits = pc.fill_null(pc.less_equal(pc.binary_length(values), LONGEST_ROW), True)
    short = values if pc.all(fits).as_py() else pc.if_else(fits, values, None)
    texts = [
        _text(value, fitting)
        for value, fitting in zip(short.to_pylist(), fits.to_pylist(), strict=True)
    ]
    return [None if at is None else texts[at] for at in column.indices.to_pylist()]


def _text(value: bytes | None, fits: bool) -> str | ImageRefused | None:
    if not fits:
        return ImageRefused("malformed-record", f"longer than {LONGEST_ROW:,} bytes")
    if value is None:
        return None
    if b"\0" in value:
        return ImageRefused("malformed-record", "it holds NUL")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ImageRefused("malformed-record", "it is not UTF-8")


def _columns(schema: pa.Schema, where: str, labelled: bool) -> dict[str, int]:
    import pyarrow as pa

    columns = find_columns(schema.names, where, labelled=labelled)
    for role, at in list(columns.items()):
        kind = schema.types[at]
        if _is_text(kind) or (
            role != "url" and (pa.types.is_integer(kind) or pa.types.is_floating(kind))
        ):
            # Parquet lets columns share a name; by that name neither can be read.
            if schema.names.count(schema.names[at]) > 1:
                del columns[role]
            continue
        if role in ("url", "label"):
            raise UsageError(f"{where}: column {schema.names[at]!r} holds {kind}, no text")
        del columns[role]
    return columns


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
