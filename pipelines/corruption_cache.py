"""Finished settings of a corruption run, kept in the report's folder so that a rerun goes on.

A setting of a model is one Parquet file, named by the hash of everything that makes its numbers.
It appears whole or not at all; one that is damaged counts as absent and is made anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curate.files import (
    atomic_write,
    canonical_json,
    make_folder,
    remove_leftovers,
    sha256_bytes,
)
from curate.testbed.predictions import Predictions

FOLDER = "cache"


class Cache:
    """Predictions by what makes them.

    Args:
        report: the report's folder; None keeps nothing.
    """

    def __init__(self, report: Path | None) -> None:
        self._folder = None if report is None else report / FOLDER
        if self._folder is not None:
            make_folder(self._folder)
            remove_leftovers(self._folder)

    def get(
        self, about: Mapping[str, Any], paths: Sequence[str], wnids: Sequence[str], outputs: int
    ) -> Predictions | None:
        """What was kept for these images in this order; None where nothing sound is there.

        Args:
            about: everything that makes the numbers.
            paths: of the images.
            wnids: their true classes.
            outputs: the number of the model's outputs.
        """
        if self._folder is None:
            return None
        path = self._path(about)
        if not path.is_file():
            return None
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path, page_checksum_verification=True)
            metadata = table.schema.metadata or {}
            if metadata.get(b"curate") != canonical_json(dict(about)) or len(table) != len(paths):
                return None
            predicted = table.column("predicted_wnid").to_pylist()
            failed = table.column("failed").to_pylist()
            confidence = table.column("confidence").to_numpy()
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return None
        return Predictions(
            paths,
            wnids,
            predicted,
            np.asarray(confidence, np.float64),
            failed={row: reason for row, reason in enumerate(failed) if reason is not None},
            outputs=outputs,
        )

    def put(self, about: Mapping[str, Any], predictions: Predictions) -> None:
        """Keep predictions.

        Args:
            about: everything that makes them.
            predictions: of all images of the setting.

        Raises:
            StorageError: the disk is full or refuses.
        """
        if self._folder is None:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = range(len(predictions))
        absent = ~predictions.sound
        table = pa.table(
            {
                "path": pa.array(predictions.paths, pa.string()),
                "predicted_wnid": pa.array(predictions.predicted, pa.string()),
                "confidence": pa.array(predictions.confidence, pa.float64(), mask=absent),
                "failed": pa.array([predictions.failed.get(row) for row in rows], pa.string()),
            }
        ).replace_schema_metadata({"curate": canonical_json(dict(about))})
        with atomic_write(self._path(about)) as stream:
            pq.write_table(table, stream, compression="zstd", write_page_checksum=True)

    def _path(self, about: Mapping[str, Any]) -> Path:
        assert self._folder is not None
        return self._folder / f"{sha256_bytes(canonical_json(dict(about)))[:32]}.parquet"
