"""Evaluate: what models make of datasets, each number with its interval and with what made it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate._version import __version__
from curate.errors import Interrupted, UnknownNameError, UsageError
from curate.files import (
    printable,
    sha256_file,
    storage_errors,
    write_bytes,
    write_json,
)
from curate.labels.space import LabelSpace, load_label_space
from curate.progress import progress, stop_on_interrupt
from curate.testbed.measures import CONFIDENCE_LEVEL, MEASURES, measure
from curate.testbed.prediction_files import read_predictions
from curate.testbed.predictions import Predictions, write_predictions
from curate.testbed.tables import results_markdown, results_notes, results_table
from pipelines.datasets import SMALLEST, Dataset, open_dataset, smallest_label_space
from pipelines.predict import Forward

if TYPE_CHECKING:
    from curate.images.views import ViewRecipe
    from curate.models.classifier import Classifier

__all__ = ["VIEWS_MODES", "evaluate", "results_notes", "results_table"]

#: How the view is cut: as each classifier was trained, or as in the paper's filter.
VIEWS_MODES = ("native", "paper")


def evaluate(
    datasets: Sequence[Path],
    models: Sequence[str],
    *,
    predictions: Path | None = None,
    label_space: str | None = None,
    report: Path | None = None,
    device: str = "auto",
    views: str = "native",
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Evaluate models, or saved predictions, on datasets in ImageNet-A layout.

    Softmax and argmax run over the classes of the label space alone; the accuracy over all of a
    model's outputs stands beside. Images that cannot be used are left out, counted and named.

    Args:
        datasets: folders of class folders named by class id; releases among them.
        models: names as `load_classifier` takes them; every model runs on every dataset.
        predictions: a file of predictions for the one dataset, or with the true classes in it
            (see `curate.testbed.prediction_files`).
        label_space: a preset or a CSV file. By default a release's own, else the smallest preset
            that holds every class.
        report: a folder for results.json, results.md and each model's predictions as Parquet,
            which `predictions` reads.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        views: "native" (each classifier's own size, crop and interpolation) or "paper" (short
            side 256, crop 224, bilinear); the centre crop alone.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Returns:
        `results`, one a model and dataset (by dataset within a model): `model`, `dataset`,
        `label_space`, `view`, `metrics` (see `curate.testbed.measures.measure`), `n`, `failed`,
        `failures`, `took_part_in_selection` (None where it is not known), `made_by`,
        `predictions` (the file in `report`); and `failed`, `confidence_level`, `resamples`,
        `seed`, `report`.

    Raises:
        UsageError: an unknown model, dataset or label space; weights that do not fit the label
            space; a wrong predictions file; a dataset of which no image can be used.
        StorageError: the report cannot be written.
        Interrupted: stopped by the user.
    """
    _check_arguments(datasets, models, predictions, views, resamples, seed)
    opened = [open_dataset(path, label_space) for path in datasets]
    folder = None if report is None else _Report(report)
    run = _Run(folder, resamples, seed)
    with stop_on_interrupt() as stop:
        if predictions is not None:
            run.add_file(predictions, opened[0] if opened else None, label_space)
        if len(models) > 1:
            for name in models:  # what cannot work fails before the first image
                _load(name, opened, device, views)
        for name in models:
            classifier, recipe = _load(name, opened, device, views)
            for dataset in opened:
                forward = Forward(classifier, recipe, dataset)
                predictions_of_all = forward.run(stop)
                if predictions_of_all is None:
                    raise Interrupted(f"stopped at {name} on {dataset.name}; {run.kept()}")
                run.add_model(forward, predictions_of_all)
    summary = {
        "results": run.results,
        "failed": sum(result["failed"] for result in run.results),
        "confidence_level": CONFIDENCE_LEVEL,
        "resamples": resamples,
        "seed": seed,
        "report": None if report is None else printable(report),
    }
    if folder is not None:
        folder.finish(summary)
    return summary


def _check_arguments(
    datasets: Sequence[Path],
    models: Sequence[str],
    predictions: Path | None,
    views: str,
    resamples: int,
    seed: int,
) -> None:
    if views not in VIEWS_MODES:
        raise UnknownNameError("way to cut views", views, VIEWS_MODES)
    if not models and predictions is None:
        raise UsageError("nothing to evaluate: name a model with --model, or --predictions FILE")
    if models and not datasets:
        raise UsageError("a model needs a DATASET: a folder of class folders")
    if predictions is not None and len(datasets) > 1:
        raise UsageError("a predictions file is about one DATASET: name one, or none")
    _refuse_twins("model", models)
    _refuse_twins("dataset", [printable(path.resolve()) for path in datasets])
    if resamples < 1:
        raise UsageError(f"resamples is {resamples}: at least 1 is needed, 1000 is usual")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}: write 0 … {2**32 - 1}")


def _refuse_twins(what: str, named: Sequence[str]) -> None:
    for number, name in enumerate(named):
        if name in named[:number]:
            raise UsageError(f"{what} {name} is named twice")


def _load(
    name: str, datasets: Sequence[Dataset], device: str, views: str
) -> tuple[Classifier, ViewRecipe]:
    from curate.images.views import PAPER
    from curate.models.runtime import tune_allocator
    from curate.models.zoo import load_classifier

    tune_allocator()
    classifier = load_classifier(name, datasets[0].space, device=device)
    for dataset in datasets[1:]:
        classifier.columns(dataset.space)
    recipe = classifier.preprocessing.recipe
    if views == "paper":
        recipe = PAPER
        classifier.check(recipe.crop)
    return classifier, recipe


class _Run:
    """The results so far."""

    def __init__(self, report: _Report | None, resamples: int, seed: int) -> None:
        self.results: list[dict[str, Any]] = []
        self._report, self._resamples, self._seed = report, resamples, seed

    def kept(self) -> str:
        """What an interrupted evaluation leaves."""
        if self._report is None or not self.results:
            return "start the command again"
        return (
            f"the predictions of {len(self.results)} finished evaluations are in the report's "
            "folder; start the command again for the rest"
        )

    def add_model(self, forward: Forward, predictions: Predictions) -> None:
        """Take what a classifier predicts for a dataset."""
        dataset, classifier = forward.dataset, forward.classifier
        release = dataset.release
        self._add(
            predictions,
            dataset.space,
            forward.details,
            {
                "model": classifier.record(),
                "dataset": _dataset_record(dataset, predictions, forward.content_sha256),
                "label_space": _space_record(dataset.space, dataset.chosen_by),
                "view": {**asdict(forward.recipe), "place": "centre"},
                "took_part_in_selection": None
                if release is None
                else classifier.fingerprint in release.selection,
                "made_by": forward.made_by(),
            },
        )

    def add_file(self, path: Path, dataset: Dataset | None, label_space: str | None) -> None:
        """Take saved predictions."""

        def choose(wnids: Sequence[str]) -> LabelSpace:
            if label_space:
                return load_label_space(label_space)
            return smallest_label_space(wnids, f"true classes of {printable(path)}")

        if dataset is None:
            items, chosen_by = None, "--label-space" if label_space else SMALLEST
        else:
            items = list(zip(dataset.paths, dataset.wnids, strict=True))
            chosen_by, space_of_dataset = dataset.chosen_by, dataset.space
        predictions, space = read_predictions(
            path, items, choose if dataset is None else lambda _: space_of_dataset
        )
        self._add(
            predictions,
            space,
            {},
            {
                "model": {
                    "name": printable(path.name),
                    "fingerprint": sha256_file(path),
                    "fingerprint_of": "predictions-file",
                },
                "dataset": _dataset_record(dataset, predictions, None),
                "label_space": _space_record(space, chosen_by),
                "view": None,
                "took_part_in_selection": None,
                "made_by": {"numpy": metadata.version("numpy"), "curate": __version__},
            },
        )

    def _add(
        self,
        predictions: Predictions,
        space: LabelSpace,
        details: dict[int, str],
        about: dict[str, Any],
    ) -> None:
        model, dataset = about["model"]["name"], about["dataset"]["name"]
        total, failed = len(predictions), predictions.failed
        if len(failed) == total:
            row = min(failed)
            raise UsageError(
                f"none of the {total} images of {dataset or model} can be used by {model}; the "
                f"first is {predictions.paths[row]!r} ({failed[row]})"
            )
        with progress("intervals", len(MEASURES), unit="measures") as bar:
            metrics = measure(
                predictions, space, resamples=self._resamples, seed=self._seed, done=bar.advance
            )
        saved = None
        if self._report is not None:
            saved = self._report.save(predictions, model, dataset or "", about)
        self.results.append(
            {
                **about,
                "metrics": metrics,
                "n": total - len(failed),
                "failed": len(failed),
                "failures": [
                    {
                        "path": predictions.paths[row],
                        "reason": reason,
                        "detail": details.get(row) or None,
                    }
                    for row, reason in failed.items()
                ],
                "predictions": saved,
            }
        )


def _dataset_record(
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
        "classes": len(set(predictions.wnids)),
        "passed_over": len(dataset.layout.passed_over) if dataset else 0,
        "content_sha256": content,
        "release": None
        if release is None
        else {
            "version": release.version,
            "reviewed": release.reviewed,
            "manifest_sha256": release.manifest_sha256,
        },
    }


def _space_record(space: LabelSpace, chosen_by: str) -> dict[str, Any]:
    return {
        "name": space.name,
        "classes": len(space),
        "fingerprint": space.fingerprint,
        "chosen_by": chosen_by,
    }


class _Report:
    """The folder of a report; it is made at once, so that a wrong place is told at once."""

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

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the table and, last, the results."""
        write_bytes(self._folder / "results.md", results_markdown(summary["results"]).encode())
        write_json(self._folder / "results.json", summary)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80]
