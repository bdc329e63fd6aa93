"""Searches, the hits they brought, and what became of each; and the manners towards hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    bindparam,
    func,
    null,
    or_,
    select,
    update,
)

from curate.catalog.engine import pieces, upsert
from curate.catalog.tables import hits, hosts, now, searches
from curate.files import canonical_json, sha256_bytes

Scope = ColumnElement[bool]


def hit_key(source: str, locator: str, label: str) -> str:
    """The key of a hit: an item of a source under a label."""
    return sha256_bytes("\0".join((source, locator, label)).encode())


def open_search(
    connection: Connection, source: str, wnid: str, query: str, options: Mapping[str, Any]
) -> RowMapping:
    """The row of a search, made where there is none yet."""
    told = [source, wnid, query, dict(options)]
    row = {
        "key": sha256_bytes(canonical_json(told)),
        "source": source,
        "wnid": wnid,
        "query": query,
        "options": dict(options),
        "cursor": None,
        "done": False,
        "updated": now(),
    }
    upsert(connection, searches, [row], "key")
    found = connection.execute(select(searches).where(searches.c.key == row["key"])).one()
    return found._mapping


def searches_of(connection: Connection, source: str) -> list[RowMapping]:
    """The searches of a source, oldest first."""
    query = select(searches).where(searches.c.source == source).order_by(searches.c.id)
    return [row._mapping for row in connection.execute(query)]


def set_search(
    connection: Connection, search_id: int, cursor: Mapping[str, Any] | None, *, done: bool = False
) -> None:
    """Record where a search stands."""
    values = {"cursor": None if cursor is None else dict(cursor), "done": done, "updated": now()}
    connection.execute(update(searches).where(searches.c.id == search_id).values(**values))


def end_search(connection: Connection, search_id: int) -> None:
    """Record that a source has no more; where the search stands is kept."""
    values = {"done": True, "updated": now()}
    connection.execute(update(searches).where(searches.c.id == search_id).values(**values))


def of_searches(search_ids: Sequence[int]) -> Scope:
    """The hits of some searches."""
    return hits.c.search_id.in_(search_ids)


def of_classes(source: str, wnids: Sequence[str] | None) -> Scope:
    """The hits of a source that are labelled with one of some classes; None for all."""
    mine = hits.c.source == source
    return mine if wnids is None else mine & hits.c.wnid.in_(wnids)


def hits_of_keys(connection: Connection, keys: Sequence[str]) -> dict[str, RowMapping]:
    """Key to id, state and search of the hits that are there."""
    found: dict[str, RowMapping] = {}
    for some in pieces(keys):
        columns = (hits.c.key, hits.c.id, hits.c.state, hits.c.search_id)
        for row in connection.execute(select(*columns).where(hits.c.key.in_(some))):
            found[row.key] = row._mapping
    return found


def add_hits(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Add hits that are not there yet, in the order given."""
    upsert(connection, hits, rows, "key")


def change_hits(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Change hits by their `id`; all rows name the same columns; `attempts` are added."""
    if not rows:
        return
    moment = now()
    columns = [name for name in rows[0] if name != "id"]
    values: dict[str, Any] = {n: bindparam(f"b_{n}", type_=hits.c[n].type) for n in columns}
    if "attempts" in values:
        values["attempts"] = hits.c.attempts + values["attempts"]
    statement = (
        update(hits).where(hits.c.id == bindparam("b_id")).values(values | {"updated": moment})
    )
    connection.execute(
        statement, [{f"b_{name}": value for name, value in row.items()} for row in rows]
    )


def wanted(connection: Connection, scope: Scope, after: int, count: int) -> list[RowMapping]:
    """The next hits that wait for their download: id and url, in the order of arrival."""
    query = (
        select(hits.c.id, hits.c.url)
        .where(scope, hits.c.state == "waiting", hits.c.id > after, _due())
        .order_by(hits.c.id)
        .limit(count)
    )
    return [row._mapping for row in connection.execute(query)]


def _due() -> ColumnElement[bool]:
    return or_(hits.c.next_try.is_(None), hits.c.next_try <= now())


def first_waiting(connection: Connection, scope: Scope) -> int | None:
    """The first hit that waits for its download and for no host's pause; None if none does."""
    query = select(func.min(hits.c.id)).where(
        scope, hits.c.state == "waiting", hits.c.next_try.is_(None)
    )
    return connection.scalar(query)


def fetched(
    connection: Connection, scope: Scope, before: int | None, count: int, after: int = 0
) -> list[RowMapping]:
    """Hits that are downloaded and not decided, in the order of arrival, between two ids."""
    query = select(hits).where(scope, hits.c.state == "fetched", hits.c.id > after)
    if before is not None:
        query = query.where(hits.c.id < before)
    return [row._mapping for row in connection.execute(query.order_by(hits.c.id).limit(count))]


def fetched_among(connection: Connection, sha256s: Sequence[str]) -> set[str]:
    """Which of some images a downloaded hit waits with."""
    found: set[str] = set()
    for some in pieces(sha256s):
        query = select(hits.c.sha256).where(hits.c.sha256.in_(some), hits.c.state == "fetched")
        found.update(connection.scalars(query))
    return found


def fetched_files(connection: Connection, sources: Sequence[str]) -> set[str]:
    """The SHA-256 of every image that a downloaded hit of some sources waits with."""
    query = select(hits.c.sha256).where(hits.c.source.in_(sources), hits.c.state == "fetched")
    return {sha256 for sha256 in connection.scalars(query) if sha256}


def counts(connection: Connection, scope: Scope) -> dict[str, int]:
    """Hits by state."""
    query = select(hits.c.state, func.count()).where(scope).group_by(hits.c.state)
    return {state: number for state, number in connection.execute(query)}  # noqa: C416


def counts_by_source(connection: Connection) -> dict[str, dict[str, int]]:
    """Hits by source and state."""
    query = (
        select(hits.c.source, hits.c.state, func.count())
        .group_by(hits.c.source, hits.c.state)
        .order_by(hits.c.source, hits.c.state)
    )
    found: dict[str, dict[str, int]] = {}
    for source, state, number in connection.execute(query):
        found.setdefault(source, {})[state] = number
    return found


def count_wanted(connection: Connection, source: str, wnid: str, apart: Sequence[str]) -> int:
    """The hits of a source under a class that are in none of the states `apart`."""
    query = select(func.count()).where(
        hits.c.source == source, hits.c.wnid == wnid, hits.c.state.not_in(apart)
    )
    return connection.scalar(query) or 0


def earliest_try(connection: Connection, scope: Scope) -> Any:
    """When the first of the hosts that asked for a pause may be asked again; None if none did."""
    query = select(func.min(hits.c.next_try)).where(scope, hits.c.state == "waiting")
    return connection.scalar(query)


#: What stands in the detail of a hit that is to be tried again, and of no other.
RETRIED = "to be tried again"


def try_again(connection: Connection, scope: Scope, states: Sequence[str]) -> None:
    """Let hits in some states wait for their download anew, see `retried`.

    Those without a class or an address stay as they are.
    """
    for some in pieces(states):
        connection.execute(
            update(hits)
            .where(scope, hits.c.state.in_(some), hits.c.url.is_not(None), hits.c.wnid != "")
            .values(state="waiting", detail=RETRIED, next_try=None, image=None, updated=now())
        )


def open_licences(connection: Connection, scope: Scope) -> list[str]:
    """The licences of the hits that have not ended."""
    query = select(hits.c.licence).where(scope, hits.c.state.in_(("waiting", "fetched")))
    return sorted(connection.scalars(query.distinct()))


def refuse_licences(connection: Connection, scope: Scope, licences: Sequence[str]) -> int:
    """End the hits that have not ended and carry one of some licences in the state "licence".

    Returns:
        How many there were.
    """
    number = 0
    for some in pieces(licences):
        number += connection.execute(
            update(hits)
            .where(scope, hits.c.state.in_(("waiting", "fetched")), hits.c.licence.in_(some))
            .values(
                state="licence",
                detail=func.coalesce(hits.c.licence_text, "none told"),
                image=null(),
                next_try=None,
                updated=now(),
            )
        ).rowcount
    return number


def addresses_in(connection: Connection, scope: Scope, state: str) -> Iterator[tuple[int, str]]:
    """(id, address) of the hits in a state."""
    query = select(hits.c.id, hits.c.url).where(scope, hits.c.state == state)
    for row in connection.execution_options(yield_per=1000).execute(query):
        yield row.id, row.url or ""


#: The states of hits whose label was no class that candidates may have.
UNLABELLED = ("no_label", "in_distribution")


def unknown_labels(connection: Connection, scope: Scope, states: Sequence[str]) -> list[str]:
    """The labels of hits in some of the states `UNLABELLED`."""
    query = select(hits.c.label).where(scope, hits.c.state.in_(states)).distinct()
    return sorted(connection.scalars(query))


def set_class(connection: Connection, scope: Scope, label: str, wnid: str) -> None:
    """Tell the class of hits whose label was none; they stay in their state."""
    connection.execute(
        update(hits)
        .where(scope, hits.c.state.in_(UNLABELLED), hits.c.label == label)
        .values(wnid=wnid, updated=now())
    )


def retried(scope: Scope) -> Scope:
    """The hits of `scope` that are to be tried again, until they end."""
    return scope & (hits.c.detail == RETRIED)


def forget_pauses(connection: Connection, scope: Scope) -> None:
    """Forget pauses that have passed, so that their hits keep their place in the order."""
    connection.execute(
        update(hits)
        .where(scope, hits.c.state == "waiting", hits.c.next_try <= now())
        .values(next_try=None)
    )


def fetch_anew(connection: Connection, sha256: str) -> None:
    """Let the hits that brought an image, which is lost since, wait for their download again."""
    connection.execute(
        update(hits)
        .where(hits.c.sha256 == sha256, hits.c.state == "downloaded")
        .values(state="waiting", next_try=None, image=null(), updated=now())
    )


def addresses_of(connection: Connection, sha256s: Sequence[str]) -> dict[str, list[RowMapping]]:
    """The hits that brought an image: id, source, state and url, in the order of arrival."""
    found: dict[str, list[RowMapping]] = {}
    for some in pieces(sha256s):
        query = (
            select(hits.c.sha256, hits.c.id, hits.c.source, hits.c.state, hits.c.url)
            .where(hits.c.sha256.in_(some))
            .order_by(hits.c.id)
        )
        for row in connection.execute(query):
            found.setdefault(row.sha256, []).append(row._mapping)
    return found


def unsettled(connection: Connection) -> Iterator[RowMapping]:
    """Hits that ended without a candidate or wait for their host, in the order of arrival.

    Columns: source, locator, label, reason (the state), detail and url.
    """
    named = (hits.c.source, hits.c.locator, hits.c.label, hits.c.state.label("reason"))
    query = (
        select(*named, hits.c.detail, hits.c.url)
        .where(
            hits.c.state.not_in(("downloaded", "fetched", "waiting"))
            | ((hits.c.state == "waiting") & hits.c.next_try.is_not(None))
        )
        .order_by(hits.c.id)
    )
    for row in connection.execution_options(yield_per=1000).execute(query):
        yield row._mapping


def all_manners(connection: Connection) -> dict[str, Any]:
    """Host to what is remembered of it."""
    return {row.host: row.manners for row in connection.execute(select(hosts))}


def set_manners(connection: Connection, manners: Mapping[str, Any]) -> None:
    """Remember what hosts were asked and told us."""
    moment = now()
    rows = [{"host": h, "manners": m, "updated": moment} for h, m in sorted(manners.items())]
    upsert(connection, hosts, rows, "host", ("manners", "updated"))
