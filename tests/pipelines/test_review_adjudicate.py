"""What annotators differ over goes to whoever has the last word, once, with who said what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from annotation.answers import Answer
from curate.catalog.review_tables import review_projects, review_tasks
from curate.errors import UsageError
from pipelines.review_adjudicate import adjudicate, votes_text
from pipelines.review_outcomes import reviewed
from tests.pipelines.reviewing import START, Rows
from tests.pipelines.standin import TOKEN, StandIn, stored_then_silent
from tests.pipelines.test_review_push import workspace_with

HOSTILE = "<script>alert(1)</script>\n  & more"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("CURATE_REVIEW_TOKEN", TOKEN)
    monkeypatch.setattr("pipelines.review_sending.PATIENCE", 0.3)
    monkeypatch.setattr("pipelines.review_sending.SETTLED", 0.1)
    monkeypatch.setattr("pipelines.review_sending.PAUSE", 0.05)
    monkeypatch.setattr("annotation.client_http.backoff", lambda attempt: 0.0)
    with StandIn() as running:
        yield running


@pytest.fixture
def rows(tmp_path: Path, server: StandIn) -> Iterator[Rows]:
    """Two people differ over the candidates 6, 1 and 4, in this order of their queues."""
    made = workspace_with(tmp_path / "w", server, 9)
    made.give([6, 0, 1, 2, 4, 3])
    for number in (6, 1, 4):
        made.say(number, 0, "valid")
        made.say(number, 1, "unclear", note=HOSTILE, reasons=["blurred"])
    for number in (0, 2):
        made.say(number, 0, "valid")
        made.say(number, 1, "valid")
    yield made
    made.workspace.close()


def data(server: StandIn) -> list[dict[str, Any]]:
    return [task["data"] for _, task in sorted(server.tasks.items())]


def projects(server: StandIn) -> list[dict[str, Any]]:
    """Those for adjudication: examples of accepted photos may have one of their own."""
    return [each for each in server.projects.values() if not each["title"].startswith("photos")]


def test_the_disputed_are_pushed_once_in_review_order_with_who_said_what(
    rows: Rows, server: StandIn
) -> None:
    summary = adjudicate(rows.workspace)
    assert (summary["pushed"], summary["disputed"], summary["problems"]) == (3, 3, [])
    assert [each["candidate"] for each in data(server)] == [rows.keys[n] for n in (6, 1, 4)]
    (project,) = projects(server)
    assert project["title"] == summary["project"]
    assert project["title"].startswith("adjudication (")
    assert "$votes" in project["label_config"]
    votes = data(server)[0]["votes"]
    assert "annotator-1: valid" in votes
    assert (
        "annotator-2: unclear (blurred): &lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in votes
    )
    assert "example.org" not in votes
    again = adjudicate(rows.workspace)
    assert (again["pushed"], len(server.tasks), len(projects(server))) == (0, 3, 1)
    # Under another title those that wait already are not pushed either.
    assert adjudicate(rows.workspace, title="last word")["pushed"] == 0
    assert len(projects(server)) == 1


def test_the_last_word_ends_a_dispute_whose_task_stays_harmlessly(
    rows: Rows, server: StandIn
) -> None:
    adjudicate(rows.workspace, title="last word")
    rows.say(6, 0, "valid", purpose="adjudication")
    outcome = reviewed(rows.workspace).outcomes[rows.keys[6]]
    assert (outcome.status, outcome.adjudicated) == ("accepted", True)
    # One more is disputed now, and one no longer.
    rows.say(3, 0, "valid")
    rows.say(3, 1, "unclear")
    rows.say(1, 1, "valid")
    summary = adjudicate(rows.workspace, title="last word")
    assert (summary["pushed"], summary["disputed"], summary["accepted"]) == (1, 2, 4)
    assert data(server)[-1]["candidate"] == rows.keys[3]
    places = [(row["candidate"], row["place"]) for row in tasks(rows, "adjudication")]
    assert places == [(rows.keys[n], place) for place, n in enumerate((6, 1, 4, 3))]


def tasks(rows: Rows, purpose: str) -> list[Any]:
    with rows.workspace.catalogue.read() as connection:
        query = (
            select(review_tasks)
            .join(review_projects, review_projects.c.id == review_tasks.c.project_id)
            .where(review_projects.c.purpose == purpose)
        )
        return list(connection.execute(query.order_by(review_tasks.c.id)).mappings())


def test_a_deleted_task_and_a_deleted_project_are_made_anew(rows: Rows, server: StandIn) -> None:
    adjudicate(rows.workspace)
    first = tasks(rows, "adjudication")[0]
    del server.tasks[first["number"]]
    with rows.workspace.catalogue.write() as connection:
        gone = update(review_tasks).where(review_tasks.c.id == first["id"])
        connection.execute(gone.values(state="gone"))
    assert adjudicate(rows.workspace)["pushed"] == 1
    server.delete(projects(server)[0]["id"])
    summary = adjudicate(rows.workspace)
    assert (summary["pushed"], len(server.tasks), len(projects(server))) == (3, 3, 1)


def test_a_request_that_is_not_answered_leaves_each_task_once(rows: Rows, server: StandIn) -> None:
    server.faults["import"] = [stored_then_silent]
    assert adjudicate(rows.workspace)["pushed"] == 3
    assert len(server.tasks) == 3


def test_where_nothing_is_disputed_there_is_no_project(rows: Rows, server: StandIn) -> None:
    for number in (6, 1, 4):
        rows.say(number, 1, "valid")
    summary = adjudicate(rows.workspace)
    assert (summary["pushed"], summary["project"], summary["url"]) == (0, None, None)
    assert server.projects == {}


@pytest.mark.parametrize("title", ["", " a ", "x" * 31, "two\nlines"])
def test_what_cannot_be_a_title_is_refused(rows: Rows, server: StandIn, title: str) -> None:
    with pytest.raises(UsageError, match="3 to 30 characters"):
        adjudicate(rows.workspace, title=title)
    assert server.projects == {}


def test_a_vote_names_classes_and_its_note_is_one_short_line(rows: Rows) -> None:
    space = rows.workspace.label_space
    one, other = space.wnids[:2]
    about = {"candidate": "c", "made": START}
    text = votes_text(
        [
            Answer(
                annotator="annotator-1", decision="wrong-label", entry="1", corrected=one, **about
            ),
            Answer(annotator="annotator-2", decision="valid", entry="2", also=(other,), **about),
            Answer(
                annotator="annotator-3", decision="unclear", entry="3", note="n " * 400, **about
            ),
        ],
        space,
    )
    lines = text.splitlines()
    assert lines[0] == f"annotator-1: wrong-label, it is {space.name_of(one)}"
    assert lines[1] == f"annotator-2: valid; also there: {space.name_of(other)}"
    assert lines[2].endswith("…")
    assert len(lines[2]) < 350
