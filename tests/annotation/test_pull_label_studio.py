"""Pulling from a real Label Studio, where people answer, change their minds and delete things."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from annotation.answers import standing
from annotation.client import Client
from annotation.client_errors import GoneError
from annotation.interface import review_interface
from annotation.server_accounts import OWNER
from annotation.task_data import Shown, task
from curate.catalog.review_tables import answers, review_tasks
from curate.catalog.reviews import all_annotators
from pipelines.review_outcomes import reviewed
from pipelines.review_pull import pull
from pipelines.workspace import open_workspace
from tests.annotation.serving import Served
from tests.pipelines.label_studio_model import said
from tests.pipelines.reviewing import Rows, made_rows
from tests.running import dying

# The first test to run may have to install it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ANN, COUNT = "ann@example.org", 8


@dataclass
class Pulling:
    """A workspace whose candidates the owner and another annotator were given at a real server.

    Attributes:
        people: ids of their accounts there.
        projects: numbers of their projects.
        tasks: numbers of the tasks of each, by candidate.
    """

    rows: Rows
    client: Client
    people: list[int]
    projects: list[int]
    tasks: list[list[int]]

    def answer(self, person: int, number: int, result: Any, **more: Any) -> int:
        """Answer a task; a result of None is a skip."""
        if result is None:
            more["was_cancelled"] = True
        told = self.client.create_annotation(
            self.tasks[person][number],
            result or [],
            str(uuid.uuid4()),
            completed_by=self.people[person],
            lead_time=1.5,
            **more,
        )
        return int(told["id"])

    def edit(self, number: int, result: Any) -> None:
        changes = {"result": result or [], "was_cancelled": result is None}
        self.client._to.send("PATCH", f"/api/annotations/{number}/", changes)

    def pull(self) -> dict[str, Any]:
        return pull(self.rows.workspace)

    def stand(self) -> dict[tuple[int, int], str]:
        """What stands, by person and candidate."""
        with self.rows.workspace.catalogue.read() as connection:
            accounts = {row["name"]: row["account"] for row in all_annotators(connection)}
        found = reviewed(self.rows.workspace).answers
        return {
            ([OWNER, ANN].index(accounts[a.annotator]), self.rows.keys.index(a.candidate)): str(
                a.decision
            )
            for a in standing(found)
        }

    def events(self) -> list[tuple[int, str]]:
        with self.rows.workspace.catalogue.read() as connection:
            rows = connection.execute(select(answers).order_by(answers.c.id)).mappings()
            return [(row["annotation"], row["event"]) for row in rows]

    def states(self, person: int) -> list[str]:
        with self.rows.workspace.catalogue.read() as connection:
            mine = review_tasks.c.project_id == self.rows.project("review", person)
            query = select(review_tasks.c.state).where(mine).order_by(review_tasks.c.id)
            return list(connection.scalars(query))


@pytest.fixture
def pulling(running: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pulling]:
    client = running.client()
    monkeypatch.setenv("CURATE_REVIEW_TOKEN", running.kept["token"])
    monkeypatch.setenv("CURATE_REVIEW__URL", client.url)
    made_rows(tmp_path / "w", COUNT).workspace.close()
    rows = made_rows_again(tmp_path / "w")
    ids = {user["email"]: user["id"] for user in client.users()}
    space = rows.workspace.label_space
    page = review_interface("misclassified", space)
    made = Pulling(rows, client, [ids[OWNER], ids[ANN]], [], [])
    for person in (0, 1):
        settings = {"maximum_annotations": 1, "show_skip_button": True}
        project = client.create_project(f"pull {uuid.uuid4().hex[:8]}", page, **settings)["id"]
        shown = [
            Shown(key, f"/data/{sha256}.jpg", space.get(rows.wnids[0]))
            for key, sha256 in zip(rows.keys, rows.sha256s, strict=True)
        ]
        numbers = client.import_tasks(project, [task(each, "review") for each in shown])
        rows.project("review", person, project)
        rows.give(range(COUNT), [person], tasks=dict(enumerate(numbers)))
        made.projects.append(project)
        made.tasks.append(numbers)
    yield made
    rows.workspace.close()
    for project in made.projects:
        with suppress(GoneError):
            client.delete_project(project)


def made_rows_again(root: Path) -> Rows:
    """The workspace with the settings of the environment."""
    from curate.catalog.tables import candidates

    workspace = open_workspace(root)
    with workspace.catalogue.read() as connection:
        found = list(connection.execute(select(candidates).order_by(candidates.c.id)).mappings())
    columns = ([row[name] for row in found] for name in ("key", "sha256", "wnid", "id"))
    return Rows(workspace, *columns, accounts=[OWNER, ANN])


def test_a_day_of_two_people_comes_home_exactly(pulling: Pulling, personal_token: str) -> None:
    client = pulling.client
    # One through her own token, as whoever works through the interface of programs.
    own = Client(client.url, personal_token)
    own.create_annotation(pulling.tasks[1][0], said("valid"), str(uuid.uuid4()))
    first = pulling.answer(0, 0, said("valid"))
    second = pulling.answer(0, 1, said("unclear"))
    third = pulling.answer(0, 2, None)
    pulling.answer(0, 3, [{"from_name": "invented", "value": {"choices": [7]}}])
    (foreign,) = client.import_tasks(
        pulling.projects[0], [{"data": {**client.task(pulling.tasks[0][0])["data"]}}]
    )
    client.create_annotation(foreign, said("valid"), str(uuid.uuid4()))
    summary = pulling.pull()
    told = {name: summary[name] for name in ("pulled", "skipped", "unread", "foreign", "problems")}
    assert told == {"pulled": 4, "skipped": 1, "unread": 2, "foreign": 1, "problems": []}
    assert pulling.stand() == {(0, 0): "valid", (0, 1): "unclear", (1, 0): "valid"}
    assert pulling.states(0) == ["answered", "answered", "skipped", *["open"] * 5]
    assert (summary["accepted"], summary["set_aside"]) == (1, 2)
    assert pulling.pull()["pulled"] == 0

    # The next morning: an edit, an answer instead of a skip, a skip instead of an answer.
    pulling.edit(first, said("wrong-label", corrected=pulling.rows.workspace.label_space.wnids[9]))
    pulling.edit(second, None)
    pulling.edit(third, said("valid"))
    summary = pulling.pull()
    assert (summary["pulled"], summary["edited"], summary["skipped"]) == (3, 2, 1)
    assert pulling.stand() == {(0, 0): "wrong-label", (0, 2): "valid", (1, 0): "valid"}
    assert summary["disputed"] == 1

    # Deleted: an answer, by itself and by the page's action on a selection; a task.
    client._to.send("DELETE", f"/api/annotations/{third}/")
    chosen = {"selectedItems": {"all": False, "included": [pulling.tasks[1][0]]}}
    action = {"id": "delete_tasks_annotations", "project": pulling.projects[1]}
    client._to.send("POST", "/api/dm/actions", chosen, action)
    client.delete_task(pulling.tasks[0][0])
    client.delete_task(foreign)
    summary = pulling.pull()
    assert (summary["deleted"], summary["tasks_gone"], summary["problems"]) == (2, 1, [])
    # What was said of the deleted task stays.
    assert pulling.stand() == {(0, 0): "wrong-label"}
    assert pulling.states(0)[:3] == ["gone", "skipped", "open"]
    assert pulling.states(1)[0] == "open"
    assert summary["set_aside"] == 1

    # A page edited by hand, with a choice of its own; then the whole project deleted.
    page = client.project(pulling.projects[1])["label_config"]
    client.update_project(pulling.projects[1], label_config=page.replace("unclear", "murky"))
    pulling.answer(1, 4, said("murky"))
    pulling.answer(1, 5, said("valid"))
    summary = pulling.pull()
    assert (summary["pulled"], summary["unread"], summary["set_aside"]) == (1, 1, 2)
    client.delete_project(pulling.projects[1])
    summary = pulling.pull()
    assert len(summary["projects_gone"]) == 1
    assert summary["problems"] == []
    assert pulling.stand() == {(0, 0): "wrong-label", (1, 5): "valid"}


def test_a_pull_killed_at_each_step_leaves_each_answer_once(
    pulling: Pulling,
) -> None:
    expected = answered(pulling)
    command = ("-w", pulling.rows.workspace.root, "review", "pull")
    # Before the answers of the first project are in, after it, before and after those of the
    # second, and after both.
    kills = [f"commit:{number}" for number in (5, 6, 10, 11, 14)]
    killed = [dying(*command, at=at) is None for at in kills]
    assert killed == [True] * len(kills)
    assert dying(*command, at="any:1000000") is not None
    assert_exact(pulling, expected)
    assert pulling.pull()["pulled"] == 0


def test_a_pull_that_says_too_early_that_all_is_there_is_caught(pulling: Pulling) -> None:
    """The planted fault that the test of kills must find."""
    expected = answered(pulling)
    command = ("--fault", "hasty", "-w", pulling.rows.workspace.root, "review", "pull")
    assert dying(*command, at="half:1") is None
    assert dying(*command, at="any:1000000") is not None
    with pytest.raises(AssertionError):
        assert_exact(pulling, expected)


def answered(pulling: Pulling) -> list[int]:
    """Let both answer some; gives the numbers of their annotations."""
    made = [pulling.answer(0, number, said("valid")) for number in range(3)]
    made.append(pulling.answer(1, 0, said("unclear")))
    made.append(pulling.answer(1, 1, None))
    return made


def assert_exact(pulling: Pulling, expected: list[int]) -> None:
    """Each answer came home once, and nothing else."""
    assert sorted(number for number, _ in pulling.events()) == sorted(expected)
    assert {event for _, event in pulling.events()} == {"answered", "skipped"}
    assert pulling.states(0)[:4] == ["answered", "answered", "answered", "open"]
    assert pulling.states(1)[:3] == ["answered", "skipped", "open"]
