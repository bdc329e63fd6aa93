"""Pushing a queue to a server that answers as a Label Studio seldom does."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sqlalchemy import select, update

from annotation.client import Client
from annotation.client_errors import ReviewServerError, Unanswered
from curate.catalog import judging
from curate.catalog.review_tables import gold, review_projects, review_tasks
from curate.catalog.tables import images, now
from curate.errors import BusyError, CurateError, Interrupted, UsageError
from curate.files import candidate_key, sha256_bytes
from curate.labels.space import load_label_space
from curate.labels.wordnet import wordnet
from curate.progress import Stop
from pipelines.collect import collect_folder
from pipelines.retractions import retract
from pipelines.review_doctor import examine
from pipelines.review_gold import _other
from pipelines.review_offers import TaskMaker
from pipelines.review_outcomes import answers_needed, reviewed
from pipelines.review_photos import Photos, boxes, drawn_alike
from pipelines.review_push import push
from pipelines.review_sending import _Sending, ensure_project
from pipelines.workspace import create_workspace, open_workspace
from tests.pipelines.reviewing import RUN, Rows, made_rows
from tests.pipelines.standin import (
    TOKEN,
    StandIn,
    made_then_silent,
    not_stored,
    stored_then_silent,
)
from tests.sources.servers import LoopbackServer

LABELS = ("n01498041", "n01531178", "n01534433")
PEOPLE = ("ann@example.org", "bob@example.org")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("CURATE_REVIEW_TOKEN", TOKEN)
    monkeypatch.setattr("pipelines.review_sending.PATIENCE", 0.3)
    monkeypatch.setattr("pipelines.review_sending.SETTLED", 0.1)
    monkeypatch.setattr("pipelines.review_sending.PAUSE", 0.05)
    monkeypatch.setattr("pipelines.review_projects.PATIENCE", 0.3)
    monkeypatch.setattr("pipelines.review_projects.SETTLED", 0.1)
    monkeypatch.setattr("annotation.client_http.backoff", lambda attempt: 0.0)
    with StandIn() as running:
        yield running


@pytest.fixture
def rows(tmp_path: Path, server: StandIn) -> Iterator[Rows]:
    made = workspace_with(tmp_path / "w", server, 12, survivors=9)
    yield made
    made.workspace.close()


def workspace_with(root: Path, server: StandIn, count: int, **more: Any) -> Rows:
    """A workspace whose run has scores, and whose photos people find elsewhere."""
    review = {
        "url": server.url(""),
        "image_url": "https://photos.example.org/store",
        "annotators": PEOPLE,
    }
    concepts = more.get("preset") == "imagenet-o"
    labels = () if concepts else LABELS
    made = made_rows(root, count, labels=labels, cap=4, review=review, **more)
    record = {
        "rule": made.workspace.settings.filter.rule,
        "label_space": {"fingerprint": made.workspace.label_space.fingerprint, "name": "x"},
        "recipes": [{"resize": 256, "crop": 224, "interpolation": "bilinear"}],
        "models": [{"name": "one"}, {"name": "two"}],
    }
    with made.workspace.catalogue.write() as connection:
        judging.update_run(connection, RUN, {"record": record})
        connection.execute(update(images).values(width=500, height=375))
    survivors = more.get("survivors", count)
    said = made.workspace.label_space.wnids[0] if concepts else "n02123045"
    folder = made.workspace.run_folder(RUN)
    folder.mkdir(parents=True)
    told = [
        (key, model, view, said if n < survivors else made.wnids[n])
        for n, key in enumerate(made.keys)
        for model in range(2)
        for view in range(2)
    ]
    names = ("candidate", "model", "view", "predicted_wnid")
    pq.write_table(
        pa.table(dict(zip(names, zip(*told, strict=True), strict=True))), folder / "scores.parquet"
    )
    return made


def row_values(rows: Rows, *columns: str) -> list[tuple[Any, ...]]:
    with rows.workspace.catalogue.read() as connection:
        query = select(*(review_tasks.c[name] for name in columns)).order_by(review_tasks.c.id)
        return [tuple(row) for row in connection.execute(query)]


def assert_exact(rows: Rows, server: StandIn) -> None:
    """Every task that is written down is at the server once, under the number that is known."""
    written = {number: key for key, number in row_values(rows, "candidate", "number")}
    there = {number: task["data"]["candidate"] for number, task in server.tasks.items()}
    assert written == there


def test_each_survivor_goes_to_two_people_and_a_second_push_adds_nothing(
    rows: Rows, server: StandIn
) -> None:
    summary = push(rows.workspace)
    assert (summary["queue"], summary["pushed"], summary["waiting"]) == (9, 18, 9)
    assert Counter(server.candidates()) == dict.fromkeys(rows.keys[:9], 2)
    assert [p["account"] for p in summary["annotators"]] == list(PEOPLE)
    assert [p["open"] for p in summary["annotators"]] == [9, 9]
    assert_exact(rows, server)
    again = push(rows.workspace)
    assert (again["pushed"], len(server.tasks), len(server.projects)) == (0, 18, 2)
    for project in server.projects.values():
        assert len(project["title"]) <= 50
        asked = ("maximum_annotations", "show_collab_predictions", "enable_empty_annotation")
        assert [project[name] for name in asked] == [1, False, False]


def test_a_task_holds_no_prediction_but_among_others(rows: Rows, server: StandIn) -> None:
    push(rows.workspace)
    for task in server.tasks.values():
        data = task["data"]
        text = json.dumps({name: value for name, value in data.items() if name != "offered"})
        assert "n02123045" not in text
        assert "tabby" not in text
        offered = [one["alias"] for one in data["offered"]]
        assert len(offered) == 9
        assert data["image"].startswith("https://photos.example.org/store/")
        assert data["crops"].count("height:87.50%") == 5


@pytest.mark.parametrize("fault", [stored_then_silent, not_stored], ids=["stored", "not-stored"])
def test_an_import_without_an_answer_is_looked_up_and_leaves_each_task_once(
    rows: Rows, server: StandIn, fault: Callable[..., bool]
) -> None:
    server.faults["import"] = [fault]
    assert push(rows.workspace)["pushed"] == 18
    assert_exact(rows, server)


def test_without_the_look_up_tasks_would_be_there_twice(
    rows: Rows, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault that the tests of lost answers must find."""
    monkeypatch.setattr(_Sending, "_adopt", lambda *_: set())
    server.faults["import"] = [stored_then_silent]
    push(rows.workspace)
    assert len(server.tasks) == 27
    with pytest.raises(AssertionError):
        assert_exact(rows, server)


def test_what_the_server_stores_late_is_there_once_in_the_end(rows: Rows, server: StandIn) -> None:
    late: list[Any] = []

    def keeps(exchange: Any, _: StandIn) -> bool:
        late.append(exchange)
        exchange.raw(b"")
        return True

    def stores_both(exchange: Any, _: StandIn) -> bool:
        numbers = server.store(exchange)
        server.store(late[0])
        exchange.json({"task_ids": numbers}, 201)
        return True

    server.faults["import"] = [keeps, stores_both]
    assert push(rows.workspace)["pushed"] == 18
    assert_exact(rows, server)


def test_of_two_tasks_the_one_that_somebody_has_answered_stays(rows: Rows, server: StandIn) -> None:
    def twice(exchange: Any, _: StandIn) -> bool:
        server.store(exchange)
        younger = server.store(exchange)
        server.tasks[younger[0]]["annotations"] = [{"id": 1}]
        exchange.raw(b"")
        return True

    server.faults["import"] = [twice]
    assert push(rows.workspace)["pushed"] == 18
    assert_exact(rows, server)
    assert sum(bool(task["annotations"]) for task in server.tasks.values()) == 1


def test_two_silences_end_the_push_and_the_next_one_goes_on(rows: Rows, server: StandIn) -> None:
    server.faults["import"] = [not_stored, not_stored]
    with pytest.raises(Unanswered) as caught:
        push(rows.workspace)
    assert "\n" not in str(caught.value)
    assert push(rows.workspace)["pushed"] == 18
    assert_exact(rows, server)


def test_a_refused_batch_is_one_line_and_sent_again_later(rows: Rows, server: StandIn) -> None:
    def refused(exchange: Any, _: StandIn) -> bool:
        exchange.json({"detail": "no"}, 400)
        return True

    server.faults["import"] = [refused]
    with pytest.raises(ReviewServerError, match="HTTP 400: no"):
        push(rows.workspace)
    assert not any(sent for (sent,) in row_values(rows, "sent"))
    assert push(rows.workspace)["pushed"] == 18
    assert_exact(rows, server)


def test_a_project_whose_making_was_not_answered_is_found_by_its_title(
    rows: Rows, server: StandIn
) -> None:
    server.faults["create"] = [made_then_silent, not_stored]
    with pytest.raises(Unanswered):
        push(rows.workspace)
    assert push(rows.workspace)["pushed"] == 18
    assert len(server.projects) == 2
    assert_exact(rows, server)


def test_a_deleted_project_is_made_anew_with_what_nobody_has_answered(
    rows: Rows, server: StandIn
) -> None:
    push(rows.workspace)
    lost = min(server.projects)
    # The first one was answered, and what people have said stays theirs.
    rows.say(0, 0, "valid", at=0)
    with rows.workspace.catalogue.write() as connection:
        answered = (review_tasks.c.candidate == rows.keys[0], review_tasks.c.project_id == 1)
        connection.execute(update(review_tasks).where(*answered).values(state="answered"))
    server.delete(lost)
    assert push(rows.workspace)["pushed"] == 8
    titles = sorted(project["title"] for project in server.projects.values())
    assert titles[0].startswith("review annotator-1 2 (")
    assert server.candidates("review annotator-1") == sorted(rows.keys[1:9])
    assert push(rows.workspace)["pushed"] == 0


def test_a_project_that_is_deleted_during_a_push_is_made_anew(rows: Rows, server: StandIn) -> None:
    def deletes(exchange: Any, _: StandIn) -> bool:
        server.delete(int(exchange.request.path.split("/")[3]))
        exchange.json({"detail": "No Project matches the given query."}, 404)
        return True

    server.faults["import"] = [deletes]
    assert push(rows.workspace)["pushed"] == 18
    assert Counter(server.candidates()) == dict.fromkeys(rows.keys[:9], 2)


@pytest.mark.parametrize("where", ["server", "task"])
def test_what_is_not_there_for_a_moment_costs_no_project(
    rows: Rows, server: StandIn, where: str
) -> None:
    """A project that is given up is pulled no more, and what people answer there is lost."""

    def absent(exchange: Any, _: StandIn) -> bool:
        if where == "server":
            server.on("/api/version", lambda e: e.send(404, b"<html>no such site</html>"))
            server.on("/api/projects/*", lambda e: e.send(404, b"<html>no such site</html>"))
        exchange.send(404, b"<html>no such site</html>")
        return True

    server.faults["import"] = [absent]
    with pytest.raises(ReviewServerError, match="has no such thing"):
        push(rows.workspace)
    with pytest.raises(ReviewServerError) if where == "server" else nullcontext():
        push(rows.workspace)
    server.on("/api/version", lambda e: e.json({"release": "1.23.2"}))
    server.on("/api/projects/*", server._one_project)
    push(rows.workspace)
    with rows.workspace.catalogue.read() as connection:
        states = set(connection.scalars(select(review_projects.c.state)))
    assert (states, len(server.projects)) == ({"open"}, 2)
    assert_exact(rows, server)


def test_a_page_that_was_edited_by_hand_stays_and_is_told(rows: Rows, server: StandIn) -> None:
    push(rows.workspace)
    first = min(server.projects)
    server.projects[first]["label_config"] = "<View/>"
    summary = push(rows.workspace)
    (problem,) = summary["problems"]
    assert "edited by hand" in problem
    assert server.projects[first]["label_config"] == "<View/>"
    found = [one for one in examine(rows.workspace)["problems"] if one["kind"] == "page"]
    assert [one["repaired"] for one in found] == [False]
    found = [
        one for one in examine(rows.workspace, repair=True)["problems"] if one["kind"] == "page"
    ]
    assert [one["repaired"] for one in found] == [True]
    assert push(rows.workspace)["problems"] == []


def test_the_page_of_an_earlier_version_becomes_the_present_one(
    rows: Rows, server: StandIn
) -> None:
    client = Client(server.url(""), TOKEN)
    record = {"question": "misclassified"}
    with rows.workspace.held("review"):
        made = ensure_project(rows.workspace, client, "blind", None, "<View>1</View>", record)
        again = ensure_project(rows.workspace, client, "blind", None, "<View>2</View>", record)
        other = ensure_project(rows.workspace, client, "blind", None, "<View>2</View>", {"a": 1})
    assert again["id"] == made["id"]
    assert again["problem"] is None
    assert server.projects[made["number"]]["label_config"] == "<View>2</View>"
    # Another question is another project.
    assert other["number"] != made["number"]


def test_a_lapsed_lease_goes_to_somebody_else_and_comes_back_without_a_second_task(
    rows: Rows, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.accounts += ("cat@example.org",)
    push(rows.workspace, most=1)
    assert len(server.tasks) == 2
    late = now() + timedelta(hours=100)
    monkeypatch.setattr("pipelines.review_push.now", lambda: late)
    three = [*PEOPLE, "cat@example.org"]
    summary = push(rows.workspace, annotators=three, most=1)
    # One goes to whoever has not had it; the other one is given again to one of those who had it.
    assert summary["pushed"] == 1
    assert [person["open"] for person in summary["annotators"]].count(1) == 2
    states = Counter(state for (state,) in row_values(rows, "state"))
    assert states == {"open": 2, "lapsed": 1}
    assert_exact(rows, server)


def test_an_interrupted_push_stops_after_a_batch_and_goes_on(
    rows: Rows, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.review_sending.BATCH", 4)
    stops: list[Stop] = []
    started = Stop.__init__
    monkeypatch.setattr(Stop, "__init__", lambda self: (started(self), stops.append(self))[0])

    def interrupts(exchange: Any, _: StandIn) -> bool:
        stops[-1].request()
        return False

    server.faults["import"] = [interrupts]
    with pytest.raises(Interrupted, match="goes on"):
        push(rows.workspace)
    assert server.batches == [4]
    assert push(rows.workspace)["pushed"] == 14
    assert_exact(rows, server)


def test_large_tasks_are_sent_in_smaller_batches(
    rows: Rows, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.review_sending.MOST_BYTES", 5000)
    push(rows.workspace)
    assert max(server.batches) < 5
    assert_exact(rows, server)


def test_a_rejection_makes_room_for_the_next_one_of_its_confusion(
    rows: Rows, server: StandIn, tmp_path: Path
) -> None:
    more = workspace_with(tmp_path / "v", server, 30, survivors=24)
    assert push(more.workspace)["queue"] == 12
    (first, *_) = row_values(more, "candidate")
    number = more.keys.index(first[0])
    for person in (0, 1):
        more.say(number, person, "unclear")
    before = server.candidates()
    summary = push(more.workspace)
    assert (summary["queue"], summary["pushed"], summary["rejected"]) == (12, 2, {"unclear": 1})
    # The fifth of that confusion, in the run's order.
    same = [key for n, key in enumerate(more.keys[:24]) if more.wnids[n] == more.wnids[number]]
    ordered = sorted(same, key=lambda key: sha256_bytes(f"0:{key}".encode()))
    assert Counter(server.candidates()) - Counter(before) == {ordered[4]: 2}
    # One that people have disputed keeps its place.
    other = more.keys.index(ordered[3])
    more.say(other, 0, "unclear")
    more.say(other, 1, "valid")
    assert push(more.workspace)["pushed"] == 0
    more.workspace.close()


def test_gold_items_of_a_table_stand_among_the_others(
    rows: Rows, server: StandIn, tmp_path: Path
) -> None:
    table = tmp_path / "gold.csv"
    wrong = candidate_key(rows.sha256s[11], LABELS[0])
    table.write_text(
        f"candidate,sha256,wnid,decision\n{rows.keys[10]},,,valid\n"
        f",{rows.sha256s[11]},{LABELS[0]},wrong-label\n"
    )
    summary = push(rows.workspace, gold=table, gold_rate=0.2)
    assert Counter(server.candidates()) == dict.fromkeys([*rows.keys[:9], rows.keys[10], wrong], 2)
    assert summary["waiting"] == 9
    for task in server.tasks.values():
        assert set(task["data"]) == set(server.tasks[max(server.tasks)]["data"])
        assert len(task["data"]["offered"]) == 9
    assert push(rows.workspace, gold=table, gold_rate=0.2)["pushed"] == 0


def test_a_drawn_item_that_survives_a_later_run_is_a_candidate_again(
    rows: Rows, server: StandIn
) -> None:
    rows.set_gold(0, "valid")
    rows.set_gold(1, "valid")
    with rows.workspace.catalogue.write() as connection:
        drawn = gold.c.candidate == rows.keys[0]
        connection.execute(update(gold).where(drawn).values(origin="drawn"))
    assert push(rows.workspace)["queue"] == 8
    assert rows.keys[0] in server.candidates()
    assert rows.keys[1] not in server.candidates()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("candidate\nabc\n", "column 'decision' is missing"),
        ("candidate,decision\nabc,valid\n", "line 2: no candidate 'abc' is known"),
        ("sha256,wnid,decision\nabc,n01498041,valid\n", "line 2: no image 'abc'"),
        ("decision\nvalid\n", "line 2: neither candidate nor"),
        ("candidate,decision\nKEY,vlaid\n", "line 2: unknown decision 'vlaid'; did you mean valid"),
        ("candidate,decision\nKEY,skipped\n", "line 2: unknown decision 'skipped'"),
        ("sha256,wnid,decision\nSHA,nonsense,valid\n", "line 2: unknown class 'nonsense'"),
        ("candidate,decision\nKEY,valid\nKEY,unclear\n", "line 3: .* another decision"),
        ("candidate,decision\n", "holds no gold items"),
    ],
)
def test_a_wrong_table_of_gold_items_is_told_by_its_line(
    rows: Rows, server: StandIn, tmp_path: Path, text: str, told: str
) -> None:
    table = tmp_path / "gold.csv"
    table.write_text(text.replace("KEY", rows.keys[10]).replace("SHA", rows.sha256s[10]))
    with pytest.raises(UsageError, match=told):
        push(rows.workspace, gold=table)
    assert server.tasks == {}


def test_what_people_have_looked_at_as_a_candidate_is_refused_as_gold(
    rows: Rows, server: StandIn, tmp_path: Path
) -> None:
    push(rows.workspace)
    table = tmp_path / "gold.csv"
    table.write_text(f"candidate,decision\n{rows.keys[0]},valid\n")
    with pytest.raises(UsageError, match="given out for review already"):
        push(rows.workspace, gold=table)
    with rows.workspace.catalogue.read() as connection:
        assert connection.execute(select(gold)).all() == []


def test_who_has_no_account_is_told_how_to_get_one(rows: Rows, server: StandIn) -> None:
    with pytest.raises(UsageError, match="eve@example.org has no account.*invite"):
        push(rows.workspace, annotators=["Eve@example.org"], overlap=1)
    alone = rows.workspace.changed({"review.annotators": ()})
    with pytest.raises(UsageError, match="nobody is named"):
        push(alone)
    with pytest.raises(UsageError, match="nobody has an account yet: curate review serve"):
        push(alone.changed({"review.url": ""}))
    with pytest.raises(UsageError, match="2 different annotators, and there is 1; .* --overlap 1"):
        push(rows.workspace, annotators=PEOPLE[:1])
    assert server.tasks == {}


@pytest.mark.parametrize("refused", [{"overlap": 3}, {"overlap": 1, "referee": "nonsense"}])
def test_a_push_that_is_refused_changes_no_outcome(
    rows: Rows, server: StandIn, refused: dict[str, Any]
) -> None:
    push(rows.workspace)
    rows.say(0, 0, "valid")
    rows.say(0, 1, "valid")
    rows.say(1, 0, "valid")
    before = reviewed(rows.workspace).outcomes
    with pytest.raises(CurateError):
        push(rows.workspace, **refused)
    assert reviewed(rows.workspace).outcomes == before
    assert answers_needed(rows.workspace) == 2
    server.accounts += ("cat@example.org",)
    summary = push(rows.workspace, annotators=[*PEOPLE, "cat@example.org"], overlap=3)
    assert (summary["accepted"], summary["pushed"], answers_needed(rows.workspace)) == (0, 9, 3)


def test_who_skips_after_an_answer_makes_room_for_somebody_else(
    rows: Rows, server: StandIn
) -> None:
    """Two entries of one person: by the newer one they have said nothing."""
    push(rows.workspace, most=1)
    (first, _) = row_values(rows, "candidate")
    number = rows.keys.index(first[0])
    rows.say(number, 0, "valid")
    rows.say(number, 0, "skipped", event="skipped")
    with rows.workspace.catalogue.write() as connection:
        connection.execute(
            update(review_tasks).where(review_tasks.c.project_id == 1).values(state="skipped")
        )
    assert push(rows.workspace, most=1)["short"] == 1
    server.accounts += ("cat@example.org",)
    more = push(rows.workspace, annotators=[*PEOPLE, "cat@example.org"], most=1)
    assert (more["pushed"], more["short"]) == (1, 0)
    assert server.candidates("review annotator-3") == [rows.keys[number]]


def test_two_pushes_at_once_leave_one_out(rows: Rows, server: StandIn) -> None:
    with rows.workspace.held("review"), pytest.raises(BusyError, match="curate review"):
        push(rows.workspace)


def test_photos_without_an_address_are_told_and_the_others_pushed(
    rows: Rows, server: StandIn
) -> None:
    with rows.workspace.catalogue.write() as connection:
        odd = images.c.sha256 == rows.sha256s[0]
        connection.execute(update(images).where(odd).values(format="TIFF", extension="tif"))
    summary = push(rows.workspace)
    assert (summary["pushed"], summary["unshown"]) == (16, 1)
    assert "missing" in summary["problems"][0]
    assert rows.keys[0] not in server.candidates()


def test_the_doctor_wants_photos_of_another_host_to_be_shared_and_whole(
    rows: Rows, server: StandIn, package_photos: list[tuple[Path, int]]
) -> None:
    """The browser draws them on a page of Label Studio, which their own server must allow."""
    photo = package_photos[0][0].read_bytes()
    with Image.open(package_photos[0][0]) as opened:
        width, height = opened.size
    with rows.workspace.catalogue.write() as connection:
        connection.execute(update(images).values(width=width, height=height))
    with LoopbackServer() as host:
        theirs = rows.workspace.changed({"review.image_url": host.url("/store/")})
        push(theirs)

        def told(photo: bytes, status: int = 200, **headers: str) -> str:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            host.on("/store/*", lambda e: e.send(status, photo, named, "image/jpeg"))
            return " ".join(f"{p['what']}: {p['advice']}" for p in examine(theirs)["problems"])

        origin = server.url("")
        assert f"Access-Control-Allow-Origin: {origin}" in told(photo)
        assert told(photo, Access_Control_Allow_Origin=origin) == ""
        assert told(photo, Access_Control_Allow_Origin="*") == ""
        assert "HTTP 403" in told(b"", 403)
        assert "no whole picture" in told(photo[:-2000], Access_Control_Allow_Origin="*")
        assert "as text/html" in told(
            photo, Access_Control_Allow_Origin="*", Content_Type="text/html"
        )
        assert all("Authorization" not in request.headers for request in host.requests)
        assert all(request.headers["Origin"] == origin for request in host.requests)


def test_under_the_rule_outlier_concepts_are_claimed_and_classes_offered(
    server: StandIn, tmp_path: Path
) -> None:
    made = workspace_with(tmp_path / "o", server, 6, preset="imagenet-o")
    assert push(made.workspace)["pushed"] == 8
    names = {made.workspace.weak_labels.name_of(wnid) for wnid in made.wnids}
    for task in server.tasks.values():
        assert task["data"]["claim"] in names
        aliases = [one["alias"] for one in task["data"]["offered"][:-1]]
        assert all(wnid in made.workspace.label_space for wnid in aliases)
    with pytest.raises(UsageError, match="--gold FILE"):
        push(made.workspace, gold_rate=0.1)
    made.workspace.close()


def test_both_databases_push_the_same(
    server: StandIn, tmp_path: Path, on_database: Callable[[str], str]
) -> None:
    made = workspace_with(tmp_path / "d", server, 12, survivors=9, preset=on_database("imagenet-a"))
    made.set_controls([9, 0])
    assert push(made.workspace)["pushed"] == 20
    assert_exact(made, server)
    made.say(0, 0, "unclear")
    made.say(0, 1, "unclear")
    again = push(made.workspace, most=1)
    assert (again["pushed"], again["queue"]) == (0, 9)
    assert examine(made.workspace)["checked"]["photos"] == 1
    # What is taken back is deleted there.
    gone = made.keys[1]
    assert retract(made.workspace, gone, "other")["withdrawn"] == 2
    assert push(made.workspace)["queue"] == 8
    assert gone not in server.candidates()
    made.workspace.close()


def test_photos_of_an_object_store_are_copied_once(
    bucket: str, tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    create_workspace(tmp_path / "w", "imagenet-1k").close()
    with (tmp_path / "w" / "curate.yaml").open("a", encoding="utf-8") as stream:
        stream.write(f"\nstore: s3://{bucket}/images\n")
    workspace = open_workspace(tmp_path / "w")
    folder = tmp_path / "photos" / workspace.label_space.wnids[0]
    folder.mkdir(parents=True)
    shutil.copy(package_photos[0][0], folder)
    with Image.open(package_photos[1][0]) as photo:
        photo.save(folder / "photo.tif")
    collect_folder(workspace, folder.parent)
    with workspace.catalogue.read() as connection:
        stored = [dict(row) for row in connection.execute(select(images)).mappings()]
    client: Any = None
    addresses = Photos(workspace, client).addresses(stored)
    shown = workspace.root / "review" / "served"
    files = {sha: shown / address.partition("?d=")[2] for sha, address in addresses.items()}
    assert sorted(path.suffix for path in files.values()) == [".jpg", ".png"]
    original = package_photos[0][0].read_bytes()
    assert files[sha256_bytes(original)].read_bytes() == original
    for path in files.values():
        path.write_bytes(b"made once")
    assert Photos(workspace, client).addresses(stored) == addresses
    assert {path.read_bytes() for path in files.values()} == {b"made once"}
    workspace.close()


def test_what_browsers_draw_otherwise_is_known_from_the_row() -> None:
    plain = {"format": "JPEG", "mode": "RGB", "notes": ["exif-orientation-applied", "has-gps"]}
    assert drawn_alike(plain)
    for change in (
        {"format": "TIFF"},
        {"format": "PNG"},
        {"mode": "CMYK"},
        {"notes": ["cmyk-converted"]},
        {"notes": ["alpha-flattened"]},
    ):
        assert not drawn_alike(plain | change)


def test_the_boxes_are_where_the_views_were_cut() -> None:
    found = boxes(500, 375, {"resize": 256, "crop": 224})
    # 341 x 256 after resizing: the centre begins at the rounded half of what is left over.
    assert found[0] == (58 / 341, 16 / 256, 224 / 341, 224 / 256)
    assert found[1][:2] == (0, 0)
    assert found[4][:2] == (117 / 341, 32 / 256)
    tall = boxes(375, 500, {"resize": 256, "crop": 224})
    assert tall[4] == (32 / 256, 117 / 341, 224 / 256, 224 / 341)


def test_examples_are_accepted_photos_of_the_class_and_never_the_photo_itself(
    rows: Rows, server: StandIn
) -> None:
    run = judged(rows)

    class Everywhere:
        refused: dict[str, CurateError] = {}  # noqa: RUF012

        def addresses(self, found: Any) -> dict[str, str]:
            return {each["sha256"]: f"/{each['sha256']}" for each in found}

        def examples(self, found: Any) -> dict[str, str]:
            return {each["sha256"]: f"/small/{each['sha256']}" for each in found}

    same = [n for n in range(9) if rows.wnids[n] == rows.wnids[0]]
    accepted = [(rows.wnids[n], rows.sha256s[n]) for n in range(9)]
    about = {"project_id": rows.project()}
    given = [
        about | {"candidate": rows.keys[n], "sha256": rows.sha256s[n], "wnid": rows.wnids[n]}
        for n in same
    ]
    photos: Any = Everywhere()
    make = TaskMaker(rows.workspace, run, photos, accepted, given)
    for number, task in zip(same, make(given), strict=True):
        assert task is not None
        shown = [n for n in range(9) if f"/small/{rows.sha256s[n]}" in task["data"]["examples"]]
        assert shown == [n for n in same if n != number]


def judged(rows: Rows) -> Any:
    with rows.workspace.catalogue.read() as connection:
        return judging.run(connection, RUN)


@pytest.mark.parametrize("wnid", ["n01440764", "n02099601", "n03445777", "n07753592", "n09472597"])
def test_a_known_wrong_label_is_of_something_else_altogether(wnid: str) -> None:
    space = load_label_space("imagenet-1k")
    net = wordnet()
    for number in range(5):
        other = _other(space, wnid, {"n02123045"}, f"key {number}")
        assert other is not None
        assert other not in ("n02123045", wnid)
        shared = net.ancestors(wnid) & net.ancestors(other)
        assert {"n01317541", "n02075296", "n03575240"}.isdisjoint(shared)
        assert min(len(net.descendants(kind)) for kind in shared) >= 10_000
