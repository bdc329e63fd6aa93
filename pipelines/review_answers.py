"""From what Label Studio says of some tasks to rows of the catalogue, one transaction a page.

What is there is compared with what was pulled before, annotation by annotation, and only what
differs becomes a row. So it does not matter how often, in which order or how much at a time tasks
are looked at: the rows that stand are those of what the server says.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping

from annotation.answers import Decision
from annotation.parsing import Parsed, Unusable
from curate.catalog import answers as kept
from curate.catalog import reviews
from curate.catalog.tables import now
from curate.files import sha256_bytes
from pipelines.review_outcomes import GONE
from pipelines.workspace import Workspace

#: What is kept of an annotation that cannot be read, in characters.
LONGEST_RAW = 10_000

#: What the catalogue's columns hold.
_LARGEST_NUMBER = 2**31 - 1

_FOREIGN = "its task is none that was pushed from here"
_NOBODY = "the account that made it is none of the server's"
_OTHERWISE = (
    "its task was edited by hand, and shows another photo; delete the task, and the next push "
    "sends it anew"
)

#: The columns that tell one version of an answer from another.
_SAID = (
    "annotator_id",
    "decision",
    "reasons",
    "corrected",
    "also",
    "picked",
    "note",
    "seconds",
    "made",
)

Json = Mapping[str, Any]


@dataclass
class Tally:
    """What a pull has found that was not known.

    Attributes:
        answered, edited, skipped, deleted, unusable: rows of these events.
        set_aside: annotations that cannot be read.
        foreign: of these the ones on tasks that were not pushed.
        tasks_gone: tasks that somebody has deleted.
    """

    answered: int = 0
    edited: int = 0
    skipped: int = 0
    deleted: int = 0
    unusable: int = 0
    set_aside: int = 0
    foreign: int = 0
    tasks_gone: int = 0

    @property
    def pulled(self) -> int:
        """New rows that say something."""
        return self.answered + self.edited + self.skipped


@dataclass
class _Known:
    """What the catalogue says of one task."""

    entries: dict[int, list[Json]] = field(default_factory=lambda: defaultdict(list))
    aside: dict[int, list[RowMapping]] = field(default_factory=lambda: defaultdict(list))


class Pages:
    """Takes over what the server says of one project's tasks.

    Args:
        workspace: where to.
        project: its row.
        moment: the server's time before it was asked, in UTC without zone.
        read: what an annotation says.
        account: mail address of an account by its id at the server; None where there is none.
        tally: what is counted.
    """

    def __init__(
        self,
        workspace: Workspace,
        project: RowMapping,
        moment: datetime,
        read: Callable[[Json], Parsed | Unusable],
        account: Callable[[int], str | None],
        tally: Tally,
    ) -> None:
        self.workspace, self.project, self.moment = workspace, project, moment
        self._read, self._account, self.tally = read, account, tally

    def take(self, tasks: Sequence[Json]) -> None:
        """Take over some tasks, in one transaction.

        Args:
            tasks: `id` and all `annotations` of each, and `data` of those that have some.
        """
        # Once each: a task that was answered and skipped is told twice.
        told = {task["id"]: task["annotations"] for task in tasks}
        shown = {task["id"]: task.get("data") for task in tasks}
        read: dict[int, list[tuple[Any, Parsed | Unusable, str | None]]] = {}
        for number in sorted(told):
            read[number] = []
            for annotation in told[number]:
                said = self._read(annotation)
                # The server may have to be asked for it, which no transaction waits for.
                email = self._account(said.account_id) if isinstance(said, Parsed) else None
                read[number].append((annotation, said, email))
        numbers = [number for number in sorted(read) if number <= _LARGEST_NUMBER]
        with self.workspace.catalogue.write() as connection:
            page = _Page(self, connection, numbers)
            for number in numbers:
                page.task(number, read[number], shown[number])
            page.write()
        page.count()

    def bare(self, numbers: Iterable[int]) -> None:
        """Take over that some tasks are there and have no annotations (any more)."""
        self.take([{"id": number, "annotations": []} for number in numbers])


class _Page:
    def __init__(self, pages: Pages, connection: Connection, numbers: Sequence[int]) -> None:
        self._connection, self._tally = connection, pages.tally
        self._project, self._moment = pages.project, pages.moment
        project_id = self._project["id"]
        self._tasks = kept.tasks_numbered(connection, project_id, numbers)
        self._known: dict[int, _Known] = defaultdict(_Known)
        for row in kept.entries_of(connection, project_id, numbers):
            self._known[row["task"]].entries[row["annotation"]].append(dict(row))
        for row in kept.aside_of(connection, project_id, numbers):
            self._known[row["task"]].aside[row["annotation"]].append(row)
        self._answers: list[dict[str, Any]] = []
        self._aside: list[dict[str, Any]] = []
        self._settled: list[int] = []
        self._states: dict[int, str] = {}
        self._foreign = 0

    def task(
        self,
        number: int,
        annotations: Sequence[tuple[Any, Parsed | Unusable, str | None]],
        shown: Any,
    ) -> None:
        """Compare one task with what is known of it."""
        task, known = self._tasks.get(number), self._known[number]
        there: set[int] = set()
        for raw, said, email in annotations:
            at = said.number if said.number and said.number <= _LARGEST_NUMBER else 0
            there.add(at)
            if task is None:
                self._set_aside(number, at, raw, _FOREIGN)
            elif isinstance(said, Unusable) or not at:
                why = said.why if isinstance(said, Unusable) else "its id is too large"
                self._unusable(task, at, raw, why, said.made)
            elif email is None:
                self._unusable(task, at, raw, _NOBODY, said.made)
            elif not _shows(shown, task):
                self._unusable(task, at, raw, _OTHERWISE, said.made)
            else:
                self._usable(task, said, email)
        for at, aside in known.aside.items():
            if at not in there:
                self._settle(aside)
        if task is None:
            return
        for at, rows in known.entries.items():
            if at not in there and rows and rows[-1]["event"] != "deleted":
                self._add(task, at, rows[-1], "deleted")
        self._note_state(task, known)

    def _usable(self, task: RowMapping, said: Parsed, email: str) -> None:
        known = self._known[task["number"]]
        skipped = said.decision is Decision.SKIPPED
        row = {
            "annotator_id": reviews.annotator(self._connection, email)["id"],
            "decision": said.decision or "",
            "reasons": list(said.reasons),
            "corrected": said.corrected,
            "also": list(said.also),
            "picked": said.picked,
            "note": said.note,
            "seconds": said.seconds,
            "made": said.made,
        }
        before = known.entries[said.number]
        last = before[-1] if before else None
        self._settle(known.aside[said.number])
        stands = last is not None and last["event"] not in GONE
        if last is not None and stands and all(last[name] == row[name] for name in _SAID):
            return
        event = "skipped" if skipped else "edited" if before else "answered"
        self._add(task, said.number, row, event)

    def _unusable(
        self, task: RowMapping, at: int, raw: Any, why: str, made: datetime | None
    ) -> None:
        before = self._known[task["number"]].entries[at]
        stands = bool(before) and before[-1]["event"] not in GONE
        if stands and before[-1]["made"] == made:
            # It was read before and is the same: what changed is around it, as where its account
            # was deleted or its task edited afterwards.
            return
        self._set_aside(task["number"], at, raw, why)
        if stands:
            self._add(task, at, before[-1], "unusable")

    def _add(self, task: RowMapping, at: int, said: Json, event: str) -> None:
        """Add a row: `said` with its event; one that takes back says what it takes back."""
        before = self._known[task["number"]].entries[at]
        made = said["made"]
        if event in GONE:
            made = max(made, self._moment)
        row = {name: said[name] for name in _SAID} | {
            "entry": f"{self._project['id']}.{at}",
            "project_id": self._project["id"],
            "task": task["number"],
            "annotation": at,
            "candidate": task["candidate"],
            "purpose": self._project["purpose"],
            "event": event,
            "made": made,
            "pulled": now(),
        }
        what = [self._project["server"], self._project["number"], at, event]
        told = [str(row[name]) if name == "made" else row[name] for name in _SAID]
        # How many came before tells a version that comes back, as from a backup of the server,
        # from that which was pulled at first.
        row["key"] = sha256_bytes(json.dumps([*what, len(before), *told]).encode())
        before.append(row)
        self._answers.append(row)

    def _set_aside(self, number: int, at: int, raw: Any, why: str) -> None:
        text = _text(raw)
        about = [self._project["id"], number, at, why, text]
        key = sha256_bytes(json.dumps(about).encode())
        earlier = self._known[number].aside[at]
        others = [row for row in earlier if row["key"] != key]
        # Those without a number may be several.
        if at:
            self._settle(others)
        same = next((row for row in earlier if row["key"] == key), None)
        if same is not None and not same["settled"]:
            return
        self._foreign += why == _FOREIGN
        self._aside.append(
            {
                "key": key,
                "project_id": self._project["id"],
                "task": number,
                "annotation": at,
                "why": why,
                "raw": text if len(text) <= LONGEST_RAW else f"{text[: LONGEST_RAW - 1]}…",
                "settled": False,
                "seen": now(),
            }
        )

    def _settle(self, rows: Iterable[RowMapping]) -> None:
        self._settled += [row["id"] for row in rows if not row["settled"]]

    def _note_state(self, task: RowMapping, known: _Known) -> None:
        """What became of a task: of what its annotator has said there the newest word counts."""
        whose = self._project["annotator_id"]
        stand = [
            rows[-1]
            for rows in known.entries.values()
            if rows and rows[-1]["event"] not in GONE and whose in (None, rows[-1]["annotator_id"])
        ]
        if stand:
            newest = max(stand, key=lambda row: (row["made"], row["annotation"]))
            state = "skipped" if newest["event"] == "skipped" else "answered"
        else:
            state = task["state"] if task["state"] in ("lapsed", "withdrawn") else "open"
        if state != task["state"]:
            self._states[task["id"]] = state

    def write(self) -> None:
        """Write what differs."""
        kept.add_answers(self._connection, self._answers)
        kept.settle(self._connection, self._settled)
        kept.put_aside(self._connection, self._aside)
        kept.set_task_states(self._connection, self._states)

    def count(self) -> None:
        """Count what was written, once it is."""
        for row in self._answers:
            setattr(self._tally, row["event"], getattr(self._tally, row["event"]) + 1)
        self._tally.set_aside += len(self._aside)
        self._tally.foreign += self._foreign


def _shows(data: Any, task: RowMapping) -> bool:
    """Whether a task's data is of the photo that was sent; its address holds the photo's hash."""
    if not isinstance(data, Mapping):
        return False
    return data.get("candidate") == task["candidate"] and task["sha256"] in str(data.get("image"))


def _text(raw: Any) -> str:
    try:
        return json.dumps(raw, sort_keys=True)
    except RecursionError:
        return "(nested too deeply)"
