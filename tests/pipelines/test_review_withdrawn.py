"""What was taken back is asked of nobody any more, and what was said of it stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert, select, update

from curate.catalog import judging
from curate.catalog.review_tables import review_tasks
from curate.catalog.tables import images, now, tombstones
from curate.errors import UsageError
from curate.images.hashing import PerceptualHash
from pipelines.release_choice import Wanted, choose
from pipelines.retractions import retract
from pipelines.review_doctor import examine
from pipelines.review_export import accepted_rows, answer_rows
from pipelines.review_outcomes import accepted, review_counts, reviewed
from pipelines.review_push import push
from pipelines.review_queue import review_queue
from pipelines.review_status import review_status
from pipelines.runs import control_cells, finished_run, read_shortlist
from tests.pipelines.label_studio_model import Model
from tests.pipelines.reviewing import RUN, Rows, made_rows
from tests.pipelines.standin import TOKEN, StandIn
from tests.pipelines.test_review_pull import reviewing
from tests.pipelines.test_review_push import workspace_with
from tests.sources.servers import Exchange


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("CURATE_REVIEW_TOKEN", TOKEN)
    with StandIn() as running:
        yield running


@pytest.fixture
def rows(tmp_path: Path, server: StandIn) -> Iterator[Rows]:
    """Six survivors of each of three confusions, of which four are in the queue."""
    made = workspace_with(tmp_path / "w", server, 18)
    yield made
    made.workspace.close()


def queue_of(rows: Rows, *rejected: str) -> list[str]:
    run = finished_run(rows.workspace, RUN)
    return [one.key for one in review_queue(rows.workspace, run, rejected)]


def states(rows: Rows, key: str) -> list[str]:
    with rows.workspace.catalogue.read() as connection:
        query = select(review_tasks.c.state).where(review_tasks.c.candidate == key)
        return sorted(connection.scalars(query))


def tasks_at(server: StandIn, key: str) -> list[dict[str, Any]]:
    return [task for task in server.tasks.values() if task["data"]["candidate"] == key]


def open_tasks(rows: Rows) -> list[int]:
    return [person["open"] for person in review_status(rows.workspace)["annotators"]]


def test_it_waits_for_nobody_and_the_next_of_its_confusion_has_its_place(
    rows: Rows, server: StandIn
) -> None:
    push(rows.workspace)
    assert (review_counts(rows.workspace)["waiting"], open_tasks(rows)) == (12, [12, 12])
    before = queue_of(rows)
    gone = before[5]
    told = retract(rows.workspace, gone, "privacy")
    assert told["withdrawn"] == 2
    assert (review_counts(rows.workspace)["waiting"], open_tasks(rows)) == (11, [11, 11])
    assert len(tasks_at(server, gone)) == 2, "the server learns of it at the next push"
    (found,) = (one for one in examine(rows.workspace)["problems"] if one["kind"] == "withdrawn")
    assert found["what"].startswith("2 tasks may still show photos that were taken back")
    after = queue_of(rows)
    (fresh,) = set(after) - set(before)
    assert set(before) - set(after) == {gone}
    wnid = dict(zip(rows.keys, rows.wnids, strict=True))
    assert wnid[fresh] == wnid[gone]
    summary = push(rows.workspace)
    assert (summary["pushed"], summary["waiting"], summary["problems"]) == (2, 12, [])
    assert tasks_at(server, gone) == []
    assert sorted(server.candidates()) == sorted([*after, *after])
    assert states(rows, gone) == ["gone", "gone"]
    assert push(rows.workspace)["pushed"] == 0
    assert not [one for one in examine(rows.workspace)["problems"] if one["kind"] == "withdrawn"]


def test_what_somebody_has_answered_at_the_server_stays_there(rows: Rows, server: StandIn) -> None:
    push(rows.workspace)
    gone = queue_of(rows)[0]
    answered, _ = tasks_at(server, gone)
    answered["annotations"].append({"id": 7})
    retract(rows.workspace, gone, "other")
    assert push(rows.workspace)["problems"] == []
    assert tasks_at(server, gone) == [answered]


@pytest.mark.parametrize("status", [400, 403, 405, 500])
def test_a_server_that_lets_nobody_delete_is_told_and_the_push_goes_on(
    rows: Rows, server: StandIn, status: int
) -> None:
    push(rows.workspace)
    gone = queue_of(rows)[0]
    retract(rows.workspace, gone, "licence")

    def refuse(exchange: Exchange, _: StandIn) -> bool:
        exchange.json({"detail": "You do not have permission."}, status)
        return True

    server.faults["delete"] = [refuse] * 2
    summary = push(rows.workspace)
    assert summary["pushed"] == 2
    (line,) = summary["problems"]
    number = tasks_at(server, gone)[0]["id"]
    assert line.startswith("2 tasks show photos that were taken back and could not be deleted")
    assert f"the first is task {number} of the project review" in line
    assert "\n" not in line
    assert TOKEN not in line
    assert push(rows.workspace)["problems"] == []
    assert tasks_at(server, gone) == []


def test_tasks_that_a_push_was_killed_over_are_found_and_deleted(
    rows: Rows, server: StandIn
) -> None:
    push(rows.workspace)
    gone = queue_of(rows)[0]
    with rows.workspace.catalogue.write() as connection:
        change = update(review_tasks).where(review_tasks.c.candidate == gone)
        connection.execute(change.values(number=None))
    retract(rows.workspace, gone, "other")
    push(rows.workspace)
    assert tasks_at(server, gone) == []
    assert states(rows, gone) == ["gone", "gone"]


def test_what_was_never_sent_never_is(rows: Rows, server: StandIn) -> None:
    push(rows.workspace, most=1)
    later = queue_of(rows)[3]
    rows.give([rows.keys.index(later)], [0], sent=False, number=None)
    retract(rows.workspace, later, "other")
    push(rows.workspace)
    assert tasks_at(server, later) == []
    assert states(rows, later) == ["gone"]


def test_copies_that_nobody_has_looked_at_before_are_withdrawn_by_the_next_push(
    rows: Rows, server: StandIn
) -> None:
    push(rows.workspace)
    gone, copy = queue_of(rows)[:2]
    hashed = str(PerceptualHash(0x0123456789ABCDEF, 0xFEDCBA9876543210))
    _look(rows, gone, perceptual_hash=hashed)
    assert retract(rows.workspace, gone, "other")["withdrawn"] == 2
    _look(rows, copy, perceptual_hash=hashed)
    assert review_counts(rows.workspace)["waiting"] == 10
    push(rows.workspace)
    assert tasks_at(server, copy) == []


def _look(rows: Rows, key: str, **looks: str) -> None:
    sha256 = rows.sha256s[rows.keys.index(key)]
    with rows.workspace.catalogue.write() as connection:
        connection.execute(update(images).where(images.c.sha256 == sha256).values(**looks))


def test_gold_items_blind_tests_and_disputes_of_it_are_withdrawn_as_well(
    rows: Rows, server: StandIn
) -> None:
    gold, disputed, shown = 17, 0, 1
    rows.set_gold(gold, "valid")
    push(rows.workspace, gold_rate=0.2)
    assert len(tasks_at(server, rows.keys[gold])) == 2
    rows.give([disputed], [None], "adjudication")
    rows.give([shown], [0], "blind")
    for number, count in ((gold, 2), (disputed, 3), (shown, 3)):
        assert retract(rows.workspace, rows.keys[number], "other")["withdrawn"] == count
    waiting = review_status(rows.workspace)
    assert waiting["adjudication"]["open"] == 0
    push(rows.workspace, gold_rate=0.2)
    assert not set(server.candidates()) & {rows.keys[n] for n in (gold, disputed, shown)}
    assert not set(queue_of(rows)) & {rows.keys[n] for n in (disputed, shown)}


def test_an_answer_that_was_given_before_comes_home_and_makes_nothing_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines import review_pull
    from tests.pipelines.label_studio_model import said

    model = Model()
    monkeypatch.setattr(review_pull, "connect", lambda *_: model)
    here = reviewing(tmp_path / "w", model)
    workspace, gone = here.rows.workspace, here.rows.keys[0]
    for tasks, person in zip(here.tasks, (1, 2), strict=True):
        for number in (0, 1):
            model.annotate(tasks[number], person, said("valid"))
    retract(workspace, gone, "person-request")
    told = here.pull()
    assert (told["pulled"], told["accepted"], told["waiting"]) == (4, 1, 4)
    assert states(here.rows, gone) == ["answered", "answered"]
    assert sum(row["candidate"] == gone for row in answer_rows(workspace)) == 2
    assert [row["candidate"] for row in accepted_rows(workspace)] == [here.rows.keys[1]]
    assert reviewed(workspace).withdrawn[gone].status == "accepted"
    # An answer that is deleted afterwards opens nothing again.
    for tasks in here.tasks:
        (annotation, *_) = model.tasks_of(tasks[0])["annotations"]
        model.delete(tasks[0], annotation["id"])
    assert here.pull()["deleted"] == 2
    assert states(here.rows, gone) == ["withdrawn", "withdrawn"]
    workspace.close()


def test_a_freed_place_goes_to_another_one_that_is_accepted(tmp_path: Path) -> None:
    rows = made_rows(tmp_path / "w", 3, cap=1)
    rows.give([0, 1])
    for number in (0, 1):
        for person in (0, 1):
            rows.say(number, person, "valid")
    (first,) = accepted(rows.workspace)
    retract(rows.workspace, first.key, "other")
    (second,) = accepted(rows.workspace)
    assert {first.key, second.key} == set(rows.keys[:2])
    with rows.workspace.catalogue.write() as connection:
        judging.update_run(connection, RUN, {"record": {"rule": "misclassified"}})
    run = finished_run(rows.workspace, RUN)
    choice = choose(rows.workspace, run, Wanted())
    assert [one.entry.candidate for one in choice.chosen] == [second.key]
    assert choice.taken_back == 1
    retract(rows.workspace, second.key, "other")
    with pytest.raises(UsageError, match="every photo on the list was taken back"):
        choose(rows.workspace, run, Wanted())
    rows.workspace.close()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    """Twelve survivors of two confusions, of which three are listed, and two controls."""
    from curate.catalog import listing

    rows = made_rows(
        tmp_path_factory.mktemp("many") / "w", 14, 12, labels=["n01498041", "n01531178"], cap=3
    )
    rows.set_controls([0, 12, 13])
    listed = [one for one in queue_of(rows) if one not in rows.keys[12:]]
    with rows.workspace.catalogue.write() as connection:
        listing.set_places(connection, RUN, [rows.ids[rows.keys.index(key)] for key in listed])
    yield rows
    rows.workspace.close()


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sets(st.integers(0, 13)))
def test_whatever_is_taken_back_the_lists_are_those_of_a_run_without_it(
    many: Rows, numbers: set[int]
) -> None:
    keys = {many.keys[number] for number in numbers}
    with many.workspace.catalogue.write() as connection:
        connection.execute(delete(tombstones))
    without = queue_of(many, *keys)
    with many.workspace.catalogue.write() as connection:
        stone = {"pixel_sha256": "", "perceptual_hash": "", "reason": "other", "retracted": now()}
        for number in numbers:
            row = {"sha256": many.sha256s[number], **stone}
            connection.execute(insert(tombstones).values(row))
    assert queue_of(many) == without
    _, listed = read_shortlist(many.workspace, RUN)
    controls = [many.keys[number] for number in (12, 13)]
    assert [one.candidate for one in listed] == [key for key in without if key not in controls]
    assert [one.place for one in listed] == list(range(1, len(listed) + 1))
    told = {row["candidate"] for row in control_cells(many.workspace, RUN)}
    assert told == {many.keys[number] for number in (0, 12, 13)} - keys
