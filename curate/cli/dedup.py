"""`curate dedup`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.choices import AcrossLabels
from curate.cli.common import Debug, Json, Strict, counts, emit, workspace
from curate.errors import VerificationError

if TYPE_CHECKING:
    from pipelines.duplicates import Deduplicated


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(invoke_without_command=True)
    group.callback()(dedup)
    group.command("hashes")(hashes)
    app.add_typer(group, name="dedup")


def dedup(
    context: typer.Context,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against",
            metavar="PATH",
            help="A set that no candidate may come from, such as ImageNet's training images: a "
            "folder, a tar file, a folder of tar files, or a hash file; repeatable. Example: "
            "--against imagenet-train.parquet. Default: none.",
            show_default=False,
        ),
    ] = None,
    distance: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=12,
            help="The largest distance of two near duplicates, in bits of 64. Example: --distance "
            "2. Default: 4, with --embedding 10.",
            show_default=False,
        ),
    ] = None,
    embedding: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A classifier whose features confirm near duplicates, which finds crops and "
            "brighter copies as well. Example: --embedding lite/efficientnet_lite0. Default: none.",
            show_default=False,
        ),
    ] = None,
    across_labels: Annotated[
        AcrossLabels,
        typer.Option(
            help="One picture under two labels: keep leaves both in the filter for people to tell "
            "which is right, drop leaves the best one there. Example: --across-labels drop"
        ),
    ] = "keep",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Find exact and near duplicates among the candidates and in other sets.

    The best picture of a group is kept; the others, and what another set has, stay out of the
    filter. What was found before is replaced.

    Example: curate dedup --against imagenet-train.parquet
    """
    if context.invoked_subcommand is not None:
        return
    from pipelines.deduplicate import deduplicate

    opened = workspace()
    found = deduplicate(
        opened,
        against or (),
        distance=distance,
        embedding=embedding,
        across_labels=across_labels,
    )
    if found.page is not None and found.list is not None:
        found.page, found.list = str(opened.root / found.page), str(opened.root / found.list)
    emit(found.to_dict(), _text(found))


def _text(found: Deduplicated) -> str:
    text = (
        f"checked {found.checked:,}: {found.exact:,} exact and {found.near:,} near duplicates, "
        f"{found.dropped:,} dropped, {found.kept:,} kept"
    )
    for one in found.sets:
        text += (
            f"\n{one.set}: {one.matched:,} of the candidates are among its {one.images:,} images"
        )
        if one.refused:
            text += f"; {_of_no_use(one.refused)} ({counts(one.refused)})"
    if found.across_labels:
        text += f"\nunder another label than what is kept: {found.across_labels:,}"
    if found.page is not None:
        text += f"\nto look at: {found.page}"
    return text


def _of_no_use(refused: Mapping[str, int]) -> str:
    count = sum(refused.values())
    return f"{count:,} {'file was' if count == 1 else 'files were'} of no use"


def hashes(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A folder of images, a tar file, or a folder of tar files."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The hash file to write: CSV where it ends in .csv, else Parquet. Example: "
            "--out imagenet-train.parquet",
        ),
    ],
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Hash a set of images into a file that --against takes in its place; needs no workspace.

    It holds names and hashes alone, and can be passed on where the images may not be. Interrupted,
    the same command goes on.

    Example: curate dedup hashes ILSVRC2012_img_train.tar --out imagenet-train.parquet
    """
    from curate.settings import load_settings
    from pipelines.picture_sets import hash_pictures

    summary = hash_pictures(path, out, load_settings(None).images)
    refused = summary["refused"]
    text = f"{summary['path']}: {summary['images']:,} images"
    if refused:
        text += f"; {_of_no_use(refused)} ({counts(refused)})"
    emit(summary, text)
    if strict and refused:
        raise VerificationError(_of_no_use(refused))
