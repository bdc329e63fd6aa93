"""Lists of addresses in CSV, JSON Lines or Parquet: those of data sets, and people's own.

Columns are found by their names (see `list_columns`), rows are streamed, and a row that is not
understood is refused without stopping the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from curate.errors import ImageRefused, UsageError
from curate.files import printable
from curate.licences import UNKNOWN, parse
from curate.sources.list_rows import Row, csv_rows, json_rows
from curate.sources.locators import locator_of
from curate.sources.protocol import Hit, Query, clean

#: The name of this source in the catalogue.
NAME = "urls"

_JSON = {".jsonl", ".ndjson", ".json"}
_PACKED = {".gz", ".bz2", ".xz"}


class UrlList:
    """A list of addresses as a source.

    The address itself names a hit, so that a list with an address twice under one label, or two
    lists that share some, bring one item.

    Args:
        path: Parquet, as its content tells; JSON Lines, as its name tells (.jsonl, .ndjson, .json);
            or else CSV, also with tabs, semicolons or bars. The latter two may be compressed with
            gzip, bzip2 or xz.
        label: the class of every row that names none; None where each must.
    """

    name = NAME

    def __init__(self, path: Path, label: str | None = None) -> None:
        self.path, self.label = path, label

    def search(self, query: Query) -> Iterator[Hit]:
        """Every row in the list's order.

        Raises:
            UsageError: the file cannot be read as a list of addresses.
        """
        where = printable(self.path)
        if self.path.exists() and not self.path.is_file():
            raise UsageError(f"{where} is no regular file")
        try:
            for row in self._rows(query):
                yield self._hit(row)
        except OSError as error:
            raise UsageError(f"cannot read {where}: {error.strerror or error}") from error
        except ImageRefused as refusal:
            raise UsageError(f"cannot read {where}: {refusal.detail}") from refusal

    def _rows(self, query: Query) -> Iterator[Row]:
        labelled = self.label is None
        with self.path.open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        if is_parquet or self.path.suffix.lower() == ".parquet":
            # Slow to import, and needed for this kind of list alone.
            from curate.sources.list_parquet import parquet_rows

            return parquet_rows(self.path, query.cursor, labelled=labelled)
        suffixes = [suffix.lower() for suffix in self.path.suffixes]
        if suffixes and suffixes[-1] in _PACKED:
            suffixes.pop()
        if suffixes and suffixes[-1] in _JSON:
            return json_rows(self.path, query.cursor, labelled=labelled)
        return csv_rows(self.path, query.cursor, labelled=labelled)

    def _hit(self, row: Row) -> Hit:
        cells = row.cells
        url = cells.get("url", "")
        locator = locator_of(url)
        fault = row.fault
        if fault is None and not locator:
            fault = ImageRefused("malformed-record", "no address")
        if fault is not None:
            locator = locator_of(f"{printable(self.path.name)}#{row.number}")
        return Hit(
            source=NAME,
            locator=locator,
            label=clean(cells.get("label")) or clean(self.label) or "",
            url=None if fault else url,
            collection=clean(cells.get("collection")),
            page=clean(cells.get("page")),
            title=clean(cells.get("title")),
            author=clean(cells.get("author")),
            licence=clean(_licence(cells)),
            refusal=fault,
            cursor=row.cursor,
        )


def _licence(cells: dict[str, str]) -> str | None:
    """Name, version and address of a licence as one text, which is unknown if they differ."""
    name, version = cells.get("licence", "").strip(), cells.get("licence_version", "").strip()
    url = cells.get("licence_url", "").strip()
    if name and version and version not in name:
        name = f"{name} {version}"
    if not url or parse(name) is not UNKNOWN:
        return f"{name} ({url})" if name and url else name or None
    # "by" and "Attribution License" tell nothing that the address does not.
    return url
