"""`curate evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.common import (
    Debug,
    Device,
    Json,
    NoCache,
    emit,
    label_space_option,
    report_option,
    table,
)
from curate.errors import VerificationError


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(evaluate)


def evaluate(
    datasets: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DATASET]…",
            help="Folders in ImageNet-A layout; with --in-distribution in ImageNet-O layout, or "
            "any folders of images. May be left out where --predictions holds the true classes.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model of the zoo; repeat it. Example: --model lite/efficientnet_lite2. "
            "Default: none, with --predictions.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of which class each image is, where DATASET has no class folders: lines "
            "'FILE LABEL', CSV, or ILSVRC's files. Example: --labels val.txt. Default: none.",
            show_default=False,
        ),
    ] = None,
    in_distribution: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Images of the label space's classes, for which DATASET are images of something "
            "else to be detected: class folders, of which others are passed over. "
            "Example: --in-distribution imagenet/val. Default: none.",
            show_default=False,
        ),
    ] = None,
    in_distribution_labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The same as --labels for the images of --in-distribution. "
            "Example: --in-distribution-labels val.txt. Default: none.",
            show_default=False,
        ),
    ] = None,
    predictions: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Saved predictions instead of a model: CSV or Parquet with the columns path, "
            "predicted_wnid and confidence (and wnid where no DATASET is given), or NPZ with "
            "logits and paths; repeat it to compare models. "
            "Example: --predictions mine.csv. Default: none.",
            show_default=False,
        ),
    ] = None,
    in_distribution_predictions: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Saved anomaly scores of images of the label space's classes; --predictions then "
            "holds those of images of something else: path and a column anomaly_NAME a score, or "
            "NPZ with logits. One for each --predictions, in their order. "
            "Example: --in-distribution-predictions val.csv. Default: none.",
            show_default=False,
        ),
    ] = None,
    label_space: Annotated[
        str | None,
        label_space_option(
            "imagenet-a",
            "the release's own, else the smallest preset that holds every class; for images of "
            "something else imagenet-o",
        ),
    ] = None,
    report: Annotated[
        Path | None, report_option("a page, results and predictions", "results")
    ] = None,
    temperature_split: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Fit a temperature on this share of each dataset's images, chosen by their paths, "
            "and tell the calibration error of the others after it. Needs models, or logits. "
            "Example: --temperature-split 0.2. Default: none.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    no_cache: NoCache = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with 1 where images failed, or a model took part in selecting a dataset, or "
            "saw the concepts that it shall detect in ImageNet-21k. Example: --strict",
        ),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Evaluate models on datasets: accuracy, AURRA, calibration, each with its interval.

    With in-distribution images: how well they detect images of something else.

    Example: curate evaluate releases/0.1.0 --model lite/efficientnet_lite2
    """
    from pipelines.evaluate import (
        comparison_table,
        detection_table,
        published_table,
        results_notes,
        results_table,
    )
    from pipelines.evaluate import evaluate as run
    from pipelines.evaluate_cache import cache_folder

    summary = run(
        datasets or [],
        model or [],
        labels=labels,
        in_distribution=in_distribution,
        in_distribution_labels=in_distribution_labels,
        predictions=predictions or [],
        in_distribution_predictions=in_distribution_predictions or [],
        label_space=label_space,
        report=report,
        device=device,
        temperature_split=temperature_split,
        cache=None if no_cache else cache_folder(),
    )
    results = summary["results"]
    tables = [
        table(*make([one for one in results if (one["kind"] == "ood") is detection]))
        for detection, make in ((False, results_table), (True, detection_table))
        if any((one["kind"] == "ood") is detection for one in results)
    ]
    if summary["comparisons"]:
        tables.append(table(*comparison_table(summary["comparisons"])))
    columns, rows = published_table(results)
    if rows:
        tables.append(table(columns, rows))
    notes = "".join(f"\nnote: {note}" for note in results_notes(results))
    emit(summary, "\n\n".join(tables) + notes)
    if strict:
        _refuse_doubtful(summary)


def _refuse_doubtful(summary: dict[str, Any]) -> None:
    """What --strict asks: every image counts, and every number says something of its model."""
    told = []
    if summary["failed"]:
        told.append(f"{summary['failed']} images could not be evaluated")
    for one in summary["results"]:
        model, dataset = one["model"]["name"], one["dataset"]["name"] or "the file"
        if one["took_part_in_selection"]:
            told.append(f"{model} took part in selecting {dataset}")
        if one["kind"] == "ood" and one["trained_on_imagenet_21k"]:
            told.append(f"{model} was trained on ImageNet-21k")
    if told:
        raise VerificationError("; ".join(dict.fromkeys(told)))
