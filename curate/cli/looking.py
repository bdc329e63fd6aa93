"""`curate status`, `curate report`, `curate doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from curate.choices import STAGES
from curate.cli.common import ByClass, Debug, Json, Run, counts, emit, table, workspace
from curate.errors import VerificationError


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("status")(status_)
    app.command()(report)
    app.command()(doctor)


def status_(
    by_class: ByClass = False,
    quality: Annotated[
        bool,
        typer.Option(
            "--quality",
            help="Count the candidates with each quality flag as well. Example: --quality",
        ),
    ] = False,
    run: Run = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the funnel: candidates, scored, survivors, shortlisted, reviewed, accepted, released.

    Example: curate status --by-class
    """
    from curate.cli.filtering import by_class_text
    from pipelines.status import status

    opened = workspace()
    summary = status(opened, run_id=run, quality=quality)
    funnel = summary["funnel"]
    text = table(["stage", "images"], [[stage, funnel[stage]] for stage in STAGES])
    if summary["run"]:
        text += f"\n\nnewest finished run: {summary['run']}"
    if summary["running"]:
        text += f"\nunfinished run: {summary['running']} (start its command again to go on)"
    if summary["refused"]:
        text += f"\nrefused files: {counts(summary['refused'])}"
    for source, states in summary["sources"].items():
        text += f"\n{source}: {counts(states)}"
    if summary["duplicates"]:
        text += f"\nduplicates left out of the filter: {summary['duplicates']:,}"
    if quality:
        flagged = {flag: count for flag, count in summary["quality"].items() if count}
        text += f"\nflagged candidates: {counts(flagged) or 'none'}"
        if summary["unmeasured"]:
            text += (
                f" (and {summary['unmeasured']:,} images that nobody has looked at yet: curate "
                "dedup or curate doctor --repair does)"
            )
    if by_class:
        text += "\n\n" + by_class_text(funnel["by_class"])
    emit(summary, text)


def report(
    run: Run = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write the page. Example: --out report.html. Default: in the run's "
            "folder.",
            show_default=False,
        ),
    ] = None,
    photos: Annotated[
        int, typer.Option(min=1, help="Most photos on the page. Example: --photos 100")
    ] = 500,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a self-contained page: funnel, contact sheet, confusions, scores.

    Example: curate report --out report.html
    """
    from pipelines.report import write_report

    summary = write_report(workspace(), run, out, photos)
    emit(summary, f"{summary['path']} (run {summary['run']})")


def doctor(
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Remove leftovers of killed commands and images that no row names, and measure "
            "images whose quality is not known. Example: --repair",
        ),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check catalogue, store, scores and releases against each other.

    Example: curate doctor --repair
    """
    from curate.report.page import counted
    from pipelines.doctor import examine

    summary = examine(workspace(), repair=repair)
    problems = summary["problems"]
    checked = ", ".join(
        counted(count, what.removesuffix("s")) for what, count in summary["checked"].items()
    )
    rows = [[p["kind"], p["what"], "repaired" if p["repaired"] else p["advice"]] for p in problems]
    found = table(["problem", "where", "what to do"], rows) if rows else "no problems"
    if unmeasured := summary["unmeasured"]:
        advice = "their stored files are bad" if repair else "--repair measures them"
        found += f"\nquality not known of {counted(unmeasured, 'image')}; {advice}"
    emit(summary, f"checked {checked}\n{found}")
    if summary["unrepaired"]:
        raise VerificationError(counted(summary["unrepaired"], "problem"))
