"""The folder of an evaluation's report, and what a result says of what made it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from curate.files import printable, storage_errors, write_json, written_together
from curate.labels.space import LabelSpace
from curate.testbed.prediction_writing import write_predictions
from curate.testbed.predictions import Predictions
from pipelines.datasets import Dataset
from pipelines.evaluate_page import write_page
from pipelines.evaluate_tables import write_tables
from pipelines.evaluated import Evaluated

#: Writes files of a report: takes its folder, the summary, and what the results are made from.
Writer = Callable[[Path, Mapping[str, Any], Sequence[Evaluated]], None]


#: All but results.json, which comes last.
WRITERS: tuple[Writer, ...] = (write_tables, write_page)


def dataset_record(
    dataset: Dataset | None, predictions: Predictions, content: str | None
) -> dict[str, Any]:
    """What a result says of its dataset.

    Args:
        dataset: None where a predictions file stands alone.
        predictions: for its images.
        content: SHA-256 over a line "SHA-256, two blanks, path" for each image, as
            `sha256sum` prints it; None where the images were not read.
    """
    release = dataset.release if dataset else None
    return {
        "name": dataset.name if dataset else None,
        "images": len(predictions),
        "classes": len(set(predictions.wnids) - {""}),
        "passed_over": len(dataset.layout.passed_over) if dataset else 0,
        "other_classes": dataset.other_classes if dataset else 0,
        "labels": None if dataset is None or dataset.labels is None else asdict(dataset.labels),
        "content_sha256": content,
        "release": None
        if release is None
        else {
            "version": release.version,
            "reviewed": release.reviewed,
            "manifest_sha256": release.manifest_sha256,
        },
    }


def space_record(space: LabelSpace, chosen_by: str) -> dict[str, Any]:
    """What a result says of its label space.

    Args:
        space: the label space.
        chosen_by: why this one.
    """
    return {
        "name": space.name,
        "classes": len(space),
        "fingerprint": space.fingerprint,
        "chosen_by": chosen_by,
    }


class Report:
    """The folder of a report; it is made at once, so that a wrong place is told at once.

    Args:
        folder: where it shall lie.

    Raises:
        StorageError: the folder cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._taken: set[str] = set()
        with storage_errors(printable(folder)):
            folder.mkdir(parents=True, exist_ok=True)

    def save(
        self, predictions: Predictions, model: str, dataset: str, about: dict[str, Any]
    ) -> str:
        """Write predictions; returns the file's name."""
        stem = "-".join(part for part in ("predictions", _slug(model), _slug(dataset)) if part)
        name, number = stem, 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{stem}-{number}"
        self._taken.add(name.casefold())
        write_predictions(self._folder / f"{name}.parquet", predictions, about)
        return f"{name}.parquet"

    def finish(self, summary: dict[str, Any], evaluated: Sequence[Evaluated]) -> None:
        """Write everything at once and, last, the results."""
        with written_together(self._folder, "results.json") as place:
            for write in WRITERS:
                write(place, summary, evaluated)
            write_json(place / "results.json", summary)
        if not summary["comparisons"]:
            # A report that was written here before may have had some.
            with storage_errors(printable(self._folder)):
                (self._folder / "comparisons.csv").unlink(missing_ok=True)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80]
