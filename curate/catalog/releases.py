"""The releases of a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select

from curate.catalog.tables import release_items, releases


def add_release(
    connection: Connection, release: dict[str, Any], items: Sequence[dict[str, Any]]
) -> None:
    """Record a release that stands on the disk."""
    connection.execute(insert(releases).values(release))
    if items:
        connection.execute(insert(release_items), list(items))


def all_releases(connection: Connection) -> list[RowMapping]:
    """Every release, oldest first."""
    rows = connection.execute(select(releases).order_by(releases.c.built, releases.c.version))
    return [row._mapping for row in rows]


def candidates_of(connection: Connection, version: str) -> set[int]:
    """The ids of the candidates that a release holds."""
    query = select(release_items.c.candidate_id).where(release_items.c.version == version)
    return set(connection.scalars(query))
