"""`curate demo`, and what it says of what it has done."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.common import Debug, Json, counts, emit


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(demo)


def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to make the demo's workspace.")
    ] = Path("curate-demo"),
    photos: Annotated[
        Path | None,
        typer.Option(
            "--photos",
            metavar="DIR",
            help="Your own photos, in folders named by ImageNet class. Example: --photos ~/birds. "
            "Default: photos that come with Python packages.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """The whole way on real photos: collect, filter, report, a first release, an evaluation.

    Example: curate demo
    """
    from curate.cli.filtering import funnel_text
    from pipelines.demo import run_demo

    summary = run_demo(folder, photos=photos)
    emit(summary, funnel_text(summary) + "\n" + what_it_shows(summary))


def what_it_shows(told: Mapping[str, Any]) -> str:
    """What the numbers of a demo mean and what they do not, and what to type next."""
    threshold, survivors, total = told["threshold"], told["survivors"], told["candidates"]
    models = " or ".join(name.rpartition("/")[2] for name in told["models"])
    lines = ["", "What this shows"]
    if survivors:
        were = "photo survives" if survivors == 1 else "photos survive"
        lines.append(
            f"- {survivors} of {total} {were}: no crop of {models} predicts its class, or gives "
            f"it more than {threshold}."
            + (" The page shows the nearest misses beside them." if told["nearest_misses"] else "")
        )
    else:
        lines.append(
            f"- None of the {total} photos survives: of each, some crop of {models} predicts the "
            f"class, or gives it more than {threshold}. The page shows the nearest misses."
        )
    if told["doubtful"] is not None:
        lines.append(
            "- The photos are few and mostly easy; classifiers like these learned from ImageNet, "
            "and may have seen some of them there."
        )
    refused = sum(told["collected"]["rejected"].values())
    if refused:
        were = "file was" if refused == 1 else "files were"
        lines.append(f"- {refused} {were} refused: {counts(told['collected']['rejected'])}.")
    doubt = "- The labels are weak and nobody has reviewed them"
    if told["doubtful"]:
        doubtful = told["doubtful"]
        doubt += f"; at a look, {doubtful['all']} of the {total} do not hold, or hold only in part"
        if survivors:
            doubt += f", {doubtful['shortlisted']} of them on the shortlist"
    lines.append(f"{doubt}. The filter concentrates wrong labels.")
    evaluation = told["evaluation"]
    unseen = (
        f"- {evaluation['model'].rpartition('/')[2]}, which took no part but is of the same "
        f"family, gets {_share(evaluation['all'])} of all photos right"
    )
    if evaluation["release"]:
        unseen += f", and {_share(evaluation['release'])} of the release"
    lines += [f"{unseen}.", "", f"The page: {told['report']}"]
    if told["release"]:
        lines.append(f"The release, unreviewed: {told['release']}")
    return "\n".join([*lines, "", "Next", *_next_commands(told)])


def _next_commands(told: Mapping[str, Any]) -> list[str]:
    root = shlex.quote(told["workspace"])
    commands = [f"curate -w {root} status --by-class"]
    if shutil.which("curate") is None:
        activate = os.path.relpath(Path(sys.executable).parent / "activate")
        commands.insert(0, f"source {shlex.quote(activate)}")
    if told["release"]:
        dataset = shlex.quote(told["release"])
        commands.append(f"curate evaluate {dataset} --model lite/efficientnet_lite2")
    return [
        f"  {command}"
        for command in (
            *commands,
            "curate init mine --preset imagenet-a",
            "curate -w mine collect folder PHOTOS   # class folders: dragonfly/, n01531178/, …",
            "curate -w mine filter --classes dragonfly,goldfinch",
            "curate -w mine report",
        )
    ]


def _share(accuracy: Mapping[str, Any]) -> str:
    value, low, high = (100 * accuracy[key] for key in ("value", "low", "high"))
    return f"{value:.1f} % (95 % interval {low:.1f} to {high:.1f}, {accuracy['n']} photos)"
