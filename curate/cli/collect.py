"""`curate collect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from curate.choices import NearDuplicates
from curate.cli.common import Debug, Json, Strict, counts, emit, workspace
from curate.errors import VerificationError


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(help="Take in candidate images with weak labels.", no_args_is_help=True)
    group.command("folder")(folder)
    app.add_typer(group, name="collect")


def folder(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="Class folders named by wnid or class name, or what --labels lists.",
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="CSV",
            help="A table with the columns path (relative to PATH) and label, and optionally "
            "source, page, title, author, licence. Example: --labels photos.csv. Default: the "
            "class folders.",
            show_default=False,
        ),
    ] = None,
    near_duplicates: Annotated[
        NearDuplicates | None,
        typer.Option(
            help="Pictures that are nearly there already: flag takes them and notes it, reject "
            "refuses them. Example: --near-duplicates reject. Default: the setting (flag).",
            show_default=False,
        ),
    ] = None,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Take in a folder of weakly labelled photos.

    Example: curate collect folder photos --labels photos.csv
    """
    from pipelines.collect import collect_folder

    opened = workspace({"collect.near_duplicates": near_duplicates})
    collected = collect_folder(opened, path, labels)
    if collected.list is not None:
        collected.list = str(opened.root / collected.list)
    summary = collected.to_dict()
    text = f"found {collected.found:,}: {collected.new:,} new, {collected.known:,} known"
    refused = sum(collected.rejected.values())
    if refused:
        text += f", {refused:,} rejected ({counts(collected.rejected)}); see {collected.list}"
    if collected.near_duplicates:
        text += f"\n{collected.near_duplicates:,} of the new ones are near-duplicates"
    emit(summary, text)
    if strict and refused:
        were = "file was" if refused == 1 else "files were"
        raise VerificationError(f"{refused:,} {were} rejected")
