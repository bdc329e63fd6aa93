"""`curate release pack`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from curate.choices import PACK_FORMS
from curate.cli.common import Debug, Json, emit, root_if_any


def register(group: typer.Typer) -> None:
    """Add the commands of this file to `curate release`."""
    group.command("pack")(pack)


def pack(
    release: Annotated[
        str,
        typer.Argument(
            metavar="VERSION|PATH",
            help="A version of the workspace, or the folder of a release. Example: 1.0.0",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="The folder to write into. Example: --out packed"),
    ],
    form: Annotated[
        list[str],
        typer.Option(
            metavar="|".join(PACK_FORMS),
            help="tar: one archive; webdataset: shards and an index; parquet: the images inside, "
            "for Hugging Face's datasets. Repeat it for several. Example: --form tar",
        ),
    ],
    shard_images: Annotated[
        int,
        typer.Option(
            min=1,
            help="Images of one shard or Parquet file at most. Example: --shard-images 500",
        ),
    ] = 1000,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Pack a release as an archive, as shards or as Parquet files, each image checked on the way.

    The same release gives the same bytes on any day. What is there under its name is whole. It
    works on any folder that curate release build made, with or without the workspace.

    Example: curate release pack 1.0.0 --form tar --form parquet --out packed
    """
    from pipelines.release_forms import find_release, pack_release

    workspace = root_if_any()
    folder = find_release(release, workspace)
    retracted = _retracted(folder, workspace)
    summary = pack_release(folder, out, form, shard_images=shard_images, retracted=retracted)
    text = f"release {summary['version']}: {summary['images']:,} images"
    for name, made in summary["forms"].items():
        size = sum(one["bytes"] for one in made["files"])
        text += f"\n{name}: {len(made['files']):,} files, {size:,} bytes in {made['path']}"
        if name == "tar":
            text += f"\nSHA-256: {made['files'][0]['sha256']}"
    for problem in summary["problems"]:
        text += f"\nnote: {problem}"
    emit(summary, text)


def _retracted(folder: Path, root: Path | None) -> Collection[str]:
    """What the workspace knows to be taken back, where the release is one of its versions."""
    from contextlib import closing

    from pipelines.retractions import retracted_here
    from pipelines.workspace import open_workspace

    if root is None or folder.resolve().parent != (root / "releases").resolve():
        return ()
    with closing(open_workspace(root)) as workspace:
        return retracted_here(workspace).keys()
