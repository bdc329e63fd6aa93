"""Saved predictions: CSV and Parquet tables with a row an image, NPZ files with logits.

The files come from anyone's code, so nothing in them is trusted: a fault is one line that names
the file and the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curate.errors import UsageError
from curate.files import printable
from curate.labels.space import LabelSpace, load_label_space
from curate.testbed.image_ids import ImageIds
from curate.testbed.logit_files import read_logits
from curate.testbed.prediction_rows import MAX_ROWS, REQUIRED, Row, csv_rows, parquet_rows
from curate.testbed.predictions import ANOMALY, ANOMALY_UNRESTRICTED, Predictions

#: The file formats, by the ending of the name.
SUFFIXES = (".csv", ".parquet", ".npz")

#: The largest number of a table, either way, so that differences stay numbers.
LARGEST_NUMBER = 1e300

#: Gives the label space for the true classes of all images, in order.
ChooseSpace = Callable[[Sequence[str]], LabelSpace]


def read_predictions(
    path: Path,
    items: Sequence[tuple[str, str]] | None,
    choose: ChooseSpace,
    *,
    keep_logits: bool = False,
) -> tuple[Predictions, LabelSpace]:
    """Read saved predictions and check all of them.

    A CSV or Parquet file has the columns `path` (or `image`), `predicted_wnid` and `confidence`,
    and where it has them `wnid` (the true class), `unrestricted_wnid` (predicted among all of the
    model's outputs), `failed` (why an image has no prediction; then the other cells may be
    empty), `p_true`, `rank`, `rank_unrestricted`, and `anomaly_NAME` and
    `anomaly_unrestricted_NAME` for scores of any name (see `Predictions`). A column of these is
    there for every image or for none. See `logit_files.read_logits` for NPZ.

    Args:
        path: the file.
        items: the dataset's images in order, as (path within the dataset, true class); every one
            must have a row and every row must be one of them. None takes images and true classes
            from the file.
        choose: gives the label space.
        keep_logits: keep the logits of an NPZ file in memory.

    Raises:
        UsageError: the file cannot be read, is cut off, or a row is wrong.
    """
    if file_format(path) == ".npz":
        return read_logits(path, items, choose, MAX_ROWS, keep_logits=keep_logits)
    rows = table_rows(path)
    if items is None:
        items, ordered = _own_items(path, rows), rows
    else:
        ids = ImageIds(items, printable(path))
        places = ids.places((row.where, row.path) for row in rows)
        ordered = [rows[n] for n in places]
    space = choose([wnid for _, wnid in items])
    return _checked(path, items, ordered, space), space


def file_format(path: Path) -> str:
    """The format of a file of predictions, one of `SUFFIXES`.

    Args:
        path: the file.

    Raises:
        UsageError: its name says none of them, or there is no such file.
    """
    suffix = path.suffix.casefold()
    if suffix not in SUFFIXES:
        raise UsageError(
            f"{printable(path)}: predictions come as {', '.join(SUFFIXES)}; "
            "the name's ending says which"
        )
    if not path.is_file():
        raise UsageError(f"cannot read {printable(path)}: no such file")
    return suffix


def table_rows(path: Path, required: Sequence[str] = REQUIRED) -> list[Row]:
    """All rows of a CSV or Parquet file, at least one.

    Args:
        path: the file.
        required: columns that must be there.

    Raises:
        UsageError: it cannot be read, is cut off, holds nothing, or lacks a column.
    """
    csv = path.suffix.casefold() == ".csv"
    rows = list(csv_rows(path, required) if csv else parquet_rows(path, required))
    if not rows:
        raise UsageError(f"{printable(path)} holds no predictions")
    return rows


def _own_items(path: Path, rows: Sequence[Row]) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    seen: dict[tuple[str, str], str] = {}
    for row in rows:
        if row.wnid is None:
            raise UsageError(
                f"{printable(path)}, {row.where}: without a DATASET a column 'wnid' must give "
                "the true class of every image"
            )
        item = (row.path, row.wnid)
        if (other := seen.setdefault(item, row.where)) != row.where:
            raise UsageError(
                f"{printable(path)}, {row.where}: image {row.path!r} was named in {other} already"
            )
        items.append(item)
    return items


def _checked(
    path: Path, items: Sequence[tuple[str, str]], rows: Sequence[Row], space: LabelSpace
) -> Predictions:
    predicted: list[str | None] = []
    confidence = np.full(len(rows), np.nan)
    unrestricted: list[str | None] = []
    failed: dict[int, str] = {}
    for number, ((_, wnid), row) in enumerate(zip(items, rows, strict=True)):
        where = f"{printable(path)}, {row.where}"
        if row.wnid not in (None, wnid):
            raise UsageError(
                f"{where}: the true class is {row.wnid!r} here and {wnid!r} in the dataset"
            )
        if wnid not in space:
            raise UsageError(f"{where}: true class {wnid!r} is no class of {space.name}")
        if row.failed:
            failed[number] = row.failed
            predicted.append(None)
            unrestricted.append(None)
            continue
        if row.predicted is None or row.confidence is None:
            name = "predicted_wnid" if row.predicted is None else "confidence"
            raise UsageError(f"{where}: {name} is missing (is the file cut off?)")
        if row.predicted not in space:
            raise UsageError(
                f"{where}: predicted_wnid {row.predicted!r} is no class of {space.name}; "
                + _advice(row.predicted, space)
            )
        if not 0.0 <= row.confidence <= 1.0:  # NaN too
            raise UsageError(f"{where}: confidence {row.confidence:.12g} is outside 0 … 1")
        predicted.append(row.predicted)
        confidence[number] = row.confidence
        unrestricted.append(row.unrestricted)
    told = [row.unrestricted is not None for row in rows if not row.failed]
    if any(told) and not all(told):
        first = next(row for row in rows if not row.failed and row.unrestricted is None)
        raise UsageError(f"{printable(path)}, {first.where}: unrestricted_wnid is missing")
    paths, wnids = zip(*items, strict=True)
    numbers = checked_numbers(path, rows, failed, len(space))
    found = Predictions(
        paths,
        wnids,
        predicted,
        confidence,
        numbers.pop("p_true", None),
        unrestricted if any(told) else None,
        failed,
        None,
        _ranks(numbers.pop("rank", None), failed),
        _ranks(numbers.pop("rank_unrestricted", None), failed),
        *scores_of(numbers),
    )
    for rank, right in (
        (found.rank, found.correct),
        (found.rank_unrestricted, found.correct_unrestricted),
    ):
        if rank is None or right is None:
            continue
        wrong = found.sound & ((rank == 0) != right)
        if wrong.any():
            raise UsageError(
                f"{printable(path)}, {rows[int(np.argmax(wrong))].where}: the rank is 0 exactly "
                "where the prediction is the true class; count equal logits by their columns"
            )
    return found


def _advice(predicted: str, space: LabelSpace) -> str:
    """What to write instead of a prediction that is no class of the label space."""
    if predicted.isdecimal():
        return f"write ids, such as {space.wnids[0]}: numbers do not tell the order of the outputs"
    if predicted in load_label_space("imagenet-1k"):
        return (
            f"the best of all outputs goes into unrestricted_wnid, here belongs the best of these "
            f"{len(space)} (or name another label space with --label-space)"
        )
    return "predict within the label space, or name another one with --label-space"


def checked_numbers(
    path: Path, rows: Sequence[Row], failed: Mapping[int, str], classes: int
) -> dict[str, NDArray[np.float64]]:
    """Column to its values, NaN where there is no prediction; every other cell is checked.

    Args:
        path: the file.
        rows: all of it.
        failed: the rows without a prediction.
        classes: of the label space.

    Raises:
        UsageError: a cell is missing or out of range.
    """
    sound = [number for number in range(len(rows)) if number not in failed]
    columns: dict[str, NDArray[np.float64]] = {}
    for place, name in enumerate(rows[0].columns):
        if all(rows[number].numbers[place] is None for number in sound):
            continue
        values = np.full(len(rows), np.nan)
        for number in sound:
            value = rows[number].numbers[place]
            where = f"{printable(path)}, {rows[number].where}"
            if value is None:
                raise UsageError(f"{where}: {name} is missing")
            if fault := _fault(name, value, classes):
                raise UsageError(f"{where}: {name} is {value:.12g}: {fault}")
            values[number] = value
        columns[name] = values
    return columns


def _fault(name: str, value: float, classes: int) -> str:
    """What is wrong with a number, or nothing."""
    if not np.isfinite(value):
        return "NaN and infinity are no values"
    if abs(value) > LARGEST_NUMBER:
        return f"numbers beyond {LARGEST_NUMBER:.12g} are not understood"
    if name == "p_true" and not 0.0 <= value <= 1.0:
        return "a probability is 0 … 1"
    if name.startswith("rank"):
        most = classes if name == "rank" else MAX_ROWS
        if value != int(value) or not 0 <= value < most:
            return "a rank counts the classes before the true one, from 0"
    if name.removeprefix(ANOMALY).removeprefix("unrestricted_") == "msp" and not -1 <= value <= 0:
        return (
            "it is minus the maximum softmax probability, in -1 … 0, since higher means "
            "more anomalous"
        )
    return ""


def _ranks(
    values: NDArray[np.float64] | None, failed: Mapping[int, str]
) -> NDArray[np.int32] | None:
    if values is None:
        return None
    values[list(failed)] = -1
    return values.astype(np.int32)


def scores_of(
    numbers: Mapping[str, NDArray[np.float64]],
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
    """The scores within the label space, and those over all outputs, by name.

    Args:
        numbers: column to its values; those that hold no scores are passed over.
    """
    within, everywhere = {}, {}
    for name, values in numbers.items():
        if name.startswith(ANOMALY_UNRESTRICTED):
            everywhere[name.removeprefix(ANOMALY_UNRESTRICTED)] = values
        elif name.startswith(ANOMALY):
            within[name.removeprefix(ANOMALY)] = values
    return within, everywhere
