"""The results of an evaluation so far: each with its numbers and everything that made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.files import printable, sha256_file
from curate.labels.space import LabelSpace, load_label_space
from curate.progress import progress
from curate.testbed.breakdown import breakdown
from curate.testbed.measures import MEASURES, measure
from curate.testbed.ood import measure_ood, scores_of
from curate.testbed.output_order import ranks_by_chance
from curate.testbed.prediction_files import read_predictions
from curate.testbed.predictions import Predictions
from curate.testbed.published import published_beside, took_part
from curate.testbed.resamples import Resamples
from curate.testbed.score_files import read_scores
from pipelines.datasets import NAMED, SMALLEST, Dataset, smallest_label_space
from pipelines.evaluate_about import about_file, about_forward, failures
from pipelines.evaluate_report import Report, dataset_record
from pipelines.evaluated import Evaluated
from pipelines.ood_datasets import PUBLISHED
from pipelines.predict import Forward


class Run:
    """The results so far.

    Args:
        report: where predictions are written to; None for nowhere.
        resamples: of the bootstrap.
        seed: of the bootstrap.
        temperature_split: the share of images that a temperature is fitted on; None fits none.

    Attributes:
        evaluated: one a model and dataset.
        drawn: their measures on resamples.
    """

    def __init__(
        self,
        report: Report | None,
        resamples: int,
        seed: int,
        temperature_split: float | None = None,
    ) -> None:
        self.evaluated: list[Evaluated] = []
        self.drawn = Resamples()
        self._report, self._resamples, self._seed = report, resamples, seed
        self._split = temperature_split

    def kept(self) -> str:
        """What an interrupted evaluation leaves."""
        if self._report is None or not self.evaluated:
            return "start the command again"
        return (
            f"the predictions of {len(self.evaluated)} finished evaluations are in the report's "
            "folder; start the command again for the rest"
        )

    def add_model(self, forward: Forward, predictions: Predictions) -> None:
        """Take what a classifier predicts for a dataset.

        Args:
            forward: that has run.
            predictions: its own.

        Raises:
            UsageError: no image can be used.
        """
        dataset = forward.dataset
        about = {
            "kind": "classification",
            "dataset": dataset_record(dataset, predictions, forward.content_sha256),
            **about_forward(forward),
        }
        self._add(predictions, dataset.space, dataset, forward.details, about)

    def add_detection(
        self,
        outside: Forward,
        predictions: Predictions,
        inside: Forward,
        predictions_inside: Predictions,
        shared: int,
    ) -> None:
        """Take what a classifier makes of images of something else, and of the others.

        Args:
            outside: that has run over the images of something else.
            predictions: its own.
            inside: the same classifier's, over images of the label space's classes.
            predictions_inside: its own.
            shared: how many images stand on both sides.

        Raises:
            UsageError: no image of a side can be used.
        """
        dataset = outside.dataset
        about = {
            "kind": "ood",
            "dataset": dataset_record(dataset, predictions, outside.content_sha256),
            "in_distribution": dataset_record(
                inside.dataset, predictions_inside, inside.content_sha256
            ),
            **about_forward(outside),
            "shared_images": shared,
        }
        self._add_detection(
            predictions,
            predictions_inside,
            dataset.space,
            (dataset, inside.dataset),
            (outside.details, inside.details),
            about,
        )

    def add_file(self, path: Path, dataset: Dataset | None, label_space: str | None) -> None:
        """Take saved predictions.

        Args:
            path: the file.
            dataset: that it is about; None takes images and true classes from the file.
            label_space: named by the user; None for the dataset's or the smallest that fits.

        Raises:
            UsageError: the file is wrong, or no image can be used.
        """

        def choose(wnids: Sequence[str]) -> LabelSpace:
            if label_space:
                return load_label_space(label_space)
            return smallest_label_space(wnids, f"true classes of {printable(path)}")

        if dataset is None:
            items, chosen_by = None, NAMED if label_space else SMALLEST
        else:
            items = list(zip(dataset.paths, dataset.wnids, strict=True))
            chosen_by, space_of_dataset = dataset.chosen_by, dataset.space
        predictions, space = read_predictions(
            path,
            items,
            choose if dataset is None else lambda _: space_of_dataset,
            keep_logits=self._split is not None,
        )
        about = {
            "kind": "classification",
            "dataset": dataset_record(dataset, predictions, None),
            **about_file(path, space, chosen_by),
        }
        self._add(predictions, space, dataset, {}, about)

    def add_detection_file(
        self, path: Path, inside: Path, dataset: Dataset | None, label_space: str | None
    ) -> None:
        """Take saved scores of images of something else, and of the others.

        Args:
            path: the file of the images of something else.
            inside: that of the images of the label space's classes.
            dataset: that `path` is about; None takes the images from the file.
            label_space: named by the user; None for the dataset's, else ImageNet-O's.

        Raises:
            UsageError: a file is wrong, the files share no score, or no image can be used.
        """
        if dataset is not None:
            space, chosen_by = dataset.space, dataset.chosen_by
        else:
            space = load_label_space(label_space or "imagenet-o")
            chosen_by = NAMED if label_space else PUBLISHED
        items = None if dataset is None else list(zip(dataset.paths, dataset.wnids, strict=True))
        predictions, _ = read_scores(path, items, space, inside=False)
        others, passed_over = read_scores(inside, None, space, inside=True)
        for one, file in ((predictions, path), (others, inside)):
            _refuse_useless(one, None, printable(file.name))
        if not scores_of(others, predictions):
            raise UsageError(
                f"{printable(path)} and {printable(inside)} have no score in common: the one has "
                f"{_names(predictions)}, the other {_names(others)}"
            )
        about = {
            "kind": "ood",
            "dataset": dataset_record(dataset, predictions, None),
            "in_distribution": {
                **dataset_record(None, others, None),
                "other_classes": passed_over,
                "file": {"name": printable(inside.name), "sha256": sha256_file(inside)},
            },
            **about_file(path, space, chosen_by),
            # Nobody has read the images.
            "shared_images": None,
        }
        self._add_detection(predictions, others, space, (dataset, None), ({}, {}), about)

    def _add(
        self,
        predictions: Predictions,
        space: LabelSpace,
        dataset: Dataset | None,
        details: dict[int, str],
        about: dict[str, Any],
    ) -> None:
        _refuse_useless(predictions, about["dataset"]["name"], about["model"]["name"])
        with progress("intervals", len(MEASURES), unit="measures") as bar:
            metrics = measure(
                predictions,
                space,
                resamples=self._resamples,
                seed=self._seed,
                temperature_split=self._split,
                kept=self.drawn,
                done=bar.advance,
            )
        published = _published(about, predictions, space, dataset)
        if took_part(published, about["model"]["fingerprint"]):
            about["took_part_in_selection"] = True
        result = {
            **about,
            "metrics": metrics,
            **breakdown(predictions, space),
            "ranks_by_chance": ranks_by_chance(predictions, space),
            "published": published,
            "n": len(predictions) - len(predictions.failed),
            **failures((predictions, details)),
            "predictions": self._save(predictions, about["dataset"]["name"] or "", about),
        }
        # Logits are the largest part by far, and nothing asks for them any more.
        few = replace(predictions, logits=None)
        self.evaluated.append(Evaluated(result, few, space, dataset))

    def _add_detection(
        self,
        outside: Predictions,
        inside: Predictions,
        space: LabelSpace,
        datasets: tuple[Dataset | None, Dataset | None],
        details: tuple[dict[int, str], dict[int, str]],
        about: dict[str, Any],
    ) -> None:
        model = about["model"]["name"]
        for predictions, side in ((outside, "dataset"), (inside, "in_distribution")):
            _refuse_useless(predictions, about[side]["name"], model)
        total = len(scores_of(inside, outside))
        with progress("intervals", total, unit="scores") as bar:
            metrics = measure_ood(
                inside,
                outside,
                space,
                resamples=self._resamples,
                seed=self._seed,
                done=bar.advance,
            )
        n_out, n_in = (len(one) - len(one.failed) for one in (outside, inside))
        result = {
            **about,
            "metrics": metrics,
            "published": _published(about, outside, space, datasets[0], inside.wnids),
            "n": n_in + n_out,
            "n_in": n_in,
            "n_out": n_out,
            "base_rate": n_out / (n_in + n_out),
            **failures((outside, details[0]), (inside, details[1])),
            "predictions": self._save(outside, about["dataset"]["name"] or "", about),
            "predictions_in_distribution": self._save(
                inside, about["in_distribution"]["name"] or "in-distribution", about
            ),
        }
        self.evaluated.append(Evaluated(result, outside, space, datasets[0], inside, datasets[1]))

    def _save(self, predictions: Predictions, dataset: str, about: dict[str, Any]) -> str | None:
        if self._report is None:
            return None
        return self._report.save(predictions, about["model"]["name"], dataset, about)


def _published(
    about: dict[str, Any],
    predictions: Predictions,
    space: LabelSpace,
    dataset: Dataset | None,
    inside: Sequence[str] = (),
) -> dict[str, Any] | None:
    return published_beside(
        about["model"]["name"],
        predictions.paths,
        predictions.wnids,
        space,
        kind=about["kind"],
        inside=inside,
        release=dataset is not None and dataset.release is not None,
    )


def _refuse_useless(predictions: Predictions, dataset: str | None, model: str) -> None:
    total, failed = len(predictions), predictions.failed
    if len(failed) == total:
        row = min(failed)
        raise UsageError(
            f"none of the {total} images of {dataset or model} can be used by {model}; the "
            f"first is {predictions.paths[row]!r} ({failed[row]})"
        )


def _names(predictions: Predictions) -> str:
    names = [
        *predictions.anomaly,
        *(f"{name} (all outputs)" for name in predictions.anomaly_unrestricted),
    ]
    return ", ".join(names)
