"""A real Label Studio for a workspace: started, found, killed, stopped, and asked by the client.

It is installed in the user's cache folder, as `curate review serve` does it: minutes at first.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from annotation import server_process, venv
from annotation.client import Client
from annotation.client_errors import (
    AlreadyStored,
    GoneError,
    ReviewServerError,
    ServerAway,
    TokenRefused,
    Unanswered,
)
from annotation.server import connect, served
from annotation.server_accounts import OWNER
from curate.errors import CurateError
from curate.setting_groups import ReviewSettings
from tests.running import ROOT, copy_of, run_curate

# The first test to run may have to install it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CONFIG = (
    '<View><Image name="image" value="$image"/><Choices name="decision" toName="image">'
    '<Choice value="valid"/><Choice value="wrong-label"/></Choices></View>'
)


@pytest.fixture(scope="module")
def installed() -> venv.Installed:
    """Label Studio; where it cannot be installed tests are skipped, but fail where CURATE_CI=1."""
    try:
        return venv.install()
    except CurateError as error:
        if os.environ.get("CURATE_CI") == "1":
            pytest.fail(f"CURATE_CI=1 wants a Label Studio: {error}")
        pytest.skip(f"there is no Label Studio to start: {error}")


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def processes(root: Path) -> list[psutil.Process]:
    """The servers of a workspace, however they were started."""
    record = str(root / "review" / "server.json")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if record in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@dataclass
class Served:
    """A workspace, where its server shall listen, and all that commands have printed."""

    root: Path
    port: int
    printed: list[str]

    def curate(self, *arguments: str, expect: int | None = 0) -> dict[str, Any]:
        done = run_curate("--json", "review", "serve", *arguments, workspace=self.root, expect=None)
        self.printed.append(done.stdout + done.stderr)
        assert expect is None or done.returncode == expect, done.stderr
        return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr}

    def serve(self, *arguments: str, expect: int | None = 0) -> dict[str, Any]:
        return self.curate("--port", str(self.port), *arguments, expect=expect)

    @property
    def kept(self) -> dict[str, Any]:
        return json.loads((self.root / "review" / "accounts.json").read_bytes())

    def client(self) -> Client:
        return connect(self.root, ReviewSettings(), {})


@pytest.fixture(scope="module")
def make_served(
    installed: venv.Installed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Served]]:
    """Makes workspaces whose servers end with the tests."""
    made: list[Served] = []

    def make() -> Served:
        root = tmp_path_factory.mktemp("served") / "workspace"
        run_curate("init", root, "--preset", "imagenet-a")
        made.append(Served(root, free_port(), []))
        return made[-1]

    yield make
    for each in made:
        each.curate("--stop", expect=None)
        for process in processes(each.root):
            process.kill()


@pytest.fixture(scope="module")
def running(make_served: Callable[[], Served]) -> Served:
    """A workspace whose server runs; one annotator has an account."""
    made = make_served()
    told = made.serve("--annotator", "Ann@example.org")
    assert told["state"] == "started"
    assert [account["email"] for account in told["accounts"]] == [OWNER, "ann@example.org"]
    return made


@pytest.fixture
def project(running: Served) -> Iterator[int]:
    client = running.client()
    made = client.create_project("review of a test", CONFIG, maximum_annotations=2)
    yield made["id"]
    with suppress(GoneError):
        client.delete_project(made["id"])


def tasks(count: int, first: int = 0) -> list[dict[str, Any]]:
    image = "/data/local-files/?d=images/ab/photo.jpg"
    return [
        {"data": {"image": image, "candidate": f"c{number:031}"}}
        for number in range(first, first + count)
    ]


def keys(count: int, first: int = 0) -> list[str]:
    return [task["data"]["candidate"] for task in tasks(count, first)]


def logged_in(url: str, email: str, password: str) -> requests.Session:
    """A browser's session after the log-in page."""
    browser = requests.Session()
    page = f"{url}/user/login/"
    browser.get(page, timeout=30)
    form = {"csrfmiddlewaretoken": browser.cookies["csrftoken"], "email": email}
    answer = browser.post(
        page,
        data={**form, "password": password},
        headers={"Referer": page},
        timeout=30,
        allow_redirects=False,
    )
    assert answer.status_code == 302, "the log-in is refused"
    return browser


@pytest.fixture(scope="module")
def personal_token(running: Served) -> str:
    """The annotator's personal access token; nobody has two."""
    url = f"http://127.0.0.1:{running.port}"
    with logged_in(url, **running.kept["accounts"][1]) as browser:
        headers = {"X-CSRFToken": browser.cookies["csrftoken"], "Referer": f"{url}/"}
        answer = browser.post(f"{url}/api/token/", headers=headers, timeout=30)
    return str(answer.json()["token"])


# Started, found, stopped


def test_started_again_it_is_the_same_process(running: Served) -> None:
    pids = [process.pid for process in processes(running.root)]
    told = running.curate()
    assert (told["state"], [told["pid"]]) == ("running", pids)
    assert told["accounts"] == []
    assert told["url"] == f"http://127.0.0.1:{running.port}"
    assert [process.pid for process in processes(running.root)] == pids


def test_another_port_is_refused_while_it_runs(running: Served) -> None:
    told = running.curate("--port", str(free_port()), expect=2)
    assert f"runs at http://127.0.0.1:{running.port} already" in told["error"]


def test_people_are_shown_where_it_is_and_their_passwords_once(running: Served) -> None:
    done = run_curate("review", "serve", "--annotator", "cy@example.org", workspace=running.root)
    again = run_curate("review", "serve", "--annotator", "cy@example.org", workspace=running.root)
    running.printed += [again.stdout, again.stderr, done.stderr]
    passwords = {each["email"]: each["password"] for each in running.kept["accounts"]}
    assert f"runs already: http://127.0.0.1:{running.port}" in done.stdout
    assert f"log in as cy@example.org with the password {passwords['cy@example.org']}" in (
        done.stdout
    )
    assert passwords[OWNER] not in done.stdout
    assert "cy@example.org has an account already" in again.stdout
    url = f"http://127.0.0.1:{running.port}"
    for email, password in passwords.items():
        logged_in(url, email, password).close()


def test_people_who_are_added_at_once_are_all_kept(running: Served) -> None:
    people = [f"new{number}@example.org" for number in range(3)]
    threads = [
        threading.Thread(target=running.curate, args=("--annotator", email)) for email in people
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passwords = {each["email"]: each["password"] for each in running.kept["accounts"]}
    for email in people:
        logged_in(running.client().url, email, passwords[email]).close()


def test_an_address_that_label_studio_refuses_is_told_and_not_kept(running: Served) -> None:
    told = running.curate("--annotator", "ann@x", expect=2)
    assert "ann@x" in told["error"]
    assert "ann@x" not in [each["email"] for each in running.kept["accounts"]]


def test_nobody_signs_up_without_an_invitation(running: Served) -> None:
    page = f"http://127.0.0.1:{running.port}/user/signup/"
    with requests.Session() as browser:
        browser.get(page, timeout=30)
        form = {
            "csrfmiddlewaretoken": browser.cookies["csrftoken"],
            "email": "eve@example.org",
            "password": "a long password",
        }
        answer = browser.post(page, data=form, headers={"Referer": page}, timeout=30)
    assert answer.status_code == 403
    assert "eve@example.org" not in [user["email"] for user in running.client().users()]


def test_it_listens_on_loopback_alone_and_under_no_other_name(running: Served) -> None:
    (process,) = processes(running.root)
    listening = [each for each in process.net_connections() if each.status == "LISTEN"]
    assert [(each.laddr.ip, each.laddr.port) for each in listening] == [("127.0.0.1", running.port)]
    url = f"http://127.0.0.1:{running.port}/health"
    for host, status in (("localhost:9999", 200), ("evil.example.org", 400)):
        assert requests.get(url, headers={"Host": host}, timeout=30).status_code == status, host


def test_its_pages_name_no_place_that_faults_are_reported_to(running: Served) -> None:
    owner = running.kept["accounts"][0]
    with logged_in(f"http://127.0.0.1:{running.port}", **owner) as browser:
        page = browser.get(f"http://127.0.0.1:{running.port}/projects/", timeout=30).text
    assert "APP_SETTINGS" in page
    assert not re.search(r"https://\w+@", page)
    assert "sentry-cdn" not in page


def test_only_its_owner_can_read_its_files(running: Served) -> None:
    folder = running.root / "review"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.rglob("*"):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode & 0o077 == 0, f"{path.relative_to(folder)} {mode:o}"
    assert (folder / ".gitignore").read_text() == "*\n"


def test_a_busy_port_is_an_error_and_nothing_starts(make_served: Callable[[], Served]) -> None:
    other = make_served()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", other.port))
        taken.listen()
        told = other.serve(expect=1)
    assert f"another program has port {other.port}" in told["error"]
    assert processes(other.root) == []
    assert not server_process.is_held(other.root / "review")


def test_two_at_once_start_one_and_share_no_secret_with_another_workspace(
    make_served: Callable[[], Served], running: Served, installed: venv.Installed
) -> None:
    other = make_served()
    told: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: told.append(other.serve())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (process,) = processes(other.root)
    assert [each["pid"] for each in told] == [process.pid] * 3
    assert sorted(each["state"] for each in told) == ["running", "running", "started"]
    assert sorted(len(each["accounts"]) for each in told) == [0, 0, 1]

    assert secrets_of(other).isdisjoint(secrets_of(running))
    with sqlite3.connect(installed.database) as template:
        for table in ("htx_user", "organization", "authtoken_token"):
            assert template.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table

    (stopped,) = processes(running.root)
    assert other.curate("--stop")["pid"] == process.pid
    assert processes(other.root) == []
    assert [each.pid for each in processes(running.root)] == [stopped.pid]
    assert other.curate("--stop") == {"state": "absent", "pid": None}


def secrets_of(workspace: Served) -> set[str]:
    """All that must be a workspace's own: passwords, tokens, the key that signs sessions."""
    data = workspace.root / "review" / "label-studio"
    key = (data / ".env").read_text().strip().removeprefix("SECRET_KEY=")
    with sqlite3.connect(f"file:{data / 'label_studio.sqlite3'}?mode=ro", uri=True) as database:
        (invitation,) = database.execute("SELECT token FROM organization").fetchone()
        tokens = [row[0] for row in database.execute("SELECT key FROM authtoken_token")]
    passwords = [each["password"] for each in workspace.kept["accounts"]]
    found = {key, invitation, workspace.kept["token"], *tokens, *passwords}
    assert all(len(each) >= 16 for each in found)
    return found


def test_a_copy_of_a_workspace_has_no_server_and_stops_none(
    running: Served, tmp_path: Path
) -> None:
    copied = copy_of(running.root, tmp_path / "copy")
    assert server_process.find(copied / "review") is None
    done = run_curate("--json", "review", "serve", "--stop", workspace=copied)
    assert json.loads(done.stdout)["state"] == "absent"
    assert len(processes(running.root)) == 1


@pytest.fixture(scope="module")
def mortal(make_served: Callable[[], Served]) -> Served:
    """A workspace whose server the tests kill and stop."""
    return make_served()


def test_a_serve_killed_at_any_moment_leaves_nothing_or_a_server_that_is_found(
    mortal: Served,
) -> None:
    review = mortal.root / "review"
    record = review / "server.json"
    moments: list[Callable[[], bool]] = [
        lambda: review.exists(),
        lambda: (review / "accounts.json").exists(),
        lambda: (review / "server.log").exists(),
        lambda: record.exists(),
        lambda: record.exists() and '"ready": true' in record.read_text(),
    ]
    survived = []
    for number, moment in enumerate(moments):
        mortal.curate("--stop")
        assert processes(mortal.root) == []
        command = [sys.executable, "-m", "curate", "-w", str(mortal.root), "review", "serve"]
        process = subprocess.Popen(
            [*command, "--port", str(mortal.port)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 60
        while time.monotonic() < until and process.poll() is None:
            with suppress(FileNotFoundError):
                if moment():
                    break
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = processes(mortal.root)
        assert len(left) <= 1
        survived += [bool(left)]
        # Of the others the next round stops what is left.
        if number in (1, 3, 4):
            told = mortal.serve()
            (found,) = processes(mortal.root)
            assert told["pid"] == found.pid
            assert not left or found.pid == left[0].pid
            assert mortal.client().who_am_i()["email"] == OWNER
    assert not survived[0]
    assert survived[-2:] == [True, True]


def test_a_server_that_was_stopped_or_killed_goes_on_with_all_it_had(mortal: Served) -> None:
    mortal.serve("--annotator", "bob@example.org")
    before = mortal.client().create_project("kept", CONFIG)["id"]
    accounts = mortal.kept
    for end in ("stop", "kill"):
        if end == "stop":
            # What anybody may do on its pages.
            mortal.client()._to.send("POST", "/api/current-user/reset-token/")
            assert "no longer takes the token" in mortal.serve(expect=2)["error"]
            assert mortal.curate("--stop")["state"] == "stopped"
        else:
            (process,) = processes(mortal.root)
            process.kill()
            psutil.wait_procs([process], 10)
        told = mortal.serve("--annotator", "bob@example.org")
        assert (told["state"], told["known"]) == ("started", ["bob@example.org"])
        assert mortal.kept == accounts
        assert mortal.client().project(before)["title"] == "kept"
        logged_in(told["url"], **accounts["accounts"][1]).close()


def test_a_server_that_is_away_is_told_before_and_during(mortal: Served) -> None:
    mortal.serve()
    client = mortal.client()
    project = client.create_project("away", CONFIG)["id"]
    (process,) = processes(mortal.root)
    caught: list[Exception] = []

    def push() -> None:
        try:
            for first in range(0, 100_000, 500):
                client.import_tasks(project, tasks(500, first))
        except ReviewServerError as error:
            caught.append(error)

    thread = threading.Thread(target=push)
    thread.start()
    time.sleep(1.5)
    process.kill()
    thread.join()
    (error,) = caught
    assert isinstance(error, Unanswered | ServerAway)
    assert "\n" not in str(error)
    with pytest.raises(ServerAway, match=f"http://127.0.0.1:{mortal.port} cannot be reached"):
        Client(client.url, mortal.kept["token"]).import_tasks(project, tasks(1))
    with pytest.raises(CurateError, match="no Label Studio runs.*curate review serve"):
        mortal.client()
    mortal.serve()
    # Batches are there whole or not at all.
    stored = len(mortal.client().task_ids(project))
    assert stored > 0
    assert stored % 500 == 0


def test_a_full_disk_is_one_line(make_served: Callable[[], Served]) -> None:
    other = make_served()
    # No file may become longer than this, which Python is told as it is of a full disk.
    limited = f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({1 << 19},) * 2); sys.argv[0] = 'curate'; runpy.run_module('curate', run_name='__main__')"  # noqa: E501
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            limited,
            "-w",
            other.root,
            "review",
            "serve",
            "--port",
            str(other.port),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the disk is full" in done.stderr.splitlines()[-1]
    assert processes(other.root) == []


# Asked by the client


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
    hasty = Client(running.client().url, running.kept["token"], seconds=0.05)
    with pytest.raises(Unanswered, match="timed out.*may have been stored"):
        hasty.import_tasks(project, tasks(500))
    client = running.client()
    until = time.monotonic() + 60
    while len(client.find_tasks(project, keys(500))) < 500 and time.monotonic() < until:
        time.sleep(0.2)
    assert len(client.task_ids(project)) == 500


def test_what_was_changed_since_a_time_comes_with_its_annotations(
    running: Served, project: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = running.client()
    ids = client.import_tasks(project, tasks(7))
    since = client.clock()
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
        assert browser.get(url, timeout=30).content == photo
        for path in ("../accounts.json", "images/../../accounts.json", "images/../../curate.yaml"):
            answer = browser.get(f"{client.url}/data/local-files/?d={path}", timeout=30)
            assert answer.status_code in (404, 500)
            assert running.kept["token"] not in answer.text
    assert requests.get(url, timeout=30).status_code == 401
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
