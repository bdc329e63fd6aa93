"""What a run of the rule outlier leaves for pages: its candidates have no p(true class)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, RowMapping, select

from curate.catalog.engine import pieces
from curate.catalog.tables import candidates, images, verdicts


def confidences(connection: Connection, run_id: str) -> Iterator[tuple[float, bool]]:
    """(confidence of the first model's centre crop, whether it survived) of each candidate of a
    run for which that was computed.
    """
    query = select(verdicts.c.confidence, verdicts.c.outcome).where(
        verdicts.c.run_id == run_id,
        verdicts.c.outcome != "failed",
        verdicts.c.confidence.is_not(None),
    )
    for row in connection.execution_options(yield_per=10_000).execute(query):
        yield row.confidence, row.outcome == "survivor"


def survivor_keys(connection: Connection, run_id: str) -> set[str]:
    """The keys of a run's survivors."""
    query = (
        select(candidates.c.key)
        .join(verdicts, verdicts.c.candidate_id == candidates.c.id)
        .where(verdicts.c.run_id == run_id, verdicts.c.outcome == "survivor")
    )
    return set(connection.scalars(query))


def removed(connection: Connection, run_id: str, keys: Sequence[str]) -> list[RowMapping]:
    """The removed candidates of a run among some keys, in the order of the keys."""
    found: dict[str, RowMapping] = {}
    for some in pieces(keys):
        query = (
            select(
                verdicts,
                candidates.c.key,
                candidates.c.sha256,
                candidates.c.wnid,
                images.c.extension,
            )
            .join(candidates, candidates.c.id == verdicts.c.candidate_id)
            .join(images, images.c.sha256 == candidates.c.sha256)
            .where(verdicts.c.run_id == run_id, verdicts.c.outcome == "removed")
            .where(candidates.c.key.in_(some))
        )
        found |= {row.key: row._mapping for row in connection.execute(query)}
    return [found[key] for key in keys if key in found]
