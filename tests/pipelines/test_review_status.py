"""How far people are, as the command and the page tell it from what was pulled."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from curate.catalog.review_tables import review_projects, review_tasks, set_aside
from curate.catalog.tables import candidates, now, origins
from curate.errors import UsageError
from curate.files import sha256_bytes
from pipelines.collect import collect_folder
from pipelines.review_page import write_review_page
from pipelines.review_status import review_status
from pipelines.workspace import create_workspace
from tests.pipelines.reviewing import Rows, made_rows
from tests.report.test_page import HOSTILE, Structure
from tests.running import run_curate

WNIDS = ("n01498041", "n01531178")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    made = made_rows(tmp_path / "w", 10, 8, labels=WNIDS)
    yield made
    made.workspace.close()


def person(summary: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in summary["annotators"] if one["annotator"] == name)


def set_state(rows: Rows, number: int, state: str, project: int) -> None:
    change = update(review_tasks).where(
        review_tasks.c.candidate == rows.keys[number], review_tasks.c.project_id == project
    )
    with rows.workspace.catalogue.write() as connection:
        connection.execute(change.values(state=state))


def put_aside(rows: Rows, project: int, why: str, settled: bool = False, number: int = 7) -> None:
    row = {"key": sha256_bytes(f"{why}{number}".encode()), "project_id": project, "task": 2001}
    row |= {"annotation": number, "why": why, "raw": "{}", "settled": settled, "seen": now()}
    with rows.workspace.catalogue.write() as connection:
        connection.execute(insert(set_aside).values(row))


def test_before_anything_is_given_out_there_is_nothing_to_tell(rows: Rows) -> None:
    found = review_status(rows.workspace)
    assert found["accepted"] == found["waiting"] == found["pushed"] == found["pulled"] == 0
    assert found["annotators"] == []
    assert found["by_class"] == {}
    assert found["hours_left"] is None
    assert found["blind"] is None
    assert json.loads(json.dumps(found)) == found


def test_classes_are_counted_and_add_up_to_the_whole(rows: Rows) -> None:
    rows.set_controls([1, 9])
    rows.give([0, 1, 2, 3, 4, 9])
    for number, both in {
        0: ("valid", "valid"),
        1: ("unclear", "unclear"),
        2: ("valid", "unclear"),
        9: ("valid", "valid"),
    }.items():
        for who, decision in enumerate(both):
            rows.say(number, who, decision)
    found = review_status(rows.workspace)
    stages = ("waiting", "done", "accepted", "rejected", "disputed")
    told = {wnid: [row[s] for s in stages] for wnid, row in found["by_class"].items()}
    # What is in the control sample and did not survive stands apart, as in the counts.
    assert told == {WNIDS[0]: [1, 2, 1, 0, 1], WNIDS[1]: [1, 1, 0, 1, 0]}
    for stage in ("waiting", "accepted", "disputed"):
        assert found[stage] == sum(row[stage] for row in found["by_class"].values())
    assert found["rejected"] == {"unclear": 1}
    assert found["by_class"][WNIDS[0]]["name"] == "stingray"
    assert (found["pushed"], found["pulled"]) == (12, 8)


def test_annotators_are_told_of_by_role_with_what_is_open(rows: Rows) -> None:
    rows.set_gold(7, "wrong-label")
    rows.give([0, 1, 2, 3])
    rows.give([7], gold=True)
    first = rows.project("review", 0)
    for number in (0, 1):
        rows.say(number, 0, "valid", seconds=4.0)
        set_state(rows, number, "answered", first)
    rows.say(2, 0, "skipped", event="skipped")
    set_state(rows, 2, "skipped", first)
    rows.say(7, 0, "valid", seconds=10.0)
    set_state(rows, 7, "answered", first)
    found = review_status(rows.workspace)
    mine = person(found, "annotator-1")
    assert (mine["open"], mine["done"], mine["skipped"]) == (1, 3, 1)
    assert mine["median_seconds"] == 4.0
    assert (mine["gold"]["count"], mine["gold"]["of"], mine["gold"]["value"]) == (0, 1, 0.0)
    assert mine["gold"]["high"] == pytest.approx(0.975)
    assert mine["accept_rate"]["value"] == 1.0
    assert mine["accept_rate"]["low"] == pytest.approx(0.025**0.5)
    other = person(found, "annotator-2")
    assert (other["open"], other["done"], other["median_seconds"]) == (5, 0, None)
    assert other["gold"]["value"] is None
    assert "@" not in json.dumps(found)


def test_hours_come_from_everybody_where_somebody_has_timed_few(rows: Rows) -> None:
    rows.give(range(8))
    assert {one["hours_left"] for one in review_status(rows.workspace)["annotators"]} == {None}
    for _ in range(4):
        rows.say(0, 1, "valid", seconds=3600.0)
    found = review_status(rows.workspace)
    # One answer stands; nobody else was timed, and all are expected to be as slow.
    assert [one["hours_left"] for one in found["annotators"]] == [8.0, 8.0]
    assert found["hours_left"] == 16.0


def test_hours_are_those_of_whoever_has_timed_enough(tmp_path: Path) -> None:
    rows = made_rows(tmp_path / "w", 30)
    rows.give(range(30))
    for number in range(12):
        rows.say(number, 0, "valid", seconds=360.0)
        set_state(rows, number, "answered", rows.project("review", 0))
    for number in range(5):
        rows.say(number, 1, "valid", seconds=36.0)
    found = review_status(rows.workspace)
    rows.workspace.close()
    assert person(found, "annotator-1")["hours_left"] == pytest.approx(18 * 0.1)
    # Of all 17 timed answers the median is 360 s.
    assert person(found, "annotator-2")["hours_left"] == pytest.approx(30 * 0.1)
    assert found["hours_left"] == pytest.approx(4.8)


def test_what_no_server_has_or_whose_lease_has_ended_is_not_open(rows: Rows) -> None:
    rows.give([0], [0])
    rows.give([1], [0], until=now() - timedelta(seconds=1))
    rows.give([2], [0], until=now() + timedelta(hours=1))
    rows.give([3], [0], sent=False)
    with rows.workspace.catalogue.write() as connection:
        change = update(review_tasks).where(review_tasks.c.candidate == rows.keys[3])
        connection.execute(change.values(number=None))
    assert person(review_status(rows.workspace), "annotator-1")["open"] == 2
    with rows.workspace.catalogue.write() as connection:
        connection.execute(update(review_projects).values(state="gone"))
    assert review_status(rows.workspace)["annotators"] == []


def test_whoever_only_adjudicates_or_is_shown_photos_blind_has_no_queue(rows: Rows) -> None:
    rows.give([0])
    rows.give([0], [None], "adjudication")
    rows.give([1], [3], "blind")
    for who, decision in enumerate(("valid", "unclear")):
        rows.say(0, who, decision)
    assert review_status(rows.workspace)["adjudication"] == {"open": 1, "done": 0}
    rows.say(0, 2, "valid", purpose="adjudication")
    set_state(rows, 0, "answered", rows.project("adjudication", None))
    found = review_status(rows.workspace)
    assert [one["annotator"] for one in found["annotators"]] == ["annotator-1", "annotator-2"]
    assert found["adjudication"] == {"open": 0, "done": 1}
    assert found["accepted"] == 1


def test_answers_that_cannot_be_read_are_told_with_their_numbers(rows: Rows) -> None:
    rows.give([0])
    project = rows.project("review", 0)
    put_aside(rows, project, "it has two decisions")
    put_aside(rows, project, "settled since", settled=True, number=8)
    found = review_status(rows.workspace)
    assert found["set_aside"] == 1
    assert found["unread"] == [
        {"project": "review 0", "task": 2001, "annotation": 7, "why": "it has two decisions"}
    ]


def test_whoever_accepts_nearly_all_is_warned_of(tmp_path: Path) -> None:
    rows = made_rows(tmp_path / "w", 75)
    rows.give(range(75))
    for number in range(75):
        rows.say(number, 0, "valid")
    for number in range(10):
        rows.say(number, 1, "valid" if number % 2 else "unclear")
    found = review_status(rows.workspace)
    out = tmp_path / "page.html"
    write_review_page(rows.workspace, out)
    rows.workspace.close()
    (warning,) = person(found, "annotator-1")["warnings"]
    assert found["warnings"] == [f"annotator-1 {warning}"]
    assert warning in out.read_text()


@pytest.mark.slow
def test_the_command_tells_it_as_tables_and_writes_the_page(rows: Rows, tmp_path: Path) -> None:
    rows.give([0, 1, 2])
    for number, both in {0: ("valid", "valid"), 1: ("valid", "unclear")}.items():
        for who, decision in enumerate(both):
            rows.say(number, who, decision, seconds=12.0)
    put_aside(rows, rows.project("review", 0), "it has no decision")
    root = rows.workspace.root
    text = run_curate("review", "status", "--page", tmp_path, workspace=root).stdout
    for line in (
        "accepted           1",
        "annotator-2     3     2        0  12.0",
        "raw            0.5000",
        "n01498041  stingray",
        "set aside: annotation 7 of task 2001 in review 0: it has no decision",
        f"page: {tmp_path / 'review.html'}",
    ):
        assert line in text, text
    assert "@" not in text
    html = (tmp_path / "review.html").read_text()
    shown = " ".join(" ".join(Structure(html).text).split())
    assert "2 of 3 candidates reviewed" in shown
    assert "no picture: the stored file is bad" in shown
    assert "annotator-2 unclear" in shown
    told = json.loads(run_curate("--json", "review", "status", workspace=root).stdout)
    assert told["disputed"] == told["waiting"] == 1
    with pytest.raises(UsageError):
        write_review_page(rows.workspace, tmp_path / "none" / "page.html")


def test_notes_and_authors_change_nothing_but_text_on_the_page(tmp_path: Path) -> None:
    # A catalogue cannot hold half a pair of UTF-16.
    hostile = HOSTILE[:-1]
    found = []
    for name, texts in (("hostile", hostile), ("plain", ["plain"] * len(hostile))):
        rows = made_rows(tmp_path / name, len(texts))
        rows.give(range(len(texts)))
        with rows.workspace.catalogue.write() as connection:
            connection.execute(update(origins).values(author=texts[0], licence_url=texts[5]))
        for number, text in enumerate(texts):
            rows.say(number, 0, "valid", note=text)
            rows.say(number, 1, "wrong-label", note=text, corrected=WNIDS[1])
            put_aside(rows, rows.project("review", 0), text, number=number + 1)
        page = tmp_path / f"{name}.html"
        write_review_page(rows.workspace, page)
        rows.workspace.close()
        html = page.read_text()
        found.append((Structure(html).found, Structure(html).links))
    assert found[0] == found[1]
    assert "alert(1)" in "".join(Structure((tmp_path / "hostile.html").read_text()).text)


def test_disputed_photos_stand_on_the_page_with_who_said_what(
    tmp_path: Path, weak_folder: Path
) -> None:
    preset = tmp_path / "preset.yaml"
    preset.write_text("label_space: imagenet-1k\n")
    workspace = create_workspace(tmp_path / "w", str(preset))
    collect_folder(workspace, weak_folder)
    with workspace.catalogue.read() as connection:
        query = select(candidates).order_by(candidates.c.key).limit(6)
        found = connection.execute(query).mappings().all()
    columns = ([row[name] for row in found] for name in ("key", "sha256", "wnid", "id"))
    rows = Rows(workspace, *columns)
    rows.give(range(6))
    also, name = "n02123045", "tabby"
    for number in range(6):
        rows.say(number, 0, "valid")
        rows.say(number, 1, "wrong-label", reasons=["hidden"], corrected=also, note="Look: a cat")
    rows.say(5, 2, "unclear", purpose="adjudication")
    write_review_page(workspace, tmp_path)
    workspace.close()
    html = (tmp_path / "review.html").read_text()
    shown = " ".join(" ".join(Structure(html).text).split())
    assert html.count('src="data:image/jpeg;base64,') == 5
    assert shown.count(f"wrong label mostly covered or cut off it is: {name} Look: a cat") == 5
    assert "0 accepted, 1 rejected, 5 disputed" in shown


def test_what_is_disputed_of_the_control_sample_alone_is_shown_and_told_apart(
    rows: Rows, tmp_path: Path
) -> None:
    # Of ten the last two did not survive.
    rows.set_controls([7, 8, 9])
    rows.give(range(10))
    for number in (7, 8, 9):
        rows.say(number, 0, "valid")
        rows.say(number, 1, "unclear")
    told = write_review_page(rows.workspace, tmp_path)
    assert (told["disputed"], told["control"]["disputed"]) == (1, 3)
    page = Structure((tmp_path / "review.html").read_text())
    shown = " ".join(" ".join(page.text).split())
    assert "1 of 8 candidates reviewed" in shown
    assert shown.count("annotator-2 unclear") == 3
    assert "2 are of the control sample, and counted with it alone." in shown
    assert "not shown" not in shown


def test_five_thousand_answers_are_told_at_once(tmp_path: Path) -> None:
    rows = made_rows(tmp_path / "w", 2500, labels=WNIDS)
    rows.give(range(2500))
    _say_all(rows, 2500)
    begin = time.process_time()
    found = review_status(rows.workspace)
    seconds = time.process_time() - begin
    rows.workspace.close()
    assert found["accepted"] == 2500
    assert seconds < 20


def _say_all(rows: Rows, count: int) -> None:
    from curate.catalog.review_tables import answers

    for who in (0, 1):
        rows.say(0, who, "valid")
    with rows.workspace.catalogue.read() as connection:
        kept = connection.execute(answers.select()).mappings().all()
    many = [
        {
            **{name: value for name, value in row.items() if name != "id"},
            "candidate": rows.keys[number],
            "key": sha256_bytes(f"{who} {number}".encode()),
            "entry": f"{who} {number}",
        }
        for who, row in enumerate(kept)
        for number in range(1, count)
    ]
    with rows.workspace.catalogue.write() as connection:
        connection.execute(insert(answers), many)
