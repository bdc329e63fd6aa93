"""What was taken back is asked of nobody: withdrawn from queues here, and deleted at the server.

Answers that were given stay, here and there: they are people's work, and what they add up to is
left out by whoever counts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping

from annotation.client import Client
from annotation.client_errors import GoneError, ReviewServerError, ServerAway, TokenRefused
from curate.catalog import review_queues as queues
from curate.catalog import withdrawals
from curate.errors import CurateError, Interrupted
from curate.progress import Stop
from pipelines.barred import Barred
from pipelines.review_projects import server_of
from pipelines.review_sending import tasks_of
from pipelines.workspace import Workspace


def withdraw(connection: Connection, barred: Barred) -> int:
    """Withdraw the tasks that nobody has answered and that show something barred.

    Args:
        connection: a writing transaction.
        barred: what nobody shall be asked about.

    Returns:
        How many tasks that waited until now wait no more.
    """
    if not barred:
        return 0
    waiting = withdrawals.waiting_images(connection)
    gone = [row["id"] for row in waiting if barred.match(row) is not None]
    queues.mark(connection, gone, state="withdrawn")
    return len(gone)


def withdraw_all(workspace: Workspace) -> None:
    """Withdraw whatever falls under a tombstone by now: what was taken back while a copy of it had
    not been looked at, or an answer that was deleted since."""
    with workspace.catalogue.read() as connection:
        if not Barred.here(connection):
            return
    with workspace.catalogue.write() as connection:
        withdraw(connection, Barred.here(connection))


def withdrawn_keys(connection: Connection, purpose: str) -> frozenset[str]:
    """The keys of what was given out for a purpose and has been taken back since."""
    barred = Barred.here(connection)
    if not barred:
        return frozenset()
    shown = withdrawals.shown_images(connection, purpose)
    return frozenset(row["candidate"] for row in shown if barred.match(row) is not None)


def delete_withdrawn(workspace: Workspace, client: Client, stop: Stop) -> str | None:
    """Delete withdrawn tasks at the server, as far as nobody has said anything there.

    Args:
        workspace: whose stage "review" the caller holds.
        client: of its server.
        stop: asked before each task.

    Returns:
        What is wrong, in words, where the server lets nobody delete tasks.

    Raises:
        Interrupted: as asked.
        ReviewServerError: the server is away, or what was asked was not answered.
    """
    with workspace.catalogue.read() as connection:
        rows = withdrawals.withdrawn_tasks(connection, server_of(workspace))
    refused: list[tuple[RowMapping, _Refused]] = []
    for row in rows:
        if stop.requested:
            raise Interrupted("stopped; the same command goes on")
        try:
            numbers = _numbers(workspace, client, row)
            left = [number for number in numbers if not _deleted(client, number)]
        except _Refused as error:
            refused.append((row, error))
            continue
        if not left:
            with workspace.catalogue.write() as connection:
                queues.mark(connection, [row["id"]], state="gone")
    if not refused:
        return None
    row, first = refused[0]
    return (
        f"{len(refused):,} tasks show photos that were taken back and could not be deleted; delete "
        f"them at Label Studio; the first is task {first.number} of the project {row['title']}: "
        f"{first}"
    )


class _Refused(Exception):
    """The server does not let a task be deleted."""

    def __init__(self, number: int, why: CurateError) -> None:
        super().__init__(str(why))
        self.number = number


def _numbers(workspace: Workspace, client: Client, row: RowMapping) -> Sequence[int]:
    """The numbers of a task at the server; one that a push was killed over is looked for."""
    if row["number"] is not None:
        return [row["number"]]
    if not row["sent"]:
        return []
    key = row["candidate"]
    return tasks_of(workspace, client, row["project_id"], row["project"], [key]).get(key, [])


def _deleted(client: Client, number: int) -> bool:
    """Delete a task that nobody has answered; False for one with an answer, which the next pull
    brings."""
    try:
        if client.task(number)["annotations"]:
            return False
        client.delete_task(number)
    except GoneError:
        return True
    except ServerAway:
        raise
    except (ReviewServerError, TokenRefused) as error:
        raise _Refused(number, error) from None
    return True
