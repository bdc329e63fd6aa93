"""`curate release` and `curate evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from curate.choices import Naming
from curate.cli.common import Debug, Json, Run, Strict, emit, table, workspace
from curate.errors import VerificationError


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(help="The versioned dataset.", no_args_is_help=True)
    group.command("build")(build)
    group.command("list")(list_releases)
    app.add_typer(group, name="release")
    app.command()(evaluate)


def build(
    version: Annotated[str, typer.Argument(help="MAJOR.MINOR.PATCH, for example 0.1.0.")],
    unreviewed: Annotated[
        bool,
        typer.Option(
            "--unreviewed",
            help="Build from the shortlist that nobody has looked at, marked so. "
            "Example: --unreviewed",
        ),
    ] = False,
    naming: Annotated[
        Naming,
        typer.Option(
            help="hash: by content; paper: as ImageNet-A names its files. Example: --naming paper"
        ),
    ] = "hash",
    control: Annotated[
        bool,
        typer.Option(
            "--control",
            help="Take the run's control sample, drawn before the filter, instead of its "
            "shortlist. Example: --control",
        ),
    ] = False,
    run: Run = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Build an immutable dataset with manifest and checksums.

    Its class folders are those of ImageNet-A, named by the true class, or under the rule outlier
    those of ImageNet-O, named by the class that a photo is taken for.

    Example: curate release build 0.1.0 --unreviewed
    """
    from pipelines.release import build_release

    summary = build_release(
        workspace(), version, unreviewed=unreviewed, run_id=run, naming=naming, control=control
    )
    text = (
        f"release {summary['version']}: {summary['images']:,} images of "
        f"{summary['classes']:,} classes from run {summary['run']} in {summary['path']}"
    )
    for problem in summary["problems"]:
        text += f"\nnote: {problem}"
    emit(summary, text)


def list_releases(as_json: Json = False, debug: Debug = False) -> None:
    """List the releases of the workspace.

    Example: curate release list
    """
    from pipelines.release import list_releases as listed

    rows = listed(workspace())
    columns = ["version", "images", "classes", "reviewed", "sha256"]
    emit({"releases": rows}, table(columns, [[row[c] for c in columns] for row in rows]))


def evaluate(
    datasets: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DATASET]…",
            help="Folders in ImageNet-A layout. May be left out where --predictions holds the true "
            "classes.",
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
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Saved predictions instead of a model: CSV or Parquet with the columns path, "
            "predicted_wnid and confidence (and wnid where no DATASET is given), or NPZ with "
            "logits and paths. "
            "Example: --predictions mine.csv. Default: none.",
            show_default=False,
        ),
    ] = None,
    label_space: Annotated[
        str | None,
        typer.Option(
            help="A preset or a CSV file. Example: --label-space imagenet-a. Default: the "
            "release's own, else the smallest preset that holds every class folder.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to write results and predictions. Example: --report results. "
            "Default: nowhere.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:1, mps. Example: --device cpu")
    ] = "auto",
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Evaluate models on datasets: accuracy, AURRA, calibration, each with its interval.

    Example: curate evaluate releases/0.1.0 --model lite/efficientnet_lite2
    """
    from pipelines.evaluate import evaluate as run
    from pipelines.evaluate import results_notes, results_table

    summary = run(
        datasets or [],
        model or [],
        predictions=predictions,
        label_space=label_space,
        report=report,
        device=device,
    )
    columns, rows = results_table(summary["results"])
    notes = "".join(f"\nnote: {note}" for note in results_notes(summary["results"]))
    emit(summary, table(columns, rows) + notes)
    if strict and summary["failed"]:
        raise VerificationError(f"{summary['failed']} images could not be evaluated")
