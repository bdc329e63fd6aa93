"""What was measured of images' quality."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from curate.catalog.engine import pieces
from curate.catalog.tables import candidates, images

#: An image's measurements by name; None where it was taken in before there were any.
Measured = Mapping[str, Any] | None


def of_candidates(
    connection: Connection, ids: Sequence[int] | None = None
) -> Iterator[tuple[int, Measured]]:
    """(id, measurements) of the candidates `ids` (all for None), in any order."""
    query = select(candidates.c.id, images.c.quality).join(
        images, images.c.sha256 == candidates.c.sha256
    )
    queries = (
        [query] if ids is None else [query.where(candidates.c.id.in_(some)) for some in pieces(ids)]
    )
    for one in queries:
        for row in connection.execution_options(yield_per=10_000).execute(one):
            yield row.id, row.quality


def of_images_after(
    connection: Connection, sha256: str, count: int, *, unhashed: bool = False
) -> list[tuple[str, str, Measured]]:
    """(SHA-256, extension, measurements) of the next `count` images after `sha256`, in order.

    Args:
        connection: a reading transaction.
        sha256: of the image before.
        count: at most so many.
        unhashed: only those without hashes of what they look like.
    """
    query = (
        select(images.c.sha256, images.c.extension, images.c.quality)
        .where(images.c.sha256 > sha256)
        .order_by(images.c.sha256)
        .limit(count)
    )
    if unhashed:
        query = query.where(images.c.perceptual_hash == "")
    return [(row.sha256, row.extension, row.quality) for row in connection.execute(query)]


def of_images(connection: Connection, sha256s: Sequence[str]) -> list[tuple[str, str, Measured]]:
    """(SHA-256, extension, measurements) of some images."""
    found = []
    for some in pieces(sha256s):
        columns = (images.c.sha256, images.c.extension, images.c.quality)
        query = select(*columns).where(images.c.sha256.in_(some))
        found += [(row.sha256, row.extension, row.quality) for row in connection.execute(query)]
    return found


def set_looks(connection: Connection, looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Record hashes and measurements by the SHA-256 of their image.

    Args:
        connection: a writing transaction.
        looks: SHA-256 to `pixel_sha256`, `perceptual_hash` and `quality`.
    """
    if looks:
        connection.execute(
            update(images).where(images.c.sha256 == bindparam("b_sha256")),
            [{"b_sha256": sha256, **values} for sha256, values in looks.items()],
        )
