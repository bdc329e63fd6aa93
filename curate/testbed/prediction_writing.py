"""Predictions as Parquet files, which `prediction_files` reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from curate.files import atomic_write, canonical_json
from curate.testbed.predictions import ANOMALY, ANOMALY_UNRESTRICTED, Predictions


def write_predictions(path: Path, predictions: Predictions, about: Mapping[str, object]) -> None:
    """Write predictions as Parquet, whole or not at all, the same bytes each time.

    Columns: path, wnid, predicted_wnid, confidence, correct, p_true, unrestricted_wnid,
    correct_unrestricted, failed (the reason, for an image without a prediction; its other cells
    are null), rank, rank_unrestricted, and `anomaly_NAME` and `anomaly_unrestricted_NAME` for each
    score. What is not known is null, or for scores absent. Logits are not written.

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
    nothing = [None] * len(predictions)

    def known(values: NDArray[Any] | None, kind: Any) -> pa.Array:
        return pa.array(nothing, kind) if values is None else pa.array(values, kind, mask=absent)

    scores = {
        f"{prefix}{name}": known(values, pa.float64())
        for prefix, told in (
            (ANOMALY, predictions.anomaly),
            (ANOMALY_UNRESTRICTED, predictions.anomaly_unrestricted),
        )
        for name, values in told.items()
    }
    table = pa.table(
        {
            "path": pa.array(predictions.paths, pa.string()),
            "wnid": pa.array([wnid or None for wnid in predictions.wnids], pa.string()),
            "predicted_wnid": pa.array(predictions.predicted, pa.string()),
            "confidence": known(predictions.confidence, pa.float64()),
            "correct": known(predictions.correct, pa.bool_()),
            "p_true": known(predictions.p_true, pa.float64()),
            "unrestricted_wnid": pa.array(predictions.unrestricted or nothing, pa.string()),
            "correct_unrestricted": known(predictions.correct_unrestricted, pa.bool_()),
            "failed": pa.array(
                [predictions.failed.get(row) for row in range(len(predictions))], pa.string()
            ),
            "rank": known(predictions.rank, pa.int32()),
            "rank_unrestricted": known(predictions.rank_unrestricted, pa.int32()),
            **scores,
        }
    ).replace_schema_metadata({"curate": canonical_json(dict(about))})
    with atomic_write(path) as stream:
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)
