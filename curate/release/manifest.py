"""The manifest: one row an image, everything known of it, as Parquet and as CSV.

Both files depend on the rows alone. The CSV opens in a spreadsheet without running anything: a
text that looks like a formula carries a leading apostrophe (see `curate.files.csv_safe`).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from curate.files import csv_text, printable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class ManifestRow:
    """What a release says of one image. The fields are the columns, in this order.

    Attributes:
        path: within the release, with slashes.
        candidate: key of the candidate: the image under its label, by content.
        place: on the shortlist, or in the control sample, from 1.
        wnid, name: the true class; under the rule outlier the concept, which is none of the label
            space's classes.
        predicted_wnid, predicted_name: what the first model's centre crop takes it for; None where
            that was not computed, which happens in a control sample alone.
        confidence: the probability of that prediction, in [0, 1].
        p_true: the largest probability that any view of any model gives the true class; None where
            that is no class of the label space.
        borderline: whether a score lies so near a limit that other hardware may decide otherwise.
        reviewed: whether people have confirmed the label.
        width, height: in pixels, upright.
        sha256: of the released bytes.
        original_sha256: of the bytes as they were collected.
        reencoded: whether the two differ: the format is one that loaders do not list.
        licence: SPDX id, or "LicenseRef-…".
        licence_url, licence_text: the licence's text, and what the source said.
        author, title, page: who made it, what it is called, where it is shown.
        source, locator, collection: how it was collected, from where, and out of which set.
        other_origins: a JSON list of further places where the same image was found.
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


#: The columns of both files.
COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(ManifestRow))


def manifest_parquet(rows: Sequence[ManifestRow], about: Mapping[str, str]) -> bytes:
    """The manifest as a Parquet file.

    Args:
        rows: in their order.
        about: goes into the file's metadata.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema()
    columns = [
        pa.array([_plain(getattr(row, column.name)) for row in rows], column.type)
        for column in schema
    ]
    buffer = io.BytesIO()
    table = pa.Table.from_arrays(columns, schema=schema.with_metadata(dict(about)))
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def manifest_csv(rows: Sequence[ManifestRow]) -> bytes:
    """The manifest as CSV: UTF-8, lines ending in LF, `true` and `false`, empty for unknown."""

    def cell(value: Any) -> Any:
        return str(value).lower() if isinstance(value, bool) else _plain(value)

    return csv_text(
        COLUMNS, [[cell(getattr(row, name)) for name in COLUMNS] for row in rows]
    ).encode()


def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {"str": pa.string(), "int": pa.int32(), "float": pa.float64(), "bool": pa.bool_()}

    def column(name: str, annotation: str) -> pa.Field:
        kind, _, optional = annotation.partition(" | ")
        return pa.field(name, types[kind], nullable=optional == "None")

    return pa.schema([column(field.name, str(field.type)) for field in fields(ManifestRow)])


def _plain(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value
