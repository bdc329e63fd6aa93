"""The manifest: one row an image, everything known of it, as Parquet and as CSV.

Both files depend on the rows alone. The CSV opens in a spreadsheet without running anything: a
text that looks like a formula carries a leading apostrophe (see `curate.files.csv_safe`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from curate.files import csv_lines, printable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class ManifestRow:
    """What a release says of one image. The fields are the columns, in this order.

    Attributes:
        path: within the release, with slashes.
        candidate: key of the candidate: the image under its label, by content.
        place: on the shortlist, among the accepted in review order, or in the control sample,
            from 1.
        wnid, name: the true class; under the rule outlier the concept, which is none of the label
            space's classes.
        predicted_wnid, predicted_name: what the first model's centre crop takes it for; None where
            that was not computed, which happens in a control sample alone.
        confidence: the probability of that prediction, in [0, 1].
        p_true: the largest probability that any view of any model gives the true class; None where
            that is no class of the label space.
        borderline: whether a score lies so near a limit that other hardware may decide otherwise.
        reviewed: whether people have looked at it and accepted it.
        width, height: in pixels, upright.
        sha256: of the released bytes.
        original_sha256: of the bytes as they were collected.
        reencoded: whether it is a PNG of the same pixels: the format is one that loaders do not
            list, or one from which metadata cannot be removed alone.
        licence: SPDX id, or "LicenseRef-…".
        licence_url, licence_text: the licence's text, and what the source said.
        author, title, page: who made it, what it is called, where it is shown.
        source, locator, collection: how it was collected, from where, and out of which set.
        other_origins: a JSON list of further places where the same image was found.
        attribution: title, author, place and licence as one line of plain text.
        split: the folder that holds its class folder; None for a release without splits.
        rank: its place in the seeded order of its class by which images are selected, from 1.
        consensus: what the answers of people add up to, "accepted"; None where nobody has reviewed.
        adjudicated: whether an adjudicator decided.
        votes: a JSON list of the answers that stand, each with the `annotator` by the name of
            their role and the `decision` that it counts as.
        views: a JSON list of what the models say, by `model` (its name): of each of its views the
            probability `p_true` of the true class, the `predicted` class and its `confidence`, a
            list each, None where a view was not computed.
        cleaned: whether metadata were removed from the file; the pixels are the original's.
    """

    path: str
    candidate: str
    place: int
    wnid: str
    name: str
    predicted_wnid: str | None
    predicted_name: str | None
    confidence: float | None
    p_true: float | None
    borderline: bool
    reviewed: bool
    width: int
    height: int
    sha256: str
    original_sha256: str
    reencoded: bool
    licence: str
    licence_url: str | None
    licence_text: str | None
    author: str | None
    title: str | None
    page: str | None
    source: str | None
    locator: str | None
    collection: str | None
    other_origins: str
    attribution: str = ""
    split: str | None = None
    rank: int | None = None
    consensus: str | None = None
    adjudicated: bool = False
    votes: str = "[]"
    views: str = "[]"
    cleaned: bool = False


#: The columns of both files.
COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(ManifestRow))

#: Rows that are written together, to every file, and rows of a group of the Parquet file.
ROWS = 1000

#: Some rows as columns by name, whose texts can be written to any file.
Table = Mapping[str, Sequence[Any]]

_TEXTS = frozenset(field.name for field in fields(ManifestRow) if str(field.type)[:3] == "str")
_FLAGS = tuple(field.name for field in fields(ManifestRow) if str(field.type) == "bool")


def table_of(columns: Table) -> Table:
    """Columns as they are written: their texts may be anything before."""
    return {
        name: [_plain(value) for value in values] if name in _TEXTS else values
        for name, values in columns.items()
    }


def tables_of(rows: Sequence[ManifestRow]) -> Iterator[Table]:
    """Rows in memory as tables of `ROWS` rows, and at least one table."""
    for start in range(0, max(1, len(rows)), ROWS):
        some = rows[start : start + ROWS]
        yield table_of({name: [getattr(row, name) for row in some] for name in COLUMNS})


class ManifestParquet:
    """The manifest as a Parquet file, written table by table.

    Args:
        stream: where to.
        about: goes into the file's metadata.
    """

    def __init__(self, stream: io.IOBase, about: Mapping[str, str]) -> None:
        import pyarrow.parquet as pq

        self._schema = _schema().with_metadata(dict(about))
        self._writer = pq.ParquetWriter(stream, self._schema, compression="zstd")

    def write(self, table: Table) -> None:
        """Write some rows."""
        import pyarrow as pa

        columns = [pa.array(table[column.name], column.type) for column in self._schema]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()


def manifest_parquet(rows: Sequence[ManifestRow], about: Mapping[str, str]) -> bytes:
    """The manifest as a Parquet file.

    Args:
        rows: in their order.
        about: goes into the file's metadata.
    """
    buffer = io.BytesIO()
    writer = ManifestParquet(buffer, about)
    for table in tables_of(rows):
        writer.write(table)
    writer.close()
    return buffer.getvalue()


def manifest_csv(rows: Sequence[ManifestRow]) -> Iterator[bytes]:
    """The manifest as CSV: UTF-8, LF, `true` and `false`, empty for unknown."""
    yield csv_header()
    for table in tables_of(rows):
        yield csv_rows(table)


def csv_header() -> bytes:
    """The first line of the manifest as CSV."""
    return next(csv_lines(COLUMNS, ())).encode()


def csv_rows(table: Table) -> bytes:
    """Further lines of the manifest as CSV."""
    told = {name: ["true" if value else "false" for value in table[name]] for name in _FLAGS}
    lines = csv_lines(COLUMNS, zip(*({**table, **told}[name] for name in COLUMNS), strict=True))
    next(lines)
    return "".join(lines).encode()


def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {"str": pa.string(), "int": pa.int32(), "float": pa.float64(), "bool": pa.bool_()}

    def column(name: str, annotation: str) -> pa.Field:
        kind, _, optional = annotation.partition(" | ")
        return pa.field(name, types[kind], nullable=optional == "None")

    return pa.schema([column(field.name, str(field.type)) for field in fields(ManifestRow)])


def _plain(value: str | None) -> str | None:
    return value if value is None or value.isascii() else printable(value)
