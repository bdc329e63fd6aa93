"""Who scores which chunk of a run: one command alone, or several side by side.

On SQLite one command holds the stage and takes the chunks in order. On PostgreSQL any number of
commands join a run: each claims chunks by lease, the last chunk of all is the run's end, which one
of them takes while the others wait for its summary.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Protocol

from sqlalchemy import Connection

from curate.catalog import claims, judging
from curate.errors import BusyError, StorageError
from curate.progress import Stop, say
from pipelines.workspace import Workspace

#: How long a chunk stays with a command that no longer renews its claim.
LEASE_SECONDS = 60.0

#: Renewals in a lease, and how often a command that waits for others looks.
_RENEWALS, _LOOK_SECONDS = 4, 0.5


class Work(Protocol):
    """The chunks of one run, for one command.

    Attributes:
        tag: what tells the files of this command from those of others; empty where there are none.
    """

    tag: str

    def prepare(self, how: Callable[[], set[int]]) -> None:
        """Find out what is left.

        Args:
            how: makes the run ready and gives the numbers of the chunks that are done; nobody else
                does so at the same time.
        """

    def numbers(self, stop: Stop) -> Iterator[int]:
        """Chunks to score, one after the other; ends where none is to be had at present."""

    def finish(self, connection: Connection, number: int) -> bool:
        """Record that a chunk is scored, in the transaction that names its part.

        Returns:
            False where another command has done so: then nothing may be written.
        """

    def waits(self, stop: Stop) -> bool:
        """Wait for other commands.

        Returns:
            True where there may be chunks to score again; False where all are scored.
        """

    def end(self, how: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The run's summary, made by `how` or by another command."""

    def reopen(self, connection: Connection, numbers: Sequence[int] | None = None) -> None:
        """Take back that chunks (all for None) are scored, where their parts are forgotten."""

    def close(self) -> None:
        """Let others have what is not scored."""


class Alone:
    """One command has the run to itself.

    Args:
        count: the run's chunks.
    """

    tag = ""

    def __init__(self, count: int) -> None:
        self._count = count
        self._left: list[int] = []

    def prepare(self, how: Callable[[], set[int]]) -> None:
        """See `Work.prepare`."""
        done = how()
        self._left = [number for number in range(self._count) if number not in done]

    def numbers(self, stop: Stop) -> Iterator[int]:
        """See `Work.numbers`."""
        yield from self._left

    def finish(self, connection: Connection, number: int) -> bool:
        """See `Work.finish`."""
        return True

    def waits(self, stop: Stop) -> bool:
        """See `Work.waits`."""
        return False

    def end(self, how: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """See `Work.end`."""
        return how()

    def reopen(self, connection: Connection, numbers: Sequence[int] | None = None) -> None:
        """See `Work.reopen`."""

    def close(self) -> None:
        """See `Work.close`."""


class SideBySide:
    """One of several commands that score one run.

    Args:
        workspace: of the run.
        run_id: the run.
        count: its chunks.
    """

    def __init__(self, workspace: Workspace, run_id: str, count: int) -> None:
        self._workspace, self._run, self._count = workspace, run_id, count
        self.tag = secrets.token_hex(4)
        host = socket.gethostname()[: claims.LONGEST_HOLDER - 40]
        self._holder = f"{host} {os.getpid()} {self.tag}"
        self._held: set[int] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._renewing: threading.Thread | None = None

    def prepare(self, how: Callable[[], set[int]]) -> None:
        """See `Work.prepare`."""
        # What was claimed under margins that proved too narrow is not at work any more.
        with self._lock:
            self._held.clear()
        with one_at_a_time(self._workspace, "filter-begin"):
            how()
            with self._workspace.catalogue.write() as connection:
                claims.give_back(connection, self._run, self._holder)
                # One more than there are chunks: the end of the run.
                claims.add_chunks(connection, self._run, self._count + 1)
        if self._renewing is None:
            self._renewing = threading.Thread(target=self._renew, name="claims", daemon=True)
            self._renewing.start()

    def numbers(self, stop: Stop) -> Iterator[int]:
        """See `Work.numbers`."""
        last = -1
        while not stop.requested:
            number = self._claim(last)
            if number is None and last >= 0:
                number = self._claim(-1)
            if number is None:
                return
            if number == self._count:
                self._give_back(number)
                return
            last = number
            yield number

    def finish(self, connection: Connection, number: int) -> bool:
        """See `Work.finish`."""
        with self._lock:
            self._held.discard(number)
        return claims.finish(connection, self._run, number, self._holder)

    def waits(self, stop: Stop) -> bool:
        """See `Work.waits`."""
        told = False
        while not stop.requested:
            with self._workspace.catalogue.read() as connection:
                standing = claims.standing(connection, self._run)
            if standing.open <= 1:
                return False
            if standing.free + standing.expired > 1:
                return True
            if not told:
                say(f"waiting for {standing.held} chunks that other commands score")
                told = True
            time.sleep(_LOOK_SECONDS)
        return False

    def end(self, how: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """See `Work.end`."""
        while True:
            with self._workspace.catalogue.read() as connection:
                row = judging.run(connection, self._run)
            if row is not None and row["state"] == "finished":
                return dict(row["summary"])
            if self._claim(self._count - 1) == self._count:
                return how()
            time.sleep(_LOOK_SECONDS)

    def reopen(self, connection: Connection, numbers: Sequence[int] | None = None) -> None:
        """See `Work.reopen`."""
        claims.reopen(connection, self._run, numbers)

    def close(self) -> None:
        """See `Work.close`."""
        self._closed.set()
        if self._renewing is not None:
            self._renewing.join()
        with suppress(StorageError), self._workspace.catalogue.claiming() as connection:
            claims.give_back(connection, self._run, self._holder)

    def _claim(self, after: int) -> int | None:
        with self._workspace.catalogue.claiming() as connection:
            number = claims.claim(connection, self._run, self._holder, LEASE_SECONDS, after)
        if number is not None:
            with self._lock:
                self._held.add(number)
        return number

    def _give_back(self, number: int) -> None:
        with self._lock:
            self._held.discard(number)
        with self._workspace.catalogue.claiming() as connection:
            claims.give_back(connection, self._run, self._holder, [number])

    def _renew(self) -> None:
        """Renew what is held until this command ends; a database that is away may come back."""
        while not self._closed.wait(LEASE_SECONDS / _RENEWALS):
            with self._lock:
                held = sorted(self._held)
            with suppress(StorageError):
                for number in held:
                    with self._workspace.catalogue.claiming() as connection:
                        claims.renew(connection, self._run, number, self._holder, LEASE_SECONDS)


@contextmanager
def one_at_a_time(workspace: Workspace, stage: str) -> Iterator[None]:
    """Wait until no other command is in a stage, and be in it."""
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(workspace.held(stage))
                break
            except BusyError:
                time.sleep(_LOOK_SECONDS)
        yield
