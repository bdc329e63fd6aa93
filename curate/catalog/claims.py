"""The chunks of a run, claimed one by one by workers that know nothing of each other.

A claim is a lease by the database's clock: who holds a chunk renews it, and a worker that was
killed or cut off loses it when the lease ends, so that another one takes it. A chunk is finished
once: the transaction that names its part calls `finish`, and writes nothing where that says no.

    with catalogue.claiming() as connection:
        number = claims.claim(connection, run_id, holder, 300, after)
    …
    with catalogue.write() as connection:
        if claims.finish(connection, run_id, number, holder):
            judging.add_part(connection, part, rows)

`claim`, `renew` and `give_back` may be called in `Catalogue.claiming()`, which waits for no writer;
everything else belongs into `write()` or `read()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Interval,
    and_,
    case,
    func,
    literal,
    or_,
    select,
    text,
    update,
)

from curate.catalog.engine import pieces, upsert
from curate.catalog.tables import claims, now, parts

#: The most characters of a holder's name.
LONGEST_HOLDER = 128

_AT_ONCE = 10_000

#: As the index of open claims says it: SQLite uses the index for these words alone.
_OPEN = text("NOT claims.done")


@dataclass(frozen=True)
class Standing:
    """How far the chunks of a run are.

    Attributes:
        done: finished.
        held: somebody works on them.
        expired: somebody did, and their time has run out.
        free: nobody has them.
    """

    done: int
    held: int
    expired: int
    free: int

    @property
    def open(self) -> int:
        """Chunks that are not finished."""
        return self.held + self.expired + self.free


def add_chunks(connection: Connection, run_id: str, count: int) -> None:
    """Make the chunks 0 … `count` - 1 of a run where they are absent; those with a part are done.

    Args:
        connection: a writing transaction.
        run_id: the run.
        count: its chunks.
    """
    named = set(connection.scalars(select(parts.c.number).where(parts.c.run_id == run_id)))
    numbers = iter(range(count))
    while some := list(islice(numbers, _AT_ONCE)):
        rows = [{"run_id": run_id, "number": n, "done": n in named} for n in some]
        upsert(connection, claims, rows, ("run_id", "number"))


def claim(
    connection: Connection, run_id: str, holder: str, seconds: float, after: int = -1
) -> int | None:
    """Take the first chunk that nobody holds.

    Args:
        connection: a claiming transaction.
        run_id: the run.
        holder: who takes it, unlike any other worker; at most `LONGEST_HOLDER` characters.
        seconds: how long nobody else may take it.
        after: only chunks with a larger number. A worker that tells its last one passes over none
            that are done; at the end it asks once more from the start, for those given back.

    Returns:
        Its number; None where nobody's turn is left.
    """
    clock = _clock(connection)
    mine = claims.alias("mine")
    first = (
        select(mine.c.number)
        .where(
            mine.c.run_id == run_id,
            mine.c.number > after,
            text("NOT mine.done"),
            or_(mine.c.until.is_(None), mine.c.until < clock),
        )
        .order_by(mine.c.number)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    taken = (
        update(claims)
        .where(claims.c.run_id == run_id, claims.c.number == first)
        .values(holder=holder, until=_later(connection, seconds))
        .returning(claims.c.number)
    )
    return connection.scalar(taken)


def renew(connection: Connection, run_id: str, number: int, holder: str, seconds: float) -> bool:
    """Hold a chunk for longer.

    Returns:
        False where it is finished or another one's by now; working on it is in vain.
    """
    held = (claims.c.run_id == run_id, claims.c.number == number, claims.c.holder == holder)
    statement = update(claims).where(*held, _OPEN).values(until=_later(connection, seconds))
    return connection.execute(statement).rowcount == 1


def give_back(
    connection: Connection, run_id: str, holder: str, numbers: Sequence[int] | None = None
) -> int:
    """Let others have chunks at once: `numbers`, or all that are held (None).

    Returns:
        How many of them were still the holder's own.
    """
    mine = update(claims).where(claims.c.run_id == run_id, claims.c.holder == holder, _OPEN)
    free = mine.values(holder=None, until=None)
    if numbers is None:
        return connection.execute(free).rowcount
    returned = 0
    for some in pieces(sorted(numbers)):
        returned += connection.execute(free.where(claims.c.number.in_(some))).rowcount
    return returned


def finish(connection: Connection, run_id: str, number: int, holder: str) -> bool:
    """Record that a chunk is finished, in the transaction that names its part.

    Whoever comes first finishes it, also after its lease has ended.

    Args:
        connection: a writing transaction.
        run_id: the run.
        number: the chunk.
        holder: who has worked on it.

    Returns:
        False where another one has finished it: then nothing of it may be written.
    """
    one = (claims.c.run_id == run_id, claims.c.number == number)
    statement = update(claims).where(*one, _OPEN).values(done=True, holder=holder, until=None)
    return connection.execute(statement).rowcount == 1


def reopen(connection: Connection, run_id: str, numbers: Sequence[int] | None = None) -> None:
    """Let chunks, all for None, be claimed anew, finished or not: their parts are forgotten."""
    anew = update(claims).where(claims.c.run_id == run_id)
    anew = anew.values(done=False, holder=None, until=None)
    if numbers is None:
        connection.execute(anew)
        return
    for some in pieces(numbers):
        connection.execute(anew.where(claims.c.number.in_(some)))


def standing(connection: Connection, run_id: str) -> Standing:
    """How far the chunks of a run are."""
    late = claims.c.until < _clock(connection)
    states = {
        "done": claims.c.done,
        "held": and_(~claims.c.done, claims.c.until.is_not(None), ~late),
        "expired": and_(~claims.c.done, claims.c.until.is_not(None), late),
        "free": and_(~claims.c.done, claims.c.until.is_(None)),
    }
    counts = [func.coalesce(func.sum(case((s, 1), else_=0)), 0).label(n) for n, s in states.items()]
    row = connection.execute(select(*counts).where(claims.c.run_id == run_id)).one()
    return Standing(**{name: int(count) for name, count in row._mapping.items()})


def next_expiry(connection: Connection, run_id: str) -> float | None:
    """Seconds until the first lease of an open chunk ends, less than 0 where one has; None where
    nobody holds any.
    """
    first = select(func.min(claims.c.until)).where(claims.c.run_id == run_id, _OPEN)
    until, present = connection.scalar(first), connection.scalar(select(_clock(connection)))
    return None if until is None else (until - present).total_seconds()


def _clock(connection: Connection) -> ColumnElement[datetime]:
    """The present time, the same for all workers: theirs may be wrong."""
    if connection.dialect.name == "postgresql":
        clock: Any = func.timezone("utc", func.clock_timestamp(), type_=claims.c.until.type)
        return clock
    # All of them are on this machine.
    return literal(now(), claims.c.until.type)


def _later(connection: Connection, seconds: float) -> ColumnElement[datetime]:
    later: Any = timedelta(seconds=seconds)
    if connection.dialect.name == "postgresql":
        return _clock(connection) + literal(later, Interval())
    return literal(now() + later, claims.c.until.type)
