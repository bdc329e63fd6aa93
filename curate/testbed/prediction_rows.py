"""The rows of CSV and Parquet tables of predictions, each cell of the kind that it should be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.errors import UsageError, nearest
from curate.files import printable, read_csv
from curate.testbed.foreign_text import number_of, short
from curate.testbed.parquet_tables import parquet_batches
from curate.testbed.predictions import ANOMALY, ANOMALY_UNRESTRICTED

#: Most rows of one file.
MAX_ROWS = 10_000_000

_OPTIONAL = ("wnid", "unrestricted_wnid", "failed")

_NUMBERS = ("p_true", "rank", "rank_unrestricted")

# Signs of what a file says of an image that failed.
_LONGEST_REASON = 300

# Of anomaly scores; a table of embeddings is none.
_MOST_SCORES = 50
# What measures' names begin and end with is none of a score's.
_SCORE_NAME = re.compile(
    r"(?!in_|reweighted_|published_|unrestricted_)[a-z0-9][a-z0-9_]{0,39}(?<!_unrestricted)"
)


@dataclass(slots=True)
class Row:
    """A row of a table.

    Attributes:
        where: how people count it: "line 2", "row 1".
        path, wnid, predicted, confidence, unrestricted, failed: see `Predictions`; None where the
            cell is empty.
        columns: the names of the other columns of numbers, one tuple for all rows.
        numbers: their cells; None where one is empty.
    """

    where: str
    path: str
    wnid: str | None
    predicted: str | None
    confidence: float | None
    unrestricted: str | None
    failed: str | None
    columns: tuple[str, ...]
    numbers: tuple[float | None, ...]


def _names(path: Path, columns: Sequence[str], required: Sequence[str]) -> dict[str, str]:
    """Our name of a column to the file's."""
    named = {name: name for name in _OPTIONAL if name in columns}
    _refuse_twins(path, columns, named)
    for name, spellings in {
        "path": ("path", "image"),
        "predicted_wnid": ("predicted_wnid",),
        "confidence": ("confidence",),
    }.items():
        found = [spelling for spelling in spellings if spelling in columns]
        if not found and name not in required:
            continue
        _refuse_twins(path, columns, found)
        if not found:
            near = [column for s in spellings for column in nearest(s, columns, 1)]
            hint = f" (is it {near[0]!r}?)" if near else ""
            raise UsageError(
                f"{printable(path)}: column {name!r} is missing{hint}; "
                f"there are {', '.join(map(repr, columns)) or 'none'}"
            )
        named[name] = found[0]
    return named


def _refuse_twins(path: Path, columns: Sequence[str], names: Iterable[str]) -> None:
    for name in names:
        if columns.count(name) > 1:
            raise UsageError(f"{printable(path)}: column {name!r} is there twice; keep one")


def _number_columns(path: Path, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns of numbers that may be there or not."""
    scores = [name for name in columns if name.startswith(ANOMALY)]
    if len(scores) > _MOST_SCORES:
        raise UsageError(
            f"{printable(path)}: {len(scores)} columns of scores; write {_MOST_SCORES}"
        )
    for name in scores:
        short = name.removeprefix(ANOMALY_UNRESTRICTED).removeprefix(ANOMALY)
        if not _SCORE_NAME.fullmatch(short):
            raise UsageError(
                f"{printable(path)}: column {name!r}: call a score by at most 40 small letters, "
                "digits and underscores, not beginning with a measure's word, nor ending in "
                "_unrestricted"
            )
    found = (*(name for name in _NUMBERS if name in columns), *scores)
    _refuse_twins(path, columns, found)
    return found


#: What a table of predictions must have.
REQUIRED = ("path", "predicted_wnid", "confidence")


def csv_rows(path: Path, required: Sequence[str] = REQUIRED) -> Iterator[Row]:
    """The rows of a CSV file.

    Args:
        path: the file.
        required: columns that must be there.

    Raises:
        UsageError: it cannot be read, a column is missing, or a cell is no number.
    """
    names: dict[str, str] | None = None
    numbers: tuple[str, ...] = ()
    for number, (line, cells) in enumerate(read_csv(path, [])):
        where = f"line {line}"
        if number == MAX_ROWS:
            raise UsageError(f"{printable(path)}, {where}: more than {MAX_ROWS:,} rows")
        if names is None:
            names = _names(path, list(cells), required)
            numbers = _number_columns(path, list(cells))

        def cell(
            name: str, cells: dict[str, str] = cells, names: dict[str, str] = names
        ) -> str | None:
            return (cells[names[name]].strip() or None) if name in names else None

        image = cell("path")
        if image is None:
            raise UsageError(f"{printable(path)}, {where}: the image's path is missing")
        told: list[float | None] = []
        for name in ("confidence", *numbers):
            text = cells.get(name, "").strip()
            try:
                told.append(number_of(text) if text else None)
            except ValueError:
                raise UsageError(
                    f"{printable(path)}, {where}: {name} {short(text)} is not a number"
                ) from None
        yield Row(
            where,
            image,
            cell("wnid"),
            cell("predicted_wnid"),
            told[0],
            cell("unrestricted_wnid"),
            _bounded(cell("failed")),
            numbers,
            tuple(told[1:]),
        )


def parquet_rows(path: Path, required: Sequence[str] = REQUIRED) -> Iterator[Row]:
    """The rows of a Parquet file, some at a time.

    Args:
        path: the file.
        required: columns that must be there.

    Raises:
        UsageError: it is no whole Parquet file, a column is missing or of another type.
    """
    names: dict[str, str] = {}
    numbers: tuple[str, ...] = ()

    def choose(columns: Sequence[str], rows: int) -> Sequence[str]:
        nonlocal numbers
        if rows > MAX_ROWS:
            raise UsageError(f"{printable(path)}: more than {MAX_ROWS:,} rows")
        numbers = _number_columns(path, columns)
        names.update(_names(path, columns, required) | {name: name for name in numbers})
        return list(dict.fromkeys(names.values()))

    texts = ("path", "wnid", "predicted_wnid", "unrestricted_wnid", "failed")
    for start, cells in parquet_batches(path, choose):
        count = len(next(iter(cells.values())))
        told = {
            name: cells[names[name]] if name in names else [None] * count
            for name in (*texts, "confidence", *numbers)
        }
        for number in range(count):
            where = f"{printable(path)}, row {start + number}"
            image, wnid, predicted, unrestricted, failed = (
                _text(told[name][number], f"{where}: {names.get(name)}") for name in texts
            )
            if image is None:
                raise UsageError(f"{where}: the image's path is missing")
            confidence, *rest = (
                _number(told[name][number], f"{where}: {name}") for name in ("confidence", *numbers)
            )
            yield Row(
                f"row {start + number}",
                image,
                wnid,
                predicted,
                confidence,
                unrestricted,
                _bounded(failed),
                numbers,
                tuple(rest),
            )


def _bounded(reason: str | None) -> str | None:
    """Why an image failed, as a line bears it."""
    if reason is None or len(reason) <= _LONGEST_REASON:
        return reason
    return f"{reason[: _LONGEST_REASON - 1]}…"


def _text(cell: Any, where: str) -> str | None:
    if cell is None:
        return None
    if not isinstance(cell, str):
        raise UsageError(f"{where} is no text")
    return cell.strip() or None


def _number(cell: Any, where: str) -> float | None:
    if cell is None:
        return None
    if isinstance(cell, str | bool):
        raise UsageError(f"{where} {short(str(cell))} is not a number")
    return float(cell)
