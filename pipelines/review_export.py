"""Everything that people have said, and what they have accepted, as tables for others to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import RowMapping

from annotation.answers import DECISIONS, Answer, Decision, Question, standing
from curate.catalog import review_log
from curate.catalog import review_queues as queues
from curate.errors import UsageError
from curate.files import atomic_write, canonical_json, csv_lines, printable
from pipelines.review_outcomes import GONE, TAKEN_BACK, accepted, question_of
from pipelines.workspace import Workspace

#: How a table is written.
Form = Literal["csv", "jsonl"]

#: What is told of each answer and each edit.
COLUMNS = (
    "made",
    "purpose",
    "event",
    "stands",
    "annotator",
    "candidate",
    "sha256",
    "wnid",
    "decision",
    "counts_as",
    "reasons",
    "corrected",
    "also",
    "picked",
    "note",
    "seconds",
    "gold",
    "control",
    "entry",
    "task",
    "annotation",
)

#: What is told of each accepted candidate.
ACCEPTED_COLUMNS = ("candidate", "sha256", "wnid", "votes", "adjudicated")

# Between the words of one cell.
_BETWEEN = ";"


def answer_rows(workspace: Workspace, *, accounts: bool = False) -> Iterator[dict[str, Any]]:
    """Every answer and every edit, gold items, adjudications and blind tests among them.

    Nothing is left out: what was edited later or taken back is there as it was said, and `stands`
    says which answers count now. The order is that of time; the same answers give the same rows.

    Args:
        workspace: the workspace.
        accounts: tell the mail addresses of annotators besides the names of their roles.

    Returns:
        Rows with `COLUMNS` (and `account`). `counts_as` is what an answer means by itself (a valid
        one that names other classes means several classes), `gold` the right decision on a gold
        item, and `control` whether a photo of a blind test is one of its controls.
    """
    with workspace.catalogue.read() as connection:
        question = question_of(workspace, connection)
        stands = _standing(review_log.log(connection), question)
        for row in review_log.log(connection):
            blind = row["purpose"] == "blind"
            told = {
                **row,
                "made": row["made"].isoformat(timespec="microseconds") + "Z",
                "stands": row["id"] in stands,
                # A blind answer is a class and no decision.
                "decision": None if blind else row["decision"],
                "counts_as": _counts_as(row, question),
                "gold": row["right"] if row["purpose"] == "review" else None,
                "control": blind and bool(row["known"]),
            }
            yield {name: told[name] for name in answer_columns(accounts=accounts)}


def answer_columns(*, accounts: bool = False) -> tuple[str, ...]:
    """The columns of `answer_rows`."""
    return (*COLUMNS, "account") if accounts else COLUMNS


def accepted_rows(workspace: Workspace, run_id: str | None = None) -> Iterator[dict[str, Any]]:
    """The accepted survivors of a run in review order.

    Args:
        workspace: the workspace.
        run_id: a finished run; the newest one by default.

    Returns:
        What `pipelines.review_outcomes.accepted` gives, as rows with `ACCEPTED_COLUMNS`. `votes`
        counts the answers that stand by what they mean; where an adjudicator decided they are the
        others'.

    Raises:
        UnknownNameError, UsageError: no such run, none has ended, or this one has not.
    """
    listed = accepted(workspace, run_id)
    with workspace.catalogue.read() as connection:
        known = queues.candidates_named(connection, [one.key for one in listed])
    # What is wrong is said by now, and not after the first line of a table.
    return (
        {
            "candidate": one.key,
            "sha256": known[one.key]["sha256"],
            "wnid": one.wnid,
            "votes": {decision.value: count for decision, count in one.outcome.votes.items()},
            "adjudicated": one.outcome.adjudicated,
        }
        for one in listed
    )


def table_lines(
    columns: Sequence[str], rows: Iterable[Mapping[str, Any]], form: Form
) -> Iterator[str]:
    """A table as text, a line at a time, each with its end.

    Args:
        columns: their names; as JSON Lines the keys of each object.
        rows: with these columns. In CSV several words in a cell are set apart by semicolons.
        form: "csv" or "jsonl".
    """
    if form == "jsonl":
        for row in rows:
            yield canonical_json({name: row[name] for name in columns}).decode() + "\n"
        return
    yield from csv_lines(columns, ([_cell(row[name]) for name in columns] for row in rows))


def write_lines(lines: Iterable[str], out: Path) -> int:
    """Write a table to a file, which appears whole or not at all.

    Returns:
        How many lines there are.

    Raises:
        UsageError: `out` names no possible file.
        StorageError: the disk is full.
    """
    check_target(out)
    count = 0
    with atomic_write(out) as stream:
        for line in lines:
            stream.write(line.encode("utf-8", "backslashreplace"))
            count += 1
    return count


def check_target(out: Path) -> None:
    """Refuse a path at which no file can be made.

    Raises:
        UsageError: it is a folder, or in none.
    """
    if out.is_dir():
        raise UsageError(f"{printable(out)} is a folder: name the file to write")
    if not out.parent.is_dir():
        raise UsageError(f"{printable(out.parent)} is no folder: make it first")


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return _BETWEEN.join(f"{name} {count}" for name, count in value.items())
    if isinstance(value, list | tuple):
        return _BETWEEN.join(map(str, value))
    return value


def _counts_as(row: RowMapping, question: Question) -> str | None:
    """What a row means by itself; None where it takes back, or is no answer to the question."""
    if row["purpose"] == "blind" or row["event"] in GONE:
        return None
    if row["event"] in TAKEN_BACK:
        return Decision.SKIPPED.value
    if row["decision"] not in DECISIONS[question]:
        return None
    return _answer(row).counts_as(question, row["wnid"]).value


def _answer(row: RowMapping) -> Answer:
    return Answer(
        row["candidate"],
        row["annotator"],
        Decision.SKIPPED if row["event"] in TAKEN_BACK else row["decision"],
        row["made"],
        row["entry"],
        tuple(row["reasons"]),
        row["corrected"],
        tuple(row["also"]),
        row["note"],
        row["seconds"],
    )


def _standing(rows: Iterable[RowMapping], question: Question) -> set[int]:
    """The numbers of the rows that count now, as `annotation.consensus` and the blind test do."""
    last: dict[str, tuple[int, str]] = {}
    given: dict[str, list[tuple[int, Answer]]] = {"review": [], "adjudication": [], "blind": []}
    for row in rows:
        last[row["entry"]] = max(last.get(row["entry"], (0, "")), (row["id"], row["event"]))
        answer = _answer_of(row, question)
        if answer is not None:
            given.setdefault(row["purpose"], []).append((row["id"], answer))
    found: set[int] = set()
    for purpose, answers in given.items():
        numbers: dict[int, int] = {}
        some = []
        for number, answer in answers:
            if last[answer.entry][1] in GONE:
                continue
            # The newest adjudication decides, whoever gave it.
            if purpose == "adjudication":
                answer = replace(answer, annotator="adjudicator")
            numbers[id(answer)] = number
            some.append(answer)
        found.update(numbers[id(answer)] for answer in standing(some))
    return found


def _answer_of(row: RowMapping, question: Question) -> Answer | None:
    if row["purpose"] == "blind":
        # Which class was picked says whether it is right; that something was said is enough here.
        decision = Decision.SKIPPED if row["event"] in TAKEN_BACK else Decision.VALID
        return Answer(row["candidate"], row["annotator"], decision, row["made"], row["entry"])
    if row["event"] not in TAKEN_BACK and row["decision"] not in DECISIONS[question]:
        return None
    return _answer(row)
