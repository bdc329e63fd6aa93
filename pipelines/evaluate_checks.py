"""What an evaluation is asked for: whether it fits together, told before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from curate.errors import UnknownNameError, UsageError
from curate.files import printable
from pipelines.ood_datasets import has_true_classes

#: How the view is cut: as each classifier was trained, or as in the paper's filter.
VIEWS_MODES = ("native", "paper")


def check_arguments(
    datasets: Sequence[Path],
    models: Sequence[str],
    predictions: Sequence[Path],
    views: str,
    resamples: int,
    seed: int,
) -> None:
    """Refuse what no evaluation can use; all of these are as `pipelines.evaluate.evaluate` has it.

    Raises:
        UsageError: it is so.
    """
    if views not in VIEWS_MODES:
        raise UnknownNameError("way to cut views", views, VIEWS_MODES)
    if not models and not predictions:
        raise UsageError("nothing to evaluate: name a model with --model, or --predictions FILE")
    if models and not datasets:
        raise UsageError("a model needs a DATASET: a folder of class folders")
    if predictions and len(datasets) > 1:
        raise UsageError("a predictions file is about one DATASET: name one, or none")
    _refuse_twins("model", models)
    _refuse_twins("dataset", [printable(path.resolve()) for path in datasets])
    # Results are told apart by the names of the files.
    _refuse_twins("predictions file", [path.name for path in predictions])
    if resamples < 1:
        raise UsageError(f"resamples is {resamples}: at least 1 is needed, 1000 is usual")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}: write 0 … {2**32 - 1}")


def check_split(temperature_split: float | None) -> None:
    """Refuse a share of images that is none.

    Raises:
        UsageError: it is so.
    """
    if temperature_split is not None and not 0.0 < temperature_split < 1.0:
        raise UsageError(
            f"the share for the temperature is {temperature_split}: write one between 0 and 1, as "
            "0.2"
        )


def check_sides(
    datasets: Sequence[Path],
    models: Sequence[str],
    labels: Path | None,
    in_distribution: Path | None,
    in_distribution_labels: Path | None,
) -> None:
    """Refuse images, and files of labels, on a side where they mean nothing.

    Raises:
        UsageError: it is so.
    """
    if labels is not None and len(datasets) != 1:
        raise UsageError("a file of labels is about one DATASET: name one")
    if labels is not None and in_distribution is not None:
        raise UsageError(
            "images of something else have no labels: for those of the in-distribution images "
            "write --in-distribution-labels FILE"
        )
    if in_distribution_labels is not None and in_distribution is None:
        raise UsageError("--in-distribution-labels needs --in-distribution DIR")
    if in_distribution is not None and not models:
        raise UsageError("--in-distribution needs a model that looks at the images: --model NAME")


def check_outside(datasets: Sequence[Path]) -> None:
    """Refuse to detect images where every dataset holds true classes alone.

    Raises:
        UsageError: it is so.
    """
    if datasets and all(map(has_true_classes, datasets)):
        raise UsageError(
            f"{printable(datasets[0])} is a release in ImageNet-A layout: in-distribution images "
            "stand against images of something else"
        )


def check_files(
    models: Sequence[str],
    predictions: Sequence[Path],
    in_distribution: Path | None,
    inside: Sequence[Path],
) -> None:
    """Refuse files of predictions that lack their other side.

    Raises:
        UsageError: it is so.
    """
    if inside and models and in_distribution is None:
        raise UsageError("a model needs in-distribution images: --in-distribution DIR")
    if inside and not predictions:
        raise UsageError(
            "--in-distribution-predictions needs --predictions FILE, of images of something else"
        )
    if predictions and in_distribution is not None and not inside:
        raise UsageError(
            f"{printable(predictions[0])} is about images of something else: for the others write "
            "--in-distribution-predictions FILE"
        )
    if inside and len(inside) != len(predictions):
        raise UsageError(
            f"{len(predictions)} --predictions stand against {len(inside)} "
            "--in-distribution-predictions: name one of each a model, in the same order"
        )
    for outside, other in zip(predictions, inside, strict=False):
        if outside.resolve() == other.resolve():
            raise UsageError(
                f"{printable(outside)} cannot be of images of something else and of the label "
                "space's classes both: name two files"
            )


def _refuse_twins(what: str, named: Sequence[str]) -> None:
    for number, name in enumerate(named):
        if name in named[:number]:
            raise UsageError(f"{what} {printable(name)} is named twice")
