"""Images that were taken back: what is remembered of them, and what holds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, insert, select

from curate.catalog.tables import candidates, images, release_items, tombstones


def add_tombstone(connection: Connection, row: dict[str, Any]) -> None:
    """Take an image back that is not taken back yet."""
    connection.execute(insert(tombstones).values(row))


def all_tombstones(connection: Connection) -> list[dict[str, Any]]:
    """Every tombstone, oldest first."""
    order = (tombstones.c.retracted, tombstones.c.sha256)
    rows = connection.execute(select(tombstones).order_by(*order))
    return [dict(row._mapping) for row in rows]


def images_meant(connection: Connection, digits: str) -> set[str]:
    """The SHA-256 of images that begin with some digits, and of the candidate with that key."""
    of_images = select(images.c.sha256).where(images.c.sha256.startswith(digits))
    of_key = select(candidates.c.sha256).where(candidates.c.key == digits)
    return {*connection.scalars(of_images), *connection.scalars(of_key)}


def images_at(connection: Connection, path: str, version: str | None = None) -> set[str]:
    """The SHA-256 of the images that stand at a path in any version, or in one."""
    query = (
        select(candidates.c.sha256)
        .join(release_items, release_items.c.candidate_id == candidates.c.id)
        .where(release_items.c.path == path)
    )
    if version is not None:
        query = query.where(release_items.c.version == version)
    return set(connection.scalars(query))


def released_images(connection: Connection) -> Iterator[dict[str, Any]]:
    """What every version holds: version, path, label, SHA-256 and the hashes of the pixels."""
    query = (
        select(
            release_items.c.version,
            release_items.c.path,
            candidates.c.wnid,
            images.c.sha256,
            images.c.pixel_sha256,
            images.c.perceptual_hash,
        )
        .join(candidates, candidates.c.id == release_items.c.candidate_id)
        .join(images, images.c.sha256 == candidates.c.sha256)
        .order_by(release_items.c.version, release_items.c.path)
    )
    for row in connection.execution_options(yield_per=10_000).execute(query):
        yield dict(row._mapping)
