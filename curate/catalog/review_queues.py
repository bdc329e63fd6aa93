"""Projects at a Label Studio, and the tasks that were given out there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Text,
    bindparam,
    cast,
    func,
    insert,
    select,
    update,
)

from curate.catalog.engine import pieces
from curate.catalog.review_tables import annotators, review_projects, review_tasks
from curate.catalog.tables import candidates, controls, images, now, verdicts

#: Rows that are held at a time where they are read as they are asked for.
_ROWS_AT_ONCE = 10_000

#: What pages must know of an image.
_SHOWN = ("sha256", "extension", "format", "mode", "notes", "width", "height")


def projects(
    connection: Connection, server: str | None = None, purpose: str | None = None
) -> list[RowMapping]:
    """All projects in the order in which they were made, those that are gone among them.

    Args:
        connection: a transaction.
        server: only those of this server; empty for the workspace's own.
        purpose: only those for this.
    """
    query = select(review_projects).order_by(review_projects.c.id)
    if server is not None:
        query = query.where(review_projects.c.server == server)
    if purpose is not None:
        query = query.where(review_projects.c.purpose == purpose)
    return list(connection.execute(query).mappings())


def add_project(connection: Connection, values: Mapping[str, Any]) -> RowMapping:
    """Record a project before it is made; it is open, and has no number yet."""
    row = {"state": "open", "made": now(), **values}
    made = connection.execute(insert(review_projects).values(row)).inserted_primary_key
    assert made is not None
    return project(connection, made[0])


def project(connection: Connection, project_id: int) -> RowMapping:
    """The row of a project."""
    query = select(review_projects).where(review_projects.c.id == project_id)
    return connection.execute(query).mappings().one()


def update_project(connection: Connection, project_id: int, values: Mapping[str, Any]) -> None:
    """Change columns of a project."""
    change = update(review_projects).where(review_projects.c.id == project_id)
    connection.execute(change.values(dict(values)))


def lose_project(connection: Connection, project_id: int) -> None:
    """Record that somebody has deleted a project, and with it the tasks nobody had answered."""
    update_project(connection, project_id, {"state": "gone"})
    connection.execute(
        update(review_tasks)
        .where(
            review_tasks.c.project_id == project_id,
            review_tasks.c.state.in_(("open", "lapsed", "withdrawn")),
        )
        .values(state="gone")
    )


def given_out(connection: Connection, purpose: str) -> Iterator[RowMapping]:
    """Every task of somebody's own queue, at any server, in any order.

    Rows have `id`, `candidate`, `place`, `gold`, `state` and `until`, the annotator's `name`, and
    their project's `server` and `project_state`. They are read as they are asked for, within the
    transaction.
    """
    names = ("id", "candidate", "place", "gold", "state", "until")
    query = (
        select(
            *(review_tasks.c[name] for name in names),
            annotators.c.name,
            review_projects.c.server,
            review_projects.c.state.label("project_state"),
        )
        .join(review_projects, review_projects.c.id == review_tasks.c.project_id)
        .join(annotators, annotators.c.id == review_projects.c.annotator_id)
        .where(review_projects.c.purpose == purpose)
    )
    rows = connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE))
    yield from rows.mappings()


def give_out(connection: Connection, project_id: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Give tasks out in a project.

    A candidate that was given out there before keeps its row: the task of a lapsed lease is still
    at the server; one that was deleted there is sent anew.

    Args:
        connection: a writing transaction.
        project_id: of the project.
        rows: `candidate`, `sha256`, `wnid`, `place`, `gold` and `until` of each.
    """
    there: dict[str, RowMapping] = {}
    for some in pieces([row["candidate"] for row in rows]):
        query = select(review_tasks).where(
            review_tasks.c.project_id == project_id, review_tasks.c.candidate.in_(some)
        )
        there.update((row["candidate"], row) for row in connection.execute(query).mappings())
    fresh = [
        {**row, "project_id": project_id, "state": "open", "sent": False, "number": None}
        for row in rows
        if row["candidate"] not in there
    ]
    again = [
        {
            "b_id": before["id"],
            "b_place": row["place"],
            "b_until": row["until"],
            "b_sent": before["sent"] and before["state"] != "gone",
            "b_number": None if before["state"] == "gone" else before["number"],
        }
        for row in rows
        if (before := there.get(row["candidate"])) is not None
    ]
    if fresh:
        connection.execute(insert(review_tasks), fresh)
    if again:
        change = update(review_tasks).where(review_tasks.c.id == bindparam("b_id"))
        kept: dict[str, Any] = {
            name: bindparam(f"b_{name}") for name in ("place", "until", "sent", "number")
        }
        connection.execute(change.values(state="open", **kept), again)


def unsent(
    connection: Connection,
    project_id: int,
    after: tuple[int, int] = (-1, 0),
    most: int | None = None,
) -> list[dict[str, Any]]:
    """The open tasks of a project that are not known to be at the server, by place.

    Args:
        connection: a transaction.
        project_id: of the project.
        after: place and id of a row: only those that come after it.
        most: at most so many; all for None.
    """
    place, number = after
    query = (
        select(review_tasks)
        .where(
            *_unsent(project_id),
            (review_tasks.c.place > place)
            | ((review_tasks.c.place == place) & (review_tasks.c.id > number)),
        )
        .order_by(review_tasks.c.place, review_tasks.c.id)
        .limit(most)
    )
    return list(map(dict, connection.execute(query).mappings()))


def count_unsent(connection: Connection, project_id: int) -> int:
    """How many rows `unsent` has."""
    query = select(func.count()).select_from(review_tasks).where(*_unsent(project_id))
    return connection.scalar(query) or 0


def _unsent(project_id: int) -> tuple[ColumnElement[bool], ...]:
    return (
        review_tasks.c.project_id == project_id,
        review_tasks.c.state == "open",
        review_tasks.c.number.is_(None),
    )


def mark(connection: Connection, task_ids: Sequence[int], **values: Any) -> None:
    """Change columns of tasks, for example `sent` or `state`."""
    for some in pieces(task_ids):
        change = update(review_tasks).where(review_tasks.c.id.in_(some))
        connection.execute(change.values(**values))


def set_numbers(connection: Connection, numbers: Mapping[int, int]) -> None:
    """Record Label Studio's numbers of tasks, by the ids of their rows."""
    if numbers:
        connection.execute(
            update(review_tasks)
            .where(review_tasks.c.id == bindparam("b_id"))
            .values(sent=True, number=bindparam("b_number")),
            [{"b_id": row, "b_number": number} for row, number in numbers.items()],
        )


def open_counts(connection: Connection, at: datetime) -> dict[int, int]:
    """How many tasks with a live lease each project has at the server, by the project's id."""
    live = (review_tasks.c.until.is_(None)) | (review_tasks.c.until > at)
    query = (
        select(review_tasks.c.project_id, func.count())
        .where(review_tasks.c.state == "open", review_tasks.c.number.is_not(None), live)
        .group_by(review_tasks.c.project_id)
    )
    return {project_id: count for project_id, count in connection.execute(query)}  # noqa: C416


def survivors(connection: Connection, run_id: str) -> Iterator[RowMapping]:
    """The survivors of a run in any order, as `judging.survivors` gives them, with `sha256` and
    `extension`."""
    query = (
        select(
            verdicts.c.candidate_id,
            candidates.c.key,
            candidates.c.sha256,
            images.c.extension,
            candidates.c.wnid,
            verdicts.c.predicted_wnid,
            verdicts.c.confidence,
        )
        .join(candidates, candidates.c.id == verdicts.c.candidate_id)
        .join(images, images.c.sha256 == candidates.c.sha256)
        .where(verdicts.c.run_id == run_id, verdicts.c.outcome == "survivor")
    )
    rows = connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE))
    yield from rows.mappings()


def control_sample(connection: Connection, run_id: str) -> list[RowMapping]:
    """A run's control sample in review order, with the columns of `survivors`."""
    said = (verdicts.c.run_id == run_id) & (verdicts.c.candidate_id == candidates.c.id)
    query = (
        select(
            controls.c.candidate_id,
            candidates.c.key,
            candidates.c.sha256,
            images.c.extension,
            candidates.c.wnid,
            verdicts.c.predicted_wnid,
            verdicts.c.confidence,
        )
        .join(candidates, candidates.c.id == controls.c.candidate_id)
        .join(images, images.c.sha256 == candidates.c.sha256)
        .outerjoin(verdicts, said)
        .where(controls.c.run_id == run_id)
        .order_by(controls.c.place)
    )
    return list(connection.execute(query).mappings())


def images_named(connection: Connection, sha256s: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What pages must know of images, by SHA-256: extension, format, mode, notes and size."""
    found: dict[str, dict[str, Any]] = {}
    for some in pieces(list(dict.fromkeys(sha256s))):
        query = select(*(images.c[name] for name in _SHOWN)).where(images.c.sha256.in_(some))
        found.update((row["sha256"], dict(row)) for row in connection.execute(query).mappings())
    return found


def candidates_named(connection: Connection, keys: Sequence[str]) -> dict[str, RowMapping]:
    """`key`, `sha256` and `wnid` of candidates, by key; those that are none are left out."""
    found: dict[str, RowMapping] = {}
    for some in pieces(list(dict.fromkeys(keys))):
        query = select(candidates.c.key, candidates.c.sha256, candidates.c.wnid)
        rows = connection.execute(query.where(candidates.c.key.in_(some)))
        found.update((row["key"], row) for row in rows.mappings())
    return found


def task_of_each_kind(connection: Connection, project_ids: Sequence[int]) -> list[dict[str, Any]]:
    """Of each kind of image (format, mode, notes) the newest task that is at the server in one of
    these projects: `number` with the columns of `images_named`."""
    newest = (
        select(func.max(review_tasks.c.id).label("id"))
        .join(images, images.c.sha256 == review_tasks.c.sha256)
        .where(
            review_tasks.c.project_id.in_(project_ids),
            review_tasks.c.number.is_not(None),
            review_tasks.c.state != "gone",
        )
        # PostgreSQL compares no JSON.
        .group_by(images.c.format, images.c.mode, cast(images.c.notes, Text))
        .subquery()
    )
    query = (
        select(review_tasks.c.number, *(images.c[name] for name in _SHOWN))
        .join(newest, newest.c.id == review_tasks.c.id)
        .join(images, images.c.sha256 == review_tasks.c.sha256)
        .order_by(review_tasks.c.id)
    )
    return list(map(dict, connection.execute(query).mappings()))


def hashes_of(connection: Connection, candidate_ids: Sequence[int]) -> dict[int, str]:
    """The SHA-256 of the images of candidates, by their ids."""
    found: dict[int, str] = {}
    for some in pieces(candidate_ids):
        query = select(candidates.c.id, candidates.c.sha256).where(candidates.c.id.in_(some))
        found.update((number, sha256) for number, sha256 in connection.execute(query))
    return found


def recognised(connection: Connection, run_id: str) -> Iterator[RowMapping]:
    """What a run removed since a classifier recognised it at the centre crop, in any order:
    `key`, `sha256`, `wnid` and `p_true`."""
    query = (
        select(candidates.c.key, candidates.c.sha256, candidates.c.wnid, verdicts.c.p_true)
        .join(candidates, candidates.c.id == verdicts.c.candidate_id)
        .where(
            verdicts.c.run_id == run_id,
            verdicts.c.outcome == "removed",
            verdicts.c.reason == "correct",
            verdicts.c.view == 0,
        )
    )
    rows = connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE))
    yield from rows.mappings()
