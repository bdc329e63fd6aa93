"""Credits come from a manifest that anyone may have written: they are told, or left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.evaluate_credits import Credits

GOOD = {
    "path": ["a/x.jpg", "a/y.jpg", "a/z.jpg"],
    "attribution": ["x by Ann", None, "z by Zoe " + "!" * 400],
    "licence": ["CC-BY-4.0", "CC0-1.0", None],
}

OFFSETS = np.arange(4, dtype=np.int32).tobytes()


def credits_of(folder: Path, **columns: Any) -> Credits:
    pq.write_table(pa.table({**GOOD, **columns}), folder / "manifest.parquet")
    return Credits(folder, ["a/x.jpg", "a/y.jpg"])


def test_each_photo_has_its_line(tmp_path: Path) -> None:
    found = credits_of(tmp_path)
    assert found.get("a/x.jpg") == "x by Ann"
    assert found.get("a/y.jpg") == found.get("other") == ""
    assert not found.withheld
    assert Credits(tmp_path, ["a/z.jpg"]).withheld
    assert Credits(None, ["a/x.jpg"]).withheld


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([2**31 - 1] * 3, pa.date32()),
        pa.array([2**53] * 3, pa.timestamp("ms")),
        pa.array([b"\xff"] * 3),
        pa.array([{"a": 1}] * 3),
        pa.array([["a"]] * 3),
        pa.array([1, 2, 3]),
        pa.nulls(3),
        pa.array(["x" * 200_000] * 3),
        pa.Array.from_buffers(
            pa.string(), 3, [None, pa.py_buffer(OFFSETS), pa.py_buffer(b"\xff\xfe\xfd")]
        ),
    ],
    ids=["day", "moment", "bytes", "struct", "list", "numbers", "nothing", "long", "no text"],
)
@pytest.mark.parametrize("column", list(GOOD))
def test_a_column_of_any_type_leaves_a_photo_without_a_credit_at_worst(
    tmp_path: Path, column: str, cells: pa.Array
) -> None:
    found = credits_of(tmp_path, **{column: cells})
    assert len(found.get("a/x.jpg")) <= 300
    assert found.withheld or column == "attribution"


def test_nor_does_a_manifest_that_is_none(tmp_path: Path) -> None:
    whole = tmp_path / "manifest.parquet"
    credits_of(tmp_path)
    data = whole.read_bytes()
    for broken in (b"", b"no table", data[: len(data) // 2], data[:-1]):
        whole.write_bytes(broken)
        assert Credits(tmp_path, ["a/x.jpg"]).withheld
    pq.write_table(pa.table({"path": ["a/x.jpg"]}), whole)
    assert Credits(tmp_path, ["a/x.jpg"]).withheld
