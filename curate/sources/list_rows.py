"""The rows of lists in CSV and JSON Lines, streamed; a bad row never stops the others."""

from __future__ import annotations

import csv
import json
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from curate.errors import ImageRefused, UsageError
from curate.files import printable
from curate.sources.list_columns import find_columns, has_url
from curate.sources.packed import faults_told, unpacked
from curate.sources.protocol import Cursor

#: The longest row, in bytes. The library's reader of CSV takes no longer cell.
LONGEST_ROW = 131_072

#: So many rows of JSON tell which keys there are.
_FIRST_ROWS = 100

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a list.

    Attributes:
        number: its place: the line where no row has several lines; in Parquet counted from 1.
        cells: what it says, by what its columns hold (see `find_columns`).
        cursor: where to go on behind it.
        fault: why it is not understood.
    """

    number: int
    cells: dict[str, str]
    cursor: Cursor
    fault: ImageRefused | None = None


def csv_rows(path: Path, cursor: Cursor | None, *, labelled: bool) -> Iterator[Row]:
    """The rows of a CSV file, or one with tabs, semicolons or bars between the cells.

    Args:
        path: UTF-8, with a header; it may be compressed.
        cursor: that of an earlier row; a file that has changed since is read from the start.
        labelled: whether there must be a column of labels.

    Raises:
        UsageError: there is no header, or it lacks a column.
    """
    with path.open("rb") as file:
        lines = _Lines(unpacked(file))
        head = _first_line(lines, path)
        header, separator = _header(head, path)
        columns = find_columns(header, printable(path), labelled=labelled)
        fingerprint = zlib.crc32(head)
        if not lines.go_on(cursor, fingerprint):
            yield from csv_rows(path, None, labelled=labelled)
            return
        reader = csv.reader(lines, delimiter=separator, strict=True)
        while True:
            lines.begin()
            number, fault = lines.number + 1, None
            try:
                cells = next(reader, None)
            except ImageRefused as refusal:
                cells, fault = [], refusal
            except csv.Error as error:
                # A quote that is never closed has swallowed the rows behind it.
                lines.give_back()
                cells, fault = [], _malformed(str(error))
            if cells is None:
                return
            if fault is None:
                if not cells:
                    continue
                fault = lines.fault
                if len(cells) > len(header):
                    fault = _malformed(f"{len(cells)} cells under {len(header)} columns")
            told = {role: cells[at] for role, at in columns.items() if at < len(cells)}
            yield Row(number, {} if fault else told, lines.cursor(fingerprint), fault)
            if _is_end(fault):
                return


def json_rows(path: Path, cursor: Cursor | None, *, labelled: bool) -> Iterator[Row]:
    """The rows of a file with one JSON object a line.

    Which keys hold what is decided by the first hundred lines together.

    Args:
        path: UTF-8; it may be compressed.
        cursor: that of an earlier row; a file that has changed since is read from the start.
        labelled: whether there must be labels.

    Raises:
        UsageError: there is no JSON object, or a key is lacking.
    """
    with path.open("rb") as file:
        keys, fingerprint = _keys(path)
        columns = find_columns(keys, printable(path), labelled=labelled)
        lines = _Lines(unpacked(file))
        if not lines.go_on(cursor, fingerprint):
            yield from json_rows(path, None, labelled=labelled)
            return
        while True:
            lines.begin()
            number, fault, cells = lines.number + 1, None, {}
            try:
                text = next(lines, None)
                if text is None:
                    return
                if not text.strip():
                    continue
                if (fault := lines.fault) is None:
                    text = text.removeprefix("\ufeff")
                    cells = _json_cells(text, {role: keys[at] for role, at in columns.items()})
            except ImageRefused as refusal:
                fault = refusal
            yield Row(number, cells, lines.cursor(fingerprint), fault)
            if _is_end(fault):
                return


def _json_cells(text: str, keys: dict[str, str]) -> dict[str, str]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed(f"no JSON: {error}") from error
    if not isinstance(told, dict):
        raise _malformed("no JSON object")
    cells = {}
    for role, key in keys.items():
        value = told.get(key)
        if value is None:
            continue
        if role != "url" and isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise _malformed(f"{key} is no text")
        # Escapes bring in what the line itself cannot hold.
        if "\\u" in text and ("\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value)):
            raise _malformed(f"{key} holds NUL or half a character")
        cells[role] = value
    return cells


class _Lines:
    """Lines of a stream, with the place behind the ones that were taken."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream
        self._again: deque[bytes] = deque()
        self._taken: list[bytes] = []
        self._size = 0
        self._offset, self.number = 0, 0
        self.fault: ImageRefused | None = None

    def begin(self) -> None:
        """The next line begins a row."""
        self._taken, self._size, self.fault = [], 0, None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.take()
        if not line:
            raise StopIteration
        if b"\0" in line:
            self.fault = _malformed("it holds NUL")
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.fault = _malformed("it is not UTF-8")
            return line.decode(errors="replace")

    def take(self) -> bytes:
        """The next line; empty at the end.

        Raises:
            ImageRefused: "malformed-record": the row is longer than `LONGEST_ROW`; its first line
                is passed. Other reasons: the file cannot be read on.
        """
        with faults_told():
            line = self._again.popleft() if self._again else self._stream.readline(LONGEST_ROW)
            self._offset += len(line)
            self.number += bool(line)
            self._taken.append(line)
            self._size += len(line)
            if self._size < LONGEST_ROW:
                return line
            if len(self._taken) > 1:
                self.give_back()
                raise _malformed(f"a quote that is not closed within {LONGEST_ROW:,} bytes")
            while not line.endswith(b"\n") and (line := self._stream.readline(_PIECE)):
                self._offset += len(line)
        raise _malformed(f"longer than {LONGEST_ROW:,} bytes")

    def give_back(self) -> None:
        """Keep only the first line of the row; the others come again."""
        for line in reversed(self._taken[1:]):
            if line:
                self._again.appendleft(line)
                self._offset -= len(line)
                self.number -= 1
        del self._taken[1:]

    def cursor(self, fingerprint: int) -> Cursor:
        return {"offset": self._offset, "line": self.number, "head": fingerprint}

    def go_on(self, cursor: Cursor | None, fingerprint: int) -> bool:
        """Go to where a cursor points; False if that is no place between two lines of this file."""
        if cursor is None:
            return True
        offset, number = cursor.get("offset"), cursor.get("line")
        if not (isinstance(offset, int) and isinstance(number, int)):
            return False
        if cursor.get("head") != fingerprint:
            return False
        if offset <= self._offset:
            return True
        with faults_told():
            self._stream.seek(offset - 1)
            end = self._stream.read(1)
            if not end or (end != b"\n" and self._stream.peek(1)):
                return False
        self._offset, self.number = offset, number
        return True


def _first_line(lines: _Lines, path: Path) -> bytes:
    """The first line that is not empty."""
    where = printable(path)
    while True:
        lines.begin()
        try:
            line = lines.take()
        except ImageRefused as refusal:
            raise UsageError(f"cannot read {where}: its first line: {refusal.detail}") from refusal
        if not line:
            raise UsageError(f"{where} is empty")
        if line.strip(b"\xef\xbb\xbf \r\n"):
            return line


def _header(line: bytes, path: Path) -> tuple[list[str], str]:
    """The names of the columns, and what stands between two cells."""
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {printable(path)}: it is not UTF-8") from None
    usual = "\t" if {".tsv", ".tab"} & {suffix.lower() for suffix in path.suffixes} else ","
    headers = {}
    for separator in (usual, *sorted({",", "\t", ";", "|"} - {usual})):
        try:
            headers[separator] = next(csv.reader([text], delimiter=separator, strict=True))
        except csv.Error as error:
            raise UsageError(f"cannot read {printable(path)}: its header: {error}") from error
        if has_url(headers[separator]):
            return headers[separator], separator
    return headers[usual], usual


def _keys(path: Path) -> tuple[list[str], int]:
    """The keys of the first objects, and what tells this file from another."""
    where = printable(path)
    keys: dict[str, None] = {}
    with path.open("rb") as file:
        lines = _Lines(unpacked(file))
        head = _first_line(lines, path)
        if head.lstrip(b"\xef\xbb\xbf ").startswith(b"["):
            raise UsageError(f"{where} is one JSON array; write one object a line")
        line: bytes = head
        for _ in range(_FIRST_ROWS):
            try:
                told: Any = json.loads(line)
                if isinstance(told, dict):
                    keys |= dict.fromkeys(told)
            except (ValueError, RecursionError):
                pass
            lines.begin()
            try:
                line = lines.take()
            except ImageRefused:
                continue
    if not keys:
        raise UsageError(f"{where}: no JSON object in its first {_FIRST_ROWS} lines")
    return list(keys), zlib.crc32(head)


def _is_end(fault: ImageRefused | None) -> bool:
    """Whether nothing behind this row can be read."""
    return fault is not None and fault.reason != "malformed-record"


def _malformed(detail: str) -> ImageRefused:
    return ImageRefused("malformed-record", detail)
