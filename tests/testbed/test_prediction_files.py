from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.errors import CurateError, UsageError
from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace, load_label_space
from curate.testbed.logit_files import read_logits
from curate.testbed.prediction_files import read_predictions
from curate.testbed.prediction_writing import write_predictions
from curate.testbed.predictions import Predictions

SPACE = LabelSpace("two", [LabelClass("ape", "ape", column=3), LabelClass("bee", "bee", column=7)])
ITEMS = [("ape/a.jpg", "ape"), ("bee/b.jpg", "bee"), ("ape/c.jpg", "ape")]
THOUSAND = load_label_space("imagenet-1k")
DRAGONFLY = "n02268443"

Rows = dict[str, Sequence[Any]]

GOOD: Rows = {
    "path": ["bee/b.jpg", "c.jpg", "ape/a.jpg"],
    "predicted_wnid": ["bee", "bee", "ape"],
    "confidence": [0.75, 0.5, 1.0],
}


def read(path: Path, items: list[tuple[str, str]] | None = ITEMS) -> Predictions:
    return read_predictions(path, items, lambda _: SPACE)[0]


def as_csv(path: Path, rows: Rows) -> Path:
    lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def as_parquet(path: Path, rows: Rows) -> Path:
    pq.write_table(pa.table({name: pa.array(cells) for name, cells in rows.items()}), path)
    return path


WRITERS = pytest.mark.parametrize(
    ("name", "write", "first"),
    [("f.csv", as_csv, "line 2"), ("f.PARQUET", as_parquet, "row 1")],
    ids=["csv", "parquet"],
)
Writer = Callable[[Path, Rows], Path]


@WRITERS
def test_rows_come_in_the_datasets_order(
    tmp_path: Path, name: str, write: Writer, first: str
) -> None:
    found = read(write(tmp_path / name, GOOD))
    assert found.paths == ("ape/a.jpg", "bee/b.jpg", "ape/c.jpg")
    assert found.predicted == ["ape", "bee", "bee"]
    assert found.confidence.tolist() == [1.0, 0.75, 0.5]
    assert found.correct.tolist() == [True, True, False]
    assert found.unrestricted is None


@WRITERS
def test_without_a_dataset_the_file_gives_the_true_classes(
    tmp_path: Path, name: str, write: Writer, first: str
) -> None:
    rows = {"image": GOOD["path"], **GOOD, "wnid": ["bee", "ape", "ape"]}
    del rows["path"]
    found = read(write(tmp_path / name, rows), None)
    assert found.wnids == ("bee", "ape", "ape")
    assert found.correct.tolist() == [True, False, True]
    with pytest.raises(UsageError, match=f"{first}: without a DATASET a column 'wnid'"):
        read(write(tmp_path / name, GOOD), None)
    twice = {**rows, "image": ["x.jpg"] * 3}
    with pytest.raises(UsageError, match=r"image 'x\.jpg' was named in"):
        read(write(tmp_path / name, twice), None)


@WRITERS
@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("confidence", float("nan"), "confidence nan is outside"),
        ("confidence", float("inf"), "confidence inf is outside"),
        ("confidence", 1.0000001, "outside 0 … 1"),
        ("confidence", -0.1, "confidence -0.1 is outside"),
        ("predicted_wnid", "cow", "predicted_wnid 'cow' is no class of two"),
        ("predicted_wnid", "", "predicted_wnid"),
        ("path", "zzz", "image 'zzz' is not in the dataset"),
        ("path", "", "the image's path is missing"),
        ("wnid", "ape", "true class is 'ape' here and 'bee' in the dataset"),
    ],
)
def test_a_wrong_cell_is_named_with_its_row(
    tmp_path: Path, name: str, write: Writer, first: str, column: str, value: Any, fault: str
) -> None:
    rows = {**GOOD, "wnid": ["bee", "ape", "ape"]}
    rows[column] = [value, *rows[column][1:]]
    with pytest.raises(UsageError, match=f"{first}: .*{fault}") as caught:
        read(write(tmp_path / name, rows))
    assert "\n" not in str(caught.value)


NUMBERS: Rows = {
    "p_true": [0.25, 0.5, 1],
    "rank": [1, 1, 0],
    "anomaly_msp": [-0.75, -0.5, -1.0],
    "anomaly_mine": [3, -8.5, 0],
    "anomaly_unrestricted_msp": [-0.5, -0.25, -1.0],
}


@WRITERS
def test_columns_of_numbers_are_read(tmp_path: Path, name: str, write: Writer, first: str) -> None:
    rows = {**GOOD, **NUMBERS, "predicted_wnid": ["ape", "bee", "ape"]}
    found = read(write(tmp_path / name, rows))
    assert found.p_true is not None
    assert found.p_true.tolist() == [1, 0.25, 0.5]
    assert found.rank is not None
    assert found.rank.tolist() == [0, 1, 1]
    assert found.rank_unrestricted is None
    assert {k: v.tolist() for k, v in found.anomaly.items()} == {
        "msp": [-1, -0.75, -0.5],
        "mine": [0, 3, -8.5],
    }
    assert found.anomaly_unrestricted["msp"].tolist() == [-1, -0.5, -0.25]


@WRITERS
@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("rank", 0, "the rank is 0 exactly where"),
        ("rank", 2, "rank is 2: a rank counts"),
        ("rank", 0.5, "a rank counts"),
        ("rank", "", "rank is missing"),
        ("p_true", 1.5, "a probability is 0 … 1"),
        ("anomaly_msp", 0.75, "minus the maximum softmax probability"),
        ("anomaly_unrestricted_msp", 0.75, "minus the maximum softmax probability"),
        ("anomaly_mine", float("nan"), "anomaly_mine is nan"),
        ("anomaly_mine", float("-inf"), "anomaly_mine is -inf"),
        ("anomaly_mine", -1.7e308, "beyond 1e\\+300"),
        ("anomaly_mine", "", "anomaly_mine is missing"),
    ],
)
def test_a_wrong_number_is_named_with_its_row(
    tmp_path: Path, name: str, write: Writer, first: str, column: str, value: Any, fault: str
) -> None:
    rows = {**GOOD, **NUMBERS, "predicted_wnid": ["ape", "bee", "ape"]}
    if write is as_parquet and value == "":
        value = None
    rows[column] = [value, *rows[column][1:]]
    with pytest.raises(UsageError, match=f"{first}: {fault}" if fault[0] == "t" else fault):
        read(write(tmp_path / name, rows))


def test_scores_with_odd_names_or_in_great_number_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'anomaly_<b>': call a score by"):
        read(as_csv(tmp_path / "f.csv", {**GOOD, "anomaly_<b>": [1, 2, 3]}))
    for name in ("in_msp", "reweighted_msp", "msp_unrestricted"):
        with pytest.raises(UsageError, match="not beginning with a measure's word"):
            read(as_csv(tmp_path / "f.csv", {**GOOD, f"anomaly_{name}": [1, 2, 3]}))
    many = {f"anomaly_{number}": [1, 2, 3] for number in range(51)}
    with pytest.raises(UsageError, match="51 columns of scores"):
        read(as_csv(tmp_path / "f.csv", {**GOOD, **many}))


@WRITERS
@pytest.mark.parametrize("column", ["path", "predicted_wnid", "confidence"])
def test_a_missing_column_is_named_with_the_nearest(
    tmp_path: Path, name: str, write: Writer, first: str, column: str
) -> None:
    rows = {(key if key != column else f"{key}s"): cells for key, cells in GOOD.items()}
    with pytest.raises(UsageError, match=rf"column '{column}' is missing \(is it '{column}s'\?\)"):
        read(write(tmp_path / name, rows))


@pytest.mark.parametrize("name", ["path", "confidence", "anomaly_mine"])
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, name: str) -> None:
    lines = as_csv(tmp_path / "f.csv", {**GOOD, "anomaly_mine": [1, 2, 3]}).read_text().splitlines()
    twice = [f"{line},{cell}" for line, cell in zip(lines, [name, "x", "y", "z"], strict=True)]
    (tmp_path / "f.csv").write_text("\n".join(twice))
    with pytest.raises(UsageError, match=f"column '{name}' is there twice"):
        read(tmp_path / "f.csv")
    table = as_parquet(tmp_path / "f.parquet", {**GOOD, "anomaly_mine": [1.0, 2.0, 3.0]})
    twice = pq.read_table(table)
    pq.write_table(twice.append_column(name, twice[name]), table)
    with pytest.raises(UsageError, match=f"column '{name}' is there twice"):
        read(table)


@WRITERS
def test_a_file_without_rows_is_refused(
    tmp_path: Path, name: str, write: Writer, first: str
) -> None:
    with pytest.raises(UsageError, match="holds no predictions"):
        read(write(tmp_path / name, {key: [] for key in GOOD}))


def test_text_for_a_confidence_is_refused(tmp_path: Path) -> None:
    rows = {**GOOD, "confidence": ["0.75", "half", "1"]}
    with pytest.raises(UsageError, match="line 3: confidence 'half' is not a number"):
        read(as_csv(tmp_path / "f.csv", rows))
    with pytest.raises(UsageError, match="row 1: confidence '0.75' is not a number"):
        read(as_parquet(tmp_path / "f.parquet", rows))


@pytest.mark.parametrize("text", ["0_1", "1_0", "0_.5", "0x1", "½", "0,5"])
def test_what_only_python_reads_as_a_number_is_none(tmp_path: Path, text: str) -> None:
    rows = {**GOOD, "confidence": [0.75, f'"{text}"', 1.0]}
    with pytest.raises(UsageError, match=f"line 3: confidence '{text}' is not a number"):
        read(as_csv(tmp_path / "f.csv", rows))


@WRITERS
def test_a_hair_beyond_the_range_is_told_in_full(
    tmp_path: Path, name: str, write: Writer, first: str
) -> None:
    # As a softmax in float32 gives it.
    rows = {**GOOD, "confidence": [float(np.nextafter(np.float32(1), np.float32(2))), 0.5, 1.0]}
    with pytest.raises(UsageError, match=f"{first}: confidence 1.00000011921 is outside 0 … 1"):
        read(write(tmp_path / name, rows))


@WRITERS
def test_blanks_around_a_cell_say_nothing(
    tmp_path: Path, name: str, write: Writer, first: str
) -> None:
    rows = {**GOOD, "path": [f" {path} " for path in GOOD["path"]], "unrestricted_wnid": [""] * 3}
    found = read(write(tmp_path / name, rows))
    assert found.confidence.tolist() == [1.0, 0.75, 0.5]
    assert found.unrestricted is None
    with pytest.raises(UsageError, match=f"{first}: the image's path is missing"):
        read(write(tmp_path / name, {**GOOD, "path": [" ", "c.jpg", "ape/a.jpg"]}))


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([2**31 - 1] * 3, pa.date32()),
        pa.array([2**53] * 3, pa.timestamp("ms")),
        pa.array([1] * 3, pa.timestamp("s", "Nowhere/Land")),
        pa.array([b"a"] * 3),
        pa.array([{"path": "a"}] * 3),
        pa.array([["a"]] * 3),
        pa.array([1, 2, 3]),
        pa.array([True] * 3),
    ],
    ids=lambda cells: str(cells.type),
)
@pytest.mark.parametrize("column", ["path", "predicted_wnid", "failed", "confidence"])
def test_a_column_of_any_type_is_read_or_told_in_one_line(
    tmp_path: Path, column: str, cells: pa.Array
) -> None:
    path = as_parquet(tmp_path / "f.parquet", {**GOOD, column: cells})
    try:
        found = read(path)
    except UsageError as error:
        line = str(error)
    else:
        # Why an image failed may be anything that is text.
        assert column == "failed"
        assert len(found.failed) == 3
        return
    assert "\n" not in line
    assert line.startswith((f"{path}: column '{column}'", f"{path}, row", f"cannot read {path}"))


def test_a_long_text_that_is_packed_once_for_all_rows_stays_packed(tmp_path: Path) -> None:
    """Unpacked it would take 100 GB."""
    packed = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000, pa.int32()), ["x" * 2_000_000])
    plain = ["bee"] * 50_000
    table = {"path": packed, "predicted_wnid": plain, "confidence": [0.5] * 50_000}
    with pytest.raises(UsageError, match="column 'path': a text has more than 10,000 bytes"):
        read(as_parquet(tmp_path / "f.parquet", table))


def test_an_argmax_over_other_outputs_is_told_as_what_it_is(tmp_path: Path) -> None:
    space = load_label_space("imagenet-a")
    outside = next(wnid for wnid in THOUSAND.wnids if wnid not in space)
    items = [("a.jpg", DRAGONFLY)]
    for predicted, advice in (
        ("319", "numbers do not tell the order of the outputs"),
        (outside, "belongs the best of these 200"),
        ("dragonfly", "predict within the label space"),
    ):
        rows = {"path": ["a.jpg"], "predicted_wnid": [predicted], "confidence": [0.5]}
        with pytest.raises(UsageError, match=f"line 2: .*no class of imagenet-a; .*{advice}"):
            read_predictions(as_csv(tmp_path / "f.csv", rows), items, lambda _: space)


def test_places_of_class_folders_are_not_taken_for_columns(tmp_path: Path) -> None:
    path = save(tmp_path / "f.npz", logits=np.zeros((200, 1000)), labels=np.arange(200))
    with pytest.raises(UsageError, match=r"exactly 0 … 199: they may be the places of 200 class"):
        read_predictions(path, None, lambda _: THOUSAND)


def test_numbers_for_ids_are_refused(tmp_path: Path) -> None:
    rows = {**GOOD, "predicted_wnid": [1, 2, 3]}
    with pytest.raises(UsageError, match="row 1: predicted_wnid is no text"):
        read(as_parquet(tmp_path / "f.parquet", rows))


def test_half_known_unrestricted_predictions_are_refused(tmp_path: Path) -> None:
    rows = {**GOOD, "unrestricted_wnid": ["bee", "", "cow"]}
    with pytest.raises(UsageError, match="line 3: unrestricted_wnid is missing"):
        read(as_csv(tmp_path / "f.csv", rows))
    found = read(as_csv(tmp_path / "f.csv", {**rows, "unrestricted_wnid": ["bee", "elk", "cow"]}))
    assert found.unrestricted == ["cow", "bee", "elk"]


def test_a_row_without_a_prediction_must_say_why(tmp_path: Path) -> None:
    rows = {**GOOD, "predicted_wnid": [None, "bee", "ape"], "confidence": [None, 0.5, 1.0]}
    with pytest.raises(UsageError, match="row 1: predicted_wnid is missing"):
        read(as_parquet(tmp_path / "f.parquet", rows))
    found = read(as_parquet(tmp_path / "f.parquet", {**rows, "failed": ["truncated", None, None]}))
    assert found.failed == {1: "truncated"}
    assert found.sound.tolist() == [True, False, True]


@WRITERS
def test_why_an_image_failed_is_told_in_a_line_however_much_the_file_says(
    tmp_path: Path, name: str, write: Writer, first: str
) -> None:
    rows = {**GOOD, "failed": ["x" * 9_000, "", "y" * 300]}
    failed = read(write(tmp_path / name, rows)).failed
    assert [len(reason) for reason in failed.values()] == [300, 300]
    assert failed[1] == "x" * 299 + "…"


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("name", ["f.csv", "f.parquet", "f.npz"])
def test_a_half_written_file_is_refused_in_one_line(tmp_path: Path, name: str, keep: float) -> None:
    path = tmp_path / name
    if name == "f.csv":
        as_csv(path, GOOD)
    elif name == "f.parquet":
        as_parquet(path, GOOD)
    else:
        np.savez(path, logits=np.eye(3, 2), paths=["a.jpg", "b.jpg", "c.jpg"])
    read(path)
    data = path.read_bytes()
    # A cell of a CSV that ends early may read as another number; the row before it is gone then.
    path.write_bytes(data[: int(len(data) * keep) - 5])
    with pytest.raises(UsageError) as caught:
        read(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_an_unknown_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read(tmp_path / "absent.csv")
    with pytest.raises(UsageError, match=r"\.csv, \.parquet, \.npz"):
        read(tmp_path / "predictions.json")


# NPZ


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_logits_of_the_label_space_in_its_order(tmp_path: Path) -> None:
    logits = np.array([[0.0, 2.0], [3.0, 1.0], [1.0, 1.0]], np.float32)
    path = save(tmp_path / "f.npz", logits=logits, paths=["b.jpg", "ape/a.jpg", "c.jpg"])
    found = read(path)
    assert found.predicted == ["ape", "bee", "ape"]
    expected = [1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-2)), 0.5]
    assert found.confidence.tolist() == pytest.approx(expected, abs=1e-12)
    assert found.p_true is not None
    assert found.p_true.tolist() == pytest.approx(expected, abs=1e-12)
    assert found.unrestricted is None


def test_thousand_logits_are_restricted_and_read_unrestricted_too(tmp_path: Path) -> None:
    logits = np.zeros((3, 1000), np.float16)
    logits[:, 3] = 1
    logits[1, 500] = 2
    path = save(tmp_path / "f.npz", logits=logits, paths=[path for path, _ in ITEMS])
    found = read(path)
    assert found.predicted == ["ape"] * 3
    assert found.unrestricted == ["ape", THOUSAND.wnids[500], "ape"]
    assert found.outputs == 1000


def test_labels_stand_for_a_dataset_as_ids_or_columns(tmp_path: Path) -> None:
    space = load_label_space("imagenet-a")
    column = space.get(DRAGONFLY).column
    assert column is not None
    logits = np.zeros((2, 1000))
    logits[:, column] = 9
    asked: list[Sequence[str]] = []

    def choose(wnids: Sequence[str]) -> LabelSpace:
        asked.append(wnids)
        return space

    other = next(item for item in space if item.wnid != DRAGONFLY)
    for labels in ([DRAGONFLY, other.wnid], [column, other.column]):
        path = save(tmp_path / "f.npz", logits=logits, labels=np.array(labels))
        found, _ = read_predictions(path, None, choose)
        assert asked.pop() == [DRAGONFLY, other.wnid]
        assert found.correct.tolist() == [True, False]
        assert found.paths == ["row 1", "row 2"]


def test_an_array_of_classes_says_what_the_columns_are(tmp_path: Path) -> None:
    logits = np.array([[0.0, 9.0, 2.0]] * 3)
    ids = [path for path, _ in ITEMS]
    path = save(tmp_path / "f.npz", logits=logits, paths=ids, classes=["bee", "elk", "ape"])
    found = read(path)
    assert found.predicted == ["ape"] * 3
    assert found.unrestricted == ["elk"] * 3
    path = save(tmp_path / "f.npz", logits=logits, paths=ids, classes=["bee", "elk", "fox"])
    with pytest.raises(UsageError, match="lacks 1 of the 2 classes of label space two: ape"):
        read(path)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "u1", "percent", "one-hot"])
def test_probabilities_are_not_taken_for_logits(tmp_path: Path, kind: str) -> None:
    logits = np.random.RandomState(0).normal(0, 3, (3, 1000))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    paths = [path for path, _ in ITEMS]
    space = load_label_space("imagenet-a")
    items = [(path, DRAGONFLY) for path in paths]
    if kind == "percent":
        told: Any = shares * 100
    elif kind == "one-hot" or kind == "u1":
        told = (shares == shares.max(axis=1, keepdims=True)).astype("u1" if kind == "u1" else "f4")
    else:
        told = shares.astype(kind)
    with pytest.raises(UsageError, match="'logits' holds probabilities: every row is from 0 and"):
        read_predictions(save(tmp_path / "f.npz", logits=told, paths=paths), items, lambda _: space)
    with pytest.raises(UsageError, match="holds probabilities"):
        read_logits(tmp_path / "f.npz", None, lambda _: space, 10, truth=False)
    # Of what is no distribution in a single row, or not from 0, nothing is said.
    for fine in (np.log(shares), shares - shares.mean(), np.vstack([told[:2], told[2:] * 2])):
        path = save(tmp_path / "f.npz", logits=fine, paths=paths)
        assert not read_predictions(path, items, lambda _: space)[0].failed


def test_logits_that_are_no_numbers_fail_by_row(tmp_path: Path) -> None:
    logits = np.array([[0, 9], [np.nan, 1], [np.inf, 0]])
    path = save(tmp_path / "f.npz", logits=logits, paths=[path for path, _ in ITEMS])
    assert read(path).failed == {1: "nan-logits", 2: "nan-logits"}


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({}, "array 'logits' is missing"),
        ({"logits": np.zeros((3, 2))}, "an array 'paths' must say"),
        ({"logits": np.zeros(3)}, "images by classes"),
        ({"logits": np.zeros((0, 2))}, "images by classes"),
        ({"logits": np.zeros((3, 2), complex)}, "must hold numbers"),
        ({"logits": np.array([["x"]])}, "must hold numbers"),
        ({"logits": np.zeros((3, 2), object)}, "holds Python objects"),
        ({"logits": np.asfortranarray(np.ones((3, 2)))}, "Fortran order"),
        ({"logits": np.zeros((3, 5)), "paths": ["a.jpg", "b.jpg", "c.jpg"]}, "5 columns, neither"),
        ({"logits": np.zeros((3, 2)), "paths": ["a.jpg", "b.jpg"]}, r"shape \(2,\), not \(3,\)"),
        ({"logits": np.zeros((3, 2)), "paths": [1, 2, 3]}, "must hold text"),
        ({"logits": np.zeros((2, 2)), "paths": ["a.jpg", "b.jpg"]}, "1 of 3 images are missing"),
        (
            {"logits": np.zeros((1, 2)), "paths": ["a.jpg"], "labels": [1000]},
            "row 1: label 1000 is no column of imagenet-1k",
        ),
        (
            {
                "logits": np.zeros((3, 2)),
                "paths": ["a.jpg", "b.jpg", "c.jpg"],
                "labels": ["ape"] * 3,
            },
            "row 2: the true class is 'ape' here and 'bee' in the dataset",
        ),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        read(save(tmp_path / "f.npz", **arrays))


def test_thousand_columns_of_another_label_space_are_ambiguous(tmp_path: Path) -> None:
    space = LabelSpace("reversed", reversed(THOUSAND.classes))
    path = save(tmp_path / "f.npz", logits=np.zeros((1, 1000)), labels=[DRAGONFLY])
    with pytest.raises(UsageError, match="those of reversed or of imagenet-1k"):
        read_predictions(path, None, lambda _: space)


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    flag = tmp_path / "ran"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (flag,)

    bomb = np.empty(3, object)
    bomb[:] = [Bomb()] * 3
    logits = np.zeros((3, 2))
    for arrays in ({"logits": bomb}, {"logits": logits, "paths": bomb}):
        path = tmp_path / "f.npz"
        np.savez(path, allow_pickle=True, **arrays)
        with pytest.raises(UsageError, match="Python objects"):
            read(path)
    assert not flag.exists()


def npy(claimed: tuple[int, ...], data: bytes) -> bytes:
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": claimed}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + data


@pytest.mark.parametrize("claimed", [(10**9, 10**9), (3, 2), (2**62, 2**62), (1, 3)])
def test_what_a_header_claims_is_checked_before_it_is_believed(
    tmp_path: Path, claimed: tuple[int, ...]
) -> None:
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logits.npy", npy(claimed, b"\0" * 8))
    with pytest.raises(UsageError, match="but holds 8 bytes: is it cut off"):
        read(path)


@pytest.mark.parametrize("claimed", [(-2, -1), (True, 2), (-1, -2)])
def test_a_shape_that_no_array_has_is_refused(tmp_path: Path, claimed: tuple[int, ...]) -> None:
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logits.npy", npy(claimed, b"\0" * 8))
    for truth in (True, False):
        with pytest.raises(UsageError, match="claims the shape"):
            read_logits(path, None, lambda _: SPACE, 10, truth=truth)


@pytest.mark.parametrize("sign", [0xD800, 0xDCE9, 0x110000, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("order", "<>")
def test_signs_of_no_text_are_escaped_or_refused(tmp_path: Path, sign: int, order: str) -> None:
    signs = np.full(3, sign, f"{order}u4")
    signs[1:] = [ord("b"), ord("c")]
    paths = signs.view(f"{order}U1")
    path = save(tmp_path / "f.npz", logits=np.zeros((3, 2)), paths=paths, labels=["ape"] * 3)
    if sign > 0xFFFF:
        with pytest.raises(UsageError, match="array 'paths' holds signs of no text"):
            read(path, None)
        return
    found = read(path, None)
    assert list(found.paths) == [f"\\u{sign:04x}", "b", "c"]
    write_predictions(tmp_path / "f.parquet", found, {})


def test_an_array_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "f.npz", logits=np.zeros((3, 2)), paths=[path for path, _ in ITEMS])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("logits", npy((3, 2), np.ones(6, "f4").tobytes()))
    with pytest.raises(UsageError, match="array 'logits' is there twice"):
        read(path)


def test_an_image_that_a_sampler_repeated_is_refused_without_a_dataset(tmp_path: Path) -> None:
    paths = ["a.jpg", "b.jpg", "a.jpg"]
    rows = {"path": paths, "wnid": ["ape"] * 3, "predicted_wnid": ["ape"] * 3}
    files = [
        save(tmp_path / "f.npz", logits=np.zeros((3, 2)), paths=paths, labels=["ape"] * 3),
        as_csv(tmp_path / "f.csv", {**rows, "confidence": [0.5] * 3}),
        as_parquet(tmp_path / "f.parquet", {**rows, "confidence": [0.5] * 3}),
    ]
    for path in files:
        with pytest.raises(UsageError, match="image 'a.jpg' was named in (row|line) . already"):
            read(path, None)
    # The same name in two class folders is two images.
    save(files[0], logits=np.zeros((3, 2)), paths=paths, labels=["ape", "ape", "bee"])
    assert len(read(files[0], None)) == 3


def test_columns_beyond_all_bounds_are_refused_before_their_names_are_read(tmp_path: Path) -> None:
    path = save(tmp_path / "f.npz", logits=np.zeros((1, 1_000_001), "i1"), classes=["x"])
    with pytest.raises(UsageError, match="'logits': more than 1,000,000 columns"):
        read(path, None)


@pytest.mark.parametrize("header", ["(" * 9, "a b", "'", "0x", "{", " x\n  y\n z"])
def test_a_header_that_is_none_is_told_in_one_line(tmp_path: Path, header: str) -> None:
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w") as archive:
        length = len(header).to_bytes(2, "little")
        archive.writestr("logits.npy", b"\x93NUMPY\x01\x00" + length + header.encode())
    with pytest.raises(UsageError, match="no whole NPZ file"):
        read(path)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = save(tmp_path / "f.npz", logits=np.ones((3, 2)), paths=["a.jpg", "b.jpg", "c.jpg"])
    data = bytearray(path.read_bytes())
    at = data.index(np.ones(6).tobytes())
    data[at + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match="no whole NPZ file"):
        read(path)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("samples")
    as_csv(folder / "f.csv", GOOD)
    as_parquet(folder / "f.parquet", GOOD)
    save(folder / "f.npz", logits=np.eye(3, 2), paths=["a.jpg", "b.jpg", "c.jpg"])
    return {path.suffix: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([".csv", ".parquet", ".npz"]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
    st.floats(0.5, 1.0),
)
def test_any_bytes_give_predictions_or_one_line(
    samples: dict[str, bytes],
    tmp_path: Path,
    suffix: str,
    changes: list[tuple[float, int]],
    keep: float,
) -> None:
    data = bytearray(samples[suffix])
    for place, value in changes:
        data[int(place * len(data))] = value
    path = tmp_path / f"f{suffix}"
    path.write_bytes(data[: int(len(data) * keep)])
    told: CurateError | None = None
    try:
        found = read(path)
    except CurateError as error:
        told = error
    if told is not None:
        assert "\n" not in str(told)
        return
    assert len(found) == 3
    assert ((found.confidence[found.sound] >= 0) & (found.confidence[found.sound] <= 1)).all()


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    written = Predictions(
        [path for path, _ in ITEMS],
        [wnid for _, wnid in ITEMS],
        ["ape", None, "bee"],
        np.array([0.1 + 0.2, np.nan, 1.0]),
        np.array([0.1, np.nan, 0.0]),
        ["elk", None, "bee"],
        {1: "truncated"},
        1000,
        np.array([0, -1, 1], np.int32),
        np.array([2, -1, 3], np.int32),
        {"msp": np.array([-0.1 - 0.2, np.nan, -1.0])},
        {"msp": np.array([-0.3, np.nan, -0.5]), "mine": np.array([3.0, np.nan, -2.0])},
    )
    write_predictions(tmp_path / "f.parquet", written, {})
    for items in (ITEMS, None):
        found = read(tmp_path / "f.parquet", items)
        assert list(found.predicted) == list(written.predicted)
        np.testing.assert_array_equal(found.confidence, written.confidence)
        assert found.unrestricted == written.unrestricted
        assert found.failed == written.failed
        for name in ("p_true", "rank", "rank_unrestricted"):
            np.testing.assert_array_equal(getattr(found, name), getattr(written, name))
        for name in ("anomaly", "anomaly_unrestricted"):
            theirs = getattr(written, name)
            assert list(getattr(found, name)) == list(theirs)
            for score, values in getattr(found, name).items():
                np.testing.assert_array_equal(values, theirs[score])
    data = bytearray((tmp_path / "f.parquet").read_bytes())
    for place in range(100, len(data) // 2, 7):
        data[place] ^= 4
    (tmp_path / "f.parquet").write_bytes(data)
    with pytest.raises(UsageError, match="no whole Parquet file"):
        read(tmp_path / "f.parquet")
