"""Tasks sent to a Label Studio, each once, whatever is cut off between the two sides.

What changes something there may have been done though no answer came. So the catalogue says first
what is about to be sent; what it says and does not know the number of is looked up before it is
sent again. Label Studio itself takes the same task twice without a word.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from annotation.client import Client
from annotation.client_errors import ReviewServerError, Unanswered
from curate.catalog import answers as kept
from curate.catalog import review_queues as queues
from curate.errors import Interrupted
from curate.progress import Bar
from pipelines.review_projects import PATIENCE, PAUSE, SETTLED, Project, ensure_project
from pipelines.workspace import Workspace

__all__ = ["Project", "ensure_project", "only_task", "send", "tasks_of"]

#: Most tasks of one request, and most bytes of them.
BATCH, MOST_BYTES = 500, 8_000_000

#: A row of `review_tasks`.
Row = Mapping[str, Any]

#: Of some rows their tasks in the same order; None for what cannot be shown.
MakeData = Callable[[Sequence[Row]], Sequence[Mapping[str, Any] | None]]


class Stopping(Protocol):
    """Whether the user wants to stop, as `curate.progress.Stop` tells it."""

    @property
    def requested(self) -> bool:
        """True from then on."""


def send(
    workspace: Workspace,
    client: Client,
    project: Mapping[str, Any],
    rows: Sequence[Row],
    make_data: MakeData,
    stop: Stopping,
    bar: Bar | None = None,
) -> int:
    """Send tasks to a project, each once.

    Memory is that of one batch of tasks. Killed or interrupted at any moment, the same call with
    what `review_queues.unsent` gives then goes on.

    Args:
        workspace: whose stage "review" the caller holds.
        client: of its server.
        project: a row of `ensure_project`.
        rows: tasks of this project without number, in the order in which people shall see them.
        make_data: gives tasks whose `data.candidate` is the candidate's key.
        stop: asked before each batch.
        bar: told of each task that has been dealt with.

    Returns:
        How many are at the server that were not known to be there before.

    Raises:
        GoneError: somebody has deleted the project.
        Unanswered: no answer came, and what was sent is not there either; start it again.
        Interrupted: as asked.
        ReviewServerError: as `annotation.client_errors` says.
    """
    return _Sending(workspace, client, project, make_data, stop, bar).send(rows)


class _Sending:
    def __init__(
        self,
        workspace: Workspace,
        client: Client,
        project: Mapping[str, Any],
        make_data: MakeData,
        stop: Stopping,
        bar: Bar | None,
    ) -> None:
        self.workspace, self.client, self.make_data = workspace, client, make_data
        self.stop, self.bar = stop, bar
        self.project_id, self.number = int(project["id"]), int(project["number"])
        self.count = 0
        #: What was sent at least once without an answer: it may come to be there twice.
        self.doubtful: dict[str, int] = {}

    def send(self, rows: Sequence[Row]) -> int:
        doubtful = [row for row in rows if row["sent"]]
        here = self._adopt(doubtful, SETTLED) if doubtful else set()
        left = [row for row in rows if row["id"] not in here]
        for start in range(0, len(left), BATCH):
            self._check_stop()
            batch = left[start : start + BATCH]
            made = zip(batch, self.make_data(batch), strict=True)
            ready = [(row, task) for row, task in made if task is not None]
            for some in _bounded(ready):
                self._send(some)
            if self.bar is not None:
                self.bar.advance(len(batch) - len(ready))
        self._look_again()
        return self.count

    def _look_again(self) -> None:
        """What came to be there twice in the end is there once."""
        found = self._find(list(self.doubtful)) if self.doubtful else {}
        twice = self._single({key: numbers for key, numbers in found.items() if len(numbers) > 1})
        with self.workspace.catalogue.write() as connection:
            queues.set_numbers(connection, {self.doubtful[key]: n for key, n in twice.items()})

    def _check_stop(self) -> None:
        if self.stop.requested:
            raise Interrupted("stopped; the same command goes on")

    def _send(self, batch: list[tuple[Row, Mapping[str, Any]]]) -> None:
        ids = [row["id"] for row, _ in batch]
        with self.workspace.catalogue.write() as connection:
            queues.mark(connection, ids, sent=True)
        try:
            numbers = self.client.import_tasks(self.number, [task for _, task in batch])
        except Unanswered:
            here = self._adopt([row for row, _ in batch], PATIENCE)
            left = [(row, task) for row, task in batch if row["id"] not in here]
            if left:
                self._again(left)
        except ReviewServerError:
            # It says that nothing was stored, so that there is nothing to look up.
            with self.workspace.catalogue.write() as connection:
                queues.mark(connection, ids, sent=False)
            raise
        else:
            self._keep(dict(zip(ids, numbers, strict=True)))

    def _again(self, batch: list[tuple[Row, Mapping[str, Any]]]) -> None:
        """Once more what was looked up and is not there; a second silence ends the command."""
        self._check_stop()
        numbers = self.client.import_tasks(self.number, [task for _, task in batch])
        self._keep(dict(zip([row["id"] for row, _ in batch], numbers, strict=True)))

    def _adopt(self, rows: Sequence[Row], seconds: float) -> set[int]:
        """Take the numbers of what is at the server already; gives the ids of these rows."""
        self.doubtful |= {row["candidate"]: row["id"] for row in rows}
        until = time.monotonic() + seconds
        here: set[int] = set()
        left = list(rows)
        while left:
            found = self._single(self._find([row["candidate"] for row in left]))
            numbers = {
                row["id"]: found[row["candidate"]] for row in left if row["candidate"] in found
            }
            self._keep(numbers)
            here |= numbers.keys()
            left = [row for row in left if row["id"] not in here]
            if not left or time.monotonic() >= until:
                break
            self._check_stop()
            time.sleep(PAUSE)
        return here

    def _keep(self, numbers: Mapping[int, int]) -> None:
        with self.workspace.catalogue.write() as connection:
            queues.set_numbers(connection, numbers)
        self.count += len(numbers)
        if self.bar is not None:
            self.bar.advance(len(numbers))

    def _find(self, candidates: Sequence[str]) -> dict[str, list[int]]:
        return tasks_of(self.workspace, self.client, self.project_id, self.number, candidates)

    def _single(self, found: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """One task a candidate: of several that nobody has answered the oldest."""
        return {key: only_task(self.client, numbers) for key, numbers in found.items()}


def tasks_of(
    workspace: Workspace, client: Client, project_id: int, number: int, candidates: Sequence[str]
) -> dict[str, list[int]]:
    """The tasks of some candidates at the server, by key.

    One that is known to be another candidate's is none of these, whatever somebody has written into
    it since.

    Args:
        workspace: the workspace.
        client: of the server.
        project_id: of the project's row.
        number: of the project at the server.
        candidates: keys.
    """
    found = client.find_tasks(number, candidates)
    with workspace.catalogue.read() as connection:
        known = kept.live_tasks(connection, project_id)
    mine = {
        key: [n for n in numbers if n not in known or known[n]["candidate"] == key]
        for key, numbers in found.items()
    }
    return {key: numbers for key, numbers in mine.items() if numbers}


def only_task(client: Client, numbers: Collection[int]) -> int:
    """Of several tasks of one candidate the one that counts; the others are deleted, unless
    somebody has answered them.

    Args:
        client: of the server.
        numbers: at least one.
    """
    first, *others = sorted(numbers)
    if not others:
        return first
    tasks = {number: client.task(number) for number in (first, *others)}
    answered = {n for n, task in tasks.items() if task["annotations"] or task.get("drafts")}
    counts = min(answered or {first})
    for number in (first, *others):
        if number != counts and number not in answered:
            client.delete_task(number)
    return counts


def _bounded(
    batch: Sequence[tuple[Row, Mapping[str, Any]]],
) -> Iterator[list[tuple[Row, Mapping[str, Any]]]]:
    some: list[tuple[Row, Mapping[str, Any]]] = []
    size = 0
    for row, task in batch:
        length = len(json.dumps(task))
        if some and size + length > MOST_BYTES:
            yield some
            some, size = [], 0
        some.append((row, task))
        size += length
    if some:
        yield some
