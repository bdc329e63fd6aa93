"""Pushing a real run on real photos to a real Label Studio, which goes away or is cut off."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from PIL import Image
from sqlalchemy import delete, select

from annotation import venv
from annotation.browser import Browser
from annotation.client import Client
from annotation.server_accounts import Account
from curate.catalog import listing
from curate.catalog.review_tables import answers, gold, review_projects, review_tasks
from curate.catalog.tables import tombstones
from curate.errors import CurateError
from curate.labels.space import load_label_space
from pipelines.collect import collect_folder
from pipelines.filter import run_filter
from pipelines.retractions import retract
from pipelines.review_doctor import examine
from pipelines.review_pull import pull
from pipelines.review_push import push
from pipelines.review_sending import _Sending
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.annotation.serving import Served, kill, processes
from tests.running import ROOT, dying, run_curate
from tests.sources.servers import Exchange, LoopbackServer
from tests.waiting import PATIENCE, reserved_port

# The first test to run may have to install it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PEOPLE = ("ann@example.org", "bob@example.org")

#: Eight survivors, and those of the four controls that are none.
QUEUE = 10


@pytest.fixture(scope="module")
def reviewing(
    installed: venv.Installed,
    tmp_path_factory: pytest.TempPathFactory,
    package_photos: list[tuple[Path, int]],
) -> Iterator[Served]:
    """A workspace whose run has eight survivors, one of them a TIFF and one in CMYK; its server
    runs, and two annotators have accounts."""
    base = tmp_path_factory.mktemp("pushing")
    wnids = load_label_space("imagenet-1k").wnids
    wrong = [(path, package_photos[n + 7][1]) for n, (path, _) in enumerate(package_photos[:8])]
    for number, (path, label) in enumerate([*package_photos[:12], *wrong]):
        folder = base / "photos" / wnids[label]
        folder.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as photo:
            if number == 13:
                photo.save(folder / f"{path.stem}.tif")
            elif number == 14:
                photo.convert("CMYK").save(folder / f"{path.stem}-cmyk.jpg", quality=95)
            else:
                shutil.copy(path, folder)
    (base / "preset.yaml").write_text("label_space: imagenet-1k\n")
    root = base / "workspace"
    opened = create_workspace(root, str(base / "preset.yaml"))
    collect_folder(opened, base / "photos")
    run_filter(opened.changed({"filter.control": 4}))
    opened.close()
    made = Served(root, reserved_port(), [])
    made.serve(*(part for email in PEOPLE for part in ("--annotator", email)))
    yield made
    made.curate("--stop", expect=None)
    for process in processes(root):
        process.kill()


@pytest.fixture
def served(reviewing: Served) -> Iterator[Served]:
    """The same with nothing pushed."""
    yield reviewing
    if not processes(reviewing.root):
        reviewing.serve()
    client = reviewing.client()
    for project in all_projects(client):
        client.delete_project(project["id"])
    workspace = open_workspace(reviewing.root)
    with workspace.catalogue.write() as connection:
        for table in (answers, review_tasks, review_projects, gold, tombstones):
            connection.execute(delete(table))
    workspace.close()


@pytest.fixture
def workspace(served: Served) -> Iterator[Workspace]:
    opened = open_workspace(served.root)
    yield opened
    opened.close()


def pushed(root: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run_curate("--json", "review", "push", workspace=root, **env)


def assert_exact(served: Served, workspace: Workspace) -> None:
    """Each of the queue is at the server for two people, under the numbers that are known."""
    client = served.client()
    with workspace.catalogue.read() as connection:
        rows = connection.execute(
            select(
                review_projects.c.number.label("project"),
                review_tasks.c.number,
                review_tasks.c.candidate,
                review_tasks.c.gold,
            )
            .join(review_projects, review_projects.c.id == review_tasks.c.project_id)
            .where(review_projects.c.state == "open")
        ).all()
    projects = {row.project for row in rows}
    assert projects == {each["id"] for each in all_projects(client, "review ")}
    for project in projects:
        written = {row.number: row.candidate for row in rows if row.project == project}
        assert sorted(written) == client.task_ids(project)
        found = client.find_tasks(project, list(written.values()))
        assert {numbers[0]: key for key, numbers in found.items()} == written
    times = Counter(row.candidate for row in rows if not row.gold)
    assert (len(times), set(times.values())) == (QUEUE, {2})


def all_projects(client: Client, beginning: str = "") -> list[dict[str, Any]]:
    found = client._to.ask("/api/projects/", {"page_size": 100})["results"]
    return [project for project in found if project["title"].startswith(beginning)]


def test_the_queue_is_pushed_once_and_browsers_see_its_photos(
    served: Served, workspace: Workspace
) -> None:
    summary = push(workspace, gold_rate=0.2)
    with workspace.catalogue.read() as connection:
        listed = listing.shortlist(connection, summary["run"])
        control = {row["candidate"] for row in listing.control_sample(connection, summary["run"])}
        items = connection.execute(select(gold.c.candidate, gold.c.decision)).all()
        given = connection.execute(
            select(review_tasks.c.candidate, review_tasks.c.gold).order_by(review_tasks.c.place)
        ).all()
    assert {decision for _, decision in items} == {"valid", "wrong-label"}
    assert {key for key, is_gold in given if not is_gold} == control | {o.candidate for o in listed}
    assert {key for key, is_gold in given if is_gold} <= {key for key, _ in items}
    assert summary["waiting"] == len(listed) == 8
    assert push(workspace, gold_rate=0.2)["pushed"] == 0
    assert_exact(served, workspace)
    found = examine(workspace)
    assert found["problems"] == []
    assert found["checked"] == {"accounts": 2, "projects": 2, "photos": 3}
    ann = next(each for each in served.kept["accounts"] if each["email"] == PEOPLE[0])
    client = served.client()
    with Browser(client.url, Account(**ann)) as browser:
        kinds: Counter[str] = Counter()
        for number in client.task_ids(summary_project(summary, 0)):
            data = client.task(number)["data"]
            fetched = browser.fetch(data["image"], 10_000_000)
            assert (fetched.status, fetched.why) == (200, "")
            kinds[fetched.type] += 1
        assert kinds["image/png"] == 2
    # Nobody is asked of a photo twice under one label, and what is derived is made once.
    derived = sorted((served.root / "review" / "served" / "derived").rglob("*.*"))
    assert [path.suffix for path in derived] == [".png", ".png"]
    with Image.open(derived[0]) as picture:
        assert (picture.mode, picture.info) == ("RGB", {})
    # What is taken back is asked of nobody, and both sides count the same afterwards.
    gone = next(key for key, is_gold in given if not is_gold)
    project = summary_project(summary, 0)
    there = client.task_ids(project)
    assert retract(workspace, gone, "privacy")["withdrawn"] == 2
    (number,) = client.find_tasks(project, [gone])[gone]
    assert push(workspace, gold_rate=0.2)["problems"] == []
    assert client.task_ids(project) == [each for each in there if each != number]
    told = pull(workspace)
    assert (told["problems"], told["tasks_gone"]) == ([], 0)


def summary_project(summary: dict[str, Any], person: int) -> int:
    return int(summary["annotators"][person]["url"].split("/")[-2])


#: After each step at the server: the first project is made, may show its two folders, the second is
#: made, may show its folders and the first tasks are there, and the others.
KILLS = ("send:2", "send:4", "send:2", "send:6", "send:2")


def test_a_push_killed_at_each_step_leaves_each_task_once(
    served: Served, workspace: Workspace
) -> None:
    for at in KILLS:
        assert dying("-w", served.root, "review", "push", at=at) is None, at
    pushed(served.root)
    assert_exact(served, workspace)


def test_a_push_that_forgets_what_it_sent_is_caught(served: Served, workspace: Workspace) -> None:
    """The planted fault that the test of kills must find."""
    push(workspace, most=1)
    forgetful = ("--fault", "forgetful", "-w", served.root, "review", "push")
    assert dying(*forgetful, at="send:2") is None
    assert dying(*forgetful, at="any:1000000") is not None
    with pytest.raises(AssertionError):
        assert_exact(served, workspace)


@pytest.mark.thorough
def test_a_server_that_ends_during_a_push_is_one_line_and_the_next_push_goes_on(
    served: Served, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.review_sending.BATCH", 3)
    monkeypatch.setattr("annotation.client_http.backoff", lambda attempt: 0.1)
    keep = _Sending._keep

    def then_ends(self: _Sending, numbers: Any) -> None:
        keep(self, numbers)
        for process in processes(served.root):
            kill(process)

    with monkeypatch.context() as planted:
        planted.setattr(_Sending, "_keep", then_ends)
        with pytest.raises(CurateError) as caught:
            push(workspace)
    assert "\n" not in str(caught.value)
    assert served.kept["token"] not in str(caught.value)
    with pytest.raises(CurateError, match="curate review serve"):
        push(workspace)
    found = examine(workspace)
    assert [one["kind"] for one in found["problems"]] == ["server"]
    assert "curate review serve" in found["problems"][0]["what"]
    served.serve()
    push(workspace)
    assert_exact(served, workspace)


class Cutting(LoopbackServer):
    """Hands all on to a server, but cuts off the first answers to what is sent to some paths."""

    def __init__(self, url: str, cut: dict[str, int]) -> None:
        super().__init__()
        self.target, self.cut = url, dict(cut)
        self.on("/*", self.hand_on)

    def hand_on(self, exchange: Exchange) -> None:
        asked = exchange.request
        kept = ("Authorization", "Content-Type")
        answer = requests.request(
            asked.method,
            self.target + asked.path,
            params=asked.query,
            data=asked.body,
            headers={name: asked.headers[name] for name in kept if name in asked.headers},
            timeout=PATIENCE,
            allow_redirects=False,
        )
        end = asked.path.rstrip("/").rpartition("/")[2]
        if asked.method == "POST" and self.cut.get(end, 0) > 0:
            self.cut[end] -= 1
            exchange.raw(b"HTTP/1.1 201 Created\r\nContent-Length: 1000\r\n\r\n{")
            return
        exchange.send(
            answer.status_code, answer.content, {}, answer.headers.get("Content-Type", "")
        )


def test_answers_that_are_cut_off_leave_no_task_twice_and_photos_are_uploaded_once(
    served: Served, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = served.client()
    monkeypatch.setenv("CURATE_REVIEW_TOKEN", served.kept["token"])
    # Photos are uploaded by imports, and there are two of tasks.
    with Cutting(client.url, {"projects": 2, "import": 2}) as proxy:
        theirs = workspace.changed({"review.url": proxy.url(""), "review.annotators": list(PEOPLE)})
        assert push(theirs)["pushed"] == 2 * QUEUE
        assert proxy.cut == {"projects": 0, "import": 0}
        assert push(theirs)["pushed"] == 0
        assert_exact(served, workspace)
        (project,) = all_projects(client, "photos ")
        names = [address.rpartition("-")[2] for address in client.uploads(project["id"])]
        # The two controls are photos of survivors under other labels.
        assert len(names) == len(set(names)) == QUEUE - 2
        assert Counter(name.rpartition(".")[2] for name in names) == {"jpg": 6, "png": 2}
        found = examine(theirs)
        assert found["problems"] == []
        assert found["checked"]["photos"] == 3


def test_a_deleted_project_is_made_anew_and_an_edited_page_is_brought_back(
    served: Served, workspace: Workspace
) -> None:
    summary = push(workspace)
    client = served.client()
    client.delete_project(summary_project(summary, 0))
    assert [one["kind"] for one in examine(workspace)["problems"]] == ["project"]
    again = push(workspace)
    assert again["pushed"] == QUEUE
    assert_exact(served, workspace)
    second = summary_project(again, 1)
    page = client.project(second)["label_config"]
    client.update_project(second, label_config=page.replace("Yes", "Sure"))
    assert "edited by hand" in push(workspace)["problems"][0]
    edited = examine(workspace)
    assert [one["kind"] for one in edited["problems"]] == ["page"]
    assert examine(workspace, repair=True)["unrepaired"] == 0
    assert client.project(second)["label_config"] == page
    assert examine(workspace)["problems"] == []


def test_the_doctor_names_a_lost_photo_and_a_forbidden_folder(
    served: Served, workspace: Workspace
) -> None:
    summary = push(workspace)
    client = served.client()
    for each in client.local_storages(summary_project(summary, 0)):
        client._to.send("DELETE", f"/api/storages/localfiles/{each['id']}")
    kinds = Counter(one["kind"] for one in examine(workspace)["problems"])
    assert kinds["storage"] == 1
    assert examine(workspace, repair=True)["unrepaired"] == 0
    for path in (served.root / "review" / "served" / "derived").rglob("*.png"):
        path.write_bytes(path.read_bytes()[:-100])
    found = examine(workspace)["problems"]
    assert {one["kind"] for one in found} == {"photo"}
    assert "is no whole picture" in found[0]["what"]
    for secret in (served.kept["token"], *(a["password"] for a in served.kept["accounts"])):
        assert secret not in str(found)
    shutil.rmtree(served.root / "review" / "served" / "derived")


@pytest.mark.thorough
def test_two_pushes_at_once_push_each_task_once(served: Served, workspace: Workspace) -> None:
    command = [sys.executable, "-m", "curate", "-w", str(served.root), "review", "push"]
    both = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)
    ]
    told = [process.communicate(timeout=PATIENCE)[1] for process in both]
    for process, text in zip(both, told, strict=True):
        assert process.returncode in (0, 1), text
        assert process.returncode == 0 or "curate review" in text
    assert 0 in {process.returncode for process in both}
    assert_exact(served, workspace)
