"""What the tests of a real Label Studio share: workspaces with a server, tasks, browsers."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import requests

from annotation.client import Client
from annotation.server import connect
from curate.setting_groups import ReviewSettings
from tests.running import run_curate
from tests.waiting import PATIENCE

CONFIG = (
    '<View><Image name="image" value="$image"/><Choices name="decision" toName="image">'
    '<Choice value="valid"/><Choice value="wrong-label"/></Choices></View>'
)


def processes(root: Path) -> list[psutil.Process]:
    """The servers of a workspace, however they were started."""
    record = str(root / "review" / "server.json")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if record in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kill(process: psutil.Process) -> None:
    """Kill a server, and wait until it has ended: before, connections may still be taken."""
    process.kill()
    assert psutil.wait_procs([process], PATIENCE)[1] == []


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
    browser.get(page, timeout=PATIENCE)
    form = {"csrfmiddlewaretoken": browser.cookies["csrftoken"], "email": email}
    answer = browser.post(
        page,
        data={**form, "password": password},
        headers={"Referer": page},
        timeout=PATIENCE,
        allow_redirects=False,
    )
    assert answer.status_code == 302, "the log-in is refused"
    return browser
