"""`curate review status`, `export` and `blind-test`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.common import (
    Debug,
    Form,
    Json,
    Run,
    counts,
    emit,
    shared,
    table,
    workspace,
    write_result,
)
from curate.errors import UsageError

#: Rows of the longest tables; --by-class and --json tell of all.
_ROWS = 20


def register(group: typer.Typer) -> None:
    """Add the commands of this file to the group `review`."""
    group.command("status")(status)
    group.command("export")(export)
    group.command("blind-test")(blind_test)


def status(
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="PATH",
            help="Write a self-contained page as well, with the photos that people dispute: a "
            "file, or a folder for review.html. Example: --page review.html. Default: none.",
            show_default=False,
        ),
    ] = None,
    by_class: Annotated[
        bool,
        typer.Option(
            "--by-class", help="Show all classes, not the 20 with most to do. Example: --by-class"
        ),
    ] = False,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="ID",
            help="Count this run's candidates alone. Example: --run 1d6f2a632a1c. Default: all "
            "that was ever given out.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show how far people are, how they work and agree, and how long it will take.

    It needs no server: what was not pulled yet is not there.

    Example: curate review status --page review.html
    """
    from pipelines.review_page import write_review_page
    from pipelines.review_status import review_status

    opened = workspace()
    if page is not None:
        summary = write_review_page(opened, page, run)
    else:
        summary = review_status(opened, run)
    emit(summary, _status_text(summary, by_class))


def export(
    form: Form = "csv",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write. Example: --out answers.csv. Default: standard output.",
            show_default=False,
        ),
    ] = None,
    accepted: Annotated[
        bool,
        typer.Option(
            "--accepted",
            help="The accepted candidates of a run instead of the answers. Example: --accepted",
        ),
    ] = False,
    accounts: Annotated[
        bool,
        typer.Option(
            "--accounts",
            help="Tell the mail addresses of annotators besides their roles. Example: --accounts",
        ),
    ] = False,
    run: Run = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write every answer and every edit, or the accepted candidates, as a table.

    Example: curate review export --format jsonl --out answers.jsonl
    """
    from curate.files import printable
    from pipelines.review_export import (
        ACCEPTED_COLUMNS,
        accepted_rows,
        answer_columns,
        answer_rows,
        table_lines,
        write_lines,
    )

    if accepted and accounts:
        raise UsageError("--accepted names nobody, so that --accounts has no place there")
    if run is not None and not accepted:
        raise UsageError("--run goes with --accepted: answers are of no run")
    opened = workspace()
    columns = ACCEPTED_COLUMNS if accepted else answer_columns(accounts=accounts)
    rows = accepted_rows(opened, run) if accepted else answer_rows(opened, accounts=accounts)
    if out is not None:
        lines = write_lines(table_lines(columns, rows, form), out)
        count = lines - (form == "csv")
        emit({"path": printable(out), "rows": count}, f"{count:,} rows in {printable(out)}")
    elif shared.json:
        emit({"accepted" if accepted else "answers": list(rows)})
    else:
        write_result(table_lines(columns, rows, form))


def blind_test(
    count: Annotated[
        int | None,
        typer.Argument(
            metavar="[N]",
            min=1,
            help="How many accepted photos to show; half as many controls come on top. Without it "
            "what was answered so far is told. Example: 100",
            show_default=False,
        ),
    ] = None,
    account: Annotated[
        str,
        typer.Option(
            "--account",
            metavar="EMAIL",
            help="Who looks at them, and has not seen them. Example: --account eve@example.org. "
            "Default: whoever has this test already, else the first account that has seen none.",
            show_default=False,
        ),
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the sample. Example: --seed 1")] = 0,
    run: Run = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show somebody accepted photos without their labels, to see whether they can name the class.

    The answers come home by curate review pull. The same command shows nothing twice; a larger N
    adds photos.

    Example: curate review blind-test 100 --account eve@example.org
    """
    from pipelines.review_blind import blind_test as start
    from pipelines.review_blind_accuracy import blind_accuracy

    if count is None:
        if account or seed:
            raise UsageError("--account and --seed go with a number of photos")
        accuracy = blind_accuracy(workspace(), run)
        text = _blind_text(accuracy) or "no blind test yet: curate review blind-test 100"
        emit({"accuracy": accuracy}, text)
        return
    summary = start(workspace(), count, account=account, seed=seed, run_id=run)
    text = (
        f"{summary['annotator']} ({summary['account']}) has {summary['photos']:,} accepted photos "
        f"and {summary['controls']:,} controls to look at, {summary['pushed']:,} of them new: "
        f"{summary['url']}"
    )
    for problem in summary["problems"]:
        text += f"\nnote: {problem}"
    if summary["accuracy"]["accepted"]["answered"]:
        text += "\n\n" + _blind_text(summary["accuracy"])
    emit(summary, text)


def _status_text(summary: Mapping[str, Any], by_class: bool) -> str:
    rejected = sum(summary["rejected"].values())
    rows: list[list[Any]] = [
        ["accepted", summary["accepted"]],
        ["rejected", rejected],
        ["disputed", summary["disputed"]],
        ["waiting", summary["waiting"]],
    ]
    parts = [table(["outcome", "candidates"], rows)]
    notes = []
    if rejected:
        notes.append(f"rejected: {counts(summary['rejected'])}")
    control = summary["control"]
    if any(control[name] for name in ("accepted", "rejected", "disputed", "waiting")):
        notes.append(
            f"control sample: accepted {control['accepted']:,}, rejected "
            f"{sum(control['rejected'].values()):,}, disputed {control['disputed']:,}, waiting "
            f"{control['waiting']:,}"
        )
    adjudication = summary["adjudication"]
    if adjudication["open"] or adjudication["done"]:
        notes.append(
            f"adjudication: {adjudication['done']:,} decided, {adjudication['open']:,} open"
        )
    if notes:
        parts.append("\n".join(notes))
    if summary["annotators"]:
        parts.append(_people_text(summary))
    if any(one["n"] for one in summary["agreement"].values()):
        parts.append(_agreement_text(summary["agreement"]))
    if summary["by_class"]:
        parts.append(_classes_text(summary["by_class"], by_class))
    if blind := _blind_text(summary["blind"]):
        parts.append(blind)
    ending = [f"warning: {text}" for text in summary["warnings"]]
    ending += [
        f"set aside: annotation {row['annotation']} of task {row['task']} in {row['project']}: "
        f"{row['why']}"
        for row in summary["unread"][:_ROWS]
    ]
    if (more := len(summary["unread"]) - _ROWS) > 0:
        ending.append(f"set aside: {more:,} more, see curate --json review status")
    if "path" in summary:
        ending.append(f"page: {summary['path']}")
    if ending:
        parts.append("\n".join(ending))
    return "\n\n".join(parts)


def _people_text(summary: Mapping[str, Any]) -> str:
    columns = ["annotator", "open", "done", "skipped", "seconds", "gold right", "accepts", "left"]
    rows = [
        [
            person["annotator"],
            person["open"],
            person["done"],
            person["skipped"],
            _rounded(person["median_seconds"]),
            _share(person["gold"]),
            _share(person["accept_rate"]),
            _hours(person["hours_left"]),
        ]
        for person in summary["annotators"]
    ]
    total = _hours(summary["hours_left"])
    return table(columns, rows) + (f"\nexpected in all: {total}" if total else "")


def _agreement_text(agreement: Mapping[str, Any]) -> str:
    rows = [
        [
            f"{name} ({one['kind']})" if name == "kappa" else name,
            one["value"],
            one["low"],
            one["high"],
            one["n"],
        ]
        for name, one in agreement.items()
    ]
    return table(["agreement", "value", "low", "high", "candidates"], rows)


def _classes_text(classes: Mapping[str, Mapping[str, Any]], everything: bool) -> str:
    columns = ["waiting", "done", "accepted", "rejected", "disputed"]
    found = list(classes.items())
    if not everything and len(found) > _ROWS:
        found.sort(key=lambda item: -item[1]["waiting"] - item[1]["disputed"])
        found = found[:_ROWS]
    rows = [[wnid, row["name"], *(row[column] for column in columns)] for wnid, row in found]
    text = table(["wnid", "class", *columns], rows)
    left = len(classes) - len(found)
    return text + (f"\nand {left:,} more: --by-class" if left else "")


def _blind_text(accuracy: Mapping[str, Any] | None) -> str:
    if accuracy is None:
        return ""
    rows = []
    for name in ("accepted", "controls"):
        one = accuracy[name]
        share = {**one, "count": one["correct"], "of": one["answered"]}
        rows.append([name, _share(share), one["cannot_tell"], one["skipped"], one["unanswered"]])
    text = table(["blind test", "right", "cannot tell", "skipped", "unanswered"], rows)
    confusions = [
        [row["name"], row["picked_name"], row["of"], row["count"]]
        for row in accuracy["confusions"][:_ROWS]
    ]
    if confusions:
        text += "\n\n" + table(["labelled", "taken for", "among", "times"], confusions)
    if accuracy["not_blind"]:
        text += f"\nleft out: {accuracy['not_blind']:,} answers of people who knew the label"
    return text


def _share(share: Mapping[str, Any]) -> str:
    if not share["of"]:
        return "-"
    text = f"{share['count']:,} of {share['of']:,}"
    return f"{text} ({share['value']:.2f}; {share['low']:.2f} to {share['high']:.2f})"


def _rounded(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _hours(value: float | None) -> str:
    from curate.report.review_page import hours

    return "" if value is None else hours(value)
