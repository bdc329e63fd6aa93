"""What databases say when something is wrong, in one line for the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
)

from curate.errors import CurateError, StorageError, WorkspaceError

#: How long a writer waits for the other writers.
BUSY_SECONDS = 60

#: Longer reasons are cut.
_LONGEST = 300

_BUSY = f"the catalogue was busy for over {BUSY_SECONDS} s; run the command again"
_FULL = "the disk is full while writing the catalogue; free some space and run again"
_REFUSED = (
    "the disk does not take what the catalogue writes (disk I/O error): it is full, or broken; "
    "free some space and run again"
)

#: What PostgreSQL's states mean, by their beginning; the longest one that fits counts. {name} is
#: the database without user and password, {reason} its own words.
#: https://www.postgresql.org/docs/current/errcodes-appendix.html
_STATES: Mapping[str, tuple[type[CurateError], str]] = {
    "08": (StorageError, "the connection to {name} was lost: run the same command again to go on"),
    "22": (StorageError, "the database {name} does not take a value: {reason}"),
    "25006": (StorageError, "the database {name} is read-only"),
    "28": (WorkspaceError, "the database {name} refuses this user: {reason}"),
    "3D000": (WorkspaceError, "there is no database {name}; make it (createdb) or name another"),
    "3F": (WorkspaceError, "the database {name} lacks the schema that is asked for: {reason}"),
    "40": (StorageError, "the catalogue was changed by others meanwhile; run the command again"),
    "42501": (WorkspaceError, "the database {name} does not allow this: {reason}"),
    "53100": (StorageError, _FULL),
    "53300": (StorageError, "the database {name} takes no more connections: {reason}"),
    "55P03": (StorageError, _BUSY),
    "57": (StorageError, "the database {name} ended the work ({reason}); run the command again"),
}

#: What the client says before there is a state, and what that means.
_WORDS: tuple[tuple[str, type[CurateError], str], ...] = (
    ("password", WorkspaceError, _STATES["28"][1]),
    ("authentication", WorkspaceError, _STATES["28"][1]),
    ("pg_hba.conf", WorkspaceError, _STATES["28"][1]),
    ('role "', WorkspaceError, _STATES["28"][1]),
    ("closed the connection unexpectedly", StorageError, _STATES["08"][1]),
    ("connection is closed", StorageError, _STATES["08"][1]),
    ("connection is lost", StorageError, _STATES["08"][1]),
    ("too many clients", StorageError, _STATES["53300"][1]),
    ("invalid ", WorkspaceError, "the database {name} cannot be used: {reason}"),
)

_AWAY = "the database {name} cannot be reached ({reason}); is its server running?"


@contextmanager
def one_line(name: str = "", hide: Callable[[str], str] = str) -> Iterator[None]:
    """Turn what a database says into one line.

    Args:
        name: of the database, without user and password; empty for SQLite.
        hide: takes secrets out of a text.

    Raises:
        StorageError: the disk is full, the server away, the writers before did not end in time …
        WorkspaceError: the database does not exist, or does not let this user in.
    """
    try:
        yield
    except DBAPIError as error:
        told = _postgres(error, name, hide) if name else _sqlite(error)
        if told is None:
            raise
        # A traceback shows the cause as well.
        raise told from (error if hide(str(error)) == str(error) else None)


def _sqlite(error: DBAPIError) -> CurateError | None:
    reason = str(error.orig)
    if isinstance(error, OperationalError):
        if "locked" in reason or "busy" in reason:
            return StorageError(_BUSY)
        if "full" in reason:
            return StorageError(_FULL)
        if "readonly" in reason or "unable to open" in reason:
            return StorageError(
                "the catalogue cannot be written: the disk is read-only, or its files belong to "
                "another user"
            )
        if "disk I/O" in reason:
            # A full disk is called so too, where it is the index of the log that does not fit.
            return StorageError(_REFUSED)
        return StorageError(f"the catalogue cannot be used: {reason}")
    if isinstance(error, IntegrityError):
        return StorageError(f"the catalogue contradicts itself: {reason}")
    if "malformed" in reason or "not a database" in reason:
        return StorageError(f"the catalogue is damaged: {reason}")
    return None


def _postgres(error: DBAPIError, name: str, hide: Callable[[str], str]) -> CurateError:
    reason = hide(" ".join(str(error.orig).split()))[:_LONGEST]
    state: Any = getattr(error.orig, "sqlstate", None) or ""
    kind, text = _meaning(error, state, reason)
    return kind(text.format(name=name, reason=reason))


def _meaning(error: DBAPIError, state: str, reason: str) -> tuple[type[CurateError], str]:
    for length in (5, 2):
        if told := _STATES.get(state[:length]):
            return told
    if isinstance(error, IntegrityError):
        return StorageError, "the catalogue contradicts itself: {reason}"
    if state:
        return StorageError, "the database {name} cannot be used: {reason}"
    if "database" in reason and "does not exist" in reason:
        return _STATES["3D000"]
    for words, kind, text in _WORDS:
        if words in reason:
            return kind, text
    if isinstance(error, OperationalError | InterfaceError):
        return StorageError, _AWAY
    return StorageError, "the database {name} cannot be used: {reason}"
