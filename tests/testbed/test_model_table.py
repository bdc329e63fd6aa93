"""Tables of models and settings: read in every shape, and refused by name where they are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.errors import CurateError, UsageError
from curate.testbed.cells import MAX_CELLS, read_cells
from curate.testbed.model_table import ModelTable, read_table, setting_columns

WIDE = """model,type,val,v2,standard
a,STANDARD,70.5,60.25,1
b,OTHER,80,,0
c,STANDARD,5.5,nan,yes
"""
LONG = """setting,accuracy,model,images,note
val,70.5,a,1000,x
v2,60.25,a,,
val,80,b,1000,
val,5.5,c,,
"""


def table(path: Path, text: str | bytes, **options: Any) -> ModelTable:
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(data)
    cells = read_cells(path)
    named = options.pop("settings", None) or setting_columns(
        cells, ["model", "type", "standard", "note"]
    )
    return read_table(cells, named, **options)


def refused(path: Path, text: str | bytes, **options: Any) -> str:
    with pytest.raises(UsageError) as told:
        table(path, text, **options)
    line = str(told.value)
    assert "\n" not in line
    assert str(path) in line
    return line


@pytest.mark.parametrize("text", [WIDE, LONG], ids=["wide", "long"])
def test_both_shapes_give_the_same_table(tmp_path: Path, text: str) -> None:
    found = table(tmp_path / "t.csv", text)
    assert found.models == ("a", "b", "c")
    assert (found.unit, found.detected) == ("percent", True)
    np.testing.assert_array_equal(found.settings["val"], [70.5, 80, 5.5])
    np.testing.assert_array_equal(found.settings["v2"], [60.25, np.nan, np.nan])
    assert found.sizes == ({"val": 1000} if text is LONG else {})


def test_parquet_gives_what_csv_gives(tmp_path: Path) -> None:
    columns = {
        "model": pa.array(["a", "b"]).dictionary_encode(),
        "val": pa.array([0.705, None], pa.float32()),
        "v2": pa.array([1, 0], pa.int8()),
        "standard": pa.array([True, False]),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.PARQUET")
    cells = read_cells(tmp_path / "t.PARQUET")
    found = read_table(cells, ["val", "v2"])
    assert found.unit == "fraction"
    np.testing.assert_allclose(found.settings["val"], [70.5, np.nan], rtol=1e-7)
    np.testing.assert_array_equal(found.settings["v2"], [100.0, 0.0])
    assert cells.flags("standard") == [True, False]


def test_a_unit_that_is_said_is_not_questioned(tmp_path: Path) -> None:
    text = "model,val,v2\na,0.7,0.2\nb,0.9,0.1\n"
    assert table(tmp_path / "t.csv", text).column("val")[0] == pytest.approx(70)
    assert table(tmp_path / "t.csv", text, unit="percent").column("val")[0] == 0.7
    mixed = "model,val,v2\na,71,0.2\nb,82,0.1\n"
    assert table(tmp_path / "t.csv", mixed, unit="percent").column("v2")[0] == 0.2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model,val,v2\na,71,0.62\nb,82,0.7\n", "column 'v2' seems to hold fractions"),
        ("model,val,v2\na,71,62\nb,0.82,0.7\n", "line 3, column 'val': 0.82 seems"),
        ("model,val,v2\na,71,62\nb,82,0.7\n", "line 3, column 'v2': 0.7 seems to be a fraction"),
    ],
    ids=["column", "model", "cell"],
)
def test_percent_mixed_with_fractions_is_refused_by_name(
    tmp_path: Path, text: str, told: str
) -> None:
    assert told in refused(tmp_path / "t.csv", text)


def test_weak_models_are_not_taken_for_fractions(tmp_path: Path, shared_data: Path) -> None:
    cells = read_cells(shared_data / "testbed_top1.csv")
    found = read_table(cells, ["val", "imagenetv2-matched-frequency-format-val", "imagenet-a"])
    assert found.unit == "percent"
    assert np.nanmin(found.column("val")) < 1


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("model,val\na,1\nb,2\na,3\n", {}, "line 4, column 'model': model 'a' was in line 2 alrea"),
        ("model,val\na,1\n,2\n", {}, "line 3, column 'model': there is no name"),
        ("model,val\na,1\nb,x y\n", {}, "line 3, column 'val': 'x y' is not a number"),
        ("model,val\na,1\nb,101\n", {}, "line 3, column 'val': 101 is outside 0 … 100"),
        ("model,val\na,1\nb,-0.1\n", {}, "line 3, column 'val': -0.1 is outside"),
        ("model,val\na,1\nb,inf\n", {}, "line 3, column 'val': inf is outside"),
        ("model,val\na,.1\nb,1.1\n", {"unit": "fraction"}, "'val': 1.1 is outside 0 … 1, for fra"),
        ("model,val\na,1\n", {"settings": ["vla"]}, "unknown column 'vla'; did you mean val?"),
        ("name,val\na,1\n", {"settings": ["val"]}, "unknown column 'model'"),
        ("model,val\na,\nb,NaN\n", {}, "every accuracy is missing"),
        ("model,val,val\na,1,2\n", {}, "column 3 ('val') is there twice"),
        ("model,,val\na,1,2\n", {}, "column 2 ('') has no name"),
        ("model,val\n", {}, "has no row"),
        ("", {}, "is empty"),
        ("model,val\na,1,2\n", {}, "line 2: more cells than columns"),
        ("model,val\n\x07,1\n", {}, "line 2, column 'model': the name '\\x07' cannot be printed"),
        (f"model,val\n{'n' * 201},1\n", {}, "line 2, column 'model': a name has 201 characters"),
        ("model,val\na,\xff\n".encode("latin-1"), {}, "cannot read"),
        ("model,setting,accuracy\na,v,1\na,v,2\n", {}, "model 'a' in setting 'v' was in line 2"),
        ("model,setting,accuracy,images\na,v,1,9\nb,v,2,8\n", {}, "line 3, column 'images': 8 is"),
        (
            "model,setting,accuracy,type\na,v,1,S\na,w,2,T\n",
            {"kind": "type"},
            "is of type 'T' here",
        ),
        ("model,setting,accuracy\na,v,1\n", {"settings": ["w"]}, "unknown setting 'w'"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, text: str | bytes, options: dict[str, Any], told: str
) -> None:
    assert told in refused(tmp_path / "t.csv", text, **options)


def test_a_flag_that_is_neither_yes_nor_no_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("model,standard\na,1\nb,maybe\n")
    with pytest.raises(UsageError, match="line 3, column 'standard': 'maybe' is neither 1 nor 0"):
        read_cells(tmp_path / "t.csv").flags("standard")


def test_a_table_beyond_all_bounds_is_refused_before_it_is_read(tmp_path: Path) -> None:
    wide = {f"c{n}": pa.nulls(MAX_CELLS // 100, pa.int8()) for n in range(101)}
    pq.write_table(pa.table(wide), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match="at most"):
        read_cells(tmp_path / "t.parquet")


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_columns_beyond_all_bounds_are_refused_at_once(tmp_path: Path, ending: str) -> None:
    """To look each of 200,000 names up among those before it took minutes."""
    names = [f"c{n}" for n in range(200_000)]
    path = tmp_path / f"t{ending}"
    if ending == ".csv":
        path.write_text(f"{','.join(names)}\n{','.join('1' for _ in names)}\n")
    else:
        names = names[:10_001]
        pq.write_table(pa.table({name: pa.nulls(1, pa.int8()) for name in names}), path)
    with pytest.raises(UsageError, match="a table has at most 10,000 columns"):
        read_cells(path)


def test_a_long_text_that_is_packed_once_for_all_rows_is_refused_early(tmp_path: Path) -> None:
    packed = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000, pa.int32()), ["x" * 20_000])
    pq.write_table(pa.table({"model": packed}), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match="column 'model': a text has more than 10,000 bytes"):
        read_cells(tmp_path / "t.parquet")


def test_a_day_beyond_all_calendars_is_text_like_any_other(tmp_path: Path) -> None:
    days = pa.array([2**31 - 1], pa.date32()), pa.array([2**53], pa.timestamp("ms"))
    columns = {"model": ["a"], "val": [70.5], "day": days[0], "moment": days[1]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert read_table(read_cells(tmp_path / "t.parquet"), ["val"]).column("val")[0] == 70.5
    with pytest.raises(UsageError, match=r"column 'moment': .* is not a number"):
        read_table(read_cells(tmp_path / "t.parquet"), ["moment"])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(1)])
def test_bytes_are_no_names(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"model": pa.array([b"a"], kind), "x": [1]}), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match="column 'model' holds .*binary.*, neither numbers nor"):
        read_cells(tmp_path / "t.parquet")


def test_nested_columns_are_refused_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"model": ["a"], "x": [[1]]}), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match="column 'x' holds list"):
        read_cells(tmp_path / "t.parquet")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_bytes_of_any_kind_are_read_or_refused_in_one_line(
    tmp_path: Path, ending: str, data: bytes
) -> None:
    path = tmp_path / f"t{ending}"
    path.write_bytes(data)
    said = "one line"
    try:
        cells = read_cells(path)
        cells = cells.joined(cells.columns[:1], "model")
        read_table(cells, setting_columns(cells, ["model"]))
    except CurateError as error:
        said = str(error)
    assert len(said.splitlines()) == 1
