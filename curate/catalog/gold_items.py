"""Gold items: candidates whose right answer is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, select

from curate.catalog.engine import pieces, upsert
from curate.catalog.review_tables import gold, review_tasks
from curate.catalog.tables import candidates, now, verdicts


def all_gold(connection: Connection) -> list[RowMapping]:
    """All gold items, by key."""
    return list(connection.execute(select(gold).order_by(gold.c.candidate)).mappings())


def add_gold(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep gold items; of one that is there the newest decision counts."""
    kept = [{**row, "added": now()} for row in rows]
    upsert(connection, gold, kept, "candidate", ("decision", "origin", "added"))


def forget_drawn(connection: Connection, run_id: str) -> None:
    """Take back drawn gold items that survived this run, as long as nobody has been given them.

    They were drawn because an earlier run had recognised them; as gold they would count in no
    dataset.
    """
    survived = (
        select(candidates.c.key)
        .join(verdicts, verdicts.c.candidate_id == candidates.c.id)
        .where(verdicts.c.run_id == run_id, verdicts.c.outcome == "survivor")
    )
    connection.execute(
        delete(gold).where(
            gold.c.origin == "drawn",
            gold.c.candidate.in_(survived),
            gold.c.candidate.not_in(select(review_tasks.c.candidate)),
        )
    )


def given_as_candidates(connection: Connection, keys: Sequence[str]) -> set[str]:
    """Which of these keys were given out for review, and not as gold items."""
    found: set[str] = set()
    for some in pieces(keys):
        query = select(review_tasks.c.candidate).where(
            review_tasks.c.candidate.in_(some), review_tasks.c.gold.is_(False)
        )
        found.update(connection.scalars(query))
    return found
