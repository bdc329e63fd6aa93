"""What review needs of Label Studio's interface, over requests.

Not label-studio-sdk: it holds NumPy below 2.3, brings OpenCV, and repeats POSTs that may have been
stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from annotation.client_errors import ReviewServerError, Unanswered
from annotation.client_http import Connection

#: Candidates looked up in one question: its address must fit into what proxies take (8 kB).
LOOKED_UP = 100

#: Tasks in one answer: with their annotations, and as numbers alone.
PAGE, PAGE_OF_IDS = 200, 1000

# What is asked of tasks and, by the same list, of their annotations: all takes twice as long.
_ANSWERS = (
    "id,updated_at,data,annotations,result,completed_by,was_cancelled,lead_time,created_at,"
    "unique_id"
)

Json = dict[str, Any]


class Client:
    """One Label Studio under one token; not to be shared between threads.

    Every method raises `ServerAway`, `TokenRefused`, `GoneError` or `ReviewServerError` as
    `annotation.client_errors` says; those that change something also `Unanswered`.

    Args:
        url: its address, as people open it.
        token: a legacy token or a personal access token.
        seconds: longest silence, and longest time for one answer.
        stop: asked about ten times a second, while waiting, whether to give up.

    Raises:
        UsageError: the address or the token cannot be one.
    """

    def __init__(
        self,
        url: str,
        token: str,
        seconds: float = 60.0,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self._to = Connection(url, token, seconds, stop)
        self.url = self._to.url
        #: Gives requests for the server's files the token; for this server alone.
        self.auth = self._to.auth

    def who_am_i(self) -> Json:
        """The account that the token belongs to: `id`, `email`, …"""
        return self._object(self._to.ask("/api/current-user/whoami"), "id", "email")

    def version(self) -> str:
        """Label Studio's version, for example "1.23.2"."""
        return str(self._object(self._to.ask("/api/version"), "release")["release"])

    def clock(self) -> datetime:
        """The server's time, in UTC, to the second, rounded down.

        Raises:
            ReviewServerError: it tells none.
        """
        self._to.server_time = None
        self._to.ask("/api/version")
        if self._to.server_time is None:
            raise ReviewServerError(f"Label Studio at {self.url} tells no time")
        return self._to.server_time

    def users(self) -> list[Json]:
        """All accounts: `id`, `email`, …"""
        return self._objects(self._to.ask("/api/users/"), "id", "email")

    def invite(self) -> str:
        """The path, with a secret in it, of the page where a new account can be made."""
        return str(self._object(self._to.ask("/api/invite"), "invite_url")["invite_url"])

    def create_project(self, title: str, label_config: str, **settings: Any) -> Json:
        """Make a project.

        Args:
            title: 3 to 50 characters; several projects may have the same one.
            label_config: the labelling interface, in XML.
            settings: what else Label Studio knows of a project, for example `maximum_annotations`.

        Returns:
            The project: `id`, `title`, `label_config`, …
        """
        asked = {"title": title, "label_config": label_config, **settings}
        return self._stored(self._to.send("POST", "/api/projects/", asked), "id")

    def project(self, project: int) -> Json:
        """A project, with its `label_config`."""
        return self._object(self._to.ask(f"/api/projects/{project}/"), "id", "label_config")

    def projects(self, title: str) -> list[Json]:
        """The projects with this very title, `id` and `title` of each, in order of their ids.

        A project whose making was not answered is found by it.
        """
        found: list[Json] = []
        page = 1
        while True:
            asked = {"title": title, "include": "id,title", "page": page, "page_size": 100}
            told = self._object(self._to.ask("/api/projects/", asked), "results")
            found += self._objects(told["results"], "id", "title")
            if not told.get("next"):
                return sorted((p for p in found if p["title"] == title), key=lambda p: p["id"])
            page += 1

    def update_project(self, project: int, **settings: Any) -> Json:
        """Change a project, for example its `label_config`; gives it as it is then."""
        return self._stored(self._to.send("PATCH", f"/api/projects/{project}/", settings), "id")

    def delete_project(self, project: int) -> None:
        """Delete a project with all its tasks and annotations."""
        self._to.send("DELETE", f"/api/projects/{project}/")

    def local_storages(self, project: int) -> list[Json]:
        """The records that let a project's tasks show files of the server's: `id`, `path`, …"""
        asked = {"project": project}
        return self._objects(self._to.ask("/api/storages/localfiles", asked), "id", "path")

    def create_local_storage(self, project: int, path: str, title: str = "images") -> Json:
        """Let a project's tasks show the files below a folder, by `/data/local-files/?d=…`.

        The record alone is what permits it; nothing is synchronised.

        Args:
            project: its id.
            path: the folder as the server sees it, below its document root.
            title: what the settings page calls it.
        """
        asked = {"project": project, "path": path, "title": title, "use_blob_urls": True}
        return self._stored(self._to.send("POST", "/api/storages/localfiles", asked), "id")

    def import_tasks(self, project: int, tasks: Sequence[Mapping[str, Any]]) -> list[int]:
        """Add one batch of tasks: all of them, or none.

        Args:
            project: its id.
            tasks: each with `data`, and `predictions` where there are some; at most 500 at a time.

        Returns:
            Their ids, in the same order.

        Raises:
            Unanswered: they may have been stored: `find_tasks` tells.
        """
        told = self._stored(
            self._to.send(
                "POST",
                f"/api/projects/{project}/import",
                [dict(task) for task in tasks],
                {"return_task_ids": "true"},
            ),
            "task_ids",
        )
        ids = told["task_ids"]
        if not isinstance(ids, list) or not all(type(one) is int for one in ids):
            raise Unanswered(f"{self._malformed()} What was sent may have been stored")
        if len(ids) != len(tasks):
            raise Unanswered(f"Label Studio at {self.url} took {len(ids)} of {len(tasks)} tasks")
        return ids

    def find_tasks(self, project: int, candidates: Sequence[str]) -> dict[str, list[int]]:
        """The tasks whose `data.candidate` is one of these.

        Args:
            project: its id.
            candidates: keys, any number.

        Returns:
            Candidate to the ids of its tasks in rising order; those without a task are left out.
        """
        found: dict[str, list[int]] = {}
        wanted = list(dict.fromkeys(candidates))
        for first in range(0, len(wanted), LOOKED_UP):
            some = wanted[first : first + LOOKED_UP]
            condition = _condition("data.candidate", "in_list", "List", some)
            for task in self._tasks(project, [condition], PAGE, "task_only", "id,data"):
                candidate = str((task.get("data") or {}).get("candidate"))
                found.setdefault(candidate, []).append(task["id"])
        return found

    def updated_tasks(
        self, project: int, since: datetime | None, annotated: bool | None = None
    ) -> Iterator[Json]:
        """The tasks that were changed since a time, with their annotations.

        An annotation that was made, changed, skipped or deleted changes its task; a deleted task is
        simply not there (compare `task_ids`). What is changed while this runs may be left out: take
        `clock()` before it, and begin the next one there.

        Args:
            project: its id.
            since: with a time zone; None: from the beginning.
            annotated: True: only tasks with annotations, those that were answered and then those
                that were skipped; one that was both comes twice. False: only those without.
                Either is much quicker than all tasks.

        Returns:
            In order of their ids: `id`, `updated_at`, and but for those without annotations `data`
            and `annotations`, each with what was said, by whom and when.
        """
        conditions = []
        if since is not None:
            when = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            conditions = [_condition("updated_at", "greater_or_equal", "Datetime", when)]
        counts = ("total_annotations", "cancelled_annotations")
        if annotated:
            for each in counts:
                some = [*conditions, _condition(each, "greater", "Number", 0)]
                yield from self._tasks(project, some, PAGE, "all", _ANSWERS)
        elif annotated is None:
            yield from self._tasks(project, conditions, PAGE, "all", _ANSWERS)
        else:
            conditions += [_condition(each, "equal", "Number", 0) for each in counts]
            yield from self._tasks(project, conditions, PAGE_OF_IDS, "task_only", "id,updated_at")

    def task_ids(self, project: int) -> list[int]:
        """The ids of all tasks of a project, rising."""
        return [task["id"] for task in self._tasks(project, [], PAGE_OF_IDS, "task_only", "id")]

    def task(self, task: int) -> Json:
        """A task with its annotations."""
        return self._object(self._to.ask(f"/api/tasks/{task}/"), "id", "annotations")

    def delete_task(self, task: int) -> None:
        """Delete a task with all its annotations."""
        self._to.send("DELETE", f"/api/tasks/{task}/")

    def upload(self, project: int, files: Mapping[str, bytes]) -> list[str]:
        """Give the server files of its own, which make no tasks.

        Args:
            project: its id; its page must ask for one value alone.
            files: by name; at most 100 at a time.

        Returns:
            Their addresses as `uploads` gives them, in any order.

        Raises:
            Unanswered: they may have been stored: `uploads` tells.
        """
        path = f"/api/projects/{project}/import"
        told = self._to.send("POST", path, params={"commit_to_project": "false"}, files=files)
        ids = self._stored(told, "file_upload_ids")["file_upload_ids"]
        return self._uploads(project, {"ids": json.dumps(ids)})

    def uploads(self, project: int) -> list[str]:
        """The addresses, without the server's, of all files that this account has uploaded to a
        project, each of which ends in a hyphen and the name that its file was given."""
        return self._uploads(project, {"all": "true"})

    def _uploads(self, project: int, asked: Mapping[str, str]) -> list[str]:
        told = self._to.ask(f"/api/projects/{project}/file-uploads", asked)
        return [f"/data/{each['file']}" for each in self._objects(told, "id", "file")]

    def create_annotation(
        self, task: int, result: Sequence[Mapping[str, Any]], unique_id: str, **more: Any
    ) -> Json:
        """Add an annotation.

        Args:
            task: its id.
            result: what was said, in Label Studio's form.
            unique_id: a UUID; a second annotation with it is refused, so that one whose answer
                did not come can be sent again.
            more: for example `lead_time` in seconds, or `completed_by`.

        Raises:
            AlreadyStored: there is one with this `unique_id`.
        """
        asked = {"result": [dict(item) for item in result], "unique_id": unique_id, **more}
        return self._stored(self._to.send("POST", f"/api/tasks/{task}/annotations/", asked), "id")

    def _tasks(
        self,
        project: int,
        conditions: Sequence[Json],
        page_size: int,
        fields: str,
        include: str | None,
    ) -> Iterator[Json]:
        """Tasks in order of their ids, a page at a time.

        Each page begins after the last id of the one before and is the first page of its question:
        by page numbers, a task that is deleted or drops out meanwhile would hide another one.
        """
        last = 0
        while True:
            after = _condition("id", "greater", "Number", last)
            query = {
                "filters": {"conjunction": "and", "items": [*conditions, after]},
                "ordering": ["tasks:id"],
            }
            asked = {
                "project": project,
                "query": json.dumps(query, separators=(",", ":")),
                "fields": fields,
                "include": include,
                "page": 1,
                "page_size": page_size,
            }
            told = self._object(self._to.ask("/api/tasks", asked), "tasks")
            tasks = self._objects(told["tasks"], "id")
            # A short page need not be the last one: a server may have a limit of its own.
            if not tasks:
                return
            if any(type(task["id"]) is not int for task in tasks) or tasks[-1]["id"] <= last:
                raise self._malformed()
            yield from tasks
            last = tasks[-1]["id"]

    def _object(self, value: Any, *names: str) -> Json:
        if not isinstance(value, dict) or any(name not in value for name in names):
            raise self._malformed()
        return value

    def _stored(self, value: Any, *names: str) -> Json:
        try:
            return self._object(value, *names)
        except ReviewServerError as error:
            raise Unanswered(f"{error} What was sent may have been stored") from None

    def _objects(self, values: Any, *names: str) -> list[Json]:
        if not isinstance(values, list):
            raise self._malformed()
        return [self._object(value, *names) for value in values]

    def _malformed(self) -> ReviewServerError:
        return ReviewServerError(
            f"Label Studio at {self.url} answers in a form that is not understood; is it one, and "
            "of a version like 1.23?"
        )


def _condition(column: str, operator: str, kind: str, value: Any) -> Json:
    return {
        "filter": f"filter:tasks:{column}",
        "operator": operator,
        "type": kind,
        "value": value,
    }
