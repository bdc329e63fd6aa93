from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.errors import UsageError
from curate.labels.space import load_label_space
from curate.testbed.prediction_writing import write_predictions
from curate.testbed.score_files import read_scores

SPACE = load_label_space("imagenet-o")
THOUSAND = load_label_space("imagenet-1k")
FIRST, SECOND = SPACE.wnids[:2]
OTHER = next(wnid for wnid in THOUSAND.wnids if wnid not in SPACE)
NAMES = ["a.jpg", "b.jpg", "c.jpg"]


def table(file: Path, **columns: list[Any]) -> Path:
    columns = {"path": columns.pop("path", NAMES), **columns}
    if file.suffix == ".parquet":
        pq.write_table(pa.table(columns), file)
    else:
        rows = [list(columns), *zip(*columns.values(), strict=True)]
        cells = (["" if cell is None else str(cell) for cell in row] for row in rows)
        file.write_text("".join(f"{','.join(row)}\n" for row in cells))
    return file


FORMATS = pytest.mark.parametrize("suffix", ["csv", "parquet"])


@FORMATS
def test_a_column_a_score_is_enough(tmp_path: Path, suffix: str) -> None:
    path = table(
        tmp_path / f"f.{suffix}",
        confidence=[0.5, 0.25, 1.0],
        anomaly_mine=[3.0, -1.0, 2.0],
        anomaly_unrestricted_energy=[-7.0, -8.0, -9.0],
    )
    found, passed_over = read_scores(path, None, SPACE, inside=False)
    assert passed_over == 0
    assert list(found.paths) == NAMES
    assert {name: values.tolist() for name, values in found.anomaly.items()} == {
        "mine": [3, -1, 2],
        "msp": [-0.5, -0.25, -1],
    }
    assert found.anomaly_unrestricted["energy"].tolist() == [-7, -8, -9]


@FORMATS
def test_rows_come_in_the_datasets_order(tmp_path: Path, suffix: str) -> None:
    path = table(tmp_path / f"f.{suffix}", anomaly_msp=[-0.5, -0.25, -1.0])
    items = [("x/c.jpg", ""), ("x/a.jpg", ""), ("b.jpg", "")]
    found, _ = read_scores(path, items, SPACE, inside=False)
    assert found.anomaly["msp"].tolist() == [-1, -0.5, -0.25]
    with pytest.raises(UsageError, match=r"image 'c\.jpg' is not in the dataset"):
        read_scores(path, items[1:], SPACE, inside=False)


@FORMATS
def test_other_classes_are_passed_over_in_distribution_alone(tmp_path: Path, suffix: str) -> None:
    path = table(
        tmp_path / f"f.{suffix}", anomaly_msp=[-0.5, -0.25, -1.0], wnid=[FIRST, OTHER, SECOND]
    )
    found, passed_over = read_scores(path, None, SPACE, inside=True)
    assert (list(found.paths), passed_over) == (["a.jpg", "c.jpg"], 1)
    assert found.anomaly["msp"].tolist() == [-0.5, -1]
    assert len(read_scores(path, None, SPACE, inside=False)[0]) == 3
    path = table(tmp_path / f"g.{suffix}", anomaly_msp=[-0.5, -0.25, -1.0], wnid=[OTHER] * 3)
    with pytest.raises(UsageError, match=f"none of the 3 images .*imagenet-o: they are of {OTHER}"):
        read_scores(path, None, SPACE, inside=True)


@FORMATS
def test_a_predicted_class_counts_only_where_it_can_be_named_and_ordered(
    tmp_path: Path, suffix: str
) -> None:
    told = {"predicted_wnid": [FIRST, "<b>x</b>", OTHER], "anomaly_mine": [1.0, 2.0, 3.0]}
    path = table(tmp_path / f"f.{suffix}", **told, confidence=[0.5, 0.25, 1.0])
    assert read_scores(path, None, SPACE, inside=False)[0].predicted == [FIRST, None, None]
    path = table(tmp_path / f"g.{suffix}", **told)
    assert read_scores(path, None, SPACE, inside=False)[0].predicted == [None] * 3


@FORMATS
@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({}, "holds no scores: write a column 'anomaly_msp'"),
        ({"anomaly_msp": [-0.5, None, -1.0]}, "anomaly_msp is missing"),
        ({"anomaly_msp": [0.5, 0.5, 0.5]}, "minus the maximum softmax probability"),
        ({"anomaly_mine": [1.0, float("nan"), 2.0]}, "anomaly_mine is nan"),
        ({"confidence": [0.5, 1.5, 1.0]}, "confidence 1.5 is outside"),
        ({"confidence": [0.5, None, 1.0]}, "confidence is missing, which other rows have"),
        ({"path": ["a.jpg", "b.jpg", "a.jpg"], "confidence": [1.0] * 3}, "'a.jpg' was named in"),
        ({"confidence": [1.0] * 3, "wnid": [FIRST, None, FIRST]}, "wnid is missing, which other"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, suffix: str, columns: dict[str, Any], fault: str
) -> None:
    with pytest.raises(UsageError, match=fault) as caught:
        read_scores(table(tmp_path / f"f.{suffix}", **columns), None, SPACE, inside=True)
    assert "\n" not in str(caught.value)


def test_logits_need_no_labels(tmp_path: Path) -> None:
    logits = np.random.RandomState(0).randn(3, 1000).astype(np.float32)
    logits[1, 0] = np.nan
    np.savez(tmp_path / "f.npz", logits=logits, paths=NAMES)
    found, _ = read_scores(tmp_path / "f.npz", None, SPACE, inside=False)
    columns = SPACE.columns_in(THOUSAND)
    assert found.anomaly["max_logit"][0] == -logits[0, columns].max()
    assert found.anomaly_unrestricted["max_logit"][2] == -logits[2].max()
    assert found.failed == {1: "nan-logits"}
    assert found.rank is None
    np.savez(tmp_path / "g.npz", logits=logits, labels=[FIRST, SECOND, OTHER])
    found, passed_over = read_scores(tmp_path / "g.npz", None, SPACE, inside=True)
    assert (len(found), passed_over, found.failed) == (2, 1, {1: "nan-logits"})
    items = [(name, FIRST) for name in NAMES]
    np.savez(tmp_path / "h.npz", logits=logits, paths=NAMES, labels=["concept"] * 3)
    assert len(read_scores(tmp_path / "h.npz", items, SPACE, inside=False)[0]) == 3


def test_a_report_s_own_file_reads_back(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", logits=9 * np.eye(3, 1000), paths=NAMES)
    written, _ = read_scores(tmp_path / "f.npz", None, SPACE, inside=False)
    write_predictions(tmp_path / "f.parquet", written, {})
    found, _ = read_scores(tmp_path / "f.parquet", None, SPACE, inside=False)
    for name, values in written.anomaly.items():
        np.testing.assert_array_equal(found.anomaly[name], values)
    assert list(found.anomaly_unrestricted) == list(written.anomaly_unrestricted)


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.99])
def test_a_half_written_file_is_refused_in_one_line(tmp_path: Path, keep: float) -> None:
    path = table(tmp_path / "f.parquet", anomaly_msp=[-0.5, -0.25, -1.0])
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(UsageError, match="no whole Parquet file") as caught:
        read_scores(path, None, SPACE, inside=False)
    assert "\n" not in str(caught.value)
