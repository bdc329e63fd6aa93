"""Answers come home once each, whatever people, servers and kills do in between."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text

from annotation.answers import standing
from annotation.client_errors import ReviewServerError, ServerAway, TokenRefused
from curate.catalog import judging
from curate.catalog.review_tables import answers, review_projects, review_tasks, set_aside
from curate.errors import Interrupted
from curate.labels.space import load_label_space
from pipelines import review_pull
from pipelines.review_outcomes import reviewed
from pipelines.review_pull import pull
from tests.pipelines.label_studio_model import TOKEN, Model, StandIn, item, said
from tests.pipelines.reviewing import RUN, Rows, made_rows
from tests.running import run_curate
from tests.sources.servers import Exchange, LoopbackServer


@dataclass
class Reviewing:
    """A workspace whose candidates were given to two people at a modelled Label Studio."""

    rows: Rows
    model: Model
    projects: list[int]
    tasks: list[dict[int, int]]

    def pull(self) -> dict[str, Any]:
        return pull(self.rows.workspace)

    def table(self, which: Any) -> list[dict[str, Any]]:
        with self.rows.workspace.catalogue.read() as connection:
            found = connection.execute(select(which).order_by(which.c.id))
            return [dict(row._mapping) for row in found]

    def said(self) -> list[tuple[int, str, str, str]]:
        """Number of the candidate, annotator's account, event and decision of every row."""
        found = {row["id"]: row["account"] for row in self.people()}
        return [
            (
                self.rows.keys.index(row["candidate"]),
                found[row["annotator_id"]].partition("@")[0],
                row["event"],
                row["decision"],
            )
            for row in self.table(answers)
        ]

    def people(self) -> list[Any]:
        from curate.catalog.reviews import all_annotators

        with self.rows.workspace.catalogue.read() as connection:
            return list(all_annotators(connection))

    def states(self, person: int) -> list[str]:
        mine = self.projects_of(person)
        return [r["state"] for r in self.table(review_tasks) if r["project_id"] == mine]

    def projects_of(self, person: int) -> int:
        return self.rows.project("review", person)

    def stand(self) -> set[tuple[str, str, str]]:
        found = reviewed(self.rows.workspace).answers
        return {(a.candidate, a.annotator, a.decision) for a in standing(found)}


def reviewing(
    root: Path, model: Model, number: int = 6, preset: str = "imagenet-a", **review: Any
) -> Reviewing:
    rows = made_rows(root, number, preset=preset, review=review)
    made = Reviewing(rows, model, [], [])
    for person in (0, 1):
        project = model.add_project()
        numbers = model.add_tasks(project, rows.keys[:number], rows.sha256s[:number])
        tasks = dict(enumerate(numbers))
        rows.project("review", person, project)
        rows.give(range(number), [person], tasks=tasks)
        made.projects.append(project)
        made.tasks.append(tasks)
    return made


@pytest.fixture
def uncounted(here: Reviewing, monkeypatch: pytest.MonkeyPatch) -> Reviewing:
    """The same without what is told at the end of each pull, for hundreds of them."""
    monkeypatch.setattr(review_pull, "review_counts", lambda _: {})
    return here


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reviewing]:
    model = Model()
    monkeypatch.setattr(review_pull, "connect", lambda *_: model)
    made = reviewing(tmp_path / "w", model)
    with made.rows.workspace.catalogue.write() as connection:
        # Whoever changes what was said is told so.
        for what in ("UPDATE", "DELETE"):
            connection.execute(
                text(
                    f"CREATE TRIGGER no_{what} BEFORE {what} ON answers "
                    "BEGIN SELECT RAISE(ABORT, 'what was said is changed'); END"
                )
            )
    yield made
    made.rows.workspace.close()


def test_answers_come_home_once_with_who_when_and_how_long(here: Reviewing) -> None:
    model, (ann, bob) = here.model, here.tasks
    model.annotate(ann[0], 1, said("valid"))
    model.annotate(bob[0], 2, said("wrong-label", corrected=here.rows.wnids[0]))
    model.annotate(ann[1], 1, None)
    summary = here.pull()
    assert (summary["pulled"], summary["skipped"], summary["problems"]) == (3, 1, [])
    assert here.said() == [
        (0, "ann", "answered", "valid"),
        (1, "ann", "skipped", "skipped"),
        (0, "bob", "answered", "wrong-label"),
    ]
    first = here.table(answers)[0]
    assert (first["seconds"], first["entry"]) == (2.5, f"1.{first['annotation']}")
    (told,) = model.tasks_of(ann[0])["annotations"]
    assert first["made"].isoformat() + "Z" == told["updated_at"]
    assert here.states(0) == ["answered", "skipped", *["open"] * 4]
    assert summary["waiting"] == 5
    assert summary["disputed"] == 1
    # Again, and nothing is new.
    before = here.table(answers)
    again = here.pull()
    assert (again["pulled"], again["disputed"]) == (0, 1)
    assert here.table(answers) == before


def test_an_edit_is_a_row_of_its_own_and_a_skip_and_a_deletion_take_back(here: Reviewing) -> None:
    model, ann = here.model, here.tasks[0]
    number = model.annotate(ann[0], 1, said("valid"))
    here.pull()
    model.edit(ann[0], number, said("unclear"))
    assert here.pull()["edited"] == 1
    model.edit(ann[0], number, None)
    assert here.pull()["skipped"] == 1
    assert here.stand() == set()
    assert here.states(0)[0] == "skipped"
    model.edit(ann[0], number, said("valid"))
    here.pull()
    assert here.states(0)[0] == "answered"
    model.delete(ann[0], number)
    summary = here.pull()
    assert (summary["deleted"], summary["pulled"], summary["problems"]) == (1, 0, [])
    assert here.states(0)[0] == "open"
    assert [row[2:] for row in here.said()] == [
        ("answered", "valid"),
        ("edited", "unclear"),
        ("skipped", "skipped"),
        ("edited", "valid"),
        ("deleted", "valid"),
    ]
    assert len({row["entry"] for row in here.table(answers)}) == 1
    assert here.pull()["deleted"] == 0


def test_of_two_answers_of_one_person_the_older_one_stands_after_the_newer_is_deleted(
    here: Reviewing,
) -> None:
    model, ann = here.model, here.tasks[0]
    model.annotate(ann[0], 1, said("valid"))
    second = model.annotate(ann[0], 1, said("unclear"))
    here.pull()
    assert {each[2] for each in here.stand()} == {"unclear"}
    model.delete(ann[0], second)
    here.pull()
    assert {each[2] for each in here.stand()} == {"valid"}


def test_a_deletion_long_before_a_pull_whose_last_page_was_lost_is_found_by_counting(
    here: Reviewing,
) -> None:
    model, ann = here.model, here.tasks[0]
    number = model.annotate(ann[0], 1, said("valid"))
    here.pull()
    model.delete(ann[0], number)
    # Nothing that is asked for since the last pull shows it any more.
    with here.rows.workspace.catalogue.write() as connection:
        later = model.now.replace(tzinfo=None) + timedelta(days=1)
        connection.execute(review_projects.update().values(pulled=later))
    assert here.pull()["deleted"] == 1
    assert here.stand() == set()


def test_an_answer_of_somebody_else_is_theirs_and_leaves_the_task_open(here: Reviewing) -> None:
    here.model.annotate(here.tasks[0][0], 3, said("valid"))
    here.pull()
    assert here.said() == [(0, "eve", "answered", "valid")]
    assert here.states(0)[0] == "open"
    assert [row["name"] for row in here.people()] == ["annotator-1", "annotator-2", "annotator-3"]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ([], "no decision"),
        ([*said("valid"), *said("unclear")], "two items"),
        (said("maybe"), "none of the page's"),
        ([item("invented", "choices", "valid")], "does not ask"),
        (said("wrong-label", corrected="n00000000"), "unknown class"),
        ("nonsense", "no short list"),
        ([1, None, {"from_name": []}], "no object"),
    ],
)
def test_what_cannot_be_read_is_set_aside_and_a_later_edit_settles_it(
    here: Reviewing, broken: Any, why: str
) -> None:
    model, ann = here.model, here.tasks[0]
    number = model.annotate(ann[0], 1, broken)
    model.annotate(ann[1], 1, said("valid"))
    summary = here.pull()
    assert (summary["pulled"], summary["unread"], summary["set_aside"]) == (1, 1, 1)
    assert summary["problems"] == []
    (aside,) = here.table(set_aside)
    assert (aside["annotation"], aside["task"]) == (number, ann[0])
    assert why in aside["why"]
    assert json.loads(aside["raw"])["result"] == broken
    assert here.states(0)[0] == "open"
    assert here.pull()["unread"] == 0
    model.edit(ann[0], number, said("valid"))
    summary = here.pull()
    assert (summary["pulled"], summary["edited"], summary["set_aside"]) == (1, 0, 0)


def test_an_answer_that_is_edited_into_what_cannot_be_read_counts_no_more(here: Reviewing) -> None:
    model, ann = here.model, here.tasks[0]
    number = model.annotate(ann[0], 1, said("valid"))
    here.pull()
    model.edit(ann[0], number, said("removed-choice"))
    summary = here.pull()
    assert (summary["pulled"], summary["unread"], summary["set_aside"]) == (0, 1, 1)
    assert here.stand() == set()
    assert here.said()[-1][2:] == ("unusable", "valid")
    model.edit(ann[0], number, said("another-removed-choice"))
    assert here.pull()["set_aside"] == 1
    model.edit(ann[0], number, said("valid"))
    assert here.pull()["set_aside"] == 0
    assert [row[2] for row in here.said()] == ["answered", "unusable", "edited"]
    model.edit(ann[0], number, [])
    model.delete(ann[0], number)
    assert here.pull()["problems"] == []
    assert here.stand() == set()


def test_answers_name_classes_of_the_label_space_that_their_project_asks_about(
    here: Reviewing,
) -> None:
    """A run may be judged within another label space than the workspace's."""
    wider, model = load_label_space("imagenet-1k"), here.model
    elsewhere = next(wnid for wnid in wider.wnids if wnid not in here.rows.workspace.label_space)
    record = {"rule": "misclassified", "label_space": {"name": "x", "fingerprint": "0"}}
    asked = {"question": "misclassified", "label_space": wider.fingerprint, "name": "review"}
    told = {"filter": {}, "label_space": "imagenet-1k"}

    def ask(fingerprint: str) -> None:
        record["label_space"] = {"name": "x", "fingerprint": fingerprint}
        with here.rows.workspace.catalogue.write() as connection:
            judging.update_run(connection, RUN, {"record": record, "settings": told})
            connection.execute(review_projects.update().values(record=asked))

    model.annotate(here.tasks[0][0], 1, said("wrong-label", corrected=elsewhere))
    ask("0" * 64)
    summary = here.pull()
    assert len(summary["problems"]) == 2
    assert "was left out: the label space that it asks about" in summary["problems"][0]
    assert (summary["pulled"], summary["unread"]) == (0, 0)
    ask(wider.fingerprint)
    summary = here.pull()
    assert (summary["pulled"], summary["unread"], summary["problems"]) == (1, 0, [])
    assert here.table(answers)[0]["corrected"] == elsewhere


@pytest.mark.parametrize("what", ["candidate", "image"])
def test_an_answer_to_another_photo_than_was_sent_is_set_aside_until_the_task_shows_it_again(
    here: Reviewing, what: str
) -> None:
    model, (first, second) = here.model, [here.tasks[0][n] for n in (0, 1)]
    sent = dict(model.tasks_of(first)["data"])
    model.annotate(second, 1, said("valid"))
    here.pull()
    for task in (first, second):
        model.show(task, **{what: model.tasks_of(here.tasks[0][2])["data"][what]})
    model.annotate(first, 1, said("valid"))
    summary = here.pull()
    assert (summary["pulled"], summary["unread"], summary["problems"]) == (0, 1, [])
    (aside,) = here.table(set_aside)
    assert "shows another photo" in aside["why"]
    # What was said before the edit was said of the photo that was sent.
    assert here.said() == [(1, "ann", "answered", "valid")]
    assert here.states(0)[:2] == ["open", "answered"]
    model.show(first, **sent)
    summary = here.pull()
    assert (summary["pulled"], summary["set_aside"]) == (1, 0)


def test_what_was_read_stays_after_its_account_is_deleted_also_where_all_is_looked_at(
    here: Reviewing,
) -> None:
    model, ann = here.model, here.tasks[0]
    model.annotate(ann[0], 1, said("valid"))
    model.annotate(ann[1], 1, said("unclear"))
    here.pull()
    before = here.said()
    number = model.annotate(ann[2], 1, said("valid"))
    model.delete_account(1)
    # Touched, so that the task is told of again, and miscounted, so that all are.
    model.annotate(ann[0], 2, said("valid"))
    model.miscounts = 1
    summary = here.pull()
    assert (summary["pulled"], summary["unread"]) == (1, 1)
    assert here.said() == [*before, (0, "bob", "answered", "valid")]
    (aside,) = here.table(set_aside)
    assert (aside["annotation"], aside["why"]) == (number, "who made it is no number")


def test_a_task_that_is_known_to_be_anothers_is_not_taken_for_one_that_a_push_was_killed_over(
    here: Reviewing,
) -> None:
    model, ann = here.model, here.tasks[0]
    with here.rows.workspace.catalogue.write() as connection:
        doubtful = review_tasks.c.number == ann[3]
        connection.execute(review_tasks.update().where(doubtful).values(number=None))
    model.show(ann[0], candidate=here.rows.keys[3])
    model.annotate(ann[0], 1, said("valid"))
    here.pull()
    assert [row["number"] for row in here.table(review_tasks)][:6] == [*ann.values()]
    assert here.said() == []


def test_what_is_kept_of_an_unreadable_answer_is_bounded(here: Reviewing) -> None:
    here.model.annotate(here.tasks[0][0], 1, [{"x": "y" * 200_000}])
    here.pull()
    assert len(here.table(set_aside)[0]["raw"]) == 10_000


def test_answers_of_unknown_accounts_and_on_tasks_of_others_are_set_aside(here: Reviewing) -> None:
    model = here.model
    model.annotate(here.tasks[0][0], 77, said("valid"))
    (other,) = model.add_tasks(here.projects[0], ["somebody's own"])
    model.annotate(other, 1, said("valid"))
    summary = here.pull()
    assert (summary["pulled"], summary["unread"], summary["foreign"]) == (0, 2, 1)
    assert summary["problems"] == []
    whys = sorted(row["why"] for row in here.table(set_aside))
    assert whys == [
        "its task is none that was pushed from here",
        "the account that made it is none of the server's",
    ]
    model.delete_task(other)
    assert here.pull()["set_aside"] == 1


@pytest.mark.parametrize("email", ["", "x" * 300, "two\nlines", None, 7])
def test_an_account_without_an_address_that_can_be_kept_is_nobody(
    here: Reviewing, email: Any
) -> None:
    here.model.accounts[9] = email
    here.model.annotate(here.tasks[0][0], 9, said("valid"))
    assert here.pull()["unread"] == 1


def test_a_deleted_task_is_noticed_and_what_was_said_of_it_stays(here: Reviewing) -> None:
    model, ann = here.model, here.tasks[0]
    model.annotate(ann[0], 1, said("valid"))
    model.annotate(ann[2], 1, said("maybe"))
    here.pull()
    for number in (0, 1, 2):
        model.delete_task(ann[number])
    summary = here.pull()
    assert (summary["tasks_gone"], summary["deleted"], summary["problems"]) == (3, 0, [])
    assert here.states(0) == ["gone", "gone", "gone", "open", "open", "open"]
    assert len(here.stand()) == 1
    assert summary["set_aside"] == 0
    assert here.pull()["tasks_gone"] == 0


def test_a_deleted_project_is_told_and_the_others_go_on(here: Reviewing) -> None:
    model = here.model
    model.annotate(here.tasks[0][0], 1, said("valid"))
    here.pull()
    del model.held[here.projects[0]]
    model.annotate(here.tasks[1][1], 2, said("valid"))
    summary = here.pull()
    assert summary["projects_gone"] == ["review 0"]
    assert (summary["pulled"], summary["problems"]) == (1, [])
    assert here.states(0) == ["answered", *["gone"] * 5]
    assert len(here.stand()) == 2
    assert here.pull()["projects_gone"] == []


def test_a_server_that_counts_otherwise_is_looked_at_whole_and_told_loudly(
    here: Reviewing, capsys: pytest.CaptureFixture[str]
) -> None:
    here.model.annotate(here.tasks[0][0], 1, said("valid"))
    here.model.miscounts = 1
    summary = here.pull()
    assert summary["pulled"] == 1
    assert len(summary["problems"]) == 2
    assert "has 2 answers at Label Studio" in summary["problems"][0]
    assert "1 came here" in summary["problems"][0]
    assert "looking at all its tasks" in capsys.readouterr().err


def test_a_server_that_was_put_back_to_an_earlier_state_is_followed(here: Reviewing) -> None:
    from copy import deepcopy

    model, ann = here.model, here.tasks[0]
    number = model.annotate(ann[0], 1, said("valid"))
    here.pull()
    backup = deepcopy(model.held)
    model.edit(ann[0], number, said("unclear"))
    model.annotate(ann[1], 1, said("valid"))
    here.pull()
    model.held = backup
    for _ in range(2):
        # What was changed back says no later time: the count or a later change shows it.
        model.annotate(ann[2], 1, said("valid"))
        model.annotate(ann[3], 1, said("valid"))
        assert here.pull()["problems"] == []
    kept = {(self_, what) for self_, _, what in here.stand()}
    assert kept == {(here.rows.keys[n], "valid") for n in (0, 2, 3)}


def test_an_edit_comes_home_though_the_clock_of_the_server_was_put_back_since(
    here: Reviewing,
) -> None:
    model, ann = here.model, here.tasks[0]
    model.now += timedelta(days=2)
    number = model.annotate(ann[0], 1, said("valid"))
    here.pull()
    model.now -= timedelta(days=2)
    model.edit(ann[0], number, said("unclear"))
    assert here.pull()["edited"] == 1
    model.edit(ann[0], number, said("not-a-photo"))
    assert here.pull()["edited"] == 1
    assert here.stand() == {(here.rows.keys[0], "annotator-1", "not-a-photo")}


def test_tasks_that_a_push_was_killed_over_are_found_with_their_answers(here: Reviewing) -> None:
    with here.rows.workspace.catalogue.write() as connection:
        connection.execute(review_tasks.update().values(number=None))
    here.model.annotate(here.tasks[0][3], 1, said("valid"))
    summary = here.pull()
    assert (summary["pulled"], summary["foreign"]) == (1, 0)
    numbers = [row["number"] for row in here.table(review_tasks)]
    assert numbers == [*here.tasks[0].values(), *here.tasks[1].values()]


def test_an_interrupt_stops_after_the_batch_in_hand_and_the_next_pull_goes_on(
    here: Reviewing, monkeypatch: pytest.MonkeyPatch
) -> None:
    from curate.progress import Stop

    monkeypatch.setattr(review_pull, "BATCH", 2)
    for task in here.tasks[0].values():
        here.model.annotate(task, 1, said("valid"))
    with monkeypatch.context() as patched:
        patched.setattr(Stop, "requested", True)
        with pytest.raises(Interrupted):
            here.pull()
    assert len(here.said()) == 2
    assert here.pull()["pulled"] == 4


def test_both_databases_take_the_same_in(
    tmp_path: Path, on_database: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    monkeypatch.setattr(review_pull, "connect", lambda *_: model)
    here = reviewing(tmp_path / "w", model, preset=on_database("imagenet-a"))
    ann = here.tasks[0]
    number = model.annotate(ann[0], 1, [*said("valid"), item("note", "textarea", "a\0 „note“ 🦋")])
    broken = model.annotate(ann[1], 1, [{"x": "\0" * 20_000}])
    model.put(ann[2], {"id": 2**40, "completed_by": 1})
    model.annotate(here.tasks[1][0], 2, said("unclear"))
    summary = here.pull()
    assert (summary["pulled"], summary["unread"], summary["disputed"]) == (2, 2, 1)
    assert here.table(answers)[0]["note"] == "a „note“ 🦋"
    model.edit(ann[0], number, said("unclear"))
    model.edit(ann[1], broken, said("valid"))
    model.delete_task(ann[2])
    model.delete(here.tasks[1][0], here.table(answers)[1]["annotation"])
    summary = here.pull()
    told = {name: summary[name] for name in ("pulled", "deleted", "tasks_gone", "set_aside")}
    assert told == {"pulled": 2, "deleted": 1, "tasks_gone": 1, "set_aside": 0}
    assert summary["problems"] == []
    assert here.pull()["pulled"] == 0
    here.rows.workspace.close()


# What people may do at the server, one step: the kind, a task, a person, and a decision.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "edit", "edit", "skip", "break", "delete", "pull", "pull"]),
        st.integers(0, 1),
        st.integers(0, 1),
        st.sampled_from(["valid", "unclear", "not-a-photo"]),
        st.sampled_from([0.001, 1.0, 61.0]),
    ),
    max_size=14,
)
NUMBERS = count()


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(STEPS, st.randoms(use_true_random=False))
def test_whatever_the_moments_of_the_pulls_the_same_answers_stand_as_after_one(
    uncounted: Reviewing, steps: list[tuple[str, int, int, str, float]], random: Any
) -> None:
    """One project is pulled between the steps, and a twin of it once at the end."""
    here = uncounted
    rows, model = here.rows, here.model
    model.held.clear()
    workspace = rows.workspace
    turn = next(NUMBERS)
    pair = []
    for which in ("often", "once"):
        project = model.add_project()
        keys = [f"{which}{turn:06}{number}".ljust(32, "0") for number in range(2)]
        numbers = model.add_tasks(project, keys)
        add_tasks(rows, project, f"{which} {turn}", keys, numbers)
        pair.append((project, numbers, keys))
    (often, *_), (once, *_) = pair

    def pull_only(project: int) -> None:
        with workspace.catalogue.write() as connection:
            state = {"state": "gone"}
            connection.execute(review_projects.update().values(state))
            chosen = review_projects.c.number == project
            connection.execute(review_projects.update().where(chosen).values(state="open"))
        assert here.pull()["problems"] == []

    made: dict[tuple[int, int], list[int]] = {}
    for kind, task, person, decision, seconds in steps:
        if kind == "pull":
            pull_only(often)
            continue
        for place, (_, numbers, _keys) in enumerate(pair):
            mine = made.setdefault((place, task), [])
            if kind == "say" or not mine:
                mine.append(model.annotate(numbers[task], person + 1, said(decision), seconds))
            elif kind == "delete":
                model.delete(numbers[task], mine.pop())
            else:
                result = {"edit": said(decision), "skip": None, "break": said("maybe")}[kind]
                model.edit(numbers[task], mine[-1], result, seconds)
    # The order in which the server tells of annotations is nobody's.
    for task in model.held[once].values():
        random.shuffle(task["annotations"])
    pull_only(often)
    pull_only(once)
    found = {
        which: {(keys.index(key), who, what) for key, who, what in here.stand() if key in keys}
        for which, (_, _, keys) in zip(("often", "once"), pair, strict=True)
    }
    assert found["often"] == found["once"]
    state = {row["candidate"]: row["state"] for row in here.table(review_tasks)}
    assert [state[key] for key in pair[0][2]] == [state[key] for key in pair[1][2]]


def add_tasks(rows: Rows, project: int, title: str, keys: list[str], numbers: list[int]) -> None:
    values = {"title": title, "server": "", "purpose": "review", "annotator_id": 1}
    values |= {"number": project, "page": None, "state": "open", "pulled": None, "record": {}}
    with rows.workspace.catalogue.write() as connection:
        made = connection.execute(
            review_projects.insert().values(values | {"made": rows_now()})
        ).inserted_primary_key
        assert made is not None
        connection.execute(
            review_tasks.insert(),
            [
                {
                    "project_id": made[0],
                    "candidate": key,
                    "sha256": "0" * 64,
                    "wnid": rows.wnids[0],
                    "place": place,
                    "gold": False,
                    "state": "open",
                    "until": None,
                    "sent": True,
                    "number": number,
                }
                for place, (key, number) in enumerate(zip(keys, numbers, strict=True))
            ],
        )


def rows_now() -> Any:
    from curate.catalog.tables import now

    return now()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["id", "completed_by", "result", "was_cancelled", "updated_at", "created_at", "lead_time"]
)


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(JSON | st.dictionaries(FIELDS, JSON), st.dictionaries(FIELDS, JSON, max_size=3))
def test_no_annotation_of_whatever_form_breaks_a_pull_or_is_taken_in_twice(
    uncounted: Reviewing, odd: Any, changes: dict[str, Any]
) -> None:
    here = uncounted
    model, ann = here.model, here.tasks[0]
    for number, task in ann.items():
        model.held[here.projects[0]][task]["annotations"] = []
        if number == 2:
            model.annotate(task, 1, said("valid"))
    model.put(ann[0], odd)
    model.annotate(ann[1], 1, said("valid"))
    model.held[here.projects[0]][ann[1]]["annotations"][0].update(changes)
    here.pull()
    valid = (here.rows.keys[2], "annotator-1", "valid")
    assert valid in here.stand()
    before = (here.table(answers), here.table(set_aside))
    here.pull()
    assert (here.table(answers), here.table(set_aside)) == before


# A server on loopback, for what happens on the way.


@dataclass
class Afar:
    here: Reviewing
    stand_in: StandIn
    server: LoopbackServer


@pytest.fixture
def afar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Afar]:
    monkeypatch.setenv("CURATE_REVIEW_TOKEN", TOKEN)
    monkeypatch.setattr("annotation.client_http.backoff", lambda attempt: 0.0)
    # A page of two tasks, so that there are several.
    monkeypatch.setattr("annotation.client.PAGE", 2)
    monkeypatch.setattr(review_pull, "BATCH", 2)
    with LoopbackServer() as server:
        model = Model()
        stand_in = StandIn(model, server)
        made = reviewing(tmp_path / "w", model, 7, url=server.url(""))
        for task in made.tasks[0].values():
            model.annotate(task, 1, said("valid"))
        yield Afar(made, stand_in, server)
        made.rows.workspace.close()


def test_over_http_the_same_comes_home(afar: Afar) -> None:
    assert afar.here.pull()["pulled"] == 7
    assert afar.here.pull()["pulled"] == 0


def cut(exchange: Exchange) -> None:
    exchange.raw(b'HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n{"tasks": [{"id": 1, "anno')


TROUBLES: dict[str, Callable[[Exchange], None]] = {
    "500": lambda exchange: exchange.send(500, b"<html>oh</html>", content_type="text/html"),
    "503": lambda exchange: exchange.send(503, b"<html>oh</html>", content_type="text/html"),
    "cut": cut,
    "hangs-up": lambda exchange: exchange.raw(b""),
    "page": lambda exchange: exchange.send(200, b"<html>", content_type="text/html"),
    "list": lambda exchange: exchange.json([]),
    "no-annotations": lambda exchange: exchange.json({"tasks": [{"id": 10_000}]}),
    "odd-ids": lambda exchange: exchange.json({"tasks": [{"id": "x"}, {"id": None}]}),
    "404": lambda exchange: exchange.json({"detail": "Not found."}, 404),
    "401": lambda exchange: exchange.json({"detail": f"Invalid token {TOKEN}"}, 401),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_came_before_a_fault_stays_and_the_rest_comes_at_the_next_pull(
    afar: Afar, trouble: str
) -> None:
    def at_the_third_page(exchange: Exchange, page: int) -> bool:
        if page >= 2:
            TROUBLES[trouble](exchange)
        return page >= 2

    afar.stand_in.trouble = at_the_third_page
    expected = TokenRefused if trouble == "401" else ReviewServerError
    with pytest.raises(expected) as caught:
        afar.here.pull()
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert len(afar.here.said()) == 4
    assert afar.here.projects_of(0)
    afar.stand_in.trouble = lambda exchange, page: False
    summary = afar.here.pull()
    assert (summary["pulled"], summary["projects_gone"], summary["problems"]) == (3, [], [])
    assert len(afar.here.said()) == 7


def test_an_interrupt_ends_the_wait_for_a_server_that_is_busy(afar: Afar) -> None:
    asked = []

    def busy(exchange: Exchange) -> None:
        asked.append(exchange)
        os.kill(os.getpid(), signal.SIGINT)
        exchange.json({"detail": "busy"}, 503, {"Retry-After": "50"})

    afar.server.on("/api/version", busy)
    begun = time.monotonic()
    with pytest.raises(Interrupted):
        afar.here.pull()
    assert time.monotonic() - begun < 40
    assert len(asked) == 1


def test_a_project_that_is_deleted_between_two_pages_is_told(afar: Afar) -> None:
    def delete(exchange: Exchange, page: int) -> bool:
        if page == 2:
            del afar.here.model.held[afar.here.projects[0]]
        return False

    afar.stand_in.trouble = delete
    summary = afar.here.pull()
    assert (summary["pulled"], summary["projects_gone"]) == (4, ["review 0"])


def test_a_server_without_a_page_of_accounts_is_no_deleted_project(afar: Afar) -> None:
    afar.server.on("/api/users/", lambda exchange: exchange.json({"detail": "no"}, 404))
    with pytest.raises(ReviewServerError, match="has no such thing"):
        afar.here.pull()
    assert {row["state"] for row in afar.here.table(review_projects)} == {"open"}


@pytest.mark.slow
def test_the_command_tells_the_same_and_ends_with_1_where_counts_differ(afar: Afar) -> None:
    root = afar.here.rows.workspace.root
    given = {"CURATE_REVIEW__URL": afar.server.url(""), "CURATE_REVIEW_TOKEN": TOKEN}
    done = run_curate("--json", "review", "pull", workspace=root, **given)
    summary = json.loads(done.stdout)
    assert (summary["pulled"], summary["waiting"]) == (7, 7)
    done = run_curate("review", "pull", workspace=root, **given)
    assert done.stdout.startswith("0 new answers\naccepted 0, rejected 0, disputed 0, waiting 7")
    run_curate("review", "pull", "--strict", workspace=root, **given)
    number = afar.here.model.annotate(afar.here.tasks[0][0], 1, said("removed-choice"))
    done = run_curate("review", "pull", "--strict", workspace=root, expect=1, **given)
    assert "given again: 1\n" in done.stdout
    afar.here.model.delete(afar.here.tasks[0][0], number)
    afar.here.model.miscounts = -1
    done = run_curate("review", "pull", workspace=root, expect=1, **given)
    assert "by its own count" in done.stderr
    given["CURATE_REVIEW_TOKEN"] = "wrong" * 8
    done = run_curate("review", "pull", workspace=root, expect=2, **given)
    assert "refuses the token" in done.stderr
    assert "wrongwrong" not in done.stdout + done.stderr
    afar.server.__exit__()
    done = run_curate("review", "pull", workspace=root, expect=1, **given)
    assert "cannot be reached" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_server_that_is_away_is_one_line(afar: Afar) -> None:
    afar.server.on("/api/version", lambda exchange: exchange.send(503))
    with pytest.raises(ServerAway):
        afar.here.pull()
