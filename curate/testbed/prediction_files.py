"""Saved predictions: CSV and Parquet tables with a row an image, NPZ files with logits.

The files come from anyone's code, so nothing in them is trusted: a fault is one line that names
the file and the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.errors import UsageError, nearest
from curate.files import printable, read_csv
from curate.labels.space import LabelSpace
from curate.testbed.image_ids import ImageIds
from curate.testbed.logit_files import read_logits
from curate.testbed.predictions import Predictions

if TYPE_CHECKING:
    import pyarrow as pa

#: Most rows of one file.
MAX_ROWS = 10_000_000

#: The file formats, by the ending of the name.
SUFFIXES = (".csv", ".parquet", ".npz")

#: Gives the label space for the true classes of all images, in order.
ChooseSpace = Callable[[Sequence[str]], LabelSpace]

_OPTIONAL = ("wnid", "unrestricted_wnid", "failed")


def read_predictions(
    path: Path, items: Sequence[tuple[str, str]] | None, choose: ChooseSpace
) -> tuple[Predictions, LabelSpace]:
    """Read saved predictions and check all of them.

    A CSV or Parquet file has the columns `path` (or `image`), `predicted_wnid` and `confidence`,
    and where it has them `wnid` (the true class), `unrestricted_wnid` (predicted among all of the
    model's outputs) and `failed` (why an image has no prediction; then the other cells may be
    empty). See `logit_files.read_logits` for NPZ.

    Args:
        path: the file.
        items: the dataset's images in order, as (path within the dataset, true class); every one
            must have a row and every row must be one of them. None takes images and true classes
            from the file.
        choose: gives the label space.

    Raises:
        UsageError: the file cannot be read, is cut off, or a row is wrong.
    """
    suffix = path.suffix.casefold()
    if suffix not in SUFFIXES:
        raise UsageError(
            f"{printable(path)}: predictions come as {', '.join(SUFFIXES)}; "
            "the name's ending says which"
        )
    if not path.is_file():
        raise UsageError(f"cannot read {printable(path)}: no such file")
    if suffix == ".npz":
        return read_logits(path, items, choose, MAX_ROWS)
    rows = list(_csv_rows(path) if suffix == ".csv" else _parquet_rows(path))
    if not rows:
        raise UsageError(f"{printable(path)} holds no predictions")
    if items is None:
        items, ordered = _own_items(path, rows), rows
    else:
        ids = ImageIds(items, printable(path))
        places = ids.places((row.where, row.path) for row in rows)
        ordered = [rows[n] for n in places]
    space = choose([wnid for _, wnid in items])
    return _checked(path, items, ordered, space), space


@dataclass(slots=True)
class _Row:
    """A row of a table; `where` names it as people count: "line 2", "row 1"."""

    where: str
    path: str
    wnid: str | None
    predicted: str | None
    confidence: float | None
    unrestricted: str | None
    failed: str | None


def _own_items(path: Path, rows: Sequence[_Row]) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    seen: dict[tuple[str, str], str] = {}
    for row in rows:
        if row.wnid is None:
            raise UsageError(
                f"{printable(path)}, {row.where}: without a DATASET a column 'wnid' must give "
                "the true class of every image"
            )
        item = (row.path, row.wnid)
        if (other := seen.setdefault(item, row.where)) != row.where:
            raise UsageError(
                f"{printable(path)}, {row.where}: image {row.path!r} was named in {other} already"
            )
        items.append(item)
    return items


def _checked(
    path: Path, items: Sequence[tuple[str, str]], rows: Sequence[_Row], space: LabelSpace
) -> Predictions:
    predicted: list[str | None] = []
    confidence = np.full(len(rows), np.nan)
    unrestricted: list[str | None] = []
    failed: dict[int, str] = {}
    for number, ((_, wnid), row) in enumerate(zip(items, rows, strict=True)):
        where = f"{printable(path)}, {row.where}"
        if row.wnid not in (None, wnid):
            raise UsageError(
                f"{where}: the true class is {row.wnid!r} here and {wnid!r} in the dataset"
            )
        if wnid not in space:
            raise UsageError(f"{where}: true class {wnid!r} is no class of {space.name}")
        if row.failed:
            failed[number] = row.failed
            predicted.append(None)
            unrestricted.append(None)
            continue
        if row.predicted is None or row.confidence is None:
            name = "predicted_wnid" if row.predicted is None else "confidence"
            raise UsageError(f"{where}: {name} is missing (is the file cut off?)")
        if row.predicted not in space:
            raise UsageError(
                f"{where}: predicted_wnid {row.predicted!r} is no class of {space.name}; "
                "predict within the label space, or name another one with --label-space"
            )
        if not 0.0 <= row.confidence <= 1.0:  # NaN too
            raise UsageError(f"{where}: confidence {row.confidence:g} is outside 0 … 1")
        predicted.append(row.predicted)
        confidence[number] = row.confidence
        unrestricted.append(row.unrestricted)
    told = [row.unrestricted is not None for row in rows if not row.failed]
    if any(told) and not all(told):
        first = next(row for row in rows if not row.failed and row.unrestricted is None)
        raise UsageError(f"{printable(path)}, {first.where}: unrestricted_wnid is missing")
    paths, wnids = zip(*items, strict=True)
    return Predictions(
        paths,
        wnids,
        predicted,
        confidence,
        None,
        unrestricted if any(told) else None,
        failed,
    )


def _names(path: Path, columns: Sequence[str]) -> dict[str, str]:
    """Our name of a column to the file's."""
    named = {name: name for name in _OPTIONAL if name in columns}
    for name, spellings in {
        "path": ("path", "image"),
        "predicted_wnid": ("predicted_wnid",),
        "confidence": ("confidence",),
    }.items():
        found = [spelling for spelling in spellings if spelling in columns]
        if not found:
            near = [column for s in spellings for column in nearest(s, columns, 1)]
            hint = f" (is it {near[0]!r}?)" if near else ""
            raise UsageError(
                f"{printable(path)}: column {name!r} is missing{hint}; "
                f"there are {', '.join(map(repr, columns)) or 'none'}"
            )
        named[name] = found[0]
    return named


def _csv_rows(path: Path) -> Iterator[_Row]:
    names: dict[str, str] | None = None
    for number, (line, cells) in enumerate(read_csv(path, [])):
        where = f"line {line}"
        if number == MAX_ROWS:
            raise UsageError(f"{printable(path)}, {where}: more than {MAX_ROWS:,} rows")
        names = names or _names(path, list(cells))

        def cell(
            name: str, cells: dict[str, str] = cells, names: dict[str, str] = names
        ) -> str | None:
            return (cells[names[name]].strip() or None) if name in names else None

        image, text = cell("path"), cell("confidence")
        if image is None:
            raise UsageError(f"{printable(path)}, {where}: the image's path is missing")
        try:
            confidence = None if text is None else float(text)
        except ValueError:
            raise UsageError(
                f"{printable(path)}, {where}: confidence {text!r} is not a number"
            ) from None
        yield _Row(
            where,
            image,
            cell("wnid"),
            cell("predicted_wnid"),
            confidence,
            cell("unrestricted_wnid"),
            cell("failed"),
        )


def _parquet_rows(path: Path) -> Iterator[_Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def values(batch: pa.RecordBatch, name: str, start: int) -> list[Any]:
        if name not in names:
            return [None] * len(batch)
        column = batch.column(names[name])
        if name == "confidence":
            if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
                raise UsageError(f"{printable(path)}: column {names[name]!r} holds {column.type}")
            return column.cast(pa.float64(), safe=False).to_pylist()
        found = column.to_pylist()
        for number, value in enumerate(found):
            if value is not None and not isinstance(value, str):
                raise UsageError(
                    f"{printable(path)}, row {start + number + 1}: {names[name]} is no text"
                )
        return found

    try:
        with path.open("rb") as stream:
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            if file.metadata.num_rows > MAX_ROWS:
                raise UsageError(f"{printable(path)}: more than {MAX_ROWS:,} rows")
            names = _names(path, file.schema_arrow.names)
            start = 0
            for batch in file.iter_batches(columns=sorted(set(names.values()))):
                columns = (
                    values(batch, name, start)
                    for name in (
                        "path",
                        "wnid",
                        "predicted_wnid",
                        "confidence",
                        "unrestricted_wnid",
                        "failed",
                    )
                )
                for number, cells in enumerate(zip(*columns, strict=True), start + 1):
                    if not cells[0]:
                        raise UsageError(
                            f"{printable(path)}, row {number}: the image's path is missing"
                        )
                    yield _Row(f"row {number}", *cells)
                start += len(batch)
    except (pa.ArrowException, OSError, MemoryError, ValueError) as error:
        raise UsageError(
            f"cannot read {printable(path)}: it is no whole Parquet file ({first_line(error)})"
        ) from error


def first_line(error: BaseException) -> str:
    """The first line of what a library says of a broken file."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
