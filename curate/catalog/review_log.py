"""The human part as it was recorded: every answer, every queue, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Connection, RowMapping, and_, func, select

from curate.catalog.review_tables import (
    annotators,
    answers,
    gold,
    review_projects,
    review_tasks,
    set_aside,
)

#: Rows that are held at a time where they are read as they are asked for.
_ROWS_AT_ONCE = 10_000


def log(connection: Connection) -> Iterator[RowMapping]:
    """Every answer and every edit, with all purposes together, by time.

    The columns of `answers`, the annotator's `annotator` and `account`, the task's `sha256`, `wnid`
    and `known` (whether it was a gold item or a control), and `right`, the right decision on a gold
    item. They are read as they are asked for, within the transaction. The order depends on the
    answers alone, and not on when they were pulled.
    """
    task = and_(
        review_tasks.c.project_id == answers.c.project_id,
        review_tasks.c.candidate == answers.c.candidate,
    )
    query = (
        select(
            answers,
            annotators.c.name.label("annotator"),
            annotators.c.account,
            review_tasks.c.sha256,
            review_tasks.c.wnid,
            review_tasks.c.gold.label("known"),
            gold.c.decision.label("right"),
        )
        .join(annotators, annotators.c.id == answers.c.annotator_id)
        .outerjoin(review_tasks, task)
        .outerjoin(gold, gold.c.candidate == answers.c.candidate)
        # An entry is taken back at the time at which it was made, and by a later row.
        .order_by(answers.c.made, answers.c.entry, answers.c.id)
    )
    rows = connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE))
    yield from rows.mappings()


def unread(connection: Connection) -> list[RowMapping]:
    """The answers that stand and cannot be read, in the order in which they were seen: the columns
    of `set_aside` without what the server says, and the `title` of the project."""
    names = ("task", "annotation", "why", "seen")
    query = (
        select(*(set_aside.c[name] for name in names), review_projects.c.title)
        .join(review_projects, review_projects.c.id == set_aside.c.project_id)
        .where(set_aside.c.settled.is_(False))
        .order_by(set_aside.c.id)
    )
    return list(connection.execute(query).mappings())


def open_tasks(connection: Connection, at: datetime) -> dict[tuple[str, int | None], int]:
    """How many tasks wait for somebody at a server: by purpose, and the number of the annotator
    whose queue it is; None for whoever opens it.

    Who has a queue and nothing to do in it counts as well, with 0.

    Args:
        connection: a transaction.
        at: leases that have ended by then count no more.
    """
    waits = and_(
        review_tasks.c.project_id == review_projects.c.id,
        review_tasks.c.state == "open",
        review_tasks.c.number.is_not(None),
        (review_tasks.c.until.is_(None)) | (review_tasks.c.until > at),
    )
    query = (
        select(
            review_projects.c.purpose,
            review_projects.c.annotator_id,
            func.count(review_tasks.c.id),
        )
        .outerjoin(review_tasks, waits)
        .where(review_projects.c.state == "open")
        .group_by(review_projects.c.purpose, review_projects.c.annotator_id)
    )
    return {(purpose, person): count for purpose, person, count in connection.execute(query)}


def totals(connection: Connection) -> dict[str, int]:
    """`pushed`, the tasks for review that were ever at a server, and `pulled`, the answers and
    edits of all purposes that have come home."""
    pushed = (
        select(func.count())
        .select_from(review_tasks)
        .join(review_projects, review_projects.c.id == review_tasks.c.project_id)
        .where(review_projects.c.purpose == "review", review_tasks.c.number.is_not(None))
    )
    pulled = select(func.count()).select_from(answers)
    return {
        "pushed": connection.scalar(pushed) or 0,
        "pulled": connection.scalar(pulled) or 0,
    }
