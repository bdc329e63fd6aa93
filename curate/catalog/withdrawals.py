"""Tasks of people that show what was taken back: which they are, and that they wait no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from curate.catalog.review_tables import review_projects, review_tasks
from curate.catalog.tables import images

#: Rows that are held at a time where they are read as they are asked for.
_ROWS_AT_ONCE = 10_000


def shown_images(connection: Connection, purpose: str) -> Iterator[dict[str, Any]]:
    """What was ever given out for a purpose: `candidate`, and `sha256`, `pixel_sha256` and
    `perceptual_hash` of its image."""
    query = (
        select(review_tasks.c.candidate, *_LOOKS)
        .join(images, images.c.sha256 == review_tasks.c.sha256)
        .join(review_projects, review_projects.c.id == review_tasks.c.project_id)
        .where(review_projects.c.purpose == purpose)
        .distinct()
    )
    rows = connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE))
    yield from map(dict, rows.mappings())


def waiting_images(connection: Connection) -> Iterator[dict[str, Any]]:
    """The tasks that nobody has answered: `id`, and what `shown_images` tells of the image."""
    query = (
        select(review_tasks.c.id, *_LOOKS)
        .join(images, images.c.sha256 == review_tasks.c.sha256)
        .where(review_tasks.c.state.in_(("open", "lapsed")))
    )
    rows = connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE))
    yield from map(dict, rows.mappings())


def withdrawn_tasks(connection: Connection, server: str) -> list[RowMapping]:
    """The withdrawn tasks that may still be at a server, in the order in which they were given out.

    Rows have `id`, `candidate`, `sent`, `number`, and the project's `project_id`, `project` (its
    number there) and `title`.
    """
    query = (
        select(
            *(review_tasks.c[name] for name in ("id", "candidate", "sent", "number")),
            review_tasks.c.project_id,
            review_projects.c.number.label("project"),
            review_projects.c.title,
        )
        .join(review_projects, review_projects.c.id == review_tasks.c.project_id)
        .where(
            review_tasks.c.state == "withdrawn",
            review_projects.c.server == server,
            review_projects.c.state == "open",
            review_projects.c.number.is_not(None),
        )
        .order_by(review_tasks.c.id)
    )
    return list(connection.execute(query).mappings())


_LOOKS = (images.c.sha256, images.c.pixel_sha256, images.c.perceptual_hash)
