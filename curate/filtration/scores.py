"""Scores: what one classifier says of one view, within the workspace's label space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.errors import StorageError
from curate.files import atomic_write, printable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ViewScores:
    """Scores of B views, one array element a view.

    Attributes:
        p_true: softmax probability of the true class, float64 in [0, 1]; NaN where the candidate
            has none.
        predicted: position of the predicted class in the label space (the lowest one on a tie).
        confidence: softmax probability of the predicted class, the maximum softmax probability.
        gap: p_true minus the largest probability of any other class, in [-1, 1]; above 0 exactly
            where the true class is predicted, ties apart. NaN without a true class.
        odds_true: the log-odds of p_true, its logit minus the log-sum-exp of the others.
        odds_gap: the logit of the true class minus the largest other one.
        odds_confidence: the log-odds of the confidence.
        odds_lead: the largest logit minus the second largest.
        finite: False where the model's output is no number; such a view decides nothing.
        ceiling: where a rule judges the mean of the ten views: the largest mean softmax
            probability that any class can still reach after this view; after the tenth, has.
        seen: of how many views that ceiling knows, 1 to 10.
    """

    p_true: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    gap: np.ndarray
    odds_true: np.ndarray
    odds_gap: np.ndarray
    odds_confidence: np.ndarray
    odds_lead: np.ndarray
    finite: np.ndarray
    ceiling: np.ndarray | None = None
    seen: np.ndarray | None = None


def view_scores(logits: np.ndarray, targets: np.ndarray) -> ViewScores:
    """Scores from logits that are restricted to the label space already.

    The softmax runs in float64 over exactly these columns: in float32 it is exactly 1 from a
    logit gap of 16.64 on, which makes ties of what is none.

    Args:
        logits: [B, C], C the size of the label space.
        targets: [B], position of each view's true class in the label space; -1 without one.
    """
    scores, _ = scores_with_softmax(logits, targets)
    return scores


def scores_with_softmax(logits: np.ndarray, targets: np.ndarray) -> tuple[ViewScores, np.ndarray]:
    """As `view_scores`, and the softmax itself, float64 [B, C]; zeros where not finite."""
    # Row by row in memory: the order in which a row is summed decides its last bits.
    wide = np.array(logits, np.float64, order="C")
    finite = np.asarray(np.isfinite(wide).all(axis=1))
    wide[~finite] = 0
    wide -= wide.max(axis=1, keepdims=True)
    softmax = np.exp(wide)
    totals = softmax.sum(axis=1)
    rows = np.arange(len(wide))
    predicted = wide.argmax(axis=1)
    with np.errstate(divide="ignore"):
        odds_confidence = -np.log(_others(softmax, predicted))
        odds_true = wide[rows, targets] - np.log(_others(softmax, targets))
    odds_gap = _lead(wide, targets)
    odds_lead = _lead(wide, predicted)
    softmax /= totals[:, None]
    softmax[~finite] = 0
    confidence = softmax[rows, predicted]
    p_true = softmax[rows, targets]
    kept = p_true.copy()
    softmax[rows, targets] = -1
    others = softmax.max(axis=1) if softmax.shape[1] > 1 else np.zeros(len(softmax))
    softmax[rows, targets] = kept
    none = targets < 0
    for values in (p_true, odds_true, odds_gap, others):
        values[none] = np.nan
    scores = ViewScores(
        p_true,
        predicted,
        confidence,
        p_true - others,
        odds_true,
        odds_gap,
        odds_confidence,
        odds_lead,
        finite,
    )
    return scores, softmax


def _lead(logits: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """How far one column each is above the largest other one; infinite where there is no other."""
    rows = np.arange(len(logits))
    own = logits[rows, columns].copy()
    logits[rows, columns] = -np.inf
    lead = np.asarray(own - logits.max(axis=1))
    logits[rows, columns] = own
    return lead


def _others(exponentials: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Row sums without one column each: subtracting it from the sum would lose what matters."""
    rows = np.arange(len(exponentials))
    own = exponentials[rows, columns].copy()
    exponentials[rows, columns] = 0
    sums = np.asarray(exponentials.sum(axis=1))
    exponentials[rows, columns] = own
    return sums


@dataclass
class ScoreRows:
    """Scores in the making: one row a candidate, model and view.

    Attributes:
        keep_logits: whether the full logits are kept beside the scores.
        of_mean: whether the scores carry `ceiling`.
    """

    keep_logits: bool = False
    of_mean: bool = False
    _rows: dict[tuple[int, int, int], tuple[Any, ...]] = field(default_factory=dict)
    _logits: dict[tuple[int, int, int], np.ndarray] = field(default_factory=dict)

    def add(
        self,
        items: Sequence[int],
        model: int,
        views: Sequence[int],
        scores: ViewScores,
        *,
        exact: bool,
        odds: float = 0.0,
        logits: np.ndarray | None = None,
    ) -> None:
        """Add the views of one pass; it replaces what was there of them.

        Args:
            items: [B] positions of the candidates in the chunk.
            model: position of the classifier in the ensemble.
            views: [B] numbers of the views.
            scores: of these B views.
            exact: whether they are canonical (fp32, batches of one size, one thread).
            odds: the most that their log-odds may be off.
            logits: [B, K] full output, where it is kept.
        """
        for row, (item, view) in enumerate(zip(items, views, strict=True)):
            if not scores.finite[row]:
                continue
            key = (item, model, view)
            p_true = float(scores.p_true[row])
            self._rows[key] = (
                None if p_true != p_true else p_true,
                int(scores.predicted[row]),
                float(scores.confidence[row]),
                exact,
                odds,
                None if scores.ceiling is None else float(scores.ceiling[row]),
            )
            if self.keep_logits and logits is not None:
                self._logits[key] = np.asarray(logits[row], np.float32)

    def table(self, keys: Sequence[str], wnids: Sequence[str]) -> pa.Table:
        """The rows as a table sorted by candidate, model and view.

        Columns: candidate (its key), model and view (numbers), p_true, predicted_wnid, confidence,
        exact, odds_margin (the most that its log-odds may be off, besides `rules.MARGIN` in a
        probability where it is not exact), ceiling (of the rule that judges the mean), logits.

        Args:
            keys: the candidates' keys by position in the chunk.
            wnids: the label space's ids by position.
        """
        import pyarrow as pa

        order = sorted(self._rows, key=lambda key: (keys[key[0]], key[1], key[2]))
        rows = [self._rows[key] for key in order]
        columns: dict[str, Any] = {
            "candidate": pa.array([keys[item] for item, _, _ in order], pa.string()),
            "model": pa.array([model for _, model, _ in order], pa.int8()),
            "view": pa.array([view for _, _, view in order], pa.int8()),
            "p_true": pa.array([row[0] for row in rows], pa.float64()),
            "predicted_wnid": pa.array([wnids[row[1]] for row in rows], pa.string()),
            "confidence": pa.array([row[2] for row in rows], pa.float64()),
            "exact": pa.array([row[3] for row in rows], pa.bool_()),
            "odds_margin": pa.array([row[4] for row in rows], pa.float64()),
        }
        if self.of_mean:
            columns["ceiling"] = pa.array([row[5] for row in rows], pa.float64())
        if self.keep_logits:
            columns["logits"] = pa.array(
                [self._logits[key] for key in order], pa.list_(pa.float32())
            )
        return pa.table(columns)

    def __len__(self) -> int:
        return len(self._rows)


_WRITING: dict[str, Any] = {"compression": "zstd"}


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as a Parquet file that is whole or absent, the same bytes each time."""
    import pyarrow.parquet as pq

    with atomic_write(path) as stream:
        pq.write_table(table, stream, **_WRITING)


def table_bytes(table: pa.Table) -> bytes:
    """A table as the bytes that `write_table` writes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **_WRITING)
    return bytes(sink.getvalue().to_pybytes())


def merge_parts(paths: Sequence[Path], target: Path, about: dict[str, str]) -> int:
    """Merge a run's parts, sorted and disjoint, into one file; memory is that of one part.

    Args:
        paths: the parts in the order of their candidates.
        target: the merged file; each part with rows becomes a row group of it.
        about: what made the scores; goes into the file's metadata.

    Returns:
        The number of rows.

    Raises:
        StorageError: a part cannot be read, or the disk refuses.
    """
    import pyarrow.parquet as pq

    rows = 0
    schema = _read_part(paths[0]).schema.with_metadata(about)
    with atomic_write(target) as stream, pq.ParquetWriter(stream, schema, **_WRITING) as writer:
        for path in paths:
            table = _read_part(path)
            rows += len(table)
            if len(table):
                writer.write_table(table.cast(schema), row_group_size=len(table))
    return rows


def split_scores(merged: Path, parts: Sequence[tuple[Path, int]]) -> None:
    """Undo `merge_parts`: write each part anew, in the bytes that it had.

    Args:
        merged: the merged file.
        parts: path and number of rows of each part, in order.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(merged) as stored:
        empty = stored.schema_arrow.empty_table().replace_schema_metadata(None)
        groups = iter(range(stored.num_row_groups))
        for path, rows in parts:
            table = stored.read_row_group(next(groups)) if rows else empty
            write_table(path, table.replace_schema_metadata(None))


def _read_part(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"cannot read the scores {printable(path)}: {error}") from error
