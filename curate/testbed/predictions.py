"""What a classifier says of the images of a dataset, one row an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.labels.space import LabelSpace
from curate.metrics.anomaly import SCORES, anomaly_scores
from curate.metrics.classification import predict, restrict

#: How the columns of anomaly scores begin, over the label space and over all outputs.
ANOMALY, ANOMALY_UNRESTRICTED = "anomaly_", "anomaly_unrestricted_"


@dataclass(frozen=True, eq=False)
class Scores:
    """What B rows of logits say within a label space of C classes.

    Attributes:
        finite: whether the row holds numbers alone, within what float32 holds; where it does not,
            the others mean nothing.
        predicted: position of the predicted class in the label space, in 0 … C - 1, shape (B,).
        confidence: its probability, the maximum of the softmax over the C classes, in [0, 1].
        p_true: the probability of the true class, in [0, 1]; NaN without one.
        column: the largest logit among all columns of the output.
        rank: how many of the C classes stand before the true one; -1 without one.
        rank_unrestricted: how many columns of the whole output stand before its column.
        anomaly: name of a score to its values over the C classes, see `anomaly_scores`.
        anomaly_unrestricted: the same over all columns.
        within: the logits of the C classes, float32, shape (B, C); None where nobody wants them.
    """

    finite: NDArray[np.bool_]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    p_true: NDArray[np.float64]
    column: NDArray[np.int64]
    rank: NDArray[np.int32]
    rank_unrestricted: NDArray[np.int32]
    anomaly: Mapping[str, NDArray[np.float64]]
    anomaly_unrestricted: Mapping[str, NDArray[np.float64]]
    within: NDArray[np.float32] | None = None


def score_logits(
    logits: NDArray[np.floating],
    columns: Sequence[int],
    targets: Sequence[int] | None,
    *,
    keep_logits: bool = False,
) -> Scores:
    """Restrict logits to a label space, then softmax over its classes alone, in float64.

    Args:
        logits: a classifier's full output, shape (B, K).
        columns: the column of each of the C classes.
        targets: the position of each row's true class in the label space, shape (B,); None for
            images of something else.
        keep_logits: keep those of the label space.
    """
    rows = len(logits)
    # Kept logits are float32, and what fails must not depend on whether they are kept.
    finite = (np.abs(logits) <= np.finfo(np.float32).max).all(axis=1)
    scores = Scores(
        finite,
        np.zeros(rows, np.int64),
        np.zeros(rows),
        np.full(rows, np.nan),
        np.zeros(rows, np.int64),
        np.full(rows, -1, np.int32),
        np.full(rows, -1, np.int32),
        {name: np.full(rows, np.nan) for name in SCORES},
        {name: np.full(rows, np.nan) for name in SCORES},
        np.full((rows, len(columns)), np.nan, np.float32) if keep_logits else None,
    )
    if not finite.any():
        return scores
    full = logits[finite]
    within = restrict(full, columns)
    found = anomaly_scores(within)
    confidence = -found["msp"]
    scores.predicted[finite] = predict(within)
    scores.confidence[finite] = confidence
    scores.column[finite] = predict(full)
    for kept, values in (
        (scores.anomaly, found),
        (scores.anomaly_unrestricted, anomaly_scores(full)),
    ):
        for name in SCORES:
            kept[name][finite] = values[name]
    if scores.within is not None:
        scores.within[finite] = within
    if targets is not None:
        places = np.asarray(targets)[finite]
        true = np.take_along_axis(within, places[:, None], axis=1)[:, 0]
        gap = true.astype(np.float64) - within.max(axis=1)
        scores.p_true[finite] = np.exp(gap) * confidence
        scores.rank[finite] = _rank(within, places)
        scores.rank_unrestricted[finite] = _rank(full, np.asarray(columns)[places])
    return scores


def _rank(logits: NDArray[np.floating], places: NDArray[np.integer]) -> NDArray[np.int32]:
    """How many columns stand before each row's own; equal logits in the order of the columns."""
    own = np.take_along_axis(logits, places[:, None], axis=1)
    before = np.arange(logits.shape[1]) < places[:, None]
    ahead = (logits > own) | ((logits == own) & before)
    return ahead.sum(axis=1, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for N images, in the dataset's order.

    Attributes:
        paths: printable path of each image within its dataset.
        wnids: its true class; of an image of something else, what its folder says or "".
        predicted: the predicted class within the label space; None where there is none.
        confidence: the probability of that prediction, float64 in [0, 1]; NaN where there is none.
        p_true: the probability of the true class likewise; None where it is not known.
        unrestricted: the class predicted among all of the model's outputs; None where it is not
            known, altogether or for an image.
        failed: row to the reason why there is no prediction, a key of `errors.REASONS` or the
            words of a predictions file.
        outputs: the number of the model's outputs, where it is known.
        rank: how many classes of the label space stand before the true class, equal logits in the
            order of the columns: 0 exactly where the prediction is right, below 5 where the true
            class is among the first five; -1 where there is no prediction. None where not known.
        rank_unrestricted: the same among all of the model's outputs.
        anomaly: name of an anomaly score to its values within the label space, float64 (N,),
            higher = more anomalous, NaN where there is no prediction; see `anomaly_scores` for
            "msp", "max_logit", "energy" and "entropy". Empty where not known.
        anomaly_unrestricted: the same over all outputs.
        logits: of the label space's classes, float32 (N, C), NaN where there is no prediction;
            None unless a measure asked for them.
    """

    paths: Sequence[str]
    wnids: Sequence[str]
    predicted: Sequence[str | None]
    confidence: NDArray[np.float64]
    p_true: NDArray[np.float64] | None = None
    unrestricted: Sequence[str | None] | None = None
    failed: Mapping[int, str] = field(default_factory=dict)
    outputs: int | None = None
    rank: NDArray[np.int32] | None = None
    rank_unrestricted: NDArray[np.int32] | None = None
    anomaly: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    anomaly_unrestricted: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    logits: NDArray[np.float32] | None = None

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

    def take(self, rows: Sequence[int]) -> Predictions:
        """Those of some images alone.

        Args:
            rows: which ones, in the order wanted, none twice.
        """
        places = np.asarray(rows, np.intp)
        new = {int(row): place for place, row in enumerate(places)}
        return Predictions(
            [self.paths[row] for row in new],
            [self.wnids[row] for row in new],
            [self.predicted[row] for row in new],
            self.confidence[places],
            None if self.p_true is None else self.p_true[places],
            None if self.unrestricted is None else [self.unrestricted[row] for row in new],
            {new[row]: reason for row, reason in self.failed.items() if row in new},
            self.outputs,
            None if self.rank is None else self.rank[places],
            None if self.rank_unrestricted is None else self.rank_unrestricted[places],
            {name: values[places] for name, values in self.anomaly.items()},
            {name: values[places] for name, values in self.anomaly_unrestricted.items()},
            None if self.logits is None else self.logits[places],
        )


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
        truth: whether `wnids` are true classes, so that a rank means something.
        keep_logits: whether the scores to come bring logits that shall be kept.
    """

    def __init__(
        self,
        paths: Sequence[str],
        wnids: Sequence[str],
        space: LabelSpace,
        columns: Sequence[int],
        output: LabelSpace | None,
        *,
        truth: bool = True,
        keep_logits: bool = False,
    ) -> None:
        self.paths, self.wnids, self.space = paths, wnids, space
        self.failed: dict[int, str] = {}
        self._output, self._truth = output, truth
        self._ids = list(output.wnids if output is not None else space.wnids)
        # A user's class may read a column under an id of its own.
        for column, wnid in zip(columns, space.wnids, strict=True):
            self._ids[column] = wnid
        self._predicted = np.full(len(paths), -1, np.int32)
        self._column = np.full(len(paths), -1, np.int32)
        self._confidence = np.full(len(paths), np.nan)
        self._p_true = np.full(len(paths), np.nan)
        self._rank = np.full(len(paths), -1, np.int32)
        self._rank_unrestricted = np.full(len(paths), -1, np.int32)
        self._anomaly = {name: np.full(len(paths), np.nan) for name in SCORES}
        self._anomaly_unrestricted = {name: np.full(len(paths), np.nan) for name in SCORES}
        shape = (len(paths), len(space))
        self._logits = np.full(shape, np.nan, np.float32) if keep_logits else None

    def add(self, rows: Sequence[int], scores: Scores) -> None:
        """Take the scores of some rows; those that are not finite have failed."""
        places = np.asarray(rows)
        good = places[scores.finite]
        self._predicted[good] = scores.predicted[scores.finite]
        self._column[good] = scores.column[scores.finite]
        self._confidence[good] = scores.confidence[scores.finite]
        self._p_true[good] = scores.p_true[scores.finite]
        self._rank[good] = scores.rank[scores.finite]
        self._rank_unrestricted[good] = scores.rank_unrestricted[scores.finite]
        for name in SCORES:
            self._anomaly[name][good] = scores.anomaly[name][scores.finite]
            everywhere = scores.anomaly_unrestricted[name][scores.finite]
            self._anomaly_unrestricted[name][good] = everywhere
        if self._logits is not None and scores.within is not None:
            self._logits[good] = scores.within[scores.finite]
        self.failed |= dict.fromkeys(places[~scores.finite].tolist(), "nan-logits")

    def fail(self, row: int, reason: str) -> None:
        """Note why a row has no scores."""
        self.failed[row] = reason

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that has arrived, but for the reasons of failures; see `restore`."""
        held = {
            "predicted": self._predicted,
            "column": self._column,
            "confidence": self._confidence,
            "p_true": self._p_true,
            "rank": self._rank,
            "rank_unrestricted": self._rank_unrestricted,
        }
        held |= {f"{ANOMALY}{name}": values for name, values in self._anomaly.items()}
        everywhere = self._anomaly_unrestricted
        held |= {f"{ANOMALY_UNRESTRICTED}{name}": values for name, values in everywhere.items()}
        return held if self._logits is None else held | {"logits": self._logits}

    def restore(self, arrays: Mapping[str, NDArray[Any]], failed: Mapping[int, str]) -> bool:
        """Take what `arrays` gave for the same images; whether it fits, else nothing is taken.

        Args:
            arrays: as `arrays` gives them.
            failed: row to the reason why it has no scores.
        """
        own = self.arrays()
        if any(
            name not in arrays
            or arrays[name].shape != values.shape
            or arrays[name].dtype != values.dtype
            for name, values in own.items()
        ):
            return False
        for name, values in own.items():
            values[...] = arrays[name]
        self.failed = dict(failed)
        return True

    def predictions(self) -> Predictions:
        """The predictions, when every row has arrived."""
        whole, truth = self._output is not None, self._truth
        return Predictions(
            self.paths,
            self.wnids,
            [None if n < 0 else self.space.wnids[n] for n in self._predicted],
            self._confidence,
            self._p_true if truth else None,
            [None if n < 0 else self._ids[n] for n in self._column] if whole else None,
            dict(sorted(self.failed.items())),
            None if self._output is None else len(self._output),
            self._rank if truth else None,
            self._rank_unrestricted if truth and whole else None,
            self._anomaly,
            self._anomaly_unrestricted if whole else {},
            self._logits,
        )
