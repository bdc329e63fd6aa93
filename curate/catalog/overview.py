"""The funnel, the confusions and other counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, func, select

from curate.catalog.tables import (
    candidates,
    refusals,
    release_items,
    verdicts,
)


def funnel(connection: Connection, run_id: str | None) -> dict[str, dict[str, int]]:
    """Counts by class: candidates, scored, survivors, shortlisted, released.

    Args:
        connection: a reading transaction.
        run_id: the run whose verdicts count; None where there is none yet.
    """
    by_class: dict[str, dict[str, int]] = {}

    def add(stage: str, rows: Any) -> None:
        for wnid, count in rows:
            by_class.setdefault(wnid, {})[stage] = count

    add(
        "candidates",
        connection.execute(select(candidates.c.wnid, func.count()).group_by(candidates.c.wnid)),
    )
    judged = (
        select(candidates.c.wnid, func.count())
        .join(verdicts, and_(verdicts.c.candidate_id == candidates.c.id))
        .where(verdicts.c.run_id == run_id)
        .group_by(candidates.c.wnid)
    )
    if run_id is not None:
        # An index counts all verdicts, and another one the few that failed; of all that have not,
        # each row would be looked up.
        those = connection.execute(judged.where(verdicts.c.outcome == "failed"))
        failed = {wnid: number for wnid, number in those}  # noqa: C416
        every = connection.execute(judged)
        add("scored", ((wnid, number - failed.get(wnid, 0)) for wnid, number in every))
        survivor = judged.where(verdicts.c.outcome == "survivor")
        add("survivors", connection.execute(survivor))
        add("shortlisted", connection.execute(survivor.where(verdicts.c.place.is_not(None))))
    released = (
        select(candidates.c.wnid, func.count(candidates.c.id.distinct()))
        .join(release_items, release_items.c.candidate_id == candidates.c.id)
        .group_by(candidates.c.wnid)
    )
    add("released", connection.execute(released))
    return by_class


def labels(connection: Connection) -> list[str]:
    """The labels that candidates have, sorted."""
    query = select(candidates.c.wnid).distinct().order_by(candidates.c.wnid)
    return list(connection.scalars(query))


def run_counts(connection: Connection, run_id: str) -> list[RowMapping]:
    """What became of a run's candidates: wnid, outcome, reason, count, and how many are listed.

    Unlike `funnel` it counts the run's own candidates alone, so that it never changes once the run
    has ended. `listed` counts those with a place on the shortlist.
    """
    what = (candidates.c.wnid, verdicts.c.outcome, verdicts.c.reason)
    query = (
        select(*what, func.count().label("count"), func.count(verdicts.c.place).label("listed"))
        .join(candidates, candidates.c.id == verdicts.c.candidate_id)
        .where(verdicts.c.run_id == run_id)
        .group_by(*what)
        .order_by(*what[:2], verdicts.c.reason.nulls_first())
    )
    return [row._mapping for row in connection.execute(query)]


def confusions(connection: Connection, run_id: str) -> list[RowMapping]:
    """A run's confusions, largest first: wnid, predicted_wnid, survivors, shortlisted."""
    query = (
        select(
            candidates.c.wnid,
            verdicts.c.predicted_wnid,
            func.count().label("survivors"),
            func.count(verdicts.c.place).label("shortlisted"),
        )
        .join(candidates, candidates.c.id == verdicts.c.candidate_id)
        .where(verdicts.c.run_id == run_id, verdicts.c.outcome == "survivor")
        .group_by(candidates.c.wnid, verdicts.c.predicted_wnid)
        .order_by(func.count().desc(), candidates.c.wnid, verdicts.c.predicted_wnid)
    )
    return [row._mapping for row in connection.execute(query)]


def largest_p_true(connection: Connection, run_id: str) -> Iterator[tuple[float, bool]]:
    """(largest p(true class), whether it survived) of each candidate that a run scored."""
    query = select(verdicts.c.p_true, verdicts.c.outcome).where(
        verdicts.c.run_id == run_id, verdicts.c.outcome != "failed", verdicts.c.p_true.is_not(None)
    )
    for row in connection.execution_options(yield_per=10_000).execute(query):
        yield row.p_true, row.outcome == "survivor"


def refusal_counts(connection: Connection) -> dict[str, int]:
    """Refused items by reason."""
    query = (
        select(refusals.c.reason, func.count().label("count"))
        .group_by(refusals.c.reason)
        .order_by(refusals.c.reason)
    )
    return {reason: count for reason, count in connection.execute(query)}  # noqa: C416
