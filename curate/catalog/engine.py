"""The catalogue's transactions and migrations, and opening it as SQLite in the workspace.

Python's default transaction handling of SQLite lost 549 of 640 read-modify-write transactions
over 16 processes. Here a transaction that writes begins with BEGIN IMMEDIATE, so that it waits
for its turn before it reads, and one that only reads begins with BEGIN, so that it never waits.
PostgreSQL keeps the same promises in its own way (see `curate.catalog.postgres`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import Connection, Engine, Table, create_engine, event, text
from sqlalchemy.engine import URL

from curate.catalog.faults import BUSY_SECONDS, one_line
from curate.errors import StorageError, WorkspaceError
from curate.files import printable

#: The migrations that this version knows, oldest first; the last one is what it works with.
REVISIONS = ("0001", "0002", "0003", "0004")

#: What SQLite keeps of the catalogue in memory, for each connection, and how many pages of 4 kB its
#: log holds before they go to where they belong.
_CACHE_KB, _LOG_PAGES = 16_000, 4000

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

    Attributes:
        name: of a database, without user and password; empty for SQLite.
        side_by_side: whether commands on several machines may work on it at a time.
    """

    side_by_side = False

    #: How a transaction that only reads differs from the others.
    _reading: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, engine: Engine, name: str = "", hide: Callable[[str], str] = str) -> None:
        self.engine, self.name, self._hide = engine, name, hide

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state and never blocks a writer."""
        with self.told(), self.engine.connect() as plain:
            connection = plain.execution_options(**self._reading)
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that commits whole or not at all; writers take turns.

        Raises:
            StorageError: the disk is full, or the writers before did not end in time.
        """
        with self.told(), self.engine.connect() as plain:
            connection = plain.execution_options(curate_write=True)
            with connection.begin():
                yield connection

    @contextmanager
    def claiming(self) -> Iterator[Connection]:
        """A short transaction that only calls what `curate.catalog.claims` marks for it.

        It waits for no writer where the database can do without.
        """
        with self.write() as connection:
            yield connection

    @contextmanager
    def held(self, stage: str, *, shared: bool = False) -> Iterator[None]:
        """Hold a stage against commands on other machines, where the catalogue has any.

        Args:
            stage: its name.
            shared: let others hold it that share it too.

        Raises:
            BusyError: another command holds it; the text names it.
        """
        yield

    def told(self) -> AbstractContextManager[None]:
        """What the database says against something is one line (see `faults.one_line`)."""
        return one_line(self.name, self._hide)

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()


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
        if _revision(catalogue) is None and not create:
            raise WorkspaceError(f"{printable(path)} is no catalogue of curate")
        bring_up_to_date(catalogue, _revision(catalogue), printable(path))
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
        # Hashes are spread over the whole index: at a million candidates the default of 2 MB reads
        # three times as much.
        cursor.execute(f"PRAGMA cache_size=-{_CACHE_KB}")
        cursor.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
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
        if connection.scalar(text(query)) is None:
            return None
        return connection.scalar(text("SELECT version_num FROM alembic_version"))


def bring_up_to_date(catalogue: Catalogue, found: str | None, name: str) -> None:
    """Migrate a catalogue whose revision is not the newest one.

    Args:
        catalogue: not in use yet.
        found: its revision; None where it has no tables yet.
        name: what to call it in errors.

    Raises:
        WorkspaceError: it is of a newer version.
    """
    if found is not None and found not in REVISIONS:
        raise WorkspaceError(
            f"{name} was written by a newer version (revision {found}, this one "
            f"knows {REVISIONS[-1]}): install a newer natadv-curate"
        )
    if found != REVISIONS[-1]:
        migrate(catalogue)


def migrate(catalogue: Catalogue, revision: str = REVISIONS[-1]) -> None:
    """Bring the catalogue to a revision, by default the newest, in one transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    with catalogue.told(), catalogue.engine.connect() as plain:
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
    key: str | Sequence[str],
    replace: Sequence[str] = (),
) -> None:
    """Insert rows whose `key` is not there yet; of the others replace the columns named.

    Args:
        connection: a writing transaction.
        table: where to.
        rows: of several with one key the last one counts.
        key: a column with unique values, or several that have them together.
        replace: columns that take the new value where the row is there; none leaves it alone.
    """
    keys = [key] if isinstance(key, str) else list(key)
    rows = list({tuple(row[name] for name in keys): row for row in rows}.values())
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    statement = insert(table)
    if replace:
        values = {name: statement.excluded[name] for name in replace}
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=values), rows)
    else:
        connection.execute(statement.on_conflict_do_nothing(index_elements=keys), rows)


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
