"""Two people review the real shortlist: serve, push, answer, pull, adjudicate, accept."""

from __future__ import annotations

import csv
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from annotation import venv
from annotation.client import Client
from annotation.server_accounts import OWNER
from tests.annotation.browsing import Person, somebody
from tests.annotation.serving import Served, logged_in, processes
from tests.pipelines.label_studio_model import said
from tests.running import ROOT, run_curate
from tests.waiting import PATIENCE, reserved_port

# The first test to run may have to install it.
pytestmark = [pytest.mark.slow, pytest.mark.photos, pytest.mark.timeout(900)]

ANN, BOB = "ann@example.org", "bob@example.org"

#: What two careful people say; what was judged ambiguous they find unclear.
DECISIONS = {
    "genuine": "valid",
    "wrong label": "wrong-label",
    "not a photo": "not-a-photo",
    "several classes": "several-classes",
    "ambiguous": "unclear",
}

#: What is pressed for each, with the follow-up where there is one.
KEYS = {
    "valid": ("1", "0"),
    "wrong-label": ("2",),
    "several-classes": ("3",),
    "unclear": ("4",),
    "not-a-photo": ("5",),
}

#: A fighter among airliners. ImageNet-A has no class for it: the tank stands for one here.
FIGHTER, TANK = "8b658526a72ac8ee817212ae284918c6691934c50ed5dcb2a5cc03f364b8e146", "n04389033"


@pytest.fixture
def served(
    installed: venv.Installed, tmp_path: Path, shared_data: Path
) -> Iterator[tuple[Served, dict[str, str]]]:
    """A workspace with the real shortlist, and what is to be said of each photo on it."""
    photos = shared_data / "photos"
    with (photos / "reference.csv").open(encoding="utf-8") as stream:
        kept = [row["path"] for row in csv.DictReader(stream) if row["outcome"] == "survivor"]
    with (tmp_path / "labels.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label"])
        writer.writerows([path, path.split("/")[2]] for path in kept)
    root = tmp_path / "workspace"
    run_curate("init", root, "--preset", "imagenet-a")
    run_curate("collect", "folder", photos, "--labels", tmp_path / "labels.csv", workspace=root)
    run_curate("filter", workspace=root)
    with (ROOT / "benchmarks" / "survivors.csv").open(encoding="utf-8") as stream:
        judged = {row["sha256"]: DECISIONS[row["judgement"]] for row in csv.DictReader(stream)}
    made = Served(root, reserved_port(), [])
    yield made, judged
    made.curate("--stop", expect=None)
    for process in processes(root):
        process.kill()


def review(root: Path, *arguments: str) -> dict[str, Any]:
    done = run_curate("--json", "review", *arguments, workspace=root)
    summary = json.loads(done.stdout)
    assert isinstance(summary, dict)
    return summary


def documented(page: str) -> list[str]:
    """The commands of a page, without `curate review`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- test: review -->\n```\n(.*?)```", text, re.DOTALL)
    return [line.removeprefix("curate review ") for line in block.splitlines()]


def tasks_of(client: Client, url: str) -> list[dict[str, Any]]:
    """The tasks of a project, in the order of its queue."""
    project = int(url.split("/projects/")[1].split("/")[0])
    return [client.task(number) for number in client.task_ids(project)]


def photo_of(task: dict[str, Any]) -> str:
    return Path(task["data"]["image"]).stem


def answer(client: Client, task: dict[str, Any], decision: str, corrected: str | None) -> None:
    unique = str(uuid.uuid4())
    client.create_annotation(task["id"], said(decision, corrected=corrected), unique, lead_time=4)


def token_of(url: str, account: dict[str, Any]) -> str:
    with logged_in(url, **account) as browser:
        return str(browser.get(f"{url}/api/current-user/token", timeout=PATIENCE).json()["token"])


def test_two_people_review_the_real_shortlist_and_one_dispute_is_adjudicated(
    served: tuple[Served, dict[str, str]], browser_path: str
) -> None:
    workspace, judged = served
    root = workspace.root
    assert documented("README.md") == documented("docs/reviewing.md")
    assert documented("README.md") == [
        f"serve --annotator {ANN} --annotator {BOB}",
        "push",
        "pull",
        "status --page review.html",
        "adjudicate",
        "pull",
        "export --accepted",
        "curate release build 1.0.0",
        "curate release verify 1.0.0",
    ]
    url = workspace.serve("--annotator", ANN, "--annotator", BOB)["url"]
    accounts = {account["email"]: account for account in workspace.kept["accounts"]}
    owner = workspace.client()
    pushed = review(root, "push")
    assert (pushed["queue"], pushed["pushed"], pushed["waiting"]) == (18, 36, 18)
    assert review(root, "push")["pushed"] == 0
    assert [person["account"] for person in pushed["annotators"]] == [ANN, BOB]
    queues = [tasks_of(owner, person["url"]) for person in pushed["annotators"]]
    assert len(queues[0]) == len(queues[1]) == 18
    assert {photo_of(task) for task in queues[0]} <= judged.keys()
    assert review(root, "doctor")["problems"] == []

    # Over one photo they will differ.
    unclear = [photo_of(task) for task in queues[0] if judged[photo_of(task)] == "unclear"]
    disputed = unclear[0]
    by_keyboard = 5
    with somebody(browser_path, url, accounts[ANN], Person) as ann:
        ann.open_queue(url, queues[0][0]["project"])
        number = ann.page.locator(".lsf-current-task__task-id")
        for task in queues[0][:by_keyboard]:
            number.filter(has_text=str(task["id"])).wait_for()
            ann.ready()
            decision = "valid" if photo_of(task) == disputed else judged[photo_of(task)]
            first, *then = KEYS[decision]
            ann.press(first)
            if then:
                ann.page.get_by_text("also clearly there").wait_for()
                ann.press(*then)
            ann.submit()
    clients = [Client(url, token_of(url, accounts[email])) for email in (ANN, BOB)]
    for task in queues[0][by_keyboard:]:
        decision = "valid" if photo_of(task) == disputed else judged[photo_of(task)]
        corrected = TANK if photo_of(task) == FIGHTER else None
        answer(clients[0], task, decision, corrected)
    for task in queues[1]:
        corrected = TANK if photo_of(task) == FIGHTER else None
        answer(clients[1], task, judged[photo_of(task)], corrected)

    pulled = review(root, "pull")
    assert (pulled["pulled"], pulled["waiting"], pulled["disputed"]) == (36, 0, 1)
    assert (pulled["set_aside"], pulled["problems"]) == (0, [])
    assert pulled["corrected"] == 1
    genuine = {photo_of(task) for task in queues[0] if judged[photo_of(task)] == "valid"}
    assert pulled["accepted"] == len(genuine) == 4
    assert sum(pulled["rejected"].values()) == 13
    raw = pulled["agreement"]["raw"]
    assert raw["value"] == pytest.approx(17 / 18)
    assert raw["low"] < raw["value"] < raw["high"]
    assert review(root, "pull")["pulled"] == 0

    last_word = review(root, "adjudicate")
    assert last_word["pushed"] == 1
    (task,) = tasks_of(owner, last_word["url"])
    assert photo_of(task) == disputed
    assert "annotator-1: valid" in task["data"]["votes"]
    assert ANN not in json.dumps(task["data"])
    answer(owner, task, "valid", None)
    done = review(root, "pull")
    assert (done["accepted"], done["disputed"]) == (5, 0)

    exported = run_curate("review", "export", "--accepted", workspace=root).stdout
    rows = list(csv.DictReader(exported.splitlines()))
    assert {row["sha256"] for row in rows} == genuine | {disputed}
    status = review(root, "status", "--page", str(root.parent / "review.html"))
    assert [(one["open"], one["done"]) for one in status["annotators"][:2]] == [(0, 18), (0, 18)]
    funnel = json.loads(run_curate("--json", "status", workspace=root).stdout)["funnel"]
    assert (funnel["shortlisted"], funnel["reviewed"], funnel["accepted"]) == (18, 18, 5)
    report = run_curate("--json", "report", workspace=root).stdout
    page = Path(json.loads(report)["path"]).read_text(encoding="utf-8")
    told = "on the shortlist people have accepted 5 and rejected 13."
    assert f"<strong>Reviewed.</strong> Of the 18 photos {told}" in page
    assert page.count("<strong>accepted</strong>") == 5
    assert page.count("<strong>rejected: wrong-label</strong>") > 0
    built = json.loads(run_curate("--json", "release", "build", "1.0.0", workspace=root).stdout)
    assert (built["images"], built["reviewed"]) == (5, True)
    released = Path(built["path"])
    manifest = pq.read_table(released / "manifest.parquet").to_pylist()
    assert {row["original_sha256"] for row in manifest} == genuine | {disputed}
    assert sorted(row["adjudicated"] for row in manifest) == [False] * 4 + [True]
    checked = run_curate("--json", "release", "verify", "1.0.0", workspace=root).stdout
    assert json.loads(checked)["problems"] == []
    everything = run_curate("review", "export", workspace=root).stdout
    everything += "".join(
        file.read_text(encoding="utf-8")
        for file in released.glob("*")
        if file.suffix != ".parquet" and file.is_file()
    )
    assert ANN not in everything
    kept = json.dumps(workspace.kept)
    for text in (exported, everything, json.dumps(status)):
        assert OWNER not in text
        assert not [a for a in accounts.values() if a["password"] in text]
        assert workspace.kept["token"] not in text
    assert workspace.kept["token"] in kept
    page = (root.parent / "review.html").read_text(encoding="utf-8")
    assert "annotator-1" in page
    assert ANN not in page
