"""A blind test at a real Label Studio: shown without labels, answered, brought home."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from annotation.client_errors import GoneError
from annotation.interface import NONE
from curate.catalog.tables import verdicts
from pipelines.review_blind import blind_test
from pipelines.review_export import answer_rows
from pipelines.review_pull import pull
from pipelines.review_status import review_status
from tests.annotation.serving import Served
from tests.pipelines.reviewing import Rows
from tests.pipelines.test_review_blind import accept
from tests.pipelines.test_review_push import LABELS, workspace_with

# The first test to run may have to install it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ANN = "ann@example.org"


class Address:
    """Where the server is, as `workspace_with` asks for it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, path: str) -> str:
        return self._url + path


@pytest.fixture
def rows(running: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rows]:
    """A workspace whose team has this server; two others have accepted eight photos."""
    monkeypatch.setenv("CURATE_REVIEW_TOKEN", running.kept["token"])
    url = Address(running.client().url)
    made = workspace_with(tmp_path / "w", url, 18, survivors=9)  # type: ignore[arg-type]
    made.accounts = ["bob@example.org", "cid@example.org"]
    with made.workspace.catalogue.write() as connection:
        connection.execute(update(verdicts).values(view=0, p_true=0.99))
    accept(made, range(8))
    yield made
    made.workspace.close()


def picked(wnid: str | None) -> list[dict[str, Any]]:
    if wnid is None:
        kind, value = "choices", {"choices": [NONE]}
    else:
        kind, value = "taxonomy", {"taxonomy": [["a group", wnid]]}
    name = "unknown" if wnid is None else "picked"
    return [{"from_name": name, "to_name": "image", "type": kind, "value": value}]


def test_photos_are_shown_without_labels_and_the_answers_come_home(
    running: Served, rows: Rows
) -> None:
    client = running.client()
    ann = next(user["id"] for user in client.users() if user["email"] == ANN)
    told = blind_test(rows.workspace, 5, account=ANN)
    project = int(told["url"].split("/")[-2])
    try:
        assert (told["photos"], told["controls"], told["pushed"]) == (5, 3, 8)
        assert blind_test(rows.workspace, 5)["pushed"] == 0
        numbers = client.task_ids(project)
        assert len(numbers) == 8
        names = [rows.workspace.label_space.name_of(wnid) for wnid in LABELS]
        tasks = {}
        for number in numbers:
            tasks[number] = client.task(number)["data"]
            assert set(tasks[number]) == {"candidate", "image"}
            text = json.dumps(client.task(number))
            assert not [word for word in (*LABELS, *names) if word in text]
        wnid_of = dict(zip(rows.keys, rows.wnids, strict=True))
        mine = [n for n in numbers if tasks[n]["candidate"] in rows.keys[:8]]
        others = [n for n in numbers if n not in mine]
        right = {number: wnid_of[tasks[number]["candidate"]] for number in numbers}
        wrong = next(wnid for wnid in LABELS if wnid != right[mine[1]])

        def answer(number: int, wnid: str | None, **more: Any) -> None:
            result = [] if more.get("was_cancelled") else picked(wnid)
            said = {"completed_by": ann, "lead_time": 4.0, **more}
            client.create_annotation(number, result, str(uuid.uuid4()), **said)

        answer(mine[0], right[mine[0]])
        answer(mine[1], wrong)
        answer(mine[2], None)
        answer(mine[3], None, was_cancelled=True)
        answer(others[0], right[others[0]])
        summary = pull(rows.workspace)
        assert (summary["pulled"], summary["unread"], summary["problems"]) == (5, 0, [])
        found = review_status(rows.workspace)["blind"]
        accepted = {
            name: found["accepted"][name]
            for name in ("correct", "wrong", "cannot_tell", "skipped", "unanswered")
        }
        assert accepted == dict.fromkeys(accepted, 1)
        assert (found["controls"]["correct"], found["controls"]["unanswered"]) == (1, 2)
        exported = [row for row in answer_rows(rows.workspace) if row["purpose"] == "blind"]
        assert [row["picked"] for row in exported] == [
            right[mine[0]],
            wrong,
            None,
            None,
            right[others[0]],
        ]
        assert [row["control"] for row in exported] == [False] * 4 + [True]
        # More of them, and still none twice.
        assert blind_test(rows.workspace, 7)["pushed"] == 3
        assert pull(rows.workspace)["pulled"] == 0
    finally:
        with suppress(GoneError):
            client.delete_project(project)
