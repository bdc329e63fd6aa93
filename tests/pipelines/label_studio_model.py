"""What Label Studio keeps and tells of projects, tasks and annotations, as far as a pull asks.

It is a model in memory, for histories that are drawn by the thousand and for faults that a real
server does not produce on demand; `StandIn` serves it on loopback. That it tells the truth is shown
by tests that ask a real server the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import zip_longest
from typing import Any

from annotation.client_errors import GoneError
from tests.sources.servers import Exchange, LoopbackServer

TOKEN = "0123456789abcdef" * 2 + "01234567"
Json = dict[str, Any]


def item(name: str, kind: str, *values: Any) -> Json:
    """One item of an annotation's result."""
    key = "text" if kind == "textarea" else kind
    return {"from_name": name, "to_name": "image", "type": kind, "value": {key: list(values)}}


def said(decision: str, also: Sequence[str] = (), corrected: str | None = None) -> list[Json]:
    """An annotation's result, as the page makes it."""
    result = [item("decision", "choices", decision)]
    if decision == "valid":
        result.append(item("also", "choices", *(also or ["(none)"])))
    if corrected is not None:
        result.append(item("corrected", "taxonomy", ["some group", corrected]))
    return result


class Model:
    """A Label Studio in memory, with the methods of `annotation.client.Client` that pulls call."""

    url = "http://labels.example.org"

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 4, 5, 6, 7, 250_000, tzinfo=UTC)
        self.accounts = {1: "ann@example.org", 2: "bob@example.org", 3: "eve@example.org"}
        self.held: dict[int, dict[int, Json]] = {}
        self.last = 0
        #: Added to what it counts, for a server that contradicts itself.
        self.miscounts = 0

    def _number(self) -> int:
        self.last += 1
        return self.last

    def _when(self, seconds: float = 1.5) -> str:
        self.now += timedelta(seconds=seconds)
        return self.now.isoformat().replace("+00:00", "Z")

    def add_project(self) -> int:
        number = self._number()
        self.held[number] = {}
        return number

    def add_tasks(
        self, project: int, candidates: Sequence[str], sha256s: Sequence[str] = ()
    ) -> list[int]:
        numbers = []
        for candidate, sha256 in zip_longest(candidates, sha256s, fillvalue="0" * 64):
            number = self._number()
            data = {"candidate": candidate, "image": f"/{sha256}.jpg"}
            task = {"id": number, "data": data, "annotations": [], "updated_at": self._when()}
            self.held[project][number] = task
            numbers.append(number)
        return numbers

    def tasks_of(self, number: int) -> Json:
        """A task by its number, wherever it is."""
        return next(tasks[number] for tasks in self.held.values() if number in tasks)

    def annotate(
        self, task: int, account: Any, result: Any, seconds: float = 1.5, **more: Any
    ) -> int:
        """Somebody answers; a result of None is a skip."""
        number, when = self._number(), self._when(seconds)
        annotation = {
            "id": number,
            "completed_by": account,
            "result": [] if result is None else result,
            "was_cancelled": result is None,
            "created_at": when,
            "updated_at": when,
            "lead_time": 2.5,
            **more,
        }
        self.put(task, annotation)
        return number

    def put(self, task: int, annotation: Any) -> None:
        """An annotation of whatever form."""
        held = self.tasks_of(task)
        held["annotations"].append(annotation)
        held["updated_at"] = self._when()

    def edit(self, task: int, number: int, result: Any, seconds: float = 1.5) -> None:
        held = self.tasks_of(task)
        annotation = next(a for a in held["annotations"] if a["id"] == number)
        annotation["result"] = [] if result is None else result
        annotation["was_cancelled"] = result is None
        annotation["updated_at"] = held["updated_at"] = self._when(seconds)

    def delete(self, task: int, number: int) -> None:
        held = self.tasks_of(task)
        held["annotations"] = [a for a in held["annotations"] if a["id"] != number]
        held["updated_at"] = self._when()

    def show(self, task: int, **data: Any) -> None:
        """Somebody edits what a task shows."""
        held = self.tasks_of(task)
        held["data"].update(data)
        held["updated_at"] = self._when()

    def delete_account(self, account: int) -> None:
        """What the account has made stays, and is nobody's; no task counts as changed."""
        del self.accounts[account]
        for tasks in self.held.values():
            for task in tasks.values():
                for annotation in task["annotations"]:
                    if annotation["completed_by"] == account:
                        annotation["completed_by"] = None

    def delete_task(self, task: int) -> None:
        self._when()
        for tasks in self.held.values():
            tasks.pop(task, None)

    # What follows is what a client asks.

    def clock(self) -> datetime:
        return self.now.replace(microsecond=0)

    def users(self) -> list[Json]:
        return [{"id": number, "email": email} for number, email in self.accounts.items()]

    def project(self, project: int) -> Json:
        if project not in self.held:
            raise GoneError("No Project matches the given query.", 404)
        skipped = total = 0
        for task in self.held[project].values():
            skips = sum(_skips(each) for each in task["annotations"])
            skipped += skips
            total += len(task["annotations"]) - skips
        return {
            "id": project,
            "label_config": "<View/>",
            "task_number": len(self.held[project]),
            "total_annotations_number": total + self.miscounts,
            "skipped_annotations_number": skipped,
        }

    def task_ids(self, project: int) -> list[int]:
        return sorted(self.held[project])

    def task(self, task: int) -> Json:
        return deepcopy(self.tasks_of(task))

    def find_tasks(self, project: int, candidates: Sequence[str]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, task in sorted(self.held[project].items()):
            if (key := task["data"]["candidate"]) in candidates:
                found.setdefault(key, []).append(number)
        return found

    def updated_tasks(
        self, project: int, since: datetime | None, annotated: bool | None = None
    ) -> Iterator[Json]:
        self.project(project)
        tasks = [
            deepcopy(task)
            for _, task in sorted(self.held[project].items())
            if since is None or datetime.fromisoformat(task["updated_at"]) >= since
        ]
        if annotated:
            yield from (t for t in tasks if any(not _skips(a) for a in t["annotations"]))
            yield from (t for t in tasks if any(_skips(a) for a in t["annotations"]))
        else:
            yield from (t for t in tasks if annotated is None or not t["annotations"])


def _skips(annotation: Any) -> bool:
    return isinstance(annotation, dict) and annotation.get("was_cancelled") is True


class StandIn:
    """A model, served over HTTP.

    Args:
        model: what it tells.
        server: where.

    Attributes:
        trouble: called before each page of tasks with its number, from 0; True where it has
            answered badly already.
    """

    def __init__(self, model: Model, server: LoopbackServer) -> None:
        self.model, self.pages = model, 0
        self.trouble: Callable[[Exchange, int], bool] = lambda exchange, page: False
        server.on("/api/version", lambda e: self._json(e, {"release": "1.23.2"}))
        server.on("/api/users/", lambda e: self._json(e, model.users()))
        server.on("/api/projects/*", self._project)
        server.on("/api/tasks", self._tasks)

    def _json(self, exchange: Exchange, value: Any, status: int = 200) -> None:
        if exchange.request.headers["Authorization"] != f"Token {TOKEN}":
            exchange.json({"detail": "Invalid token."}, 401)
            return
        exchange.json(value, status, {"Date": format_datetime(self.model.clock(), usegmt=True)})

    def _project(self, exchange: Exchange) -> None:
        try:
            told = self.model.project(int(exchange.request.path.split("/")[3]))
        except GoneError:
            self._json(exchange, {"detail": "No Project matches the given query."}, 404)
        else:
            self._json(exchange, told)

    def _tasks(self, exchange: Exchange) -> None:
        page, self.pages = self.pages, self.pages + 1
        if self.trouble(exchange, page):
            return
        asked = exchange.request.query
        project = int(asked["project"])
        if project not in self.model.held:
            self._json(exchange, {"detail": "No Project matches the given query."}, 404)
            return
        tasks = [task for _, task in sorted(self.model.held[project].items())]
        for condition in json.loads(asked["query"])["filters"]["items"]:
            tasks = [task for task in tasks if _meets(task, condition)]
        some = tasks[: int(asked["page_size"])]
        self._json(exchange, {"tasks": some, "total": len(tasks)})


def _meets(task: Json, condition: Json) -> bool:
    column = condition["filter"].removeprefix("filter:tasks:")
    wanted = condition["value"]
    skips = sum(_skips(each) for each in task["annotations"])
    if column == "updated_at":
        return datetime.fromisoformat(task["updated_at"]) >= datetime.fromisoformat(wanted)
    if column == "data.candidate":
        return task["data"]["candidate"] in wanted
    value = {
        "id": task["id"],
        "total_annotations": len(task["annotations"]) - skips,
        "cancelled_annotations": skips,
    }[column]
    return value > wanted if condition["operator"] == "greater" else value == wanted
