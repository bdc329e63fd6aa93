"""What holds for the whole workspace, by name."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select

from curate.catalog.engine import upsert
from curate.catalog.tables import facts


def remember(connection: Connection, name: str, value: str) -> str:
    """Record a fact unless it is recorded already; return what is recorded."""
    upsert(connection, facts, [{"name": name, "value": value}], "name")
    return recall(connection, name) or ""


def recall(connection: Connection, name: str) -> str | None:
    """A fact's value, or None."""
    return connection.scalar(select(facts.c.value).where(facts.c.name == name))


def forget(connection: Connection, name: str) -> None:
    """Take a fact back."""
    connection.execute(delete(facts).where(facts.c.name == name))
