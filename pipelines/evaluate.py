"""Evaluate: what models make of datasets, each number with its interval and with what made it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import Interrupted, UsageError
from curate.files import printable
from curate.progress import Stop, stop_on_interrupt
from curate.testbed.beside_tables import comparison_table, published_table
from curate.testbed.measures import CONFIDENCE_LEVEL
from curate.testbed.ood import detection_table
from curate.testbed.predictions import Predictions
from curate.testbed.tables import results_notes, results_table
from pipelines.datasets import Dataset, open_dataset
from pipelines.evaluate_beside import compared
from pipelines.evaluate_cache import Cache
from pipelines.evaluate_checks import (
    VIEWS_MODES,
    check_arguments,
    check_files,
    check_outside,
    check_sides,
    check_split,
)
from pipelines.evaluate_report import Report
from pipelines.evaluate_run import Run
from pipelines.ood_datasets import has_true_classes, open_inside, open_outside, refuse_overlap
from pipelines.predict import Contents, Forward
from pipelines.report_place import check_report_place

if TYPE_CHECKING:
    from curate.images.views import ViewRecipe
    from curate.models.classifier import Classifier

__all__ = [
    "VIEWS_MODES",
    "comparison_table",
    "detection_table",
    "evaluate",
    "published_table",
    "results_notes",
    "results_table",
]

_KEPT = "start the command again: what was finished is not computed twice"


def evaluate(
    datasets: Sequence[Path],
    models: Sequence[str],
    *,
    labels: Path | None = None,
    in_distribution: Path | None = None,
    in_distribution_labels: Path | None = None,
    predictions: Sequence[Path] = (),
    in_distribution_predictions: Sequence[Path] = (),
    label_space: str | None = None,
    report: Path | None = None,
    device: str = "auto",
    views: str = "native",
    resamples: int = 1000,
    seed: int = 0,
    temperature_split: float | None = None,
    cache: Path | None = None,
) -> dict[str, Any]:
    """Evaluate models, or saved predictions, on datasets in ImageNet-A or ImageNet-O layout.

    Softmax and argmax run over the classes of the label space alone; the accuracy over all of a
    model's outputs stands beside. Images that cannot be used are left out, counted and named.

    With in-distribution images the datasets are images of something else, and how well a model
    detects them is measured; only a release in ImageNet-A layout still has its true classes.

    Args:
        datasets: folders of class folders named by id or name; releases among them. Of images of
            something else any folders (see `open_outside`).
        models: names as `load_classifier` takes them; every model runs on every dataset.
        labels: a file that says of which class each image of the one dataset is, for folders
            without class folders (see `read_image_labels`).
        in_distribution: images of the label space's classes, to hold images of something else
            against: class folders, of which others are passed over, or with
            `in_distribution_labels` any folder.
        in_distribution_labels: as `labels`.
        predictions: files of predictions, one a model, for the one dataset, or with the true
            classes in them (see `curate.testbed.prediction_files`).
        in_distribution_predictions: scores of images of the label space's classes, a file for each
            of `predictions`, which then are of images of something else (see
            `curate.testbed.score_files`).
        label_space: a preset or a CSV file. By default a release's own, else the smallest preset
            that holds every class, for images of something else ImageNet-O's.
        report: a folder for the page, results as JSON, CSV, Markdown and LaTeX, and each model's
            predictions as Parquet, which `predictions` reads.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        views: "native" (each classifier's own size, crop and interpolation) or "paper" (short
            side 256, crop 224, bilinear); the centre crop alone.
        resamples: of the bootstrap.
        seed: of the bootstrap.
        temperature_split: the share of each dataset's images that a temperature is fitted on, for
            the calibration error of the others after it; None leaves that out.
        cache: a folder where each model's scores are kept, so that the same evaluation again
            runs no forward pass; None keeps nothing.

    Returns:
        `results`, one a model and dataset (by dataset within a model): `kind`, `model`,
        `dataset`, `label_space`, `view`, `metrics` (see `curate.testbed.measures.measure`), `n`,
        `failed`, `failures`, `took_part_in_selection` and `trained_on_imagenet_21k` (None where
        it is not known), `ranks_by_chance` (see `curate.testbed.output_order`; of
        classification), `made_by`, `predictions` (the file in `report`); where `kind` is "ood"
        besides `in_distribution`, `n_in`, `n_out`, `base_rate`, `shared_images` (that stand on
        both sides; None where files alone are known), `predictions_in_distribution`;
        `comparisons` of every two models on a dataset (see `curate.testbed.paired.comparisons`);
        and `failed`, `confidence_level`, `resamples`, `seed`, `report`.

    Raises:
        UsageError: an unknown model, dataset or label space; weights that do not fit the label
            space; a wrong predictions file; a dataset of which no image can be used.
        StorageError: the report cannot be written.
        Interrupted: stopped by the user.
    """
    check_arguments(datasets, models, predictions, views, resamples, seed)
    check_split(temperature_split)
    check_sides(datasets, models, labels, in_distribution, in_distribution_labels)
    check_files(models, predictions, in_distribution, in_distribution_predictions)
    check_report_place(
        report,
        folders=(*datasets, in_distribution),
        files=(
            *predictions,
            *in_distribution_predictions,
            labels,
            in_distribution_labels,
        ),
        writes=("index.html", "results.*", "comparisons.csv", "predictions-*.parquet"),
    )
    detecting = in_distribution is not None or bool(in_distribution_predictions)
    if detecting:
        check_outside(datasets)
    opened = [_open(path, label_space, labels, detecting) for path in datasets]
    if detecting and temperature_split is not None and not any(one.truth for one in opened):
        raise UsageError(
            "images of something else have no true class to fit a temperature to: leave "
            "--temperature-split out"
        )
    others = _Others(in_distribution, in_distribution_labels, opened)
    folder = None if report is None else Report(report)
    run = Run(folder, resamples, seed, temperature_split)
    with stop_on_interrupt() as stop:
        dataset = opened[0] if opened else None
        for place, file in enumerate(predictions):
            if stop.requested:
                raise Interrupted(f"stopped before {printable(file)}; {run.kept()}")
            if in_distribution_predictions:
                inside = in_distribution_predictions[place]
                run.add_detection_file(file, inside, dataset, label_space)
            else:
                run.add_file(file, dataset, label_space)
        if len(models) > 1:
            for name in models:  # what cannot work fails before the first image
                _load(name, opened, device, views)
        kept = None if cache is None else Cache(cache)
        work = _Work(run, others, kept, stop, keep_logits=temperature_split is not None)
        for name in models:
            work.add(*_load(name, opened, device, views), opened)
    summary = {
        "results": [one.result for one in run.evaluated],
        "comparisons": compared(run.evaluated, resamples=resamples, seed=seed, drawn=run.drawn),
        "failed": sum(one.result["failed"] for one in run.evaluated),
        "confidence_level": CONFIDENCE_LEVEL,
        "resamples": resamples,
        "seed": seed,
        "report": None if report is None else printable(report),
    }
    if folder is not None:
        folder.finish(summary, run.evaluated)
    return summary


class _Others:
    """The in-distribution images for each label space, opened before the first image is looked at.

    Args:
        root: their folder; None where there are none.
        labels: of which class each one is.
        datasets: that they stand against.
    """

    def __init__(self, root: Path | None, labels: Path | None, datasets: Sequence[Dataset]) -> None:
        self._by_space: dict[str, Dataset] = {}
        for dataset in datasets:
            space = dataset.space
            if root is not None and not dataset.truth:
                refuse_overlap(dataset.layout.root, root)
                if space.fingerprint not in self._by_space:
                    self._by_space[space.fingerprint] = open_inside(root, space, labels)

    def of(self, dataset: Dataset) -> Dataset:
        """Those that a dataset stands against."""
        return self._by_space[dataset.space.fingerprint]


class _Work:
    """One model after the other; nothing holds a model when the next one is loaded."""

    def __init__(
        self, run: Run, others: _Others, cache: Cache | None, stop: Stop, *, keep_logits: bool
    ) -> None:
        self._run, self._others, self._cache, self._stop = run, others, cache, stop
        self._keep_logits = keep_logits
        self._contents: dict[int, Contents] = {}

    def add(self, classifier: Classifier, recipe: ViewRecipe, datasets: Sequence[Dataset]) -> None:
        """Evaluate a model on every dataset."""
        done: dict[int, tuple[Forward, Predictions]] = {}
        for dataset in datasets:
            forward, predictions = self._predict(classifier, recipe, dataset)
            if dataset.truth:
                self._run.add_model(forward, predictions)
                continue
            other = self._others.of(dataset)
            if id(other) not in done:
                done[id(other)] = self._predict(classifier, recipe, other)
            inside, predictions_inside = done[id(other)]
            both = Counter(forward.digests) & Counter(inside.digests)
            self._run.add_detection(
                forward, predictions, inside, predictions_inside, both.total() - both[""]
            )

    def _predict(
        self, classifier: Classifier, recipe: ViewRecipe, dataset: Dataset
    ) -> tuple[Forward, Predictions]:
        contents = self._contents.setdefault(id(dataset), Contents(dataset))
        keep = self._keep_logits and dataset.truth
        forward = Forward(
            classifier, recipe, dataset, contents, cache=self._cache, keep_logits=keep
        )
        predictions = forward.run(self._stop)
        if predictions is None:
            kept = self._run.kept() if self._cache is None else _KEPT
            raise Interrupted(f"stopped at {classifier.name} on {dataset.name}; {kept}")
        return forward, predictions


def _open(path: Path, label_space: str | None, labels: Path | None, detecting: bool) -> Dataset:
    if detecting and not has_true_classes(path):
        return open_outside(path, label_space)
    return open_dataset(path, label_space, labels)


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
