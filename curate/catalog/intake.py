"""Images, candidates, where they came from, and what was refused: written in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, func, literal, select, update

from curate.catalog.engine import pieces, upsert
from curate.catalog.tables import (
    candidates,
    controls,
    duplicates,
    images,
    origins,
    refusals,
    release_items,
    verdicts,
)
from curate.files import sha256_bytes


def known_image(connection: Connection, sha256: str) -> RowMapping | None:
    """The row of an image, or None."""
    row = connection.execute(select(images).where(images.c.sha256 == sha256)).first()
    return row._mapping if row else None


def image_hashes(connection: Connection) -> Iterator[str]:
    """The SHA-256 of every image, in no order."""
    yield from connection.execution_options(yield_per=10_000).scalars(select(images.c.sha256))


def count_images(connection: Connection) -> int:
    """The number of images."""
    return connection.scalar(select(func.count()).select_from(images)) or 0


def images_after(connection: Connection, sha256: str, count: int) -> list[tuple[str, str]]:
    """The (SHA-256, extension) of the next `count` images after `sha256`, in that order."""
    query = (
        select(images.c.sha256, images.c.extension)
        .where(images.c.sha256 > sha256)
        .order_by(images.c.sha256)
        .limit(count)
    )
    return [(row.sha256, row.extension) for row in connection.execute(query)]


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
    for some in pieces([told for told in pixel_hashes if told]):
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
    """(candidate key, perceptual hash) of a class's candidates in the order of arrival.

    Those that were not looked at yet are left out.
    """
    query = (
        select(candidates.c.key, images.c.perceptual_hash)
        .join(images, images.c.sha256 == candidates.c.sha256)
        .where(candidates.c.wnid == wnid, images.c.perceptual_hash != "")
        .order_by(candidates.c.id)
    )
    for row in connection.execute(query):
        yield row.key, row.perceptual_hash


def add_images(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Add images that are not there yet."""
    upsert(connection, images, rows, "sha256")


def add_candidates(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Add candidates that are not there yet, in the order given."""
    upsert(connection, candidates, rows, "key")


def candidate_ids(connection: Connection, keys: Sequence[str]) -> dict[str, int]:
    """Key to id of the candidates that are there."""
    found: dict[str, int] = {}
    for some in pieces(keys):
        query = select(candidates.c.key, candidates.c.id).where(candidates.c.key.in_(some))
        found.update((key, number) for key, number in connection.execute(query))
    return found


#: What a table may tell of an origin later than at first.
_TOLD = ("collection", "page", "title", "author")


def origin_key(candidate_id: int, source: str, locator: str) -> str:
    """The key of an origin."""
    return _key(str(candidate_id), source, locator)


def refusal_key(source: str, locator: str, label: str) -> str:
    """The key of a refused item."""
    return _key(source, locator, label)


def _key(*parts: str) -> str:
    return sha256_bytes("\0".join(parts).encode())


def set_origins(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Record where candidates came from; what is told anew replaces what was told before.

    Args:
        connection: a writing transaction.
        rows: origins without their keys.
    """
    keyed = [
        {"key": origin_key(row["candidate_id"], row["source"], row["locator"]), **row}
        for row in rows
    ]
    there: set[str] = set()
    for some in pieces([row["key"] for row in keyed]):
        there.update(connection.scalars(select(origins.c.key).where(origins.c.key.in_(some))))
    # A number that is tried in vain is lost in PostgreSQL, and there are no more than 2^31.
    upsert(connection, origins, [row for row in keyed if row["key"] not in there], "key")
    for row in keyed:
        if row["key"] not in there:
            continue
        values = {name: row[name] for name in _TOLD if row[name]}
        if row["licence_text"]:
            values |= {n: row[n] for n in ("licence", "licence_url", "licence_text")}
        if values:
            connection.execute(update(origins).where(origins.c.key == row["key"]).values(values))


def set_refusals(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Record refused items; the newest reason of an item replaces the one before.

    Args:
        connection: a writing transaction.
        rows: refusals without their keys.
    """
    keyed = [
        {"key": refusal_key(row["source"], row["locator"], row["label"]), **row} for row in rows
    ]
    upsert(connection, refusals, keyed, "key", ("reason", "detail", "seen"))


def clear_refusals(connection: Connection, keys: Sequence[str]) -> None:
    """Forget the refusals, by key, of items that were taken after all."""
    for some in pieces(keys):
        connection.execute(delete(refusals).where(refusals.c.key.in_(some)))


def withdraw_image(connection: Connection, sha256: str, local: Iterable[str]) -> list[int]:
    """Take back the candidates of an image that nothing was built on; its file is left.

    Args:
        connection: a writing transaction.
        sha256: of the image.
        local: sources of the user's own; what they hold stays.

    Returns:
        Their ids; none, and nothing is changed, where a run judged one of them, or a source of
        the user's own holds one.
    """
    mine = select(candidates.c.id).where(candidates.c.sha256 == sha256)
    numbers = list(connection.scalars(mine))
    if not numbers:
        return []
    for table in (verdicts, release_items, controls):
        if connection.scalar(select(func.count()).where(table.c.candidate_id.in_(mine))):
            return []
    own = select(func.count()).where(
        origins.c.candidate_id.in_(mine), origins.c.source.in_(sorted(local))
    )
    if connection.scalar(own):
        return []
    of_mine = duplicates.c.candidate_id.in_(mine) | duplicates.c.kept_id.in_(mine)
    connection.execute(delete(duplicates).where(of_mine))
    connection.execute(delete(origins).where(origins.c.candidate_id.in_(mine)))
    connection.execute(delete(candidates).where(candidates.c.sha256 == sha256))
    return numbers


def images_unused(connection: Connection) -> list[tuple[str, str]]:
    """(SHA-256, extension) of images that no candidate shows."""
    query = select(images.c.sha256, images.c.extension).where(
        images.c.sha256.not_in(select(candidates.c.sha256))
    )
    return [(row.sha256, row.extension) for row in connection.execute(query)]


def remove_image(connection: Connection, sha256: str) -> None:
    """Forget an image that no candidate shows; its file is gone already."""
    connection.execute(delete(images).where(images.c.sha256 == sha256))


def refused(connection: Connection) -> Iterator[RowMapping]:
    """Every refused item, by source, locator and label; their `url` is empty."""
    order = (refusals.c.source, refusals.c.locator, refusals.c.label)
    query = select(refusals, literal("").label("url")).order_by(*order)
    for row in connection.execution_options(yield_per=1000).execute(query):
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
