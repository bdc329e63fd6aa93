"""The shortlist of a run, its control sample, and what came close to the one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    RowMapping,
    Select,
    and_,
    bindparam,
    delete,
    insert,
    literal_column,
    select,
    update,
)

from curate.catalog.engine import pieces
from curate.catalog.tables import candidates, controls, images, origins, verdicts

#: Where a candidate was first seen. By the number itself PostgreSQL, before it knows its tables,
#: would look through all origins in their order.
_FIRST_PLACE = (
    select(origins.c.locator)
    .where(origins.c.candidate_id == candidates.c.id)
    .order_by(origins.c.id + literal_column("0"))
    .limit(1)
    .correlate(candidates)
    .scalar_subquery()
)


@dataclass(frozen=True)
class Shortlisted:
    """One row of the shortlist, in the words of the contract.

    What a candidate is taken for is None in a control sample alone, where it was not computed.
    """

    place: int
    candidate_id: int
    candidate: str
    sha256: str
    extension: str
    wnid: str
    predicted_wnid: str
    confidence: float
    p_true: float | None
    borderline: bool
    locator: str | None


def clear_places(connection: Connection, run_id: str) -> None:
    """Take all candidates off a run's shortlist."""
    listed = (
        verdicts.c.run_id == run_id,
        verdicts.c.outcome == "survivor",
        verdicts.c.place.is_not(None),
    )
    connection.execute(update(verdicts).where(*listed).values(place=None))


def set_places(
    connection: Connection, run_id: str, candidate_ids: Sequence[int], first: int = 1
) -> None:
    """Give the candidates the places `first`, `first` + 1, … on the run's shortlist."""
    if candidate_ids:
        connection.execute(
            update(verdicts).where(
                verdicts.c.run_id == run_id, verdicts.c.candidate_id == bindparam("b_candidate")
            ),
            [
                {"b_candidate": number, "place": place}
                for place, number in enumerate(candidate_ids, start=first)
            ],
        )


def shortlist(
    connection: Connection, run_id: str, after: int = 0, most: int | None = None
) -> list[Shortlisted]:
    """A run's shortlist in review order.

    Args:
        connection: a transaction.
        run_id: the run.
        after: only what stands after this place.
        most: at most so many; all for None.
    """
    query = _listed(run_id).where(verdicts.c.place > after).order_by(verdicts.c.place).limit(most)
    return [Shortlisted(**row._mapping) for row in connection.execute(query)]


def survivors_named(
    connection: Connection, run_id: str, keys: Sequence[str]
) -> Iterator[Shortlisted]:
    """Survivors of a run by key, in no order; one that the cap keeps off has the place 0."""
    for some in pieces(keys):
        for row in connection.execute(_listed(run_id).where(candidates.c.key.in_(some))):
            yield Shortlisted(**{**row._mapping, "place": row.place or 0})


def _listed(run_id: str) -> Select[Any]:
    return (
        select(
            verdicts.c.place,
            candidates.c.id.label("candidate_id"),
            candidates.c.key.label("candidate"),
            candidates.c.sha256,
            images.c.extension,
            candidates.c.wnid,
            verdicts.c.predicted_wnid,
            verdicts.c.confidence,
            verdicts.c.p_true,
            verdicts.c.borderline,
            _FIRST_PLACE.label("locator"),
        )
        .join(candidates, candidates.c.id == verdicts.c.candidate_id)
        .join(images, images.c.sha256 == candidates.c.sha256)
        .where(verdicts.c.run_id == run_id, verdicts.c.outcome == "survivor")
    )


def control_sample(connection: Connection, run_id: str) -> list[RowMapping]:
    """A run's control sample in review order, with what the run says of each."""
    said = and_(verdicts.c.run_id == run_id, verdicts.c.candidate_id == candidates.c.id)
    query = (
        select(
            controls.c.place,
            candidates.c.id.label("candidate_id"),
            candidates.c.key.label("candidate"),
            candidates.c.sha256,
            images.c.extension,
            candidates.c.wnid,
            verdicts.c.outcome,
            verdicts.c.reason,
            verdicts.c.predicted_wnid,
            verdicts.c.confidence,
            verdicts.c.p_true,
            verdicts.c.borderline,
            _FIRST_PLACE.label("locator"),
        )
        .join(candidates, candidates.c.id == controls.c.candidate_id)
        .join(images, images.c.sha256 == candidates.c.sha256)
        .outerjoin(verdicts, said)
        .where(controls.c.run_id == run_id)
        .order_by(controls.c.place)
    )
    return [row._mapping for row in connection.execute(query)]


def set_controls(connection: Connection, run_id: str, candidate_ids: Sequence[int]) -> None:
    """Record a run's control sample, in review order; it replaces an earlier one."""
    connection.execute(delete(controls).where(controls.c.run_id == run_id))
    if candidate_ids:
        connection.execute(
            insert(controls),
            [
                {"run_id": run_id, "candidate_id": number, "place": place}
                for place, number in enumerate(candidate_ids, start=1)
            ],
        )


def nearest_misses(connection: Connection, run_id: str, count: int) -> list[RowMapping]:
    """Removed candidates whose largest p(true class) was smallest when they left."""
    if count < 1:
        return []
    removed = (verdicts.c.run_id == run_id, verdicts.c.outcome == "removed")
    # The candidates of all that were removed need not be looked up.
    largest = connection.scalar(
        select(verdicts.c.p_true)
        .where(*removed, verdicts.c.p_true.is_not(None))
        .order_by(verdicts.c.p_true)
        .offset(count - 1)
        .limit(1)
    )
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
        .where(*removed)
        .order_by(verdicts.c.p_true.nulls_last(), candidates.c.key)
        .limit(count)
    )
    if largest is not None:
        query = query.where(verdicts.c.p_true <= largest)
    return [row._mapping for row in connection.execute(query)]
