"""`curate robustness testbed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from curate.cli.common import Debug, Json, Resamples, emit, report_option, table
from curate.errors import UsageError


def register(group: typer.Typer) -> None:
    """Add the commands of this file."""
    group.command("testbed")(place_models)


def place_models(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Accuracies as CSV or Parquet: a row a model and a column a setting, or the "
            "columns model, setting and accuracy.",
            show_default=False,
        ),
    ],
    x: Annotated[
        str | None,
        typer.Option(
            "--x",
            metavar="SETTING",
            help="The setting of standard accuracy. Example: --x val. Default: the one that "
            "belongs to each --y in the published testbed.",
            show_default=False,
        ),
    ] = None,
    y: Annotated[
        list[str] | None,
        typer.Option(
            "--y",
            metavar="SETTING",
            help="A setting under shift; repeat it. Example: --y imagenet-r. Default: all others; "
            "without --x, the published testbed's shifts that are there.",
            show_default=False,
        ),
    ] = None,
    standard: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|@FILE|all",
            help="Which models the lines are fitted to: a column of 1 and 0, a file with a name a "
            "line, or all. Example: --standard @standard.txt. Default: the column standard, or "
            "the type STANDARD.",
            show_default=False,
        ),
    ] = None,
    pivot: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL|PERCENT",
            help="Fit both sides of this standard accuracy apart, as for a set that a model "
            "filtered. Example: --pivot resnet50. Default: none; for ImageNet-A, resnet50.",
            show_default=False,
        ),
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|@FILE",
            help="Which model each was made from, for relative robustness: a column, or a CSV "
            "file with the columns model and baseline. Example: --pairs @pairs.csv. Default: the "
            "column baseline; for the published table, the variants of ResNet-50.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING=IMAGES",
            help="How many images a setting has, for intervals; repeat it. Example: --size "
            "imagenet-a=7500. Default: known for the published table alone.",
            show_default=False,
        ),
    ] = None,
    unit: Annotated[
        Literal["percent", "fraction"] | None,
        typer.Option(
            help="What the accuracies are. Example: --unit percent. Default: found out; a table "
            "with both is refused.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="The column of names; repeat it where a name alone is not unique. Example: "
            "--model model --model img_size. Default: model.",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--type",
            metavar="COLUMN",
            help="The column of types. Example: --type family. Default: type, where it is there.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[Path | None, report_option("results, plots and a page", "testbed")] = None,
    resamples: Resamples = 1000,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Effective and relative robustness of many models, from a table of their accuracies.

    Example: curate robustness testbed models.csv --x val --y imagenet-r --report testbed
    """
    from pipelines.testbed import analyse_testbed, best_table, fits_table, shift_notes

    summary = analyse_testbed(
        file,
        x=x,
        y=y or (),
        standard=standard,
        pivot=pivot,
        pairs=pairs,
        sizes=sizes_of(size or ()),
        unit=unit,
        model=model or ("model",),
        kind=kind,
        report=report,
        resamples=resamples,
    )
    fits, models = summary["fit"], summary["models"]
    parts = [table(*fits_table(fits)), table(*best_table(fits, models))]
    notes = "\n".join(f"note: {note}" for note in shift_notes(summary))
    emit(summary, "\n\n".join([*parts, notes]))


def sizes_of(named: list[str] | tuple[str, ...]) -> dict[str, int]:
    """What `--size SETTING=IMAGES` says.

    Raises:
        UsageError: it is written otherwise.
    """
    found: dict[str, int] = {}
    for text in named:
        setting, _, images = text.rpartition("=")
        if not setting or not images.isascii() or not images.isdigit() or len(images) > 12:
            raise UsageError(f"--size {text!r}: write SETTING=IMAGES, as imagenet-a=7500")
        found[setting] = int(images)
    return found
