"""Pull: what people have said at Label Studio becomes rows of the catalogue, each version once.

Only what was changed since the last pull is asked for. Then both sides count: where they differ, as
after a deletion, everything is looked at, and where they still differ it is said loudly.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from sqlalchemy import RowMapping

from annotation.answers import Question
from annotation.client import Client
from annotation.client_errors import GoneError, ReviewServerError
from annotation.parsing import Parsed, Unusable, read_annotation
from annotation.server import connect
from curate.catalog import answers as kept
from curate.catalog import review_queues as queues
from curate.errors import Interrupted, UsageError
from curate.progress import Bar, Stop, progress, say, stop_on_interrupt
from pipelines.review_answers import Pages, Tally
from pipelines.review_corrections import make_corrections
from pipelines.review_outcomes import review_counts, reviewed
from pipelines.review_projects import as_asked, server_of
from pipelines.review_sending import only_task, tasks_of
from pipelines.review_withdrawn import withdraw_all
from pipelines.workspace import Workspace

#: Tasks that are taken over in one transaction.
BATCH = 200

#: What was changed so long before the last pull began is asked for again: a server may store a
#: change a little after the time that it gives it.
OVERLAP = timedelta(seconds=60)

#: What accounts may be called, as the catalogue holds it.
_LONGEST_ACCOUNT = 254


def pull(workspace: Workspace) -> dict[str, Any]:
    """Bring home what people have said since the last pull.

    Killed or cut off at any moment, the same command goes on: nothing is lost, and nothing is there
    twice. A pull over what is known already changes nothing.

    Args:
        workspace: the workspace.

    Returns:
        `pulled` (new versions of answers; of these `edited` and `skipped`), `deleted` (answers that
        are gone at the server), `unread` (found now and set aside; of these `foreign`, on tasks
        that were not pushed), `tasks_gone`, `projects_gone` (titles), `corrected` (candidates made
        of corrected labels), `notes` and `problems` (a line each), and the counts of
        `review_outcomes.review_counts`.

    Raises:
        UsageError: no server runs, or it refuses the token.
        BusyError: another review command is at work.
        Interrupted: stopped by the user; the same command goes on.
        ReviewServerError: as `annotation.client_errors` says; what was pulled stays.
    """
    with workspace.held("review"), stop_on_interrupt() as stop:
        settings = workspace.settings.review
        client = connect(workspace.root, settings, os.environ, lambda: stop.requested)
        with workspace.catalogue.read() as connection:
            projects = [
                row
                for row in queues.projects(connection, server_of(workspace))
                if row["state"] == "open" and row["number"] is not None
            ]
        tally, problems, gone = Tally(), [], []
        accounts = _Accounts(client)
        with progress("pull", None, unit="tasks") as bar:
            for row in projects:
                try:
                    asked = as_asked(workspace, row["record"])
                except UsageError as error:
                    problems.append(f"the project {row['title']} was left out: {error}")
                    continue
                try:
                    problem = _Pull(asked, client, row, accounts, tally, stop, bar).work()
                except _ProjectGone:
                    gone.append(row["title"])
                    with workspace.catalogue.write() as connection:
                        queues.lose_project(connection, row["id"])
                    say(f"the project {row['title']} was deleted at Label Studio; its answers stay")
                else:
                    problems += [problem] if problem else []
        withdraw_all(workspace)
        corrected, notes = make_corrections(workspace, reviewed(workspace))
    told = asdict(tally)
    return {
        **review_counts(workspace),
        "pulled": tally.pulled,
        "unread": told["set_aside"],
        **{name: told[name] for name in ("edited", "skipped", "deleted", "foreign", "tasks_gone")},
        "projects_gone": gone,
        "corrected": corrected,
        "notes": notes,
        "problems": problems,
    }


class _ProjectGone(Exception):
    """Somebody has deleted the project."""


class _Accounts:
    """Mail addresses of accounts by their ids, asked for where they are needed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[int, str] | None = None

    def __call__(self, number: int) -> str | None:
        """The address; None where there is no such account, or it has none that can be kept."""
        if self._known is None:
            self._known = {
                user["id"]: user["email"]
                for user in self._client.users()
                if isinstance(user["id"], int) and _sound(user["email"])
            }
        return self._known.get(number)


def _sound(email: Any) -> bool:
    return (
        isinstance(email, str)
        and 0 < len(email.strip()) <= _LONGEST_ACCOUNT
        and email.isprintable()
    )


class _Pull:
    """The pull of one project."""

    def __init__(
        self,
        workspace: Workspace,
        client: Client,
        row: RowMapping,
        accounts: _Accounts,
        tally: Tally,
        stop: Stop,
        bar: Bar,
    ) -> None:
        self.workspace, self.client, self.row = workspace, client, row
        self.number = int(row["number"])
        self.accounts, self.tally, self.stop, self.bar = accounts, tally, stop, bar
        self.question = cast(Question, workspace.settings.filter.rule)

    def work(self) -> str | None:
        """Pull; gives what is wrong, in words.

        Raises:
            _ProjectGone: the project is not there.
        """
        began = self._clock()
        self._pages = Pages(
            self.workspace,
            self.row,
            began.replace(tzinfo=None),
            self._read,
            self.accounts,
            self.tally,
        )
        last = self.row["pulled"]
        since = None if last is None else last.replace(tzinfo=UTC) - OVERLAP
        if since is not None and began < since:
            # The server's clock was put back: what is changed now is older than the last pull.
            since = None
        try:
            # Whether it is there at all: what follows may be asked of nothing but its tasks.
            self.client.project(self.number)
            self._adopt()
            self._take(self.client.updated_tasks(self.number, since, annotated=True))
            problem = self._count(began, since)
        except GoneError as error:
            raise self._gone(error) from None
        with self.workspace.catalogue.write() as connection:
            values = {"pulled": began.replace(tzinfo=None)}
            queues.update_project(connection, self.row["id"], values)
        return problem

    def _gone(self, error: GoneError) -> Exception:
        """Whether it is the project that is gone, or something else."""
        try:
            self.client.project(self.number)
        except GoneError:
            return _ProjectGone()
        return ReviewServerError(str(error), error.status)

    def _clock(self) -> datetime:
        try:
            return self.client.clock().astimezone(UTC)
        except GoneError as error:
            # No Label Studio, and so nothing that was deleted there.
            raise ReviewServerError(str(error), error.status) from None

    def _read(self, annotation: Mapping[str, Any]) -> Parsed | Unusable:
        return read_annotation(
            annotation,
            question=self.question,
            space=self.workspace.label_space,
            purpose=self.row["purpose"],
        )

    def _adopt(self) -> None:
        """Look for the tasks that a push was killed over: people may have answered them."""
        with self.workspace.catalogue.read() as connection:
            rows = kept.doubtful_tasks(connection, self.row["id"])
        if not rows:
            return
        keys = [row["candidate"] for row in rows]
        found = tasks_of(self.workspace, self.client, self.row["id"], self.number, keys)
        numbers = {
            row["id"]: only_task(self.client, found[row["candidate"]])
            for row in rows
            if row["candidate"] in found
        }
        with self.workspace.catalogue.write() as connection:
            queues.set_numbers(connection, numbers)

    def _take(self, tasks: Iterable[Mapping[str, Any]]) -> set[int]:
        """Take over tasks, a batch at a time; gives their numbers."""
        seen: set[int] = set()
        batch: list[Mapping[str, Any]] = []
        for task in tasks:
            if not isinstance(task.get("annotations"), list):
                raise ReviewServerError(
                    f"Label Studio at {self.client.url} answers in a form that is not understood: "
                    "a task without annotations"
                )
            batch.append(task)
            seen.add(task["id"])
            if len(batch) == BATCH:
                self._batch(batch)
                batch = []
        if batch:
            self._batch(batch)
        return seen

    def _batch(self, batch: list[Mapping[str, Any]]) -> None:
        self._pages.take(batch)
        self.bar.advance(len(batch))
        if self.stop.requested:
            raise Interrupted("stopped; the same command goes on")

    def _count(self, began: datetime, since: datetime | None) -> str | None:
        """Compare what both sides count, and look closer where they differ."""
        if self._agrees(self._counts()):
            return None
        # Somebody is at work, or the last annotation of a task is gone.
        self._take(self.client.updated_tasks(self.number, began - OVERLAP, annotated=True))
        if since is not None:
            with self.workspace.catalogue.read() as connection:
                known = kept.annotated_tasks(connection, self.row["id"])
            bare = self.client.updated_tasks(self.number, since, annotated=False)
            self._bare([task["id"] for task in bare if task["id"] in known])
        before = self._counts()
        if self._agrees(before):
            return None
        self._whole()
        after = self._counts()
        if self._agrees(after) or before != after:
            # What is said just now is for the next pull, which counts as well.
            return None
        with self.workspace.catalogue.read() as connection:
            here = kept.count_annotations(connection, self.row["id"])
        return (
            f"the project {self.row['title']} has {after[1]:,} answers at Label Studio, by its own "
            f"count, and {here:,} came here though all were looked at: pull again, and if it stays "
            "so compare its page Data Manager with curate review export"
        )

    def _counts(self) -> tuple[int, int]:
        """How many tasks and annotations the server counts."""
        told = self.client.project(self.number)
        numbers = [
            told.get(name)
            for name in ("task_number", "total_annotations_number", "skipped_annotations_number")
        ]
        if any(type(number) is not int for number in numbers):
            raise ReviewServerError(
                f"Label Studio at {self.client.url} does not say how many answers there are; is it "
                "of a version like 1.23?"
            )
        tasks, answered, skipped = cast(list[int], numbers)
        return tasks, answered + skipped

    def _agrees(self, counts: tuple[int, int]) -> bool:
        """Whether as many are known here; tasks that are gone at the server are gone here then."""
        with self.workspace.catalogue.read() as connection:
            tasks = len(kept.live_tasks(connection, self.row["id"]))
        if tasks != counts[0]:
            self._lose_tasks(set(self.client.task_ids(self.number)))
        with self.workspace.catalogue.read() as connection:
            return kept.count_annotations(connection, self.row["id"]) == counts[1]

    def _lose_tasks(self, there: set[int]) -> None:
        """Record which tasks somebody has deleted; what was pulled of them stays."""
        with self.workspace.catalogue.write() as connection:
            live = kept.live_tasks(connection, self.row["id"])
            gone = {row["id"]: "gone" for number, row in live.items() if number not in there}
            kept.set_task_states(connection, gone)
            aside = kept.aside_elsewhere(connection, self.row["id"], there)
            kept.settle(connection, aside)
        self.tally.tasks_gone += len(gone)

    def _bare(self, numbers: list[int]) -> None:
        for start in range(0, len(numbers), BATCH):
            self._pages.bare(numbers[start : start + BATCH])

    def _whole(self) -> None:
        """Look at every task of the project."""
        say(f"the counts of the project {self.row['title']} differ; looking at all its tasks")
        seen = self._take(self.client.updated_tasks(self.number, None))
        self._lose_tasks(seen)
