"""What people have said: read for those who count it, and added to by a pull; never changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam, func, insert, select, union, update

from curate.catalog.engine import pieces, upsert
from curate.catalog.review_tables import (
    annotators,
    answers,
    gold,
    review_projects,
    review_tasks,
    set_aside,
)
from curate.catalog.tables import candidates, controls, verdicts


def said(connection: Connection, purpose: str) -> list[RowMapping]:
    """Every answer and edit that was given for a purpose, with its annotator's name as `annotator`,
    in the order in which they were pulled: of an entry the last one here says what became of it."""
    query = (
        select(
            annotators.c.name.label("annotator"),
            *(
                answers.c[name]
                for name in (
                    "entry",
                    "candidate",
                    "event",
                    "decision",
                    "reasons",
                    "corrected",
                    "also",
                    "picked",
                    "note",
                    "seconds",
                    "made",
                )
            ),
        )
        .join(annotators, annotators.c.id == answers.c.annotator_id)
        .where(answers.c.purpose == purpose)
        .order_by(answers.c.id)
    )
    return list(connection.execute(query).mappings())


def asked(connection: Connection, purpose: str) -> dict[str, str]:
    """Every candidate that was ever given out for a purpose, gold items among them, with its label,
    in the order in which they were given out."""
    query = (
        select(review_tasks.c.candidate, review_tasks.c.wnid)
        .join(review_projects, review_projects.c.id == review_tasks.c.project_id)
        .where(review_projects.c.purpose == purpose)
        .order_by(review_tasks.c.id)
    )
    found: dict[str, str] = {}
    for candidate, wnid in connection.execute(query):
        found.setdefault(candidate, wnid)
    return found


def places(connection: Connection, purpose: str) -> dict[str, int]:
    """The first place that each candidate has in anybody's queue."""
    query = (
        select(review_tasks.c.candidate, func.min(review_tasks.c.place))
        .join(review_projects, review_projects.c.id == review_tasks.c.project_id)
        .where(review_projects.c.purpose == purpose)
        .group_by(review_tasks.c.candidate)
    )
    return {candidate: place for candidate, place in connection.execute(query)}  # noqa: C416


def shown(connection: Connection, purpose: str, keys: Collection[str]) -> dict[str, str]:
    """The SHA-256 of the photo that was shown of each of some candidates."""
    found: dict[str, str] = {}
    for some in pieces(sorted(keys)):
        query = (
            select(review_tasks.c.candidate, review_tasks.c.sha256)
            .join(review_projects, review_projects.c.id == review_tasks.c.project_id)
            .where(review_projects.c.purpose == purpose, review_tasks.c.candidate.in_(some))
        )
        found.update((candidate, sha256) for candidate, sha256 in connection.execute(query))
    return found


def given_in(connection: Connection, project_id: int) -> set[str]:
    """The candidates that were given out in a project, but for those whose task was deleted."""
    query = select(review_tasks.c.candidate).where(
        review_tasks.c.project_id == project_id, review_tasks.c.state != "gone"
    )
    return set(connection.scalars(query))


def next_place(connection: Connection, project_id: int) -> int:
    """The place after the last one in the queue of a project."""
    last = select(func.max(review_tasks.c.place)).where(review_tasks.c.project_id == project_id)
    found = connection.scalar(last)
    return 0 if found is None else found + 1


def question_asked(connection: Connection) -> str | None:
    """The question that people were asked first; None before anybody was asked."""
    query = select(review_projects.c.record).order_by(review_projects.c.id)
    told = (record.get("question") for record in connection.scalars(query))
    return next((question for question in told if question), None)


def any_asked(connection: Connection) -> bool:
    """Whether anything was ever given out to people."""
    return connection.execute(select(review_tasks.c.id).limit(1)).first() is not None


def gold_items(connection: Connection) -> dict[str, str]:
    """The right decision on each gold item, by key."""
    rows = connection.execute(select(gold.c.candidate, gold.c.decision).order_by(gold.c.candidate))
    return {candidate: decision for candidate, decision in rows}  # noqa: C416


def control_keys(connection: Connection, run_id: str | None = None) -> set[str]:
    """The keys of the candidates of a run's control sample, or of those of all runs."""
    query = select(candidates.c.key).join(controls, controls.c.candidate_id == candidates.c.id)
    if run_id is not None:
        query = query.where(controls.c.run_id == run_id)
    return set(connection.scalars(query))


def survivors_among(
    connection: Connection, run_id: str, keys: Collection[str]
) -> dict[str, RowMapping]:
    """Which of some candidates survived a run: by key, as `curate.catalog.judging.survivors`."""
    found: dict[str, RowMapping] = {}
    for some in pieces(sorted(keys)):
        query = (
            select(
                verdicts.c.candidate_id,
                candidates.c.key,
                candidates.c.wnid,
                verdicts.c.predicted_wnid,
                verdicts.c.confidence,
            )
            .join(candidates, candidates.c.id == verdicts.c.candidate_id)
            .where(
                verdicts.c.run_id == run_id,
                verdicts.c.outcome == "survivor",
                candidates.c.key.in_(some),
            )
        )
        found.update((row["key"], row) for row in connection.execute(query).mappings())
    return found


def count_set_aside(connection: Connection) -> int:
    """How many answers stand that cannot be read."""
    query = select(func.count()).select_from(set_aside).where(set_aside.c.settled.is_(False))
    return connection.scalar(query) or 0


def tasks_numbered(
    connection: Connection, project_id: int, numbers: Sequence[int]
) -> dict[int, RowMapping]:
    """Which of some tasks of a project at the server were given out, by Label Studio's number."""
    found: dict[int, RowMapping] = {}
    for some in pieces(numbers):
        query = select(review_tasks).where(
            review_tasks.c.project_id == project_id, review_tasks.c.number.in_(some)
        )
        found.update((row["number"], row) for row in connection.execute(query).mappings())
    return found


def live_tasks(connection: Connection, project_id: int) -> dict[int, RowMapping]:
    """The tasks of a project that are at the server as far as is known, by its number."""
    query = select(review_tasks).where(
        review_tasks.c.project_id == project_id,
        review_tasks.c.state != "gone",
        review_tasks.c.number.is_not(None),
    )
    return {row["number"]: row for row in connection.execute(query).mappings()}


def doubtful_tasks(connection: Connection, project_id: int) -> list[RowMapping]:
    """The tasks of a project that may be at the server under a number that is not known."""
    query = select(review_tasks).where(
        review_tasks.c.project_id == project_id,
        review_tasks.c.sent.is_(True),
        review_tasks.c.number.is_(None),
        review_tasks.c.state != "gone",
    )
    return list(connection.execute(query.order_by(review_tasks.c.id)).mappings())


def entries_of(connection: Connection, project_id: int, tasks: Sequence[int]) -> list[RowMapping]:
    """What is known of some tasks' annotations, in the order in which it was pulled."""
    found: list[RowMapping] = []
    for some in pieces(tasks):
        query = select(answers).where(answers.c.project_id == project_id, answers.c.task.in_(some))
        found += connection.execute(query.order_by(answers.c.id)).mappings()
    return found


def aside_of(connection: Connection, project_id: int, tasks: Sequence[int]) -> list[RowMapping]:
    """The annotations of some tasks that could not be read, in the order in which they came."""
    found: list[RowMapping] = []
    for some in pieces(tasks):
        query = select(set_aside).where(
            set_aside.c.project_id == project_id, set_aside.c.task.in_(some)
        )
        found += connection.execute(query.order_by(set_aside.c.id)).mappings()
    return found


def add_answers(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add what was pulled, in this order. Nothing that is there is ever changed."""
    if rows:
        connection.execute(insert(answers), [dict(row) for row in rows])


def put_aside(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep annotations that cannot be read; what is there already stands again."""
    upsert(connection, set_aside, [dict(row) for row in rows], "key", ("settled",))


def settle(connection: Connection, ids: Sequence[int]) -> None:
    """Record that annotations can be read now, or are gone, by the ids of their rows."""
    for some in pieces(ids):
        change = update(set_aside).where(set_aside.c.id.in_(some))
        connection.execute(change.values(settled=True))


def aside_elsewhere(connection: Connection, project_id: int, tasks: Collection[int]) -> list[int]:
    """The ids of what is set aside and stands, of tasks of a project that are not among some."""
    query = select(set_aside.c.id, set_aside.c.task).where(
        set_aside.c.project_id == project_id, set_aside.c.settled.is_(False)
    )
    return [number for number, task in connection.execute(query) if task not in tasks]


def set_task_states(connection: Connection, states: Mapping[int, str]) -> None:
    """Record what became of tasks, by the ids of their rows."""
    if states:
        connection.execute(
            update(review_tasks)
            .where(review_tasks.c.id == bindparam("b_id"))
            .values(state=bindparam("b_state")),
            [{"b_id": number, "b_state": state} for number, state in states.items()],
        )


def annotated_tasks(connection: Connection, project_id: int) -> set[int]:
    """The numbers of a project's tasks with annotations at the server, as far as is known."""
    return set(connection.scalars(select(_at_the_server(project_id).c.task)))


def count_annotations(connection: Connection, project_id: int) -> int:
    """How many annotations of a project are at the server as far as is known, read or not."""
    there = _at_the_server(project_id)
    return connection.scalar(select(func.count()).select_from(there)) or 0


def _at_the_server(project_id: int) -> Any:
    newest = (
        select(func.max(answers.c.id))
        .where(answers.c.project_id == project_id)
        .group_by(answers.c.entry)
    )
    live = select(review_tasks.c.number).where(
        review_tasks.c.project_id == project_id,
        review_tasks.c.state != "gone",
        review_tasks.c.number.is_not(None),
    )
    read = select(answers.c.task, answers.c.annotation).where(
        answers.c.id.in_(newest), answers.c.event != "deleted", answers.c.task.in_(live)
    )
    aside = select(set_aside.c.task, set_aside.c.annotation).where(
        set_aside.c.project_id == project_id, set_aside.c.settled.is_(False)
    )
    # An annotation that could be read once and is set aside now is in both.
    return union(read, aside).subquery()
