"""`curate release verify`, `diff` and `retract`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from curate.choices import Retraction
from curate.cli.common import Debug, Json, counts, emit, workspace, workspace_if_any
from curate.errors import VerificationError


def register(group: typer.Typer) -> None:
    """Add the commands of this file to `curate release`."""
    group.command("verify")(verify)
    group.command("diff")(diff)
    group.command("retract")(retract)


def verify(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH|URL",
            help="A folder, a tar or zip file or the address of one, or a version of the "
            "workspace. "
            "Example: releases/1.0.0",
        ),
    ],
    tombstones: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Images that were taken back, to warn of: tombstones.csv of a later version. "
            "Example: --tombstones 2.0.0/tombstones.csv. Default: what the workspace knows.",
            show_default=False,
        ),
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option(
            "--sha256",
            metavar="DIGEST",
            help="What the SHA-256 of the manifest must be, as a paper or a page tells it. "
            "Example: --sha256 9f86d0…. Default: not compared.",
            show_default=False,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="HOST[:PORT]",
            help="A host of your own that may be asked although its address is private. "
            "Repeatable. Example: --allow-host 127.0.0.1:8000. Default: the setting (none).",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check every file of a release: checksums, manifest, layout, images, licences, reviews.

    It needs no workspace. Of class folders without a manifest, such as ImageNet-A, it checks what
    can be checked. It exits with 1 where something is wrong.

    Example: curate release verify releases/1.0.0
    """
    from pipelines.release_verify import verify as run

    summary = run(
        workspace_if_any(), path, tombstones=tombstones, sha256=sha256, allow_hosts=allow_host or ()
    )
    found = summary["problem_counts"]
    what = f"release {summary['version']}" if summary["version"] else summary["dataset"]
    lines = [f"{what}: {summary['images']:,} images of {summary['classes']:,} classes"]
    if summary["sha256"]:
        lines.append(f"SHA-256 of the manifest: {summary['sha256']}")
    lines += [f"warning: {text}" for text in summary["warnings"]]
    lines += summary["problems"]
    lines.append(f"problems: {counts(found)}" if found else "nothing is wrong")
    emit(summary, "\n".join(lines))
    if found:
        raise VerificationError(f"problems found: {sum(found.values()):,} in {summary['path']}")


def diff(
    before: Annotated[
        str, typer.Argument(metavar="A", help="The earlier one: a folder, or a version.")
    ],
    after: Annotated[
        str, typer.Argument(metavar="B", help="The later one: a folder, or a version.")
    ],
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page with thumbnails besides. Example: --page diff.html. Default: none.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Tell image by image what differs between two releases.

    Example: curate release diff 1.0.0 2.0.0 --page diff.html
    """
    from pipelines.release_diff import diff_releases, diff_text

    summary = diff_releases(workspace_if_any(), before, after, page)
    text = diff_text(summary)
    if "path" in summary:
        text += f"\npage: {summary['path']}"
    emit(summary, text)


def retract(
    image: Annotated[
        str,
        typer.Argument(
            metavar="IMAGE",
            help="Twelve or more digits of its SHA-256, the key of its candidate, or its path in a "
            "release. Example: 1.0.0/n01531178/0a1b2c3d4e5f6071.jpg",
        ),
    ],
    reason: Annotated[
        Retraction,
        typer.Option(
            metavar="CLASS",
            help="Why: person-request, licence, copyright, wrong-content, privacy or other; "
            "nothing else is remembered. Example: --reason privacy",
        ),
    ],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Take an image back for good: no later release holds it, and it is not collected again.

    Nobody is asked about it any more; answers that were given stay. What shows the same is barred
    with it. Versions that hold it stay as they are; publish the next one in their place. This
    cannot be undone.

    Example: curate release retract 0a1b2c3d4e5f --reason person-request
    """
    from pipelines.retractions import retract as run

    summary = run(workspace(), image, reason)
    if summary["already"]:
        text = (
            f"image {summary['image']} was taken back already, on {summary['retracted']} "
            f"({summary['reason']}); nothing changed"
        )
    else:
        text = f"image {summary['image']} is taken back ({summary['reason']})"
    if summary["copies"]:
        text += f"\ncopies that are barred with it: {summary['copies']:,}"
    if summary["withdrawn"]:
        text += (
            f"\ntasks that ask people about it no more: {summary['withdrawn']:,}; the next curate "
            "review push deletes them at Label Studio"
        )
    for version, paths in summary["versions"].items():
        text += f"\nversion {version} holds it: {', '.join(paths)}"
    if not summary["versions"]:
        text += "\nno version holds it"
    elif not summary["already"]:
        text += "\nthe next build is a major one; withdraw these versions where they are published"
    emit(summary, text)
