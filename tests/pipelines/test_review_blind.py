"""The blind test: what is shown to whom, and what the answers say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select, update

from annotation.client_errors import Unanswered
from curate.catalog import judging
from curate.catalog.review_tables import answers, review_tasks
from curate.catalog.tables import verdicts
from curate.errors import UsageError
from curate.metrics import clopper_pearson
from pipelines.review_blind import blind_test
from pipelines.review_blind_accuracy import CONFIDENCE, blind_accuracy
from pipelines.review_photos import Photos
from pipelines.review_push import push
from pipelines.review_status import review_status
from tests.pipelines.reviewing import RUN, Rows, made_rows
from tests.pipelines.standin import TOKEN, StandIn, not_stored, stored_then_silent
from tests.pipelines.test_review_push import LABELS, workspace_with

EVE, FAY = "eve@example.org", "fay@example.org"
OTHER = "n01770393"


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    made = made_rows(tmp_path / "w", 12, 8, labels=LABELS)
    accept(made, range(6))
    yield made
    made.workspace.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("CURATE_REVIEW_TOKEN", TOKEN)
    accounts = ("ann@example.org", "bob@example.org", EVE, FAY, "me@example.org")
    with StandIn(accounts) as running:
        yield running


@pytest.fixture
def asked(tmp_path: Path, server: StandIn) -> Iterator[Rows]:
    """Nine survivors, eight of them accepted, and nine photos that were recognised."""
    made = workspace_with(tmp_path / "w", server, 18, survivors=9)
    change = update(verdicts).where(verdicts.c.outcome == "removed")
    with made.workspace.catalogue.write() as connection:
        connection.execute(change.values(view=0, p_true=0.99))
    made.accounts.append(EVE)
    accept(made, range(8))
    yield made
    made.workspace.close()


def accept(rows: Rows, numbers: Any) -> None:
    rows.give(list(numbers))
    for number in numbers:
        for person in (0, 1):
            rows.say(number, person, "valid")


def pick(rows: Rows, number: int, picked: str | None, person: int = 2, **more: Any) -> str:
    return rows.say(number, person, "", purpose="blind", picked=picked, **more)


def accuracy(rows: Rows) -> dict[str, Any]:
    found = blind_accuracy(rows.workspace)
    assert found is not None
    return found


def shown_to(rows: Rows) -> list[tuple[str, bool]]:
    """What was given out blind, and whether it is a control, in the order in which it is shown."""
    query = select(review_tasks).order_by(review_tasks.c.project_id, review_tasks.c.place)
    with rows.workspace.catalogue.read() as connection:
        found = connection.execute(query).mappings().all()
    blind = {row["project_id"] for row in found if row["project_id"] > 2}
    return [(row["candidate"], row["gold"]) for row in found if row["project_id"] in blind]


def test_without_a_test_there_is_no_accuracy(rows: Rows) -> None:
    assert blind_accuracy(rows.workspace) is None


def test_right_wrong_cannot_tell_and_unanswered_are_told_apart(rows: Rows) -> None:
    rows.give(range(6), [2], "blind")
    rows.give([8, 9], [2], "blind", gold=True)
    pick(rows, 0, rows.wnids[0])
    pick(rows, 1, rows.wnids[1])
    pick(rows, 2, OTHER)
    pick(rows, 3, None)
    rows.say(4, 2, "skipped", purpose="blind", event="skipped")
    pick(rows, 8, rows.wnids[8])
    found = accuracy(rows)
    assert found["accepted"] == {
        "answered": 5,
        "unanswered": 1,
        "correct": 2,
        "wrong": 1,
        "cannot_tell": 1,
        "skipped": 1,
        "value": 0.4,
        "low": clopper_pearson(2, 5, CONFIDENCE)[0],
        "high": clopper_pearson(2, 5, CONFIDENCE)[1],
    }
    assert {k: found["controls"][k] for k in ("answered", "unanswered", "correct", "value")} == {
        "answered": 1,
        "unanswered": 1,
        "correct": 1,
        "value": 1.0,
    }
    assert [(c["wnid"], c["picked"], c["count"]) for c in found["confusions"]] == [
        (rows.wnids[3], None, 1),
        (rows.wnids[2], OTHER, 1),
    ]
    assert found["confusions"][1]["picked_name"] == "scorpion"
    assert found["annotators"] == ["annotator-3"]
    assert json.loads(json.dumps(found)) == found
    assert review_status(rows.workspace)["blind"] == found


def test_the_newest_word_counts_and_what_was_deleted_was_never_said(rows: Rows) -> None:
    rows.give([0, 1], [2], "blind")
    entry = pick(rows, 0, OTHER)
    pick(rows, 0, rows.wnids[0], entry=entry, event="edited")
    entry = pick(rows, 1, rows.wnids[1])
    pick(rows, 1, rows.wnids[1], entry=entry, event="deleted")
    found = accuracy(rows)["accepted"]
    assert (found["answered"], found["correct"], found["unanswered"]) == (1, 1, 1)


def test_answers_of_people_who_knew_the_label_are_left_out(rows: Rows) -> None:
    rows.give([0, 1, 2], [2], "blind")
    pick(rows, 0, rows.wnids[0], person=1)
    pick(rows, 1, rows.wnids[1])
    # To be told the label afterwards changes nothing.
    rows.give([1], [2])
    rows.say(1, 2, "valid")
    found = accuracy(rows)
    assert (found["accepted"]["answered"], found["not_blind"]) == (1, 1)


def test_what_is_accepted_no_longer_does_not_count(rows: Rows) -> None:
    rows.give([0, 1, 2], [2], "blind")
    pick(rows, 0, OTHER)
    for number in (0, 2):
        rows.give([number], [None], "adjudication")
        rows.say(number, 1, "wrong-label", purpose="adjudication")
    found = accuracy(rows)
    assert (found["accepted"]["answered"], found["accepted"]["unanswered"]) == (0, 1)
    assert (found["withdrawn"], found["accepted"]["value"]) == (1, None)


def test_of_an_accepted_outlier_none_is_right(tmp_path: Path) -> None:
    rows = made_rows(tmp_path / "w", 6, preset="imagenet-o")
    accept(rows, range(4))
    wnid = rows.workspace.label_space.wnids[3]
    rows.give([0, 1, 2], [2], "blind")
    rows.give([5], [2], "blind", gold=True, wnid=wnid)
    pick(rows, 0, None)
    pick(rows, 1, wnid)
    rows.say(2, 2, "skipped", purpose="blind", event="skipped")
    pick(rows, 5, wnid)
    found = accuracy(rows)
    rows.workspace.close()
    told = {name: found["accepted"][name] for name in ("correct", "wrong", "skipped", "answered")}
    assert told == {"correct": 1, "wrong": 1, "skipped": 1, "answered": 3}
    assert found["controls"]["correct"] == 1


def test_every_answer_counts_once(rows: Rows) -> None:
    rows.give(range(6), [2], "blind")

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.sampled_from(["right", "wrong", "none", "skip"]), max_size=6))
    def check(said: list[str]) -> None:
        with rows.workspace.catalogue.write() as connection:
            connection.execute(delete(answers).where(answers.c.purpose == "blind"))
        for number, word in enumerate(said):
            if word == "skip":
                rows.say(number, 2, "skipped", purpose="blind", event="skipped")
            else:
                pick(rows, number, {"right": rows.wnids[number], "wrong": OTHER}.get(word))
        found = accuracy(rows)["accepted"]
        names = {"correct": "right", "wrong": "wrong", "cannot_tell": "none", "skipped": "skip"}
        assert {n: found[n] for n in names} == {n: said.count(w) for n, w in names.items()}
        assert found["answered"] == len(said)
        assert found["unanswered"] == 6 - len(said)

    check()


def test_a_sample_and_controls_go_to_somebody_without_any_label(
    asked: Rows, server: StandIn
) -> None:
    told = blind_test(asked.workspace, 4, account=" Eve@Example.org")
    assert (told["photos"], told["controls"], told["pushed"]) == (4, 2, 6)
    assert (told["annotator"], told["account"]) == ("annotator-3", EVE)
    assert told["problems"] == []
    (project,) = server.projects.values()
    assert project["title"].startswith("blind annotator-3")
    labels = {*LABELS, *(asked.workspace.label_space.name_of(wnid) for wnid in LABELS)}
    for task in server.tasks.values():
        assert set(task["data"]) == {"candidate", "image"}
        text = json.dumps(task)
        assert not [label for label in labels if label in text]
    shown = shown_to(asked)
    assert [task["data"]["candidate"] for _, task in sorted(server.tasks.items())] == [
        key for key, _ in shown
    ]
    accepted = {key for key, known in shown if not known}
    assert accepted <= set(asked.keys[:8])
    assert {key for key, known in shown if known} <= set(asked.keys[9:])


def test_the_same_command_shows_nothing_twice_and_a_larger_number_adds(
    asked: Rows, server: StandIn
) -> None:
    blind_test(asked.workspace, 4, account=EVE)
    first = shown_to(asked)
    again = blind_test(asked.workspace, 4, account=EVE)
    assert (again["pushed"], len(server.tasks), shown_to(asked)) == (0, 6, first)
    # Whoever has the test already has it by default.
    more = blind_test(asked.workspace, 7)
    assert (more["account"], more["pushed"], more["photos"], more["controls"]) == (EVE, 5, 7, 4)
    assert shown_to(asked)[:6] == first
    assert len({key for key, _ in shown_to(asked)}) == len(server.tasks) == 11
    assert blind_test(asked.workspace, 3)["pushed"] == 0


def test_the_order_mixes_controls_in_and_the_seed_decides_it(tmp_path: Path) -> None:
    orders = []
    for number, seed in enumerate((0, 0, 1)):
        with StandIn((EVE,)) as server, pytest.MonkeyPatch.context() as patch:
            patch.setenv("CURATE_REVIEW_TOKEN", TOKEN)
            made = workspace_with(tmp_path / str(number), server, 60, survivors=12)
            with made.workspace.catalogue.write() as connection:
                connection.execute(update(verdicts).values(view=0, p_true=0.99))
            accept(made, range(12))
            told = blind_test(made.workspace, 12, account=EVE, seed=seed)
            assert (told["photos"], told["controls"]) == (12, 6)
            orders.append(shown_to(made))
            made.workspace.close()
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    # Neither kind stands before the other.
    known = [gold for _, gold in orders[0]]
    assert known not in (sorted(known), sorted(known, reverse=True))


def test_whoever_knows_a_photo_is_refused(asked: Rows, server: StandIn) -> None:
    with pytest.raises(UsageError, match=r"^bob@example.org has seen 4 of these photos"):
        blind_test(asked.workspace, 4, account="bob@example.org")
    assert server.projects == {}
    blind_test(asked.workspace, 8, account=EVE)
    # Under another seed they would see the same photos once more.
    with pytest.raises(UsageError, match="eve@example.org has seen 4 of"):
        blind_test(asked.workspace, 4, account=EVE, seed=1)
    assert blind_test(asked.workspace, 4, seed=1)["account"] == FAY
    with pytest.raises(UsageError, match="everybody"):
        server.accounts = ("ann@example.org", EVE)
        blind_test(asked.workspace, 4, seed=2)


def test_whoever_has_seen_a_photo_as_an_example_of_its_class_is_refused(
    asked: Rows, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Photos, "examples", lambda _, rows: {row["sha256"]: f"/{row['sha256']}" for row in rows}
    )
    # Fay is given the ninth alone; two of its class are accepted.
    assert push(asked.workspace, annotators=[FAY], overlap=1)["pushed"] == 1
    (task,) = server.tasks.values()
    shown = [n for n, sha256 in enumerate(asked.sha256s) if sha256 in task["data"]["examples"]]
    assert shown == [2, 5]
    with pytest.raises(UsageError, match="fay@example.org has seen 2 of these photos"):
        blind_test(asked.workspace, 8, account=FAY)
    assert blind_test(asked.workspace, 8, account=EVE)["pushed"] == 12
    # What was shown makes no other project of hers.
    assert push(asked.workspace, annotators=[FAY], overlap=1)["pushed"] == 0
    assert len(server.projects) == 2


def test_whoever_has_no_account_and_a_set_without_accepted_photos_are_refused(
    asked: Rows, server: StandIn
) -> None:
    with pytest.raises(UsageError, match="nobody@example.org has no account"):
        blind_test(asked.workspace, 4, account="nobody@example.org")
    for number in range(8):
        asked.give([number], [None], "adjudication")
        asked.say(number, 0, "unclear", purpose="adjudication")
    with pytest.raises(UsageError, match="is accepted yet"):
        blind_test(asked.workspace, 4, account=EVE)
    assert server.projects == {}


def test_too_few_photos_are_told(asked: Rows) -> None:
    with asked.workspace.catalogue.write() as connection:
        change = update(verdicts).where(verdicts.c.candidate_id > asked.ids[9])
        connection.execute(change.values(view=1))
    told = blind_test(asked.workspace, 20, account=EVE)
    assert (told["photos"], told["controls"]) == (8, 1)
    assert told["problems"] == [
        "only 8 photos are accepted",
        "there is only 1 control: too few photos of known class",
    ]


def test_a_project_that_was_deleted_is_made_anew_without_what_was_answered(
    asked: Rows, server: StandIn
) -> None:
    blind_test(asked.workspace, 4, account=EVE)
    first = shown_to(asked)
    ((number, _),) = server.projects.items()
    key = next(key for key, known in first if not known)
    asked.say(asked.keys.index(key), 2, "", purpose="blind", picked=OTHER)
    # The stand-in keeps no annotations: the row above stands for what a pull brings home.
    project = asked.project("blind", 2)
    with asked.workspace.catalogue.write() as connection:
        change = update(review_tasks).where(review_tasks.c.candidate == key)
        connection.execute(change.values(state="answered"))
    assert project == 3
    server.delete(number)
    told = blind_test(asked.workspace, 4)
    assert (told["pushed"], told["photos"], told["controls"]) == (5, 4, 2)
    assert {task["data"]["candidate"] for task in server.tasks.values()} == {
        one for one, _ in first if one != key
    }
    assert told["accuracy"]["accepted"]["answered"] == 1
    assert told["accuracy"]["accepted"]["unanswered"] == 3


def test_what_was_cut_off_goes_on_and_nothing_is_shown_twice(
    asked: Rows, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.review_sending.PATIENCE", 0.2)
    monkeypatch.setattr("pipelines.review_sending.SETTLED", 0.1)
    monkeypatch.setattr("pipelines.review_sending.PAUSE", 0.05)
    server.faults["import"] = [not_stored, stored_then_silent]
    with pytest.raises(Unanswered):
        blind_test(asked.workspace, 4, account=EVE)
    written = shown_to(asked)
    assert len(written) == len(server.tasks) == 6
    assert blind_test(asked.workspace, 4)["problems"] == []
    assert shown_to(asked) == written
    assert sorted(task["data"]["candidate"] for task in server.tasks.values()) == sorted(
        key for key, _ in written
    )


def test_controls_of_outliers_are_rejected_for_a_class_that_is_visible(
    tmp_path: Path, server: StandIn
) -> None:
    review = {"url": server.url(""), "image_url": "https://photos.example.org"}
    rows = made_rows(tmp_path / "w", 8, preset="imagenet-o", review=review)
    space = rows.workspace.label_space
    record = {"rule": "outlier", "label_space": {"fingerprint": space.fingerprint, "name": "x"}}
    with rows.workspace.catalogue.write() as connection:
        judging.update_run(connection, RUN, {"record": record})
    accept(rows, range(4))
    rows.give([4, 5])
    for person in (0, 1):
        rows.say(4, person, "class-visible", also=[space.wnids[7]])
        rows.say(5, person, "class-visible", also=[space.wnids[person]])
    told = blind_test(rows.workspace, 4, account=EVE)
    assert (told["photos"], told["controls"], told["pushed"]) == (4, 1, 5)
    with rows.workspace.catalogue.read() as connection:
        query = select(review_tasks).where(
            review_tasks.c.gold.is_(True), review_tasks.c.project_id > 2
        )
        (control,) = connection.execute(query).mappings().all()
    assert (control["sha256"], control["wnid"]) == (rows.sha256s[4], space.wnids[7])
    rows.workspace.close()
