"""Tables that somebody else made, cell by cell: CSV and Parquet, whole in memory.

Nothing in them is trusted. Their size is bounded, and each cell knows how people call its place,
so that a fault is one line that names the file, the row and the column.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from curate.errors import UnknownNameError, UsageError
from curate.files import printable, read_csv
from curate.testbed.foreign_text import first_line, number_of, short
from curate.testbed.parquet_tables import parquet_batches

#: The file formats, by the ending of the name.
SUFFIXES = (".csv", ".parquet")

#: Most rows, columns and cells of one table.
MAX_ROWS, MAX_COLUMNS, MAX_CELLS = 200_000, 10_000, 5_000_000

#: Most characters of a name of a model, a type or a setting.
LONGEST_NAME = 200

#: How files write that there is nothing, besides an empty cell.
NOTHING = frozenset({"", "nan", "na", "n/a", "none", "null", "-", "–"})

_YES, _NO = frozenset({"1", "1.0", "true", "yes"}), frozenset({"0", "0.0", "false", "no", ""})


@dataclass(frozen=True)
class Cells:
    """A table as it was found.

    Attributes:
        file: its printable name.
        columns: the header; no name twice.
        where: how people call each row: "line 2", "row 1".
        rows: the cells as text, without blanks around them; empty where there is nothing.
    """

    file: str
    columns: tuple[str, ...]
    where: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def place(self, row: int, column: str) -> str:
        """How an error calls a cell."""
        return f"{self.file}, {self.where[row]}, column {column!r}"

    def column(self, name: str) -> list[str]:
        """All cells of a column.

        Raises:
            UnknownNameError: there is no such column.
        """
        if name not in self.columns:
            raise UnknownNameError("column", name, self.columns, where=self.file)
        number = self.columns.index(name)
        return [row[number] for row in self.rows]

    def joined(self, columns: Sequence[str], to: str) -> Cells:
        """The same, where a column holds the cells of several, with blanks between.

        Args:
            columns: what is joined, in this order.
            to: the column, which may be one of them or new.

        Raises:
            UnknownNameError: there is no such column.
        """
        texts = [" ".join(parts) for parts in zip(*map(self.column, columns), strict=True)]
        kept = [number for number, name in enumerate(self.columns) if name != to]
        return Cells(
            self.file,
            (to, *(self.columns[number] for number in kept)),
            self.where,
            tuple(
                (text, *(row[number] for number in kept))
                for text, row in zip(texts, self.rows, strict=True)
            ),
        )

    def names(self, column: str) -> list[str]:
        """The cells of a column of names.

        Raises:
            UsageError: a cell is empty, longer than `LONGEST_NAME`, or cannot be printed.
        """
        found = self.column(column)
        for row, name in enumerate(found):
            if not name:
                raise UsageError(f"{self.place(row, column)}: there is no name")
            self._check_name(row, column, name)
        return found

    def texts(self, column: str) -> list[str]:
        """The same, where a cell may be empty."""
        found = self.column(column)
        for row, text in enumerate(found):
            self._check_name(row, column, text)
        return found

    def _check_name(self, row: int, column: str, name: str) -> None:
        if len(name) > LONGEST_NAME:
            raise UsageError(
                f"{self.place(row, column)}: a name has {len(name):,} characters, "
                f"more than {LONGEST_NAME}"
            )
        if not name.isprintable():
            raise UsageError(f"{self.place(row, column)}: the name {name!r} cannot be printed")

    def flags(self, column: str) -> list[bool]:
        """The cells of a column that says yes or no; an empty one says no.

        Raises:
            UsageError: a cell says something else than 1, 0, true, false, yes or no.
        """
        found = self.column(column)
        for row, text in enumerate(found):
            if text.casefold() not in _YES | _NO:
                raise UsageError(f"{self.place(row, column)}: {short(text)} is neither 1 nor 0")
        return [text.casefold() in _YES for text in found]

    def numbers(self, column: str) -> list[float | None]:
        """The cells of a column of numbers; None where a cell is empty or says "nan".

        Raises:
            UsageError: a cell is no number.
        """
        return [self.number(row, column, text) for row, text in enumerate(self.column(column))]

    def number(self, row: int, column: str, text: str) -> float | None:
        """A cell as a number; None where there is nothing.

        Raises:
            UsageError: it is no number.
        """
        if text.casefold() in NOTHING:
            return None
        try:
            return number_of(text)
        except ValueError:
            raise UsageError(f"{self.place(row, column)}: {short(text)} is not a number") from None


def read_cells(path: Path) -> Cells:
    """Read a table.

    Args:
        path: a CSV file in UTF-8 with a header, or a Parquet file.

    Raises:
        UsageError: no such file, another format, more than `MAX_ROWS`, `MAX_COLUMNS` or
            `MAX_CELLS`, a column that is there twice or has no name, no row, or a broken file.
    """
    suffix, file = path.suffix.casefold(), printable(path)
    if suffix not in SUFFIXES:
        raise UsageError(
            f"{file}: tables come as {' or '.join(SUFFIXES)}; the name's ending says which"
        )
    if not path.is_file():
        raise UsageError(f"cannot read {file}: no such file")
    found = _csv(path) if suffix == ".csv" else _parquet(path)
    columns = next(found)[1]
    _check_header(file, columns)
    where: list[str] = []
    rows: list[tuple[str, ...]] = []
    for place, cells in found:
        if len(rows) == MAX_ROWS or len(rows) * len(columns) > MAX_CELLS:
            raise UsageError(
                f"{file}, {place}: a table has at most {MAX_ROWS:,} rows and {MAX_CELLS:,} cells"
            )
        where.append(place)
        rows.append(tuple(cells))
    if not rows:
        raise UsageError(f"{file} has no row")
    return Cells(file, tuple(columns), tuple(where), tuple(rows))


def _check_header(file: str, columns: Sequence[str]) -> None:
    if len(columns) > MAX_COLUMNS:
        raise UsageError(f"{file}: a table has at most {MAX_COLUMNS:,} columns")
    seen: set[str] = set()
    for number, name in enumerate(columns):
        fault = _fault(name)
        if name in seen:
            fault = "is there twice"
        seen.add(name)
        if fault:
            raise UsageError(f"{file}: column {number + 1} ({short(name)}) {fault}")


def _csv(path: Path) -> Iterator[tuple[str, Sequence[str]]]:
    # The header first, since a reader of mappings hides a column that is there twice.
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            header = next(csv.reader(stream, strict=True), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot read {printable(path)}: {first_line(error)}") from error
    if not header:
        raise UsageError(f"{printable(path)} is empty")
    yield "the header", header
    for line, cells in read_csv(path, []):
        yield f"line {line}", [cells[name].strip() for name in header]


def _parquet(path: Path) -> Iterator[tuple[str, Sequence[str]]]:
    file = printable(path)
    header: list[str] = []

    def choose(columns: Sequence[str], rows: int) -> Sequence[str]:
        if rows > MAX_ROWS or rows * len(columns) > MAX_CELLS:
            raise UsageError(
                f"{file}: a table has at most {MAX_ROWS:,} rows and {MAX_CELLS:,} cells"
            )
        header.extend(columns)
        _check_header(file, columns)
        return columns

    is_told = False
    for start, cells in parquet_batches(path, choose):
        if not is_told:
            is_told = True
            yield "the header", header
        columns = [[_text(value) for value in cells[name]] for name in header]
        for number, row in enumerate(zip(*columns, strict=True), start):
            yield f"row {number}", row
    if not is_told:
        yield "the header", header


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(int(value) if isinstance(value, bool) else value).strip()


def _fault(name: str) -> str:
    """What is wrong with the name of a column; empty for nothing."""
    if not name.strip():
        return "has no name"
    if not name.isprintable():
        return "has a name that cannot be printed"
    return "" if len(name) <= LONGEST_NAME else f"has a name of more than {LONGEST_NAME} characters"
