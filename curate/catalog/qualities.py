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
    connection: Connection, sha256: str, count: int
) -> list[tuple[str, str, Measured]]:
    """(SHA-256, extension, measurements) of the next `count` images after `sha256`, in order."""
    query = (
        select(images.c.sha256, images.c.extension, images.c.quality)
        .where(images.c.sha256 > sha256)
        .order_by(images.c.sha256)
        .limit(count)
    )
    return [(row.sha256, row.extension, row.quality) for row in connection.execute(query)]


def set_measured(connection: Connection, measured: Mapping[str, Mapping[str, Any]]) -> None:
    """Record measurements by the SHA-256 of their image."""
    if measured:
        connection.execute(
            update(images).where(images.c.sha256 == bindparam("b_sha256")),
            [{"b_sha256": sha256, "quality": values} for sha256, values in measured.items()],
        )
