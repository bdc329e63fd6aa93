"""What a model gets wrong, by what it takes it for, with pictures of the surest errors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappush, heappushpop
from pathlib import Path
from typing import Any

import numpy as np

from curate.errors import ImageRefused
from curate.report.evaluation_page import ClassRow, FailureMode, Shot
from curate.report.thumbnails import make_thumbnail
from curate.sources.folder import read_image
from curate.testbed.predictions import Predictions
from pipelines.evaluate_credits import Credits
from pipelines.labelled import LIMITS

#: Most confusions of a model on the page, and most photos of each.
MODES, SHOTS = 24, 6

#: What all pictures of a page may take, in bytes; with text and plots it stays below 5 MB.
PICTURE_BYTES = 4_000_000

_SIDE = 176


@dataclass(frozen=True)
class Errors:
    """Rows of predictions that are wrong in the same way, the most confident first.

    Attributes:
        true: their class; None for photos of no class of the label space.
        predicted: what they are taken for.
        rows: the most confident ones.
        count: how many there are.
    """

    true: str | None
    predicted: str
    rows: Sequence[int]
    count: int


def errors_by_confusion(predictions: Predictions, *, outliers: bool = False) -> list[Errors]:
    """Wrong predictions grouped by true and predicted class, the most frequent first.

    Of equally frequent ones the first is the one with the most confident error.

    Args:
        predictions: of a dataset.
        outliers: whether no photo shows a class of the label space: all are wrong then, and
            grouped by what they are taken for.
    """
    wrong = predictions.sound if outliers else predictions.sound & ~predictions.correct
    counts: Counter[tuple[str | None, str]] = Counter()
    surest: dict[tuple[str | None, str], list[tuple[float, int]]] = defaultdict(list)
    for row in np.flatnonzero(wrong).tolist():
        predicted = predictions.predicted[row]
        if predicted is None:
            continue
        key = (None if outliers else predictions.wnids[row], predicted)
        counts[key] += 1
        # A heap of the best, so that memory does not grow with the number of images.
        add = heappush if len(surest[key]) < SHOTS else heappushpop
        add(surest[key], (float(predictions.confidence[row]), -row))
    found = []
    for (true, predicted), count in counts.items():
        best = sorted(surest[true, predicted], reverse=True)
        rows = [-row for _, row in best]
        found.append((-count, -best[0][0], rows[0], Errors(true, predicted, rows, count)))
    return [errors for *_, errors in sorted(found, key=lambda one: one[:3])]


def class_rows(
    per_class: Sequence[Mapping[str, Any]], errors: Sequence[Errors], names: Mapping[str, str]
) -> list[ClassRow]:
    """How often each class is right, and what it is most often taken for; the worst first.

    Args:
        per_class: as a result holds it.
        errors: as `errors_by_confusion` gives them.
        names: what to call each class.
    """
    taken: dict[str | None, str] = {}
    for one in errors:
        taken.setdefault(one.true, names[one.predicted])
    rows = [
        ClassRow(
            told["wnid"],
            names[told["wnid"]],
            told["n"],
            told["right"],
            told["low"],
            told["high"],
            taken.get(told["wnid"], ""),
        )
        for told in per_class
    ]
    return sorted(rows, key=lambda row: (row.right / row.images, -row.images, row.wnid))


class Pictures:
    """Makes pictures for a page, one at a time, until they have taken their share of it.

    Args:
        share: what part of `PICTURE_BYTES` they may take.
        done: called after each photo.

    Attributes:
        unreadable: how many files were of no use.
    """

    def __init__(self, share: float = 1.0, done: Callable[[], None] = lambda: None) -> None:
        self.unreadable = 0
        self._left, self._done = share * PICTURE_BYTES, done

    def modes(
        self,
        predictions: Predictions,
        errors: Sequence[Errors],
        names: Mapping[str, str],
        files: Sequence[Path] | None,
        credits: Credits,
        shots: int,
    ) -> Iterator[FailureMode]:
        """The largest failure modes of a model, each with its photos.

        Args:
            predictions: of the dataset.
            errors: as `errors_by_confusion` gives them.
            names: what to call each class.
            files: of the dataset's images, in its order; None where they are not at hand.
            credits: whose the photos are.
            shots: most photos of each.
        """
        for one in errors[:MODES]:
            shown = []
            for row in one.rows[:shots] if files is not None else ():
                assert files is not None
                path, confidence = predictions.paths[row], float(predictions.confidence[row])
                shown.append(self._shot(files[row], path, confidence, credits.get(path)))
                self._done()
            true = None if one.true is None else names[one.true]
            yield FailureMode(true, names[one.predicted], one.count, shown)

    def _shot(self, file: Path, path: str, confidence: float, credit: str) -> Shot:
        if self._left <= 0:
            return Shot(path, confidence, credit, problem="not shown: the page is full")
        try:
            data = read_image(file, LIMITS.max_bytes)
            thumbnail = make_thumbnail(data, _SIDE, LIMITS)
        except ImageRefused as refusal:
            self.unreadable += 1
            return Shot(path, confidence, credit, problem=f"cannot be shown: {refusal.reason}")
        self._left -= len(thumbnail.uri)
        return Shot(path, confidence, credit, thumbnail)
