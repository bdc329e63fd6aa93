"""Chunks are claimed by many and finished once, whoever is killed."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from multiprocessing.synchronize import Event
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, event, select, text

from curate.catalog import claims, judging
from curate.catalog.engine import Catalogue
from curate.catalog.tables import claims as claims_table
from curate.catalog.tables import now, parts, runs
from tests.catalog.either import open_either

RUN = "run"


def begin(catalogue: Catalogue, count: int, run_id: str = RUN) -> None:
    with catalogue.write() as connection:
        judging.start_run(
            connection,
            {
                "id": run_id,
                "scoring": run_id,
                "scores_run": run_id,
                "rule": "misclassified",
                "state": "running",
                "settings": {},
                "record": {},
                "started": now(),
            },
        )
        claims.add_chunks(connection, run_id, count)


def part(number: int, worker: str) -> dict[str, Any]:
    return {
        "run_id": RUN,
        "number": number,
        "file": f"{number:06}.parquet",
        "sha256": "0" * 64,
        "rows": 1,
        "candidates": 1,
        "forwards": 1,
        "seconds": 0.1,
        "made_by": {"worker": worker},
    }


def claim(catalogue: Catalogue, holder: str, seconds: float = 60, after: int = -1) -> int | None:
    with catalogue.claiming() as connection:
        return claims.claim(connection, RUN, holder, seconds, after)


def test_chunks_are_claimed_in_order_and_each_by_one(catalogue: Catalogue) -> None:
    begin(catalogue, 5)
    assert [claim(catalogue, f"worker{n % 2}") for n in range(6)] == [0, 1, 2, 3, 4, None]
    with catalogue.read() as connection:
        assert claims.standing(connection, RUN) == claims.Standing(0, 5, 0, 0)
        assert 0 < (claims.next_expiry(connection, RUN) or 0) <= 60


def test_a_lease_that_has_ended_lets_another_take_the_chunk(catalogue: Catalogue) -> None:
    begin(catalogue, 2)
    assert claim(catalogue, "killed", seconds=-1) == 0
    with catalogue.read() as connection:
        assert claims.standing(connection, RUN) == claims.Standing(0, 0, 1, 1)
        assert (claims.next_expiry(connection, RUN) or 0) < 0
    assert claim(catalogue, "other", after=0) == 1
    assert claim(catalogue, "other", after=1) is None
    assert claim(catalogue, "other") == 0
    with catalogue.claiming() as connection:
        assert not claims.renew(connection, RUN, 0, "killed", 60)
        assert claims.renew(connection, RUN, 0, "other", 60)


def test_what_is_given_back_is_free_at_once(catalogue: Catalogue) -> None:
    begin(catalogue, 4)
    mine = [claim(catalogue, "mine") for _ in range(3)]
    assert claim(catalogue, "other") == 3
    with catalogue.claiming() as connection:
        assert claims.give_back(connection, RUN, "mine", [mine[1] or 0, 3]) == 1
    assert claim(catalogue, "other") == 1
    with catalogue.claiming() as connection:
        assert claims.give_back(connection, RUN, "mine") == 2
    with catalogue.read() as connection:
        assert claims.standing(connection, RUN) == claims.Standing(0, 2, 0, 2)


def test_the_first_to_finish_a_chunk_counts_whoever_holds_it(catalogue: Catalogue) -> None:
    begin(catalogue, 1)
    assert claim(catalogue, "slow", seconds=-1) == 0
    assert claim(catalogue, "quick") == 0
    for holder, first in (("slow", True), ("quick", False)):
        with catalogue.write() as connection:
            assert claims.finish(connection, RUN, 0, holder) is first
            if first:
                judging.add_part(connection, part(0, holder), [])
    assert claim(catalogue, "other") is None
    with catalogue.claiming() as connection:
        assert not claims.renew(connection, RUN, 0, "quick", 60)
        assert claims.give_back(connection, RUN, "slow") == 0


def test_chunks_with_a_part_are_done_and_a_forgotten_part_is_claimed_anew(
    catalogue: Catalogue,
) -> None:
    begin(catalogue, 3)
    with catalogue.write() as connection:
        connection.execute(delete(claims_table))
        judging.add_part(connection, part(1, "earlier"), [])
        claims.add_chunks(connection, RUN, 3)
        claims.add_chunks(connection, RUN, 3)
    assert [claim(catalogue, "w") for _ in range(3)] == [0, 2, None]
    with catalogue.write() as connection:
        judging.forget_part(connection, RUN, 1, [])
    assert claim(catalogue, "w") == 1
    with catalogue.write() as connection:
        judging.forget_parts(connection, RUN)
    assert claim(catalogue, "w") == 0


def test_chunks_of_other_runs_are_left_alone(catalogue: Catalogue) -> None:
    begin(catalogue, 1)
    begin(catalogue, 2, "other run")
    with catalogue.claiming() as connection:
        assert claims.claim(connection, "other run", "a", 60) == 0
    assert claim(catalogue, "a") == 0
    with catalogue.write() as connection:
        assert claims.finish(connection, "other run", 0, "a")
        assert claims.give_back(connection, "other run", "a") == 0
    with catalogue.read() as connection:
        assert claims.standing(connection, RUN) == claims.Standing(0, 1, 0, 0)


def test_a_claim_looks_at_open_chunks_alone(catalogue: Catalogue) -> None:
    begin(catalogue, 20_000)
    with catalogue.write() as connection:
        connection.execute(text("UPDATE claims SET done = TRUE WHERE number < 19990"))
    if catalogue.side_by_side:
        with catalogue.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as plain:
            plain.execute(text("VACUUM ANALYZE claims"))
    seen: list[Any] = []

    def explained(_: Any, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        if statement.startswith("UPDATE claims"):
            how = "EXPLAIN " if catalogue.side_by_side else "EXPLAIN QUERY PLAN "
            seen.extend(cursor.execute(how + statement, parameters).fetchall())

    event.listen(catalogue.engine, "before_cursor_execute", explained)
    assert claim(catalogue, "w") == 19_990
    plan = " ".join(str(cell) for row in seen for cell in row)
    assert "ix_claims_open" in plan


WORKER = st.sampled_from("abc")
SECONDS = st.sampled_from((-1, 60))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), WORKER, SECONDS),
        st.tuples(st.just("renew"), WORKER, SECONDS),
        st.tuples(st.just("finish"), WORKER, SECONDS),
        st.tuples(st.just("give back"), WORKER, SECONDS),
    ),
    max_size=25,
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_any_order_of_steps_agrees_with_the_rules(
    catalogue: Catalogue, steps: list[tuple[str, str, int]]
) -> None:
    """Against a model: chunk → (holder, whether the lease has ended), None where nobody has it."""
    with catalogue.write() as connection:
        for table in (claims_table, parts, runs):
            connection.execute(delete(table))
    count = 4
    begin(catalogue, count)
    model: dict[int, tuple[str, bool] | None] = dict.fromkeys(range(count))
    held: dict[str, list[int]] = {worker: [] for worker in "abc"}
    for what, worker, seconds in steps:
        mine = held[worker]
        if what == "claim":
            free = [n for n in sorted(model) if model[n] is None or (model[n] or ("", 0))[1]]
            got = claim(catalogue, worker, seconds)
            assert got == (free[0] if free else None)
            if got is not None:
                model[got] = (worker, seconds < 0)
                mine.append(got)
        elif what == "renew" and mine:
            with catalogue.claiming() as connection:
                renewed = claims.renew(connection, RUN, mine[-1], worker, seconds)
            owner = model.get(mine[-1])
            assert renewed == (owner is not None and owner[0] == worker)
            if renewed:
                model[mine[-1]] = (worker, seconds < 0)
        elif what == "finish" and mine:
            number = mine.pop()
            with catalogue.write() as connection:
                finished = claims.finish(connection, RUN, number, worker)
                if finished:
                    judging.add_part(connection, part(number, worker), [])
            assert finished == (number in model)
            model.pop(number, None)
        elif what == "give back":
            with catalogue.claiming() as connection:
                given = claims.give_back(connection, RUN, worker)
            owned = [n for n, owner in model.items() if owner is not None and owner[0] == worker]
            assert given == len(owned)
            model.update(dict.fromkeys(owned))
            mine.clear()
    with catalogue.read() as connection:
        standing = claims.standing(connection, RUN)
        named = list(connection.scalars(select(parts.c.number)))
    owners = [owner for owner in model.values() if owner is not None]
    assert standing == claims.Standing(
        done=count - len(model),
        held=sum(not late for _, late in owners),
        expired=sum(late for _, late in owners),
        free=sum(owner is None for owner in model.values()),
    )
    assert sorted(named) == sorted(set(range(count)) - model.keys())


def test_no_chunk_is_anybody_elses_while_it_is_held(catalogue: Catalogue) -> None:
    begin(catalogue, 60)
    taken: list[int] = []

    def take(holder: str) -> None:
        while (number := claim(catalogue, holder)) is not None:
            taken.append(number)

    threads = [threading.Thread(target=take, args=(f"worker{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(60))


def work(place: str, worker: str, dies: bool, seed: int, dead: Event) -> None:
    """Claim and finish chunks until none is left; one that dies does so with chunks in hand.

    Those that live stop at ten chunks each until the others are dead, so that a process that
    began late is killed too.
    """
    catalogue = open_either(place)
    lot = random.Random(seed)
    last, finished = -1, 0
    while True:
        if not dies and finished >= 10:
            dead.wait()
        number = claim(catalogue, worker, 1.5, last)
        if number is None and last >= 0:
            last = -1
            continue
        if number is None:
            with catalogue.read() as connection:
                if claims.standing(connection, RUN).open == 0:
                    return
            time.sleep(0.05)
            continue
        last = number
        time.sleep(lot.random() * 0.01)
        if dies and finished >= 3 and lot.random() < 0.3:
            os.kill(os.getpid(), signal.SIGKILL)
        with catalogue.write() as connection:
            if claims.finish(connection, RUN, number, worker):
                judging.add_part(connection, part(number, worker), [])
                finished += 1
                if dies and finished >= 3 and lot.random() < 0.3:
                    # With the transaction open.
                    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_many_processes_finish_each_chunk_once_though_some_are_killed(place: str) -> None:
    catalogue = open_either(place)
    chunks = 120
    begin(catalogue, chunks)
    context = multiprocessing.get_context("spawn")
    dead = context.Event()
    workers = [
        context.Process(target=work, args=(place, f"worker{n}", n % 3 == 0, n, dead))
        for n in range(6)
    ]
    for worker in workers:
        worker.start()
    for worker in workers[::3]:
        worker.join()
    dead.set()
    for worker in workers:
        worker.join()
    codes = Counter(worker.exitcode for worker in workers)
    assert codes == {0: 4, -signal.SIGKILL: 2}
    with catalogue.read() as connection:
        named = sorted(connection.scalars(select(parts.c.number)))
        assert named == list(range(chunks))
        assert claims.standing(connection, RUN) == claims.Standing(chunks, 0, 0, 0)
        makers = Counter(p["made_by"]["worker"] for p in judging.run_parts(connection, RUN))
    assert len(makers) == 6
