"""`curate release`: building and listing."""

from __future__ import annotations

from typing import Annotated

import typer

from curate.choices import Naming
from curate.cli import release_bias, release_forms, release_versions
from curate.cli.common import Debug, Json, Run, emit, table, workspace
from curate.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(help="The versioned dataset.", no_args_is_help=True)
    group.command("build")(build)
    group.command("list")(list_releases)
    release_forms.register(group)
    release_versions.register(group)
    release_bias.register(group)
    app.add_typer(group, name="release")


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
            "survivors. Example: --control",
        ),
    ] = False,
    with_control: Annotated[
        bool,
        typer.Option(
            "--with-control",
            help="Add what is accepted of the control sample as the split control. "
            "Example: --with-control",
        ),
    ] = False,
    split: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FRACTION",
            help="Deal the images to splits by lot; what is left goes to test; repeat it. Near "
            "duplicates and photos of one author stay together. Example: --split dev=0.1. "
            "Default: no splits.",
            show_default=False,
        ),
    ] = None,
    per_class_min: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Name the classes that have fewer images. Example: --per-class-min 5. "
            "Default: none.",
            show_default=False,
        ),
    ] = None,
    per_class_max: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="At most so many images of a class, by lot. Example: --per-class-max 50. "
            "Default: all.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the lots for classes and splits. Example: --seed 1")
    ] = 0,
    require_visible: Annotated[
        bool,
        typer.Option(
            "--require-visible",
            help="Leave out photos of which a reviewer says that what they show is not in the "
            "centre crop. Example: --require-visible",
        ),
    ] = False,
    strip_metadata: Annotated[
        bool,
        typer.Option(
            "--strip-metadata",
            help="Remove all metadata from the files but orientation and colours; by default "
            "positions, owners and serial numbers alone. Example: --strip-metadata",
        ),
    ] = False,
    keep_metadata: Annotated[
        bool,
        typer.Option(
            "--keep-metadata",
            help="Leave the files as they were collected. Example: --keep-metadata",
        ),
    ] = False,
    run: Run = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Build an immutable dataset of what people have accepted, with card, manifest and checksums.

    Its class folders are those of ImageNet-A, named by the true class, or under the rule outlier
    those of ImageNet-O, named by the class that a photo is taken for. A version whose folder is
    gone is built again with the same bytes, or not at all.

    Example: curate release build 1.0.0 --split dev=0.1
    """
    from pipelines.release import build_release

    if strip_metadata and keep_metadata:
        raise UsageError("--strip-metadata and --keep-metadata exclude each other: leave one out")
    summary = build_release(
        workspace(),
        version,
        unreviewed=unreviewed,
        run_id=run,
        naming=naming,
        control=control,
        with_control=with_control,
        per_class_min=per_class_min,
        per_class_max=per_class_max,
        seed=seed,
        splits=split or (),
        require_visible=require_visible,
        metadata="strip" if strip_metadata else "keep" if keep_metadata else "clean",
    )
    again = " again" if summary["rebuilt"] else ""
    text = (
        f"release {summary['version']}{again}: {summary['images']:,} images of "
        f"{summary['classes']:,} classes from run {summary['run']} in {summary['path']}"
    )
    if summary["splits"]:
        text += "\nsplits: " + ", ".join(f"{n} {c:,}" for n, c in summary["splits"].items())
    for problem in summary["problems"]:
        text += f"\nnote: {problem}"
    emit(summary, text)


def list_releases(as_json: Json = False, debug: Debug = False) -> None:
    """List the releases of the workspace.

    Example: curate release list
    """
    from pipelines.release import list_releases as listed

    rows = listed(workspace())
    columns = ["version", "images", "classes", "reviewed", "retracted", "sha256"]
    emit({"releases": rows}, table(columns, [[row[c] for c in columns] for row in rows]))
