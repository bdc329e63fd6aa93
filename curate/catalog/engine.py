"""Opening the catalogue: SQLite in the workspace, with transactions that lose nothing.

Python's default transaction handling of SQLite lost 549 of 640 read-modify-write transactions
over 16 processes. Here a transaction that writes begins with BEGIN IMMEDIATE, so that it waits
for its turn before it reads, and one that only reads begins with BEGIN, so that it never waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from curate.errors import StorageError, WorkspaceError
from curate.files import printable

#: The migrations that this version knows, oldest first; the last one is what it works with.
REVISIONS = ("0001", "0002", "0003")

#: How long a writer waits for the other writers.
BUSY_SECONDS = 60

#: SQLite's shared memory does not work across machines.
_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "lustre",
    "gpfs",
    "glusterfs",
}


class Catalogue:
    """The catalogue of one workspace; safe to share between threads.

    Use `read()` and `write()`; each is one transaction.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state and never blocks a writer."""
        with _one_line(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that commits whole or not at all; writers take turns.

        Raises:
            StorageError: the disk is full, or the writers before did not end in time.
        """
        with _one_line(), self.engine.connect() as plain:
            connection = plain.execution_options(curate_write=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        reason = str(error.orig)
        if "locked" in reason or "busy" in reason:
            raise StorageError(
                f"the catalogue was busy for over {BUSY_SECONDS} s; run the command again"
            ) from error
        if "full" in reason:
            raise StorageError(
                "the disk is full while writing the catalogue; free some space and run again"
            ) from error
        if "readonly" in reason or "unable to open" in reason:
            raise StorageError(
                "the catalogue cannot be written: the disk is read-only, or its files belong to "
                "another user"
            ) from error
        raise StorageError(f"the catalogue cannot be used: {reason}") from error
    except IntegrityError as error:
        raise StorageError(f"the catalogue contradicts itself: {error.orig}") from error
    except DatabaseError as error:
        if "malformed" in str(error.orig) or "not a database" in str(error.orig):
            raise StorageError(f"the catalogue is damaged: {error.orig}") from error
        raise


def open_catalogue(path: Path, *, create: bool = False) -> Catalogue:
    """Open the SQLite catalogue of a workspace, and bring it up to date where it is older.

    Args:
        path: the database file.
        create: make it where it is absent.

    Raises:
        WorkspaceError: absent, no catalogue, of a newer version, or on a network disk.
        StorageError: damaged, or the disk refuses.
    """
    if not create and not path.is_file():
        raise WorkspaceError(f"the catalogue {printable(path)} is missing")
    _refuse_network_disk(path)
    catalogue = Catalogue(_sqlite_engine(path))
    try:
        found = _revision(catalogue)
        if found is None and not create:
            raise WorkspaceError(f"{printable(path)} is no catalogue of curate")
        if found is not None and found not in REVISIONS:
            raise WorkspaceError(
                f"{printable(path)} was written by a newer version (revision {found}, this one "
                f"knows {REVISIONS[-1]}): install a newer natadv-curate"
            )
        if found != REVISIONS[-1]:
            migrate(catalogue)
    except BaseException:
        catalogue.close()
        raise
    return catalogue


def _sqlite_engine(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_SECONDS}
    )

    @event.listens_for(engine, "connect")
    def configure(raw: Any, _record: Any) -> None:
        # None leaves BEGIN to the listener below instead of the driver.
        raw.isolation_level = None
        cursor = raw.cursor()
        mode = cursor.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()
        if mode != "wal":
            raise WorkspaceError(
                f"{printable(path)}: this disk does not take SQLite's write-ahead log ({mode}); "
                "move the workspace to a local disk"
            )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("curate_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _revision(catalogue: Catalogue) -> str | None:
    with catalogue.read() as connection:
        query = "SELECT 1 FROM sqlite_master WHERE type='table' AND name='alembic_version'"
        if connection.dialect.name == "sqlite" and connection.scalar(text(query)) is None:
            return None
        return connection.scalar(text("SELECT version_num FROM alembic_version"))


def migrate(catalogue: Catalogue, revision: str = REVISIONS[-1]) -> None:
    """Bring the catalogue to a revision, by default the newest, in one transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    with _one_line(), catalogue.engine.connect() as plain:
        raw = plain.connection.dbapi_connection
        on_sqlite = catalogue.engine.dialect.name == "sqlite"
        if on_sqlite and raw is not None:
            # SQLite changes a table by making it anew, which references to it would forbid.
            raw.cursor().execute("PRAGMA foreign_keys=OFF")
        try:
            connection = plain.execution_options(curate_write=True)
            with connection.begin():
                config.attributes["connection"] = connection
                command.upgrade(config, revision)
                if on_sqlite and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
                    raise StorageError("the catalogue cannot be brought up to date: it is damaged")
        finally:
            if on_sqlite and raw is not None:
                raw.cursor().execute("PRAGMA foreign_keys=ON")


def upsert(
    connection: Connection,
    table: Table,
    rows: Sequence[dict[str, Any]],
    key: str,
    replace: Sequence[str] = (),
) -> None:
    """Insert rows whose `key` is not there yet; of the others replace the columns named.

    Args:
        connection: a writing transaction.
        table: where to.
        rows: of several with one key the last one counts.
        key: a column with unique values.
        replace: columns that take the new value where the row is there; none leaves it alone.
    """
    rows = list({row[key]: row for row in rows}.values())
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    statement = insert(table)
    if replace:
        values = {name: statement.excluded[name] for name in replace}
        connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=values), rows)
    else:
        connection.execute(statement.on_conflict_do_nothing(index_elements=[key]), rows)


def pieces(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """`values` in pieces that fit into one statement: SQLite bounds its parameters."""
    for start in range(0, len(values), 500):
        yield values[start : start + 500]


def _refuse_network_disk(path: Path) -> None:
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    best, kind = "", ""
    folder = str(path.parent.resolve())
    for line in lines:
        fields, _, rest = line.partition(" - ")
        mount = fields.split()[4].replace("\\040", " ")
        inside = folder == mount or folder.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, rest.split()[0]
    if kind in _NETWORK or kind in {"fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse"}:
        raise WorkspaceError(
            f"{printable(path.parent)} is on a network disk ({kind}), where SQLite loses data; "
            "put the workspace on a local disk"
        )
