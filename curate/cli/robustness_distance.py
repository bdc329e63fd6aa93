"""`curate robustness distance`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.common import Debug, Device, Json, NoCache, Strict, emit, table


def register(group: typer.Typer) -> None:
    """Add the commands of this file."""
    group.command("distance")(distance)


def distance(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A",
            help="A folder of images; folders in it may have any names. Example: releases/1.0.0",
            show_default=False,
        ),
    ],
    b: Annotated[
        Path,
        typer.Argument(metavar="B", help="Another one. Example: imagenet/val", show_default=False),
    ],
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Whose features: a model of the zoo whose last layer is fully connected. "
            "Example: --model torchvision/inception_v3",
        ),
    ] = "lite/efficientnet_lite0",
    device: Device = "auto",
    no_cache: NoCache = False,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """The Fréchet distance between two sets of images, on what a model sees in them.

    Example: curate robustness distance releases/1.0.0 imagenet/val --model lite/efficientnet_lite0
    """
    from pipelines.distance import distance_between
    from pipelines.evaluate_cache import cache_folder

    summary = distance_between(
        a,
        b,
        model,
        device=device,
        cache=None if no_cache else cache_folder(),
        strict=strict,
    )
    emit(summary, _text(summary))


def _text(summary: dict[str, Any]) -> str:
    rows = []
    for one in (summary["a"], summary["b"]):
        halves = one["halves"]["distance"]
        rows.append(
            [one["name"], one["images"], one["failed"], "" if halves is None else f"{halves:.4g}"]
        )
    told = [
        table(["set", "images", "failed", "distance between its halves"], rows),
        "",
        f"distance {summary['distance']:.4g}, the square, on the {summary['dimensions']:,} "
        f"features of {summary['model']['name']}",
    ]
    if summary["extrapolated"] is not None:
        told.append(f"extrapolated to endless sets: {summary['extrapolated']:.4g}")
    return "\n".join([*told, *(f"note: {note}" for note in summary["notes"])])
