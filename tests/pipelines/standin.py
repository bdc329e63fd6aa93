"""A stand-in for a Label Studio, as far as a push asks it, with faults at a test's word."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tests.sources.servers import Exchange, LoopbackServer

TOKEN = "0123456789abcdef" * 2 + "01234567"

#: Deals with a request, or gives False to let it be dealt with as usual.
Fault = Callable[[Exchange, "StandIn"], bool]


class StandIn(LoopbackServer):
    """Keeps projects and tasks; use it as a context manager.

    Attributes:
        projects, tasks: what it keeps, by number.
        faults: by the name of what is asked (import, create, delete), used up one a request.
    """

    def __init__(self, accounts: tuple[str, ...] = ("ann@example.org", "bob@example.org")) -> None:
        super().__init__()
        self.accounts = accounts
        self.projects: dict[int, dict[str, Any]] = {}
        self.tasks: dict[int, dict[str, Any]] = {}
        self.uploads: dict[int, list[str]] = {}
        self.faults: dict[str, list[Fault]] = {}
        self.batches: list[int] = []
        self.numbers = 0
        self.on("/api/version", lambda e: e.json({"release": "1.23.2"}))
        self.on("/api/current-user/whoami", lambda e: e.json({"id": 1, "email": "me@example.org"}))
        self.on("/api/users/", lambda e: e.json(self._users()))
        self.on("/api/projects/", self._all_projects)
        self.on("/api/projects/*", self._one_project)
        self.on("/api/tasks", self._list)
        self.on("/api/tasks/*", self._one_task)

    def candidates(self, title: str = "") -> list[str]:
        """The candidates of all tasks, or of those of the projects whose title begins so."""
        return sorted(
            task["data"]["candidate"]
            for task in self.tasks.values()
            if self.projects[task["project"]]["title"].startswith(title)
        )

    def store(self, exchange: Exchange) -> list[int]:
        """Store the tasks of an import without an answer."""
        project = int(exchange.request.path.split("/")[3])
        tasks = json.loads(exchange.request.body)
        self.batches.append(len(tasks))
        numbers = []
        for task in tasks:
            numbers.append(number := self._next())
            self.tasks[number] = {
                "id": number,
                "project": project,
                "data": task["data"],
                "annotations": [],
            }
        return numbers

    def create(self, exchange: Exchange) -> dict[str, Any]:
        """Make a project without an answer."""
        number = self._next()
        self.projects[number] = {"id": number, **json.loads(exchange.request.body)}
        return self.projects[number]

    def _next(self) -> int:
        self.numbers += 1
        return self.numbers

    def _users(self) -> list[dict[str, Any]]:
        return [{"id": n, "email": email} for n, email in enumerate(self.accounts, 2)]

    def _fails(self, what: str, exchange: Exchange) -> bool:
        faults = self.faults.get(what, [])
        return bool(faults) and faults.pop(0)(exchange, self)

    def _all_projects(self, exchange: Exchange) -> None:
        if exchange.request.method == "POST":
            if not self._fails("create", exchange):
                exchange.json(self.create(exchange), 201)
            return
        title = exchange.request.query.get("title", "")
        found = [each for each in self.projects.values() if title in each["title"]]
        exchange.json({"results": found, "next": None})

    def _one_project(self, exchange: Exchange) -> None:
        match = re.fullmatch(r"/api/projects/(\d+)/(\S*)", exchange.request.path)
        assert match is not None
        number, what = int(match[1]), match[2]
        if number not in self.projects:
            exchange.json({"detail": "No Project matches the given query."}, 404)
        elif what == "import" and "commit_to_project" in exchange.request.query:
            names = re.findall(rb'filename="([^"]*)"', exchange.request.body)
            mine = self.uploads.setdefault(number, [])
            mine += [
                f"upload/{number}/{len(mine) + n:08x}-{x.decode()}" for n, x in enumerate(names)
            ]
            exchange.json({"file_upload_ids": list(range(len(mine)))}, 201)
        elif what == "import":
            if not self._fails("import", exchange):
                exchange.json({"task_ids": self.store(exchange)}, 201)
        elif what == "file-uploads":
            files = self.uploads.get(number, [])
            exchange.json([{"id": n, "file": file} for n, file in enumerate(files)])
        elif exchange.request.method == "PATCH":
            self.projects[number] |= json.loads(exchange.request.body)
            exchange.json(self.projects[number])
        elif exchange.request.method == "DELETE":
            self.delete(number)
            exchange.send(204)
        else:
            exchange.json(self.projects[number])

    def delete(self, project: int) -> None:
        """Delete a project with its tasks."""
        del self.projects[project]
        self.tasks = {n: task for n, task in self.tasks.items() if task["project"] != project}

    def _list(self, exchange: Exchange) -> None:
        query = json.loads(exchange.request.query["query"])
        project = int(exchange.request.query["project"])
        if project not in self.projects:
            exchange.json({"detail": "No Project matches the given query."}, 404)
            return
        found = [task for task in self.tasks.values() if task["project"] == project]
        for item in query["filters"]["items"]:
            if item["filter"].endswith(":id"):
                found = [task for task in found if task["id"] > item["value"]]
            elif item["filter"].endswith("data.candidate"):
                found = [task for task in found if task["data"]["candidate"] in item["value"]]
        exchange.json({"tasks": found[: int(exchange.request.query["page_size"])]})

    def _one_task(self, exchange: Exchange) -> None:
        number = int(exchange.request.path.split("/")[3])
        if number not in self.tasks:
            exchange.json({"detail": "No Task matches the given query."}, 404)
        elif exchange.request.method == "DELETE":
            if not self._fails("delete", exchange):
                del self.tasks[number]
                exchange.send(204)
        else:
            exchange.json(self.tasks[number])


def stored_then_silent(exchange: Exchange, server: StandIn) -> bool:
    """Tasks are stored, and no answer comes."""
    server.store(exchange)
    exchange.raw(b"")
    return True


def not_stored(exchange: Exchange, server: StandIn) -> bool:
    """Nothing is stored, and no answer comes."""
    exchange.raw(b"")
    return True


def made_then_silent(exchange: Exchange, server: StandIn) -> bool:
    """The project is made, and no answer comes."""
    server.create(exchange)
    exchange.raw(b"")
    return True
