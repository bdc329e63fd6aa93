"""The client against a real Label Studio."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from annotation import venv
from annotation.client import Client
from annotation.client_errors import (
    AlreadyStored,
    GoneError,
    ReviewServerError,
    TokenRefused,
    Unanswered,
)
from annotation.server import connect, served
from annotation.server_accounts import OWNER
from curate.errors import CurateError
from curate.setting_groups import ReviewSettings
from tests.annotation.serving import (
    CONFIG,
    Served,
    keys,
    logged_in,
    processes,
    secrets_of,
    tasks,
)
from tests.running import run_curate
from tests.waiting import PATIENCE, wait_until

# The first test to run may have to install it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_it_tells_who_asks_and_which_version_it_is(running: Served) -> None:
    client = running.client()
    assert client.who_am_i()["email"] == OWNER
    assert client.version() == venv.VERSION
    assert {OWNER, "ann@example.org"} <= {user["email"] for user in client.users()}


def test_a_project_is_made_found_changed_and_deleted(running: Served) -> None:
    client = running.client()
    title = f"review {uuid.uuid4().hex[:8]}"
    made = client.create_project(title, CONFIG, maximum_annotations=2)
    assert [each["id"] for each in client.projects(title)] == [made["id"]]
    assert client.projects(title[:-1]) == []
    changed = CONFIG.replace("wrong-label", "wrong")
    client.update_project(made["id"], label_config=changed)
    assert client.project(made["id"])["label_config"] == changed
    assert client.project(made["id"])["maximum_annotations"] == 2
    client.delete_project(made["id"])
    assert client.projects(title) == []


def test_what_is_wrong_with_a_project_is_told(running: Served) -> None:
    with pytest.raises(ReviewServerError, match=r"HTTP 400.*title") as caught:
        running.client().create_project("ab", CONFIG)
    assert not isinstance(caught.value, Unanswered)


def test_tasks_are_found_by_their_candidates(
    running: Served, project: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = running.client()
    assert client.find_tasks(project, keys(3)) == {}
    ids = client.import_tasks(project, tasks(250))
    twice = client.import_tasks(project, tasks(1))
    monkeypatch.setattr("annotation.client.PAGE", 40)
    monkeypatch.setattr("annotation.client.PAGE_OF_IDS", 100)
    expected = {key: [number] for key, number in zip(keys(250), ids, strict=True)}
    expected[keys(1)[0]] += twice
    assert client.find_tasks(project, [*keys(400), *keys(3)]) == expected
    assert client.task_ids(project) == [*ids, *twice]


def test_one_bad_task_keeps_out_its_batch(running: Served, project: int) -> None:
    client = running.client()
    with pytest.raises(ReviewServerError, match="HTTP 400"):
        client.import_tasks(project, [*tasks(2), {"data": {"candidate": "no image"}}])
    assert client.task_ids(project) == []


def test_an_import_that_timed_out_is_to_be_looked_up_and_may_be_there(
    running: Served, project: int
) -> None:
    hasty = Client(running.client().url, running.kept["token"], seconds=0.5)
    (process,) = processes(running.root)
    # However slow this machine is, no answer comes in time; what is sent waits for the server.
    process.suspend()
    try:
        with pytest.raises(Unanswered, match="timed out.*may have been stored"):
            hasty.import_tasks(project, tasks(500))
    finally:
        process.resume()
    client = running.client()
    wait_until(lambda: len(client.find_tasks(project, keys(500))) == 500)
    assert len(client.task_ids(project)) == 500


def test_what_was_changed_since_a_time_comes_with_its_annotations(
    running: Served, project: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = running.client()
    since = client.clock()
    ids = client.import_tasks(project, tasks(7))
    # The clock tells whole seconds.
    time.sleep(1.1)
    assert [each["id"] for each in client.updated_tasks(project, since)] == ids
    later = client.clock() + timedelta(milliseconds=1)
    time.sleep(1.1)
    said = [
        {"from_name": "decision", "to_name": "image", "type": "choices"}
        | {"value": {"choices": ["valid"]}}
    ]
    for task in ids[1:6]:
        client.create_annotation(task, said, str(uuid.uuid4()), lead_time=1.5)
    monkeypatch.setattr("annotation.client.PAGE", 2)
    updated = list(client.updated_tasks(project, later))
    assert [each["id"] for each in updated] == ids[1:6]
    # The very moment counts, to the microsecond.
    last = max(datetime.fromisoformat(each["updated_at"]) for each in updated)
    assert [each["id"] for each in client.updated_tasks(project, last)] == [ids[5]]
    assert list(client.updated_tasks(project, last + timedelta(microseconds=1))) == []
    (annotation,) = updated[0]["annotations"]
    assert (annotation["result"], annotation["lead_time"]) == (said, 1.5)
    assert annotation["completed_by"] == client.who_am_i()["id"]


def test_no_task_is_missed_though_others_are_deleted_between_two_pages(
    running: Served, project: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("annotation.client.PAGE", 3)
    client = running.client()
    since = client.clock() - timedelta(seconds=2)
    ids = client.import_tasks(project, tasks(9))
    found = []
    for task in client.updated_tasks(project, since):
        if task["id"] == ids[0]:
            running.client()._to.send("DELETE", f"/api/tasks/{ids[0]}/")
            running.client()._to.send("DELETE", f"/api/tasks/{ids[1]}/")
        found.append(task["id"])
    assert found == ids


def test_an_annotation_sent_twice_is_stored_once(running: Served, project: int) -> None:
    client = running.client()
    (task,) = client.import_tasks(project, tasks(1))
    number = str(uuid.uuid4())
    client.create_annotation(task, [], number)
    with pytest.raises(AlreadyStored):
        client.create_annotation(task, [], number)
    (updated,) = client.updated_tasks(project, client.clock() - timedelta(minutes=5))
    assert len(updated["annotations"]) == 1


def test_what_was_deleted_is_gone_in_one_line(running: Served, project: int) -> None:
    client = running.client()
    (task,) = client.import_tasks(project, tasks(1))
    client.delete_project(project)
    calls: list[Callable[[], Any]] = [
        lambda: client.project(project),
        lambda: client.update_project(project, title="review"),
        lambda: client.delete_project(project),
        lambda: client.import_tasks(project, tasks(1)),
        lambda: client.find_tasks(project, keys(1)),
        lambda: client.task_ids(project),
        lambda: client.create_annotation(task, [], str(uuid.uuid4())),
    ]
    for call in calls:
        with pytest.raises(GoneError) as caught:
            call()
        assert "\n" not in str(caught.value)
        assert "<" not in str(caught.value)


def test_images_of_the_workspace_are_shown_to_those_who_have_logged_in(
    running: Served, project: int, package_photos: list[tuple[Path, int]]
) -> None:
    client = running.client()
    photo = package_photos[0][0].read_bytes()
    (running.root / "images" / "ab").mkdir(parents=True, exist_ok=True)
    (running.root / "images" / "ab" / "photo.jpg").write_bytes(photo)
    folder = str(served(running.root) / "images")
    made = client.create_local_storage(project, folder)
    assert [each["id"] for each in client.local_storages(project)] == [made["id"]]
    url = client.url + tasks(1)[0]["data"]["image"]
    ann = next(each for each in running.kept["accounts"] if each["email"] == "ann@example.org")
    with logged_in(client.url, **ann) as browser:
        assert browser.get(url, timeout=PATIENCE).content == photo
        for path in ("../accounts.json", "images/../../accounts.json", "images/../../curate.yaml"):
            answer = browser.get(f"{client.url}/data/local-files/?d={path}", timeout=PATIENCE)
            assert answer.status_code in (404, 500)
            assert running.kept["token"] not in answer.text
    assert requests.get(url, timeout=PATIENCE).status_code == 401
    for outside in (running.root / "review", running.root):
        with pytest.raises(ReviewServerError, match="HTTP 400"):
            client.create_local_storage(project, str(outside))


def test_a_wrong_token_is_told_and_not_shown(running: Served, personal_token: str) -> None:
    url = running.client().url
    for wrong in ("f" * 40, personal_token[:-4] + "AAAA"):
        with pytest.raises(TokenRefused, match="refuses the token") as caught:
            Client(url, wrong).who_am_i()
        assert wrong not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_personal_token_works_beyond_the_end_of_its_access(
    running: Served, personal_token: str
) -> None:
    client = Client(running.client().url, personal_token)
    assert client.who_am_i()["email"] == "ann@example.org"
    # What the server says of access that has ended; and of what it has never given.
    client._to._access = client._to._access[:-4] + "AAAA"
    client._to._bought -= 10
    assert client.who_am_i()["email"] == "ann@example.org"


def test_a_server_of_ones_own_is_used_by_its_address_and_token(
    running: Served, personal_token: str
) -> None:
    url = running.client().url
    theirs = ReviewSettings(url=f"{url}/")
    nowhere = running.root.parent
    client = connect(nowhere, theirs, {"CURATE_REVIEW_TOKEN": personal_token})
    assert client.who_am_i()["email"] == "ann@example.org"
    with pytest.raises(CurateError, match="CURATE_REVIEW_TOKEN"):
        connect(nowhere, theirs, {})
    done = run_curate(
        "review", "serve", workspace=running.root, expect=2, CURATE_REVIEW__URL=f"{url}/"
    )
    assert "nothing to start" in done.stderr


def test_no_secret_was_printed_or_logged(running: Served) -> None:
    """The last one of those that share a server: it looks at all that they made it say."""
    running.curate("--annotator", "dan@example.org")
    shown = {
        account["password"]
        for text in running.printed
        for account in json.loads(text[: text.rfind("}") + 1] or "{}").get("accounts", [])
    }
    printed = "".join(running.printed)
    log = (running.root / "review" / "server.log").read_text()
    secrets = secrets_of(running)
    assert shown < secrets
    for secret in secrets:
        assert secret not in log
        assert printed.count(secret) == (1 if secret in shown else 0)
    for path in (running.root / "review").iterdir():
        if path.is_file() and path.name != "accounts.json":
            assert not any(secret in path.read_text() for secret in secrets), path.name
