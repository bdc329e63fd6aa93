"""The catalogue in PostgreSQL: what it promises, and one line for what goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert, select, text, update

from curate.catalog import claims, facts, intake, judging, overview, twins
from curate.catalog.engine import upsert
from curate.catalog.postgres import PostgresCatalogue, open_database, parse_address
from curate.catalog.tables import facts as facts_table
from curate.catalog.tables import images, metadata, now
from curate.errors import (
    BusyError,
    CurateError,
    SettingsError,
    StorageError,
)
from tests.postgres import PASSWORD, Server
from tests.waiting import PATIENCE

RUN = {
    "id": "r",
    "scoring": "s",
    "scores_run": "r",
    "rule": "misclassified",
    "state": "running",
    "settings": {},
    "record": {},
    "started": now(),
}


@pytest.fixture
def address(postgres: Server) -> Iterator[str]:
    made = postgres.make()
    yield made
    postgres.drop(made)


@pytest.fixture
def database(address: str) -> Iterator[PostgresCatalogue]:
    with closing(open_database(address, create=True)) as catalogue:
        yield catalogue


def said(address: str, *, create: bool = False) -> str:
    """What opening an address says, in one line without the password."""
    with pytest.raises(CurateError) as caught:
        open_database(address, create=create).close()
    told = str(caught.value)
    assert len(told.splitlines()) == 1
    assert PASSWORD not in told
    assert "%40" not in told
    return told


def test_text_is_ordered_by_its_bytes_whatever_the_database_orders_by(postgres: Server) -> None:
    other = postgres.make(locale=postgres.locales[0])
    words = ["a", "B", "b", "A", "ä", "Z", "_", "n01", "N01", "é", "~", "z", "10", "9", "一"]
    with closing(open_database(other, create=True)) as catalogue:
        with catalogue.write() as connection:
            upsert(connection, facts_table, [{"name": w, "value": w} for w in words], "name")
        with catalogue.read() as connection:
            columns = connection.execute(
                text(
                    "SELECT table_name, column_name, collation_name FROM information_schema.columns"
                    " WHERE table_schema = current_schema()"
                    " AND data_type IN ('character varying', 'text')"
                )
            ).all()
            for column in (facts_table.c.name, facts_table.c.value):
                ordered = list(connection.scalars(select(column).order_by(column)))
                assert ordered == sorted(words, key=str.encode)
            after = select(facts_table.c.name).where(facts_table.c.name > "Z")
            assert set(connection.scalars(after)) == {w for w in words if w.encode() > b"Z"}
    assert {c for t, c, how in columns if how != "C" and t != "alembic_version"} == set()
    assert {t for t, _, _ in columns} == {*metadata.tables, "alembic_version"}
    postgres.drop(other)


@pytest.mark.parametrize("default", ["read%20committed", "serializable"])
def test_a_writer_waits_for_its_turn_before_it_reads(address: str, default: str) -> None:
    there = (
        f"{address}?options=-cdefault_transaction_isolation%3D{default.replace('%20', '%5C%20')}"
    )
    seen: list[str | None] = []
    with closing(open_database(there, create=True)) as database:

        def look() -> None:
            with database.write() as connection:
                seen.append(facts.recall(connection, "n"))

        with database.write() as connection:
            facts.remember(connection, "n", "0")
        with database.write() as connection:
            second = threading.Thread(target=look)
            second.start()
            time.sleep(0.3)
            assert not seen
            connection.execute(update(facts_table).values(value="1"))
        second.join()
    assert seen == ["1"]


def test_a_reader_sees_one_state_and_cannot_write(database: PostgresCatalogue) -> None:
    with database.read() as reader:
        assert facts.recall(reader, "n") is None
        with database.write() as writer:
            facts.remember(writer, "n", "0")
        assert facts.recall(reader, "n") is None
    with pytest.raises(StorageError, match="read-only"), database.read() as reader:
        facts.remember(reader, "n", "1")


def test_claims_wait_for_no_writer(database: PostgresCatalogue) -> None:
    with database.write() as writer:
        judging.start_run(writer, RUN)
        claims.add_chunks(writer, "r", 3)
    # Who waited for the writer would be refused at last.
    with database.write() as writer:
        facts.remember(writer, "n", "0")
        with database.claiming() as one, database.claiming() as two:
            assert claims.claim(one, "r", "one", 60) == 0
            assert claims.claim(two, "r", "two", 60) == 1
            assert claims.claim(one, "r", "one", 60) == 2


def test_a_stage_is_held_against_other_machines(address: str, database: PostgresCatalogue) -> None:
    with closing(open_database(address)) as other:
        with database.held("collect"):
            with pytest.raises(BusyError, match=rf"curate collect \(process {os.getpid()} on .+\)"):
                other.held("collect").__enter__()
            with other.held("filter"):
                pass
        with other.held("collect"):
            pass
        with (
            database.held("filter", shared=True),
            other.held("filter", shared=True),
            pytest.raises(BusyError),
            other.held("filter"),
        ):
            pass


def test_a_stage_is_free_as_soon_as_its_holder_has_ended(
    address: str, database: PostgresCatalogue
) -> None:
    locks = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    with database.read() as looking:
        for _ in range(30):
            with database.held("collect"):
                assert looking.scalar(locks) == 1
            assert looking.scalar(locks) == 0
    killed = subprocess.Popen(
        [sys.executable, "-c", _HOLDS_A_STAGE, address], stdout=subprocess.PIPE, text=True
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == "held\n"
    killed.kill()
    with database.held("collect"):
        assert killed.wait() == -signal.SIGKILL
    killed.stdout.close()


_HOLDS_A_STAGE = """
import sys, time
from curate.catalog.postgres import open_database
with open_database(sys.argv[1]).held("collect"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_stage_that_is_let_go_of_late_is_waited_for(
    address: str, database: PostgresCatalogue
) -> None:
    """As by a server that has much to do when its client is killed."""
    holds, late = threading.Event(), threading.Event()

    def hold() -> None:
        with closing(open_database(address)) as other, other.held("collect"):
            holds.set()
            late.wait(PATIENCE)

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(PATIENCE)
    timer = threading.Timer(2, late.set)
    timer.start()
    with database.held("collect"):
        assert late.is_set()
    holder.join()
    timer.join()


def test_a_workspace_may_have_a_schema_of_its_own(address: str) -> None:
    with closing(open_database(address, create=True)) as one:
        with one.write() as connection:
            facts.remember(connection, "n", "public")
            connection.execute(text("CREATE SCHEMA other"))
        there = f"{address}?options=-csearch_path%3Dother"
        with closing(open_database(there, create=True)) as two, two.write() as connection:
            assert facts.recall(connection, "n") is None
            # Writers of two workspaces do not wait for each other.
            with one.write() as same_time:
                facts.remember(same_time, "m", "1")
        with one.held("filter"), closing(open_database(there)) as two, two.held("filter"):
            pass
    assert "lacks the schema" in said(f"{address}?options=-csearch_path%3Dabsent", create=True)


def test_what_is_no_address_is_refused_without_showing_it() -> None:
    for wrong, told in (
        ("sqlite:///x.sqlite", "write it as postgresql"),
        ("mysql://u:geheim@h/d", "write it as postgresql"),
        ("postgresql+psycopg://u:geheim@h:port/d", "no address"),
        ("geheim", "no address"),
        ("postgresql+psycopg://u:ge@heim@h/d", "%40"),
        ("postgresql+psycopg://u:geheim@h", "names no database"),
        ("postgresql+asyncpg://u:geheim@h/d", "write it as postgresql"),
    ):
        with pytest.raises(SettingsError) as caught:
            parse_address(wrong)
        assert told in str(caught.value)
        assert "heim" not in str(caught.value)
        assert caught.value.__suppress_context__ or "heim" not in str(caught.value.__context__)


def test_wrong_user_password_database_and_host_are_told_in_one_line(
    postgres: Server, address: str
) -> None:
    name = parse_address(address).database or ""
    assert "refuses this user" in said(postgres.address(name, password="wrong"))
    assert "refuses this user" in said(postgres.address(name, user="nobody-there"))
    assert "there is no database" in said(postgres.address("absent"))
    assert "cannot be reached" in said(address.replace(f":{postgres.port}", ":9"))
    assert "cannot be reached" in said(address.replace("127.0.0.1", "absent.invalid"))
    assert "holds no catalogue" in said(address)
    assert "invalid" in said(f"{address}?sslmode=wrong")
    assert "invalid" in said(f"{address}?wrong=1")


def test_a_password_among_the_parameters_is_hidden_as_well(postgres: Server) -> None:
    bare = f"postgresql+psycopg://127.0.0.1:{postgres.port}/absent?user=curate&password="
    assert "geheim" not in said(f"{bare}geheim")


def test_tables_of_something_else_are_left_alone(postgres: Server, address: str) -> None:
    name = parse_address(address).database or ""
    postgres.run("CREATE TABLE images (name text)", name)
    assert "tables of something else" in said(address, create=True)
    assert postgres.run("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", name) == [
        (1,)
    ]


def test_a_database_that_lacks_signs_is_refused(postgres: Server) -> None:
    latin = postgres.make(encoding="LATIN1")
    assert "LATIN1" in said(latin, create=True)
    postgres.drop(latin)


def test_a_user_who_may_not_make_tables_is_told(postgres: Server, address: str) -> None:
    name = parse_address(address).database or ""
    postgres.run("DROP ROLE IF EXISTS reader")
    postgres.run(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
    assert "does not allow this" in said(postgres.address(name, user="reader"), create=True)


def test_a_connection_lost_in_the_middle_is_one_line_and_loses_the_transaction(
    postgres: Server, address: str, database: PostgresCatalogue
) -> None:
    lost = pytest.raises(StorageError, match=r"(ended the work|was lost).*run")
    with lost as caught, database.write() as connection:
        facts.remember(connection, "n", "0")
        mine = connection.scalar(text("SELECT pg_backend_pid()"))
        postgres.run(f"SELECT pg_terminate_backend({mine})")
        facts.remember(connection, "m", "0")
    assert len(str(caught.value).splitlines()) == 1
    # The next transaction takes a new connection.
    with database.read() as connection:
        assert facts.recall(connection, "n") is None


def test_a_server_that_was_started_anew_is_found_again(tmp_path: Path) -> None:
    with Server(fsync="off") as server:
        address = server.make()
        with closing(open_database(address, create=True)) as catalogue:
            with catalogue.write() as connection:
                facts.remember(connection, "n", "0")
            server.stop()
            with pytest.raises(StorageError, match="cannot be reached"), catalogue.read():
                pass
            server.start()
            with catalogue.read() as connection:
                assert facts.recall(connection, "n") == "0"


def test_a_writer_that_never_ends_is_told_of(
    database: PostgresCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    import curate.catalog.postgres as module

    monkeypatch.setattr(module, "_TURN", text(str(module._TURN).replace("60s", "200ms")))
    busy = pytest.raises(StorageError, match="busy for over 60 s")
    with database.write(), busy, database.write():
        pass


def test_a_killed_writer_leaves_its_turn_to_the_next(
    address: str, database: PostgresCatalogue
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDS, address], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with database.write() as connection:
        assert facts.recall(connection, "n") is None
    holder.stdout.close()


_HOLDS = """
import sys, time
from curate.catalog import facts
from curate.catalog.postgres import open_database
with open_database(sys.argv[1]).write() as connection:
    facts.remember(connection, "n", "0")
    print("held", flush=True)
    time.sleep(600)
"""


def test_what_the_database_does_not_take_is_one_line(database: PostgresCatalogue) -> None:
    for value in ("a\0b", "\ud800"):
        with pytest.raises((StorageError, UnicodeError)), database.write() as connection:
            facts.remember(connection, "n", value)
    refused = pytest.raises(StorageError, match="does not take a value")
    with refused, database.write() as connection:
        facts.remember(connection, "n" * 65, "x")


def test_two_commands_that_begin_one_run_share_it_and_another_run_of_its_id_is_refused(
    database: PostgresCatalogue,
) -> None:
    with database.write() as connection:
        judging.start_run(connection, RUN)
        judging.start_run(connection, RUN)
        with pytest.raises(StorageError, match="another run has the id r"):
            judging.start_run(connection, RUN | {"scoring": "other"})


def test_pictures_of_more_pixels_than_32_bits_count_are_ranked(
    database: PostgresCatalogue,
) -> None:
    with database.write() as connection:
        for number, side in enumerate((70_000, 90_000)):
            connection.execute(
                insert(images).values(
                    sha256=f"{number:064}",
                    extension="png",
                    format="PNG",
                    mode="RGB",
                    bytes=1,
                    width=side,
                    height=side,
                    notes=[],
                    pixel_sha256="00",
                    perceptual_hash="00",
                    taken_in=now(),
                )
            )
        intake.add_candidates(
            connection,
            [
                {"key": str(n), "sha256": f"{n:064}", "wnid": "n", "near_key": None}
                for n in range(2)
            ],
        )
    with database.read() as connection:
        assert [row["sha256"][-1] for row in twins.ranked(connection)] == ["1", "0"]
        assert overview.funnel(connection, None) == {"n": {"candidates": 2}}


def test_without_psycopg_it_says_what_to_install(address: str) -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from curate.catalog.postgres import open_database\n"
        "from curate.errors import MissingExtraError\n"
        "try: open_database(sys.argv[1])\n"
        "except MissingExtraError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, address], capture_output=True, text=True, check=True
    )
    assert "pip install 'natadv-curate[postgres]'" in done.stdout
