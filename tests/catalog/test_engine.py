"""The catalogue's transactions, migrations and refusals."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import select, text, update

from curate.catalog.engine import (
    REVISIONS,
    Catalogue,
    _sqlite_engine,
    migrate,
    open_catalogue,
    upsert,
)
from curate.catalog.postgres import PostgresCatalogue, _engine, parse_address
from curate.catalog.tables import candidates, facts, hits, images, metadata
from curate.errors import StorageError, WorkspaceError
from tests.catalog.either import open_either


def unmigrated(place: str) -> Catalogue:
    """A catalogue without tables."""
    if "://" in place:
        return PostgresCatalogue(_engine(parse_address(place)), "test")
    return Catalogue(_sqlite_engine(Path(place)))


def test_tables_and_migrations_agree(catalogue: Catalogue) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with catalogue.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_the_last_known_revision_is_the_head_of_the_migrations() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    import curate.catalog.engine as engine

    config = Config()
    config.set_main_option("script_location", str(Path(engine.__file__).parent / "migrations"))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [engine.REVISIONS[-1]]
    assert [r.revision for r in script.walk_revisions()][::-1] == list(engine.REVISIONS)


def test_the_pragmas_took(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path / "catalogue.sqlite", create=True)
    with catalogue.read() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
        assert connection.scalar(text("PRAGMA foreign_keys")) == 1
        assert connection.scalar(text("PRAGMA synchronous")) == 2


def test_opening_twice_keeps_what_is_there(place: str, catalogue: Catalogue) -> None:
    with catalogue.write() as connection:
        upsert(connection, facts, [{"name": "a", "value": "1"}], "name")
        upsert(connection, facts, [{"name": "a", "value": "2"}], "name")
    catalogue.close()
    with open_either(place).read() as connection:
        assert connection.execute(select(facts)).all() == [("a", "1")]


def test_a_catalogue_of_the_first_version_is_brought_up_to_date_with_what_it_holds(
    place: str,
) -> None:
    old = unmigrated(place)
    migrate(old, REVISIONS[0])
    with old.write() as connection:
        told = "'0', 'jpg', 'JPEG', 'RGB', 1, 2, 3, '[]', '', '', '2026-11-30 00:00:00'"
        connection.execute(text(f"INSERT INTO images VALUES ({told})"))
        connection.execute(text("INSERT INTO candidates VALUES (7, 'k', '0', 'n02268443', NULL)"))
    old.close()
    with open_either(place).read() as connection:
        (image,) = connection.execute(select(images)).all()
        (candidate,) = connection.execute(select(candidates)).all()
        assert connection.execute(select(hits)).all() == []
    assert (image.sha256, image.bytes, image.quality) == ("0", 1, None)
    assert (candidate.id, candidate.wnid) == (7, "n02268443")


def test_a_newer_catalogue_is_refused(place: str, catalogue: Catalogue) -> None:
    with catalogue.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    catalogue.close()
    with pytest.raises(WorkspaceError, match=r"newer version \(revision 9999"):
        open_either(place)


def test_an_absent_a_foreign_and_a_damaged_catalogue_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="is missing"):
        open_catalogue(tmp_path / "absent.sqlite")
    foreign = tmp_path / "foreign.sqlite"
    sqlite3.connect(foreign).executescript("CREATE TABLE x (y)")
    with pytest.raises(WorkspaceError, match="no catalogue of curate"):
        open_catalogue(foreign)
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StorageError, match="damaged"):
        open_catalogue(damaged)


def test_a_failed_transaction_leaves_nothing(catalogue: Catalogue) -> None:
    with pytest.raises(RuntimeError), catalogue.write() as connection:
        upsert(connection, facts, [{"name": "a", "value": "1"}], "name")
        raise RuntimeError
    with catalogue.read() as connection:
        assert connection.execute(select(facts)).all() == []


def test_a_reader_is_not_blocked_by_a_writer_and_sees_one_state(catalogue: Catalogue) -> None:
    with catalogue.write() as connection:
        upsert(connection, facts, [{"name": "n", "value": "0"}], "name")
    with catalogue.write() as writer:
        writer.execute(update(facts).values(value="1"))
        with catalogue.read() as reader:
            assert reader.scalar(select(facts.c.value)) == "0"


def _count_up(place: str, times: int) -> None:
    catalogue = open_either(place)
    for _ in range(times):
        with catalogue.write() as connection:
            value = int(connection.scalar(select(facts.c.value)) or 0)
            connection.execute(update(facts).values(value=str(value + 1)))


def counted_by_many(place: str, writers: int, times: int) -> int:
    """What many processes count to that each read a number, and write the next one."""
    catalogue = open_either(place)
    with catalogue.write() as connection:
        upsert(connection, facts, [{"name": "n", "value": "0"}], "name")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_count_up, args=(place, times)) for _ in range(writers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * writers
    with catalogue.read() as connection:
        return int(connection.scalar(select(facts.c.value)) or 0)


@pytest.mark.slow
def test_no_update_is_lost_under_many_writers(place: str) -> None:
    assert counted_by_many(place, writers=4, times=40) == 160


@pytest.mark.slow
def test_many_may_make_one_catalogue_at_once(place: str) -> None:
    context = multiprocessing.get_context("spawn")
    makers = [context.Process(target=_make, args=(place,)) for _ in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert [maker.exitcode for maker in makers] == [0] * 4


def _make(place: str) -> None:
    with open_either(place).read() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == REVISIONS[-1]
