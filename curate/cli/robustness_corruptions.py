"""`curate robustness corruptions`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from curate.cli.common import (
    Debug,
    Device,
    Json,
    Strict,
    bounded_workers,
    emit,
    label_space_option,
    report_option,
)
from curate.errors import VerificationError


def register(group: typer.Typer) -> None:
    """Add the commands of this file."""
    group.command("corruptions")(corruptions)


def corruptions(
    dataset: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATASET",
            help="The clean images: class folders, or a release. May be left out with --in, where "
            "errors then stand beside no clean one.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model of the zoo; repeat it. Example: --model lite/efficientnet_lite2. "
            "Default: none.",
            show_default=False,
        ),
    ] = None,
    corruption: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A corruption, or imagenet-c, extra, all, or a Python file with your own; repeat "
            "it. Example: --corruption fog. Default: the fifteen of imagenet-c.",
            show_default=False,
        ),
    ] = None,
    severity: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            min=1,
            max=5,
            help="1 to 5; repeat it. Example: --severity 3. Default: all five, which means need.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        Literal["camera", "crop"],
        typer.Option(
            help="camera: the whole photo is corrupted, then resized and cut; crop: what the model "
            "sees is corrupted, as ImageNet-C was made. Example: --at crop"
        ),
    ] = "camera",
    jpeg: Annotated[
        bool | None,
        typer.Option(
            "--jpeg/--memory",
            help="Whether a corrupted image goes through JPEG, as the published files did. "
            "Example: --memory. Default: at the crop it does, at the camera not.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A model that goes through the same; mean errors are against its own. "
            "Example: --baseline torchvision/alexnet. Default: AlexNet's published errors, where "
            "they mean something.",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--in",
            metavar="DIR",
            help="A folder in ImageNet-C's layout, CORRUPTION/SEVERITY/WNID, whose images are "
            "corrupted already. Example: --in imagenet-c. Default: none.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Draw so many images by lot. Example: --limit 500. Default: all.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the lot and of what is random. Example: --seed 1")
    ] = 0,
    views: Annotated[
        list[str] | None,
        typer.Option(
            help="native: each model's own size and crop; paper: short side 256, crop 224. Both "
            "give two tables side by side. Example: --views native --views paper. "
            "Default: native.",
            show_default=False,
        ),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="results.json of an earlier report, to see row by row what a change did. "
            "Example: --beside before/results.json. Default: none.",
            show_default=False,
        ),
    ] = None,
    frost: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A folder with ImageNet-C's pictures of frost. Example: --frost frost. "
            "Default: frost is drawn.",
            show_default=False,
        ),
    ] = None,
    label_space: Annotated[
        str | None,
        label_space_option(
            "imagenet-a",
            "the release's own, else the smallest preset that holds every class folder",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of which class each image of DATASET is, where no folders name them. "
            "Example: --labels LOC_val_solution.csv. Default: the class folders.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        report_option(
            "a page and tables; what is finished is kept there, so that a rerun goes on", "results"
        ),
    ] = None,
    device: Device = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Processes that corrupt images beside the model; 0 for none. Results are the "
            "same. Example: --workers 8. Default: none on a CPU, else one a core.",
            show_default=False,
        ),
    ] = None,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure models on damaged images: every corruption and severity, never the mean alone.

    Example: curate robustness corruptions photos --model lite/efficientnet_lite0 --limit 100
    """
    from pipelines.corruptions import corruptions as run

    summary = run(
        dataset,
        model or [],
        names=corruption or [],
        severities=severity or [],
        at=at,
        jpeg=jpeg,
        baseline=baseline,
        folder=folder,
        limit=limit,
        seed=seed,
        views=views or ["native"],
        frost=frost,
        beside=beside,
        label_space=label_space,
        labels=labels,
        report=report,
        device=device,
        workers=bounded_workers(workers),
    )
    emit(summary, _text(summary))
    if strict and summary["failed"]:
        raise VerificationError(f"{summary['failed']} images failed under some corruption")


def _text(summary: Mapping[str, Any]) -> str:
    from curate.testbed.corruption_tables import text_summary

    return text_summary(summary)
