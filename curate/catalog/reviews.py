"""Annotators, and what referees say: small tables of the human part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, RowMapping, func, insert, select

from curate.catalog.engine import pieces, upsert
from curate.catalog.review_tables import annotators, referee_scores
from curate.catalog.tables import now


def annotator(connection: Connection, account: str) -> RowMapping:
    """The annotator with this account; one who is new gets the next name of their role.

    Args:
        connection: a writing transaction.
        account: mail address at the server, in any case.
    """
    account = account.strip().lower()
    known = select(annotators).where(annotators.c.account == account)
    row = connection.execute(known).mappings().first()
    if row is None:
        # Nobody is ever removed, so that no name is given twice.
        count = connection.scalar(select(func.count()).select_from(annotators)) or 0
        values = {"name": f"annotator-{count + 1}", "account": account, "joined": now()}
        connection.execute(insert(annotators).values(values))
        row = connection.execute(known).mappings().one()
    return row


def all_annotators(connection: Connection) -> list[RowMapping]:
    """Everybody, in the order in which they joined."""
    return list(connection.execute(select(annotators).order_by(annotators.c.id)).mappings())


def refereed(
    connection: Connection, fingerprint: str, candidates: Sequence[str]
) -> dict[str, float | None]:
    """What a referee has said of candidates, by key; None where it could not read the photo.

    Args:
        connection: a transaction.
        fingerprint: of the referee.
        candidates: keys; those that it has not seen yet are left out.
    """
    found: dict[str, float | None] = {}
    for some in pieces(candidates):
        query = select(referee_scores.c.candidate, referee_scores.c.p_claimed).where(
            referee_scores.c.fingerprint == fingerprint, referee_scores.c.candidate.in_(some)
        )
        found.update((key, said) for key, said in connection.execute(query))
    return found


def add_refereed(
    connection: Connection, fingerprint: str, said: Mapping[str, float | None]
) -> None:
    """Keep what a referee says of candidates, by key; the newest word counts."""
    rows = [
        {"fingerprint": fingerprint, "candidate": key, "p_claimed": p} for key, p in said.items()
    ]
    upsert(connection, referee_scores, rows, ("fingerprint", "candidate"), ("p_claimed",))
