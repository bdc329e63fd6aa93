"""Adjudication: what annotators differ over goes to a project of its own, for the last word.

There the page shows who said what, by role. Whoever opens the project may answer, and the newest
answer decides (see `annotation.consensus`).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import RowMapping

from annotation.answers import Answer, Decision, standing
from annotation.client import Client
from annotation.client_errors import GoneError
from annotation.interface import adjudication_interface
from annotation.server import connect
from curate.catalog import answers as kept
from curate.catalog import review_queues as queues
from curate.errors import UsageError
from curate.labels.space import LabelSpace
from curate.progress import Stop, progress, stop_on_interrupt
from pipelines.review_offers import TaskMaker
from pipelines.review_outcomes import Reviewed, accepted, review_counts, reviewed
from pipelines.review_photos import Photos
from pipelines.review_projects import Project, ensure_project, is_gone, server_of
from pipelines.review_sending import send
from pipelines.runs import as_judged, finished_run
from pipelines.workspace import Workspace

#: What the project is called.
TITLE = "adjudication"

#: Longest note that is shown of one vote; the page holds few of them whole.
_NOTE = 300

#: How often the project is made anew because somebody deletes it meanwhile.
_TRIES = 3


def adjudicate(
    workspace: Workspace, *, title: str = TITLE, run_id: str | None = None
) -> dict[str, Any]:
    """Give the disputed candidates to whoever has the last word.

    What was given out for this before is not given out again, unless its task was deleted. What is
    disputed no longer stays there: an answer to it counts as any other adjudication.

    Args:
        workspace: the workspace.
        title: of the project, to which a code of the workspace is added.
        run_id: a finished run, whose classifiers' views and predictions the page shows; the newest
            one by default.

    Returns:
        `pushed` (tasks that came to be at the server), `project` (its title) and `url`, None where
        nothing is disputed; `unshown` (tasks whose photo cannot be shown), `problems` (a line
        each), and the counts of `review_outcomes.review_counts`.

    Raises:
        UsageError: no run has ended, no server runs, or the title cannot be one.
        BusyError: another review command is at work.
        Interrupted: stopped by the user; the same command goes on.
        ReviewServerError: as `annotation.client_errors` says.
    """
    title = title.strip()
    if not 3 <= len(title) <= 30 or not title.isprintable():
        raise UsageError("the title of a project has 3 to 30 characters in one line")
    run = finished_run(workspace, run_id)
    workspace = as_judged(workspace, run)
    with workspace.held("review"), stop_on_interrupt() as stop:
        settings = workspace.settings.review
        client = connect(workspace.root, settings, os.environ, lambda: stop.requested)
        return _Adjudication(workspace, client, run, title, stop).work()


def votes_text(given: Sequence[Answer], space: LabelSpace) -> str:
    """Who said what of one candidate, a line each, by the names of their roles.

    Args:
        given: the answers that stand.
        space: for the names of classes.
    """

    def named(wnids: Sequence[str]) -> str:
        return ", ".join(space.name_of(wnid) for wnid in wnids)

    lines = []
    for answer in given:
        text = f"{answer.annotator}: {answer.decision.value}"
        if answer.decision is Decision.WRONG_LABEL and answer.corrected:
            text += f", it is {named([answer.corrected])}"
        if answer.also:
            text += f"; also there: {named(answer.also)}"
        if answer.reasons:
            text += f" ({', '.join(answer.reasons)})"
        if note := " ".join(answer.note.split()):
            text += f": {note if len(note) <= _NOTE else note[: _NOTE - 1] + '…'}"
        lines.append(text)
    return "\n".join(lines)


class _Adjudication:
    def __init__(
        self, workspace: Workspace, client: Client, run: RowMapping, title: str, stop: Stop
    ) -> None:
        self.workspace, self.client, self.run = workspace, client, run
        self.title, self.stop = title, stop
        self.unshown: dict[str, str] = {}

    def work(self) -> dict[str, Any]:
        found = reviewed(self.workspace)
        disputed = {key for key, what in found.outcomes.items() if what.status == "disputed"}
        pushed, project = 0, None
        for _ in range(_TRIES):
            wanted = disputed - self._given_elsewhere()
            if not wanted:
                break
            project = self._project(found)
            self._give_out(project, wanted, found)
            sent = self._send(project, found)
            if sent is not None:
                pushed += sent
                break
        return self._summary(pushed, project)

    def _given_elsewhere(self) -> set[str]:
        """What waits for the last word, or has it, in a project of another title."""
        server = server_of(self.workspace)
        with self.workspace.catalogue.read() as connection:
            others = [
                row["id"]
                for row in queues.projects(connection, server, "adjudication")
                if row["state"] == "open" and row["record"].get("name") != self.title
            ]
            return {key for each in others for key in kept.given_in(connection, each)}

    def _project(self, found: Reviewed) -> Project:
        space = self.workspace.label_space
        record = {"question": found.question, "label_space": space.fingerprint}
        page = adjudication_interface(found.question, space)
        return ensure_project(
            self.workspace, self.client, "adjudication", None, page, record, name=self.title
        )

    def _give_out(self, project: Project, wanted: set[str], found: Reviewed) -> None:
        with self.workspace.catalogue.write() as connection:
            there = kept.given_in(connection, project["id"])
            places = kept.places(connection, "review")
            shown = kept.shown(connection, "review", wanted)
            first = kept.next_place(connection, project["id"])
            fresh = sorted(wanted - there, key=lambda key: (places[key], key))
            rows = [
                {
                    "candidate": key,
                    "sha256": shown[key],
                    "wnid": found.claimed[key],
                    "place": place,
                    "gold": False,
                    "until": None,
                }
                for place, key in enumerate(fresh, start=first)
            ]
            queues.give_out(connection, project["id"], rows)

    def _send(self, project: Project, found: Reviewed) -> int | None:
        """Send what is written down; None where the project has been deleted meanwhile."""
        with self.workspace.catalogue.read() as connection:
            rows = queues.unsent(connection, project["id"])
        if not rows:
            return 0
        keys = {row["candidate"] for row in rows}
        by_key: dict[str, list[Answer]] = defaultdict(list)
        for answer in standing(answer for answer in found.answers if answer.candidate in keys):
            by_key[answer.candidate].append(answer)
        space = self.workspace.label_space
        votes = {key: votes_text(given, space) for key, given in by_key.items()}
        make = TaskMaker(
            self.workspace,
            self.run,
            Photos(self.workspace, self.client),
            self._examples(),
            rows,
            "adjudication",
            votes,
        )
        with progress("push", len(rows), unit="tasks") as bar:
            try:
                sent = send(self.workspace, self.client, project, rows, make, self.stop, bar)
            except GoneError:
                if not is_gone(self.workspace, self.client, project):
                    raise
                return None
        self.unshown = make.refused
        return sent

    def _examples(self) -> list[tuple[str, str]]:
        listed = accepted(self.workspace, self.run["id"])
        with self.workspace.catalogue.read() as connection:
            known = queues.candidates_named(connection, [one.key for one in listed])
        return [(one.wnid, known[one.key]["sha256"]) for one in listed]

    def _summary(self, pushed: int, project: Mapping[str, Any] | None) -> dict[str, Any]:
        problems = [project["problem"]] if project and project["problem"] else []
        if self.unshown:
            key, why = next(iter(self.unshown.items()))
            problems.append(
                f"{len(self.unshown):,} candidates were not pushed, since their photos cannot be "
                f"shown; the first is {key} ({why}): curate doctor"
            )
        url = f"{self.client.url}/projects/{project['number']}/data" if project else None
        return {
            **review_counts(self.workspace),
            "pushed": pushed,
            "project": project["title"] if project else None,
            "url": url,
            "unshown": len(self.unshown),
            "problems": problems,
        }
