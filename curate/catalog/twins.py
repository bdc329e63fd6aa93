"""Candidates that show the same picture: what is compared, and what was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import BigInteger, Connection, RowMapping, case, cast, delete, func, insert, select

from curate.catalog.engine import pieces
from curate.catalog.tables import candidates, duplicates, images

_ROWS_AT_ONCE = 10_000


def ranked(connection: Connection) -> Iterator[RowMapping]:
    """Every candidate that has hashes, the best picture first.

    The larger picture is the better one, then the larger file, then the lower key: an order that
    depends on content alone.
    """
    query = (
        select(
            candidates.c.id,
            candidates.c.wnid,
            candidates.c.sha256,
            images.c.pixel_sha256,
            images.c.perceptual_hash,
        )
        .join(images, images.c.sha256 == candidates.c.sha256)
        .where(images.c.perceptual_hash != "")
        .order_by(
            # Of 32 bits in PostgreSQL, which the product may exceed.
            (cast(images.c.width, BigInteger) * images.c.height).desc(),
            images.c.bytes.desc(),
            candidates.c.key,
        )
    )
    rows = connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query)
    yield from rows.mappings()


def replace(connection: Connection, rows: Iterable[dict[str, Any]]) -> None:
    """Put what was found in the place of what was found before."""
    connection.execute(delete(duplicates))
    waiting = iter(rows)
    while some := list(islice(waiting, _ROWS_AT_ONCE)):
        connection.execute(insert(duplicates), some)


def stored_files(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Candidate id to the (SHA-256, extension) of its image."""
    found: dict[int, tuple[str, str]] = {}
    for some in pieces(ids):
        query = (
            select(candidates.c.id, candidates.c.sha256, images.c.extension)
            .join(images, images.c.sha256 == candidates.c.sha256)
            .where(candidates.c.id.in_(some))
        )
        found.update({row.id: (row.sha256, row.extension) for row in connection.execute(query)})
    return found


def pairs(connection: Connection, most: int | None = None) -> Iterator[RowMapping]:
    """Every duplicate with what it was found to show again, the most doubtful first.

    Rows have `kind`, `distance`, `against`, `item` and `dropped`; of the duplicate `id`, `key`,
    `wnid`, `sha256`, `extension`, `width`, `height` and `bytes`; and the same of the candidate that
    is kept, each with `kept_` before it, None where it was found in a set.

    Args:
        connection: a reading transaction.
        most: how many; all for None.
    """
    kept, kept_image = candidates.alias(), images.alias()

    def told(candidate: Any, image: Any, prefix: str) -> list[Any]:
        columns = [candidate.c[name] for name in ("id", "key", "wnid", "sha256")]
        columns += [image.c[name] for name in ("extension", "width", "height", "bytes")]
        return [column.label(prefix + column.name) for column in columns]

    names = ("kind", "distance", "against", "item", "dropped")
    query = (
        select(
            *(duplicates.c[name] for name in names),
            *told(candidates, images, ""),
            *told(kept, kept_image, "kept_"),
        )
        .join(candidates, candidates.c.id == duplicates.c.candidate_id)
        .join(images, images.c.sha256 == candidates.c.sha256)
        .outerjoin(kept, kept.c.id == duplicates.c.kept_id)
        .outerjoin(kept_image, kept_image.c.sha256 == kept.c.sha256)
        .order_by(
            case((duplicates.c.kind == "near", 0), else_=1),
            duplicates.c.distance.desc(),
            candidates.c.key,
        )
    )
    if most is not None:
        query = query.limit(most)
    rows = connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query)
    yield from rows.mappings()


def count(connection: Connection) -> int:
    """How many candidates are recorded as duplicates."""
    return connection.scalar(select(func.count()).select_from(duplicates)) or 0


def count_dropped(connection: Connection) -> int:
    """How many candidates stay out of the filter as duplicates."""
    query = select(func.count()).select_from(duplicates).where(duplicates.c.dropped)
    return connection.scalar(query) or 0


def ties(connection: Connection, ids: Sequence[int]) -> list[tuple[str, str]]:
    """Which candidates show nearly what another one does, as far as that is recorded: keys of both.

    Args:
        connection: a reading transaction.
        ids: of the first of each pair; the other one may be any.
    """
    kept = candidates.alias()
    found: list[tuple[str, str]] = []
    for some in pieces(ids):
        near = select(candidates.c.key, candidates.c.near_key).where(
            candidates.c.id.in_(some), candidates.c.near_key.is_not(None)
        )
        looked = (
            select(candidates.c.key, kept.c.key)
            .join(duplicates, duplicates.c.candidate_id == candidates.c.id)
            .join(kept, kept.c.id == duplicates.c.kept_id)
            .where(candidates.c.id.in_(some))
        )
        for query in (near, looked):
            found += [(a, b) for a, b in connection.execute(query)]
    return found
