"""`curate release bias`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from curate.cli.common import (
    Debug,
    Device,
    Json,
    NoCache,
    Resamples,
    emit,
    report_option,
    table,
    workspace_if_any,
)
from curate.cli.robustness_testbed import sizes_of
from curate.errors import UsageError

#: The most models of a group that the terminal lists.
MOST = 25


def register(group: typer.Typer) -> None:
    """Add the commands of this file to `curate release`."""
    group.command("bias")(bias)


def bias(
    release: Annotated[
        str | None,
        typer.Argument(
            metavar="[RELEASE]",
            help="A folder, or a version of the workspace. Example: 1.0.0. Default: none, with "
            "--table.",
            show_default=False,
        ),
    ] = None,
    standard: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Ordinary images of its classes, in class folders; other classes are passed over. "
            "Example: --standard imagenet/val. Default: none, with --table.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of which class each image of --standard is, where it has no class folders. "
            "Example: --labels val.txt. Default: none.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "--models",
            help="A model of the zoo beside those that selected; repeat it. "
            "Example: --model lite/efficientnet_lite1. Default: none.",
            show_default=False,
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX|@FILE",
            help="Which models are relatives of those that selected: names that a regular "
            "expression finds, or a file with a name a line. Example: --family '^resnet'. "
            "Default: those whose architecture the library has in the same file.",
            show_default=False,
        ),
    ] = None,
    line: Annotated[
        str,
        typer.Option(
            metavar="imagenet-1k|all|@FILE|COLUMN",
            help="Which of the models that took no part the line is fitted to: those whose name "
            "does not say that they saw other photos than ImageNet-1k's, all, those in a file with "
            "a name a line, or those with 1 in a column of the table. Example: --line all",
        ),
    ] = "imagenet-1k",
    file: Annotated[
        Path | None,
        typer.Option(
            "--table",
            metavar="FILE",
            help="Accuracies of models as CSV or Parquet, instead of running any; needs --x and "
            "--y. Example: --table models.csv. Default: none.",
            show_default=False,
        ),
    ] = None,
    x: Annotated[
        str | None,
        typer.Option(
            "--x",
            metavar="SETTING",
            help="In --table, the setting of standard accuracy. Example: --x val. Default: none.",
            show_default=False,
        ),
    ] = None,
    y: Annotated[
        str | None,
        typer.Option(
            "--y",
            metavar="SETTING",
            help="In --table, the setting of the release. Example: --y mine. Default: none.",
            show_default=False,
        ),
    ] = None,
    filter_model: Annotated[
        list[str] | None,
        typer.Option(
            "--filter-model",
            metavar="MODEL",
            help="In --table, a model that selected; repeat it. Example: --filter-model resnet50. "
            "Default: the release's own, and --pivot where it is a model.",
            show_default=False,
        ),
    ] = None,
    pivot: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL|PERCENT",
            help="The standard accuracy where the filter leaves off; each side gets a line of its "
            "own. Example: --pivot 91.86. Default: the most accurate model that selected.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING=IMAGES",
            help="In --table, how many images a setting has, for intervals; repeat it. Example: "
            "--size mine=1200. Default: not known.",
            show_default=False,
        ),
    ] = None,
    unit: Annotated[
        Literal["percent", "fraction"] | None,
        typer.Option(
            help="In --table, what accuracies are. Example: --unit percent. Default: found out.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="In --table, the column of names; repeat it where a name alone is not unique. "
            "Example: --name model --name img_size. Default: model.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[Path | None, report_option("results, plots and a page", "bias")] = None,
    resamples: Resamples = 1000,
    device: Device = "auto",
    no_cache: NoCache = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """How much harder a release is for the models that selected it than for those that did not.

    What is found of a release of the workspace stands in the card of its next version.

    Example: curate release bias 1.0.0 --standard imagenet/val --model torchvision/resnet50
    """
    from pipelines.release_bias import (
        BiasOptions,
        bias_columns,
        bias_from_table,
        bias_of_release,
        bias_rows,
        bias_sentences,
        left_out_rows,
    )

    options = BiasOptions(family, line, pivot, report, resamples)
    if file is not None:
        if standard is not None or labels is not None or model:
            raise UsageError("--table stands instead of --standard, --labels and --model")
        if x is None or y is None:
            raise UsageError("--table needs the settings to compare: --x SETTING --y SETTING")
        summary = bias_from_table(
            workspace_if_any(),
            file,
            options,
            x=x,
            y=y,
            release=release,
            filters=filter_model or (),
            sizes=sizes_of(size or ()),
            unit=unit,
            names=name or ("model",),
        )
    else:
        for value, option in ((x, "--x"), (y, "--y"), (filter_model, "--filter-model")):
            if value:
                raise UsageError(f"{option} needs --table FILE")
        if release is None or standard is None:
            raise UsageError(
                "name a RELEASE and ordinary images of its classes with --standard DIR; or a table "
                "of accuracies with --table FILE"
            )
        from pipelines.evaluate_cache import cache_folder

        summary = bias_of_release(
            workspace_if_any(),
            release,
            standard,
            model or (),
            options,
            labels=labels,
            device=device,
            cache=None if no_cache else cache_folder(),
        )
    told = [table(bias_columns(summary), bias_rows(summary, MOST))]
    if more := left_out_rows(summary, MOST):
        told.append(f"and {more:,} more models: see --json or --report DIR")
    told += ["", *bias_sentences(summary)]
    emit(summary, "\n".join([*told, *_notes(summary)]))


def _notes(summary: dict[str, Any]) -> list[str]:
    notes = [f"note: {note}" for note in summary["notes"]]
    if summary["kept"]:
        notes.append("kept: the card of the next version that is chosen likewise tells of it")
    elif summary["release"] is not None:
        notes.append(
            "note: this release was not built in the workspace, so no card will tell of it"
        )
    return notes
