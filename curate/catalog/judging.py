"""Runs, the parts of their scores, and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    RowMapping,
    and_,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from curate.catalog import claims
from curate.catalog.engine import pieces, upsert
from curate.catalog.tables import (
    candidates,
    duplicates,
    images,
    parts,
    runs,
    verdicts,
)
from curate.errors import StorageError

#: Rows that are held at a time where they are read as they are asked for.
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Candidate:
    """A candidate as the stages read it."""

    id: int
    key: str
    sha256: str
    extension: str
    wnid: str


def candidate_keys(
    connection: Connection, wnids: Sequence[str] | None
) -> Iterator[tuple[str, int]]:
    """(key, id) of the candidates of the classes `wnids` (all for None), sorted by key.

    Those that `curate dedup` has dropped are left out.
    """
    twin = and_(duplicates.c.candidate_id == candidates.c.id, duplicates.c.dropped)
    query = (
        select(candidates.c.key, candidates.c.id, candidates.c.wnid)
        .outerjoin(duplicates, twin)
        .where(duplicates.c.candidate_id.is_(None))
        .order_by(candidates.c.key)
    )
    if wnids is not None and len(wnids) <= 500:
        query = query.where(candidates.c.wnid.in_(wnids))
    wanted = None if wnids is None else frozenset(wnids)
    for row in connection.execution_options(yield_per=10_000).execute(query):
        if wanted is None or row.wnid in wanted:
            yield row.key, row.id


def candidates_by_id(connection: Connection, ids: Sequence[int]) -> list[Candidate]:
    """The candidates with these ids, sorted by key."""
    found: list[Candidate] = []
    for some in pieces(ids):
        query = (
            select(
                candidates.c.id,
                candidates.c.key,
                candidates.c.sha256,
                images.c.extension,
                candidates.c.wnid,
            )
            .join(images, images.c.sha256 == candidates.c.sha256)
            .where(candidates.c.id.in_(some))
        )
        found += [Candidate(**row._mapping) for row in connection.execute(query)]
    return sorted(found, key=lambda candidate: candidate.key)


def keys_of_images(connection: Connection, sha256s: Sequence[str]) -> dict[str, list[str]]:
    """The keys of all candidates of some images, by image, sorted."""
    found: dict[str, list[str]] = {sha256: [] for sha256 in sha256s}
    for some in pieces(list(found)):
        query = select(candidates.c.sha256, candidates.c.key).where(candidates.c.sha256.in_(some))
        for sha256, key in connection.execute(query.order_by(candidates.c.key)):
            found[sha256].append(key)
    return found


def add_verdicts(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Record verdicts that no part of the run has made."""
    if rows:
        connection.execute(insert(verdicts), list(rows))


def run(connection: Connection, run_id: str) -> RowMapping | None:
    """The row of a run, or None."""
    row = connection.execute(select(runs).where(runs.c.id == run_id)).first()
    return row._mapping if row else None


def newest_run(connection: Connection, state: str = "finished") -> RowMapping | None:
    """The run that ended last (for `state` "running": started last), or None."""
    query = select(runs).where(runs.c.state == state)
    row = connection.execute(
        query.order_by(runs.c.finished.desc(), runs.c.started.desc(), runs.c.id)
    ).first()
    return row._mapping if row else None


def all_runs(connection: Connection) -> list[RowMapping]:
    """Every run, oldest first."""
    rows = connection.execute(select(runs).order_by(runs.c.started, runs.c.id))
    return [row._mapping for row in rows]


def start_run(connection: Connection, row: dict[str, Any]) -> None:
    """Record a run before its first image, unless another command has just begun the same one.

    Raises:
        StorageError: another run has this id.
    """
    upsert(connection, runs, [row], "id")
    there = run(connection, row["id"])
    # An id is the beginning of a hash: two may meet, once in millions of years.
    if there is not None and there["scoring"] != row["scoring"]:
        raise StorageError(
            f"another run has the id {row['id']} already; change a setting, such as filter.seed"
        )


def update_run(connection: Connection, run_id: str, values: dict[str, Any]) -> None:
    """Change columns of a run."""
    connection.execute(update(runs).where(runs.c.id == run_id).values(values))


def run_parts(connection: Connection, run_id: str) -> list[RowMapping]:
    """The named parts of a run's scores, in order."""
    query = select(parts).where(parts.c.run_id == run_id).order_by(parts.c.number)
    return [row._mapping for row in connection.execute(query)]


def add_part(connection: Connection, part: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """Name a part and record its verdicts."""
    connection.execute(insert(parts).values(part))
    if rows:
        connection.execute(insert(verdicts), list(rows))


def forget_part(connection: Connection, run_id: str, number: int, ids: Sequence[int]) -> None:
    """Take back a part and the verdicts on its candidates `ids`; its chunk is claimed anew."""
    claims.reopen(connection, run_id, [number])
    connection.execute(delete(parts).where(parts.c.run_id == run_id, parts.c.number == number))
    for some in pieces(ids):
        connection.execute(
            delete(verdicts).where(verdicts.c.run_id == run_id, verdicts.c.candidate_id.in_(some))
        )


def forget_parts(connection: Connection, run_id: str) -> None:
    """Take back all parts of a run, and its verdicts; its chunks are claimed anew."""
    claims.reopen(connection, run_id)
    connection.execute(delete(parts).where(parts.c.run_id == run_id))
    forget_verdicts(connection, run_id)


def reopen_run(connection: Connection, run_id: str) -> None:
    """Take back that a run has ended, and its shortlist."""
    values = {"state": "running", "summary": None, "finished": None}
    connection.execute(update(runs).where(runs.c.id == run_id).values(values))
    connection.execute(update(verdicts).where(verdicts.c.run_id == run_id).values(place=None))


def run_with_scores(connection: Connection, scoring: str) -> RowMapping | None:
    """The finished run whose own scores are those of a scoring, or None."""
    query = select(runs).where(
        runs.c.scoring == scoring, runs.c.state == "finished", runs.c.scores_run == runs.c.id
    )
    row = connection.execute(query).first()
    return row._mapping if row else None


def copy_verdicts(connection: Connection, source: str, target: str) -> None:
    """Give a run the verdicts of another one of the same scoring, without places."""
    names = [column.name for column in verdicts.columns if column.name not in ("run_id", "place")]
    values = select(literal(target), *(verdicts.c[name] for name in names))
    statement = insert(verdicts).from_select(
        ["run_id", *names], values.where(verdicts.c.run_id == source)
    )
    connection.execute(statement)


def forget_verdicts(connection: Connection, run_id: str) -> None:
    """Take back all of a run's verdicts."""
    connection.execute(delete(verdicts).where(verdicts.c.run_id == run_id))


def survivors(connection: Connection, run_id: str) -> Iterator[RowMapping]:
    """The survivors of a run with what caps and orders need, in any order.

    Rows have `candidate_id`, `key`, `wnid`, `predicted_wnid`, `confidence` and `borderline`; they
    are read as they are asked for, within the transaction.
    """
    query = (
        select(
            verdicts.c.candidate_id,
            candidates.c.key,
            candidates.c.wnid,
            verdicts.c.predicted_wnid,
            verdicts.c.confidence,
            verdicts.c.borderline,
        )
        .join(candidates, candidates.c.id == verdicts.c.candidate_id)
        .where(verdicts.c.run_id == run_id, verdicts.c.outcome == "survivor")
    )
    rows = connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE))
    yield from rows.mappings()


def verdict_counts(connection: Connection, run_id: str) -> list[tuple[str, str | None, int]]:
    """(outcome, reason, count) of a run."""
    query = (
        select(verdicts.c.outcome, verdicts.c.reason, func.count())
        .where(verdicts.c.run_id == run_id)
        .group_by(verdicts.c.outcome, verdicts.c.reason)
        .order_by(verdicts.c.outcome, verdicts.c.reason.nulls_first())
    )
    return [(outcome, reason, count) for outcome, reason, count in connection.execute(query)]


def count_verdicts(connection: Connection, run_id: str) -> int:
    """The number of a run's verdicts."""
    query = select(func.count()).select_from(verdicts).where(verdicts.c.run_id == run_id)
    return connection.scalar(query) or 0


def judged_ids(connection: Connection, run_id: str) -> Iterator[Sequence[int]]:
    """The ids of all candidates with a verdict of a run, in any order, some at a time."""
    query = select(verdicts.c.candidate_id).where(verdicts.c.run_id == run_id)
    rows = connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE))
    yield from rows.scalars().partitions()


def failures(connection: Connection, run_id: str) -> Iterator[RowMapping]:
    """The candidates that a run could not score, by key: `candidate` (the key), `sha256`, `wnid`
    and `reason`.

    They are read as they are asked for, within the transaction.
    """
    query = (
        select(
            candidates.c.key.label("candidate"),
            candidates.c.sha256,
            candidates.c.wnid,
            verdicts.c.reason,
        )
        .join(candidates, candidates.c.id == verdicts.c.candidate_id)
        .where(verdicts.c.run_id == run_id, verdicts.c.outcome == "failed")
        .order_by(candidates.c.key)
    )
    rows = connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE))
    yield from rows.mappings()


def failed_images(
    connection: Connection, run_id: str, reasons: Sequence[str], after: int, most: int
) -> list[RowMapping]:
    """The next candidates that a run could not score: `candidate_id`, `sha256` and `extension`.

    Args:
        connection: a reading transaction.
        run_id: the run.
        reasons: only those that failed for one of these.
        after: only those with a larger id.
        most: at most so many, those with the smallest ids.
    """
    query = (
        select(verdicts.c.candidate_id, candidates.c.sha256, images.c.extension)
        .join(candidates, candidates.c.id == verdicts.c.candidate_id)
        .join(images, images.c.sha256 == candidates.c.sha256)
        .where(
            verdicts.c.run_id == run_id,
            verdicts.c.outcome == "failed",
            verdicts.c.reason.in_(reasons),
            verdicts.c.candidate_id > after,
        )
        .order_by(verdicts.c.candidate_id)
        .limit(most)
    )
    return list(connection.execute(query).mappings())
