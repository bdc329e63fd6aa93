"""`curate review pull` and `curate review adjudicate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from curate.cli.common import Debug, Json, Run, Strict, counts, emit, workspace
from curate.errors import VerificationError
from curate.progress import say


def register(group: typer.Typer) -> None:
    """Add the commands of this file to `curate review`."""
    group.command("pull")(pull)
    group.command("adjudicate")(adjudicate)


def pull(strict: Strict = False, as_json: Json = False, debug: Debug = False) -> None:
    """Bring home what people have answered, and tell what their answers add up to.

    Every answer and every edit is kept. What cannot be read is set aside and counted. Where Label
    Studio counts other answers than came here, the exit code is 1; with --strict, also while
    answers are set aside.

    Example: curate review pull
    """
    from pipelines.review_pull import pull as pull_answers

    summary = pull_answers(workspace())
    for line in (*summary["notes"], *summary["problems"]):
        say(line)
    emit(summary, _pull_text(summary))
    if summary["problems"]:
        raise VerificationError(f"{len(summary['problems'])} projects do not add up")
    if strict and summary["set_aside"]:
        raise typer.Exit(1)


def _pull_text(summary: Mapping[str, Any]) -> str:
    found = [
        (summary["edited"], "edited"),
        (summary["skipped"], "skipped"),
        (summary["deleted"], "taken back at Label Studio"),
        (summary["unread"], "set aside now"),
        (summary["tasks_gone"], "tasks deleted"),
        (len(summary["projects_gone"]), "projects deleted"),
        (summary["corrected"], "new candidates under corrected labels"),
    ]
    more = ", ".join(f"{count:,} {what}" for count, what in found if count)
    lines = [f"{summary['pulled']:,} new answers{f' ({more})' if more else ''}", _counted(summary)]
    lines += _controls(summary)
    if agreement := _agreement(summary["agreement"]):
        lines.append(agreement)
    if summary["set_aside"]:
        lines.append(
            f"answers that cannot be read, and count for nothing until they are given again: "
            f"{summary['set_aside']:,}"
        )
    lines += [f"note: {text}" for text in summary["warnings"]]
    return "\n".join(lines)


def _total(told: Mapping[str, Any]) -> tuple[int, int, int, int]:
    rejected = sum(told["rejected"].values())
    return told["accepted"], rejected, told["disputed"], told["waiting"]


def _counted(told: Mapping[str, Any]) -> str:
    accepted, rejected, disputed, waiting = _total(told)
    reasons = f" ({counts(told['rejected'])})" if told["rejected"] else ""
    return (
        f"accepted {accepted:,}, rejected {rejected:,}{reasons}, disputed {disputed:,}, "
        f"waiting {waiting:,}"
    )


def _controls(summary: Mapping[str, Any]) -> list[str]:
    told = summary["control"]
    return [f"control sample: {_counted(told)}"] if any(_total(told)) else []


def _agreement(told: Mapping[str, Mapping[str, Any]]) -> str:
    names = {"raw": "raw", "kappa": f"{told['kappa']['kind'].capitalize()}'s kappa"}
    names |= {"ac1": "Gwet's AC1", "alpha": "Krippendorff's alpha"}
    parts = []
    for key, name in names.items():
        one = told[key]
        if one["value"] is None:
            continue
        between = "" if one["low"] is None else f" [{one['low']:.2f}, {one['high']:.2f}]"
        parts.append(f"{name} {one['value']:.2f}{between}")
    if not parts:
        return ""
    return f"agreement on {told['raw']['n']:,} candidates: {', '.join(parts)}"


def adjudicate(
    title: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What the project is called at Label Studio, with a code of the workspace after "
            "it. Example: --title 'last word'",
        ),
    ] = "adjudication",
    run: Run = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Give what annotators differ over to a project of its own, for the last word.

    Whoever opens it sees who said what, by role; the newest answer there decides at the next pull.

    Example: curate review adjudicate --title 'last word'
    """
    from pipelines.review_adjudicate import adjudicate as give_out

    summary = give_out(workspace(), title=title, run_id=run)
    for problem in summary["problems"]:
        say(problem)
    text = f"{summary['pushed']:,} tasks pushed for adjudication; {_counted(summary)}"
    text = "\n".join([text, *_controls(summary)])
    if summary["url"]:
        text += f"\n{summary['project']}: {summary['url']}"
    emit(summary, text)
