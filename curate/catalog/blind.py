"""Blind tests: which photos were shown to whom without a label, and who had seen them before.

A photo of known class, which says how well somebody can do, stands as a gold item.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, RowMapping, and_, func, or_, select, union, update

from curate.catalog.review_tables import annotators, answers, review_projects, review_tasks

#: Where the record of a project has the images that its pages have shown as examples.
EXAMPLES = "examples"


def blind_tasks(connection: Connection) -> list[RowMapping]:
    """Every photo that was ever given out for a blind test, in the order in which it was.

    The columns of `review_tasks`, the annotator's `name` and `account`, and the project's `server`,
    `record` and `project_state`.
    """
    query = (
        select(
            review_tasks,
            annotators.c.name,
            annotators.c.account,
            review_projects.c.server,
            review_projects.c.record,
            review_projects.c.state.label("project_state"),
        )
        .join(review_projects, review_projects.c.id == review_tasks.c.project_id)
        .join(annotators, annotators.c.id == review_projects.c.annotator_id)
        .where(review_projects.c.purpose == "blind")
        .order_by(review_tasks.c.id)
    )
    return list(connection.execute(query).mappings())


def labelled_images(connection: Connection, account: str) -> set[str]:
    """The SHA-256 of all images that somebody has been shown with a label: what they have answered,
    what stands in a queue of their own, and the examples on the pages of both.

    Args:
        connection: a transaction.
        account: mail address, in small letters.
    """
    task = and_(
        review_tasks.c.project_id == answers.c.project_id,
        review_tasks.c.candidate == answers.c.candidate,
    )
    answered = (
        select(review_tasks.c.sha256)
        .join(answers, task)
        .join(annotators, annotators.c.id == answers.c.annotator_id)
        .where(annotators.c.account == account, answers.c.purpose != "blind")
    )
    queued = (
        select(review_tasks.c.sha256)
        .join(review_projects, review_projects.c.id == review_tasks.c.project_id)
        .join(annotators, annotators.c.id == review_projects.c.annotator_id)
        .where(
            annotators.c.account == account,
            review_projects.c.purpose != "blind",
            review_tasks.c.sent.is_(True),
        )
    )
    person = select(annotators.c.id).where(annotators.c.account == account).scalar_subquery()
    opened = select(review_projects.c.record).where(
        review_projects.c.purpose != "blind",
        or_(
            review_projects.c.annotator_id == person,
            review_projects.c.id.in_(
                select(answers.c.project_id).where(answers.c.annotator_id == person)
            ),
        ),
    )
    examples = {one for record in connection.scalars(opened) for one in record.get(EXAMPLES, ())}
    return examples.union(connection.scalars(union(answered, queued)))


def remember_examples(connection: Connection, project_id: int, sha256s: Collection[str]) -> None:
    """Record which photos a project's pages show as examples of a class, before they do."""
    query = select(review_projects.c.record).where(review_projects.c.id == project_id)
    record = connection.scalars(query).one()
    known = set(record.get(EXAMPLES, ()))
    if not known.issuperset(sha256s):
        changed = {**record, EXAMPLES: sorted(known.union(sha256s))}
        change = update(review_projects).where(review_projects.c.id == project_id)
        connection.execute(change.values(record=changed))


def first_labelled(connection: Connection) -> dict[tuple[str, str], datetime]:
    """When somebody first answered about an image whose label they were told, by the annotator's
    name and the image's SHA-256."""
    task = and_(
        review_tasks.c.project_id == answers.c.project_id,
        review_tasks.c.candidate == answers.c.candidate,
    )
    query = (
        select(annotators.c.name, review_tasks.c.sha256, func.min(answers.c.made))
        .join(answers, answers.c.annotator_id == annotators.c.id)
        .join(review_tasks, task)
        .where(answers.c.purpose != "blind")
        .group_by(annotators.c.name, review_tasks.c.sha256)
    )
    return {(name, sha256): made for name, sha256, made in connection.execute(query)}
