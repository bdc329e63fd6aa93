"""The manifest: Parquet and CSV say the same, whatever the text."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, replace

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from curate.files import csv_plain
from curate.release.manifest import ManifestRow, manifest_csv, manifest_parquet

ROW = ManifestRow(
    path="n02268443/0123456789abcdef.jpg",
    candidate="c" * 32,
    place=7,
    wnid="n02268443",
    name="dragonfly",
    predicted_wnid="n07753592",
    predicted_name="banana",
    confidence=0.7748055250788681,
    p_true=1e-12,
    borderline=True,
    reviewed=False,
    width=500,
    height=333,
    sha256="a" * 64,
    original_sha256="a" * 64,
    reencoded=False,
    licence="CC-BY-4.0",
    licence_url="https://creativecommons.org/licenses/by/4.0/",
    licence_text=None,
    author="=HYPERLINK(0)",
    title='two\nlines, "quoted"\rand a bare return',
    page=None,
    source="folder",
    locator="photos/x.jpg",
    collection="-1+1",
    other_origins="[]",
)


def _read_csv(data: bytes) -> list[dict[str, str]]:
    rows = csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True)
    return [{key: csv_plain(cell) for key, cell in row.items()} for row in rows]


def test_parquet_gives_every_row_back_with_its_types() -> None:
    other = replace(ROW, place=8, title=None, borderline=False)
    table = pq.read_table(io.BytesIO(manifest_parquet([ROW, other], {"curate": "{}"})))
    assert table.to_pylist() == [asdict(ROW), asdict(other)]
    assert table.schema.metadata[b"curate"] == b"{}"


def test_csv_gives_every_row_back() -> None:
    (row,) = _read_csv(b"".join(manifest_csv([ROW])))
    told = {
        key: str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
        for key, value in asdict(ROW).items()
    }
    assert row == told
    assert float(row["confidence"]) == ROW.confidence
    assert float(row["p_true"]) == ROW.p_true


def test_no_cell_of_the_csv_is_a_formula() -> None:
    rows = csv.reader(io.StringIO(b"".join(manifest_csv([ROW])).decode(), newline=""))
    assert not [cell for row in rows for cell in row if cell[:1] in set("=+-@\t\r")]


@given(st.text(st.characters(blacklist_categories=()), max_size=40))
def test_any_text_travels_in_both_forms(text: str) -> None:
    row = replace(ROW, author=text)
    (from_parquet,) = pq.read_table(io.BytesIO(manifest_parquet([row], {}))).to_pylist()
    (from_csv,) = _read_csv(b"".join(manifest_csv([row])))
    assert from_parquet["author"] == from_csv["author"]
    if text.isprintable():
        assert from_csv["author"] == text
