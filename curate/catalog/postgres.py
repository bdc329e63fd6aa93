"""The catalogue in PostgreSQL: for millions of candidates, and several machines side by side.

A transaction that writes waits for its turn before it reads, as in SQLite, by an advisory lock:
under READ COMMITTED alone many writers lose updates, and under SERIALIZABLE a caller would have to
do again what it has done. Nothing but claims is written without the turn; a claim takes row locks.
One that reads sees one state (REPEATABLE READ) and waits for nobody.

A database, or a schema of one that the address names (`?options=-csearch_path%3DNAME`), belongs to
one workspace.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from curate.catalog.engine import Catalogue, bring_up_to_date
from curate.catalog.faults import BUSY_SECONDS
from curate.errors import BusyError, MissingExtraError, SettingsError, WorkspaceError

#: How an address begins.
SCHEME = "postgresql+psycopg"

#: Parts of an address that are nobody's to read; libpq takes some of them as parameters.
_SECRETS = ("password", "passfile", "sslpassword", "sslkey", "oauth_client_secret")

#: Two numbers name an advisory lock; the first one is the workspace's, by its schema.
_MINE = "hashtext('curate ' || current_schema())"

_TURN = text(
    f"SELECT set_config('lock_timeout', '{BUSY_SECONDS}s', true),"
    f" pg_advisory_xact_lock({_MINE}, hashtext('write'))"
)

#: How long the server may take to notice that a command was killed, and to let go of its locks.
_NOTICE_SECONDS = 5.0

#: A connection whose peer has vanished shall not hold a lock for hours.
_KEEPALIVE = {"keepalives_idle": 60, "keepalives_interval": 10, "keepalives_count": 6}
_SERVER_KEEPALIVE = " ".join(f"-c tcp_{name}={value}" for name, value in _KEEPALIVE.items())


class PostgresCatalogue(Catalogue):
    """The catalogue of one workspace in PostgreSQL."""

    side_by_side = True

    _reading: ClassVar[Mapping[str, Any]] = {
        "isolation_level": "REPEATABLE READ",
        "postgresql_readonly": True,
    }

    @contextmanager
    def claiming(self) -> Iterator[Connection]:
        """A short transaction that waits for no writer."""
        with self.told(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def held(self, stage: str, *, shared: bool = False) -> Iterator[None]:
        """Hold a stage against commands on other machines; the server lets go when this one ends.

        Args:
            stage: its name.
            shared: let others hold it that share it too.

        Raises:
            BusyError: another command holds it; the text names it.
        """
        with self.told():
            connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            # Closed for good, and not kept for others, it takes its lock with it.
            connection.detach()
        try:
            with self.told():
                _take(connection, stage, "_shared" if shared else "")
            yield
        finally:
            # The server notices a closed connection only some time later.
            with suppress(DBAPIError):
                connection.execute(text("SELECT pg_advisory_unlock_all()"))
            connection.close()


def _take(connection: Connection, stage: str, kind: str) -> None:
    who = f"curate {stage} (process {os.getpid()} on {socket.gethostname()})"
    connection.execute(text("SELECT set_config('application_name', :who, false)"), {"who": who})
    names = {"stage": f"held {stage}"}
    lock = text(f"SELECT pg_try_advisory_lock{kind}({_MINE}, hashtext(:stage))")
    patience = time.monotonic() + _NOTICE_SECONDS
    while not connection.scalar(lock, names):
        if time.monotonic() < patience:
            time.sleep(0.1)
            continue
        holder = text(
            "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            f" AND classid = {_MINE}::oid AND objid = hashtext(:stage)::oid"
            " ORDER BY pid LIMIT 1"
        )
        found = connection.scalar(holder, names) or "another command"
        raise BusyError(f"{found} holds this workspace; wait for it to end")


def open_database(address: str, *, create: bool = False) -> PostgresCatalogue:
    """Open the catalogue at a PostgreSQL address, and bring it up to date where it is older.

    Args:
        address: `postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE`, with libpq's parameters;
            what it leaves out libpq takes from its own variables and files.
        create: make its tables where there are none.

    Raises:
        SettingsError: the address is none.
        WorkspaceError: no catalogue, one of a newer version, the tables of something else, or the
            server refuses user or database.
        StorageError: the server is away.
        MissingExtraError: psycopg is not installed.
    """
    url = parse_address(address)
    catalogue = PostgresCatalogue(_engine(url), _name(url), _hiding(url))
    try:
        found = _found(catalogue)
        if found is None and not create:
            raise WorkspaceError(
                f"the database {catalogue.name} holds no catalogue; make a workspace with: "
                "curate init"
            )
        bring_up_to_date(catalogue, found, f"the database {catalogue.name}")
    except BaseException:
        catalogue.close()
        raise
    return catalogue


def parse_address(address: str) -> URL:
    """A PostgreSQL address in its parts.

    Raises:
        SettingsError: it is none; the text never holds the address, which holds a password.
    """
    form = f"{SCHEME}://USER:PASSWORD@HOST:PORT/DATABASE"
    try:
        url = make_url(address.strip())
    except (ArgumentError, ValueError):
        # What could not be read may stand in the error's text.
        raise SettingsError(f"database: this is no address; write it as {form}") from None
    if url.drivername not in (SCHEME, "postgresql"):
        raise SettingsError(f"database: write it as {form}, or leave it out for SQLite")
    if "@" in (url.host or ""):
        raise SettingsError(
            "database: write the signs @ : / % of a password as %40 %3A %2F %25 in the address"
        )
    if not url.database and "service" not in url.query:
        raise SettingsError(f"database: the address names no database; write it as {form}")
    return url.set(drivername=SCHEME)


def _engine(url: URL) -> Any:
    told = " ".join([_SERVER_KEEPALIVE, *_texts(url.query.get("options"))])
    settings = {"connect_timeout": 10, "application_name": "curate", **_KEEPALIVE}
    given = {name: value for name, value in settings.items() if name not in url.query}
    try:
        engine = create_engine(
            url,
            # Whatever the server's default is: a turn is of no use to a state seen before it.
            isolation_level="READ COMMITTED",
            # A server that was started anew since is no reason to fail.
            pool_pre_ping=True,
            max_overflow=30,
            pool_timeout=BUSY_SECONDS,
            connect_args={**given, "client_encoding": "utf8", "options": told},
        )
    except ModuleNotFoundError as error:
        raise MissingExtraError("natadv-curate[postgres]", "a PostgreSQL database") from error
    except ImportError as error:
        # psycopg without the library that it calls.
        raise MissingExtraError("psycopg[binary]", "a PostgreSQL database") from error

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("curate_write", False):
            connection.execute(_TURN)

    return engine


def _found(catalogue: Catalogue) -> str | None:
    """The revision of what the database holds; None where it holds nothing."""
    with catalogue.read() as connection:
        encoding = connection.scalar(text("SHOW server_encoding"))
        if encoding != "UTF8":
            raise WorkspaceError(
                f"the database {catalogue.name} keeps text as {encoding}, which lacks signs; "
                "make one with the encoding UTF8"
            )
        if connection.scalar(text("SELECT current_schema()")) is None:
            raise WorkspaceError(f"the database {catalogue.name} lacks the schema of its address")
        mine = "table_schema = current_schema() AND table_type = 'BASE TABLE'"
        tables = set(
            connection.scalars(
                text(f"SELECT table_name::text FROM information_schema.tables WHERE {mine}")
            )
        )
        if tables and not tables >= {"alembic_version", "facts", "candidates"}:
            raise WorkspaceError(
                f"the database {catalogue.name} holds the tables of something else; name an "
                "empty one"
            )
        if not tables:
            return None
        return connection.scalar(text("SELECT version_num FROM alembic_version"))


def _name(url: URL) -> str:
    """What errors call a database: where it is, never who asks."""
    host = url.host or next(iter(_texts(url.query.get("host"))), "localhost")
    place = f"{host}:{url.port}" if url.port else host
    return f"{place}/{url.database or next(iter(_texts(url.query.get('service'))), '')}"


def _hiding(url: URL) -> Callable[[str], str]:
    secrets = [url.password or ""]
    for name in _SECRETS:
        secrets += _texts(url.query.get(name))
    hidden = sorted(filter(None, map(str, secrets)), key=len, reverse=True)

    def hide(told: str) -> str:
        for secret in hidden:
            told = told.replace(secret, "***")
        return told

    return hide


def _texts(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value or ()
