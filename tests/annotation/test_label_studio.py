"""A real Label Studio for a workspace: started, found, killed, stopped.

It is installed in the user's cache folder, as `curate review serve` does it: minutes at first.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from annotation import server_process, venv
from annotation.client import Client
from annotation.client_errors import (
    ReviewServerError,
    ServerAway,
    Unanswered,
)
from annotation.server_accounts import OWNER
from curate.errors import CurateError
from tests.annotation.serving import (
    CONFIG,
    Served,
    kill,
    logged_in,
    processes,
    secrets_of,
    tasks,
)
from tests.running import ROOT, copy_of, run_curate
from tests.waiting import PATIENCE, reserved_port

# The first test to run may have to install it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_started_again_it_is_the_same_process(running: Served) -> None:
    pids = [process.pid for process in processes(running.root)]
    told = running.curate()
    assert (told["state"], [told["pid"]]) == ("running", pids)
    assert told["accounts"] == []
    assert told["url"] == f"http://127.0.0.1:{running.port}"
    assert [process.pid for process in processes(running.root)] == pids


def test_another_port_is_refused_while_it_runs(running: Served) -> None:
    told = running.curate("--port", str(reserved_port()), expect=2)
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
        browser.get(page, timeout=PATIENCE)
        form = {
            "csrfmiddlewaretoken": browser.cookies["csrftoken"],
            "email": "eve@example.org",
            "password": "a long password",
        }
        answer = browser.post(page, data=form, headers={"Referer": page}, timeout=PATIENCE)
    assert answer.status_code == 403
    assert "eve@example.org" not in [user["email"] for user in running.client().users()]


def test_it_listens_on_loopback_alone_and_under_no_other_name(running: Served) -> None:
    (process,) = processes(running.root)
    listening = [each for each in process.net_connections() if each.status == "LISTEN"]
    assert [(each.laddr.ip, each.laddr.port) for each in listening] == [("127.0.0.1", running.port)]
    url = f"http://127.0.0.1:{running.port}/health"
    for host, status in (("localhost:9999", 200), ("evil.example.org", 400)):
        answer = requests.get(url, headers={"Host": host}, timeout=PATIENCE)
        assert answer.status_code == status, host


def test_its_pages_name_no_place_that_faults_are_reported_to(running: Served) -> None:
    owner = running.kept["accounts"][0]
    with logged_in(f"http://127.0.0.1:{running.port}", **owner) as browser:
        page = browser.get(f"http://127.0.0.1:{running.port}/projects/", timeout=PATIENCE).text
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
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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


#: When the command dies: as soon as there is a file of the folder `review` that holds a text.
MOMENTS = (
    ("", ""),
    ("accounts.json", ""),
    ("server.log", ""),
    ("server.json", ""),
    ("server.json", '"ready": true'),
)

#: A command that looks for itself, at each file that it opens and whatever else Python tells of:
#: who looks from outside comes too late on a busy machine.
DIES = """
import os, signal, sys

path, text = sys.argv[1:3]
del sys.argv[1:3]
looking = False

def look(event, arguments):
    global looking
    if looking:
        return
    looking = True
    try:
        if os.path.exists(path) and (not text or text in open(path).read()):
            os.kill(os.getpid(), signal.SIGKILL)
    except FileNotFoundError:
        pass
    looking = False

sys.addaudithook(look)
from curate.cli.main import main
main()
"""


def test_a_serve_killed_at_any_moment_leaves_nothing_or_a_server_that_is_found(
    mortal: Served,
) -> None:
    survived = []
    for number, (file, text) in enumerate(MOMENTS):
        mortal.curate("--stop")
        assert processes(mortal.root) == []
        command = ["-w", str(mortal.root), "review", "serve", "--port", str(mortal.port)]
        done = subprocess.run(
            [sys.executable, "-c", DIES, str(mortal.root / "review" / file), text, *command],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=2 * PATIENCE,
        )
        assert done.returncode == -signal.SIGKILL, file
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
            kill(process)
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
    begun = threading.Event()

    def push() -> None:
        try:
            for first in range(0, 100_000, 500):
                client.import_tasks(project, tasks(500, first))
                begun.set()
        except ReviewServerError as error:
            caught.append(error)

    thread = threading.Thread(target=push)
    thread.start()
    assert begun.wait(PATIENCE)
    kill(process)
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
