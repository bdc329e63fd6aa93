"""Saved anomaly scores of one side of detection, in files from anyone's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curate.errors import UsageError
from curate.files import printable
from curate.labels.space import LabelSpace
from curate.testbed.image_ids import ImageIds
from curate.testbed.logit_files import read_logits
from curate.testbed.prediction_files import (
    checked_numbers,
    file_format,
    scores_of,
    table_rows,
)
from curate.testbed.prediction_rows import MAX_ROWS, Row
from curate.testbed.predictions import Predictions


def read_scores(
    path: Path,
    items: Sequence[tuple[str, str]] | None,
    space: LabelSpace,
    *,
    inside: bool,
) -> tuple[Predictions, int]:
    """Read the anomaly scores of the images of one side.

    A CSV or Parquet file has the column `path` (or `image`), and scores: `anomaly_NAME` within the
    label space, `anomaly_unrestricted_NAME` over all outputs, higher = more anomalous; a column
    `confidence` counts as the maximum softmax probability where `anomaly_msp` is absent. It may
    have `wnid`, `failed` and whatever else a file of predictions has; no measure asks for a
    `predicted_wnid`, and one that is no class of the label space, or has no confidence, is left
    out. An NPZ file has `logits`
    and may have `paths`, `labels` and `classes` (see `read_logits`).

    Args:
        path: the file.
        items: the images in order, as (path within the dataset, class or ""); every one must have
            a row and every row must be one of them. None takes the images from the file.
        space: the label space that logits are restricted to.
        inside: whether these are images of the label space's classes; those that the file says to
            be of other ones are passed over.

    Returns:
        Predictions with scores alone, and how many images were passed over.

    Raises:
        UsageError: the file cannot be read, is cut off, holds no scores, a row is wrong, or no
            image is of a class of the label space.
    """
    if file_format(path) == ".npz":
        found, _ = read_logits(path, items, lambda _: space, MAX_ROWS, truth=False)
    else:
        found = _table(path, items, space)
    if not inside or not any(found.wnids):
        return found, 0
    kept = [row for row, wnid in enumerate(found.wnids) if wnid in space]
    if not kept:
        others = sorted(set(found.wnids))
        named = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
        raise UsageError(
            f"none of the {len(found)} images of {printable(path)} is of a class of "
            f"{space.name}: they are of {named}"
        )
    return found.take(kept), len(found) - len(kept)


def _table(path: Path, items: Sequence[tuple[str, str]] | None, space: LabelSpace) -> Predictions:
    rows = table_rows(path, ("path",))
    if items is None:
        items = _own_items(path, rows)
    else:
        places = ImageIds(items, printable(path)).places((row.where, row.path) for row in rows)
        rows = [rows[place] for place in places]
    failed = {number: row.failed for number, row in enumerate(rows) if row.failed}
    within, everywhere = scores_of(checked_numbers(path, rows, failed, len(space)))
    confidence = _confidence(path, rows, failed)
    if "msp" not in within and np.isfinite(confidence).any():
        within["msp"] = -confidence
    if not within and not everywhere and len(failed) < len(rows):
        raise UsageError(
            f"{printable(path)} holds no scores: write a column 'anomaly_msp' (minus the maximum "
            "softmax probability), 'confidence', or 'anomaly_NAME' of your own, higher for what "
            "is more anomalous"
        )
    paths, wnids = zip(*items, strict=True)
    return Predictions(
        paths,
        wnids,
        _predicted(rows, confidence, space),
        confidence,
        failed=failed,
        anomaly=within,
        anomaly_unrestricted=everywhere,
    )


def _confidence(path: Path, rows: Sequence[Row], failed: Mapping[int, str]) -> NDArray[np.float64]:
    """The probability of each prediction, of all images or NaN for all."""
    found = np.full(len(rows), np.nan)
    known = any(row.confidence is not None for row in rows)
    for number, row in enumerate(rows):
        if not known or number in failed:
            continue
        where = f"{printable(path)}, {row.where}"
        if row.confidence is None:
            raise UsageError(f"{where}: confidence is missing, which other rows have")
        if not 0.0 <= row.confidence <= 1.0:  # NaN too
            raise UsageError(f"{where}: confidence {row.confidence:.12g} is outside 0 … 1")
        found[number] = row.confidence
    return found


def _predicted(
    rows: Sequence[Row], confidence: NDArray[np.float64], space: LabelSpace
) -> list[str | None]:
    """The predicted classes that a page can show: by name, the surest first."""
    known = np.isfinite(confidence).tolist()
    return [
        row.predicted if sure and row.predicted in space else None
        for row, sure in zip(rows, known, strict=True)
    ]


def _own_items(path: Path, rows: Sequence[Row]) -> list[tuple[str, str]]:
    seen: dict[str, str] = {}
    known = any(row.wnid for row in rows)
    for row in rows:
        where = f"{printable(path)}, {row.where}"
        if (other := seen.setdefault(row.path, row.where)) != row.where:
            raise UsageError(f"{where}: image {row.path!r} was named in {other} already")
        if known and row.wnid is None and not row.failed:
            raise UsageError(f"{where}: wnid is missing, which other rows have")
    return [(row.path, row.wnid or "") for row in rows]
