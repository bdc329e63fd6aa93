"""What a classifier says of the images of a dataset, one row an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curate.files import atomic_write, canonical_json
from curate.labels.space import LabelSpace
from curate.metrics.classification import predict, restrict, softmax_confidence


@dataclass(frozen=True, eq=False)
class Scores:
    """What B rows of logits say within a label space of C classes.

    Attributes:
        finite: whether the row holds numbers alone; where it does not, the others mean nothing.
        predicted: position of the predicted class in the label space, in 0 … C - 1, shape (B,).
        confidence: its probability, the maximum of the softmax over the C classes, in [0, 1].
        p_true: the probability of the true class, in [0, 1].
        column: the largest logit among all columns of the output.
    """

    finite: NDArray[np.bool_]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    p_true: NDArray[np.float64]
    column: NDArray[np.int64]


def score_logits(
    logits: NDArray[np.floating], columns: Sequence[int], targets: Sequence[int]
) -> Scores:
    """Restrict logits to a label space, then softmax over its classes alone, in float64.

    Args:
        logits: a classifier's full output, shape (B, K).
        columns: the column of each of the C classes.
        targets: the position of each row's true class in the label space, shape (B,).
    """
    rows = len(logits)
    finite = np.isfinite(logits).all(axis=1)
    scores = Scores(
        finite,
        np.zeros(rows, np.int64),
        np.zeros(rows),
        np.zeros(rows),
        np.zeros(rows, np.int64),
    )
    if finite.any():
        full = logits[finite]
        within = restrict(full, columns)
        confidence = softmax_confidence(within)
        true = np.take_along_axis(within, np.asarray(targets)[finite, None], axis=1)[:, 0]
        gap = true.astype(np.float64) - within.max(axis=1)
        scores.predicted[finite] = predict(within)
        scores.confidence[finite] = confidence
        scores.p_true[finite] = np.exp(gap) * confidence
        scores.column[finite] = predict(full)
    return scores


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for N images, in the dataset's order.

    Attributes:
        paths: printable path of each image within its dataset.
        wnids: its true class.
        predicted: the predicted class within the label space; None where there is none.
        confidence: the probability of that prediction, float64 in [0, 1]; NaN where there is none.
        p_true: the probability of the true class likewise; None where it is not known.
        unrestricted: the class predicted among all of the model's outputs; None where it is not
            known, altogether or for an image.
        failed: row to the reason why there is no prediction, a key of `errors.REASONS` or the
            words of a predictions file.
        outputs: the number of the model's outputs, where it is known.
    """

    paths: Sequence[str]
    wnids: Sequence[str]
    predicted: Sequence[str | None]
    confidence: NDArray[np.float64]
    p_true: NDArray[np.float64] | None = None
    unrestricted: Sequence[str | None] | None = None
    failed: Mapping[int, str] = field(default_factory=dict)
    outputs: int | None = None

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def sound(self) -> NDArray[np.bool_]:
        """Which images have a prediction."""
        mask = np.ones(len(self), np.bool_)
        mask[list(self.failed)] = False
        return mask

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the prediction within the label space is the true class."""
        return _equal(self.predicted, self.wnids)

    @property
    def correct_unrestricted(self) -> NDArray[np.bool_] | None:
        """Whether the prediction among all outputs is the true class; None where not known."""
        return None if self.unrestricted is None else _equal(self.unrestricted, self.wnids)


def _equal(ours: Sequence[str | None], theirs: Sequence[str]) -> NDArray[np.bool_]:
    pairs = zip(ours, theirs, strict=True)
    return np.fromiter((a == b for a, b in pairs), np.bool_, count=len(theirs))


class Gathered:
    """Predictions in the making: scores arrive by row, in any order.

    Args:
        paths: printable path of each image.
        wnids: its true class.
        space: the label space that the scores are restricted to.
        columns: the column of the output that each of its classes reads.
        output: the classes of the output's columns; None where the logits hold the label space's
            columns alone, so that nothing is known beyond it.
    """

    def __init__(
        self,
        paths: Sequence[str],
        wnids: Sequence[str],
        space: LabelSpace,
        columns: Sequence[int],
        output: LabelSpace | None,
    ) -> None:
        self.paths, self.wnids, self.space = paths, wnids, space
        self.failed: dict[int, str] = {}
        self._output = output
        self._ids = list(output.wnids if output is not None else space.wnids)
        # A user's class may read a column under an id of its own.
        for column, wnid in zip(columns, space.wnids, strict=True):
            self._ids[column] = wnid
        self._predicted = np.full(len(paths), -1, np.int32)
        self._column = np.full(len(paths), -1, np.int32)
        self._confidence = np.full(len(paths), np.nan)
        self._p_true = np.full(len(paths), np.nan)

    def add(self, rows: Sequence[int], scores: Scores) -> None:
        """Take the scores of some rows; those that are not finite have failed."""
        places = np.asarray(rows)
        good = places[scores.finite]
        self._predicted[good] = scores.predicted[scores.finite]
        self._column[good] = scores.column[scores.finite]
        self._confidence[good] = scores.confidence[scores.finite]
        self._p_true[good] = scores.p_true[scores.finite]
        self.failed |= dict.fromkeys(places[~scores.finite].tolist(), "nan-logits")

    def fail(self, row: int, reason: str) -> None:
        """Note why a row has no scores."""
        self.failed[row] = reason

    def predictions(self) -> Predictions:
        """The predictions, when every row has arrived."""
        return Predictions(
            self.paths,
            self.wnids,
            [None if n < 0 else self.space.wnids[n] for n in self._predicted],
            self._confidence,
            self._p_true,
            None
            if self._output is None
            else [None if n < 0 else self._ids[n] for n in self._column],
            dict(sorted(self.failed.items())),
            None if self._output is None else len(self._output),
        )


def write_predictions(path: Path, predictions: Predictions, about: Mapping[str, object]) -> None:
    """Write predictions as Parquet, whole or not at all, the same bytes each time.

    Columns: path, wnid, predicted_wnid, confidence, correct, p_true, unrestricted_wnid,
    correct_unrestricted, failed (the reason, for an image without a prediction; its other cells
    are null).

    Args:
        path: the file to write.
        predictions: what to write.
        about: what made them; goes into the file's metadata under the key "curate", as JSON.

    Raises:
        StorageError: the disk is full or refuses.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    absent = ~predictions.sound
    right, right_of_all = predictions.correct, predictions.correct_unrestricted
    nothing = [None] * len(predictions)
    table = pa.table(
        {
            "path": pa.array(predictions.paths, pa.string()),
            "wnid": pa.array(predictions.wnids, pa.string()),
            "predicted_wnid": pa.array(predictions.predicted, pa.string()),
            "confidence": pa.array(predictions.confidence, pa.float64(), mask=absent),
            "correct": pa.array(right, pa.bool_(), mask=absent),
            "p_true": pa.array(nothing, pa.float64())
            if predictions.p_true is None
            else pa.array(predictions.p_true, pa.float64(), mask=absent),
            "unrestricted_wnid": pa.array(predictions.unrestricted or nothing, pa.string()),
            "correct_unrestricted": pa.array(nothing, pa.bool_())
            if right_of_all is None
            else pa.array(right_of_all, pa.bool_(), mask=absent),
            "failed": pa.array(
                [predictions.failed.get(row) for row in range(len(predictions))], pa.string()
            ),
        }
    ).replace_schema_metadata({"curate": canonical_json(dict(about))})
    with atomic_write(path) as stream:
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)
