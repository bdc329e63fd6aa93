"""Images, candidates, where they came from, and what was refused: written in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam, delete, func, insert, select, update

from curate.catalog.engine import insert_new, pieces
from curate.catalog.tables import (
    candidates,
    images,
    origins,
    refusals,
)


def known_image(connection: Connection, sha256: str) -> RowMapping | None:
    """The row of an image, or None."""
    row = connection.execute(select(images).where(images.c.sha256 == sha256)).first()
    return row._mapping if row else None


def count_images(connection: Connection) -> int:
    """The number of images."""
    return connection.scalar(select(func.count()).select_from(images)) or 0


def all_images(connection: Connection) -> Iterator[tuple[str, str]]:
    """(SHA-256, extension) of every image, in that order; memory does not grow."""
    query = select(images.c.sha256, images.c.extension).order_by(images.c.sha256)
    for row in connection.execution_options(yield_per=1000).execute(query):
        yield row.sha256, row.extension


def first_origins(connection: Connection, keys: Sequence[str]) -> dict[str, tuple[int, str, str]]:
    """For each candidate of `keys` that is there: (id, source, locator) of its first origin."""
    found: dict[str, tuple[int, str, str]] = {}
    for some in pieces(keys):
        query = (
            select(candidates.c.key, candidates.c.id, origins.c.source, origins.c.locator)
            .join(origins, origins.c.candidate_id == candidates.c.id)
            .where(candidates.c.key.in_(some))
            .order_by(origins.c.id)
        )
        for key, number, source, locator in connection.execute(query):
            found.setdefault(key, (number, source, locator))
    return found


def candidates_with_pixels(
    connection: Connection, pixel_hashes: Sequence[str]
) -> dict[tuple[str, str], str]:
    """(pixel hash, wnid) to the key of the first candidate with these pixels."""
    found: dict[tuple[str, str], str] = {}
    for some in pieces(pixel_hashes):
        query = (
            select(images.c.pixel_sha256, candidates.c.wnid, candidates.c.key)
            .join(candidates, candidates.c.sha256 == images.c.sha256)
            .where(images.c.pixel_sha256.in_(some))
            .order_by(candidates.c.id)
        )
        for pixels, wnid, key in connection.execute(query):
            found.setdefault((pixels, wnid), key)
    return found


def perceptual_hashes(connection: Connection, wnid: str) -> Iterator[tuple[str, str]]:
    """(candidate key, perceptual hash) of a class's candidates in the order of arrival."""
    query = (
        select(candidates.c.key, images.c.perceptual_hash)
        .join(images, images.c.sha256 == candidates.c.sha256)
        .where(candidates.c.wnid == wnid)
        .order_by(candidates.c.id)
    )
    for row in connection.execute(query):
        yield row.key, row.perceptual_hash


def add_images(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Add images that are not there yet."""
    insert_new(connection, images, rows, ["sha256"])


def add_candidates(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Add candidates that are not there yet, in the order given."""
    insert_new(connection, candidates, rows, ["key"])


def candidate_ids(connection: Connection, keys: Sequence[str]) -> dict[str, int]:
    """Key to id of the candidates that are there."""
    found: dict[str, int] = {}
    for some in pieces(keys):
        query = select(candidates.c.key, candidates.c.id).where(candidates.c.key.in_(some))
        found.update((key, number) for key, number in connection.execute(query))
    return found


#: What a table may tell of an origin later than at first.
_TOLD = ("collection", "page", "title", "author")


def set_origins(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Record where candidates came from; what is told anew replaces what was told before."""
    insert_new(connection, origins, rows, ["candidate_id", "source", "locator"])
    told = [row for row in rows if row["licence_text"] or any(row[name] for name in _TOLD)]
    for row in told:
        values = {name: row[name] for name in _TOLD if row[name]}
        if row["licence_text"]:
            values |= {n: row[n] for n in ("licence", "licence_url", "licence_text")}
        connection.execute(
            update(origins)
            .where(
                origins.c.candidate_id == row["candidate_id"],
                origins.c.source == row["source"],
                origins.c.locator == row["locator"],
            )
            .values(values)
        )


def set_refusals(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Record refused items; the newest reason of an item replaces the one before."""
    if not rows:
        return
    connection.execute(
        delete(refusals).where(
            refusals.c.source == bindparam("b_source"), refusals.c.locator == bindparam("b_locator")
        ),
        [{"b_source": row["source"], "b_locator": row["locator"]} for row in rows],
    )
    connection.execute(insert(refusals), list(rows))


def clear_refusals(connection: Connection, items: Sequence[tuple[str, str]]) -> None:
    """Forget the refusals of (source, locator) items that were taken after all."""
    if items:
        connection.execute(
            delete(refusals).where(
                refusals.c.source == bindparam("b_source"),
                refusals.c.locator == bindparam("b_locator"),
            ),
            [{"b_source": source, "b_locator": locator} for source, locator in items],
        )


def refused(connection: Connection) -> Iterator[RowMapping]:
    """Every refused item, by source and locator."""
    query = select(refusals).order_by(refusals.c.source, refusals.c.locator)
    for row in connection.execute(query):
        yield row._mapping


def origins_of(connection: Connection, candidate_ids: Sequence[int]) -> dict[int, list[RowMapping]]:
    """The origins of candidates, oldest first."""
    found: dict[int, list[RowMapping]] = {number: [] for number in candidate_ids}
    for some in pieces(candidate_ids):
        query = select(origins).where(origins.c.candidate_id.in_(some)).order_by(origins.c.id)
        for row in connection.execute(query):
            found[row.candidate_id].append(row._mapping)
    return found


def images_of(connection: Connection, sha256s: Sequence[str]) -> dict[str, RowMapping]:
    """The rows of images by SHA-256."""
    found: dict[str, RowMapping] = {}
    for some in pieces(sha256s):
        for row in connection.execute(select(images).where(images.c.sha256.in_(some))):
            found[row.sha256] = row._mapping
    return found
