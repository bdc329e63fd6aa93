"""`curate review push` and `curate review doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.common import Debug, Json, Run, Strict, counts, emit, table, workspace
from curate.progress import say


def register(group: typer.Typer) -> None:
    """Add the commands of this file to `curate review`."""
    group.command("push")(push)
    group.command("doctor")(doctor)


def push(
    run: Run = None,
    annotator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EMAIL",
            help="Give candidates to this account. May be repeated. Example: --annotator "
            "ann@example.org. Default: review.annotators of curate.yaml, else everybody whom "
            "curate review serve has given an account.",
            show_default=False,
        ),
    ] = None,
    overlap: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=25,
            help="How many different annotators answer each candidate, blind to each other. "
            "Example: --overlap 3. Default: what an earlier push said, else review.overlap (2).",
            show_default=False,
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Items whose right answer is known: columns decision, and candidate or sha256 and "
            "wnid. Example: --gold known.csv. Default: those of earlier tables, else drawn from "
            "what the filter recognised.",
            show_default=False,
        ),
    ] = None,
    gold_rate: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=0.5,
            help="Share of each queue that are such items. Example: --gold-rate 0.05. Default: "
            "review.gold_rate (0, and 0.1 with --gold).",
            show_default=False,
        ),
    ] = None,
    referee: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Order the queue by a model that took no part in the filter, likely ones first. "
            "It is named in the manifest. Example: --referee lite/efficientnet_lite2. Default: "
            "review.referee, else the order of the shortlist.",
            show_default=False,
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Give out at most so many further candidates. Example: --most 200. Default: all.",
            show_default=False,
        ),
    ] = None,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Give the shortlist and the control sample to annotators, as tasks at Label Studio.

    Each annotator has a project of their own. What was pushed before is not pushed again; what
    people have rejected makes room for the next survivor of the same confusion. Interrupted or
    cut off, the same command goes on.

    Example: curate review push --overlap 2
    """
    from pipelines.review_push import push as push_tasks

    summary = push_tasks(
        workspace(),
        run_id=run,
        annotators=annotator or (),
        overlap=overlap,
        gold=gold,
        gold_rate=gold_rate,
        referee=referee,
        most=most,
    )
    for problem in summary["problems"]:
        say(problem)
    emit(summary, _push_text(summary))
    if strict and (summary["problems"] or summary["short"]):
        raise typer.Exit(1)


def _push_text(summary: Mapping[str, Any]) -> str:
    rejected = summary["rejected"]
    told = [
        f"run {summary['run']}: {summary['queue']:,} in the queue, {summary['pushed']:,} tasks "
        "pushed now",
        f"accepted {summary['accepted']:,}, rejected {sum(rejected.values()):,}"
        f"{f' ({counts(rejected)})' if rejected else ''}, disputed {summary['disputed']:,}, "
        f"waiting {summary['waiting']:,}",
        "",
        table(
            ["annotator", "account", "open", "where"],
            [[a["name"], a["account"], a["open"], a["url"]] for a in summary["annotators"]],
        ),
    ]
    if summary["short"]:
        told.append(
            f"{summary['short']:,} candidates have too few annotators left, since the others "
            "skipped them: name further ones with --annotator"
        )
    if summary["without_gold"]:
        names = ", ".join(summary["without_gold"])
        told.append(f"{names} have seen all gold items: name more with --gold")
    return "\n".join(told)


def doctor(
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Give projects their pages back that somebody has edited, and let them show the "
            "photos' folders again. Example: --repair",
        ),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check Label Studio, its projects, and whether browsers find the photos.

    Each fault is a line that names the setting or command which mends it; the exit code is then 1.

    Example: curate review doctor
    """
    from pipelines.review_doctor import examine

    summary = examine(workspace(), repair=repair)
    emit(summary, _doctor_text(summary["problems"], summary["checked"]))
    if summary["unrepaired"]:
        raise typer.Exit(1)


def _doctor_text(problems: Sequence[Mapping[str, Any]], checked: Mapping[str, Any]) -> str:
    lines = [f"{one['what']}: {'mended' if one['repaired'] else one['advice']}" for one in problems]
    looked = ", ".join(f"{name} {count:,}" for name, count in checked.items())
    return "\n".join([*(lines or ["nothing is wrong"]), f"checked: {looked}"])
